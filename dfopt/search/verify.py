"""Check the claims of a result: what its mapping costs, that every limit is kept, that nothing is better.

Nothing is taken from the file but graph, system, assumptions, what was asked for, and the mapping. The judge prices the
mapping again; the plans are listed and bounded again (:mod:`dfopt.search.claims`), and every field that claims
something is compared with what follows from that. What cannot be checked without solving again is listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dfopt.bnb import Clock
from dfopt.documents.certificate import Certificate
from dfopt.documents.mapping import Mapping
from dfopt.documents.plan_records import DIFFERENT, PlanRecord, different
from dfopt.documents.request import Request
from dfopt.documents.result import Result
from dfopt.documents.score import Score
from dfopt.errors import DfoptError, DocumentError, Issue
from dfopt.judge import evaluate
from dfopt.search.assembling import conclusions, digests_of, matrices
from dfopt.search.claims import SAME, Plans, differences
from dfopt.search.kept import PROOF, Kept
from dfopt.search.naming import names_of
from dfopt.search.other_code import TrustedCounts
from dfopt.search.sensitivity import MORE, MOST_S, RESOURCES, more_of, sensitivities
from dfopt.setting.instance import Setting
from dfopt.solving.options import Options
from dfopt.solving.priced import priced_mapping
from dfopt.solving.solved import Solved

NOT_CHECKED = (
    "$.seconds, $.trace, $.plans[*].solves: how the search went, from which nothing follows",
    "$.provenance: which versions ran; its digests, solver and seed are compared",
    "$.plans[*].value: of plans whose mappings are not in the file",
    "$.plans[*].bound, $.plans[*].level_bound: above the last mapping that is kept, beyond which nothing is claimed",
)
"""Fields that no check can hold against anything, and why."""

_LEAST_S, _TIMES, _LONGEST_S = 60.0, 4.0, 3600.0
"""Time limit of a check: seconds at least, times what the search took, and seconds at most; see `seconds_for`."""
_PROVEN: Final = 1e-3
"""Share of the tolerance by which a gap may exceed it: the gap is a quotient of figures that are rounded."""
_HASTY: Final = 10
"""A solve that took less than this part of the time limit was not stopped by it."""


@dataclass(frozen=True)
class Verification:
    """Outcome of a check: verdict in words, verified gaps, problems, and claims that were not checked.

    ``gap`` is the distance to what any mapping could reach, ``level_gap`` that under the sharding of each plan;
    ``checked`` names the kind of check, if sharding and fusion are one problem; ``notes`` lists documents that differ
    from those of the zoo under the same names. If plans were bounded, ``rests`` counts the claims that only the
    search's own code could show; ``certificate`` proves all others, if it is valid.
    """

    verdict: str
    gap: float | None
    problems: tuple[str, ...]
    level_gap: float | None = None
    unchecked: tuple[str, ...] = NOT_CHECKED
    checked: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rests: TrustedCounts | None = None
    certificate: Certificate | None = None

    @property
    def ok(self) -> bool:
        """Whether every claim that was checked holds."""
        return not self.problems


def seconds_for(spent: float) -> float:
    """Default time limit of a check, s: at least a minute, four times the search time, at most an hour.

    Bounds take about as long to show again as they took to find, on a machine as busy as that one was.
    """
    return min(max(_LEAST_S, _TIMES * spent), _LONGEST_S)


def verify(result: Result, time_limit: float | None = None, certificate: Certificate | None = None) -> Verification:
    """Check a result without trusting its figures.

    Parameters
    ----------
    result : Result
        The result, as loaded from a file.
    time_limit : float, optional
        Seconds for bounding the plans again, by default :func:`seconds_for`. Claims not reached by then count as not
        checked, not as wrong.
    certificate : Certificate, optional
        Certificate of an earlier check of this result: its bounds are checked, and no others are computed.

    Returns
    -------
    Verification
        ``verified optimal``: no mapping in the space is better. ``verified optimal per level``: none with the sharding
        that is optimal for the inter-chip problem of its plan. Otherwise ``verified within``, or the problems. Claims
        that only the search's own code could show are conditions of the verdict.
    """
    from dfopt import __version__

    time_limit = seconds_for(result.seconds) if time_limit is None else time_limit
    problems = [] if result.seal == result.unsealed_digest() else ["$.seal: the file was changed after it was written"]
    if certificate is not None and certificate.result != result.seal:
        other_seal = f"certificate: of a result with the seal {certificate.result!r}, this one has {result.seal!r}"
        return Verification("wrong", None, (*problems, other_seal))
    if other := list(_other_inputs(result)):  # what it was found for is not here
        return Verification("wrong", None, (*problems, *other))
    names = names_of(result, today=result.provenance.dfopt == __version__)
    problems += [*names.problems, *_contents(result)]
    setting = Setting(result.graph, result.system, result.assumptions)
    score, wrong = judged_again("$.mapping", result.mapping, setting, result.request)
    problems += wrong
    if score is None:
        return Verification("wrong", None, tuple(problems))
    problems += differences("$.score", score.to_data(), result.score.to_data())
    value = score.step_time_s
    problems += _alternatives(result)
    clock = Clock.of_limit(time_limit)
    wrong, unsure = _sensitivities(result, value, clock)
    problems += wrong
    shown = Plans(result, value, clock, certificate)
    if certificate is not None and not shown.joint:
        own = "certificate: a result of two levels has none, as the search's own code bounds its levels"
        return Verification("wrong", None, (*problems, own))
    shown.check()
    problems += shown.problems
    gap, level_gap = (rounded((value - low) / value) for low, _ in shown.least.values())
    problems += _figures(result, shown.records, score, value)
    short = []
    for (name, (_, why)), verified in zip(shown.least.items(), (gap, level_gap), strict=True):
        if (claimed := getattr(result, name)) >= verified - PROOF:
            continue
        if shown.late:
            short.append(
                f"$.{name}: the file claims {claimed:.3g}, {verified:.3g} was shown in {time_limit:g} s ({why})"
            )
        else:
            problems.append(f"$.{name}: the file claims {claimed:.3g}, only {verified:.3g} could be verified ({why})")
    unchecked = [*NOT_CHECKED, *names.unchecked, *shown.unchecked, *unsure, *short]
    unchecked += [f"what {time_limit:g} s were too short for (more: --time-limit, time_limit=)"] * shown.late
    interrupted, heated = result.status == "interrupted_with_solution", result.heat is not None
    unchecked += ["$.status: that it was interrupted and not out of time"] * interrupted
    unchecked += [
        "$.heat: that no other partitions, levels and pauses are faster within the limits of the stack"
    ] * heated
    if problems:
        return Verification("wrong", gap, tuple(problems), level_gap, tuple(unchecked))
    checked = [_shown(result, shown.records, value, gap, len(shown.undecided))] if shown.joint else []
    checked.append(str(shown.rests))
    if certificate is not None:
        checked.append(f"{shown.rests.of_regions} regions were bounded as the certificate says")
    elif shown.joint:
        certificate = Certificate(result=result.seal, classes=tuple(shown.other.classes))
    if result.fixed:
        checked.append(f"all mappings in the space ({result.space}) have {', '.join(result.fixed)}")
    words = words_of(gap, level_gap, heated) + shown.rests.condition
    also = tuple(unchecked), tuple(checked), tuple(names.notes), shown.rests, certificate
    return Verification(words, gap, (), level_gap, *also)


def _figures(result: Result, records: list[PlanRecord], score: Score, value: float) -> list[str]:
    """What the figures and the words of a result, its status among them, do not follow from its records."""
    of = (result.graph, *result.variants), result.system, result.assumptions
    kept, graph_records = Kept.in_result(result), result.apart or ()
    concluded = conclusions(*of, result, records, graph_records, kept, result.heat)
    again = {"value": value, "utilization": score.utilization, **concluded}
    if result.status == "interrupted_with_solution" and again["status"] == "limit_with_solution":
        again["status"] = result.status
    return differences("$", again, {name: getattr(result, name) for name in again})


def rounded(gap: float) -> float:
    """A gap for display: 0 within the tolerance between judge and solver, else rounded."""
    return 0.0 if gap <= PROOF * (1 + _PROVEN) else gap


def words_of(gap: float, level_gap: float, heat: bool = False) -> str:
    """The verdict in words, from the gaps that could be verified.

    Parameters
    ----------
    gap, level_gap : float
        Verified gaps, over all mappings and for the chosen sharding.
    heat : bool
        Whether the result is heat-aware.
    """
    what = " of the bound without heat" if heat else ""
    if gap == 0.0:
        return "verified optimal"
    rest = f"another sharding could be up to {100 * gap:.3g} % faster"
    if level_gap == 0.0:
        return f"verified optimal per level; {rest}"
    if level_gap == gap:  # sharding and fusion were bounded together
        return f"verified within {100 * gap:.3g} %{what}"
    return f"verified within {100 * level_gap:.3g} %{what} per level; {rest}"


def _shown(result: Result, records: list[PlanRecord], value: float, gap: float, undecided: int) -> str:
    """What the bounds on all plans say together."""
    count, near = len({record.plan for record in records}), f"{100 * max(gap, PROOF):.3g} %"
    empty = sum(record.status == "infeasible" for record in records) - undecided
    graph_count = len(result.apart or ())
    graphs = f", and what all chips have to do at least under any of {graph_count} other graphs" * bool(graph_count)
    return (
        f"{count} plans were listed and bounded again{graphs}: in the space that $.proof states no plan, sharding or"
        f" fusion is below {value:.6g} s by more than {near}" + f"; {empty} of them fit under no sharding" * bool(empty)
    )


def verdict(verification: Verification, name: str) -> str:
    """Text that ``dfopt check`` prints for a valid document, with the claims that it could not check.

    Raises
    ------
    DocumentError
        If a claim is wrong.
    """
    if verification.ok:
        lines = {"note": verification.notes, "checked": verification.checked, "not checked": verification.unchecked}
        return "\n".join([verification.verdict, *(f"  {word}: {what}" for word in lines for what in lines[word])])
    split = [
        problem.partition(": ") if problem.startswith("$") else ("$", "", problem) for problem in verification.problems
    ]
    raise DocumentError(name, [Issue(where, message) for where, _, message in split])


def _other_inputs(result: Result) -> Iterator[str]:
    """Documents that are not those which the file was written for, and rules that no search takes."""
    of = result.provenance
    digests = digests_of((result.graph, *result.variants), result.system, result.assumptions)
    for name, digest in digests.items():
        if getattr(of, name) != digest:
            yield f"$.provenance.{name}: the file says {getattr(of, name)}, recomputed {digest}"
    if result.plan != result.mapping.plan:
        yield "$.plan: not the plan of the mapping"
    for name, asked in (("solver", result.request.solver), ("seed", result.request.seed)):
        if getattr(of, name) != asked:
            yield f"$.provenance.{name}: the file says {getattr(of, name)!r}, $.request says {asked!r}"
    for name in ("overlap", "execution"):
        if (word := getattr(result.assumptions, name)) in ("auto", "chip"):
            yield f"$.assumptions.{name}: found {word!r}, expected what that is on this chip"


def _contents(result: Result) -> list[str]:
    """What the file says about itself: the matrices, and heat where it was asked for."""
    wrong = list[str]()
    for name in ("plans", "apart", "unlisted", "alternatives"):
        order = [each.order for each in getattr(result, name) or ()]
        wrong += [f"$.{name}: found another order than that of sizes, bounds or values"] * (order != sorted(order))
    heated = result.request.heat == "aware" and not any(what.startswith("heat") for what in result.missing or ())
    if (result.heat is not None) != heated or (result.heat is not None and result.system.stack is None):
        wrong.append(
            f"$.heat: found {'none' if result.heat is None else 'a proof'}, not what $.request and $.system say"
        )
    try:
        same = matrices(result.graph, result.mapping) == result.matrices
    except KeyError as missing:
        return [*wrong, f"$.mapping.kernels: kernel {missing} is not mapped"]
    return wrong if same else [*wrong, "$.matrices: not those of the mapping"]


def judged_again(where: str, mapping: Mapping, setting: Setting, request: Request) -> tuple[Score | None, list[str]]:
    """The judge's score of a mapping, and sentences on what is wrong with it.

    Parameters
    ----------
    where : str
        Name of the mapping in the sentences.
    mapping, setting : Mapping, Setting
        The mapping, with the workload and machine that it is for.
    request : Request
        Limits and pins that it must keep.

    Returns
    -------
    (Score or None, list of str)
        None: the mapping does not fit. The sentences also name limits that it breaks, and figures of kernels that no
        search would give in these partitions.
    """
    graph, system, wrong = setting.graph, setting.system, list[str]()
    for name, claimed, document in (("graph", mapping.graph, graph), ("system", mapping.system, system)):
        if claimed != document.name:
            wrong.append(f"{where}.{name}: the file says {claimed!r}, recomputed {document.name!r}")
    try:
        score = evaluate(mapping, graph, system, setting.assumptions)
    except DfoptError as error:
        return None, [*wrong, f"{where}: does not fit graph and system: {error}"]
    wrong += [f"{where}: limit broken: {violation}" for violation in score.violations]
    for limit in request.objective.limits:
        if (value := score.step_time_s) > limit.at_most * (1 + PROOF):
            wrong.append(f"{where}: {limit.metric} is {value:.6g}, at most {limit.at_most:.6g} was asked for")
    parts = [part for stage in range(mapping.stages) for part in mapping.partitions(stage)]
    if setting.assumptions.forward_backward != "halves" and not all(parts):
        wrong.append(f"{where}.kernels: found a partition without kernels, expected numbers without gaps")
    try:
        ready = priced_mapping(setting, mapping, Options(request))
        again = ready.mapping(ready.partitions(mapping))
    except DfoptError as error:
        return score, [*wrong, f"{where}: {error}"]
    given, claims = ([kernel.model_dump(mode="json") for kernel in each.kernels] for each in (again, mapping))
    return score, [*wrong, *differences(f"{where}.kernels", given, claims)]


def _alternatives(result: Result) -> list[str]:
    """What is wrong with the next best mappings: each is judged again, and is another than those before it."""
    wrong, before = [], result.value
    drawn = {(graph.microbatch, graph.variant): graph for graph in (result.graph, *result.variants)}
    by = result.request.distinct_in
    seen = {different(result.mapping, result.graph.variant, by)}
    if len(result.alternatives or ()) >= result.request.top:
        wrong.append(f"$.alternatives: {result.request.top} mappings were asked for, with the best one")
    for i, other in enumerate(result.alternatives or ()):
        where = f"$.alternatives[{i}]"
        graph = drawn.get((other.microbatch, other.variant))
        if graph is None:
            wrong.append(f"{where}.microbatch: no graph here has {other.microbatch}")
            continue
        setting = Setting(graph, result.system, result.assumptions)
        score, more = judged_again(f"{where}.mapping", other.mapping, setting, result.request)
        wrong += more
        if score is None:
            continue
        wrong += differences(f"{where}.value", score.step_time_s, other.value)
        if other.value < before:
            wrong.append(f"{where}.value: faster than what stands before it")
        if (kind := different(other.mapping, other.variant, by)) in seen:
            wrong.append(f"{where}.mapping: {DIFFERENT[by]}, one like it stands before it")
        before = other.value
        seen.add(kind)
    return wrong


def _sensitivities(result: Result, value: float, clock: Clock) -> tuple[list[str], list[str]]:
    """What is wrong with the figures for more of a resource, worked out again, and what could not be checked."""
    problems, unchecked, asked = list[str](), list[str](), result.request
    if not asked.sensitivity:
        return ["$.sensitivity: was not asked for"] * bool(result.sensitivity), []
    best = Solved(result.graph, result.plan, result.mapping, result.score, value, 0.0, (), result.p_max, False)
    setting = Setting(result.graph, result.system, result.assumptions)
    listed = () if result.heat else sensitivities(setting, best, Options(asked, clock))
    again = {each.resource: each for each in listed}
    claimed = [each.resource for each in result.sensitivity]
    if (order := [name for name in RESOURCES if name in claimed]) != claimed:
        problems.append(f"$.sensitivity: expected {', '.join(order)}, each of them once")
    for number, claim in enumerate(result.sensitivity):
        where, recomputed = f"$.sensitivity[{number}]", again.get(claim.resource)
        better = more_of(result.system, claim.resource, MORE)
        score = evaluate(result.mapping, result.graph, better, result.assumptions, physical=False)
        most = score.step_time_s
        if score.feasible and claim.value > most * (1 + SAME):
            problems.append(f"{where}.value: the file says {claim.value!r}, the mapping itself takes {most!r}")
        if result.heat is None:
            problems += differences(f"{where}.speedup", result.value / claim.value, claim.speedup)
        if recomputed is None or not recomputed.proven:
            unchecked.append(f"$.sensitivity[*].value: that no mapping is better with more {claim.resource}")
        elif claim.value < recomputed.value * (1 - PROOF) or (
            claim.proven and claim.value > recomputed.value * (1 + PROOF)
        ):
            problems.append(f"{where}.value: the file says {claim.value!r}, recomputed {recomputed.value!r}")
        elif not claim.proven and result.seconds < min(MOST_S, asked.time_limit / _HASTY):  # no time was short
            problems.append(f"{where}.proven: the file says False, recomputed True")
        elif not claim.proven:
            unchecked.append(f"$.sensitivity[*].proven: more was shown of {claim.resource} than the file says")
    if lacking := [resource for resource in again if resource not in claimed]:
        short = result.missing or result.status == "interrupted_with_solution"
        (unchecked if short else problems).append(f"$.sensitivity: says nothing of {', '.join(lacking)}")
    return problems, unchecked
