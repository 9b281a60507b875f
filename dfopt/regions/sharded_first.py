"""How the sharding was chosen where it comes before the partitions."""

from __future__ import annotations

from dataclasses import dataclass

from dfopt.documents.plan_records import SolveRecord


@dataclass(frozen=True, eq=False)
class ShardedFirst:
    """Record of how the sharding of some plans was chosen before their fusion.

    Attributes
    ----------
    record : SolveRecord
        Record of the solve.
    proven : bool
        Whether the sharding is proven optimal regardless of fusion; if not, bounds under it do not hold for its level.
    alone : bool
        Whether there is no other one: bounds with it hold for every mapping.
    stage_k : tuple of int, optional
        Pipeline stage of every kernel, where that was chosen, too.
    """

    record: SolveRecord
    proven: bool
    alone: bool
    stage_k: tuple[int, ...] | None = None
