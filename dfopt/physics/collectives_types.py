"""What the formulas of `dfopt.physics.collectives` are about: wirings, collectives, dims and their affine costs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Topology(str, Enum):
    """How the chips of one network dimension are wired."""

    RING = "ring"
    LINE = "line"
    SWITCH = "switch"
    FULLY_CONNECTED = "fully_connected"


class Collective(str, Enum):
    """Kind of communication; `dfopt.physics.collectives` says what its volume means."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    POINT_TO_POINT = "point_to_point"


class CollectiveModel(str, Enum):
    """Alpha-beta cost of real algorithms (`EXACT`), the same with acknowledgements and packets (`TWO_STAGE`), or
    the DFModel authors' ratios (`DFMODEL`).
    """

    EXACT = "exact"
    TWO_STAGE = "two_stage"
    DFMODEL = "dfmodel"


class DimFit(NamedTuple):
    """Measured cost of one collective on a network dim, which replaces figures of the formula.

    The bandwidth term is divided by ``bandwidth_share`` (0 < share <= 1); ``latency`` (seconds), if given, is the
    fixed term of the collective on this dimension. ``scale``, if given, replaces the bandwidth term: over n chips by
    ``scale * (1 + offset / n)`` times the tensor over the bandwidth of a link. ``step``, if given, is the fixed term of
    each step of a ring, in addition to the latency.
    """

    kind: Collective
    bandwidth_share: float = 1.0
    latency: float | None = None
    scale: float | None = None
    offset: float = 0.0
    step: float | None = None


@dataclass(frozen=True)
class Dim:
    """A network dim for the collective formulas; :class:`dfopt.documents.system.NetworkDim` validates its document.

    Attributes
    ----------
    name
        Name of the dim, or of a part of one: parts of one dim share its links.
    bandwidth
        Bytes per second *per link and direction*; `dfopt.physics.collectives` says which links a chip has.
    latency
        Seconds per hop; chip-switch-chip is one hop.
    in_network_reduction
        Whether its switch adds and multicasts data.
    factors
        Measured figures, at most one per kind.
    packet_payload, packet_header
        `CollectiveModel.TWO_STAGE` only: maximum payload of a packet in bytes (None: no packets), and bytes of its
        header.
    port_of
        The dim through whose links at a chip its messages go, if another one.
    """

    name: str
    topology: Topology
    size: int
    bandwidth: float
    latency: float = 0.0
    in_network_reduction: bool = False
    factors: tuple[DimFit, ...] = ()
    packet_payload: float | None = None
    packet_header: float = 0.0
    port_of: str | None = None


class Affine(NamedTuple):
    """Affine cost of a collective: ``per_byte`` (s/B) times its volume (B), plus ``fixed`` (s)."""

    per_byte: float
    fixed: float


NOTHING = Affine(0.0, 0.0)  # of a group of one chip, which has no overhead either
