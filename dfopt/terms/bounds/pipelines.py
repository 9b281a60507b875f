"""How the stages of many plans follow one another: figures of pipelines as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.documents.plan import Plan
from dfopt.physics.fill import Line, line_of
from dfopt.physics.pipeline import fill_factor
from dfopt.setting.instance import Setting
from dfopt.setting.stages import stage_places

__all__ = ["Pipelines"]


@dataclass(frozen=True, eq=False)
class Pipelines:
    """The pipelines of some plans. Arrays have one number for each plan (axis i), in their order.

    Attributes
    ----------
    setting : Setting
        Graph, system and resolved assumptions (no ``auto`` left), as a chip under each of the plans sees them.
    plans : tuple of Plan
        At least one.
    """

    setting: Setting
    plans: tuple[Plan, ...]

    @cached_property
    def hides_hops_i(self) -> Bools:
        """Whether the stages of each plan work while they send to their neighbours: bool array."""
        return np.array([self.setting.assumptions.hides_hops_in(one.interleave) for one in self.plans])

    @cached_property
    def rounds_i(self) -> Floats:
        """Rounds of a step: how often each stage takes as many microbatches as it takes at once. Float array."""
        return np.array([one.rounds for one in self.plans], dtype=float)

    @cached_property
    def fill_i(self) -> Floats:
        """Rounds that fill and drain each pipeline, by the closed form of ``bubble``: float array."""
        return np.array([fill_factor(one, self.setting.assumptions.bubble) for one in self.plans])

    @cached_property
    def interleave_i(self) -> Floats:
        """Chunks of layers in each stage: float array."""
        return np.array([one.interleave for one in self.plans], dtype=float)

    @cached_property
    def stages_i(self) -> Floats:
        """Stages of each pipeline: float array."""
        return np.array([one.stages for one in self.plans], dtype=float)

    @cached_property
    def microbatches_i(self) -> Floats:
        """Microbatches of a step of each pipeline: float array."""
        return np.array([one.microbatches for one in self.plans], dtype=float)

    @cached_property
    def at_once_i(self) -> Floats:
        """Microbatches that a stage takes together: float array."""
        return np.array([one.at_once for one in self.plans], dtype=float)

    @cached_property
    def lines(self) -> tuple[Line, ...] | None:
        """How stages lie in the pipeline of each plan, if each is charged; of graphs not folded the heaviest alone."""
        graph, found = self.setting.graph, list[Line]()
        for plan in self.plans:
            places = stage_places(self.setting.model, plan) if graph.folded else (0,)
            line = line_of(plan, self.setting.assumptions, graph.trains, places)
            if line is None:
                return None
            found.append(line)
        return tuple(found)

    @cached_property
    def runs_iq(self) -> tuple[Ints, Ints]:
        """Runs of each line, below one another: which stage of the plan, and how many; 0 = none. Two int arrays."""
        runs = [line.runs for line in self.lines or ()]
        row_iq, count_iq = np.zeros((2, len(runs), max(map(len, runs), default=0)), dtype=np.int64)
        for i, mine in enumerate(runs):
            row_iq[i, : len(mine)], count_iq[i, : len(mine)] = zip(*mine, strict=True)
        return row_iq, count_iq
