"""One plan fused: the partitions of every stage, then the judge."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dfopt.bnb import ENDED, Clock
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.plan_records import SolveRecord, different
from dfopt.documents.score import Score
from dfopt.errors import Infeasible, NoSolution, ScoreMismatch
from dfopt.fusion import intrachip
from dfopt.fusion.partitioning import numbered
from dfopt.judge import evaluate
from dfopt.milp import Termination
from dfopt.setting.instance import Instance
from dfopt.solving.candidate import Prepared, prepare, with_starts
from dfopt.solving.options import Options, record_of, reporter
from dfopt.solving.sharing import Memo, fuse
from dfopt.solving.work import JUDGED

Ints = NDArray[np.int64]
_AGREE = 1e-6
_GRACE_S = 1.0  # for a start, after Ctrl-C


@dataclass(frozen=True)
class Solved:
    """One plan solved: its mapping, judged score (as the search leaves it, without heat) and records."""

    graph: Graph
    plan: Plan
    mapping: Mapping
    score: Score
    value: float
    bound: float
    records: tuple[SolveRecord, ...]
    p_max: int
    interrupted: bool
    limited: bool

    def different(self, distinct: str) -> Hashable:
        """What mappings that are different do not share."""
        return different(self.mapping, self.graph.variant, distinct)


@dataclass(frozen=True)
class Pruned:
    """Proven: under its sharding a plan cannot beat the incumbent."""

    bound: float
    records: tuple[SolveRecord, ...]
    note: str = "under its optimal sharding"


def finish(ready: Prepared, options: Options, incumbent: float) -> Solved | Pruned:
    """Fuse the kernels of every stage, then let the judge score the mapping.

    Returns
    -------
    Solved or Pruned

    Raises
    ------
    Infeasible, NoSolution, ScoreMismatch
        See :mod:`dfopt.errors`.
    """
    plan, formulation = ready.plan, options.request.formulation
    options.clock.charge(JUDGED)
    records = [ready.record]
    floor = ready.floor()
    if floor >= incumbent * (1 - 1e-12):
        return Pruned(floor, tuple(records))
    partition_k = np.zeros(len(ready.sharded.names), dtype=np.int64)
    times, lows, p_used = [0.0] * len(ready.stages), [stage.floor for stage in ready.stages], 1
    for number, stage in enumerate(ready.stages):
        if stage.work is None or stage.limits is None:
            continue
        p_used = max(p_used, stage.limits.p_max)
        if ready.value_of(lows) >= incumbent * (1 - 1e-12):  # with what the stages so far are shown to take
            return Pruned(incumbent, tuple(records))
        try:
            found = fuse(
                stage.work,
                stage.limits,
                options,
                ready.cutoff(number, incumbent, lows),
                stage.start,
                reporter(options, plan, f"intrachip stage {number}"),
            )
        except intrachip.CutOff as proof:
            note = f"slower than the best; {proof.solution.message}".removesuffix("; ")
            form = "assignment" if formulation == "assignment" else "columns"
            record = record_of("intrachip", number, form, proof.solution, None, proof.seconds, note)
            records.append(record)
            return Pruned(incumbent, tuple(records))
        partition_k[stage.members] = numbered(stage.work.tables, stage.limits, found.partition_k)
        times[number], lows[number] = found.objective, max(found.bound, stage.floor)
        shown = found.formulation, found.solution, found.objective, found.bound, found.note
        records.append(record_of("intrachip", number, *shown))
    value = ready.reached(times, partition_k)
    as_shown = all(low >= one * (1 - 1e-12) for one, low in zip(times, lows, strict=True))  # sums of two orders
    bound = value if ready.only_fusion and as_shown else ready.value_of(lows)
    return scored(ready, partition_k, value, bound, tuple(records), p_used)


def by_levels(instance: Instance, options: Options, memo: Memo, tiles: int, incumbent: float) -> Solved | None:
    """The best fusion for the sharding that is best by itself, with so many tiles, if it is found and not beaten."""
    interrupted = False
    try:
        for ready in prepare(instance, options, memo):
            interrupted = ready.interrupted
            if ready.sharded.tile_count == tiles:
                until = options.clock
                if interrupted:  # by Ctrl-C: a start of its fusion is all that is looked for
                    until, options = Clock.of_limit(_GRACE_S), replace(options, clock=ENDED)
                found = finish(with_starts(ready, until), options, incumbent)
                if isinstance(found, Solved):
                    return replace(found, interrupted=found.interrupted or interrupted)
                break
    except (Infeasible, NoSolution):
        pass
    if interrupted:
        raise KeyboardInterrupt
    return None


def refusal(instance: Instance, options: Options, memo: Memo, tiles: int | None = None) -> str:
    """Why nothing fits under the sharding that is best by itself: of a plan under which nothing fits with any.

    ``tiles``: the only tile count that is meant.
    """
    try:
        for ready in prepare(instance, options, memo, tiles=tiles):
            finish(with_starts(ready, options.clock), options, np.inf)
    except Infeasible as error:
        return str(error.report)
    except NoSolution:
        pass
    return "no sharding and partitioning keeps all limits together"


def scored(
    ready: Prepared,
    partition_k: Ints,
    expected: float | None,
    bound: float,
    records: tuple[SolveRecord, ...],
    p_max: int,
    tokens_k: Ints | None = None,
) -> Solved:
    """The mapping that partitions make, as the judge scores it.

    ``expected``: the value that was promised, to be held against the judge's. ``tokens_k``: as of
    :meth:`dfopt.fusion.priced.PricedPlan.mapping`.

    Raises
    ------
    ScoreMismatch
    """
    mapping = ready.mapping(partition_k, tokens_k)
    # Plans are ranked without heat; what the result holds is judged on its stack once the best is known.
    model = ready.instance.setting.model
    score = evaluate(mapping, model, ready.system, ready.assumptions, physical=False)
    value = judged(score, ready.metric.name)
    if expected is not None and abs(value - expected) > _AGREE * max(expected, 1e-30):
        raise ScoreMismatch(ready.metric.name, expected, value)
    if score.violations:
        raise ScoreMismatch(f"limits ({score.violations[0]})", 0.0, float(len(score.violations)))
    # a sharding that is given, or found with the fusion, was not looked for
    ended = {record.termination for record in records if record.formulation not in ("given", "joint")}
    return Solved(
        graph=model,
        plan=ready.plan,
        mapping=mapping,
        score=score,
        value=value,
        bound=bound,
        records=records,
        p_max=p_max,
        interrupted=Termination.INTERRUPTED_WITH_SOLUTION.value in ended,
        limited=bool(ended & {Termination.LIMIT_WITH_SOLUTION.value, Termination.INTERRUPTED_WITH_SOLUTION.value}),
    )


def judged(score: Score, metric: str) -> float:
    """The judge's figure for a metric: the field of a score that has its name, with its unit."""
    return float({"step_time": score.step_time_s}[metric])
