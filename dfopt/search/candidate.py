"""A plan before its fusion: sharding and stages chosen, stages priced, bounds and starts at hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Mapping, Sharding
from dfopt.documents.plan import Plan
from dfopt.documents.result import SolveRecord
from dfopt.documents.system import System
from dfopt.errors import Infeasible, PlanError
from dfopt.fusion import intrachip
from dfopt.fusion.blocks import StageTables, chip_of, restrict, stage_tables
from dfopt.fusion.downsets import Lattice, down_sets
from dfopt.fusion.segments import best_segmentation, topological_orders
from dfopt.milp import Termination
from dfopt.physics.pipeline import step_time, with_point_to_point
from dfopt.search.options import Options, record_of, reporter
from dfopt.search.sharing import ChipWork, Memo, StageWork, remember_start
from dfopt.setting.hops import gradient_seconds, hop_seconds, per_step_hops
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.ledger import dram_left
from dfopt.setting.stages import PipelineStage
from dfopt.setting.tables import ShardedGraph, shard, tile_counts, with_tiles
from dfopt.sharding import interchip

Ints = NDArray[np.int64]
_DOWN_SETS = 20_000  # pairs of them grow with the square: beyond this blocks are generated on demand


@dataclass(frozen=True)
class Stage:
    """One distinct stage of the mapping: its kernels, prices and limits; without a kernel there is nothing to price."""

    members: Ints
    tables: StageTables | None
    limits: intrachip.IntraChipLimits | None
    lattice: Lattice | None
    start: Ints | None
    floor: float
    best_known: float
    work: StageWork | None


@dataclass(frozen=True)
class Prepared:
    """A plan with its sharding and stages: these priced, with a bound and a feasible start."""

    instance: Instance
    sharding: dict[str, Sharding]
    sharded: ShardedGraph
    stage_k: Ints
    stages: tuple[Stage, ...]
    hops: tuple[float, ...]
    per_step_s: float
    gradients_s: float
    record: SolveRecord
    tile_choice: bool

    @property
    def graph(self) -> Graph:
        """The workload."""
        return self.instance.graph

    @property
    def system(self) -> System:
        """The machine."""
        return self.instance.system

    @property
    def plan(self) -> Plan:
        """Degrees of parallelism and their dims."""
        return self.instance.plan

    @property
    def assumptions(self) -> Assumptions:
        """The conventions, resolved."""
        return self.instance.assumptions

    @property
    def pipeline(self) -> tuple[PipelineStage, ...]:
        """The distinct pipeline stages."""
        return self.instance.pipeline

    @property
    def tile_count(self) -> int | None:
        """Tiles of the streamed axis, where they are a choice."""
        return self.sharded.tile_count if self.tile_choice else None

    @property
    def sharding_proven(self) -> bool:
        """Whether the sharding is optimal for the inter-chip problem; if not, no bound under it holds for the plan."""
        return self.record.termination in (Termination.OPTIMAL.value, Termination.GAP_REACHED.value)

    def floor(self) -> float:
        """Step time that no fusion under this sharding and tile count beats."""
        if not self.sharding_proven:
            return 0.0
        return self.step_of([stage.floor for stage in self.stages])

    def best_known(self) -> float:
        """Step time that the starts reach."""
        return self.step_of([stage.best_known for stage in self.stages])

    def step_of(self, stage_seconds: list[float]) -> float:
        """Step time from the time of one evaluation of every stage of the mapping."""
        slowest = max(
            with_point_to_point(
                sum(times * stage_seconds[number] for number, times in stage.runs), hop, self.assumptions.overlap
            )
            for stage, hop in zip(self.pipeline, self.hops, strict=True)
        )
        return step_time(
            self.plan,
            self.assumptions,
            slowest,
            point_to_point_per_step_s=self.per_step_s,
            gradient_reduction_s=self.gradients_s,
        ).total

    def cutoff(self, number: int, step_s: float, lows: list[float]) -> float | None:
        """Time of one evaluation of a stage of the mapping above which the step is slower than ``step_s``.

        Parameters
        ----------
        number : int
            The stage.
        step_s : float
            Seconds; without an end there is no cutoff.
        lows : list of float
            Seconds that each stage takes at least; the others of a pipeline stage take that much of its time.
        """
        if not np.isfinite(step_s):
            return None
        unit = step_time(self.plan, self.assumptions, 1.0).total
        slowest = (step_s - self.per_step_s - self.gradients_s) / unit
        found = []
        for stage, hop in zip(self.pipeline, self.hops, strict=True):
            times = dict(stage.runs).get(number, 0)
            if times:
                others = sum(count * lows[other] for other, count in stage.runs if other != number)
                found.append((slowest - (0.0 if self.assumptions.overlap == "perfect" else hop) - others) / times)
        return min(found)


def prepare(instance: Instance, options: Options, memo: Memo | None = None) -> Iterator[Prepared]:
    """Choose sharding and stages of a plan, then price its stages for every tile count worth trying.

    Parameters
    ----------
    memo : dict, optional
        What other plans have worked out; filled as this one is.

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
    if graph.has_pieces:
        stage_k = np.array([graph.piece_of(kernel) for kernel in graph.kernels], dtype=np.int64)
    hops = tuple(hop_seconds(instance, sharded, stage_k).tolist())
    per_step_s = per_step_hops(instance)
    gradients_s = gradient_seconds(instance, sharded, stage_k)
    refusals: list[Infeasible] = []
    counts = tile_counts(graph, instance.assumptions)
    for tiles in counts:
        if tiles not in work.tiled:
            work.tiled[tiles] = with_tiles(sharded, instance.shared, work.sharding, tiles)
        tiled = work.tiled[tiles]
        try:
            stages = tuple(_stages(instance, options, tiled, stage_k, work))
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
            tile_choice=len(counts) > 1,
        )
    if len(refusals) == len(counts):
        raise refusals[0]


