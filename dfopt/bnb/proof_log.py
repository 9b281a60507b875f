"""What was shown and in which order: enough to see, without the search, what no solution is below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple

from dfopt.bnb.answers import Candidate, RegionT


class BoundRaised(NamedTuple):
    """Event: a relaxation raised the lower bound of a region."""

    node: int
    relaxation: str
    value: float


class Branched(NamedTuple):
    """Event: a region was divided into children, each with a lower bound on its members."""

    node: int
    children: tuple[int, ...]
    bounds: tuple[float, ...]


class Reduced(NamedTuple):
    """Event: a region was replaced by a smaller one that still has all solutions that matter."""

    node: int
    reduction: str
    child: int


class Closed(NamedTuple):
    """Event: a region is closed, with the bound on its members.

    Attributes
    ----------
    bound
        No member is below it.
    value
        Least value of the solutions that a leaf solver gave for it; infinite if it gave none, and none if no leaf
        solver decided it.
    others
        No member that is none of these solutions is below it.
    solutions
        That the leaf solver gave.
    """

    node: int
    bound: float
    value: float | None
    others: float
    solutions: Sequence[Candidate] = ()


Event = BoundRaised | Branched | Reduced | Closed


@dataclass
class ProofLog(Generic[RegionT]):
    """Append-only list of proof events, and the regions that they refer to by number."""

    regions: list[RegionT] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def number(self, region: RegionT) -> int:
        """Register a region and return its number."""
        self.regions.append(region)
        return len(self.regions) - 1

    @property
    def leaves(self) -> list[Closed]:
        """Closed regions in the order in which they were closed; together they cover the whole space."""
        return [event for event in self.events if isinstance(event, Closed)]
