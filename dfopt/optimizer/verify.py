"""Check the claims of a result: what its mapping costs, that every limit is kept, that nothing is faster.

Nothing is taken from the file but graph, system, assumptions, what was asked for, and the mapping. The
judge prices the mapping again; every plan is bounded again, where its first bounds do not exclude it by
the shortest path through its down-sets, cut off at the claimed step time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from dfopt.documents.plan import Plan
from dfopt.documents.result import PlanRecord, Request, Result
from dfopt.errors import DfoptError, DocumentError, Infeasible, Issue, NoSolution
from dfopt.judge import evaluate
from dfopt.optimizer.options import Options
from dfopt.optimizer.outcome import matrices, proven_gap
from dfopt.optimizer.prepared import Prepared, Stage, prepare, with_starts
from dfopt.problems.bounds import plan_bound
from dfopt.problems.certificates import Certificate, certified
from dfopt.problems.intrachip import CutOff, optimize_intrachip
from dfopt.problems.lattice import ShortestPath
from dfopt.problems.plans import plans

_SAME = 1e-9  # relative: the judge repeats itself to the last digits
_PROOF = 1e-6  # relative: what judge and problems may differ by (architecture, law 5)


@dataclass(frozen=True)
class Verification:
    """What was found: a verdict in words, the gap that could be verified, and what is wrong."""

    verdict: str
    gap: float | None
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every claim holds."""
        return not self.problems


def verify(result: Result, time_limit: float = 60.0) -> Verification:
    """Check a result without trusting its figures.

    Parameters
    ----------
    result : Result
        As loaded from a file.
    time_limit : float
        Seconds for bounding the plans again; what is not reached counts as unproven.

    Returns
    -------
    Verification
        ``verified optimal``, ``verified within 0.3 %``, or what is wrong.
    """
    problems = list(_contents(result))
    try:
        score = evaluate(result.mapping, result.graph, result.system, result.assumptions)
    except DfoptError as error:
        return Verification("wrong", None, (*problems, f"the mapping does not fit graph and system: {error}"))
    problems += [f"limit broken: {violation}" for violation in score.violations]
    problems += _differences("$.score", score.to_data(), result.score.to_data())
    claims = {
        "step_time_s": (result.step_time_s, score.step_time_s),
        "utilization": (result.utilization, score.utilization),
        "gap": (result.gap, proven_gap(result.step_time_s, result.bound_s)),
    }
    for name, (claimed, found) in claims.items():
        if abs(claimed - found) > _SAME * max(abs(found), 1.0):
            problems.append(f"$.{name}: the file says {claimed!r}, recomputed {found!r}")
    bound, unproven = _bound(result, score.step_time_s, time.perf_counter() + time_limit)
    gap = max(0.0, (score.step_time_s - bound) / score.step_time_s)
    gap = 0.0 if gap <= _PROOF else gap
    if result.gap < gap - _PROOF:
        problems.append(f"$.gap: the file claims {result.gap:.3g}, only {gap:.3g} could be verified ({unproven})")
    if result.status == "optimal" and result.gap > 0:
        problems.append(f"$.status: optimal, but the gap is {result.gap:.3g}")
    if problems:
        return Verification("wrong", gap, tuple(problems))
    return Verification("verified optimal" if gap == 0.0 else f"verified within {100 * gap:.2g} %", gap, ())


def verdict(result: Result, name: str) -> str:
    """What ``dfopt check`` says of a result that holds.

    Raises
    ------
    DocumentError
        If it claims what does not hold.
    """
    found = verify(result)
    if found.ok:
        return found.verdict
    split = [problem.partition(": ") if problem.startswith("$") else ("$", "", problem) for problem in found.problems]
    raise DocumentError(name, [Issue(where, message) for where, _, message in split])


def _contents(result: Result) -> list[str]:
    """What the file says about itself: seal, digests, the plan twice, the matrices."""
    found = []
    if result.seal != result.unsealed_digest():
        found.append("$.seal: the file was changed after it was written")
    digests = {
        "graph_digest": result.graph.digest(),
        "system_digest": result.system.digest(),
        "assumptions_digest": result.assumptions.digest(),
    }
    for name, digest in digests.items():
        if getattr(result.provenance, name) != digest:
            found.append(f"$.provenance.{name}: the file says {getattr(result.provenance, name)}, recomputed {digest}")
    if result.plan != result.mapping.plan:
        found.append("$.plan: not the plan of the mapping")
    try:
        same = matrices(result.graph, result.mapping) == result.matrices
    except KeyError as missing:
        return [*found, f"$.mapping.kernels: kernel {missing} is not mapped"]
    return found if same else [*found, "$.matrices: not those of the mapping"]


