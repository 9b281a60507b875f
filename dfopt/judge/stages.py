"""From seconds of layers to those of a step: its pipeline stages, and what it waits for beside their kernels.

The rule stands here once, for mappings that are judged and for what no mapping of a plan undercuts
(:mod:`dfopt.judge.steps`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dfopt.judge.case import Case, Rank
from dfopt.judge.network import ExchangeSeconds, reduction_s
from dfopt.judge.turns import in_order
from dfopt.physics import copies, fill, overlap, pipeline
from dfopt.physics.pipeline import StepTime

PartitionSeconds = Mapping[tuple[int, bool], Sequence[float]]
"""Seconds of partitions for one microbatch, by stage of the mapping and whether they begin in the forward pass."""


@dataclass(frozen=True)
class Extra:
    """Seconds of a step in addition to the work of partitions.

    Attributes
    ----------
    hops : s, by pipeline stage
        Messages to neighbours for one microbatch.
    exchanges, updates : s, by stage of the mapping
        Seconds in which replicas exchange gradients and weights, and those of the optimizer's step.
    per_step_s : s
        Messages that are charged once.
    offload : s, by pipeline stage
        Seconds that the forward and the backward pass of a microbatch wait for slower memories. None: 0.
    turns : s, by pipeline stage
        Two microbatches in two-batch overlap. None: the plan does not use it.
    window_s : s
        Exposed seconds of exchanges that overlap with the backward pass, by Calculon's rule. None: the rule is not
        used.
    """

    hops: Mapping[int, float]
    exchanges: Mapping[int, ExchangeSeconds]
    updates: Mapping[int, float]
    per_step_s: float = 0.0
    offload: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    turns: Mapping[int, float] = field(default_factory=dict)
    window_s: float | None = None

    def updates_s(self, rank: Rank) -> float:
        """Seconds of the optimizer step for all layers of a pipeline stage."""
        return math.fsum(times * self.updates[stage] for stage, times in rank.runs.items())


@dataclass(frozen=True)
class StageTime:
    """Seconds of a pipeline stage for one microbatch, or for two in two-batch overlap.

    Attributes
    ----------
    rank : Rank
        The stage.
    layers : int
        Number of its layers.
    layer_s : float, s
        Average of a layer.
    once_s : float, s
        Kernels that run once in addition to layers.
    offload : (float, float), s
        Waiting for slower memories in the forward and the backward pass.
    time_s : float, s
        Total seconds of the stage.
    """

    rank: Rank
    layers: int
    layer_s: float
    once_s: float
    offload: tuple[float, float]
    time_s: float

    @property
    def work_s(self) -> float:
        """Seconds of the kernels of the stage."""
        return self.layers * self.layer_s + self.once_s


@dataclass(frozen=True)
class StepSeconds:
    """Seconds of a step and of each of its pipeline stages.

    Attributes
    ----------
    time : StepTime
        The step by its parts.
    stages, slowest : tuple of StageTime, StageTime
        Distinct pipeline stages, and the one with the longest time.
    links, updates : dict, s
        Gradient exchange and optimizer step of each pipeline stage, by number of its rank.
    exposed_s : float, s, optional
        Exposed part of the exchanges; None where nothing is hidden.
    """

    time: StepTime
    stages: tuple[StageTime, ...]
    slowest: StageTime
    links: Mapping[int, float]
    updates: Mapping[int, float]
    exposed_s: float | None


def step(case: Case, passes: PartitionSeconds, extra: Extra) -> StepSeconds:
    """The step from seconds of partitions and of everything in addition to them.

    Without slower memories, turns and windows it is non-decreasing in every figure but for the least rounding.

    Parameters
    ----------
    case : Case
        The mapping.
    passes : PartitionSeconds
        Seconds of partitions, by pass.
    extra : Extra
        Seconds outside of the partitions.
    """
    stages = tuple(_stage(case, rank, passes, extra) for rank in case.ranks)
    # Stages that wait for the same hop are equally slow; the one with more to do says what binds.
    slowest = max(stages, key=lambda stage: (stage.time_s, stage.work_s))
    links = {rank.number: reduction_s(rank, extra.exchanges) for rank in case.ranks}
    updates = {rank.number: extra.updates_s(rank) for rank in case.ranks}
    exposed = _exposed_s(case, stages, passes, extra)
    if extra.window_s is not None:
        exposed = extra.window_s + max(updates.values())
    # what the step waits for at its end: of it the optimizer's step has what it takes in the slowest stage
    behind = max(links[number] + updates[number] for number in links) if exposed is None else exposed
    last = min(behind, updates[slowest.rank.number])
    time = pipeline.step_time(
        case.plan,
        case.assume,
        slowest.time_s,
        through_s=through_s(case, [stage.time_s for stage in stages]),
        point_to_point_per_step_s=extra.per_step_s,
        gradient_reduction_s=behind - last,
        optimizer_s=last,
        overhead_s=case.assume.step_overhead or 0.0,
    )
    return StepSeconds(time, stages, slowest, links, updates, exposed)


def tells_passes_apart(case: Case) -> bool:
    """Whether the step depends on forward and backward seconds separately, because gradients hide behind the latter."""
    return overlap.hides(case.assume, case.graph) and case.assume.gradients == "exact"


def through_s(case: Case, seconds: Sequence[float]) -> float | None:
    """Seconds until all microbatches have passed stages of the given seconds; None if the slowest stands for all."""
    if case.assume.bubble != "stages":
        return None
    turns = case.trains and case.assume.schedule == "one_f_one_b"
    places, often = case.line, (case.plan.rounds, case.plan.interleave)
    return float(fill.chains([seconds[place] for place in places], [1] * len(places), *often, turns=turns).max())


def _stage(case: Case, rank: Rank, passes: PartitionSeconds, extra: Extra) -> StageTime:
    counted = case.graph.layers.counted if case.graph.folded else case.plan.stages
    layer_s = {
        stage: math.fsum((*passes.get((stage, True), ()), *passes.get((stage, False), ()), case.pauses.get(stage, 0.0)))
        for stage in rank.runs
    }
    times_of_kinds = {stage: times for stage, times in rank.runs.items() if stage < counted}
    layers = sum(times_of_kinds.values())
    layer = layer_s[next(iter(times_of_kinds))] if times_of_kinds else 0.0
    if len(times_of_kinds) > 1:  # of several kinds their mean
        layer = math.fsum(times * layer_s[stage] for stage, times in times_of_kinds.items()) / layers
    once = math.fsum(times * layer_s[stage] for stage, times in rank.runs.items() if stage >= counted)
    shown = extra.offload.get(rank.number, (0.0, 0.0))
    total_s = extra.turns.get(rank.number, math.fsum((layers * layer + once, *shown)))
    if case.plan.stages > 1:
        sent = case.plan.at_once * extra.hops[rank.number]
        total_s = pipeline.with_point_to_point(total_s, sent, case.hides_hops)
    return StageTime(rank, layers, layer, once, shown, total_s)


def _exposed_s(case: Case, stages: Sequence[StageTime], passes: PartitionSeconds, extra: Extra) -> float | None:
    """Seconds that a step takes beyond the work of its slowest stage; none where nothing is hidden.

    Gradients are added up behind the backward pass, layer by layer: what the step still waits for.
    """
    if not tells_passes_apart(case):
        return None
    slowest, often = max(each.time_s for each in stages), copies.reductions(case.plan)
    behind_forward = overlap.hides_weights(case.assume, case.graph, case.plan)
    exposed = 0.0
    for stage in stages:
        order = list(in_order(case, stage.rank))
        ahead, back = ({kind: math.fsum(passes.get((kind, way), ())) for kind in order} for way in (True, False))
        weights = {kind: extra.exchanges[kind].weights_s for kind in order}
        brought = {kind: extra.updates[kind] + (0.0 if behind_forward else weights[kind]) for kind in order}
        added = {kind: extra.exchanges[kind].gradients_s / often for kind in order}
        passed = finished = 0.0
        for kind in reversed(order):
            passed += back[kind]
            finished = max(finished, passed) + added[kind]
        waits = first = 0.0
        if behind_forward and order:  # layers wait for their weights, one after another
            there = computed = 0.0
            for kind in order:
                there += weights[kind]
                computed = max(computed, there) + ahead[kind]
            waits = computed - math.fsum(ahead[kind] for kind in order)
            first = weights[order[0]]
        work = stage.work_s + sum(stage.offload)
        sent = 0.0 if case.hides_hops else stage.time_s - work
        last = added[order[0]] + first if order else 0.0
        ends = max(waits + work + sent - passed + finished, stage.time_s + last)
        exposed = max(exposed, math.fsum(brought[kind] for kind in order) + often * (ends - slowest))
    return exposed
