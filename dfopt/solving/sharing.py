"""What one chip does, worked out once for all plans that give it the same work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dfopt.bnb import Clock
from dfopt.documents.mapping import Sharding
from dfopt.documents.plan import Plan
from dfopt.documents.plan_records import SolveRecord
from dfopt.errors import Infeasible
from dfopt.fusion import intrachip
from dfopt.fusion.blocks import StageTables
from dfopt.fusion.downsets import Lattice
from dfopt.fusion.intrachip import CutOff, IntraChipMapping
from dfopt.fusion.partitioning import IntraChipLimits, most_alive, objective
from dfopt.milp import Termination, TracePoint, closed_form
from dfopt.setting.instance import Instance
from dfopt.solving.options import Options
from dfopt.terms.sharded_graph import ShardedGraph
from dfopt.terms.step.ledger import State

Ints = NDArray[np.int64]


@dataclass
class StageWork:
    """One distinct stage: its priced kernels, and the best fusion and bound found for it so far."""

    tables: StageTables
    lattice: Lattice | None
    states: tuple[State, ...]  # what its kernels keep
    start: Ints | None = None
    start_s: float = np.inf
    start_bytes: float = np.inf  # DRAM alive between its partitions; infinite while there is no start
    found: IntraChipMapping | None = None
    found_bytes: float = np.inf
    refused: Infeasible | None = None  # there is no fusion, whatever DRAM is left
    low_s: float = 0.0  # proven: no fusion is faster, whatever DRAM is left
    waiting: float | None = None  # bytes that wait at once between the partitions of any fusion, if that is known


@dataclass
class ChipWork:
    """Sharding and stages of all plans with one :attr:`Instance.shared` plan."""

    plan: Plan  # the first of them
    sharding: dict[str, Sharding]
    stage: dict[str, int]
    record: SolveRecord
    sharded: ShardedGraph
    cut: Callable[[int], ShardedGraph]  # the same in so many tiles
    counts: tuple[int, ...]  # of tiles that are worth trying
    only_sharding: bool  # there is no other, nor another stage for a kernel
    interrupted: bool = False  # by Ctrl-C while the sharding was chosen
    bounds: bool = False  # every figure is at its least: what is priced is a bound
    tiled: dict[int, ShardedGraph] = field(default_factory=dict)
    stages: dict[tuple[int, int], StageWork] = field(default_factory=dict)  # (tile count, stage)
    lattices: dict[int, Lattice | None] = field(default_factory=dict)  # no price changes them
    refused: dict[tuple[int, int], Infeasible] = field(default_factory=dict)  # (tile count, stage) that does not fit

    def at(self, tiles: int) -> ShardedGraph:
        """The layer in so many tiles."""
        if tiles not in self.tiled:
            self.tiled[tiles] = self.cut(tiles)
        return self.tiled[tiles]


Memo = dict[Instance, ChipWork | Infeasible]
"""What is known so far, by the part of a plan that it depends on (:attr:`Instance.shared`)."""


def given_record(note: str) -> SolveRecord:
    """The record of a sharding that nothing is proven of."""
    return SolveRecord(
        problem="interchip",
        formulation="given",
        termination=Termination.LIMIT_WITH_SOLUTION.value,
        objective=None,
        bound=0.0,
        gap=None,
        seconds=0.0,
        note=note,
    )


def remember_start(work: StageWork, limits: IntraChipLimits, clock: Clock) -> None:
    """Find a feasible start, unless the one that is known will do."""
    if work.start is not None and work.start_bytes <= limits.dram_left:
        return
    start = intrachip.greedy(work.tables, limits, clock)
    if start is not None:
        work.start, work.start_s = start, objective(work.tables, start)
        work.start_bytes = most_alive(work.tables, limits, start)


def fuse(
    work: StageWork,
    limits: IntraChipLimits,
    options: Options,
    cutoff: float | None,
    start: Ints | None,
    progress: Callable[[TracePoint], None] | None,
) -> IntraChipMapping:
    """The best fusion of a stage, from another plan where its answer holds for this one too.

    A fusion that is best with more DRAM left, and does with less, is best with less. So the DRAM limit is left out
    at first, and put back only if the answer breaks it.

    Raises
    ------
    CutOff
        No fusion is faster than the cutoff.
    Infeasible, NoSolution
        See :func:`dfopt.fusion.intrachip.optimize_intrachip`.
    """
    if cutoff is not None and work.low_s >= cutoff:
        raise CutOff(cutoff, closed_form(cutoff, 0.0, "shown under another plan with the same layer"))
    known = work.found
    if known is not None and work.found_bytes <= limits.dram_left:
        again = replace(known.solution, seconds=0.0, trace=(), message="as under another plan")
        return replace(known, solution=again)

    def solve(under: IntraChipLimits, least: float | None) -> IntraChipMapping:
        return intrachip.optimize_intrachip(
            work.tables,
            under,
            gap=options.request.gap,
            clock=options.clock,
            lattice=work.lattice,
            formulation=options.request.formulation,
            solver=options.request.solver,
            start=start,
            cutoff=least,
            progress=progress,
            seed=options.request.seed,
        )

    relaxed = replace(limits, dram_left=np.inf)
    if known is None:
        if work.refused is not None:
            raise work.refused
        try:
            known = solve(relaxed, cutoff)
        except Infeasible as error:
            work.refused = error
            raise
        except CutOff as proof:
            work.low_s = max(work.low_s, proof.seconds)
            raise
        work.found, work.found_bytes = known, most_alive(work.tables, limits, known.partition_k)
        work.low_s = max(work.low_s, known.bound)
    if work.found_bytes <= limits.dram_left:
        return known
    return solve(limits, cutoff)