def _chip_work(instance: Instance, options: Options, memo: Memo) -> ChipWork:
    """The sharding of a plan, and the kernels that it gives a chip."""
    plan, shared = instance.plan, instance.shared
    if shared.plan not in memo:
        tables = interchip.build(shared, options.pin_sharding)
        inter = interchip.optimize_interchip(
            instance.setting,
            tables,
            gap=options.gap,
            time_limit=options.left() / 2,  # a hard sharding must leave time for the fusion
            solver=options.solver,
            progress=reporter(options, plan, "interchip"),
        )
        low = inter.objective * (1 - min(inter.solution.gap, 1.0))  # a solver may stop without any bound
        record = record_of("interchip", 0, "assignment", inter.solution, inter.objective, low, inter.unit)
        sharded = shard(shared, inter.sharding)
        memo[shared.plan] = ChipWork(plan, inter.sharding, inter.stage, record, sharded, {sharded.tile_count: sharded})
    return memo[shared.plan]


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
    record = SolveRecord(
        problem="interchip",
        formulation="given",
        termination=Termination.LIMIT_WITH_SOLUTION.value,  # nothing is proven of it
        objective=None,
        bound=0.0,
        gap=None,
        seconds=0.0,
        note="as the mapping has it",
    )
    sharded = shard(instance.shared, sharding)
    work = ChipWork(mapping.plan, sharding, stage, record, sharded, {sharded.tile_count: sharded})
    found = list(prepare(instance, options, {instance.shared.plan: work}))
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
    instance: Instance,
    options: Options,
    sharded: ShardedGraph,
    stage_k: Ints,
    work: ChipWork,
) -> Iterator[Stage]:
    """Price every stage of the mapping."""
    graph, count = instance.graph, instance.mapped_stages
    chip = chip_of(instance.system, instance.assumptions)
    members_of = [np.flatnonzero(stage_k == number).astype(np.int64) for number in range(count)]
    used = [number for number in range(count) if len(members_of[number])]
    for number in used:
        key = sharded.tile_count, number
        if key not in work.stages:
            tables = stage_tables(restrict(sharded, members_of[number]), chip)
            if number not in work.lattices:
                work.lattices[number] = _lattice(graph, tables, options)
            work.stages[key] = StageWork(tables, work.lattices[number])
    parts = {number: work.stages[sharded.tile_count, number] for number in used}
    left = dram_left(instance, {number: part.tables.sharded for number, part in parts.items()})
    for number, members in enumerate(members_of):
        if number not in parts:
            yield Stage(members, None, None, None, None, 0.0, 0.0, None)
            continue
        mine = parts[number]
        limits = _limits(graph, mine.tables, left[number], options)
        if graph.has_pieces and number > 0 and limits.exactly:  # the number that was asked for is the layer's
            limits = replace(limits, p_max=min(limits.p_max, mine.tables.kernels))
        mine.low_s = mine.low_s or intrachip.lower_bound(mine.tables, limits)
        yield Stage(members, mine.tables, limits, mine.lattice, None, mine.low_s, float("inf"), mine)


def with_starts(ready: Prepared) -> Prepared:
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
        remember_start(work, limits)
        if work.start_bytes > limits.dram_left:
            return stage
        return replace(stage, start=work.start, best_known=work.start_s)

    return replace(ready, stages=tuple(started(stage) for stage in ready.stages))


def _lattice(graph: Graph, stage: StageTables, options: Options) -> Lattice | None:
    """Down-sets of a stage, where the options allow the columns form and they are few enough to list."""
    if options.formulation == "assignment" or not stage.chip.fused:
        return None
    return down_sets(stage, options.assumptions.forward_backward if graph.trains else "shared", _DOWN_SETS)


def _limits(graph: Graph, stage: StageTables, dram_left: float, options: Options) -> intrachip.IntraChipLimits:
    assumptions = options.assumptions
    p_max = options.p_max
    if not stage.chip.fused:
        p_max = stage.kernels
    elif p_max is None and options.formulation != "assignment":
        p_max = stage.kernels  # blocks may be as many as they like
    elif p_max is None:
        p_max = default_p_max(stage, assumptions.forward_backward)
        p_max = max(p_max, 1 + max(options.pin_partition.values(), default=0))
    place = {name: k for k, name in enumerate(stage.sharded.names)}
    pins = tuple((place[name], p) for name, p in options.pin_partition.items() if name in place)
    return intrachip.IntraChipLimits(
        p_max=p_max,
        exactly=assumptions.empty_partitions == "forbid",
        forward_backward=assumptions.forward_backward if graph.trains else "shared",
        pins=pins if stage.chip.fused else (),
        dram_left=dram_left,
        saved_in_dram=assumptions.gradients == "exact" and graph.trains,
    )


def default_p_max(stage: StageTables, forward_backward: str) -> int:
    """Two partitions more than the best cut of a topological order uses."""
    n = stage.kernels
    cuts = [best_segmentation(stage, order, n, False, forward_backward) for order in topological_orders(stage)]
    used = [int(found[1].max()) + 1 for found in cuts if found is not None]
    return min(n, (min(used) if used else n // 2) + 2)
