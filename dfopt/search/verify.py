"""Check the claims of a result: what its mapping costs, that every limit is kept, that nothing is better.

Nothing is taken from the file but graph, system, assumptions, what was asked for, and the mapping. The judge prices the
mapping again; the plans are listed and bounded again (:mod:`dfopt.search.proving`), and every field that claims
something is compared with what follows from that. What cannot be checked without solving again is listed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from dfopt.documents.result import OF_EARLIER, Result
from dfopt.documents.score import Score
from dfopt.errors import DfoptError, DocumentError, Issue
from dfopt.judge import evaluate
from dfopt.search.assembling import matrices, proof_of, proven, proven_gap, status_of
from dfopt.search.claims import SAME, Plans, differences
from dfopt.search.proving import PROOF
from dfopt.search.sensitivity import more_of
from dfopt.search.solved import judged

NOT_CHECKED = (
    "$.seconds, $.provenance but its digests, and times, sizes, traces and notes of single solves",
    "values of plans that are not the best: their mappings are not in the file",
)

_LEAST_S, _TIMES, _MOST_S = 60.0, 4.0, 3600.0


@dataclass(frozen=True)
class Verification:
    """What was found: a verdict in words, the gaps that could be verified, what is wrong and what was not checked.

    ``gap`` is the distance to what any mapping could reach, ``level_gap`` that under the sharding of each plan;
    ``checked`` says what that is, where sharding and fusion are one problem.
    """

    verdict: str
    gap: float | None
    problems: tuple[str, ...]
    level_gap: float | None = None
    unchecked: tuple[str, ...] = NOT_CHECKED
    checked: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every claim that was checked holds."""
        return not self.problems


def seconds_for(result: Result) -> float:
    """Seconds that a check has where nobody says: a minute, or four times what the search took, an hour at most.

    Bounds take about as long to show again as they took to find, on a machine as busy as that one was.
    """
    return min(max(_LEAST_S, _TIMES * result.seconds), _MOST_S)


def verify(result: Result, time_limit: float | None = None) -> Verification:
    """Check a result without trusting its figures.

    Parameters
    ----------
    result : Result
        As loaded from a file.
    time_limit : float, optional
        Seconds for bounding the plans again, :func:`seconds_for` if left out; what is not reached by then counts as
        not checked, and not as wrong.

    Returns
    -------
    Verification
        ``verified optimal``: no mapping in the space is better. ``verified optimal per level``: none with the sharding
        that is optimal for the inter-chip problem of its plan. Otherwise ``verified within``, or what is wrong.
    """
    problems, time_limit = list(_contents(result)), seconds_for(result) if time_limit is None else time_limit
    try:
        score = evaluate(result.mapping, result.graph, result.system, result.assumptions)
    except DfoptError as error:
        return Verification("wrong", None, (*problems, f"the mapping does not fit graph and system: {error}"))
    problems += [f"limit broken: {violation}" for violation in score.violations]
    unsaid = {name: None for name in Score.LATER if getattr(result.score, name) is None}
    problems += differences("$.score", score.model_copy(update=unsaid).to_data(), result.score.to_data())
    value = judged(score, result.request.objective.metric)
    problems += [
        f"$.request.objective.limits: {limit.metric} is {value:.6g}, at most {limit.at_most:.6g} was asked for"
        for limit in result.request.objective.limits
        if judged(score, limit.metric) > limit.at_most * (1 + PROOF)
    ]
    problems += _alternatives(result)
    problems += _sensitivities(result, value)
    shown = Plans(result, value, time.perf_counter() + time_limit)
    problems += shown.problems
    gap, level_gap = (_rounded((value - low) / value) for low in (shown.bound, shown.level_bound))
    bound, level_bound = proven(result.value, result.plans, result.apart or ())
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
        if abs(claimed - found) > SAME * max(abs(found), 1.0):
            problems.append(f"$.{name}: the file says {claimed!r}, recomputed {found!r}")
    status = status_of(*gaps, result.request.gap, result.plans)
    if result.status != status and not (result.status == "interrupted_with_solution" and gaps[1] > 0):
        problems.append(f"$.status: the file says {result.status}, its plans say {status}")
    short = []
    for name, claimed, found, why in (
        ("gap", result.gap, gap, shown.why),
        ("level_gap", result.level_gap, level_gap, shown.level_why),
    ):
        if claimed < found - PROOF and shown.late:
            short.append(f"$.{name}: the file claims {claimed:.3g}, {found:.3g} was shown in {time_limit:g} s ({why})")
        elif claimed < found - PROOF:
            problems.append(f"$.{name}: the file claims {claimed:.3g}, only {found:.3g} could be verified ({why})")
    graphs, chosen = (result.graph, *result.variants), result.assumptions
    sentence = proof_of(
        graphs, result.system, result.plans, result.apart or (), chosen, result.p_max, result.gap, result.request
    )
    said_before = result.proof.startswith(OF_EARLIER)
    if not said_before and result.proof != sentence and not (result.heat and result.proof.startswith(sentence)):
        problems.append(f"$.proof: the file says {result.proof!r}, its plans say {sentence!r}")
    unchecked = [*NOT_CHECKED, *shown.unchecked, *short]
    if shown.late:
        unchecked.append(f"what {time_limit:g} s were too short for (more: --time-limit, time_limit=)")
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
    checked = (_shown(result, value, gap, len(shown.undecided)),) if shown.joint else ()
    words = _words(gap, level_gap, result.heat is not None)
    return Verification(words, gap, (), level_gap, tuple(unchecked), checked)


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


