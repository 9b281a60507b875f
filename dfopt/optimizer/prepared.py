"""A plan before its fusion: sharding and stages chosen, stages priced, bounds and starts at hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.result import SolveRecord
from dfopt.documents.system import System
from dfopt.errors import Infeasible
from dfopt.milp import Termination
from dfopt.optimizer.options import Options, record_of, reporter
from dfopt.physics.pipeline import step_time, with_point_to_point
from dfopt.problems import interchip, intrachip
from dfopt.problems.blocks import StageTables, chip_of, restrict, stage_tables
from dfopt.problems.downsets import Lattice, down_sets
from dfopt.problems.segments import best_segmentation, topological_orders
from dfopt.problems.stages import gradient_seconds, hop_seconds, per_step_hops, stage_memory
from dfopt.problems.tables import ShardedGraph, shard, tile_counts, with_tiles

Ints = NDArray[np.int64]
_DOWN_SETS = 20_000  # pairs of them grow with the square: beyond this blocks are generated on demand


@dataclass(frozen=True)
class Stage:
    """One distinct stage: its kernels, prices and limits; without a kernel there is nothing to price."""

    members: Ints
    tables: StageTables | None
    limits: intrachip.IntraChipLimits | None
    lattice: Lattice | None
    start: Ints | None
    floor: float
    best_known: float


@dataclass(frozen=True)
class Prepared:
    """A plan after its inter-chip solve: stages priced, with a bound and a feasible start."""

    graph: Graph
    system: System
    plan: Plan
    assumptions: Assumptions
    inter: interchip.InterChipMapping
    sharded: ShardedGraph
    stage_k: Ints
    stages: tuple[Stage, ...]
    hops: tuple[float, ...]
    per_step_s: float
    gradients_s: float
    record: SolveRecord
    tile_choice: bool

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
        """Step time from the time of one layer of every stage."""
        slowest = max(
            with_point_to_point(self.plan.layers_per_stage * seconds, hop, self.assumptions.overlap)
            for seconds, hop in zip(stage_seconds, self.hops, strict=True)
        )
        return step_time(
            self.plan,
            self.assumptions,
            slowest,
            point_to_point_per_step_s=self.per_step_s,
            gradient_reduction_s=self.gradients_s,
        ).total

    def layer_cutoff(self, step_s: float) -> float | None:
        """Time of one layer above which the step is slower than ``step_s``; none with several stages."""
        if len(self.stages) > 1 or not np.isfinite(step_s):
            return None
        unit = step_time(self.plan, self.assumptions, 1.0).total
        stage = (step_s - self.per_step_s - self.gradients_s) / unit
        return (stage - (0.0 if self.assumptions.overlap == "perfect" else self.hops[0])) / self.plan.layers_per_stage


def prepare(graph: Graph, system: System, plan: Plan, options: Options) -> Iterator[Prepared]:
    """Choose sharding and stages of a plan, then price its stages for every tile count worth trying.

    Yields
    ------
    Prepared
        Without starts, see :func:`with_starts`.

    Raises
    ------
    Infeasible
        If a kernel, or what must stay in DRAM, does not fit the chip under any tile count.
    """
    assumptions = options.assumptions
    tables = interchip.build(graph, system, plan, assumptions, options.pin_sharding)
    inter = interchip.optimize_interchip(
        graph,
        tables,
        assumptions,
        gap=options.gap,
        time_limit=options.left() / 2,  # a hard sharding must leave time for the fusion
        solver=options.solver,
        progress=reporter(options, plan, "interchip"),
    )
    low = inter.objective * (1 - inter.solution.gap)
    record = record_of("interchip", 0, "assignment", inter.solution, inter.objective, low, inter.unit)
    sharded = shard(graph, system, plan, assumptions, inter.sharding)
    stage_k = np.array([inter.stage[name] for name in sharded.names], dtype=np.int64)
    hops = tuple(hop_seconds(graph, system, plan, assumptions, sharded, stage_k).tolist())
    per_step_s = per_step_hops(graph, system, plan, assumptions)
    gradients_s = gradient_seconds(graph, system, plan, assumptions, sharded, stage_k)
    refusals: list[Infeasible] = []
    lattices: dict[int, Lattice | None] = {}
    counts = tile_counts(graph, assumptions)
    for tiles in counts:
        tiled = sharded
        if tiles != sharded.tile_count:
            tiled = with_tiles(sharded, graph, system, plan, assumptions, inter.sharding, tiles)
        try:
            stages = tuple(_stages(graph, system, plan, options, tiled, stage_k, len(hops), lattices))
        except Infeasible as error:
            refusals.append(error)
            continue
        yield Prepared(
            graph=graph,
            system=system,
            plan=plan,
            assumptions=assumptions,
            inter=inter,
            sharded=tiled,
            stage_k=stage_k,
            stages=stages,
            hops=hops,
            per_step_s=per_step_s,
            gradients_s=gradients_s,
            record=record,
            tile_choice=len(counts) > 1,
        )
    if len(refusals) == len(counts):
        raise refusals[0]


def _stages(
    graph: Graph,
    system: System,
    plan: Plan,
    options: Options,
    sharded: ShardedGraph,
    stage_k: Ints,
    count: int,
    lattices: dict[int, Lattice | None],
) -> Iterator[Stage]:
    """Price every stage. ``lattices`` remembers their down-sets, which no price changes."""
    chip = chip_of(system, options.assumptions)
    for number in range(count):
        members = np.flatnonzero(stage_k == number).astype(np.int64)
        if not len(members):
            yield Stage(members, None, None, None, None, 0.0, 0.0)
            continue
        stage = stage_tables(restrict(sharded, members), chip)
        memory = stage_memory(graph, system, plan, options.assumptions, stage.sharded, number)
        if number not in lattices:
            lattices[number] = _lattice(graph, stage, options)
        limits = _limits(graph, stage, memory.left, options)
        yield Stage(members, stage, limits, lattices[number], None, intrachip.lower_bound(stage, limits), float("inf"))


def with_starts(ready: Prepared) -> Prepared:
    """The same plan with a feasible start for every stage that the greedy cut finds one for."""

    def started(stage: Stage) -> Stage:
        if stage.tables is None or stage.limits is None:
            return stage
        tables, limits = stage.tables, stage.limits
        if not tables.chip.fused:
            try:
                return replace(stage, best_known=intrachip.kernel_by_kernel(tables, limits).objective)
            except Infeasible:  # its fusion will say so again, and be recorded
                return stage
        start = intrachip.greedy(tables, limits)
        known = intrachip.objective(tables, start, limits.p_max) if start is not None else float("inf")
        return replace(stage, start=start, best_known=known)

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
