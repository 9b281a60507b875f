"""The mapping problem for the engine: which entries there are, and the search."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dfopt.bnb import (
    Candidate,
    Clock,
    LeafAnswer,
    Node,
    Outcome,
    Problem,
    Relaxation,
    SearchParameters,
    Snapshot,
    branch_and_bound,
)
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.regions.branching import Listing, PlansApart, Probing, StagesOpen
from dfopt.regions.facts import FactCache
from dfopt.regions.heuristics import ChosenTogether, Rounding
from dfopt.regions.judged import JudgedMapping
from dfopt.regions.leaves import Enumeration, Fusion, Limited
from dfopt.regions.levels import FirstLevel
from dfopt.regions.open_stages import BlocksOfStages, LeastUntiledOfStages
from dfopt.regions.plan_programs import PlanPrograms
from dfopt.regions.reductions import AboveCutoff, Dominated
from dfopt.regions.region import Branch, Region, Unclassed, Unlisted, rounded, surrounds
from dfopt.regions.relaxations import (
    CapacityBound,
    GeneratedBlocks,
    LeastOfGraph,
    LeastStep,
    LeastUntiled,
    LeastWork,
    PathBound,
    PiecesOverOptions,
)
from dfopt.regions.space import MappingSpace
from dfopt.regions.unrolled import OneLayer
from dfopt.setting.instance import Setting
from dfopt.solving.options import Options
from dfopt.solving.solved import Solved
from dfopt.terms.step.ledger import usable_bytes

ROUNDED = 5e-13
"""Relative: values that differ by less are one value, added up in two orders. A region whose bound is as near to a
mapping as this holds nothing better; without it all mappings that are as good would be looked at."""

_AS_ASKED = 1e-9
"""Relative: a mapping that takes as long as an objective limit allows keeps it, though its seconds are rounded."""


class ClassesFirst:
    """Best-first selection that first computes all bounds of every class of plans below the cutoff.

    Each class thus gives a mapping before any of them is searched deeply. The class of the best mapping known at the
    start comes first: it has to be bounded anyway, and mappings near that one are good. Plans that are in no class yet
    are selected by their bounds, as they may be better than classes with bounds. A graph whose plans are not listed
    waits until no other region has a lower bound. Of bounds that differ only by rounding, that of the earlier class,
    with the simpler plan, comes first.

    Parameters
    ----------
    relaxations : int
        Number of relaxations.
    best : Solved, optional
        The best mapping that is known at the start.
    """

    def __init__(self, relaxations: int, best: Solved | None = None) -> None:
        self._relaxations, self._best = relaxations, best

    def priority(self, node: Node[Any]) -> tuple[float, ...]:
        """Sort key: class of the best known mapping until it has all bounds, deferrals, other such classes, bounds."""
        best, unbounded = self._best, node.answered < self._relaxations
        is_whole = isinstance(node.region, Region) and node.region.is_whole
        later = not (isinstance(node.region, Unclassed) or (is_whole and unbounded))
        first = best is not None and unbounded and surrounds(node.region, best.plan, best.graph)
        return float(not first), node.deferrals, float(later), rounded(node.bound.value), -node.answered


def parameters_of(request: Request) -> SearchParameters:
    """The search parameters of a request: gap, number of mappings and objective limit, widened for rounding."""
    limit = request.objective.ceiling * (1 + _AS_ASKED)
    return SearchParameters(gap=max(request.gap, ROUNDED), top=request.top, limit=limit)


def relaxations_of(memory: FactCache) -> list[Relaxation[Branch, Any]]:
    """All bounds of regions, the cheapest first."""
    by_blocks = PiecesOverOptions(memory), GeneratedBlocks(memory), PathBound(memory)
    of_layers = LeastUntiled(), LeastUntiledOfStages(), LeastWork(memory)
    return [LeastOfGraph(), LeastStep(memory), *of_layers, BlocksOfStages(), *by_blocks, CapacityBound(memory)]


def problem_in(spaces: Sequence[MappingSpace], options: Options) -> Problem[Branch, JudgedMapping]:
    """Some mapping spaces as one branch-and-bound problem: roots, bounds, reductions, branching and leaf solvers.

    Parameters
    ----------
    spaces : sequence of MappingSpace
        All mappings of a question: one space for each graph that it may be drawn as.
    options : Options
        The request under way.
    """
    memory = FactCache()
    relaxations = relaxations_of(memory)
    limited = any(math.isfinite(bytes_) for space in spaces for bytes_ in usable_bytes(space.setting).values())
    *_, last = (each.name for each in relaxations if limited or not isinstance(each, CapacityBound))
    rounding = Rounding(memory, options, last)
    roots, first = [Unlisted(space) for space in spaces], [Listing(), StagesOpen(), FirstLevel(options)]
    programs = PlanPrograms(options)
    if options.request.formulation == "assignment":  # mappings are those of the programs, each with its record
        from dfopt.regions.matrices import MatrixProgram  # with all that formulates: not for those who never ask

        leaf = MatrixProgram(memory, rounding, options)
        return Problem(roots, relaxations, [*first, PlansApart(memory, every=True)], leaves=[programs, leaf])
    return Problem(
        roots=roots,
        relaxations=relaxations,
        branching=[*first, PlansApart(memory), Probing(memory)],
        heuristics=[ChosenTogether(memory, options), OneLayer(memory, options, last, _best_of_space), rounding],
        reductions=[Dominated(options.request.distinct_in), AboveCutoff(memory)],
        leaves=[programs, Enumeration(memory, options), Fusion(memory, options)],
    )


def one_by_one(
    plans: Mapping[Setting, Sequence[Plan]],
    within: Callable[[Solved, float], LeafAnswer],
    options: Options,
    kept: Sequence[Candidate] = (),
    further: Callable[[FactCache], Relaxation[Branch, float]] | None = None,
) -> Outcome[Branch, JudgedMapping]:
    """The best mapping under given plans that keeps further limits, with a bound on all others.

    Every plan and sharding is decided on its own. Bounds without the limits remain valid under them; dominance between
    options does not, and is not used.

    Parameters
    ----------
    plans : dict
        Plans by setting; their pipeline stages are fixed.
    within : callable
        See :class:`~dfopt.regions.leaves.Limited`.
    options : Options
        The gap and the clock of the search.
    kept : sequence of Candidate
        The best solution that is known.
    further : callable, optional
        A further bound, from the facts of regions.
    """
    memory = FactCache()
    problem = Problem[Branch, JudgedMapping](
        roots=[Unlisted(MappingSpace.of_plans(setting, options.request, chosen)) for setting, chosen in plans.items()],
        relaxations=[*relaxations_of(memory), *([] if further is None else [further(memory)])],
        branching=[Listing(), PlansApart(memory, every=True), Probing(memory)],
        reductions=[AboveCutoff(memory)],
        leaves=[Limited(within, options)],
    )
    return branch_and_bound(problem, SearchParameters(gap=options.request.gap), clock=options.clock, kept=kept)


def searched(
    problem: Problem[Branch, JudgedMapping],
    parameters: SearchParameters,
    clock: Clock,
    kept: Sequence[Candidate] = (),
    progress: Callable[[Snapshot[JudgedMapping]], None] | None = None,
) -> Outcome[Branch, JudgedMapping]:
    """Run branch and bound on a mapping problem, with the node selection :class:`ClassesFirst`.

    Parameters
    ----------
    problem, parameters, clock, kept, progress
        As for :func:`dfopt.bnb.branch_and_bound`.
    """
    best = next((candidate.solution.solved for candidate in kept), None)
    order = ClassesFirst(len(problem.relaxations), best)
    return branch_and_bound(problem, parameters, clock=clock, selection=order, kept=kept, progress=progress)


def _best_of_space(space: MappingSpace, options: Options) -> JudgedMapping | None:
    """The best mapping of a space, as far as the clock allows."""
    return searched(problem_in([space], options), SearchParameters(gap=options.request.gap), options.clock).solution
