"""Check the claims of a result: what its mapping costs, that every limit is kept, that nothing is faster.

Nothing is taken from the file but graph, system, assumptions, what was asked for, and the mapping. The
judge prices the mapping again; every plan is bounded again, where its first bounds do not exclude it by
the shortest path through its down-sets, cut off at the claimed step time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dfopt.documents.plan import Plan
from dfopt.documents.result import Request, Result, SolveRecord
from dfopt.errors import DfoptError, DocumentError, Infeasible, Issue, NoSolution, PlanError
from dfopt.fusion.blocks import StageTables
from dfopt.fusion.certificates import Certificate, certified
from dfopt.fusion.intrachip import CutOff, IntraChipLimits, optimize_intrachip
from dfopt.fusion.lattice import ShortestPath
from dfopt.judge import evaluate
from dfopt.search.assembling import matrices, proven_gap
from dfopt.search.candidate import Prepared, Stage, prepare, with_starts
from dfopt.search.options import Options
from dfopt.search.sharing import Memo, StageWork
from dfopt.setting.bounds import PlanBounds
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans

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
    problems += _alternatives(result)
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
    gap = 0.0 if gap <= _PROOF * (1 + 1e-3) else gap  # a bound that is shown to within _PROOF, and rounded
    if result.gap < gap - _PROOF:
        problems.append(f"$.gap: the file claims {result.gap:.3g}, only {gap:.3g} could be verified ({unproven})")
    if result.status == "optimal" and result.gap > 0:
        problems.append(f"$.status: optimal, but the gap is {result.gap:.3g}")
    if problems:
        return Verification("wrong", gap, tuple(problems))
    what = " of the bound without heat" if result.heat is not None else ""
    return Verification("verified optimal" if gap == 0.0 else f"verified within {100 * gap:.2g} %{what}", gap, ())


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


def _alternatives(result: Result) -> list[str]:
    """What is wrong with the next best mappings: each is judged again; that nothing comes before them is not shown."""
    found, before = [], result.step_time_s
    drawn = {graph.microbatch: graph for graph in (result.graph, *result.variants)}
    for i, one in enumerate(result.alternatives or ()):
        where = f"$.alternatives[{i}]"
        graph = drawn.get(one.microbatch)
        if graph is None:
            found.append(f"{where}.microbatch: no graph here has {one.microbatch}")
            continue
        try:
            score = evaluate(one.mapping, graph, result.system, result.assumptions)
        except DfoptError as error:
            found.append(f"{where}.mapping: does not fit graph and system: {error}")
            continue
        found += [f"{where}: limit broken: {violation}" for violation in score.violations]
        found += _differences(f"{where}.step_time_s", score.step_time_s, one.step_time_s)
        if one.step_time_s < before:
            found.append(f"{where}.step_time_s: faster than what stands before it")
        before = one.step_time_s
    return found


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
    for graph in (result.graph, *result.variants):
        try:
            legal, _ = asked_plans(graph, result.system, asked, result.assumptions)
        except PlanError:  # a microbatch that no plan can use
            continue
        bounds, memo = PlanBounds(Setting(graph, result.system, result.assumptions)), Memo()
        for plan in legal:
            low, reason = _plan_low(result, plan, bounds, memo, options, step_s)
            if low < best:
                best, why = low, f"{plan.label}: {reason}"
    return best, why


def _plan_low(
    result: Result, plan: Plan, bounds: PlanBounds, memo: Memo, options: Options, step_s: float
) -> tuple[float, str]:
    """Lower bound on the step time of one plan, at least the claimed time if the plan cannot beat it."""
    instance = bounds.setting.under(plan)
    first = bounds.seconds(instance)
    if first >= step_s:
        return first, ""
    if time.perf_counter() > options.deadline:
        return first, "no time left"
    best, why = step_s, ""
    try:
        bounds.check_dram(instance)
        for variant in prepare(instance, options, memo):
            low, reason = _variant_low(result, variant, options, step_s)
            if max(low, first) < best:
                best, why = max(low, first), reason
    except Infeasible:
        return step_s, ""  # no mapping at all under this plan
    return best, why


def _solves(result: Result, variant: Prepared, stage: int) -> list[SolveRecord]:
    """Fusions of the file that say something about this one: of all plans that give a chip the same work."""
    setting, key = variant.instance.setting, variant.instance.shared.plan
    return [
        solve
        for record in result.plans
        if record.tile_count == variant.tile_count
        for solve in record.solves
        if solve.problem == "intrachip" and solve.stage == stage and setting.under(record.plan).shared.plan == key
    ]


def _variant_low(result: Result, variant: Prepared, options: Options, step_s: float) -> tuple[float, str]:
    """Lower bound on the step time under one sharding: stage by stage, until one alone shows the claimed time.

    Each stage of the mapping is searched with the time that the claim leaves it, when the others take what they are
    shown to take at least. If it takes more, no mapping under this sharding is faster than the claim.
    """
    floor = variant.floor()
    if floor >= step_s * (1 - _PROOF):
        return floor, ""
    if not variant.sharding_proven:
        return floor, "its sharding was not proven in time"
    priced = [number for number, stage in enumerate(variant.stages) if stage.tables is not None]
    if not any(_of(stage).tables.chip.fused for stage in (variant.stages[n] for n in priced)):
        return with_starts(variant).best_known(), ""  # kernel by kernel the start is all there is
    if len(priced) > 1:  # a start says which stage decides, and what it takes at most
        variant = with_starts(variant)
    lows = [stage.floor for stage in variant.stages]

    def pressed(number: int) -> float:
        left = variant.cutoff(number, step_s, lows)
        assert left is not None  # the claimed time has an end
        return -(variant.stages[number].best_known / left if left > 0 else np.inf)

    reasons = []
    for number in sorted(priced, key=pressed):
        cutoff = variant.cutoff(number, step_s, lows)
        assert cutoff is not None
        lows[number], reason = _stage_low(result, variant, number, options, cutoff * (1 - _PROOF))
        if lows[number] >= cutoff * (1 - _PROOF):
            return step_s, ""
        reasons += [reason] if reason else []
    low = variant.step_of(lows)
    return max(low, floor), reasons[0] if reasons else "a faster mapping exists"


@dataclass(frozen=True)
class _Priced:
    """A stage that has kernels."""

    tables: StageTables
    limits: IntraChipLimits
    work: StageWork


def _of(stage: Stage) -> _Priced:
    assert stage.tables is not None and stage.limits is not None and stage.work is not None
    return _Priced(stage.tables, stage.limits, stage.work)


def _stage_low(result: Result, variant: Prepared, number: int, options: Options, cutoff: float) -> tuple[float, str]:
    """Seconds that no fusion of a stage beats, at least the cutoff if none is faster; and why they are no more."""
    stage = variant.stages[number]
    mine = _of(stage)
    if mine.work.low_s >= cutoff:  # another plan with the same layer has shown it
        return mine.work.low_s, ""
    if stage.lattice is None:
        return _certified_low(result, variant, number, options, cutoff)
    # of several stages only one decides: a cutoff near what the start takes keeps the search of the others short
    least = min(cutoff, stage.best_known * (1 + _PROOF))
    relaxed = replace(mine.limits, dram_left=np.inf)
    path = ShortestPath(mine.tables, relaxed, stage.lattice, least).run(options.deadline)
    if path.complete:
        mine.work.low_s = max(mine.work.low_s, least if path.partition_k is None else path.objective)
        if path.partition_k is not None and mine.limits != relaxed:
            path = ShortestPath(mine.tables, mine.limits, stage.lattice, least).run(options.deadline)
    if not path.complete:
        return max(mine.work.low_s, path.bound), "the time limit"
    return least if path.partition_k is None else path.objective, ""


def _certified_low(
    result: Result, variant: Prepared, number: int, options: Options, cutoff: float
) -> tuple[float, str]:
    """The bound that the prices in the file prove: one MILP shows whether a block is worth more than its time."""
    mine, solves = _of(variant.stages[number]), _solves(result, variant, number)
    if not solves:
        return mine.work.low_s, "too many down-sets to search, and no solve in the file that proves more"
    left = max(options.deadline - time.perf_counter(), 0.0)
    if any(solve.formulation == "assignment" for solve in solves):
        return _solved_low(mine, left, cutoff)
    for prices in {(solve.kernel_prices, solve.partition_price) for solve in solves if solve.kernel_prices}:
        proven = certified(mine.tables, mine.limits, Certificate(np.array(prices[0]), prices[1]), left)
        mine.work.low_s = max(mine.work.low_s, proven)
    return mine.work.low_s, "the prices in the file do not prove more"


def _solved_low(mine: _Priced, left: float, cutoff: float) -> tuple[float, str]:
    """The bound that the matrices prove once more: nothing but a solve of its own shows what a MILP has shown."""
    try:
        found = optimize_intrachip(mine.tables, mine.limits, time_limit=left, formulation="assignment", cutoff=cutoff)
    except CutOff as proof:
        # of plans with more DRAM left this says nothing, unless the limit could not matter
        if mine.tables.bytes_g.sum() <= mine.limits.dram_left:
            mine.work.low_s = max(mine.work.low_s, proof.seconds)
        return max(mine.work.low_s, cutoff), ""
    except NoSolution:
        return mine.work.low_s, "the time limit"
    return found.bound, ""
