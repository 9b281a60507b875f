"""What a search keeps: its best mappings that are distinct, and what every other one has to beat."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Final

import numpy as np

from dfopt.documents.plan import Plan
from dfopt.documents.plan_records import GraphRecord, different
from dfopt.documents.request import Request
from dfopt.documents.result import Result
from dfopt.search.status_record import AnyRecord

PROOF: Final = 1e-6
"""Relative: what MILP solvers call equal, and what judge and problems may differ by (architecture, law 5)."""


def proven_gap(value: float, bound: float) -> float:
    """Relative optimality gap of a value to its lower bound; 0 if nothing is left to prove."""
    gap = 1.0 if np.isinf(value) and np.isfinite(bound) else max(0.0, (value - bound) / value)
    return gap if gap > PROOF else 0.0


@dataclass(frozen=True)
class Kept:
    """Values of the best mappings by the key that distinguishes them, and ``last``, the value that others must beat."""

    request: Request
    best: Mapping[Hashable, float]
    last: float

    @classmethod
    def of(cls, request: Request, best: Mapping[Hashable, float], values: Iterable[float] = ()) -> Kept:
        """Kept mappings of a request; ``values`` replaces theirs where other mappings were kept by the search.

        Parameters
        ----------
        request : Request
            Number of mappings to keep, and the property in which they differ.
        best : mapping
            Values of the kept mappings, by the key that distinguishes them.
        values : iterable of float, optional
            Values in place of theirs, for the value to beat.
        """
        places = sorted(values or best.values())[request.top - 1 : request.top]
        return cls(request, best, min([request.objective.ceiling, *places]))

    @classmethod
    def in_result(cls, result: Result) -> Kept:
        """Kept mappings as a result file has them; with heat, the kept mappings without heat are not in the file."""
        by, others = result.request.distinct_in, result.alternatives or ()
        best = {different(other.mapping, other.variant, by): other.value for other in reversed(others)}
        best[different(result.mapping, result.graph.variant, by)] = result.value
        cool = [record.value for record in result.plans if record.value is not None and result.heat is not None]
        return cls.of(result.request, best, cool)

    def to_beat(self, plan: Plan, variant: str | None) -> float:
        """Value that another mapping of a plan must beat: the last one, or the plan's own where one a plan is kept."""
        return min(self.last, self.best.get((plan, variant), self.last))

    def bound(self, record: AnyRecord, name: str = "bound") -> float | None:
        """Lower bound from the field ``name`` of a record, for mappings other than the kept ones of its plan.

        If the best mappings are closer to each other than the gap, the record's own bound may be stronger for all of
        them.
        """
        bound: float | None = getattr(record, name)
        if self.request.several and record.status == "solved":
            return max(self.last * (1 - self.request.gap), -np.inf if bound is None else bound)
        return bound

    def gap(self, records: Sequence[AnyRecord], unlisted: Sequence[GraphRecord], name: str = "bound") -> float:
        """Relative amount by which another mapping may still be below what it has to beat.

        Parameters
        ----------
        records : sequence of records
            Bounds by plan.
        unlisted : sequence of GraphRecord
            Bounds of graphs whose plans are not listed.
        name : str
            Field of the records: ``bound`` or ``level_bound``.
        """
        low_of = {self.last: min((each.bound for each in unlisted), default=self.last)}  # by what is to be beaten
        of_record = partial(self.bound, name=name) if self.request.several else attrgetter(name)
        for record in records:
            if (low := of_record(record)) is not None and low < self.last:
                beat = self.to_beat(record.plan, record.variant)
                low_of[beat] = min(low, low_of.get(beat, low))
        return max(proven_gap(beat, low) for beat, low in low_of.items())
