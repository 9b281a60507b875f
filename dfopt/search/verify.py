"""Check the claims of a result: what its mapping costs, that every limit is kept, that nothing is better.

Nothing is taken from the file but graph, system, assumptions, what was asked for, and the mapping. The judge prices the
mapping again; the plans are listed and bounded again (:mod:`dfopt.search.proving`), and every field that claims
something is compared with what follows from that. What cannot be checked without solving again is listed.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dfopt.documents.plan import Plan
from dfopt.documents.result import OF_EARLIER, PlanRecord, Result, Space
from dfopt.errors import DfoptError, DocumentError, Issue, PlanError
from dfopt.judge import evaluate
from dfopt.search.assembling import matrices, proof_of, proven, proven_gap, status_of
from dfopt.search.matrices import solved_together
from dfopt.search.options import Options
from dfopt.search.proving import PROOF, Low, joint_lows, plan_low
from dfopt.search.sensitivity import more_of
from dfopt.search.sharing import Memo, lattices_of
from dfopt.search.solved import judged
from dfopt.search.space import search_space, together
from dfopt.setting.bounds import PlanBounds
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.setting.tables import tile_counts

_SAME = 1e-9  # relative: the judge repeats itself to the last digits
NOT_CHECKED = (
    "$.seconds, $.provenance but its digests, and times, sizes, traces and notes of single solves",
    "values of plans that are not the best: their mappings are not in the file",
)


@dataclass(frozen=True)
class Verification:
    """What was found: a verdict in words, the gaps that could be verified, what is wrong and what was not checked.

    ``gap`` is the distance to what any mapping could reach, ``level_gap`` that under the sharding of each plan.
    """

    verdict: str
    gap: float | None
    problems: tuple[str, ...]
    level_gap: float | None = None
    unchecked: tuple[str, ...] = NOT_CHECKED

    @property
    def ok(self) -> bool:
        """Whether every claim that was checked holds."""
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
        ``verified optimal``: no mapping in the space is better. ``verified optimal per level``: none with the sharding
        that is optimal for the inter-chip problem of its plan. Otherwise ``verified within``, or what is wrong.
    """
    problems = list(_contents(result))
    try:
        score = evaluate(result.mapping, result.graph, result.system, result.assumptions)
    except DfoptError as error:
        return Verification("wrong", None, (*problems, f"the mapping does not fit graph and system: {error}"))
    problems += [f"limit broken: {violation}" for violation in score.violations]
    problems += _differences("$.score", score.to_data(), result.score.to_data())
    value = judged(score, result.request.objective.metric)
    problems += [
        f"$.request.objective.limits: {limit.metric} is {value:.6g}, at most {limit.at_most:.6g} was asked for"
        for limit in result.request.objective.limits
        if judged(score, limit.metric) > limit.at_most * (1 + PROOF)
    ]
    problems += _alternatives(result)
    problems += _sensitivities(result, value)
    shown = _Plans(result, value, time.perf_counter() + time_limit)
    problems += shown.problems
    gap, level_gap = (_rounded((value - low) / value) for low in (shown.bound, shown.level_bound))
    bound, level_bound = proven(result.value, result.plans)
    gaps = proven_gap(result.value, bound), proven_gap(result.value, level_bound)
    claims = {
        "value": (result.value, value),
        "utilization": (result.utilization, score.utilization),
        "bound": (result.bound, bound),
        "level_bound": (result.level_bound, level_bound),
        "gap": (result.gap, gaps[0]),
        "level_gap": (result.level_gap, gaps[1]),
    }
    for name, (claimed, found) in claims.items():
        if abs(claimed - found) > _SAME * max(abs(found), 1.0):
            problems.append(f"$.{name}: the file says {claimed!r}, recomputed {found!r}")
    status = status_of(*gaps, result.request.gap, result.plans)
    if result.status != status and not (result.status == "interrupted_with_solution" and gaps[1] > 0):
        problems.append(f"$.status: the file says {result.status}, its plans say {status}")
    for name, claimed, found, why in (
        ("gap", result.gap, gap, shown.why),
        ("level_gap", result.level_gap, level_gap, shown.level_why),
    ):
        if claimed < found - PROOF:
            problems.append(f"$.{name}: the file claims {claimed:.3g}, only {found:.3g} could be verified ({why})")
    sentence = proof_of((result.graph, *result.variants), result.plans, result.assumptions, result.p_max, result.gap)
    said_before = result.proof.startswith(OF_EARLIER)
    if not said_before and result.proof != sentence and not (result.heat and result.proof.startswith(sentence)):
        problems.append(f"$.proof: the file says {result.proof!r}, its plans say {sentence!r}")
    unchecked = [*NOT_CHECKED, *shown.unchecked]
    if said_before:
        unchecked.append("$.proof: the words of an earlier version")
    if result.sensitivity:
        unchecked.append("$.sensitivity: that no mapping is better with more of a resource")
    if result.alternatives:
        unchecked.append("$.alternatives: that no other mapping comes before them")
    if result.heat is not None:
        unchecked.append("$.heat, and what $.proof says of heat")
    if problems:
        return Verification("wrong", gap, tuple(problems), level_gap, tuple(unchecked))
    return Verification(_words(gap, level_gap, result.heat is not None), gap, (), level_gap, tuple(unchecked))


