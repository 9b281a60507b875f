"""Designs as a problem of branch and bound: a region is a box of designs that run one batch.

The batch is one more size to choose. The problem of a batch bounds the boxes that run it, offers designs to try and
halves of a box. So metrics must weigh steps of one batch against those of another: rates, where more is better. A step
of a smaller batch takes less time, joules and money in any case.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import Final

from dfopt.bnb import (
    Bound,
    BranchingRule,
    Candidate,
    Clock,
    Heuristic,
    LeafAnswer,
    LeafSolver,
    Node,
    Outcome,
    Problem,
    Relaxation,
    SearchParameters,
    Snapshot,
    View,
    branch_and_bound,
)
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.design import Design
from dfopt.documents.exploration_request import ExplorationRequest
from dfopt.documents.graph import Graph
from dfopt.errors import PlanError
from dfopt.exploring.problems import workload_of
from dfopt.exploring.solves import SolveResources
from dfopt.exploring.space import Box, DesignChoice, Sizes
from dfopt.exploring.workload import SOLVE, ExplorationProblem
from dfopt.physics.merits import MERITS

DesignProgress = Callable[[Snapshot[DesignChoice]], None]
"""Called with the state of a search over designs after each of its steps."""
BATCH: Final = "batch"
"""The name of the batch among the sizes of a design."""
_AHEAD: Final = 4
"""Boxes whose corners are solved at once: few, as what the first ones show may close the others."""


@dataclass
class Batches(BranchingRule[Box], Heuristic[Box, DesignChoice], LeafSolver[Box, DesignChoice]):
    """Branch-and-bound problem over designs that run one of several batches.

    Attributes
    ----------
    workloads
        The problem of each batch, the smallest first: of the same designs, with one objective and one `Run`.
    refused
        Why a batch has no plan; of a single batch that is raised.
    """

    workloads: tuple[ExplorationProblem, ...]
    refused: dict[int, PlanError] = field(default_factory=dict)

    @cached_property
    def of(self) -> dict[int, ExplorationProblem]:
        """Workload of each batch."""
        return {workload.graph.batch: workload for workload in self.workloads}

    def named(self, box: Box, positions: Sizes) -> dict[str, float]:
        """Sizes of components at some positions, and the batch of the box if there are several."""
        batch = {BATCH: float(box.batch)} if len(self.workloads) > 1 else {}
        return batch | self.workloads[0].spaces[box.which].named(positions)

    @property
    def problem(self) -> Problem[Box, DesignChoice]:
        """The branch-and-bound problem of all designs with each batch."""
        return Problem(
            roots=[box for workload in self.workloads for box in workload.roots],
            relaxations=[DesignBound(self, name) for name in self.workloads[0].bounds],
            branching=[self],
            heuristics=[self],
            leaves=[self],
        )

    def due(self, node: Node[Box], after: str) -> bool:
        """Whether to try a known mapping now: after the corner of several designs is solved."""
        return after == SOLVE and not node.region.single

    def propose(self, node: Node[Box], view: View) -> Iterator[Candidate]:
        """A design on which a mapping known from the corner beats the best design, if there is one."""
        return self.of[node.region.batch].candidates(node.region, view.last)

    def accepts(self, region: Box, bound: Bound) -> bool:
        """Whether the box has a single design, which can be mapped."""
        return region.single

    def solve(self, region: Box, bound: Bound, view: View, clock: Clock) -> LeafAnswer:
        """The design with its best mapping; the bound of the box holds for all its other mappings.

        Parameters
        ----------
        region, bound, view, clock
            As for :meth:`dfopt.bnb.entries.LeafSolver.solve`.
        """
        return LeafAnswer([*self.of[region.batch].candidates(region, view.last)], bound=bound.value)

    def children(self, region: Box, bound: Bound, view: View) -> list[tuple[Box, float]]:
        """The two halves of a box, split so that its best mapping loses most.

        Parameters
        ----------
        region, bound, view
            As for :meth:`dfopt.bnb.entries.BranchingRule.children`.
        """
        return [(part, bound.value) for part in self.of[region.batch].split(region)]


def batches_of(
    graphs: Sequence[Graph],
    designs: Sequence[Design],
    assumptions: Assumptions | str = "default",
    request: ExplorationRequest | None = None,
    run: SolveResources | None = None,
) -> Batches:
    """Exploration problem for graphs of one or more batches, each drawn in several ways.

    Parameters
    ----------
    graphs : sequence of Graph
        In any order; those of one batch are the same work.
    designs, assumptions, request, run
        As of `dfopt.exploring.problems.workload_of`.

    Raises
    ------
    SystemSpecError, PlanError
        As `dfopt.exploring.problems.workload_of`; `PlanError` too where the objective does not weigh batches.
    """
    of, same_run, batch_of = request or ExplorationRequest(), run or SolveResources(), attrgetter("batch")
    by_batch = [[*drawn] for _, drawn in groupby(sorted(graphs, key=batch_of), key=batch_of)]
    if len(by_batch) > 1 and MERITS[of.objective].sense == "minimize":
        rates = ", ".join(name for name, merit in MERITS.items() if merit.sense == "maximize")
        less = "a step of the smallest batch has the least"
        raise PlanError(f"objective: found {of.objective} beside several batches, expected one of {rates}: {less}")
    return Batches(tuple(workload_of(drawn, designs, assumptions, of, same_run) for drawn in by_batch))


class DesignBound(Relaxation[Box, float]):
    """Relaxation: bound on the objective of all designs in a box, from the best corner of the box."""

    def __init__(self, batches: Batches, name: str) -> None:
        self.name, self._batches, self.ahead = name, batches, _AHEAD if name == SOLVE else 0

    def prepare(self, regions: Sequence[Box], cutoff: float) -> None:
        """Solve the corners of boxes of the first batch in several processes.

        Bounds of the first batch may close the boxes of the others.
        """
        batch = regions[0].batch
        self._batches.of[batch].solve_ahead([box for box in regions if box.batch == batch], cutoff)

    def answers(self, regions: Sequence[Box], cutoff: float, clock: Clock) -> list[float]:
        """Lower bounds on the objective in each box; infinite if this batch has no plan there and another may.

        Parameters
        ----------
        regions, cutoff, clock
            As for :meth:`dfopt.bnb.entries.Relaxation.answers`.
        """
        return [self._answer(box, cutoff) for box in regions]

    def _answer(self, box: Box, cutoff: float) -> float:
        try:
            return self._batches.of[box.batch].bound(self.name, box, cutoff)
        except PlanError as error:
            if len(self._batches.workloads) == 1:
                raise
            self._batches.refused.setdefault(box.batch, error)
            return math.inf


def explore_boxes(
    batches: Batches,
    gap: float,
    time_limit: float,
    *,
    top: int = 1,
    kept: Sequence[Candidate] = (),
    progress: DesignProgress | None = None,
) -> Outcome[Box, DesignChoice]:
    """Branch and bound over the boxes of a design space; see :func:`branch_and_bound`.

    Parameters
    ----------
    batches : Batches
        The designs with each batch.
    gap : float
        Relative gap at which to stop.
    time_limit : float
        Seconds.
    top : int
        Number of best designs to keep.
    kept : sequence of Candidate
        Designs that are known already.
    progress : callable, optional
        Called after every bound.
    """
    clock = Clock(time.perf_counter() + time_limit)
    return branch_and_bound(
        batches.problem, SearchParameters(gap=gap, top=top), clock=clock, kept=kept, progress=progress
    )


def best_of(workload: ExplorationProblem, gap: float) -> Outcome[Box, DesignChoice]:
    """The best design of a workload within a larger question, in the time that is left.

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C.
    """
    outcome = explore_boxes(Batches((workload,)), gap, workload.run.left)
    if outcome.ending == "interrupted":
        raise KeyboardInterrupt
    return outcome
