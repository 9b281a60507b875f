"""Designs as a problem of branch and bound: a region is a box of designs that run one batch.

Bounds, designs to try and halves of a box are those of the workload of the batch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from dfopt.bnb import (
    BRANCHING,
    Bound,
    BranchingRule,
    Candidate,
    Clock,
    Heuristic,
    LeafAnswer,
    LeafSolver,
    Node,
    Outcome,
    Parameters,
    Problem,
    Progress,
    Relaxation,
    View,
    branch_and_bound,
)
from dfopt.errors import PlanError
from dfopt.exploring.batches import BatchBox, BatchChoice, Batches
from dfopt.exploring.workload import SOLVE, Workload

__all__ = ["best_of", "explore_boxes", "problem_of"]

_AHEAD: Final = 4
"""Boxes whose corners are solved at once: few, as what the first ones show may close the others."""


class DesignBound(Relaxation[BatchBox, float]):
    """A bound on the objective of every design in a box, from the best corner of the box."""

    def __init__(self, batches: Batches, name: str) -> None:
        self.name, self._batches, self.ahead = name, batches, _AHEAD if name == SOLVE else 0

    def prepare(self, regions: Sequence[BatchBox], cutoff: float) -> None:
        """Solve the corners of some boxes in several processes, those of the first batch.

        What the first batch shows may close the boxes of the others.
        """
        place = regions[0].place
        self._batches.of[place].solve_ahead([at.box for at in regions if at.place == place], cutoff)

    def answers(self, regions: Sequence[BatchBox], cutoff: float, clock: Clock) -> list[float]:
        """The bounds of some boxes; infinite where a batch has no plan and another one may have."""
        return [self._answer(at, cutoff) for at in regions]

    def _answer(self, at: BatchBox, cutoff: float) -> float:
        try:
            return self._batches.of[at.place].bounds[self.name](at.box, cutoff)
        except PlanError as error:
            if len(self._batches.of) == 1:
                raise
            self._batches.refused.setdefault(at.place, error)
            return math.inf


class KnownMappings(Heuristic[BatchBox, BatchChoice]):
    """Designs of a box on which a mapping that is known of its corner is better than the best design."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches

    def due(self, node: Node[BatchBox], after: str) -> bool:
        """After a solve that gave a mapping, and before a box of several designs is divided."""
        at = node.region
        if after == SOLVE:
            return self._batches.of[at.place].has_mapping(at.box)
        return after == BRANCHING and not at.box.single

    def propose(self, node: Node[BatchBox], view: View) -> Iterator[Candidate]:
        """One design, if there is such."""
        return _candidates(self._batches, node.region, view.last)


class OneDesign(LeafSolver[BatchBox, BatchChoice]):
    """Maps the only design of a box."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches

    def accepts(self, region: BatchBox, bound: Bound) -> bool:
        """Whether the box has one design."""
        return region.box.single

    def solve(self, region: BatchBox, bound: Bound, view: View, clock: Clock) -> LeafAnswer:
        """The design with its mapping. No other mapping of it is below the bound of the box."""
        return LeafAnswer([*_candidates(self._batches, region, view.last)], bound=bound.value)


class Halves(BranchingRule[BatchBox]):
    """Divides a box of designs in two."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches

    def children(self, region: BatchBox, bound: Bound, view: View) -> list[tuple[BatchBox, float]]:
        """The halves on which the best mapping of the box loses most."""
        parts = self._batches.of[region.place].split(region.box)
        return [(BatchBox(region.place, part), bound.value) for part in parts]


def _candidates(batches: Batches, at: BatchBox, best: float) -> Iterator[Candidate]:
    for value, choice in batches.of[at.place].candidates(at.box, best):
        yield Candidate(value, BatchChoice(at.place, choice))


def problem_of(batches: Batches) -> Problem[BatchBox, BatchChoice]:
    """All designs with each batch, as a problem of branch and bound."""
    return Problem(
        roots=[BatchBox(place, box) for place, workload in enumerate(batches.of) for box in workload.roots],
        relaxations=[DesignBound(batches, name) for name in batches.of[0].bounds],
        branching=[Halves(batches)],
        heuristics=[KnownMappings(batches)],
        leaves=[OneDesign(batches)],
    )


def explore_boxes(
    batches: Batches,
    gap: float,
    time_limit: float,
    *,
    top: int = 1,
    kept: Sequence[Candidate] = (),
    progress: Callable[[Progress[BatchChoice]], None] | None = None,
) -> Outcome[BatchBox, BatchChoice]:
    """The best designs, within a relative gap, as far as a number of seconds goes; see :func:`branch_and_bound`."""
    clock = Clock(time.perf_counter() + time_limit)
    return branch_and_bound(
        problem_of(batches), Parameters(gap=gap, top=top), clock=clock, kept=kept, progress=progress
    )


def best_of(workload: Workload, gap: float, time_limit: float) -> Outcome[BatchBox, BatchChoice]:
    """The best design of a workload inside of a larger question, which an interrupt ends.

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C.
    """
    found = explore_boxes(Batches((workload,)), gap, time_limit)
    if found.ending == "interrupted":
        raise KeyboardInterrupt
    return found
