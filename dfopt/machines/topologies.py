"""Named network topologies, and the network dims that each of them is made of.

A network is a product of dims (`dfopt.documents.system.NetworkDim`): ring, line, switch or fully connected. DFModel
composes its networks in the same way (section III, after ASTRA-sim) and names some of them (section VI: 2D torus, 3D
torus, dragonfly, DGX-1, DGX-2). `TOPOLOGIES` lists the names, `expand` gives the dims.

A topology that is no product has an equivalent here: dims on which every collective of one group at a time takes
the time that it takes on the real wiring. That concerns ``dragonfly`` and ``fat_tree``; their text says how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Any, Final, get_args

from dfopt.documents.network import IN_A_DIM, DimWiring, Link, NetworkDim
from dfopt.documents.strict_yaml import load_strict
from dfopt.errors import Issue, SystemSpecError, did_you_mean

MOST = 8  # dims of a system


@dataclass(frozen=True)
class NamedTopology:
    """A named network topology.

    Parameters
    ----------
    description
        Description of its dims, innermost first.
    source
        Source of its definition.
    dims
        Wiring of each of its dims, by the name that it has unless others are given.
    least
        Smallest number of sizes that it accepts. None: one for each dim.
    """

    name: str
    description: str
    source: str
    dims: Mapping[str, DimWiring]
    least: int | None = None

    def takes(self, count: int) -> bool:
        """Whether the topology accepts this number of sizes."""
        return (self.least or len(self.dims)) <= count <= len(self.dims)

    @property
    def sizes(self) -> str:
        """Accepted number of sizes, in words.

        Examples
        --------
        >>> TOPOLOGIES["ring"].sizes, TOPOLOGIES["torus"].sizes
        ('1', '2 to 4')
        """
        return f"{self.least} to {len(self.dims)}" if self.least else str(len(self.dims))


_AXES = ("x", "y", "z", "w", "v", "u", "t", "s")
TOPOLOGIES: Final[dict[str, NamedTopology]] = {
    name: NamedTopology(name, **fields) for name, fields in load_strict(Path(__file__).with_suffix(".yaml")).items()
}


def expand(
    topology: str | Sequence[str],
    sizes: Sequence[int],
    links: Sequence[Link],
    names: Sequence[str] | None = None,
    *,
    taper: Sequence[float] = (),
) -> tuple[NetworkDim, ...]:
    """Network dims of a named topology, or of a product of basic wirings.

    Each dim has the wiring and the size that the name says, and its own link, except that

    * ``dragonfly`` (a chips in each of g groups): a chip reaches the chip of the same position in another group over
      the one link between the groups, which the a chips of a group share: link bandwidth / a. On the way, the
      message takes a local link to the chip that has the global link, and another to its target, so the dim's
      latency is that of the global link plus twice the local one. With the g - 1 global links of a group dealt to its
      chips in turn, ceil((g-1)/a) of them per chip, a local link carries up to 2 ceil((g-1)/a) messages of one
      chip to another at once: where that is narrower than the global link, it sets the bandwidth.
    * ``fat_tree``: a message through level i takes the switches of all levels below on its way up and down, so its
      latency is the sum of the latencies up to level i. Bandwidth per chip is at most that of the level below;
      ``taper`` says how many times more bandwidth a switch has towards the chips than upwards.

    Parameters
    ----------
    topology
        A name of `TOPOLOGIES`, or the wiring of each dim.
    sizes
        Chips along each dim; of a fat tree: chips per leaf, leaves per spine, and so on up.
    links
        The link of each dim (for switches: of each chip at that switch), or one for all.
    names
        Names of the dims, otherwise those of `TOPOLOGIES`.
    taper
        ``fat_tree`` only: oversubscription, 1 or more, of each level above the first; none = not tapered.

    Returns
    -------
    tuple of NetworkDim
        As `System.network` takes them, innermost first. None for a wafer.

    Raises
    ------
    SystemSpecError
        With every issue: an unknown topology, a wrong number of sizes, links, names or tapers, values out of range.

    Examples
    --------
    >>> torus = expand("torus", (4, 2), [Link(bandwidth=25e9)])
    >>> [(dim.name, dim.topology, dim.size) for dim in torus]
    [('x', 'ring', 4), ('y', 'ring', 2)]
    >>> [dim.link_bandwidth for dim in expand("dragonfly", (4, 5), [Link(bandwidth=100e9)])]
    [100000000000.0, 25000000000.0]
    >>> [dim.link_bandwidth for dim in expand("fat_tree", (8, 4), [Link(bandwidth=50e9)], taper=[2])]
    [50000000000.0, 25000000000.0]
    """
    named = _named_topology(topology)
    issues = _issues(named, sizes, links, names, taper)
    if issues:
        raise SystemSpecError("", issues)
    each = tuple(links) * len(sizes) if len(links) == 1 else tuple(links)
    build = _BUILD.get(named.name, _product)
    figures = build(tuple(sizes), each, tuple(taper))
    dims: list[NetworkDim] = []
    for name, wiring, size, link, (bandwidth, latency) in zip(
        names or named.dims, named.dims.values(), sizes, each, figures, strict=False
    ):
        fields = {IN_A_DIM.get(key, key): value for key, value in dict(link).items()}
        if build is _dragonfly and dims:
            # The chips of a group share its global links, and local links may be narrower still: what a chip sees is
            # less than its share of the cables. Those are paid in full.
            share = link.bandwidth / sizes[0] / bandwidth
            for key in ("link_usd_per_gb_s", "link_w_per_gb_s"):
                fields[key] = None if fields[key] is None else share * fields[key]
        if dims and named.name in _BUILD:  # up through the leaf, or over links of the group
            fields["port_of"] = dims[0].name
        fields |= {"name": name, "topology": wiring, "size": size, "link_bandwidth": bandwidth, "latency": latency}
        dims.append(NetworkDim(**fields))
    return tuple(dims)


def _named_topology(topology: str | Sequence[str]) -> NamedTopology:
    """The topology of a name, or one made of wirings."""
    if isinstance(topology, str):
        if topology in TOPOLOGIES:
            return TOPOLOGIES[topology]
        remedy = did_you_mean(topology, TOPOLOGIES, f"known: {', '.join(TOPOLOGIES)}")
        raise SystemSpecError("", [Issue("$.topology", f"found {topology!r}, expected a named topology", remedy)])
    allowed = get_args(DimWiring)
    issues = [
        Issue(f"$.topology[{i}]", f"found {wiring!r}, expected one of {', '.join(allowed)}")
        for i, wiring in enumerate(topology)
        if wiring not in allowed
    ]
    if len(topology) > MOST:
        issues.append(Issue("$.topology", f"found {len(topology)} wirings, expected at most {MOST}"))
    if issues:
        raise SystemSpecError("", issues)
    wirings: Any = dict(zip(_AXES, topology, strict=False))
    return NamedTopology("product", " x ".join(topology), "", wirings)


def _issues(
    named: NamedTopology,
    sizes: Sequence[int],
    links: Sequence[Link],
    names: Sequence[str] | None,
    taper: Sequence[float],
) -> list[Issue]:
    """All that is wrong with the figures of a topology."""
    count, issues = len(sizes), []
    is_a = f"a {named.name} is: {named.description}"
    if not named.takes(count):
        issues.append(Issue("$.sizes", f"found {count} sizes, expected {named.sizes} for {named.name}", is_a))
    for position, size in enumerate(sizes):
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            issues.append(Issue(f"$.sizes[{position}]", f"found {size!r}, expected a whole number of 1 or more"))
    if count and len(links) not in (1, count):
        remedy = "give a link for each size, or one for all"
        issues.append(Issue("$.links", f"found {len(links)} links, expected 1 or {count}", remedy))
    if names is not None and len(names) != count:
        issues.append(Issue("$.names", f"found {len(names)} names, expected {count}", "name every dim, or none"))
    if taper and named.name != "fat_tree":
        issues.append(Issue("$.taper", f"only a fat_tree is tapered, found a {named.name}", "leave taper out"))
    elif taper and len(taper) != count - 1:
        remedy = "one for each level above the first"
        issues.append(Issue("$.taper", f"found {len(taper)} tapers, expected {max(count - 1, 0)}", remedy))
    for position, factor in enumerate(taper):
        if not (factor >= 1 and isfinite(factor)):
            issues.append(Issue(f"$.taper[{position}]", f"found {factor}, expected a finite number of 1 or more"))
    return issues


LinkFigures = tuple[tuple[float, float], ...]  # bandwidth and latency of each dim


def _product(sizes: tuple[int, ...], links: tuple[Link, ...], taper: tuple[float, ...]) -> LinkFigures:
    """Bandwidth and latency of the dims of a product of wirings: those of their links."""
    return tuple((link.bandwidth, link.latency) for link in links[: len(sizes)])


def _dragonfly(sizes: tuple[int, ...], links: tuple[Link, ...], taper: tuple[float, ...]) -> LinkFigures:
    """The second dim: one global link between each two groups, reached over local links."""
    (chips, groups), (local, between) = sizes, links
    if chips == 1:  # every chip has its own global links
        return (local.bandwidth, local.latency), (between.bandwidth, between.latency)
    per_chip = -(-(groups - 1) // chips)  # global links of a chip, rounded up
    shared = min(between.bandwidth / chips, local.bandwidth / (2 * per_chip) if per_chip else inf)
    return (local.bandwidth, local.latency), (shared, between.latency + 2 * local.latency)


def _fat_tree(sizes: tuple[int, ...], links: tuple[Link, ...], taper: tuple[float, ...]) -> LinkFigures:
    """Each level: at most the bandwidth of the level below, less its taper, and the latencies of the way up."""
    figures: list[tuple[float, float]] = []
    bandwidth, latency = inf, 0.0
    for link, factor in zip(links, (1.0, *(taper or (1.0,) * (len(sizes) - 1))), strict=True):
        bandwidth, latency = min(bandwidth, link.bandwidth) / factor, latency + link.latency
        figures.append((bandwidth, latency))
    return tuple(figures)


_BUILD: dict[str, Callable[[tuple[int, ...], tuple[Link, ...], tuple[float, ...]], LinkFigures]] = {
    "dragonfly": _dragonfly,
    "fat_tree": _fat_tree,
}
