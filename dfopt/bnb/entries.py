"""What a problem consists of: regions to start from, and lists of entries that say how to bound and to divide them.

An entry returns values. It pushes nothing, and it holds no state of the search: that is in the bound store, the
incumbents, the proof log and the clock. So a new relaxation, heuristic, reduction, branching rule or leaf solver is a
class and a place in a list.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from dfopt.bnb.answers import Bound, Candidate, LeafAnswer, Region, Solution
from dfopt.bnb.clock import Clock
from dfopt.bnb.node import Node

Answer = TypeVar("Answer")
BRANCHING = "branching"
"""When a heuristic is asked about a region after its last relaxation, before it is divided."""


class View(Protocol):
    """What entries may know of the search."""

    @property
    def cutoff(self) -> float:
        """Value from which on a member of a region does not matter."""
        ...

    @property
    def last(self) -> float:
        """Value of the last solution that is kept; infinite while fewer are kept than are asked for."""
        ...

    @property
    def kept(self) -> Sequence[Candidate]:
        """The best solutions so far, the best first; no two of them are equal."""
        ...

    def cutoff_of(self, value: float) -> float:
        """Value from which on another way to have a solution of some value does not matter."""
        ...


class Relaxation(Generic[Region, Answer]):
    """A bound on everything in a region.

    A relaxation answers about a key, and regions with the same key share the answer. What an answer shows of one region
    is read off it.

    Attributes
    ----------
    name
        Word for the proof log and for the counts of an outcome; no two relaxations of a problem have the same.
    batch
        Number of regions, at most, whose answers are asked for in one call.
    ahead
        Number of regions, at most, that :meth:`prepare` receives before the first of them is asked about. 0: none.
    """

    name: str
    batch: int = 1
    ahead: int = 0

    def applies(self, region: Region) -> bool:
        """Whether it says anything about a region."""
        return True

    def key(self, region: Region) -> Hashable:
        """What its answer depends on."""
        return region

    def prepare(self, regions: Sequence[Region], cutoff: float) -> None:
        """Get ready for some regions that will be asked about, several at once, in other processes for example.

        Which regions these are does not depend on how it does that.
        """

    def answers(self, regions: Sequence[Region], cutoff: float, clock: Clock) -> Sequence[Answer]:
        """Answers about regions with different keys.

        An answer may stop early where it shows that nothing in the region is below the cutoff, or when the clock is
        over. It is then what has been shown until there.
        """
        raise NotImplementedError

    def bound(self, region: Region, answer: Answer) -> Bound:
        """What an answer shows of a region; by default the answer is the value."""
        value: Any = answer
        return Bound(value)

    def refine(self, region: Region, answer: Answer, cutoff: float, clock: Clock) -> Answer:
        """An answer that shows more, or that says that it can show no more."""
        raise NotImplementedError


class Heuristic(Generic[Region, Solution]):
    """Proposes solutions, so that the cutoff falls early."""

    def due(self, node: Node[Region], after: str) -> bool:
        """Whether to ask it about a node: after the relaxation of this name, or before :data:`BRANCHING`."""
        return after == BRANCHING

    def propose(self, node: Node[Region], view: View) -> Iterable[Candidate]:
        """Feasible solutions, which need not be members of the region."""
        raise NotImplementedError


class Reduction(Generic[Region]):
    """Replaces a region by a smaller one that holds all that matters of it.

    Attributes
    ----------
    name
        Word for the proof log.
    dominance
        True: what it leaves out may be below the cutoff, but some member that it keeps is no worse. Such a reduction is
        used only where one solution is asked for. False: what it leaves out is not below the cutoff, or an equal
        solution that it keeps is no worse.
    """

    name: str
    dominance: bool = False

    def reduce(self, region: Region, bound: Bound, view: View) -> Region | None:
        """The smaller region; none if it leaves nothing out."""
        raise NotImplementedError


class BranchingRule(Generic[Region]):
    """Divides a region."""

    def children(self, region: Region, bound: Bound, view: View) -> Sequence[tuple[Region, float]] | None:
        """Regions that together hold the members of the region, each with a value that no member is below.

        Each member is in exactly one of them. Empty: the region cannot be divided. None: this rule does not divide it.
        """
        raise NotImplementedError


class LeafSolver(Generic[Region, Solution]):
    """Decides a region without dividing it."""

    def accepts(self, region: Region, bound: Bound) -> bool:
        """Whether it decides this region."""
        raise NotImplementedError

    def solve(self, region: Region, bound: Bound, view: View, clock: Clock) -> LeafAnswer:
        """Solutions, and what no other member of the region is below; see :class:`LeafAnswer`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Problem(Generic[Region, Solution]):
    """What is searched; lower values are better.

    Attributes
    ----------
    roots
        Regions that hold everything there is to choose from, each member in one of them.
    relaxations
        Bounds, the cheapest first. Each is asked about a region only when this has the least bound of all.
    branching
        Rules that divide regions; the first that does not return none divides a region.
    heuristics, reductions
        Sources of solutions; what makes regions smaller before they are divided.
    leaves
        What decides regions without dividing them; the first that accepts a region decides it.
    """

    roots: Sequence[Region]
    relaxations: Sequence[Relaxation[Region, Any]]
    branching: Sequence[BranchingRule[Region]]
    heuristics: Sequence[Heuristic[Region, Solution]] = ()
    reductions: Sequence[Reduction[Region]] = ()
    leaves: Sequence[LeafSolver[Region, Solution]] = ()