def _rounded(gap: float) -> float:
    """A gap, 0 where a bound is shown to within what judge and problems may differ by, and rounded."""
    return 0.0 if gap <= PROOF * (1 + 1e-3) else gap


def _words(gap: float, level_gap: float, heat: bool) -> str:
    what = " of the bound without heat" if heat else ""
    if gap == 0.0:
        return "verified optimal"
    rest = f"another sharding could be up to {100 * gap:.2g} % faster"
    if level_gap == 0.0:
        return f"verified optimal per level; {rest}"
    if level_gap == gap:  # sharding and fusion were bounded together
        return f"verified within {100 * gap:.2g} %{what}"
    return f"verified within {100 * level_gap:.2g} %{what} per level; {rest}"


def verdict(result: Result, name: str) -> str:
    """What ``dfopt check`` says of a result that holds, and what it could not check.

    Raises
    ------
    DocumentError
        If it claims what does not hold.
    """
    found = verify(result)
    if found.ok:
        return "\n".join([found.verdict, *(f"  not checked: {what}" for what in found.unchecked)])
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
    found, before = [], result.value
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
        found += _differences(f"{where}.value", judged(score, result.request.objective.metric), one.value)
        if one.value < before:
            found.append(f"{where}.value: faster than what stands before it")
        before = one.value
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


def _sensitivities(result: Result, value: float) -> Iterator[str]:
    """What is wrong with the figures for more of a resource: the mapping itself runs on the better machine too."""
    metric = result.request.objective.metric
    for i, one in enumerate(result.sensitivity):
        where, better = f"$.sensitivity[{i}]", more_of(result.system, one.resource, 1.1)
        score = evaluate(result.mapping, result.graph, better, result.assumptions, physical=False)
        if score.feasible and one.value > judged(score, metric) * (1 + _SAME):
            yield f"{where}.value: the file says {one.value!r}, the mapping itself takes {judged(score, metric)!r}"
        if abs(one.speedup - result.value / one.value) > _SAME * abs(one.speedup) and result.heat is None:
            yield f"{where}.speedup: the file says {one.speedup!r}, recomputed {result.value / one.value!r}"


