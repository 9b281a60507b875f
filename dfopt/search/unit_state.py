"""What is known of a plan and tile count while a search goes on, and what its record says of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from dfopt.arrays import ROUNDING
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.plan_records import GraphRecord, PlanRecord, SolveRecord
from dfopt.documents.result import LOOSE, NEAR, TOO_MANY, TOO_WIDE
from dfopt.interrupts import LIMIT
from dfopt.regions.sharded_first import ShardedFirst
from dfopt.search.kept import Kept
from dfopt.search.status_record import AnyRecord, StatusRecord

_CLOSE: Final = 1e-9
"""Relative: a value that is reached and a bound that is proven are one if they differ by less."""

TiledPlan = tuple[Plan, int | None]
"""A plan, and a number of tiles where that is a choice: what has a record of its own."""


@dataclass(slots=True)
class UnitState:
    """Bounds, best value and status of a unit (plan and number of tiles) during a search.

    Attributes
    ----------
    low : float
        Lower bound on all mappings of the unit; infinite if it has none.
    value : float
        Step of its best mapping, s; infinite if none is known.
    solves : tuple of SolveRecord
        Solves that gave the best mapping.
    unfit : Plan, optional
        The rejected plan, if its memory demand is too large under any schemes.
    late : bool
        Whether it was left because the time was over.
    wide : bool
        Whether its layers have too many down-sets to list.
    sharded_first : ShardedFirst, optional
        Record of its sharding, if that is chosen first.
    """

    low: float = math.inf
    value: float = math.inf
    solves: tuple[SolveRecord, ...] = ()
    unfit: Plan | None = None
    late: bool = False
    wide: bool = False
    sharded_first: ShardedFirst | None = None

    def give_up(self, low: float, *, late: bool) -> None:
        """Close part of its mappings with a lower bound ``low`` (s); ``late``: the time limit is the reason."""
        self.low, self.late = min(self.low, low), self.late or late

    @property
    def says_status(self) -> bool:
        """Whether its record has only a status and a bound."""
        return math.isinf(self.value) and not self.solves and self.sharded_first is None

    def together(self, others: list[UnitState]) -> UnitState:
        """The state of several units together: the least of their bounds, and the last plan that does not fit."""
        every = [self, *others]
        unfit = next((each.unfit for each in reversed(every) if each.unfit is not None), None)
        late, wide = any(each.late for each in every), any(each.wide for each in every)
        return UnitState(min(each.low for each in every), unfit=unfit, late=late, wide=wide)

    def graph_record(self, graph: Graph, kept: Kept, stopped: str) -> GraphRecord:
        """Record of a graph all of whose plans are closed together with this state.

        Parameters
        ----------
        graph
            The graph.
        kept
            The best mappings of the search.
        stopped : str
            Reason why the search was stopped, or empty.
        """
        fields = self._status(kept.last, kept, stopped)
        fields["note"] = TOO_MANY if fields["note"] == LOOSE else fields["note"]
        return GraphRecord(microbatch=graph.microbatch, variant=graph.variant, bound=self.low, **fields)

    def plan_record(self, unit: TiledPlan, variant: str | None, least: float, kept: Kept, stopped: str) -> AnyRecord:
        """The plan record of this unit; if nothing fits, without the reason.

        Parameters
        ----------
        unit : TiledPlan
            Plan and tile count.
        variant : str, optional
            Variant of the graph.
        least : float, s
            Lower bound on all mappings of the plan, under any sharding.
        kept : Kept
            The best mappings.
        stopped : str
            Reason why the search was stopped, or empty.
        """
        plan, tiles = unit
        bound, beat, first = min(self.low, self.value), kept.to_beat(plan, variant), self.sharded_first
        fields: dict[str, Any] = {"status": "infeasible", "bound": None, "level_bound": None}
        if math.isfinite(bound):
            fields = {"bound": bound, "level_bound": bound, **self._status(beat, kept, stopped)}
        if self.says_status:
            return StatusRecord(plan, tiles, variant, **fields)
        if first is not None and not (first.alone and first.proven):
            fields |= self._per_level(first, least, beat, **fields)
        return PlanRecord(plan=plan, tile_count=tiles, variant=variant, solves=self.solves, **fields)

    def _status(self, beat: float, kept: Kept, stopped: str) -> dict[str, Any]:
        """Fields of its record, where a mapping or a bound is known; ``beat``: from where nothing of it is of interest.

        Of mappings that are not kept none should be below its value where one of a plan is kept, else below ``beat``.
        """
        late, open_, gap = stopped or LIMIT, TOO_WIDE if self.wide else LOOSE, kept.request.gap
        if math.isfinite(self.value):
            low, best = min(self.low, self.value), beat if kept.request.several else self.value
            short = self.low < best * (1 - max(gap, _CLOSE))
            note = (late if self.late else open_) if short else ""
            own_gap = (self.value - low) / self.value
            return {"status": "limit" if short else "solved", "value": self.value, "gap": own_gap, "note": note}
        if self.low >= beat * (1 - ROUNDING):
            return {"status": "pruned_by_bound", "note": ""}
        if self.low >= beat * (1 - gap):
            return {"status": "limit", "note": NEAR}
        return {"status": "limit", "note": late if stopped or self.late else open_}

    def _per_level(
        self, first: ShardedFirst, least: float, beat: float, *, status: str, level_bound: float | None, **more: Any
    ) -> dict[str, Any]:
        """What is shown of mappings with the sharding that came first, and of all mappings.

        Excluded under its sharding is a plan that a bound on all mappings does not exclude; no more is claimed then
        than excludes it.
        """
        level, note = level_bound, more.get("note", "")
        value = self.value if math.isfinite(self.value) else None
        if not first.proven:  # another sharding may be the best by itself
            status, level = "solved" if value == least else "limit", least
            note = note or LIMIT * (status == "limit")  # nothing but time ends such a solve
        elif status == "infeasible":
            status = "infeasible_per_level"
        elif status == "pruned_by_bound" and level is not None:
            status, level = "pruned_per_level" if least < beat else status, max(least, min(level, beat))
        gap = None if value is None or level is None else (value - level) / value
        least = least if value is None else min(least, value)
        return {"status": status, "bound": least, "level_bound": level, "gap": gap, "note": note}
