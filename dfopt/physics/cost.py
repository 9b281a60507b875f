"""Price and power of a system: DFModel, section VI.C, with counts of links and switches.

A dim of ``size`` chips in a network of ``chips`` is ``chips / size`` separate groups. What a group consists of:

============== ================ ============
topology       links            switch ports
============== ================ ============
ring           size (1: none)   0
line           size - 1         0
switch         size             size
fully_connected size (size-1)/2 0
============== ================ ============

These are the ``exact`` counts: cables, each with two directions, and ports of switch chips. The ``dfmodel``
counts are those of DFModel's public program (github.com/fengqian-ayce/DFModel, commit 04f93d5), which its
reported prices and powers follow. There a ring has ``size`` links and two switch ports; a switch and a fully
connected dim exist once for each group of the *later* dims, as if one chip of each inner group were connected; a
fully connected dim counts each direction as a link and has ``size**2`` switch ports unless it is the first dim;
links cost nothing for one chip and switches nothing for up to four.

A link or port is paid by its bandwidth of one direction.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from dfopt.documents.base import Part
from dfopt.documents.system import NetworkDim, System
from dfopt.errors import Issue, SystemSpecError
from dfopt.units import number, show_unit

Counting = Literal["exact", "dfmodel"]
CostUnit = Literal["usd", "w"]

_PORTLESS: Final = 4  # chips up to which DFModel's program counts no switch ports
_GB_S = 1e9  # prices are per GB/s, bandwidths are in B/s


@dataclass(frozen=True)
class DimCounts:
    """Number of links and of switch ports of one network dim, over the whole system."""

    dim: str
    links: int
    switch_ports: int


@dataclass(frozen=True)
class SystemCost:
    """Price in USD and power in W of accelerators, memory, links and switches, over all chips.

    Each is of those parts that have one, and None where none has. ``missing`` has the paths of the fields of the system
    that the others would need, such as ``$.chip.price_usd``.

    Examples
    --------
    >>> cost = SystemCost({"accelerators": 1e5, "links": None}, {}, ("$.network[0].link_usd_per_gb_s",))
    >>> cost.total_usd, cost.complete("usd"), cost.without("usd")
    (100000.0, None, ('$.network[0].link_usd_per_gb_s',))
    >>> cost.incomplete
    {'price': '100,000 USD without $.network[0].link_usd_per_gb_s'}
    """

    usd: Mapping[str, float | None]
    w: Mapping[str, float | None]
    missing: tuple[str, ...] = ()

    @property
    def total_usd(self) -> float | None:
        """Price in USD of all parts with a known price; None if there are none. See `complete` for the whole system."""
        return _complete(self.usd.values())

    @property
    def total_w(self) -> float | None:
        """Power in W of all parts with a known power; None if there are none. See `complete` for the whole system."""
        return _complete(self.w.values())

    def without(self, unit: CostUnit) -> tuple[str, ...]:
        """Paths of the fields that are missing from the total of a unit."""
        return tuple(path for path in self.missing if unit in re.split(r"[._]", path))

    def complete(self, unit: CostUnit) -> float | None:
        """Price in USD or power in W of the whole system; None if any part is unknown."""
        return None if self.without(unit) else self.total_usd if unit == "usd" else self.total_w

    @property
    def incomplete(self) -> dict[str, str]:
        """For price and power, if incomplete: the known total as text, and which fields are missing."""
        usd, w = self.total_usd, self.total_w
        words = {"price": usd and f"{number(usd)} USD", "power": w and show_unit(w, "power")}
        lacking = {"price": ", ".join(self.without("usd")), "power": ", ".join(self.without("w"))}
        return {name: f"{words[name] or 'unknown'} without {paths}" for name, paths in lacking.items() if paths}


def dim_counts(network: Sequence[NetworkDim], counts: Counting = "exact") -> tuple[DimCounts, ...]:
    """Links and switch ports of every dim of a product network, as the table at the top of this file says.

    Parameters
    ----------
    network
        Dims from the first (innermost) to the last.
    counts
        Cables and ports of the product network, or those that DFModel's program counts.

    Raises
    ------
    SystemSpecError
        For a dim that DFModel has no count for.

    Examples
    --------
    >>> torus = [NetworkDim(name=n, topology="ring", size=s, link_bandwidth=1e9) for n, s in (("x", 8), ("y", 128))]
    >>> [(each.links, each.switch_ports) for each in dim_counts(torus)]
    [(1024, 0), (1024, 0)]
    >>> [(each.links, each.switch_ports) for each in dim_counts(torus, "dfmodel")]
    [(1024, 256), (1024, 16)]
    """
    sizes = [dim.size for dim in network]
    chips = math.prod(sizes)
    counts_by_dim = []
    for position, dim in enumerate(network):
        if counts == "exact":
            links, ports = _exact(dim)
            groups = chips // dim.size
        else:
            links, ports = _as_dfmodel(dim, position)
            # As if only one chip of each inner group were connected, but for rings.
            groups = chips // dim.size if dim.topology == "ring" else math.prod(sizes[position + 1 :])
            links, ports = links * (chips > 1), ports * (chips > _PORTLESS)
        counts_by_dim.append(DimCounts(dim.name, groups * links, groups * ports))
    return tuple(counts_by_dim)


def system_cost(system: System, counts: Counting = "exact") -> SystemCost:
    """Price and power of a system, from the prices and powers that its document gives.

    The components are those of DFModel, section VI.C: chips, memory by bandwidth, links by bandwidth, switches by
    bandwidth and ports. Links and switches that a network does not have need no price.

    Raises
    ------
    SystemSpecError
        If ``counts="dfmodel"`` (see `dim_counts`) and a dim is a line.

    Examples
    --------
    >>> from dfopt.documents.system import Chip, Dram, Sram
    >>> dram = Dram(bandwidth=100e9, usd_per_gb_s=1.0, w_per_gb_s=0.16248)
    >>> chip = Chip(name="c", tiles=1, peak=1e12, sram=Sram(capacity=1), dram=dram, price_usd=16522.25)
    >>> ring = NetworkDim(name="x", topology="ring", size=8, link_bandwidth=50e9, link_usd_per_gb_s=2.0)
    >>> found = system_cost(System(name="s", chip=chip, network=(ring,)))
    >>> found.usd, found.total_usd, round(found.w["memory"], 3)
    ({'accelerators': 132178.0, 'memory': 800.0, 'links': 800.0, 'switches': 0.0}, 133778.0, 129.984)
    >>> found.total_w == found.w["memory"], found.complete("w")
    (True, None)
    >>> found.missing
    ('$.chip.power_w', '$.network[0].link_w_per_gb_s')
    """
    counted = dim_counts(system.network, counts)
    missing: list[str] = []

    def times(amount: float, part: Part, path: str, field: str) -> float | None:
        """Amount x price, where nothing of something costs nothing whatever its price."""
        price: float | None = getattr(part, field)
        if price is None and amount:
            missing.append(f"{path}.{field}")
            return None
        return amount * price if price is not None else 0.0

    def over_dims(amounts: Sequence[int], field: str) -> float | None:
        dims = enumerate(zip(system.network, amounts, strict=True))
        return _complete([times(n * dim.link_bandwidth / _GB_S, dim, f"$.network[{i}]", field) for i, (dim, n) in dims])

    def components(of_chip: str, unit: str) -> dict[str, float | None]:
        chip, chips = system.chip, system.chips
        several = [(f"$.chip.memories[{at}]", memory) for at, memory in enumerate(chip.memories or ())]
        memories = [("$.chip.dram", chip.dram)] if chip.dram is not None else several
        return {
            "accelerators": times(chips, chip, "$.chip", of_chip),
            "memory": _complete(
                [times(chips * memory.bandwidth / _GB_S, memory, at, f"{unit}_per_gb_s") for at, memory in memories]
            ),
            "links": over_dims([count.links for count in counted], f"link_{unit}_per_gb_s"),
            "switches": over_dims([count.switch_ports for count in counted], f"switch_{unit}_per_gb_s"),
        }

    return SystemCost(components("price_usd", "usd"), components("power_w", "w"), tuple(missing))


def _complete(parts: Collection[float | None]) -> float | None:
    """The sum of the figures that there are; None if some are missing and the others are nothing."""
    figures = [part for part in parts if part is not None]
    return math.fsum(figures) or (0.0 if len(figures) == len(parts) else None)


def _exact(dim: NetworkDim) -> tuple[int, int]:
    """Links and switch ports of one group."""
    n = dim.size
    if n == 1:
        return 0, 0
    if dim.topology == "switch":
        return n, n
    if dim.topology == "fully_connected":
        return n * (n - 1) // 2, 0
    return (n, 0) if dim.topology == "ring" else (n - 1, 0)


def _as_dfmodel(dim: NetworkDim, position: int) -> tuple[int, int]:
    """Links and switch ports of one group as DFModel's program counts them."""
    n = dim.size
    if dim.topology == "ring":
        return n, 2
    if dim.topology == "switch":
        return n, n
    if dim.topology == "fully_connected":
        return n * (n - 1), n * n if position else 0
    issue = Issue(
        f"$.network[{position}].topology",
        f"found {dim.topology!r}, which DFModel counts no links for",
        "take counts='exact', or a ring",
    )
    raise SystemSpecError("", [issue])
