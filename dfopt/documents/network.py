"""The network between chips: links, and the dimensions that they make, whole, in parts and in blocks of parts."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.documents.dim_names import block_name, part_name
from dfopt.documents.graph import CollectiveKind
from dfopt.units import Bandwidth, Bytes, Ratio, Seconds

Tier = Literal["package", "node", "rack", "cluster"]
DimWiring = Literal["ring", "line", "switch", "fully_connected"]
# What fields of a link are called in a dim of a network; the others have the same name there.
IN_A_DIM = {"bandwidth": "link_bandwidth", "usd_per_gb_s": "link_usd_per_gb_s", "w_per_gb_s": "link_w_per_gb_s"}


class CollectiveFactor(Part):
    """Measured cost of one collective on a network dim, which replaces figures of the formula.

    With ``scale`` the collective has a formula of its own, that of Calculon (Isaev et al., SC23): over ``n`` chips a
    tensor of ``V`` bytes takes ``latency + scale * (1 + offset / n) * V / (bandwidth * efficiency * bandwidth_share)``,
    where bandwidth and efficiency are those of the dim's links. Such a formula holds for any number of chips.

    Attributes
    ----------
    bandwidth_share : e.g. 0.8
        Share of the link bandwidth that this collective sustains for large tensors.
    latency : e.g. 10 us
        Time of this collective for a very small tensor. None: the formula for the wiring gives it.
    step_latency : e.g. 1 us
        Time of each of the n - 1 steps of a ring over n chips, in addition to ``latency``. An all-reduce has twice as
        many steps. None: ``latency`` holds for all chips of the dimension.
    scale : no unit, e.g. 2.0
        Number of times that the bytes of a tensor pass a link, for many chips. It replaces the formula for the wiring.
        None: the formula counts.
    offset : no unit, e.g. -1.0
        Correction of ``scale`` for n chips: the factor is ``scale * (1 + offset / n)``. None: 0.

    Examples
    --------
    >>> CollectiveFactor(scale=2.0, offset=-1.0, latency=10e-6).of_fewer().latency
    1e-05
    >>> CollectiveFactor(bandwidth_share=0.8, latency=10e-6).of_fewer().latency is None
    True

    With ``step_latency`` the fixed time over ``n`` chips is ``latency + (n - 1) * step_latency``, of an all-reduce with
    twice as many steps: that of a ring (Patarasuk and Yuan, JPDC 2009), and of any number of chips.

    >>> CollectiveFactor(latency=10e-6, step_latency=0.0).of_fewer().latency
    1e-05
    """

    bandwidth_share: Ratio = Field(default=1.0, gt=0, le=1)
    latency: Seconds | None = Field(default=None, ge=0)
    step_latency: Seconds | None = Field(default=None, ge=0)
    scale: float | None = Field(default=None, gt=0)
    offset: float | None = Field(default=None, ge=-1)

    def of_fewer(self) -> CollectiveFactor:
        """The factor for a part of the dim, with fewer chips.

        A latency measured over the whole dim says nothing about fewer chips; a share of a link and a formula do.
        """
        of_any = self.scale is not None or self.step_latency is not None
        return self if of_any else self.model_copy(update={"latency": None})

    @model_validator(mode="after")
    def _of_a_formula(self) -> Self:
        if self.offset and self.scale is None:
            raise problem(f"found {self.offset:g}, but no scale", "give scale too, or leave it out", "$.offset")
        return self


class Link(Part):
    """A full-duplex link, such as one NVLink connection or one Ethernet port.

    Attributes
    ----------
    bandwidth : e.g. 450 GB/s
        Bandwidth of one link in one direction.
    latency : e.g. 700 ns
        Latency of one hop; through a switch, from chip to chip.
    tier : e.g. node
        Place where the link runs. ``package``: inside a package. ``node``: inside a node. ``rack``: inside a rack.
        ``cluster``: between racks. None: unknown.
    packet_payload : e.g. 256 B
        Largest part of a message that one packet carries. The assumption ``collective_model: two_stage`` uses it. None:
        messages have no packets.
    packet_header : e.g. 16 B
        Bytes that each packet carries in addition to its payload. None: 0.
    usd_per_gb_s : USD per GB/s, e.g. 0.2
        Price of the link per GB/s (1e9 B/s) of its bandwidth. None: unknown.
    w_per_gb_s : W per GB/s, e.g. 0.05
        Power of the link per GB/s (1e9 B/s) of its bandwidth. None: unknown.
    switch_usd_per_gb_s : USD per GB/s, e.g. 1.5
        Price of a switch per GB/s (1e9 B/s) of each of its ports. None: unknown.
    switch_w_per_gb_s : W per GB/s, e.g. 0.1
        Power of a switch per GB/s (1e9 B/s) of each of its ports. None: unknown.
    """

    bandwidth: Bandwidth = Field(gt=0)
    latency: Seconds = Field(default=0.0, ge=0)
    tier: Tier | None = None
    packet_payload: Bytes | None = Field(default=None, gt=0)
    packet_header: Bytes | None = Field(default=None, ge=0)
    usd_per_gb_s: float | None = Field(default=None, ge=0)
    w_per_gb_s: float | None = Field(default=None, ge=0)
    switch_usd_per_gb_s: float | None = Field(default=None, ge=0)
    switch_w_per_gb_s: float | None = Field(default=None, ge=0)


class Slices(Part):
    """Shapes that one wiring offers, such as the slices of a TPU pod.

    Attributes
    ----------
    topology : e.g. [ring, ring]
        Wiring of each network dim of these slices. ``ring``: each chip has two neighbours in a closed ring. ``line``:
        an open ring. ``switch``: every chip has one port to a switch. ``fully_connected``: every chip has a link to
        every other one.
    sizes : chips, e.g. [[4, 4], [4, 8]]
        Sizes of the network dims of each slice that exists. A dim that a slice lacks has size 1.
    """

    topology: tuple[DimWiring, ...] = Field(min_length=1, max_length=8)
    sizes: tuple[tuple[Annotated[int, Field(ge=1, le=10**7)], ...], ...] = Field(min_length=1, max_length=1000)


class NetworkDim(Part):
    """One dimension of the network: every chip is in one group of ``size`` chips of this dim.

    ``link_bandwidth`` is per link and direction: a ring or line chip has two links (one at the ends of a line), a
    switch chip one port, a fully connected chip ``size - 1`` links. ``latency`` is per hop (through a switch: once).

    Attributes
    ----------
    name : e.g. node
        Name of this network dimension, to which plans refer.
    topology : e.g. switch
        Wiring of the chips along this dimension. ``ring``: each chip has two neighbours in a closed ring. ``line``: an
        open ring. ``switch``: every chip has one port to a switch. ``fully_connected``: every chip has a link to every
        other one.
    size : chips, e.g. 8
        Number of chips along this dimension. Every chip belongs to one group of this size.
    link_bandwidth : e.g. 450 GB/s
        Bandwidth of one link in one direction. A chip on a ring has two links, on a switch one port, and in a fully
        connected group ``size - 1`` links.
    efficiency : e.g. 0.8
        Share of ``link_bandwidth`` that messages sustain. None: all of it.
    latency : e.g. 700 ns
        Latency of one hop; through a switch, from chip to chip.
    tier : e.g. node
        Place where the links of this dimension run. ``package``: inside a package. ``node``: inside a node. ``rack``:
        inside a rack. ``cluster``: between racks. None: unknown.
    in_network_reduction : e.g. true
        Whether the switch itself adds and multicasts data, so that each chip sends a sum only once.
    factors : e.g. {all_reduce: {bandwidth_share: 0.8, latency: 10 us}}
        Measured figures of single collectives on this dimension, by kind: ``all_reduce``, ``all_gather``,
        ``reduce_scatter``, ``all_to_all``, ``broadcast``, ``point_to_point``. Collectives that it leaves out follow the
        formula.
    packet_payload : e.g. 256 B
        Largest part of a message that one packet carries. The assumption ``collective_model: two_stage`` uses it. None:
        messages have no packets.
    packet_header : e.g. 16 B
        Bytes that each packet carries in addition to its payload. None: 0.
    port_of : e.g. node
        Name of another dimension whose links at a chip this one uses too, as the upper levels of a fat tree do. The two
        dimensions are then never busy at the same time. None: links of its own.
    processor_usage : share, e.g. 0.1
        Share of a chip's compute rate that communication on this dimension occupies while it overlaps with a matrix
        product. None: 0.
    link_usd_per_gb_s : USD per GB/s, e.g. 0.2
        Price of one link per GB/s (1e9 B/s) of its bandwidth. None: unknown.
    link_w_per_gb_s : W per GB/s, e.g. 0.05
        Power of one link per GB/s (1e9 B/s) of its bandwidth. None: unknown.
    switch_usd_per_gb_s : USD per GB/s, e.g. 1.5
        Price of a switch per GB/s (1e9 B/s) of each of its ports. None: unknown.
    switch_w_per_gb_s : W per GB/s, e.g. 0.1
        Power of a switch per GB/s (1e9 B/s) of each of its ports. None: unknown.
    """

    name: str = Field(min_length=1, pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")
    topology: DimWiring
    size: int = Field(ge=1, le=10**7)
    link_bandwidth: Bandwidth = Field(gt=0)
    efficiency: Ratio | None = Field(default=None, gt=0, le=1)
    latency: Seconds = Field(default=0.0, ge=0)
    tier: Tier | None = None
    in_network_reduction: bool = False
    factors: dict[CollectiveKind, CollectiveFactor] = Field(default_factory=dict)
    packet_payload: Bytes | None = Field(default=None, gt=0)
    packet_header: Bytes | None = Field(default=None, ge=0)

    port_of: str | None = None
    processor_usage: float | None = Field(default=None, ge=0, lt=1)
    link_usd_per_gb_s: float | None = Field(default=None, ge=0)
    link_w_per_gb_s: float | None = Field(default=None, ge=0)
    switch_usd_per_gb_s: float | None = Field(default=None, ge=0)
    switch_w_per_gb_s: float | None = Field(default=None, ge=0)

    @property
    def sustained(self) -> float:
        """Sustained bandwidth of a link, B/s."""
        return self.link_bandwidth * (1.0 if self.efficiency is None else self.efficiency)

    @property
    def laid_out(self) -> bool:
        """Whether positions along the dim matter; not for a switch or a fully connected dim."""
        return self.topology in ("ring", "line")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.in_network_reduction and self.topology != "switch":
            reason = f"found topology {self.topology}: leave it out"
            raise ValueError(f"in_network_reduction is a feature of switches, {reason}")
        if self.packet_header and self.packet_payload is None:
            reason = f"found {self.packet_header:g} B per packet, but no packet_payload"
            raise ValueError(f"packet_header: {reason}: give it, or leave packet_header out")
        return self

    def part(self, size: int, stride: int = 1) -> NetworkDim:
        """The network that groups of ``size`` chips, ``stride`` apart, see if all groups communicate at once.

        Neighbours of a ring or line that are ``stride`` apart are as many links away, and those links are
        shared by ``stride`` groups. A part of a ring has two ends, unless it reaches around; then two chips have
        two ways to each other. Any chips of a switch or of a fully connected dim are wired as the whole.
        ``size * stride`` divides the dim's size.

        Examples
        --------
        >>> x = NetworkDim(name="x", topology="ring", size=8, link_bandwidth=25e9)
        >>> inner, outer = x.part(4), x.part(2, 4)
        >>> inner.topology, inner.link_bandwidth, outer.topology, outer.link_bandwidth
        ('line', 25000000000.0, 'ring', 12500000000.0)
        """
        if size < 1 or stride < 1 or self.size % (size * stride):
            raise ValueError(f"no part of {size} chips {stride} apart tiles dim {self.name!r} of {self.size}")
        if size == self.size:
            return self
        factors = {kind: factor.of_fewer() for kind, factor in self.factors.items()}
        changes: dict[str, object] = {"name": part_name(self.name, size, stride), "size": size, "factors": factors}
        if self.laid_out:
            around = self.topology == "ring" and size * stride == self.size
            ways = 2 if around and size == 2 else 1
            changes |= {
                "topology": "ring" if around else "line",
                "link_bandwidth": self.link_bandwidth * ways / stride,
                "latency": self.latency * stride,
            }
        return self.model_copy(update=changes)

    def around(self, other: NetworkDim) -> NetworkDim:
        """The ring around the block of this part of a dim and a part of another, with all such rings at once.

        Chips of two rings or lines, or of parts of them, form a grid. If their number is even, the grid has a
        Hamiltonian cycle: a ring through all chips whose every edge is one step along one of the two. It has the lower
        link bandwidth and the higher latency of the two.

        Measured shares of a link's bandwidth hold on each of the two, so the least of both does; latencies that were
        measured are about other rings.

        Examples
        --------
        >>> x, y = (NetworkDim(name=n, topology="line", size=4, link_bandwidth=25e9) for n in "xy")
        >>> ring = x.part(2).around(y.part(2, 2))
        >>> ring.name, ring.topology, ring.size, ring.link_bandwidth
        ('x[2]+y[2@2]', 'ring', 4, 12500000000.0)
        """
        both = self, other
        name = block_name(dim.name for dim in both)
        if any(not dim.laid_out or dim.size < 2 for dim in both):
            raise ValueError(
                f"no ring around {name!r}: expected two parts of rings or lines, each of two chips or more"
            )
        if self.size * other.size % 2:
            raise ValueError(f"no ring around {name!r}: {self.size} x {other.size} chips, expected an even number")
        if (self.packet_payload, self.packet_header) != (other.packet_payload, other.packet_header):
            raise ValueError(f"no ring around {name!r}: the links of the two have other packets each")
        if any(factor.scale is not None for dim in both for factor in dim.factors.values()):
            raise ValueError(f"no ring around {name!r}: collectives of one of the two have a formula of their own")
        narrower = min(both, key=lambda dim: dim.sustained)
        shares = [{kind: factor.bandwidth_share for kind, factor in dim.factors.items()} for dim in both]
        factors: dict[CollectiveKind, CollectiveFactor] = {
            kind: CollectiveFactor(bandwidth_share=min(of.get(kind, 1.0) for of in shares))
            for kind in dict.fromkeys((*self.factors, *other.factors))
        }
        changes: dict[str, object] = {
            "name": name,
            "topology": "ring",
            "size": self.size * other.size,
            "link_bandwidth": narrower.link_bandwidth,
            "efficiency": narrower.efficiency,
            "latency": max(dim.latency for dim in both),
            "processor_usage": max(dim.processor_usage or 0.0 for dim in both) or None,
            "factors": factors,
        }
        return self.model_copy(update=changes)
