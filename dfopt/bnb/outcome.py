"""What a search found, and what it shows of everything else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal

from dfopt.bnb.answers import Candidate, RegionT, SolutionT
from dfopt.bnb.proof_log import ProofLog

SearchEnding = Literal["optimal", "gap_reached", "exhausted", "time_limit", "interrupted", "empty"]


@dataclass(frozen=True)
class Leaf(Generic[RegionT]):
    """A region that was not divided further.

    Attributes
    ----------
    region
        The region.
    bound
        Lower bound on all members.
    value
        Least value that a leaf solver found; infinite if it found none, None if no leaf solver decided the region.
    others
        Lower bound on all members other than ``solutions``.
    solutions
        Solutions that the leaf solver found.
    """

    region: RegionT
    bound: float
    value: float | None
    others: float
    solutions: Sequence[Candidate] = ()


@dataclass(frozen=True)
class Snapshot(Generic[SolutionT]):
    """Progress of a search: best value, global bound and time.

    Attributes
    ----------
    best, bound
        The best value so far, and the global lower bound.
    regions
        Regions that were opened.
    solution
        The best solution; none while there is none.
    seconds
        Since the search began.
    """

    best: float
    bound: float
    regions: int
    solution: SolutionT | None
    seconds: float


@dataclass(frozen=True)
class Outcome(Generic[RegionT, SolutionT]):
    """Result of a search: the solutions kept, and a global bound that no solution is below.

    Attributes
    ----------
    kept
        The requested number of best solutions, in ascending order of value.
    bound
        The least bound of all leaves, or the best value where that is less.
    ending
        ``optimal``: no other solution is better than those kept; ``gap_reached``: none is better by more than the
        requested gap; ``exhausted``: no region is open, but the bounds of leaves leave a larger gap; ``time_limit``:
        the clock was over; ``empty``: there is no solution, or none below the objective limit.
    bounded, seconds
        Bounds that were read by relaxation, and time.
    log
        Proof steps in the order in which they were made.
    """

    kept: tuple[Candidate, ...]
    bound: float
    ending: SearchEnding
    bounded: dict[str, int]
    seconds: float
    log: ProofLog[RegionT]

    @property
    def leaves(self) -> tuple[Leaf[RegionT], ...]:
        """Leaf regions that together cover the whole space, each with its bound."""
        regions = self.log.regions
        return tuple(Leaf(regions[closed.node], *closed[1:]) for closed in self.log.leaves)

    @property
    def regions(self) -> int:
        """Number of regions that were opened."""
        return len(self.log.regions)

    @property
    def best(self) -> float:
        """The best value; infinite if nothing was found."""
        return self.kept[0].value if self.kept else math.inf

    @property
    def solution(self) -> SolutionT | None:
        """The solution with the best value, or None."""
        return self.kept[0].solution if self.kept else None

    @property
    def gap(self) -> float:
        """Relative optimality gap: (best - bound) / best."""
        return 0.0 if not math.isfinite(self.best) or self.best <= 0 else max(0.0, 1 - self.bound / self.best)
