"""What entries return: bounds, solutions with their values, and what a leaf solver shows."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

RegionT = TypeVar("RegionT", bound=Hashable)
SolutionT = TypeVar("SolutionT")


class Bound(NamedTuple):
    """A lower bound on the members of a region, with its witness.

    Attributes
    ----------
    value
        No member of the region has a lower value. Infinity: the region has no feasible member.
    witness
        Point of the relaxation that attains the bound, for heuristics and branching rules.
    more
        Whether the relaxation can raise the value in a further call.
    """

    value: float
    witness: Any = None
    more: bool = False


class Candidate(NamedTuple):
    """A feasible solution with its objective value, as computed by the exact evaluator of the problem."""

    value: float
    solution: Any


class LeafAnswer(NamedTuple):
    """The solutions that a leaf solver found in a region, and a bound on all its other members.

    Attributes
    ----------
    candidates
        Solutions of the region.
    others
        No member of the region has a lower value that is not among these, nor another way to have a solution that is
        kept. Infinity: there is no other.
    bound
        None of these solutions can be had at a lower value, where a value is that of the best way known to have it.
        None: their values are exact.
    interrupted
        Whether an interrupt cut the solver short; the search then ends with the solutions found so far.
    """

    candidates: Sequence[Candidate]
    others: float = math.inf
    bound: float | None = None
    interrupted: bool = False


NOTHING_SHOWN = Bound(-math.inf)
"""Of a region that no relaxation was asked about."""
