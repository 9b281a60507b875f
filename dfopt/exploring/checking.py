"""An exploration checked without trusting its figures: derived, bounded and judged again."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import combinations

from dfopt.bnb import Clock
from dfopt.documents.exploration import (
    BudgetSensitivity,
    Comparison,
    DesignBox,
    EnergyRange,
    Exploration,
    OtherDesign,
    WithoutHeat,
)
from dfopt.documents.exploration_request import turned
from dfopt.documents.graph import Graph
from dfopt.errors import DfoptError, DocumentError, Issue
from dfopt.exploring.comparing import comparison
from dfopt.exploring.entries import BATCH, Batches, batches_of
from dfopt.exploring.explore import restrictions
from dfopt.exploring.judged import bounds_of, layers_of, lumped_heat, value_of
from dfopt.exploring.layer_space import space_of
from dfopt.exploring.ranged import at_both_ends
from dfopt.exploring.sensitivity import with_more
from dfopt.exploring.space import Box, DesignSpace
from dfopt.exploring.workload import ExplorationProblem
from dfopt.physics.merits import MERITS
from dfopt.search.claims import SAME
from dfopt.search.kept import PROOF
from dfopt.search.verify import judged_again, verify


def check_exploration(exploration: Exploration, path: str, time_limit: float = 60.0) -> str:
    """Check an exploration and return the verdict in words.

    Every box is derived and bounded anew, and the best mapping is verified like any result. Claims for which there is
    no time are reported as unchecked.

    Parameters
    ----------
    exploration, path
        The exploration, and the name of its file in errors.
    time_limit : float, s
        Wall-clock limit of the check.

    Raises
    ------
    DocumentError
        If anything in it is wrong: which box, and which figure.
    """
    try:
        if exploration.energy_range is not None:
            return _checked_ends(exploration, exploration.energy_range, path, time_limit)
        return _checked(exploration, path, time_limit)
    except _Wrong as wrong:
        where, why = wrong.args
        raise DocumentError(path, [Issue(where, why, "explore again")]) from None


class _Wrong(Exception):
    """Where an exploration is wrong, and why, where nothing behind it can be checked."""


def _checked(exploration: Exploration, path: str, time_limit: float) -> str:
    """The verdict on an exploration without a range."""
    began = time.perf_counter()
    _refuse(path, problems_of(exploration))
    # joules bound no seconds: solves that no cutoff limits have to come as far as those of the search may have
    joules = "j" in MERITS[exploration.request.objective].needs
    request = exploration.request.model_copy(update={"gap": 0.0}) if joules else exploration.request
    batches = batches_of(_drawn(exploration), exploration.designs, exploration.assumptions, request)
    workload = batches.of[exploration.graph.batch]
    _refuse(path, _best(exploration, batches, workload, time_limit))
    workload.run.deadline = began + time_limit
    issues, unknown, late = list[tuple[str, str]](), list[str](), 0
    for where, claim in _elsewhere(exploration):
        wrong = _as_elsewhere(exploration, claim, where, workload)
        issues += wrong or []
        unknown += [where] * (wrong is None)
    _refuse(path, issues)
    workload.run.deadline = math.inf
    for number, box in enumerate(exploration.boxes):
        if time.perf_counter() - began > time_limit:
            late += 1
        else:
            issues += _bounded(batches, number, box)
    _refuse(path, issues)
    count, designs = len(exploration.boxes), f"{exploration.effort.designs:,} designs"
    boxes = f"{count - late} of {count} boxes of {designs} bounded again by the search's own code"
    if late or unknown:
        what = ", ".join([f"{late} boxes"] * bool(late) + unknown)
        return f"not checked in {time_limit:g} s: {what}; all else holds, {boxes}"
    what = "verified optimal" if exploration.gap <= PROOF else f"verified within {exploration.gap:.3%}"
    return "\n  not checked: ".join([f"{what}: {boxes}", *_unchecked(exploration)])


def _refuse(path: str, wrong: Iterable[tuple[str, str]]) -> None:
    """Raise `DocumentError` for what is wrong, if anything is: where, and why."""
    if issues := [Issue(where, why, "explore again") for where, why in wrong]:
        raise DocumentError(path, issues)


def _unchecked(explored: Exploration) -> Iterator[str]:
    """Fields that no check holds against anything, and why."""
    yield "$.effort: what the search took leaves no trace"
    yield "$.boxes[*].bound: above the last design that is kept, where a lower one holds as well"
    if explored.status not in ("optimal", "gap_reached"):
        yield "$.status: what ended the search"
    if explored.request.sensitivity and len(explored.sensitivity) < len(
        explored.request.budgets_of(explored.designs[explored.best_design])
    ):
        yield "$.sensitivity: of some budgets there was no time to say anything, or there are none"


def _checked_ends(exploration: Exploration, ends: EnergyRange, path: str, time_limit: float) -> str:
    """The verdict on an exploration and on both ends of its range, each in a third of the time."""
    wrong = [*problems_of(exploration)]
    asked = exploration.request.model_copy(update={"sensitivity": False, "compare": ()})
    of = {"$.energy_range.low": ends.low, "$.energy_range.high": ends.high}
    try:
        of_ends = at_both_ends(exploration.designs)
    except DfoptError:
        of_ends = (), ()  # equal to no designs
    for (where, end), designs in zip(of.items(), of_ends, strict=True):
        same = (end.assumptions, end.request, _digests(end)) == (exploration.assumptions, asked, _digests(exploration))
        if end.designs != designs or not same or end.energy_range is not None:
            wrong.append((where, "is not what was asked for, with the energy of DRAM at this end"))
    _refuse(path, wrong)
    verdicts, issues = [], list[Issue]()
    for where, end in {"$": exploration.model_copy(update={"energy_range": None}).sealed(), **of}.items():
        try:
            verdicts.append(check_exploration(end, path, time_limit / 3))
        except DocumentError as error:
            issues += [Issue(issue.where.replace("$", where, 1), issue.message, issue.remedy) for issue in error.issues]
    if issues:
        raise DocumentError(path, issues)
    first, *unchecked = verdicts[0].splitlines()
    low, high = (text.splitlines()[0] for text in verdicts[1:])
    return "\n".join([f"{first}; with the least energy of DRAM {low}; with the most {high}", *unchecked])


def _drawn(exploration: Exploration) -> tuple[Graph, ...]:
    """The workload with each batch, in all ways in which it is drawn."""
    return (exploration.graph, *exploration.result.variants, *exploration.other_batches)


def _digests(exploration: Exploration) -> set[str]:
    return {graph.digest() for graph in _drawn(exploration)}


def problems_of(exploration: Exploration) -> Iterator[tuple[str, str]]:
    """Inconsistencies within an exploration that need no derived chip: (path, problem)."""
    objective = exploration.request.objective
    if exploration.seal != exploration.unsealed_digest():
        yield "$.seal", "does not fit the contents: the file was edited"
    if exploration.asked != exploration.asked_digest():
        yield "$.asked", "does not fit designs, graph, assumptions and request"
    if (order := [box.order(objective) for box in exploration.boxes]) != sorted(order):
        yield "$.boxes", "found another order than that of their bounds"
    if exploration.version != exploration.result.provenance.dfopt:
        yield "$.version", f"found {exploration.version!r}, the result says {exploration.result.provenance.dfopt!r}"
    budgets = [each.budget for each in exploration.sensitivity]
    best_design = exploration.designs[min(exploration.best_design, len(exploration.designs) - 1)]
    every = exploration.request.budgets_of(best_design)
    if budgets != [name for name in every if name in budgets]:
        yield "$.sensitivity", f"found {', '.join(budgets)}, expected {', '.join(every)}, each once"
    yield from _bound_problems(exploration)
    yield from _judged(exploration)
    if exploration.fixed != (fixed := restrictions(exploration.result, exploration.request)):
        yield "$.fixed", f"found {exploration.fixed!r}, the request says {fixed!r}"
    if exploration.graph != exploration.result.graph:
        yield "$.result.graph", "is not that of $.graph"
    if exploration.graph.batch in {graph.batch for graph in exploration.other_batches}:
        yield "$.other_batches", f"found {exploration.graph.batch}, which is the batch of $.graph"
    yield from _box_problems(exploration)


def _bound_problems(exploration: Exploration) -> Iterator[tuple[str, str]]:
    """What of bounds, gap, status and the order of designs does not follow from values and boxes."""
    request, turn = exploration.request, partial(turned, exploration.request.objective)
    named = [(exploration.best_design, exploration.best), *((other.design, other.best) for other in exploration.others)]
    if any(each in named[:at] for at, each in enumerate(named)):
        yield "$.others", "found a design that is named twice, expected others"
    for name, figure in bounds_of(request.objective, exploration.value, named, exploration.boxes).items():
        if not _same(getattr(exploration, name), figure):
            yield f"$.{name}", f"found {getattr(exploration, name)!r}, expected {figure!r}"
    gap = exploration.widest_gap
    if exploration.status == "optimal" and gap > PROOF:
        yield "$.status", f"found optimal, but the gap is {gap:.3g}"
    if exploration.status != "optimal" and gap == 0.0:
        yield "$.status", f"found {exploration.status}, but nothing is left to show"
    if exploration.status == "gap_reached" and gap > request.gap + PROOF:
        yield "$.status", f"found gap_reached, but the gap is {gap:.3g}, at most {request.gap:g} was asked for"
    values = [turn(exploration.value), *(turn(other.value) for other in exploration.others)]
    if values != sorted(values) or len(values) > request.top:
        yield "$.others", f"found {len(values)} values, expected at most {request.top}, the best first"


def _box_problems(exploration: Exploration) -> Iterator[tuple[str, str]]:
    """Whether boxes hold each design that the choices allow, with each batch, and hold it once."""
    spaces = [space_of(design) for design in exploration.designs]
    designs, batches = sum(space.count for space in spaces), sorted({graph.batch for graph in _drawn(exploration)})
    places = [_place_of(spaces, batches, number, box) for number, box in enumerate(exploration.boxes)]
    held = sum(math.prod(high - low + 1 for low, high in zip(box.low, box.high, strict=True)) for box in places)
    if held != designs * len(batches) or exploration.effort.designs != designs:
        yield "$.boxes", f"hold {held} designs, the choices allow {designs} with {len(batches)} batches"
    for (first, left), (second, right) in combinations(enumerate(places), 2):
        alike = (left.which, left.batch) == (right.which, right.batch)
        if alike and all(
            a <= d and c <= b for a, b, c, d in zip(left.low, left.high, right.low, right.high, strict=True)
        ):
            yield f"$.boxes[{second}]", f"holds designs that $.boxes[{first}] holds too"
            return


def _judged(exploration: Exploration) -> Iterator[tuple[str, str]]:
    """What of the value and the temperature of the best design is not what its result says."""
    of, system = exploration.request, exploration.result.system
    lumped = None
    if of.heat == "lumped" and exploration.best_design < len(exploration.designs):
        layers = layers_of(exploration.designs[exploration.best_design], exploration.best, of.stack)
        lumped = lumped_heat(system.chip.power_w or 0.0, layers, of.limits)
    if exploration.lumped != lumped:
        yield "$.lumped", f"found {exploration.lumped!r}, expected {lumped!r}"
    value = value_of(MERITS[of.objective].within(of.limits), exploration.result.score, system, of.heat, lumped)
    value = None if value is None else turned(of.objective, value)
    if exploration.value != value:
        yield "$.value", f"found {exploration.value!r}, the result says {value!r}"


def _place(
    spaces: Sequence[DesignSpace], batches: Sequence[int], design: int, ends: dict[str, dict[str, float]]
) -> Box:
    """The place of a box, of which both ends are given, or of a design, each with where it stands.

    Sizes name the batch if there are several.
    """
    for where, end in ends.items():
        if design >= len(spaces):
            raise _Wrong(f"{where.rpartition('.')[0]}.design", f"found {design}, there are {len(spaces)}")
        sizes = ({BATCH: batches} if len(batches) > 1 else {}) | {**spaces[design].sizes}
        if list(end) != list(sizes):
            raise _Wrong(where, f"found {', '.join(end)}, expected {', '.join(sizes)}")
        for name, size in end.items():
            if size not in sizes[name]:
                raise _Wrong(f"{where}.{name}", f"found {size:g}, which is no choice of the design")
    low, high = ([*ends.values()][at] for at in (0, -1))
    if low.get(BATCH) != high.get(BATCH):
        raise _Wrong(f"{[*ends][-1]}.{BATCH}", f"found {high[BATCH]:g}, expected {low[BATCH]:g}, the same for a box")
    steps = spaces[design].sizes.items()
    first, last = (tuple(step.index(end[name]) for name, step in steps) for end in (low, high))
    return Box(first, last, design, int(low.get(BATCH, batches[0])))


def _place_of(spaces: Sequence[DesignSpace], batches: Sequence[int], number: int, box: DesignBox) -> Box:
    where = f"$.boxes[{number}]"
    return _place(spaces, batches, box.design, {f"{where}.low": box.low, f"{where}.high": box.high})


def _best(
    exploration: Exploration, batches: Batches, workload: ExplorationProblem, time_limit: float
) -> Sequence[tuple[str, str]]:
    """What is wrong with the best design and its result."""
    best = _place(workload.spaces, [*batches.of], exploration.best_design, {"$.best": exploration.best})
    if best.batch != exploration.graph.batch:
        return [("$.best.batch", f"found {best.batch}, the graph has {exploration.graph.batch}")]
    for number, other in enumerate(exploration.others):
        where = f"$.others[{number}]"
        place = _place(workload.spaces, [*batches.of], other.design, {f"{where}.best": other.best})
        _valued(exploration, batches.of[place.batch], place, where, other)
    system = workload.system(best)
    if system is None or system != exploration.result.system:
        return [("$.result.system", "is not what the best design is derived to be")]
    if exploration.result.assumptions != workload.setting(system).assumptions:
        return [("$.result.assumptions", "are not those of $.assumptions on these chips")]
    verification = verify(exploration.result, time_limit)
    return [("$.result", problem) for problem in verification.problems] or list(_sensitive(exploration, workload))


def _valued(
    exploration: Exploration, workload: ExplorationProblem, box: Box, where: str, claim: OtherDesign | BudgetSensitivity
) -> None:
    """Hold a mapping and its value against what is priced and judged again."""
    if (system := workload.system(box)) is not None:
        graph = min(workload.graphs, key=lambda graph_: workload.judged(box, claim.mapping, graph_))  # what it maps
        setting = workload.setting(system, graph)
        _, wrong = judged_again(f"{where}.mapping", claim.mapping, setting, exploration.result.request)
        if wrong:
            raise _Wrong(*wrong[0].split(": ", 1))
    if not math.isclose(claim.value, again := workload.merit.shown(workload.judged(box, claim.mapping)), rel_tol=SAME):
        raise _Wrong(f"{where}.value", f"found {claim.value!r}, the judge says {again!r}")


def _sensitive(exploration: Exploration, workload: ExplorationProblem) -> Iterator[tuple[str, str]]:
    """What is wrong with what more of each budget would buy: derived and judged again."""
    for number, claim in enumerate(exploration.sensitivity):
        where = f"$.sensitivity[{number}]"
        try:
            alone, more = with_more(workload, exploration.best_design, exploration.best, claim.budget)
        except DfoptError as error:
            yield where, str(error)
            continue
        if not math.isclose(claim.more, more, rel_tol=SAME):
            yield f"{where}.more", f"found {claim.more!r}, expected {more!r}"
            continue
        place = _place(alone.spaces, [exploration.graph.batch], 0, {f"{where}.best": claim.best})
        _valued(exploration, alone, place, where, claim)


def _elsewhere(exploration: Exploration) -> Iterator[tuple[str, WithoutHeat]]:
    """What other questions found, with where it stands."""
    if exploration.without_heat is not None:
        yield "$.without_heat", exploration.without_heat
    yield from ((f"$.comparisons[{number}]", claim) for number, claim in enumerate(exploration.comparisons))


def _as_elsewhere(
    exploration: Exploration, claim: WithoutHeat, where: str, workload: ExplorationProblem
) -> list[tuple[str, str]] | None:
    """What is wrong with what another question finds: searched, mapped and judged again; none where time is up."""

    question = claim.question if isinstance(claim, Comparison) else None

    def found_in(*within: Box) -> WithoutHeat | None:
        answer = comparison(workload, exploration.request, question, within)
        return None if time.perf_counter() > workload.run.deadline else answer

    box = _place(workload.spaces, [exploration.graph.batch], claim.design, {f"{where}.best": claim.best})
    if (answer := found_in()) is None:
        return None
    turn, unit = workload.merit.shown, workload.merit.unit
    most = turn(claim.predicted) * (1 - exploration.request.gap) * (1 - SAME)
    if exploration.status != "time_limit" and turn(answer.predicted) < most:
        sizes = ", ".join(f"{name} {size:g}" for name, size in answer.best.items())
        had = f"found {claim.predicted!r} {unit}, {answer.predicted!r} {unit} can be had: {sizes}"
        return [(f"{where}.best", had)]
    if (answer.design, answer.best) != (claim.design, claim.best):  # where time was up others were looked at
        answer = found_in(box)
    if answer is None:
        return None
    # all schedules of a design are searched within the gap: in other time they may come to another mapping
    within = max(SAME, exploration.request.gap) if question in ("tp_pp_dp", "expanded") else SAME
    return [
        (f"{where}.{name}", f"found {claimed!r}, expected {expected!r}")
        for name in ("predicted", "judged", "frequency")
        if not _same(claimed := getattr(claim, name), expected := getattr(answer, name), within)
    ]


def _same(left: float | None, right: float | None, within: float = SAME) -> bool:
    return left == right if left is None or right is None else math.isclose(left, right, rel_tol=within)


def _bounded(batches: Batches, number: int, box: DesignBox) -> Iterator[tuple[str, str]]:
    """What is wrong with the bound of a box: bounded by all relaxations up to the one that shows it."""
    workload = batches.workloads[0]
    turn = workload.merit.shown
    claimed = math.inf if box.bound is None else turn(box.bound)
    place, shown = _place_of(workload.spaces, [*batches.of], number, box), 0.0
    for relaxation in batches.problem.relaxations:
        try:
            # a limit a little above what is claimed: what is not below it is shown
            [low] = relaxation.answers([place], claimed * (1 + PROOF / 2), Clock())
            shown = max(shown, low)
        except DfoptError as error:
            yield f"$.boxes[{number}]", str(error)
            return
        if shown >= claimed * (1 - PROOF) or (math.isinf(claimed) and math.isinf(shown)):
            return
    yield f"$.boxes[{number}].bound", f"found {box.bound!r}, only {turn(shown)!r} could be shown"
