"""What a search knows: answers of relaxations, and the best solutions."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dfopt.bnb.answers import Candidate


@dataclass
class Stored:
    """An answer of a relaxation, and how often it was refined."""

    answer: Any
    refined: int = 0


@dataclass
class BoundStore:
    """Answers of relaxations by (relaxation, key); an answer is only replaced by a tighter one."""

    _answers: dict[tuple[str, Hashable], Stored] = field(default_factory=dict)

    def get(self, relaxation: str, key: Hashable) -> Stored | None:
        """The stored answer of a relaxation about a key; None if there is none."""
        return self._answers.get((relaxation, key))

    def put(self, relaxation: str, key: Hashable, answer: Any) -> Stored:
        """Store a first or a tighter answer.

        Parameters
        ----------
        relaxation : str
            Name of the relaxation.
        key
            Key of the region: regions with equal keys have equal answers.
        answer
            The answer of the relaxation.
        """
        before = self._answers.get((relaxation, key))
        stored = self._answers[relaxation, key] = Stored(answer, 0 if before is None else before.refined + 1)
        return stored


class Incumbents:
    """The best solutions so far, with their values, in ascending order.

    Parameters
    ----------
    top
        Number of solutions to keep.
    gap
        Relative gap: solutions less than this below the last kept value are of no interest.
    kept
        Solutions that are known already: no more than ``top``, the best first.
    limit
        Objective limit, from which on nothing is a solution.

    Examples
    --------
    >>> best = Incumbents(top=2, gap=0.1)
    >>> [best.offer(Candidate(value, name)) for value, name in ((10.0, "a"), (12.0, "b"), (14.0, "c"), (9.0, "a"))]
    [True, True, False, True]
    >>> best.kept, best.cutoff
    ([Candidate(value=9.0, solution='a'), Candidate(value=12.0, solution='b')], 10.8)
    """

    def __init__(self, top: int, gap: float, kept: Sequence[Candidate] = (), limit: float = math.inf) -> None:
        self.top, self.gap, self.limit = top, gap, limit
        self.kept: list[Candidate] = [*kept]

    @property
    def best(self) -> float:
        """The best value; infinite if there is none."""
        return self.kept[0].value if self.kept else math.inf

    @property
    def last(self) -> float:
        """Value of the worst solution kept; infinite while there is room for more."""
        return self.kept[-1].value if len(self.kept) >= self.top else math.inf

    @property
    def cutoff(self) -> float:
        """Value at or above which a region can be closed."""
        return min(self.cutoff_of(self.last), self.limit)

    def cutoff_of(self, value: float) -> float:
        """Value at or above which another way to reach a solution of value ``value`` is of no interest."""
        return value - self.gap * abs(value) if math.isfinite(value) else math.inf

    def offer(self, candidate: Candidate) -> bool:
        """Keep a solution if it is among the best and return whether it was kept; a kept one may get a better value."""
        same = next((kept.value for kept in self.kept if kept.solution == candidate.solution), math.inf)
        if candidate.value >= min(self.last, same, self.limit):
            return False
        others = [kept for kept in self.kept if kept.solution != candidate.solution]
        self.kept = sorted([*others, candidate], key=lambda kept: kept.value)[: self.top]
        return True
