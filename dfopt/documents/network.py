"""The network between chips: links, and the dimensions that they make, whole, in parts and in blocks of parts."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part
from dfopt.documents.dim_names import block_name, part_name
from dfopt.documents.factors import CollectiveFactor
from dfopt.documents.graph import CollectiveKind
from dfopt.units import Bandwidth, Bytes, Ratio, Seconds

Tier = Literal["package", "node", "rack", "cluster"]
Wiring = Literal["ring", "line", "switch", "fully_connected"]
# What fields of a link are called in a dim of a network; the others have the same name there.
IN_A_DIM = {"bandwidth": "link_bandwidth", "usd_per_gb_s": "link_usd_per_gb_s", "w_per_gb_s": "link_w_per_gb_s"}


class Link(Part):
    """A full-duplex link, such as one NVLink connection or one Ethernet port."""

    bandwidth: Bandwidth = Field(gt=0, description="per link and direction")
    latency: Seconds = Field(default=0.0, ge=0, description="of one hop; through a switch: chip to chip")
    tier: Tier | None = Field(default=None, description="where the link runs")
    packet_payload: Bytes | None = Field(
        default=None, gt=0, description="most bytes of a message in one packet, for collective_model: two_stage"
    )
    packet_header: Bytes | None = Field(default=None, ge=0, description="bytes that each packet carries beside them")
    usd_per_gb_s: float | None = Field(default=None, ge=0, description="price of the link in USD per GB/s")
    w_per_gb_s: float | None = Field(default=None, ge=0, description="power of the link in W per GB/s")
    switch_usd_per_gb_s: float | None = Field(default=None, ge=0, description="of a switch: USD per GB/s of each port")
    switch_w_per_gb_s: float | None = Field(default=None, ge=0, description="of a switch: W per GB/s of each port")


class Slices(Part):
    """Sizes of the dims of a network that can be had with one wiring, such as the slices of a pod of TPUs."""

    topology: tuple[Wiring, ...] = Field(min_length=1, max_length=8, description="of each dim")
    sizes: tuple[tuple[Annotated[int, Field(ge=1, le=10**7)], ...], ...] = Field(min_length=1, max_length=1000)


class NetworkDim(Part):
    """One dimension of the network: every chip is in one group of ``size`` chips of this dim.

    ``link_bandwidth`` is per link and direction: a ring or line chip has two links (one at the ends of a line), a
    switch chip one port, a fully connected chip ``size - 1`` links. ``latency`` is per hop (through a switch: once).
    """

    name: str = Field(min_length=1, pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")
    topology: Wiring
    size: int = Field(ge=1, le=10**7)
    link_bandwidth: Bandwidth = Field(gt=0)
    efficiency: Ratio | None = Field(
        default=None, gt=0, le=1, description="share of link_bandwidth that messages sustain; none = all of it"
    )
    latency: Seconds = Field(default=0.0, ge=0)
    tier: Tier | None = Field(default=None, description="where the links of this dim run")
    in_network_reduction: bool = Field(
        default=False, description="of a switch: it adds and multicasts, so that each chip sends a sum only once"
    )
    factors: dict[CollectiveKind, CollectiveFactor] = Field(
        default_factory=dict, description="measured figures of collectives on this dim; none = the formula's own"
    )
    packet_payload: Bytes | None = Field(
        default=None, gt=0, description="for two_stage collectives: most message bytes in a packet; none = no packets"
    )
    packet_header: Bytes | None = Field(
        default=None, ge=0, description="for two_stage collectives: bytes that each packet carries beside its payload"
    )

    port_of: str | None = Field(
        default=None,
        description="another dim whose links at a chip messages of this one take, too, as those of the upper levels"
        " of a fat tree do: the two are not used at the same time; none = links of its own",
    )
    processor_usage: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="share of a chip's compute that communication over it takes, where it overlaps with a product"
        " (tensor_overlap); none = 0",
    )
    link_usd_per_gb_s: float | None = Field(default=None, ge=0, description="price of a link in USD per GB/s")
    link_w_per_gb_s: float | None = Field(default=None, ge=0, description="power of a link in W per GB/s")
    switch_usd_per_gb_s: float | None = Field(default=None, ge=0, description="of a switch: USD per GB/s of each port")
    switch_w_per_gb_s: float | None = Field(default=None, ge=0, description="of a switch: W per GB/s of each port")

    @property
    def sustained(self) -> float:
        """Bytes per second of a link that messages sustain."""
        return self.link_bandwidth * (1.0 if self.efficiency is None else self.efficiency)

    @property
    def laid_out(self) -> bool:
        """Whether it matters where chips lie along it: of a switch or a fully connected dim all are as near."""
        return self.topology in ("ring", "line")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.in_network_reduction and self.topology != "switch":
            found = f"found topology {self.topology}: leave it out"
            raise ValueError(f"in_network_reduction is a feature of switches, {found}")
        if self.packet_header and self.packet_payload is None:
            found = f"found {self.packet_header:g} B per packet, but no packet_payload"
            raise ValueError(f"packet_header: {found}: give it, or leave packet_header out")
        return self

    def part(self, size: int, stride: int = 1) -> NetworkDim:
        """The dim that groups of ``size`` of its chips see, ``stride`` apart, when all groups communicate at once.

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
        """The ring around the block of this part of a dim and of a part of another one, all such rings at once.

        Chips of two rings or lines, or of parts of them, form a grid. Where their number is even, there is a ring
        through all of them whose every edge is one step along one of the two (a Hamiltonian cycle of the grid): it runs
        along both, so it has the narrower of their links and the longer of their latencies, as its parts have them.

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
        if any(one.scale is not None for dim in both for one in dim.factors.values()):
            raise ValueError(f"no ring around {name!r}: collectives of one of the two have a formula of their own")
        narrower = min(both, key=lambda dim: dim.sustained)
        shares = [{kind: one.bandwidth_share for kind, one in dim.factors.items()} for dim in both]
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
