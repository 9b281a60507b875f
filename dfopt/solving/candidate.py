"""A plan before its fusion: sharding and stages chosen, stages priced, bounds and starts at hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from dfopt.bnb import UNLIMITED, Clock
from dfopt.documents.mapping import Mapping, Sharding
from dfopt.documents.plan_records import SolveRecord
from dfopt.errors import Infeasible, NoSolution, PlanError
from dfopt.fusion import intrachip
from dfopt.fusion.blocks import StageTables, restrict, stage_tables
from dfopt.fusion.downsets import Lattice, down_sets
from dfopt.fusion.partitioning import lower_bound
from dfopt.fusion.priced import PricedPlan, PricedStage
from dfopt.milp import Termination
from dfopt.physics.metrics import METRICS, Constants, Metric
from dfopt.physics.overlap import Reduced
from dfopt.physics.pipeline import with_point_to_point
from dfopt.physics.window import Shown
from dfopt.setting.instance import Instance, Setting
from dfopt.sharding import interchip
from dfopt.solving.fusing import limits_of
from dfopt.solving.options import Options, record_of, reporter
from dfopt.solving.passes import Known, least_memory, least_passes, memory_of, passes_for, passes_of
from dfopt.solving.sharing import ChipWork, Memo, StageWork, given_record, remember_start
from dfopt.solving.work import PREPARED
from dfopt.terms.chip import chip_of
from dfopt.terms.sharded import LayerOptions
from dfopt.terms.sharded_graph import ShardedGraph, least_rows, tile_counts
from dfopt.terms.step.hops import gradient_seconds, hop_seconds, per_step_hops
from dfopt.terms.step.ledger import dram_left, sharded_states
from dfopt.terms.step.offload import Layers, backward_shown_s, layers_of, moves, stage_s
from dfopt.terms.step.overlap import Exchanges, exchange_seconds, reduced_stages

Ints = NDArray[np.int64]
_DOWN_SETS = 20_000  # pairs of them grow with the square: beyond this blocks are generated on demand


@dataclass(frozen=True)
class Stage(PricedStage):
    """A priced stage with a bound and a feasible start."""

    start: Ints | None
    floor: float
    best_known: float
    work: StageWork | None


@dataclass(frozen=True)
class Prepared(PricedPlan):
    """A priced plan with a bound and a feasible start of every stage, and how its sharding was found."""

    stages: tuple[Stage, ...]
    per_step_s: float
    gradients_s: float
    record: SolveRecord
    tile_choice: bool
    only_sharding: bool  # no other sharding, nor another stage for a kernel, is possible under this plan
    interrupted: bool  # by Ctrl-C while the sharding was chosen
    metric: Metric
    exchanges: Exchanges | None = None  # what is exchanged behind the backward pass, if anything is
    forward_s: float = 0.0  # shown elsewhere: what the forward pass of every kind takes at least

    @property
    def tile_count(self) -> int | None:
        """Tiles of the streamed axis, where they are a choice."""
        return self.sharded.tile_count if self.tile_choice else None

    @property
    def sharding_proven(self) -> bool:
        """Whether the sharding is optimal for the inter-chip problem; if not, no bound under it holds for the plan."""
        return self.record.termination in (Termination.OPTIMAL.value, Termination.GAP_REACHED.value)

    def floor(self) -> float:
        """Value that no fusion under this sharding and tile count beats."""
        if not self.sharding_proven:
            return 0.0
        return self.value_of([stage.floor for stage in self.stages])

    def best_known(self) -> float:
        """Value that the starts reach, or stay below; of two microbatches that take turns that is not known."""
        if self.plan.two_batch_overlap:
            return np.inf
        times = [stage.best_known for stage in self.stages]
        if not (self.exchanges or self.moving) or not np.isfinite(times).all():
            return self.value_of(times)
        if self.only_fusion:
            return self.reached(times, np.arange(len(self.sharded.names), dtype=np.int64))
        for number, layer in self.moving.items():  # no more shows than is moved
            times[number] += layer.forward_moving_s + layer.backward_moving_s
        return self.metric.value(self._pipeline_seconds(times, {}), replace(self.constants, reduced=()))

    @cached_property
    def moving(self) -> Layers:
        """What slower memories move beside the passes of layers, all at least."""
        if not moves(self.instance):
            return {}
        states = {number: one.work.states for number, one in enumerate(self.stages) if one.work is not None}
        memory = least_memory(self.stages, self.instance)
        return layers_of(self.instance, states, least_passes(self.stages, self.forward_s), memory)

    @cached_property
    def constants(self) -> Constants:
        """What the metric needs beside the times of the stages."""
        reduced = () if self.exchanges is None else self._reduced(self.exchanges)
        return Constants(self.plan, self.assumptions, self.per_step_s, self.gradients_s, reduced, self.instance.line)

    @property
    def only_fusion(self) -> bool:
        """Whether every kernel has a partition of its own."""
        return not any(stage.tables.chip.fused for stage in self.stages if stage.tables is not None)

    def value_of(self, stage_seconds: Sequence[float]) -> float:
        """The metric from the time of one evaluation of every stage of the mapping, at least: see :meth:`reached`."""
        return self.metric.value(self._pipeline_seconds(stage_seconds), self.constants)

    def reached(self, stage_seconds: Sequence[float], partition_k: Ints) -> float:
        """The same of partitions that are known, which these times are of."""
        if self.exchanges is None and not self.moving:
            return self.value_of(stage_seconds)
        known, layers, reduced = Known(stage_seconds, partition_k), self.moving, self.constants.reduced
        if layers:
            states = {number: one.work.states for number, one in enumerate(self.stages) if one.work is not None}
            memory = memory_of(self.stages, self.instance, partition_k)
            layers = layers_of(self.instance, states, passes_of(self.stages, *known), memory)
        if self.exchanges is not None:
            reduced = self._reduced(self.exchanges, known, layers)
        constants = replace(self.constants, reduced=reduced)
        return self.metric.value(self._pipeline_seconds(stage_seconds, layers), constants)

    def _reduced(
        self, exchanges: Exchanges, known: Known | None = None, layers: Layers | None = None
    ) -> tuple[Reduced, ...] | tuple[Shown, ...]:
        """What pipeline stages exchange; what they send to others, and do not hide, comes beside their work."""
        passes = passes_for(exchanges, self.graph, self.stages, self.forward_s, known)
        hops: Sequence[float] = () if self.hides_hops else self.hops
        if known is not None and layers and exchanges.windows is not None:  # of one kind
            shown_s = backward_shown_s(self.instance, self.pipeline[0].runs, layers, self.hops[0])
            passes = passes._replace(backward_s=(passes.backward_s[0] + shown_s,))
        elif known is not None and layers:
            hops = self._beside(known.stage_seconds, layers)
        return reduced_stages(self.instance.setting.model, self.plan, exchanges, passes, hops)

    def _beside(self, stage_seconds: Sequence[float], layers: Layers) -> list[float]:
        """Seconds of every pipeline stage that its layers wait, for their memories and for what is sent unhidden."""
        found, hidden = [], self.hides_hops
        for stage, hop in zip(self.pipeline, self.hops, strict=True):
            whole, work = (stage_s(self.instance, stage.runs, stage_seconds, of, hop) for of in (layers, {}))
            found.append(whole - work + (0.0 if hidden else hop))
        return found

    def _pipeline_seconds(self, stage_seconds: Sequence[float], layers: Layers | None = None) -> list[float]:
        """Seconds of every pipeline stage for one microbatch, or for two that take turns and hide all they send."""
        layers, hidden = self.moving if layers is None else layers, self.hides_hops
        return [
            self.plan.at_once
            * with_point_to_point(stage_s(self.instance, stage.runs, stage_seconds, layers, hop), hop, hidden)
            for stage, hop in zip(self.pipeline, self.hops, strict=True)
        ]

    def cutoff(self, number: int, value: float, lows: Sequence[float]) -> float | None:
        """Time of one evaluation of a stage of the mapping above which the metric exceeds a value.

        Parameters
        ----------
        number : int
            The stage.
        value : float
            In the unit of the metric; without an end there is no cutoff.
        lows : list of float
            Seconds that each stage takes at least; the others of a pipeline stage take that much of its time.
        """
        if not np.isfinite(value):
            return None
        found, taken = [], self._pipeline_seconds(lows)
        for position, (stage, hop) in enumerate(zip(self.pipeline, self.hops, strict=True)):
            times = dict(stage.runs).get(number, 0)
            if times:
                most = self.metric.most(value, taken, position, self.constants) / self.plan.at_once
                others = sum(count * lows[other] for other, count in stage.runs if other != number)
                found.append((most - (0.0 if self.hides_hops else hop) - others) / times)
        return min(found, default=None)


def prepare(
    instance: Instance, options: Options, memo: Memo | None = None, roomy: bool = False, tiles: int | None = None
) -> Iterator[Prepared]:
    """Choose sharding and stages of a plan, then price its stages for every tile count worth trying.

    Parameters
    ----------
    memo : dict, optional
        What other plans have worked out; filled as this one is.
    roomy : bool
        As if memories had no limit.
    tiles : int, optional
        The only tile count to look at.

    Yields
    ------
    Prepared
        Without starts, see :func:`with_starts`.

    Raises
    ------
    Infeasible
        If a kernel, or what must stay in DRAM, does not fit the chip under any tile count.
    """
    graph, plan = instance.graph, instance.plan
    work = _chip_work(instance, options, {} if memo is None else memo)
    sharded = work.sharded
    stage_k = np.array([work.stage[name] for name in sharded.names], dtype=np.int64)
    if graph.folded:
        stage_k = np.array([graph.kind_of(kernel) for kernel in graph.kernels], dtype=np.int64)
    hops = tuple(hop_seconds(instance, sharded, stage_k, least=work.bounds).tolist())
    per_step_s = per_step_hops(instance)
    gradients_s = gradient_seconds(instance, sharded, stage_k)
    exchanges = exchange_seconds(instance, sharded.gradient_k, sharded.weight_k, stage_k)
    refusals: list[Infeasible] = []
    counts = work.counts if tiles is None else (tiles,)
    for count in counts:
        if refusals and options.clock.over:
            raise NoSolution(0.0, 0.0)
        tiled = work.at(count)
        try:
            options.clock.charge(PREPARED)
            stages = tuple(_stages(instance, options, tiled, stage_k, work, roomy))
        except Infeasible as error:
            refusals.append(error)
            continue
        yield Prepared(
            instance=instance,
            sharding=work.sharding,
            sharded=tiled,
            stage_k=stage_k,
            stages=stages,
            hops=hops,
            per_step_s=per_step_s,
            gradients_s=gradients_s,
            record=work.record if work.plan == plan else _again(work),
            tile_choice=len(tile_counts(graph, instance.assumptions)) > 1,
            only_sharding=work.only_sharding,
            interrupted=work.interrupted,
            metric=METRICS[options.request.objective.metric],
            exchanges=exchanges,
        )
    if len(refusals) == len(counts):
        raise refusals[0]


def _chip_work(instance: Instance, options: Options, memo: Memo) -> ChipWork:
    """The sharding of a plan, and the kernels that it gives a chip."""
    plan, shared = instance.plan, instance.shared
    if shared not in memo:
        asked = options.request
        tables = interchip.build(shared, asked.pin_sharding)
        try:
            inter = interchip.optimize_interchip(
                instance.setting,
                tables,
                gap=0.0,  # a gap is left to fusion: what is optimal for a level has to be this sharding
                clock=options.clock.share(0.5),  # a hard sharding must leave time for the fusion
                solver=asked.solver,
                progress=reporter(options, plan, "interchip"),
            )
        except Infeasible as error:
            memo[shared] = error
            raise
        low = inter.objective * (1 - min(inter.solution.gap, 1.0))  # a solver may stop without any bound
        record = record_of("interchip", 0, "assignment", inter.solution, inter.objective, low, inter.unit)
        only = len(tables.kernel_o) == tables.kernels and tables.stages == 1
        memo[shared] = given_work(instance, inter.sharding, inter.stage, record, only, inter.interrupted)
    known = memo[shared]
    if isinstance(known, Infeasible):
        raise known
    return known


def given_work(
    instance: Instance,
    sharding: dict[str, Sharding],
    stage: dict[str, int],
    record: SolveRecord,
    only_sharding: bool = False,
    interrupted: bool = False,
) -> ChipWork:
    """What a chip does under a sharding."""
    layer = LayerOptions.of(instance)
    least = least_rows(instance, [sharding[kernel.name] for kernel in instance.graph.kernels])
    counts, taken_o = tuple(tile_counts(instance.graph, instance.assumptions, least)), layer.figures.options(sharding)
    sharded = layer.least(taken_o, counts[0])
    cut = partial(layer.cut, sharded, taken_o)
    return ChipWork(instance.plan, sharding, stage, record, sharded, cut, counts, only_sharding, interrupted)


def prepare_mapping(setting: Setting, mapping: Mapping, options: Options) -> Prepared:
    """Price the stages of a mapping as it is, without choosing sharding and stages again: others may be as good.

    Raises
    ------
    PlanError
        If the mapping's tile count is none that these assumptions try.
    Infeasible
        If a kernel, or what must stay in DRAM, does not fit the chip.
    """
    instance = setting.under(mapping.plan)
    sharding = {kernel.name: kernel.sharding for kernel in mapping.kernels}
    stage = {kernel.name: kernel.stage for kernel in mapping.kernels}
    work = given_work(instance, sharding, stage, given_record("as the mapping has it"))
    found = list(prepare(instance, options, {instance.shared: work}))
    for ready in found:
        if ready.sharded.tile_count == mapping.tile_count:
            return ready
    known = ", ".join(str(ready.sharded.tile_count) for ready in found)
    raise PlanError(
        f"the mapping has {mapping.tile_count} tiles of the streamed axis, expected {known} under its assumptions; "
        "take the assumptions that it was found with, or solve again"
    )


def _again(work: ChipWork) -> SolveRecord:
    """The solve of the sharding as a plan records it that did not have to solve it again."""
    note = f"{work.record.note}; as under {work.plan.label}".removeprefix("; ")
    return work.record.model_copy(update={"seconds": 0.0, "trace": (), "note": note})


def _stages(
    instance: Instance, options: Options, sharded: ShardedGraph, stage_k: Ints, work: ChipWork, roomy: bool
) -> Iterator[Stage]:
    """Price every stage of the mapping."""
    count = instance.mapped_stages
    chip = chip_of(instance.system, instance.assumptions, bounding=work.bounds)
    members_of = [np.flatnonzero(stage_k == number).astype(np.int64) for number in range(count)]
    used = [number for number in range(count) if len(members_of[number])]
    for number in used:
        key = sharded.tile_count, number
        if key not in work.stages:
            if key in work.refused:
                raise work.refused[key]
            try:
                tables = stage_tables(restrict(sharded, members_of[number]), chip)
            except Infeasible as error:  # whatever the rest of the plan is
                work.refused[key] = error
                raise
            if number not in work.lattices:
                work.lattices[number] = _lattice(instance, tables, options)
            states = sharded_states(instance.setting, tables.sharded)
            work.stages[key] = StageWork(tables, work.lattices[number], states)
    parts = {number: work.stages[sharded.tile_count, number] for number in used}
    kept = {number: part.states for number, part in parts.items()}
    left = dict.fromkeys(kept, np.inf) if roomy else dram_left(instance, kept)
    for number, members in enumerate(members_of):
        if number not in parts:
            yield Stage(members, None, None, None, None, 0.0, 0.0, None)
            continue
        mine = parts[number]
        limits = limits_of(instance, mine.tables, number, options.request, left[number], options.clock)
        mine.low_s = mine.low_s or lower_bound(mine.tables, limits)
        yield Stage(members, mine.tables, limits, mine.lattice, None, mine.low_s, float("inf"), mine)


def with_starts(ready: Prepared, clock: Clock = UNLIMITED) -> Prepared:
    """The same plan with a feasible start for every stage that the greedy cut finds one for."""

    def started(stage: Stage) -> Stage:
        if stage.tables is None or stage.limits is None or stage.work is None:
            return stage
        tables, limits, work = stage.tables, stage.limits, stage.work
        if not tables.chip.fused:
            try:
                return replace(stage, best_known=intrachip.kernel_by_kernel(tables, limits).objective)
            except Infeasible:  # its fusion will say so again, and be recorded
                return stage
        remember_start(work, limits, clock)
        if work.start_bytes > limits.dram_left:
            return stage
        return replace(stage, start=work.start, best_known=work.start_s)

    return replace(ready, stages=tuple(started(stage) for stage in ready.stages))


def _lattice(instance: Instance, stage: StageTables, options: Options) -> Lattice | None:
    """Down-sets of a stage, where the options allow the columns form and they are few enough to list."""
    if options.request.formulation == "assignment" or not stage.chip.fused:
        return None
    rule = instance.assumptions.forward_backward if instance.graph.trains else "shared"
    return down_sets(stage, rule, _DOWN_SETS, options.clock)
