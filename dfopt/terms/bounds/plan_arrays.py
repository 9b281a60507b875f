"""Many plans of one graph as arrays: their pipeline stages, and how often these run each kind of layer.

Suffixes: i plan; g group of plans that differ only in how stages hold layers (chunks, layers, which are recomputed); s
group of those that give a chip the same work; r distinct pipeline stage, of all plans in a row; k kind of layer or
kernel, v vector of options.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.plan import Plan
from dfopt.physics.fill import Line, line_of
from dfopt.physics.pipeline import fill_factor
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.reads import ByReads
from dfopt.setting.stages import PipelineStage, stage_places

__all__ = ["PlanArrays", "bounded_stages", "drawn_stages"]

Answer = TypeVar("Answer")


def drawn_stages(instance: Instance) -> int:
    """Number of pipeline stages over which the kernels of the graph are spread; 1 for a folded graph.

    A *folded* graph has one layer of each kind, whatever pipeline stages run it. Of any other graph, a sum over all
    kernels divided by this number is the average of the stages: the heaviest has that or more.
    """
    return 1 if instance.graph.folded else instance.plan.stages


def bounded_stages(instance: Instance) -> tuple[PipelineStage, ...]:
    """Pipeline stages of a plan for which bounds are worked out, each standing for all stages that are alike.

    For a folded graph these are all distinct stages, in the order of the pipeline. For any other graph it is open which
    kernels a stage runs, so the first stage alone is returned and stands for all. A bound takes it to have the average
    of the kernels (:func:`drawn_stages`). The heaviest stage has that or more, so the bound holds for it too.
    """
    return instance.pipeline if instance.graph.folded else instance.pipeline[:1]


class PlanArrays:
    """Many plans as arrays. Under some of them chips may see other parts of one model: those of a second axis.

    Attributes
    ----------
    under_i, plans : tuple of Instance, tuple of Plan
        The plans (axis i, at least one), each in its setting.
    setting : Setting
        System, assumptions and kinds of layers, which all have in common, and the graph under the first plan.
    instances, group_i : list of Instance, int array, shape (plans,)
        One instance for each group g, and the group of each plan. Plans of a group differ in layers of stages only.
    shared_g : int array, shape (groups g,)
        Number s of the :attr:`~dfopt.setting.instance.Instance.shared` of each instance.
    stages, plan_r, first_i : list of PipelineStage, int array, shape (stages,), int array, shape (plans,)
        Distinct stages of all plans in a row (axis r), the plan of each, and the place of each plan's first stage.
    runs_rk : float array, shape (stages, kinds)
        How many layers of each kind a stage runs for one microbatch.
    """

    def __init__(self, instances: Iterable[Instance]) -> None:
        self.under_i = tuple(instances)
        self.setting, self.plans = self.under_i[0].setting, tuple(one.plan for one in self.under_i)
        groups, group_i = dict[Any, int](), list[int]()
        self.instances: list[Instance] = []
        for one in self.under_i:
            key = one.setting, one.plan.apart_from_stages
            if key not in groups:
                groups[key] = len(self.instances)
                self.instances.append(one)
            group_i.append(groups[key])
        self.group_i = np.array(group_i, dtype=np.int64)
        shared = dict[Instance, int]()
        numbers = [shared.setdefault(one.shared, len(shared)) for one in self.instances]
        self.shared_g = np.array(numbers, dtype=np.int64)
        question = ByReads()  # whatever part of the model chips see
        held = [question.answer(plan, self._held_by) for plan in self.plans]
        counts = [len(runs_rk) for _, runs_rk in held]
        self.stages: list[PipelineStage] = [stage for stages, _ in held for stage in stages]
        self.runs_rk: Floats = np.concatenate([runs_rk for _, runs_rk in held])
        self.first_i: Ints = np.cumsum([0, *counts])[:-1]
        self.plan_r: Ints = np.repeat(np.arange(len(counts)), counts)

    def _held_by(self, plan: Plan) -> tuple[tuple[PipelineStage, ...], Floats]:
        """The distinct pipeline stages of a plan, and how often each runs each kind of layer."""
        stages = bounded_stages(Instance(self.setting, plan))
        runs_rk = np.zeros((len(stages), len(self.setting.graph.kernels_by_kind)))
        for row, stage in enumerate(stages):
            for kind, times in stage.runs:
                runs_rk[row, kind] += times
        return stages, runs_rk

    @property
    def assumptions(self) -> Assumptions:
        """Those of the setting."""
        return self.setting.assumptions

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """Every part of the model that chips see, in its setting."""
        return tuple(dict.fromkeys(one.setting for one in self.instances))

    @property
    def kind_k(self) -> Ints:
        """Kind of layer of every kernel: int array, shape (kernels of the graph,)."""
        return self.setting.kind_k

    @cached_property
    def group_r(self) -> Ints:
        """Group of the plan of every stage: int array, shape (stages,)."""
        return self.group_i[self.plan_r]

    def of_plans(self, work: Callable[[Instance], Answer]) -> list[Answer]:
        """What ``work`` says of every plan; asked once for all that agree in setting and in what it reads of a plan."""
        return _answers(self.under_i, work)

    def of_groups(self, work: Callable[[Instance], Answer]) -> list[Answer]:
        """The same of every group of plans."""
        return _answers(self.instances, work)

    def of_stages(self, work: Callable[[Instance, PipelineStage], Answer]) -> list[Answer]:
        """The same of every stage."""

        def of_plan(instance: Instance) -> list[Answer]:
            return [work(instance, stage) for stage in bounded_stages(instance)]

        return list(chain.from_iterable(self.of_plans(of_plan)))

    @cached_property
    def share_r(self) -> Floats:
        """Share of the kernels of the graph that a stage has on average: 1 but for kernels drawn once, (stages,)."""
        drawn_i = np.array([drawn_stages(one) for one in self.under_i])
        return np.asarray(1.0 / drawn_i[self.plan_r])

    @cached_property
    def average_rk(self) -> Floats:
        """How many layers of each kind a stage runs: of kernels drawn once its average share, shape (stages, kinds)."""
        return self.runs_rk * self.share_r[:, None]

    def slowest(self, each_rv: Floats) -> Floats:
        """The largest figure of the stages of every plan: shape (plans, vectors), or (plans,) of one vector."""
        return np.maximum.reduceat(each_rv, self.first_i, axis=0)

    # -- how the stages of each plan follow one another ----------------------------------------------------------------

    @cached_property
    def hides_hops_i(self) -> Bools:
        """Whether the stages of each plan work while they send to their neighbours: bool array."""
        return np.array([self.assumptions.hides_hops_in(one.interleave) for one in self.plans])

    @cached_property
    def rounds_i(self) -> Floats:
        """Rounds of a step: how often each stage takes as many microbatches as it takes at once. Float array."""
        return np.array([one.rounds for one in self.plans], dtype=float)

    @cached_property
    def fill_i(self) -> Floats:
        """Rounds that fill and drain each pipeline, by the closed form of ``bubble``: float array."""
        return np.array([fill_factor(one, self.assumptions.bubble) for one in self.plans])

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
            line = line_of(plan, self.assumptions, graph.trains, places)
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


def _answers(instances: Iterable[Instance], work: Callable[[Instance], Answer]) -> list[Answer]:
    questions = defaultdict[Setting, ByReads](ByReads)

    def of(plan: Plan, setting: Setting) -> Answer:
        return work(Instance(setting, plan))

    return [questions[one.setting].answer(one.plan, partial(of, setting=one.setting)) for one in instances]