def _differences(path: str, mine: Any, theirs: Any) -> list[str]:
    """Where two dumped documents differ beyond rounding."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        keys = [*mine, *(key for key in theirs if key not in mine)]
        return [d for key in keys for d in _differences(f"{path}.{key}", mine.get(key), theirs.get(key))]
    if isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        return [
            d for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) for d in _differences(f"{path}[{i}]", a, b)
        ]
    numbers = isinstance(mine, int | float) and isinstance(theirs, int | float)
    same = abs(mine - theirs) <= _SAME * max(abs(mine), abs(theirs)) if numbers else mine == theirs
    return [] if same else [f"{path}: the file says {theirs!r}, recomputed {mine!r}"]


def _bound(result: Result, step_s: float, deadline: float) -> tuple[float, str]:
    """Least step time that any plan allows, and what stood in the way of a proof."""
    asked: Request = result.request
    legal, _ = plans(
        result.graph,
        result.system,
        tp=asked.tp,
        pp=asked.pp,
        dp=asked.dp,
        tp_dims=asked.tp_dims,
        pp_dims=asked.pp_dims,
        dp_dims=asked.dp_dims,
    )
    options = Options(
        request=asked,
        assumptions=result.assumptions,
        p_max=asked.p_max,
        formulation="auto",
        gap=0.0,
        deadline=deadline,
        pin_sharding=asked.pin_sharding,
        pin_partition=asked.pin_partition,
        progress=None,
        seed=0,
    )
    best, why = step_s, ""
    for plan in legal:
        low, reason = _plan_low(result, plan, options, step_s)
        if low < best:
            best, why = low, f"{plan.label}: {reason}"
    return best, why


def _plan_low(result: Result, plan: Plan, options: Options, step_s: float) -> tuple[float, str]:
    """Lower bound on the step time of one plan, at least the claimed time if the plan cannot beat it."""
    first = plan_bound(result.graph, result.system, plan, result.assumptions)
    if first >= step_s:
        return first, ""
    if time.perf_counter() > options.deadline:
        return first, "no time left"
    best, why = step_s, ""
    try:
        for variant in prepare(result.graph, result.system, plan, options):
            records = (r for r in result.plans if r.plan == plan and r.tile_count == variant.tile_count)
            low, reason = _variant_low(variant, next(records, None), options, step_s)
            if max(low, first) < best:
                best, why = max(low, first), reason
    except Infeasible:
        return step_s, ""  # no mapping at all under this plan
    return best, why


def _certified_low(
    variant: Prepared, stage: Stage, record: PlanRecord | None, options: Options, low: float, step_s: float
) -> tuple[float, str]:
    """The bound that the prices in the file prove: one MILP shows whether a block is worth more than its time."""
    assert stage.tables is not None and stage.limits is not None
    solves = [s for s in record.solves if s.problem == "intrachip"] if record is not None else []
    if not solves:
        return low, "too many down-sets to search, and no solve in the file that proves more"
    left = max(options.deadline - time.perf_counter(), 0.0)
    if solves[-1].formulation == "assignment":
        return _solved_low(variant, stage, left, low, step_s)
    certificate = Certificate(np.array(solves[-1].kernel_prices), solves[-1].partition_price)
    proven = certified(stage.tables, stage.limits, certificate, left)
    found = variant.step_of([max(proven, stage.floor)])
    return min(found, step_s), "the prices in the file do not prove more"


def _solved_low(variant: Prepared, stage: Stage, left: float, low: float, step_s: float) -> tuple[float, str]:
    """The bound that the matrices prove once more: nothing but a solve of its own shows what a MILP has shown."""
    assert stage.tables is not None and stage.limits is not None
    cutoff = variant.layer_cutoff(step_s)
    assert cutoff is not None  # the caller saw to it
    try:
        found = optimize_intrachip(
            stage.tables, stage.limits, time_limit=left, formulation="assignment", cutoff=cutoff * (1 - _PROOF)
        )
    except CutOff:
        return step_s, ""
    except NoSolution:
        return low, "the time limit"
    return variant.step_of([found.bound]), "a faster mapping exists"


def _variant_low(variant: Prepared, record: PlanRecord | None, options: Options, step_s: float) -> tuple[float, str]:
    low = variant.floor()
    cutoff = variant.layer_cutoff(step_s)
    if low >= step_s * (1 - _PROOF):
        return low, ""
    if not variant.sharding_proven:
        return low, "its sharding was not proven in time"
    stage = variant.stages[0]
    if stage.tables is not None and not stage.tables.chip.fused:
        return with_starts(variant).best_known(), ""  # kernel by kernel the start is all there is
    if cutoff is None or stage.tables is None or stage.limits is None:
        return low, "its stages differ, and each alone bounds too little"
    if stage.lattice is None:
        return _certified_low(variant, stage, record, options, low, step_s)
    path = ShortestPath(stage.tables, stage.limits, stage.lattice, cutoff * (1 - _PROOF)).run(options.deadline)
    if not path.complete:
        return max(low, variant.step_of([path.bound])), "the time limit"
    if path.partition_k is None:
        return step_s, ""
    return variant.step_of([path.objective]), "a faster mapping exists"
