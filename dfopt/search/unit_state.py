"""What is known of a plan and tile count while a search goes on, and what its record says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.plan_records import GraphRecord, SolveRecord
from dfopt.documents.result import LOOSE, NEAR, TOO_MANY, TOO_WIDE
from dfopt.interrupts import LIMIT
from dfopt.regions.sharded_first import ShardedFirst

__all__ = ["SAME", "Unit", "UnitState"]

SAME: Final = 1e-12
"""Relative: values that differ by less are one value, as computed."""
_CLOSE: Final = 1e-9
"""The same of a value that is reached and a bound that is proven."""

Unit = tuple[Plan, int | None]
"""A plan, and a number of tiles where that is a choice: what has a record of its own."""


@dataclass
class UnitState:
    """What is known of a unit.

    Attributes
    ----------
    low : float
        What none of its mappings is below; infinite where there is none.
    value : float
        Of its best mapping; infinite where none is known.
    solves : tuple of SolveRecord
        How the best mapping was solved.
    unfit : Plan, optional
        Its plan, if that holds too much whatever the schemes are.
    late : bool
        Whether it was left because the time was over.
    wide : bool
        Whether its layers have too many down-sets to list.
    sharded_first : ShardedFirst, optional
        How its sharding was chosen, where that comes first.
    """

    low: float = np.inf
    value: float = np.inf
    solves: tuple[SolveRecord, ...] = ()
    unfit: Plan | None = None
    late: bool = False
    wide: bool = False
    sharded_first: ShardedFirst | None = None

    def give_up(self, low: float, *, late: bool) -> None:
        """Leave some of its mappings, none of which is below a bound."""
        self.low, self.late = min(self.low, low), self.late or late

    @property
    def says_status(self) -> bool:
        """Whether it says no more than a status and a bound."""
        return np.isinf(self.value) and not self.solves and self.sharded_first is None

    def together(self, others: list[UnitState]) -> UnitState:
        """What holds for this one and some others: the least of their bounds, and the last that does not fit."""
        every = [self, *others]
        unfit = next((each.unfit for each in reversed(every) if each.unfit is not None), None)
        late, wide = any(each.late for each in every), any(each.wide for each in every)
        return UnitState(min(each.low for each in every), unfit=unfit, late=late, wide=wide)

    def of_graph(self, graph: Graph, beat: float, gap: float, stopped: str) -> GraphRecord:
        """The record of a graph of which this is all that is known: all its plans are given up together."""
        fields = self.status(beat, gap, stopped)
        fields["note"] = TOO_MANY if fields["note"] == LOOSE else fields["note"]
        return GraphRecord(microbatch=graph.microbatch, variant=graph.variant, bound=self.low, **fields)

    def status(self, beat: float, gap: float, stopped: str, best: float = np.inf) -> dict[str, Any]:
        """Fields of its record, where a mapping or a bound is known.

        Parameters
        ----------
        beat : float
            Value from which on nothing of it is of interest.
        gap : float
            That was asked for.
        stopped : str
            What ended the search; empty where nothing did.
        best : float
            What none of its mappings that are not kept should be below: its value where one of a plan is kept.
        """
        late, open_ = stopped or LIMIT, TOO_WIDE if self.wide else LOOSE
        if np.isfinite(self.value):
            low, short = min(self.low, self.value), self.low < best * (1 - max(gap, _CLOSE))
            note = (late if self.late else open_) if short else ""
            gap = (self.value - low) / self.value
            return {"status": "limit" if short else "solved", "value": self.value, "gap": gap, "note": note}
        if self.low >= beat * (1 - SAME):
            return {"status": "pruned_by_bound", "note": ""}
        if self.low >= beat * (1 - gap):
            return {"status": "limit", "note": NEAR}
        return {"status": "limit", "note": late if stopped or self.late else open_}