class _Plans:
    """The plans of a result, listed and bounded again, and its records held against that."""

    def __init__(self, result: Result, value: float, deadline: float) -> None:
        self.result, self.value = result, value
        self.problems: list[str] = []
        self.unchecked: list[str] = []
        self.bound = self.level_bound = value
        self.least = value * (1 - 2 * PROOF)
        self.why = self.level_why = ""
        self.options = Options(result.request, deadline).asking(formulation="auto", gap=0.0, solver="highs", seed=0)
        stated = result.assumptions.sharding_objective == "joint" and result.request.formulation == "assignment"
        if stated and result.assumptions.execution == "dataflow":  # the proof says how many partitions there may be
            self.options = self.options.asking(p_max=result.p_max)
        values = sorted(record.value for record in result.plans if record.value is not None)
        # what others had to beat to be kept
        self.kept = values[result.request.top - 1] if len(values) >= result.request.top else np.inf
        self.left: dict[Plan, list[tuple[int, PlanRecord]]] = {}
        for number, record in enumerate(result.plans):
            self.left.setdefault(record.plan, []).append((number, record))
        spaces = []
        for graph in (result.graph, *result.variants):
            setting = Setting(graph, result.system, result.assumptions)
            try:
                legal, rejected = asked_plans(graph, result.system, result.request, result.assumptions)
            except PlanError:  # a microbatch that no plan can use
                continue
            for one in rejected:
                for number, record in self._take(one.plan):
                    if record.status != "infeasible":
                        self._wrong(number, "status", record.status, f"infeasible: {one.reason}")
            bounds, memo = PlanBounds(setting), Memo()
            joint = result.assumptions.sharding_objective == "joint"
            together = [plan for plan in legal if joint and solved_together(setting, plan, result.request)]
            lows, lattices = joint_lows(setting, together, self.options, value) if together else ({}, {})
            for plan in set(legal) - set(together):
                lows[plan] = plan_low(result, plan, bounds, memo, self.options, value)
            lattices = lattices or lattices_of(memo)
            for plan in legal:
                self._plan(setting, plan, lows[plan])
            spaces.append(search_space(setting, legal, lattices))
        for plan, records in self.left.items():
            self.problems += [f"$.plans[{number}]: {plan.label} is none of the plans" for number, _ in records]
        self._space(spaces)
        self._winner()

    def _wrong(self, number: int, name: str, claimed: object, found: object) -> None:
        self.problems.append(f"$.plans[{number}].{name}: the file says {claimed!r}, recomputed {found!r}")

    def _take(self, plan: Plan) -> list[tuple[int, PlanRecord]]:
        records = self.left.pop(plan, [])
        if not records:
            self.problems.append(f"$.plans: no record of {plan.label}")
        return records

    def _plan(self, setting: Setting, plan: Plan, low: Low) -> None:
        """Hold the records of a plan against what could be shown of it."""
        records = self._take(plan)
        every = low.every if low.every is not None else self.value
        level = low.level if low.level is not None else self.value
        if every < self.bound:
            self.bound, self.why = every, f"{plan.label}: {low.why or 'another sharding is not excluded'}"
        if level < self.level_bound:
            self.level_bound, self.level_why = level, f"{plan.label}: {low.why}"
        counts = (tile_counts(setting.graph, setting.assumptions, least) for least in (1, plan.shards))
        allowed = {None, *itertools.chain(*counts)}
        seen = Counter(record.tile_count for _, record in records)
        if any(count > 1 for count in seen.values()) or not set(seen) <= allowed:
            self.problems.append(f"$.plans: {plan.label} has records of tile counts {sorted(map(str, seen))}")
        for number, record in records:
            self._record(number, record, low)

    def _record(self, number: int, record: PlanRecord, low: Low) -> None:
        nothing = record.status == "infeasible" and low.every is not None
        if nothing and self.result.assumptions.sharding_objective == "joint" and (low.every or 0.0) >= self.least:
            nothing = False  # told what to prove, the search gives a plan up before it sees whether anything fits
            self._unproven("that nothing fits where plans are infeasible, but only that nothing is faster")
        if nothing or (record.status == "infeasible_per_level" and low.level is not None and record.tile_count is None):
            self._wrong(number, "status", record.status, "some mapping may fit")
        if (record.bound is None) != (record.status == "infeasible"):
            self._wrong(number, "bound", record.bound, f"none only where nothing fits, this one is {record.status}")
        # beyond the claimed value nothing needs to be shown
        for name, claimed, found in (
            ("bound", record.bound, low.every),
            ("level_bound", record.level_bound, low.level),
        ):
            if claimed is not None and found is not None and min(claimed, self.value) > found * (1 + 2 * PROOF):
                self._wrong(number, name, claimed, f"only {found!r} could be shown")
            if claimed is not None and claimed > self.value * (1 + PROOF) and name == "level_bound":
                self._unproven("level_bound above the value of the result")
        beaten = {"pruned_by_bound": record.bound, "pruned_per_level": record.level_bound}.get(record.status)
        if beaten is not None and beaten < self.kept * (1 - PROOF):
            self._wrong(number, "status", record.status, f"a bound of {beaten!r} excludes nothing")
        if record.status == "solved" and record.value is None:
            self._wrong(number, "value", None, "a value of every plan that was solved")
        if record.value is not None:
            if record.value < self.value * (1 - PROOF) and self.result.heat is None:  # heat only slows
                self._wrong(number, "value", record.value, f"nothing is better than {self.value!r}")
            gap = None if record.level_bound is None else (record.value - record.level_bound) / record.value
            if gap is None or record.gap is None or abs(record.gap - gap) > _SAME:
                self._wrong(number, "gap", record.gap, gap)

    def _unproven(self, what: str) -> None:
        text = f"$.plans: {what}"
        if text not in self.unchecked:
            self.unchecked.append(text)

    def _winner(self) -> None:
        """The record of the plan that won, with its value and what it used."""
        result = self.result
        mine = [r for r in result.plans if r.plan == result.plan and r.value is not None]
        if not any(abs((r.value or 0.0) - result.value) <= PROOF * result.value for r in mine) and result.heat is None:
            self.problems.append(f"$.plans: no record of {result.plan.label} has the value of the result")
        most = max((len(graph.kernels) for graph in (result.graph, *result.variants)), default=1)
        asked = result.request.p_max
        used = max(kernel.partition for kernel in result.mapping.kernels) + 1
        if not used <= result.p_max <= (asked if asked is not None else most):
            self.problems.append(
                f"$.p_max: the file says {result.p_max}, the mapping uses {used}, at most {asked or most} were allowed"
            )

    def _space(self, spaces: list[Space]) -> None:
        if self.result.space is None or not spaces:
            return
        found = together(spaces)
        mine, claimed = found.model_dump(), self.result.space.model_dump()
        exact = found.exact and self.result.space.exact
        names = mine if exact else ("plans", "log10_shardings", "log10_stages", "tile_counts")
        self.problems += [d for name in names for d in _differences(f"$.space.{name}", mine[name], claimed[name])]
        if not exact:
            self._unproven("$.space.log10_fusions and log10_total, which are not counted exactly")
