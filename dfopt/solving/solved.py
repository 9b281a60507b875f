"""One plan fused: the partitions of every stage, then the judge."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dfopt.arrays import LEAST_UNIT, ROUNDING, Ints
from dfopt.bnb import Clock
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.plan_records import SolveRecord, different
from dfopt.documents.score import Score
from dfopt.errors import ScoreMismatch
from dfopt.fusion.partitioning import most_alive, numbered
from dfopt.fusion.priced import PricedPlan, PricedStage
from dfopt.judge import evaluate
from dfopt.milp import Termination, TracePoint
from dfopt.physics.metrics import Constants, most_of_stage
from dfopt.solving.options import Options, record_of, reporter
from dfopt.solving.work import JUDGED
from dfopt.terms.step.offload import moves
from dfopt.terms.step.overlap import exchanges_behind

if TYPE_CHECKING:
    from dfopt.fusion.intrachip import IntraChipMapping

_AGREE = 1e-6


@dataclass(frozen=True)
class Solved:
    """A solved plan: its mapping with score and proof.

    Attributes
    ----------
    graph, plan, mapping : Graph, Plan, Mapping
        The workload and the machine, and the mapping.
    score : Score
        The judge's figures, without heat.
    value, bound : float
        Objective, and its lower bound under the plan and sharding.
    records : tuple of SolveRecord
        Solves that led to it.
    p_max : int
        Largest number of partitions that was allowed.
    interrupted : bool
        Whether an interrupt ended a solve.
    """

    graph: Graph
    plan: Plan
    mapping: Mapping
    score: Score
    value: float
    bound: float
    records: tuple[SolveRecord, ...]
    p_max: int
    interrupted: bool

    def different(self, distinct: str) -> Hashable:
        """Key by which mappings count as distinct, for the request's ``distinct``."""
        return different(self.mapping, self.graph.variant, distinct)


@dataclass(frozen=True)
class Pruned:
    """Proof that a plan under its sharding cannot beat the incumbent.

    Attributes
    ----------
    bound : float
        Lower bound on its objective.
    records : tuple of SolveRecord
        Solves that showed it.
    note : str
        Remark for the plan record.
    """

    bound: float
    records: tuple[SolveRecord, ...]
    note: str = "under its optimal sharding"


def fused(
    ready: PricedPlan, options: Options, records: Sequence[SolveRecord], incumbent: float, begin: Clock | None = None
) -> Solved | Pruned:
    """Solve the fusion of every stage and score the mapping; `Pruned` if it cannot beat the incumbent.

    Parameters
    ----------
    ready : PricedPlan
        The plan with its sharding.
    options : Options
        The request under way.
    records : sequence of SolveRecord
        Records of the solves that gave the sharding.
    incumbent : float
        Value from which on a mapping is of no interest.
    begin : Clock, optional
        Within which partitions to start from are looked for; left out, that of the request.

    Returns
    -------
    Solved or Pruned
        If the step depends on the times of passes, other partitions are not bounded.

    Raises
    ------
    Infeasible, NoSolution, ScoreMismatch
        See :mod:`dfopt.errors`.
    """
    from dfopt.fusion.intrachip import CutOff, greedy  # not for those who never ask

    asked, records = options.request, [*records]
    options.clock.charge(JUDGED)
    partition_k = np.zeros(len(ready.sharded.names), dtype=np.int64)
    times, least_share, p_used = dict[int, float](), 1.0, 1
    for number, stage in ready.stages.items():
        p_used, room = max(p_used, stage.limits.p_max), stage.limits.dram_left
        start = greedy(stage.tables, stage.limits, begin or options.clock) if stage.tables.chip.fused else None
        cutoff = _cutoff(ready, number, incumbent)
        within = start, cutoff, reporter(options, ready.instance.plan, f"intrachip stage {number}")
        try:
            best = best_partitions(stage, options, np.inf, *within)
            if most_alive(stage.tables, stage.limits, best.partition_k) > room:
                best = best_partitions(stage, options, room, *within)
        except CutOff as proof:
            note = f"slower than the best; {proof.solution.message}".removesuffix("; ")
            form = "assignment" if asked.formulation == "assignment" else "columns"
            records.append(record_of("intrachip", number, form, proof.solution, None, proof.seconds, note))
            return Pruned(incumbent, tuple(records))
        partition_k[stage.members] = numbered(stage.tables, stage.limits, best.partition_k)
        times[number] = best.objective
        if best.bound < best.objective * (1 - ROUNDING):
            least_share = min(least_share, best.bound / best.objective)
        shown = best.formulation, best.solution, best.objective, best.bound, best.note
        records.append(record_of("intrachip", number, *shown))
    solved = scored(ready, partition_k, None, 0.0, tuple(records), p_used)
    for number, seconds in times.items():
        check_stage(solved.score, number, seconds)
    fuses = any(stage.tables.chip.fused for stage in ready.stages.values())
    if not fuses or not (moves(ready.instance) or exchanges_behind(ready.instance)):
        # if all that takes time took a smaller share of it, so would a step
        solved = replace(solved, bound=solved.value * least_share)
    return solved


