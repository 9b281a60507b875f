"""The batch as one more size to choose: the problems of several batches as one problem of boxes.

A box is of one batch, whose problem bounds and splits it. So metrics must weigh steps of one batch against those of
another: rates, where more is better. A step of a smaller batch takes less time, joules and money in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, NamedTuple

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.design import Design
from dfopt.documents.exploration_request import ExplorationRequest
from dfopt.documents.graph import Graph
from dfopt.errors import PlanError
from dfopt.exploring.problems import workload_of
from dfopt.exploring.solves import Run
from dfopt.exploring.space import Box, Choice, Sizes
from dfopt.exploring.workload import Workload
from dfopt.physics.merits import MERITS

__all__ = ["BATCH", "BatchBox", "BatchChoice", "Batches", "batches_of"]

BATCH: Final = "batch"
"""The name of the batch among the sizes of a design."""


class BatchBox(NamedTuple):
    """A box of designs that run one of several batches, by its place."""

    place: int
    box: Box


class BatchChoice(NamedTuple):
    """A design that runs one of several batches, by its place; the same design with the same batch is the same."""

    place: int
    choice: Choice


@dataclass
class Batches:
    """Designs that run one of several batches, or one batch.

    Attributes
    ----------
    of
        The problem of each batch, the smallest first.
    refused
        Why a batch has no plan, by its place; of a single batch that is raised.
    """

    of: tuple[Workload, ...]
    refused: dict[int, PlanError] = field(default_factory=dict)

    def sizes(self, at: BatchBox, positions: Sizes) -> dict[str, float]:
        """The batch, where there are several, and the sizes of components."""
        workload = self.of[at.place]
        named = workload.spaces[at.box.which].named(positions)
        return {BATCH: float(self.batches[at.place]), **named} if len(self.of) > 1 else named

    @property
    def batches(self) -> list[int]:
        """Every batch, by its place."""
        return [workload.graph.batch for workload in self.of]

    def named(self, of: BatchChoice) -> dict[str, float]:
        """The sizes of a design, and its batch."""
        return self.sizes(BatchBox(of.place, of.choice.box), of.choice.box.low)

    @property
    def counts(self) -> dict[str, int]:
        """How many batches there are, where there are several."""
        return {BATCH: len(self.of)} if len(self.of) > 1 else {}

    @property
    def run(self) -> Run:
        """Where and until when solves of any batch run."""
        return self.of[0].run

    @run.setter
    def run(self, run: Run) -> None:
        for workload in self.of:
            workload.run = workload.solver.run = run


def batches_of(
    graphs: Sequence[Graph],
    designs: Sequence[Design],
    assumptions: Assumptions | str = "default",
    request: ExplorationRequest | None = None,
) -> Batches:
    """The problem of an exploration of graphs of one batch or more, each drawn in several ways.

    Raises
    ------
    SystemSpecError, PlanError
        As `dfopt.exploring.problems.workload_of`; `PlanError` too where the objective does not weigh batches.
    """
    of = request or ExplorationRequest()
    by_batch = [[*drawn] for _, drawn in groupby(sorted(graphs, key=_batch), key=_batch)]
    if len(by_batch) > 1 and MERITS[of.objective].sense == "minimize":
        rates = ", ".join(name for name, merit in MERITS.items() if merit.sense == "maximize")
        less = "a step of the smallest batch has the least"
        raise PlanError(f"objective: found {of.objective} beside several batches, expected one of {rates}: {less}")
    made = Batches(tuple(workload_of(drawn, designs, assumptions, of) for drawn in by_batch))
    made.run = Run()
    return made


def _batch(graph: Graph) -> int:
    return graph.batch