def _shown(result: Result, value: float, gap: float, undecided: int) -> str:
    """What the bounds on all plans say together."""
    count, near = len({record.plan for record in result.plans}), f"{100 * max(gap, PROOF):.2g} %"
    empty = sum(record.status == "infeasible" for record in result.plans) - undecided
    whole = len(result.apart or ())
    graphs = f", and what all chips have to do at least under any of {whole} other graphs" * bool(whole)
    return (
        f"{count} plans were listed and bounded again{graphs}: in the space that $.proof states no plan, sharding or"
        f" fusion is below {value:.6g} s by more than {near}" + f"; {empty} of them fit under no sharding" * bool(empty)
    )


def verdict(result: Result, name: str, time_limit: float | None = None) -> str:
    """What ``dfopt check`` says of a result that holds, and what it could not check in so many seconds.

    Raises
    ------
    DocumentError
        If it claims what does not hold.
    """
    found = verify(result, time_limit)
    if found.ok:
        said = [f"  checked: {what}" for what in found.checked] + [f"  not checked: {what}" for what in found.unchecked]
        return "\n".join([found.verdict, *said])
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
    drawn = {(graph.microbatch, graph.variant): graph for graph in (result.graph, *result.variants)}
    for i, one in enumerate(result.alternatives or ()):
        where = f"$.alternatives[{i}]"
        graph = drawn.get((one.microbatch, one.variant))
        if graph is None:
            found.append(f"{where}.microbatch: no graph here has {one.microbatch}")
            continue
        try:
            score = evaluate(one.mapping, graph, result.system, result.assumptions)
        except DfoptError as error:
            found.append(f"{where}.mapping: does not fit graph and system: {error}")
            continue
        found += [f"{where}: limit broken: {violation}" for violation in score.violations]
        found += differences(f"{where}.value", judged(score, result.request.objective.metric), one.value)
        if one.value < before:
            found.append(f"{where}.value: faster than what stands before it")
        before = one.value
    return found


def _sensitivities(result: Result, value: float) -> Iterator[str]:
    """What is wrong with the figures for more of a resource: the mapping itself runs on the better machine too."""
    metric = result.request.objective.metric
    for i, one in enumerate(result.sensitivity):
        where, better = f"$.sensitivity[{i}]", more_of(result.system, one.resource, 1.1)
        score = evaluate(result.mapping, result.graph, better, result.assumptions, physical=False)
        if score.feasible and one.value > judged(score, metric) * (1 + SAME):
            yield f"{where}.value: the file says {one.value!r}, the mapping itself takes {judged(score, metric)!r}"
        if abs(one.speedup - result.value / one.value) > SAME * abs(one.speedup) and result.heat is None:
            yield f"{where}.speedup: the file says {one.speedup!r}, recomputed {result.value / one.value!r}"
