"""Many plans of one graph as arrays: their pipeline stages, and how often these run each kind of layer.

Suffixes: i plan; g group of plans that differ only in how stages hold layers (chunks, layers, which are recomputed); s
group of those that give a chip the same work; r distinct pipeline stage, of all plans in a row; k kind of layer or
kernel, v vector of options.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.plan import Plan
from dfopt.physics.fill import Line, line_of
from dfopt.physics.pipeline import fill_factor
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.reads import ByReads, ReturnT
from dfopt.setting.stages import PipelineStage, stage_places


def drawn_stages(instance: Instance) -> int:
    """Number of pipeline stages over which the kernels of the graph are spread; 1 for a folded graph.

    A *folded* graph has one layer of each kind, whatever pipeline stages run it. Of any other graph, a sum over all
    kernels divided by this number is the average of the stages: the heaviest has that or more.
    """
    return 1 if instance.graph.folded else instance.plan.stages


def bounded_stages(instance: Instance) -> tuple[PipelineStage, ...]:
    """Distinct pipeline stages of a plan for which bounds are computed.

    For a folded graph these are all distinct stages, in the order of the pipeline. For any other graph it is open which
    kernels a stage runs, so the first stage alone is returned and stands for all. A bound takes it to have the average
    of the kernels (:func:`drawn_stages`). The heaviest stage has that or more, so the bound holds for it too.
    """
    return instance.pipeline if instance.graph.folded else instance.pipeline[:1]


class PlanArrays:
    """Many plans of one graph as arrays, with their pipeline stages.

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
    plan_r, first_i : int array, shape (stages,), int array, shape (plans,)
        Of the distinct stages of all plans in a row (axis r) the plan of each, and the place of each plan's first one.
    run, row_r : list of (Instance, PipelineStage), int array, shape (stages,)
        The stages of all ways to take layers and microbatches, each with that way alone, and which of them each one is.
    """

    def __init__(self, instances: Iterable[Instance]) -> None:
        self.under_i = tuple(instances)
        self.setting, self.plans = self.under_i[0].setting, tuple(instance.plan for instance in self.under_i)
        groups, group_i = dict[Any, int](), list[int]()
        self.instances: list[Instance] = []
        for instance in self.under_i:
            key = instance.setting, instance.plan.apart_from_stages
            if key not in groups:
                groups[key] = len(self.instances)
                self.instances.append(instance)
            group_i.append(groups[key])
        self.group_i = np.array(group_i, dtype=np.int64)
        shared = dict[Instance, int]()
        numbers = [shared.setdefault(instance.shared, len(shared)) for instance in self.instances]
        self.shared_g = np.array(numbers, dtype=np.int64)
        numbers_p = dict[Plan, int]()
        pipeline_i = [numbers_p.setdefault(plan.pipeline, len(numbers_p)) for plan in self.plans]
        self._pipeline_i: Ints = np.array(pipeline_i, dtype=np.int64)
        self._pipelines = [Instance(self.setting, plan) for plan in numbers_p]
        runs_p = [[(pipeline, stage) for stage in bounded_stages(pipeline)] for pipeline in self._pipelines]
        self.run = [run for runs in runs_p for run in runs]
        rows_p = np.split(np.arange(len(self.run)), np.cumsum([len(runs) for runs in runs_p])[:-1])
        rows_i = [rows_p[number] for number in pipeline_i]
        counts = [len(rows) for rows in rows_i]
        self.row_r: Ints = np.concatenate(rows_i)
        self.first_i: Ints = np.cumsum([0, *counts])[:-1]
        self.plan_r: Ints = np.repeat(np.arange(len(counts)), counts)

    @cached_property
    def runs_rk(self) -> Floats:
        """Number of layers of each kind that a stage runs for one microbatch: float array, shape (stages, kinds)."""

        def runs(_: Instance, stage: PipelineStage) -> Floats:
            runs_k = np.zeros(len(self.setting.graph.kernels_by_kind))
            for kind, times in stage.runs:
                runs_k[kind] += times
            return runs_k

        return self.of_stages(runs)

    @property
    def assumptions(self) -> Assumptions:
        """Resolved assumptions of the setting."""
        return self.setting.assumptions

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """Settings of all parts of the model that chips see."""
        return tuple(dict.fromkeys(instance.setting for instance in self.instances))

    @property
    def kind_k(self) -> Ints:
        """Kind of layer of every kernel: int array, shape (kernels of the graph,)."""
        return self.setting.kind_k

    @cached_property
    def group_r(self) -> Ints:
        """Group of the plan of every stage: int array, shape (stages,)."""
        return self.group_i[self.plan_r]

    def of_plans(self, work: Callable[[Instance], ReturnT]) -> list[ReturnT]:
        """Value of ``work`` for every plan, computed once for plans that agree in all that it reads."""
        return _answers(self.under_i, work)

    def of_groups(self, work: Callable[[Instance], ReturnT]) -> list[ReturnT]:
        """Value of ``work`` for every group of plans, computed once for groups that agree in all that it reads."""
        return _answers(self.instances, work)

    def of_pipelines(self, work: Callable[[Instance], float]) -> Floats:
        """Value of ``work`` for every plan, from its pipeline alone: how stages take layers and microbatches."""
        return np.array([work(pipeline) for pipeline in self._pipelines], dtype=float)[self._pipeline_i]

    def of_stages(self, work: Callable[[Instance, PipelineStage], float | Sequence[float] | Floats]) -> Floats:
        """Value, or values, of ``work`` for every stage, from its pipeline alone: float array, shape (stages, ...)."""
        return np.array([work(pipeline, stage) for pipeline, stage in self.run], dtype=float)[self.row_r]

    @cached_property
    def share_r(self) -> Floats:
        """Average share of the kernels in a stage: 1 for a folded graph; float array, shape (stages,)."""
        return np.asarray(1.0 / self.of_pipelines(drawn_stages)[self.plan_r])

    @cached_property
    def average_rk(self) -> Floats:
        """Number of layers of each kind in a stage, an average for an unrolled graph: shape (stages, kinds)."""
        return self.runs_rk * self.share_r[:, None]

    def slowest(self, each_rv: Floats) -> Floats:
        """Largest figure over the stages of each plan: shape (plans, vectors), or (plans,) for one vector."""
        return np.maximum.reduceat(each_rv, self.first_i, axis=0)

    # -- how the stages of each plan follow one another ----------------------------------------------------------------

    @cached_property
    def hides_hops_i(self) -> Bools:
        """Whether stages compute while they send to their neighbours: bool array, shape (plans,)."""
        return self.of_pipelines(lambda instance: self.assumptions.hides_hops_in(instance.plan.interleave)) > 0

    @cached_property
    def rounds_i(self) -> Floats:
        """Rounds of a step, each of :attr:`at_once_i` microbatches in a stage: float array, shape (plans,)."""
        return self.of_pipelines(lambda instance: instance.plan.rounds)

    @cached_property
    def fill_i(self) -> Floats:
        """Rounds that fill and drain the pipeline, by the formula of ``bubble``: float array, shape (plans,)."""
        return self.of_pipelines(lambda instance: fill_factor(instance.plan, self.assumptions.bubble))

    @cached_property
    def interleave_i(self) -> Floats:
        """Chunks of layers in each stage: float array, shape (plans,)."""
        return self.of_pipelines(lambda instance: instance.plan.interleave)

    @cached_property
    def stages_i(self) -> Floats:
        """Pipeline stages of each plan: float array, shape (plans,)."""
        return self.of_pipelines(lambda instance: instance.plan.stages)

    @cached_property
    def microbatches_i(self) -> Floats:
        """Microbatches of a step in each pipeline: float array, shape (plans,)."""
        return self.of_pipelines(lambda instance: instance.plan.microbatches)

    @cached_property
    def at_once_i(self) -> Floats:
        """Microbatches that a stage takes together: float array, shape (plans,)."""
        return self.of_pipelines(lambda instance: instance.plan.at_once)

    @cached_property
    def lines(self) -> tuple[Line, ...] | None:
        """Order of the stages in each plan's pipeline, if each stage's own time counts; else None."""
        graph, lines = self.setting.graph, list[Line]()
        for pipeline in self._pipelines:
            places = stage_places(self.setting.model, pipeline.plan) if graph.folded else (0,)
            line = line_of(pipeline.plan, self.assumptions, graph.trains, places)
            if line is None:
                return None
            lines.append(line)
        return tuple(lines[number] for number in self._pipeline_i.tolist())

    @cached_property
    def runs_iq(self) -> tuple[Ints, Ints]:
        """Runs of equal stages in each line as two int arrays: stage of the plan, and number in a row (0: none)."""
        runs = [line.runs for line in self.lines or ()]
        row_iq, count_iq = np.zeros((2, len(runs), max(map(len, runs), default=0)), dtype=np.int64)
        for i, line_runs in enumerate(runs):
            row_iq[i, : len(line_runs)], count_iq[i, : len(line_runs)] = zip(*line_runs, strict=True)
        return row_iq, count_iq


def _answers(instances: Iterable[Instance], work: Callable[[Instance], ReturnT]) -> list[ReturnT]:
    questions = defaultdict[Setting, ByReads](ByReads)

    def of(plan: Plan, setting: Setting) -> ReturnT:
        return work(Instance(setting, plan))

    under = ((instance.setting, instance.plan) for instance in instances)
    return [questions[setting].answer(plan, partial(of, setting=setting)) for setting, plan in under]