def best_partitions(
    stage: PricedStage,
    options: Options,
    room: float,
    start: Ints | None = None,
    cutoff: float | None = None,
    progress: Callable[[TracePoint], None] | None = None,
) -> IntraChipMapping:
    """The best partitions of a stage with ``room`` bytes of DRAM for waiting tensors.

    Those that are best with any room, and do with less, are best with less.

    Parameters
    ----------
    stage
        Kernels of the stage, priced.
    options
        The request under way.
    room
        Bytes of DRAM.
    start
        Partition of each kernel to start from, shape (kernels of the stage,).
    cutoff
        Seconds above which partitions are of no interest.
    progress
        Called with each point of the trace.

    Raises
    ------
    CutOff, Infeasible, NoSolution
        See :func:`dfopt.fusion.intrachip.optimize_intrachip`.
    """
    from dfopt.fusion.intrachip import optimize_intrachip

    asked = options.request
    return optimize_intrachip(
        stage.tables,
        replace(stage.limits, dram_left=room),
        gap=asked.gap,
        clock=options.clock,
        lattice=stage.lattice,
        formulation=asked.formulation,
        solver=asked.solver,
        start=start,
        cutoff=cutoff,
        progress=progress,
        seed=asked.seed,
    )


def _cutoff(ready: PricedPlan, number: int, value: float) -> float | None:
    """Seconds of one evaluation of a stage above which a step exceeds a value, whatever takes time beside it."""
    if not np.isfinite(value):
        return None
    constants = Constants(ready.instance.plan, ready.instance.assumptions, line=ready.instance.line)
    nothing = [0.0] * len(ready.instance.pipeline)
    most = (
        most_of_stage(value, nothing, position, constants) / times
        for position, stage in enumerate(ready.instance.pipeline)
        for each, times in stage.runs
        if each == number and times
    )
    return min(most, default=None)


def check_stage(score: Score, stage: int, seconds: float) -> None:
    """Check that the seconds of a stage by the solver agree with the score.

    Parameters
    ----------
    score : Score
        Score of the mapping.
    stage : int
        Stage of the mapping.
    seconds : float, s
        Seconds of the stage by the solver, for one evaluation.

    Raises
    ------
    ScoreMismatch
        If they differ.
    """
    judged_s = sum(part.time_s for part in score.partitions if part.stage == stage)
    if abs(judged_s - seconds) > _AGREE * max(seconds, LEAST_UNIT):
        raise ScoreMismatch(f"time of stage {stage}", seconds, judged_s)


def scored(
    ready: PricedPlan,
    partition_k: Ints,
    expected: float | None,
    bound: float,
    records: tuple[SolveRecord, ...],
    p_max: int,
    tokens_k: Ints | None = None,
) -> Solved:
    """Mapping and score of given partitions.

    Parameters
    ----------
    ready
        The plan with its sharding.
    partition_k
        Partition of each kernel, shape (kernels,).
    expected
        Seconds of a step by the search, which the score must have too; none if the search does not say.
    bound
        Seconds of a step that no mapping of the plan is below.
    records
        Solves that led here.
    p_max
        Partitions of a stage at most.
    tokens_k
        As of :meth:`dfopt.fusion.priced.PricedPlan.mapping`.

    Raises
    ------
    ScoreMismatch
        If the score has other seconds, or a limit is not kept.
    """
    mapping = ready.mapping(partition_k, tokens_k)
    # Plans are ranked without heat; what the result holds is judged on its stack once the best is known.
    model = ready.instance.setting.model
    score = evaluate(mapping, model, ready.instance.system, ready.instance.assumptions, physical=False)
    value = score.step_time_s
    if expected is not None and abs(value - expected) > _AGREE * max(expected, LEAST_UNIT):
        raise ScoreMismatch("step_time", expected, value)
    if score.violations:
        raise ScoreMismatch(f"limits ({score.violations[0]})", 0.0, float(len(score.violations)))
    return Solved(
        graph=model,
        plan=ready.instance.plan,
        mapping=mapping,
        score=score,
        value=value,
        bound=bound,
        records=records,
        p_max=p_max,
        interrupted=any(record.termination == Termination.INTERRUPTED_WITH_SOLUTION.value for record in records),
    )
