"""Check what was asked for, search all plans of all graphs, assemble the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from dfopt.bnb import UNITS_PER_S, Clock
from dfopt.documents.graph import Graph
from dfopt.documents.heat import HeatProof
from dfopt.documents.plan_records import Sensitivity
from dfopt.documents.request import Request
from dfopt.documents.result import Result
from dfopt.documents.uncollected import SELDOM, uncollected
from dfopt.errors import DfoptError, Infeasible, NoSolution
from dfopt.interrupts import FIRST_AFTER, SIGNALS, cause, interruptible, wall_limit
from dfopt.judge import evaluate
from dfopt.milp import check_solver
from dfopt.questions import Resolved
from dfopt.search.assembling import assemble, fixed_of
from dfopt.search.graph_search import GraphSearch
from dfopt.search.sensitivity import sensitivities
from dfopt.search.starts import begin
from dfopt.search.state import SearchState
from dfopt.search.workload_search import WorkloadSearch
from dfopt.setting.instance import Setting
from dfopt.solving.options import Only, Options, Progress
from dfopt.solving.solved import Solved
from dfopt.terms.refusals import check, check_names, check_variants

T = TypeVar("T")
_SEARCH = 0.6  # of the time, where the best plan is then re-optimised with heat
_SENSITIVITY = 0.05, 1.0  # of the time, and seconds at most, that are kept for what more of a resource brings


@uncollected(*SELDOM)
def search(
    resolved: Resolved,
    began: float,
    progress: Callable[[Progress], None] | None = None,
    variants: Sequence[Graph] = (),
    only: Only | None = None,
) -> Result:
    """Find, prove and judge the fastest mapping for a question whose names are already resolved.

    Parameters
    ----------
    resolved : Resolved
        Question with its documents.
    began : float, s
        Reading of :func:`time.perf_counter` at which the time limit began to count.
    progress : callable, optional
        Called with a :class:`Progress` now and then.
    variants : sequence of Graph
        The same workload drawn in other ways; they are searched too.
    only : Only, optional
        Plans to search; the answer covers no others. Their known bounds are raised to those that the search proves.

    Raises
    ------
    PlanError, Infeasible, NoSolution, SolverFailure, ScoreMismatch
        See :mod:`dfopt.errors`.
    """
    request = resolved.request.model_copy(update={"solver": check_solver(resolved.request.solver)})
    settings = _settings(resolved, request, variants)
    options = Options(request, Clock.of_limit(_search_s(request), began), progress, only)
    state = SearchState(options)
    workload = WorkloadSearch([GraphSearch(each, state) for each in settings])
    with wall_limit(options.clock.last - began, began):
        jointly = settings[0].assumptions.sharding_objective == "joint"
        if jointly and (only is None or not request.objective.limits):
            begin(state, [graph.space for graph in workload.graphs])
        workload.run()
    if only is not None:
        for each in workload.usable:
            each.raise_known()
    if not workload.usable:
        raise next(each.refused for each in workload.graphs if each.refused is not None)
    if not state.solutions:
        plain = resolved.question.graph is not None and resolved.largest is None
        start_s = state.began - began if plain else 0.0
        raise _explained(workload.failure(), settings, request, start_s)
    best, *others = state.solutions
    planned = max(request.time_limit * UNITS_PER_S - options.clock.spent, 0.0)
    within = replace(state.options, clock=Clock(began + request.time_limit, planned=planned))
    drawn, later = replace(settings[0], graph=best.graph), Later()
    more: tuple[Sensitivity, ...] = ()
    if request.sensitivity and state.stopped not in SIGNALS:
        with wall_limit(request.time_limit, began):
            more = later.step("sensitivity", lambda: sensitivities(drawn, best, within, state.known_arcs), more)
    hot, shown = _with_heat(best, others, drawn, within, later)
    kept = [hot] if shown is not None else [hot, *others]
    question = resolved.question.named() if resolved.question.graph is not None else None
    return assemble(workload, kept, more, shown, tuple(later.missing), question, began)


def _settings(resolved: Resolved, request: Request, variants: Sequence[Graph]) -> list[Setting]:
    """What is mapped onto what, by graph; what cannot be asked of it is refused."""
    system = resolved.system
    if request.heat == "aware":
        from dfopt.search.heat_aware import needs_stack  # like other imports in functions: not for those who never ask

        system = needs_stack(system, None)
    if system.stack is not None:
        from dfopt.technology.stack_models import power_of

        power_of(system.stack)  # what is wrong with a stack is told before the search
    chosen = request.assuming(resolved.assumptions)
    setting, *rest = (Setting.resolved(drawn, system, chosen) for drawn in (*resolved.graphs, *variants))
    check_variants(setting.graph, [each.graph for each in rest])
    check(setting, request)
    for each in rest:
        check_names(each.graph, request)
    return [setting, *(replace(setting, graph=each.graph) for each in rest)]


def _with_heat(
    best: Solved, others: Sequence[Solved], setting: Setting, within: Options, later: Later
) -> tuple[Solved, HeatProof | None]:
    """The best mapping with heat, where that is asked for and works out; else as it is on the stack of its system."""
    shown: HeatProof | None = None
    if within.request.heat == "aware":
        from dfopt.search.heat_aware import made_aware

        aware = later.step("heat: aware", lambda: made_aware(best, setting, within, others), (best, shown), DfoptError)
        best, shown = aware
    if shown is None and setting.system.stack is not None:
        best = replace(best, score=evaluate(best.mapping, best.graph, setting.system, setting.assumptions))
    return best, shown


def _explained(error: BaseException, settings: Sequence[Setting], request: Request, start_s: float) -> BaseException:
    """Why there is no mapping, with what was fixed, or with about the time that a first mapping takes."""
    if isinstance(error, Infeasible):
        graphs, first = [each.graph for each in settings], settings[0]
        return Infeasible(error.report, error.least, fixed_of(graphs, first.system, first.assumptions, request))
    if not isinstance(error, NoSolution) or request.time_limit > FIRST_AFTER * start_s:
        return error
    hint = f"{error.progress}; a first mapping takes about {FIRST_AFTER * start_s:.0f} s"
    return NoSolution(error.bound, error.seconds, hint, error.unit)


def _search_s(request: Request) -> float:
    """Seconds of the limit that the search has; what comes behind it has the rest."""
    part = request.time_limit * (_SEARCH if request.heat == "aware" else 1.0)
    return part - min(_SENSITIVITY[0] * part, _SENSITIVITY[1]) * request.sensitivity


class Later:
    """Optional steps after a search: if one fails or is stopped, the result goes out without it and says so."""

    def __init__(self) -> None:
        self.missing: list[str] = []

    def step(self, name: str, work: Callable[[], T], otherwise: T, *refusals: type[Exception]) -> T:
        """The value of ``work``, or ``otherwise`` if it fails or is stopped.

        Parameters
        ----------
        name : str
            Name of the step in the sentence on its failure.
        work : callable
            The step.
        otherwise : any
            Value in its place.
        *refusals : exception types
            Errors to raise to the caller instead.
        """
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
