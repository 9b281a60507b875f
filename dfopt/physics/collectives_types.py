"""What the formulas of `dfopt.physics.collectives` are about: wirings, collectives, dims and their affine costs."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

__all__ = ["NOTHING", "Affine", "Collective", "CollectiveModel", "Dim", "Factor", "Topology"]


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


class Factor(NamedTuple):
    """What a measurement says about one collective on a dimension, in place of the formula's figures.

    The bandwidth term is divided by ``bandwidth_share`` (0 < share <= 1); ``latency`` (seconds), if given, is the
    fixed term of the collective on this dimension.
    """

    kind: Collective
    bandwidth_share: float = 1.0
    latency: float | None = None


@dataclass(frozen=True)
class Dim:
    """One network dimension.

    Parameters
    ----------
    name : str
        Label, not used in any formula.
    topology : Topology
        Wiring of the chips along this dimension.
    size : int
        Number of chips along this dimension, at least 1.
    bandwidth : float
        Bytes per second *per link and direction*; `dfopt.physics.collectives` says which links a chip has.
    latency : float
        Seconds per hop; chip-switch-chip is one hop.
    in_network_reduction : bool
        Of a switch: it adds and multicasts.
    factors : tuple of Factor
        Measured figures, at most one per kind.
    packet_payload, packet_header : float
        `CollectiveModel.TWO_STAGE` only: most bytes of a message in a packet (None: no packets), and bytes that each
        packet carries beside them.

    Values outside these ranges raise `ValueError`.
    """

    name: str
    topology: Topology
    size: int
    bandwidth: float
    latency: float = 0.0
    in_network_reduction: bool = False
    factors: tuple[Factor, ...] = ()
    packet_payload: float | None = None
    packet_header: float = 0.0

    def __post_init__(self) -> None:
        """Reject values no formula is defined for (`not >` also catches NaN)."""
        # A plain "ring" (from a file) must not fall through the `is` tests of the formulas to another wiring.
        object.__setattr__(self, "topology", Topology(self.topology))
        if self.size < 1 or self.size != int(self.size):
            raise ValueError(f"dimension {self.name!r}: size must be an integer >= 1, got {self.size}")
        if not self.bandwidth > 0:
            raise ValueError(f"dimension {self.name!r}: bandwidth must be > 0, got {self.bandwidth}")
        if not 0 <= self.latency < math.inf:
            raise ValueError(f"dimension {self.name!r}: latency must be finite and >= 0, got {self.latency}")
        if self.packet_payload is not None and not 0 < self.packet_payload < math.inf:
            raise ValueError(f"dimension {self.name!r}: packet_payload must be above 0, got {self.packet_payload}")
        if not 0 <= self.packet_header < math.inf:
            raise ValueError(f"dimension {self.name!r}: packet_header must be >= 0, got {self.packet_header}")
        if self.in_network_reduction and self.topology is not Topology.SWITCH:
            raise ValueError(f"dimension {self.name!r}: only switches reduce, got topology {self.topology.value}")
        object.__setattr__(self, "factors", tuple(Factor(Collective(f[0]), *f[1:]) for f in self.factors))
        for kind, count in Counter(factor.kind for factor in self.factors).items():
            if count > 1:
                raise ValueError(f"dimension {self.name!r}: one factor for {kind.value} expected, got {count}")
        for kind, share, latency in self.factors:
            what = f"dimension {self.name!r}, {kind.value}"
            if not 0 < share <= 1:
                raise ValueError(f"{what}: bandwidth_share must be above 0 and at most 1, got {share}")
            if latency is not None and not 0 <= latency < math.inf:
                raise ValueError(f"{what}: latency must be finite and >= 0, got {latency}")


class Affine(NamedTuple):
    """Cost ``per_byte * volume + fixed`` of a collective, in seconds per byte and seconds."""

    per_byte: float
    fixed: float


NOTHING = Affine(0.0, 0.0)  # of a group of one chip, which has no overhead either
