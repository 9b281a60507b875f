"""Check what was asked for, search all plans of all graphs, assemble the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TypeVar

from dfopt.bnb import UNITS_PER_S, Clock
from dfopt.documents.graph import Graph
from dfopt.documents.heat import HeatProof
from dfopt.documents.plan_records import Sensitivity
from dfopt.documents.request import Request
from dfopt.documents.result import Result
from dfopt.errors import DfoptError, NoSolution
from dfopt.interrupts import FIRST_AFTER, LIMIT, SIGNALS, cause, interruptible, wall_limit
from dfopt.judge import evaluate
from dfopt.milp import check_solver
from dfopt.questions import Resolved
from dfopt.search.assembling import assemble, left_open
from dfopt.search.graph_search import GraphSearch
from dfopt.search.kept import Kept
from dfopt.search.sensitivity import sensitivities
from dfopt.search.space import search_space, together
from dfopt.search.starts import begin
from dfopt.search.state import SearchState
from dfopt.search.unlisted import in_few_words
from dfopt.search.workload_search import WorkloadSearch
from dfopt.setting.instance import Setting
from dfopt.solving.options import Only, Options, Progress
from dfopt.technology.stack_models import power_of
from dfopt.terms.refusals import check, check_names, check_variants

T = TypeVar("T")
_SEARCH = 0.6  # of the time, where the best plan is then re-optimised with heat
_SENSITIVITY = 0.05, 1.0  # of the time, and seconds at most, that are kept for what more of a resource brings


def search(
    resolved: Resolved,
    began: float,
    progress: Callable[[Progress], None] | None = None,
    variants: Sequence[Graph] = (),
    only: Only | None = None,
) -> Result:
    """Find, prove and judge the fastest mapping: the answer to a question whose names are looked up.

    ``began``: when that was, on the clock of :func:`time.perf_counter`; the time limit counts from there.
    ``variants``: the same workload drawn in other ways, which are searched too. ``only``: the plans that are searched;
    the answer says nothing of others then. What is known of each is raised to what the search shows.

    Raises
    ------
    PlanError, Infeasible, NoSolution, SolverFailure, ScoreMismatch
        See :mod:`dfopt.errors`.
    """
    system = resolved.system
    request = resolved.request.model_copy(update={"solver": check_solver(resolved.request.solver)})
    aware = request.heat == "aware"
    if aware:
        from dfopt.search.heat_aware import made_aware, needs_stack  # scipy: not for those who never ask

        system = needs_stack(system, None)
    if system.stack is not None:
        power_of(system.stack)  # what is wrong with a stack is told before the search
    chosen = request.assuming(resolved.assumptions)
    setting, *rest = (Setting.resolved(drawn, system, chosen) for drawn in (*resolved.graphs, *variants))
    graph, variants = setting.graph, [each.graph for each in rest]
    check_variants(graph, variants)
    check(setting, request)
    for other in variants:
        check_names(other, request)
    end = began + request.time_limit
    options = Options(request, Clock.of_limit(_search_s(request), began), progress, only)
    state = SearchState(options)
    settings = setting, *(replace(setting, graph=other) for other in variants)
    workload, found = WorkloadSearch([GraphSearch(each, state) for each in settings]), state.found
    jointly = setting.assumptions.sharding_objective == "joint"
    with wall_limit(options.clock.last - began, began):
        if jointly and (only is None or not request.objective.limits):
            begin(state, [graph.space for graph in workload.graphs])
        workload.run()
    searches = [each for each in workload.graphs if each.refused is None]
    if only is not None:
        for each in searches:
            each.raise_known()
    if not searches:
        raise next(each.refused for each in workload.graphs if each.refused is not None)
    if not found:
        plain = resolved.question.graph is not None and resolved.largest is None
        start_s = state.began - began if plain else 0.0
        raise _with_time_for_first(workload.failure(), start_s, request.time_limit)
    spaces = [
        search_space(each.setting, each.legal, each.lattices(), len(each.variants.placements) or 1, request)
        for each in searches
        if each.apart is None
    ]
    best, options = found[0], state.options
    kept, stopped = Kept.of(request, state.best_values), state.stopped or LIMIT
    of_each = [[left_open(record, kept, stopped) for record in each.records] for each in searches]
    records = list(chain(*of_each))
    graphs = (left_open(each.apart, kept, stopped) for each in searches if each.apart is not None)
    apart = tuple(sorted(graphs, key=lambda graph: graph.order))
    interrupted = state.stopped in SIGNALS
    planned = max(request.time_limit * UNITS_PER_S - options.clock.spent, 0.0)
    within = replace(options, clock=Clock(end, planned=planned))
    drawn, later = replace(setting, graph=best.graph), Later()
    extra: tuple[Sensitivity, ...] = ()
    if request.sensitivity and not interrupted:
        with wall_limit(request.time_limit, began):
            extra = later.step("sensitivity", lambda: sensitivities(drawn, best, within), extra)
    others = tuple(one for one in (graph, *variants) if one is not best.graph)
    shown: HeatProof | None = None
    if aware:
        cool, hot = partial(made_aware, best, drawn, within, found[1:]), (best, shown)
        best, shown = later.step("heat: aware", cool, hot, DfoptError)
        found = [best] if shown is not None else found
    if shown is None and system.stack is not None:
        found = [replace(best, score=evaluate(best.mapping, best.graph, system, setting.assumptions)), *found[1:]]
    result = assemble(
        *(system, found, kept, others, records, apart, setting.assumptions, options, began, interrupted, extra),
        together(spaces),
    )
    question = resolved.question.named() if resolved.question.graph is not None else None
    few = in_few_words(searches, of_each) if jointly else {}
    changes = {
        **few,
        "plans": tuple(sorted(few.get("plans", result.plans), key=lambda record: record.order)),
        "proof": result.proof + ("" if shown is None else f"; {shown.note}"),
        "heat": shown,
        "missing": tuple(later.missing) or None,
        "trace": (*workload.trace, (result.seconds, result.value, result.bound)),
    }
    return result.model_copy(update={**changes, "question": question}).sealed()


def _with_time_for_first(error: BaseException, start_s: float, limit_s: float) -> BaseException:
    """Where a limit was too short for any first mapping, how long that takes about."""
    if not isinstance(error, NoSolution) or limit_s > FIRST_AFTER * start_s:
        return error
    known = f"{error.known}; a first mapping takes about {FIRST_AFTER * start_s:.0f} s"
    return NoSolution(error.bound, error.seconds, known, error.unit)


def _search_s(request: Request) -> float:
    """Seconds of the limit that the search has; what comes behind it has the rest."""
    part = request.time_limit * (_SEARCH if request.heat == "aware" else 1.0)
    return part - min(_SENSITIVITY[0] * part, _SENSITIVITY[1]) * request.sensitivity


class Later:
    """Steps after a search: where one fails or is stopped, the mapping goes out without what it adds, and says so."""

    def __init__(self) -> None:
        self.missing: list[str] = []

    def step(self, name: str, work: Callable[[], T], otherwise: T, *refusals: type[Exception]) -> T:
        """What some work adds; of errors only refusals are for those who asked."""
        try:
            with interruptible():
                return work()
        except refusals:
            raise
        except KeyboardInterrupt:
            self.missing.append(f"{name} (stopped by {cause()})")
        except Exception as error:  # a bug in what comes after the answer must not cost it
            self.missing.append(f"{name} ({type(error).__name__}: {error})")
        return otherwise
