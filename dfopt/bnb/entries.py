"""What a problem consists of: regions to start from, and lists of entries that say how to bound and to divide them.

An entry returns values. It pushes nothing, and it holds no state of the search: that is in the bound store, the
incumbents, the proof log and the clock. So a new relaxation, heuristic, reduction, branching rule or leaf solver is a
class and a place in a list.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from dfopt.bnb.answers import Bound, Candidate, LeafAnswer, RegionT, SolutionT
from dfopt.bnb.clock import Clock
from dfopt.bnb.node import Node

AnswerT = TypeVar("AnswerT")
BRANCHING = "branching"
"""When a heuristic is asked about a region after its last relaxation, before it is divided."""


class View(Protocol):
    """What entries may read of the state of the search: the cutoff and the solutions kept so far."""

    @property
    def cutoff(self) -> float:
        """Objective value at or above which members of a region are of no interest."""
        ...

    @property
    def last(self) -> float:
        """Value of the worst solution kept; infinite while fewer than the requested number are kept."""
        ...

    @property
    def kept(self) -> Sequence[Candidate]:
        """The best solutions so far, the best first; no two of them are equal."""
        ...

    def cutoff_of(self, value: float) -> float:
        """Value at or above which another way to reach a solution of value ``value`` is of no interest."""
        ...


class Relaxation(Generic[RegionT, AnswerT]):
    """A lower bound on the values of all members of a region.

    A relaxation answers about a key, and regions with the same key share the answer. The bound of a single region is
    then read from that answer.

    Attributes
    ----------
    name
        Word for the proof log and for the counts of an outcome; no two relaxations of a problem have the same.
    batch
        Largest number of regions in one call of :meth:`answers`.
    ahead
        Largest number of regions that :meth:`prepare` receives in advance. 0: it is not called.
    """

    name: str
    batch: int = 1
    ahead: int = 0

    def applies(self, region: RegionT) -> bool:
        """Whether the relaxation can bound a region."""
        return True

    def key(self, region: RegionT) -> Hashable:
        """All that the answer depends on: regions with equal keys share one answer."""
        return region

    def prepare(self, regions: Sequence[RegionT], cutoff: float) -> None:
        """Prepare answers for regions that will be asked about, for example several at once in other processes.

        Which regions these are does not depend on how it does that.
        """

    def answers(self, regions: Sequence[RegionT], cutoff: float, clock: Clock) -> Sequence[AnswerT]:
        """One answer for each of several regions, whose keys differ.

        An answer may stop early once it shows that nothing in the region is below the cutoff, or when the clock is
        over. It then holds the bound reached so far.

        Parameters
        ----------
        regions
            The regions to bound.
        cutoff : float
            Objective value at or above which members of a region are of no interest.
        clock
            The clock that the work is charged to.

        Returns
        -------
        sequence
            By region, the answer. The bounds in them hold for every member of the region.
        """
        raise NotImplementedError

    def bound(self, region: RegionT, answer: AnswerT) -> Bound:
        """The bound of one region, read from an answer; by default the answer is its value."""
        value: Any = answer
        return Bound(value)

    def refine(self, region: RegionT, answer: AnswerT, cutoff: float, clock: Clock) -> AnswerT:
        """A tighter answer for a region, or one whose bound says that no more can be shown (``more`` is False).

        Parameters
        ----------
        region, answer
            The region, and the answer about it so far.
        cutoff : float
            Objective value at or above which members of a region are of no interest.
        clock
            The clock that the work is charged to.
        """
        raise NotImplementedError


class Heuristic(Generic[RegionT, SolutionT]):
    """Proposes feasible solutions, so that the cutoff falls early."""

    def due(self, node: Node[RegionT], after: str) -> bool:
        """Whether to run on a node now: after the relaxation named ``after``, or before :data:`BRANCHING`."""
        return after == BRANCHING

    def propose(self, node: Node[RegionT], view: View) -> Iterable[Candidate]:
        """Feasible solutions, which need not be members of the region."""
        raise NotImplementedError


class Reduction(Generic[RegionT]):
    """Replaces a region by a smaller one without losing any solution that matters.

    Attributes
    ----------
    name
        Word for the proof log.
    dominance
        True: members that it removes may be below the cutoff, but some member that it keeps is no worse. Such a
        reduction is used only if a single solution is requested. False: no member that it removes is below the cutoff,
        unless it keeps an equal solution that is no worse.
    """

    name: str
    dominance: bool = False

    def reduce(self, region: RegionT, bound: Bound, view: View) -> RegionT | None:
        """The smaller region, or None if nothing can be left out.

        Parameters
        ----------
        region, bound
            The region, and the lower bound on its members.
        view
            What may be read of the search: the cutoff and the solutions kept so far.
        """
        raise NotImplementedError


class BranchingRule(Generic[RegionT]):
    """Divides a region into disjoint parts."""

    def children(self, region: RegionT, bound: Bound, view: View) -> Sequence[tuple[RegionT, float]] | None:
        """Disjoint regions that together cover the region, each with a lower bound on its members.

        Each member is in exactly one of them. Empty: the region cannot be divided. None: this rule does not divide it.

        Parameters
        ----------
        region, bound
            The region, and the lower bound on its members.
        view
            What may be read of the search: the cutoff and the solutions kept so far.
        """
        raise NotImplementedError


class LeafSolver(Generic[RegionT, SolutionT]):
    """Solves a region without dividing it."""

    def accepts(self, region: RegionT, bound: Bound) -> bool:
        """Whether this solver handles the region."""
        raise NotImplementedError

    def solve(self, region: RegionT, bound: Bound, view: View, clock: Clock) -> LeafAnswer:
        """Solutions of the region and a bound on all its other members; see :class:`LeafAnswer`.

        Parameters
        ----------
        region, bound
            The region, and the lower bound on its members.
        view
            What may be read of the search: the cutoff and the solutions kept so far.
        clock
            The clock that the work is charged to.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Problem(Generic[RegionT, SolutionT]):
    """A minimization problem for :func:`branch_and_bound`: root regions and the entries that bound and divide them.

    Attributes
    ----------
    roots
        Disjoint regions that together hold all solutions.
    relaxations
        Relaxations, the cheapest first. Each is applied to a region only when this region has the least bound of all.
    branching
        Rules that divide regions; the first that does not return none divides a region.
    heuristics, reductions
        Sources of solutions; rules that shrink regions before these are divided.
    leaves
        Solvers that decide regions without dividing them; the first that accepts a region decides it.
    """

    roots: Sequence[RegionT]
    relaxations: Sequence[Relaxation[RegionT, Any]]
    branching: Sequence[BranchingRule[RegionT]]
    heuristics: Sequence[Heuristic[RegionT, SolutionT]] = ()
    reductions: Sequence[Reduction[RegionT]] = ()
    leaves: Sequence[LeafSolver[RegionT, SolutionT]] = ()
