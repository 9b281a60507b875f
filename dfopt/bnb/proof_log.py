"""What was shown and in which order: enough to see, without the search, what no solution is below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple

from dfopt.bnb.answers import Candidate, Region


class BoundRaised(NamedTuple):
    """A relaxation shows that no member of a region is below a value."""

    node: int
    relaxation: str
    value: float


class Branched(NamedTuple):
    """A region is divided; each child with a value that no member of it is below."""

    node: int
    children: tuple[int, ...]
    bounds: tuple[float, ...]


class Reduced(NamedTuple):
    """A smaller region holds all that matters of a region."""

    node: int
    reduction: str
    child: int


class Closed(NamedTuple):
    """A region is not looked at any more.

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
class ProofLog(Generic[Region]):
    """Events in their order, which are only appended, and the regions that they are about, by number."""

    regions: list[Region] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def number(self, region: Region) -> int:
        """A number for a region."""
        self.regions.append(region)
        return len(self.regions) - 1

    @property
    def leaves(self) -> list[Closed]:
        """Regions that cover everything there is, in the order in which they were closed."""
        return [event for event in self.events if isinstance(event, Closed)]
