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
    """Relative distance of a value to its bound; 0 where nothing is left to prove."""
    gap = 1.0 if np.isinf(value) and np.isfinite(bound) else max(0.0, (value - bound) / value)
    return gap if gap > PROOF else 0.0


@dataclass(frozen=True)
class Kept:
    """The best mappings: their values by what makes them different, and ``last``, what others have to beat."""

    request: Request
    best: Mapping[Hashable, float]
    last: float

    @classmethod
    def of(cls, request: Request, best: Mapping[Hashable, float], values: Iterable[float] = ()) -> Kept:
        """From mappings, or their values where others than these were kept: the last one, or what limits allow."""
        places = sorted(values or best.values())[request.top - 1 : request.top]
        return cls(request, best, min([request.objective.ceiling, *places]))

    @classmethod
    def in_result(cls, result: Result) -> Kept:
        """From a result; with heat the mappings without it, which were kept, are not in the file."""
        by, others = result.request.distinct_in, result.alternatives or ()
        best = {different(other.mapping, other.variant, by): other.value for other in reversed(others)}
        best[different(result.mapping, result.graph.variant, by)] = result.value
        cool = [record.value for record in result.plans if record.value is not None and result.heat is not None]
        return cls.of(result.request, best, cool)

    def to_beat(self, plan: Plan, variant: str | None) -> float:
        """What another mapping of a plan has to beat: the last one, or that of the plan where only one is kept."""
        return min(self.last, self.best.get((plan, variant), self.last))

    def bound(self, record: AnyRecord, name: str = "bound") -> float | None:
        """What a record says that no mapping is below: of a plan that may have several of the best, none but these.

        Where the best ones are closer to each other than the gap, the record itself may say more of all of them.
        """
        bound: float | None = getattr(record, name)
        if self.request.several and record.status == "solved":
            return max(self.last * (1 - self.request.gap), -np.inf if bound is None else bound)
        return bound

    def gap(self, records: Sequence[AnyRecord], unlisted: Sequence[GraphRecord], name: str = "bound") -> float:
        """How much, relatively, another mapping may be below what it has to beat, as far as that is shown."""
        low_of = {self.last: min((each.bound for each in unlisted), default=self.last)}  # by what is to be beaten
        of_record = partial(self.bound, name=name) if self.request.several else attrgetter(name)
        for record in records:
            if (low := of_record(record)) is not None and low < self.last:
                beat = self.to_beat(record.plan, record.variant)
                low_of[beat] = min(low, low_of.get(beat, low))
        return max(proven_gap(beat, low) for beat, low in low_of.items())
