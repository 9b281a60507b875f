"""An exploration checked without trusting its figures: derived, bounded and judged again."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from dfopt.documents.design import Design
from dfopt.documents.exploration import DesignBox, EnergyRange, Exploration, WithoutHeat
from dfopt.documents.mapping import Mapping
from dfopt.errors import DfoptError, DocumentError, Issue, PlanError
from dfopt.exploring.decisions import Box, Decisions
from dfopt.exploring.explore import workload_of
from dfopt.exploring.heated import Heated, seconds_on_stack, without_heat
from dfopt.exploring.ranged import at_both_ends
from dfopt.exploring.sensitivity import BUDGETS, raised
from dfopt.exploring.workload import Workload
from dfopt.physics.merits import MERITS
from dfopt.search.claims import SAME
from dfopt.search.proving import PROOF
from dfopt.search.verify import verify

__all__ = ["check_exploration", "problems_of"]


def check_exploration(made: Exploration, path: str, time_limit: float = 60.0) -> str:
    """The verdict on an exploration, in words.

    Every box is derived and bounded anew, and the best mapping verified as a result of its own. What time does not
    suffice for is said to be unchecked.

    Raises
    ------
    DocumentError
        If anything in it is wrong: which box, and which figure.
    """
    began = time.perf_counter()
    if made.energy_range is not None:
        return _checked_ends(made, made.energy_range, path, time_limit)
    issues = list(problems_of(made))
    if not issues:
        of = made.request
        workload = workload_of(made.graph, made.designs, made.assumptions, of.seed, of.objective, of.stack, of.heat)
        workload.deadline = math.inf
        issues += _best(made, workload, time_limit)
    late, unknown = 0, ""
    if not issues and isinstance(workload, Heated) and made.without_heat is not None:
        workload.deadline = began + time_limit
        found = _without_heat(made, made.without_heat, workload)
        workload.deadline, unknown = math.inf, "" if found is not None else "what is best without heat"
        issues += found or []
    if not issues:
        for number, box in enumerate(made.boxes):
            if time.perf_counter() - began > time_limit:
                late += 1
            else:
                issues += _bounded(workload, number, box)
    if issues:
        raise DocumentError(path, [Issue(where, said, "explore again") for where, said in issues])
    boxes = f"{len(made.boxes) - late} of {len(made.boxes)} boxes of {made.effort.designs} designs bounded again"
    if late or unknown:
        what = ", ".join(filter(None, [f"{late} boxes" if late else "", unknown]))
        return f"not checked in {time_limit:g} s: {what}; all else holds, {boxes}"
    what = "verified optimal" if made.gap <= PROOF else f"verified within {made.gap:.3%}"
    return "\n  not checked: ".join([f"{what}: {boxes}", *_unchecked(made)])


def _unchecked(explored: Exploration) -> Iterator[str]:
    """Fields that no check holds against anything, and why."""
    yield "$.effort: what the search took leaves no trace"
    yield "$.boxes[*].stage: any bound that shows what is claimed will do"
    if explored.asked is None:
        yield "$.designs, $.request: their digest is not in the file"
    if explored.request.sensitivity and len(explored.sensitivity) < len(BUDGETS):
        yield "$.sensitivity: of some budgets there was no time to say anything, or there are none"


def _checked_ends(made: Exploration, ends: EnergyRange, path: str, time_limit: float) -> str:
    """The verdict on an exploration and on both ends of its range, each in a third of the time."""
    issues = [Issue(*wrong, "explore again") for wrong in problems_of(made)]
    whole = made.model_copy(update={"energy_range": None})
    of = {"": whole.sealed(), "$.energy_range.low": ends.low, "$.energy_range.high": ends.high}
    asked = made.request.model_copy(update={"sensitivity": False})
    for (where, one), designs in zip(list(of.items())[1:], _designs_at_ends(made), strict=True):
        same = (one.graph, one.assumptions, one.request) == (made.graph, made.assumptions, asked)
        if one.designs != designs or not same or one.energy_range is not None:
            message = "is not what was asked for, with the energy of DRAM at this end"
            issues.append(Issue(where, message, "explore again"))
    said = []
    for where, one in of.items() if not issues else ():
        try:
            said.append(check_exploration(one, path, time_limit / len(of)))
        except DocumentError as error:
            issues += [Issue(one.where.replace("$", where or "$", 1), one.message, one.remedy) for one in error.issues]
    if issues:
        raise DocumentError(path, issues)
    first, *unchecked = said[0].splitlines()
    low, high = (text.splitlines()[0] for text in said[1:])
    return "\n".join([f"{first}; with the least energy of DRAM {low}; with the most {high}", *unchecked])


def _designs_at_ends(made: Exploration) -> tuple[tuple[Design, ...], tuple[Design, ...]]:
    try:
        return at_both_ends(made.designs)
    except DfoptError:
        return (), ()  # equal to no designs


def problems_of(made: Exploration) -> Iterator[tuple[str, str]]:
    """What of an exploration does not agree with the rest of it, without deriving a chip: where, and what is wrong."""
    if made.seal != made.unsealed_digest():
        yield "$.seal", "does not fit the contents: the file was edited"
    if made.asked is not None and made.asked != made.asked_digest():
        yield "$.asked", "does not fit designs, graph, assumptions and request"
    if made.version != made.result.provenance.dfopt:
        yield "$.version", f"found {made.version!r}, the result says {made.result.provenance.dfopt!r}"
    budgets = [each.budget for each in made.sensitivity]
    if budgets != [name for name in BUDGETS if name in budgets]:
        yield "$.sensitivity", f"found {', '.join(budgets)}, expected {', '.join(BUDGETS)}, each once"
    bounds = [math.inf if box.bound is None else box.bound for box in made.boxes]
    least = min([made.value, *bounds])
    if not math.isclose(made.bound, least, rel_tol=SAME):
        yield "$.bound", f"found {made.bound!r}, the least of the boxes and the value is {least!r}"
    gap = max(0.0, 1 - made.bound / made.value) if made.value > 0 else 0.0
    if not math.isclose(made.gap, gap, rel_tol=SAME, abs_tol=1e-12):
        yield "$.gap", f"found {made.gap!r}, expected {gap!r}"
    last = made.value if made.request.top == 1 else math.inf
    if made.others and len(made.others) == made.request.top - 1:
        last = made.others[-1].value
    rest = math.inf if made.others_bound is None else made.others_bound
    gap = max(gap, 0.0 if rest >= last else 1 - rest / last)
    if made.status == "optimal" and gap > PROOF:
        yield "$.status", f"found optimal, but the gap is {gap:.3g}"
    if made.status == "gap_reached" and gap > made.request.gap + PROOF:
        yield "$.status", f"found gap_reached, but the gap is {gap:.3g}, at most {made.request.gap:g} was asked for"
    values = [made.value, *(other.value for other in made.others)]
    if values != sorted(values) or len(values) > made.request.top:
        yield "$.others", f"found {len(values)} values, expected at most {made.request.top}, ascending"
    score = made.result.score
    value = MERITS[made.request.objective].of(score) if made.request.heat is None else seconds_on_stack(score)
    if made.value != value:
        yield "$.value", f"found {made.value!r}, the result says {value!r}"
    if made.graph != made.result.graph:
        yield "$.result.graph", "is not that of $.graph"
    spaces = [Decisions(design) for design in made.designs]
    yield from _others(made)
    designs = sum(one.count for one in spaces)
    try:
        places = [_place(spaces, number, box) for number, box in enumerate(made.boxes)]
    except PlanError as error:
        where, _, said = str(error).partition(": ")
        yield where, said
        return
    held = sum(math.prod(high - low + 1 for low, high in zip(box.low, box.high, strict=True)) for box in places)
    if held != designs or made.effort.designs != designs:
        yield "$.boxes", f"hold {held} designs, the choices allow {designs}"
    for (first, one), (second, other) in combinations(enumerate(places), 2):
        if one.which == other.which and all(
            a <= d and c <= b for a, b, c, d in zip(one.low, one.high, other.low, other.high, strict=True)
        ):
            yield f"$.boxes[{second}]", f"holds designs that $.boxes[{first}] holds too"
            return


def _named(made: Exploration) -> list[DesignBox]:
    """The best design and the others, each as a box of one."""
    named = [(made.best_design, made.best), *((other.design, other.best) for other in made.others)]
    return [DesignBox(design=which, low=sizes, high=sizes, bound=None, stage="solve") for which, sizes in named]


def _others(made: Exploration) -> Iterator[tuple[str, str]]:
    """What of the next best designs does not agree with the boxes."""
    named = [(one.design, one.low, one.high) for one in _named(made)]
    if any(one in named[:at] for at, one in enumerate(named)):
        yield "$.others", "found a design that is named twice, expected others"
    rest = [box for box in made.boxes if (box.design, box.low, box.high) not in named]
    bound = min((box.bound for box in rest if box.bound is not None), default=None)
    if made.others_bound != bound:
        yield "$.others_bound", f"found {made.others_bound!r}, the least of the other boxes is {bound!r}"


def _place(spaces: Sequence[Decisions], number: int, box: DesignBox) -> Box:
    """The positions of the sizes of a box."""
    if box.design >= len(spaces):
        raise PlanError(f"$.boxes[{number}].design: found {box.design}, there are {len(spaces)}")
    decisions = spaces[box.design]
    ends: list[tuple[int, ...]] = []
    for end in ("low", "high"):
        named = getattr(box, end)
        if list(named) != list(decisions.sizes):
            raise PlanError(f"$.boxes[{number}].{end}: found {', '.join(named)}, expected {', '.join(decisions.sizes)}")
        at = []
        for name, size in named.items():
            if size not in decisions.sizes[name]:
                raise PlanError(f"$.boxes[{number}].{end}.{name}: found {size:g}, which is no choice of the design")
            at.append(decisions.sizes[name].index(size))
        ends.append(tuple(at))
    return Box(ends[0], ends[1], box.design)


def _best(made: Exploration, workload: Workload, time_limit: float) -> Sequence[tuple[str, str]]:
    """What is wrong with the best design and its result."""
    first, *others = _named(made)
    try:
        best = _place(workload.spaces, 0, first)
    except PlanError as error:
        return [("$.best", str(error).partition(": ")[2])]
    for number, (other, alone) in enumerate(zip(made.others, others, strict=True)):
        try:
            value = _judged(workload, _place(workload.spaces, 0, alone), other.mapping)
        except PlanError as error:
            return [(f"$.others[{number}].best", str(error).partition(": ")[2])]
        if not math.isclose(other.value, value, rel_tol=SAME):
            return [(f"$.others[{number}].value", f"found {other.value!r}, the judge says {value!r}")]
    system = workload.system(best)
    if system is None or system != made.result.system:
        return [("$.result.system", "is not what the best design is derived to be")]
    if made.result.assumptions != workload.resolved(system):
        return [("$.result.assumptions", "are not those of $.assumptions on these chips")]
    found = verify(made.result, time_limit)
    return [("$.result", problem) for problem in found.problems] or list(_sensitive(made, workload))


def _judged(workload: Workload, box: Box, mapping: Mapping) -> float:
    """The value of a mapping that calls its graph and its system by their names."""
    system = workload.system(box)
    if system is not None and (mapping.graph, mapping.system) != (workload.graph.name, system.name):
        raise PlanError(f"mapping: found {mapping.graph!r} on {mapping.system!r}, not {workload.graph.name!r} on it")
    return workload.judged(box, mapping)


def _sensitive(made: Exploration, workload: Workload) -> Iterator[tuple[str, str]]:
    """What is wrong with what 10 % more of each budget would buy: derived and judged again."""
    for number, one in enumerate(made.sensitivity):
        where = f"$.sensitivity[{number}]"
        design, more = raised(made.designs[made.best_design], one.budget)
        if not math.isclose(one.more, more, rel_tol=SAME):
            yield f"{where}.more", f"found {one.more!r}, expected {more!r}"
            continue
        space = Decisions(design)
        try:
            box = _place([space], 0, DesignBox(low=one.best, high=one.best, bound=None, stage="solve"))
        except PlanError as error:
            yield f"{where}.best", str(error).partition(": ")[2]
            continue
        alone = Workload((space,), made.graph, made.assumptions, workload.request, made.request.objective)
        try:
            value = _judged(alone, box, one.mapping)
        except PlanError as error:
            yield f"{where}.mapping", str(error).partition(": ")[2]
            continue
        if not math.isclose(one.value, value, rel_tol=SAME):
            yield f"{where}.value", f"found {one.value!r}, the judge says {value!r}"


def _without_heat(made: Exploration, said: WithoutHeat, workload: Heated) -> list[tuple[str, str]] | None:
    """What is wrong with the design that is best without heat: searched, mapped and judged again; none out of time."""
    try:
        box = _place(
            workload.spaces, 0, DesignBox(design=said.design, low=said.best, high=said.best, bound=None, stage="solve")
        )
    except PlanError as error:
        return [("$.without_heat.best", str(error).partition(": ")[2])]
    found = without_heat(workload, made.request.gap)
    if found is None or time.perf_counter() > workload.deadline:
        return None
    least = found.predicted
    if made.status != "time_limit" and least < said.predicted * (1 - made.request.gap) * (1 - SAME):
        return [("$.without_heat.best", f"found {said.predicted!r} s, {least!r} s can be had: {_words(found.best)}")]
    if (found.design, found.best) != (said.design, said.best):  # where time was up others were looked at
        found = without_heat(replace(workload, within=(box,)), made.request.gap)
    if found is None or time.perf_counter() > workload.deadline:
        return None
    return [
        (f"$.without_heat.{name}", f"found {one!r}, expected {other!r}")
        for name in ("predicted", "judged", "frequency")
        if not _same(one := getattr(said, name), other := getattr(found, name))
    ]


def _same(one: float | None, other: float | None) -> bool:
    return one == other if one is None or other is None else math.isclose(one, other, rel_tol=SAME)


def _words(sizes: dict[str, float]) -> str:
    return ", ".join(f"{name} {size:g}" for name, size in sizes.items())


def _bounded(workload: Workload, number: int, box: DesignBox) -> Iterator[tuple[str, str]]:
    """What is wrong with the bound of a box: bounded by all stages up to the one that shows it."""
    claimed = math.inf if box.bound is None else box.bound
    place, shown = _place(workload.spaces, number, box), 0.0
    for stage in workload.stages:
        try:
            # a limit a little above what is claimed: what is not below it is shown
            shown = max(shown, stage.of(place, claimed * (1 + PROOF / 2)))
        except DfoptError as error:
            yield f"$.boxes[{number}]", str(error)
            return
        if shown >= claimed * (1 - PROOF) or (math.isinf(claimed) and math.isinf(shown)):
            return
    yield f"$.boxes[{number}].bound", f"found {box.bound!r}, only {shown!r} could be shown"
