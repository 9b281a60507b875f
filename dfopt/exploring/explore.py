"""``explore``: the best design for a workload, with a proof over all designs that its choices allow."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from typing import Any, Final

import dfopt
from dfopt.bnb import Candidate, Leaf, Outcome, Snapshot
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.design import Design
from dfopt.documents.evaluation import drawn
from dfopt.documents.exploration import (
    BudgetSensitivity,
    Comparison,
    DesignBox,
    Effort,
    EnergyRange,
    Exploration,
    OtherDesign,
    WithoutHeat,
)
from dfopt.documents.exploration_request import (
    ComparisonName,
    DesignLimits,
    ExplorationRequest,
    HeatMode,
    ObjectiveName,
)
from dfopt.documents.graph import Graph
from dfopt.documents.request import Request
from dfopt.documents.result import Result
from dfopt.documents.stack import Stack
from dfopt.documents.store import Store
from dfopt.documents.technology import Technology
from dfopt.errors import Infeasible, Issue, NoSolution, PlanError, SystemSpecError
from dfopt.exploring.comparing import compared, comparison
from dfopt.exploring.entries import BATCH, Batches, DesignProgress, batches_of, explore_boxes
from dfopt.exploring.judged import bounds_of
from dfopt.exploring.ranged import at_both_ends
from dfopt.exploring.sensitivity import budget_sensitivities
from dfopt.exploring.shortage import smallest_package
from dfopt.exploring.solves import SolveResources
from dfopt.exploring.space import Box, DesignChoice
from dfopt.exploring.workload import ExplorationProblem
from dfopt.interrupts import LIMIT, cause, interruptible
from dfopt.library import as_design
from dfopt.machines.stacks import load_stack
from dfopt.machines.technologies import technology_in
from dfopt.physics.merits import MERITS
from dfopt.processes.executors import executor_of
from dfopt.questions import Resolver, listed_batches, question_of
from dfopt.search.assembling import fixed_of
from dfopt.solving import options

_SEARCH: Final = 0.9  # of the time; the rest is for the whole question about the best design
_LEFT: Final = 0.1  # of the time of a search, for which nothing goes on that was cut short


def explore(  # noqa: PLR0913 - a public function with options
    graph: Graph | str | os.PathLike[str],
    design: Design | str | os.PathLike[str],
    *,
    technologies: Sequence[Technology | str | os.PathLike[str]] = (),
    objective: ObjectiveName = "time",
    limits: DesignLimits | None = None,
    stack: Stack | str | os.PathLike[str] | None = None,
    heat: HeatMode | None = None,
    assumptions: Assumptions | str = "default",
    gap: float = 0.01,
    time_limit: float = 300.0,
    seed: int = 0,
    top: int = 1,
    sensitivity: bool = True,
    compare: Sequence[ComparisonName] = (),
    range: bool = False,
    store: str | os.PathLike[str] | None = None,
    jobs: int | None = 1,
    cluster: str | None = None,
    progress: Callable[[options.Progress], None] | None = None,
    **asked: Any,
) -> Exploration:
    """Find the best design for a workload and prove its gap over all designs and all mappings.

    Parameters
    ----------
    graph : Graph, or the name or path of one
        The workload; one that is named is drawn in every way that is free.
    design : Design, or the name or path of one
        Design with ``auto`` shares of the area, or sizes with choices, and a template.
    technologies : sequence of Technology, or of names or paths
        Technologies to try in place of the design's own. Parts, such as ``n3`` or ``n3+hbm4``, replace sections of its
        own.
    objective : str
        A metric of `dfopt.physics.merits.MERITS`, that is made least or, where more is better, largest.
    limits : DesignLimits, optional
        The longest step, the highest power and the highest price that a design may have: the system of all chips, with
        its best mapping; the largest area of a chip; and under heat the highest temperature.
    stack : Stack, or the name or path of one
        With ``heat``: stack of dies for the properties that designs do not state, as in `dfopt.derive`.
    heat : str, optional
        ``throttle``: mappings are optimized without heat, and judged at a clock that keeps the limits of the stack;
        ``aware``: they are optimized under these limits; ``lumped``: a single thermal resistance lowers the clock
        (`dfopt.physics.lumped`), without a stack. The best design without heat is reported as well.
    assumptions : Assumptions or str
        A document, or the name of a profile.
    gap : float
        Relative gap at which to stop; with 0 no design is better, under any mapping.
    time_limit : float
        In seconds; the best design so far is returned with its gap. With ``range`` each of the three has its part.
    seed : int
        Random seed of the solver.
    top : int
        Number of best designs to report; the gap is then that of the last of them.
    sensitivity : bool
        Whether to compute, in the remaining time, the gain from more of each budget and from looser limits.
    compare : sequence of str
        Other questions about the same designs: ``lumped``: heat by a formula; ``tp_pp_dp`` and ``expanded``: fewer
        schedules, as ``parallelism`` in a request. The best design of each is reported with its value in the original
        question. Each takes as much of the time as the original question.
    range : bool
        Whether to do the same at both ends of ``technology.dram.energy_range``, which `Exploration.energy_range` has.
    store : path, optional
        File of solves, created if it does not exist: an interrupted exploration resumes from it.
    jobs : int, optional
        Number of solver processes, with one thread each. None: the number of cores. The answer does not depend on it.
        Under heat, solves run one after the other.
    cluster : str, optional
        Address of the scheduler of a Dask cluster, such as ``tcp://10.0.0.1:8786``, whose workers solve in their place.
    progress : callable, optional
        Called after every bound with a :class:`dfopt.Progress`: the technology in front is its plan.
    **asked
        Parameters of the workload, and fields of :class:`dfopt.Request`, as in :func:`dfopt.solve`. With several
        values of ``batch`` the best of them is chosen too, for an objective of which more is better.

    Raises
    ------
    SystemSpecError
        If the design has nothing to choose, no template, or no room for a free component; if it lacks data that the
        objective needs, such as the price of a wafer; or, with ``range``, if its technology has no range.
    Infeasible
        If no design within the choices fits the budgets and stores the workload.
    NoSolution
        If time is up before the first design.
    """
    if objective not in MERITS:
        raise PlanError(f"objective: expected one of {', '.join(MERITS)}, found {objective!r}")
    designs = in_technologies(as_design(design), technologies)
    on = load_stack(stack) if isinstance(stack, str | os.PathLike) else stack
    ends = at_both_ends(designs) if range else ()
    graphs, fixed = asked_workload(graph, asked)
    asking = ExplorationRequest(
        objective=objective, limits=limits, options=fixed if fixed.asked() else None, heat=heat,
        stack=on, gap=gap, time_limit=time_limit, seed=seed, top=top, sensitivity=sensitivity, compare=tuple(compare),
    )  # fmt: skip
    run = SolveResources()
    problems = [batches_of(graphs, of, assumptions, asking, run) for of in (designs, *ends)]
    processes = executor_of(None if cluster is not None and jobs == 1 else jobs, cluster, stay=True)
    with closing(processes), nullcontext() if store is None else Store(store) as opened:
        run.store, run.processes = opened, processes if processes.jobs > 1 else None
        part = asking.model_copy(update={"time_limit": time_limit / len(problems)})
        exploration = explored(problems[0], part, progress)
        part = part.model_copy(update={"sensitivity": False, "compare": ()})
        ends_explored: list[Exploration] = []
        for name, problem in zip(("least", "most"), problems[1:], strict=False):
            if "interrupted" in (each.status for each in (exploration, *ends_explored)):
                return exploration
            try:
                ends_explored.append(explored(problem, part, progress))
            except Infeasible as error:
                report = f"with the {name} energy of DRAM: {error.report}"
                raise Infeasible(report, error.least, error.fixed) from None
            except NoSolution as error:
                best_known = f"{error.progress}, with the {name} energy of DRAM"
                raise NoSolution(error.bound, error.seconds, best_known, error.unit) from None
        if not ends_explored:
            return exploration
        return exploration.model_copy(
            update={"energy_range": EnergyRange(low=ends_explored[0], high=ends_explored[1])}
        ).sealed()


def asked_workload(graph: Graph | str | os.PathLike[str], asked: dict[str, Any]) -> tuple[tuple[Graph, ...], Request]:
    """The graphs of a workload, in every free way and for each batch of a list, and the request for its mappings."""
    if isinstance(graph, Graph) and not asked:
        return (graph,), Request()
    question, resolver = question_of(graph, None, None, asked), Resolver()
    batches = [question.changed(parameters={"batch": batch}) for batch in listed_batches(question)]
    drawn = [resolver.workload(asked_once) for asked_once in batches or [question]]
    if any(largest is not None for _, largest in drawn):
        differs = "the largest batch differs from design to design"
        raise PlanError(f"batch: found max, expected numbers such as 64 or 16,64,256: {differs}")
    return tuple(graph for graphs, _ in drawn for graph in graphs), question.options


def explored(
    problem: Batches,
    request: ExplorationRequest,
    progress: Callable[[options.Progress], None] | None,
    *,
    all_plans: bool = True,
) -> Exploration:
    """Solve the problem of an exploration: best design, bound on all others, and comparisons.

    Parameters
    ----------
    problem : Batches
        The designs with each batch.
    request : ExplorationRequest
        Objective, gap, time limit; and further questions, about the best batch.
    progress : callable, optional
        Receives the progress of the search over boxes.
    all_plans : bool
        Whether the result answers the question about all plans of the best design, or about its best plan alone.

    Raises
    ------
    Infeasible, NoSolution, PlanError, KeyboardInterrupt
        If no design is found: none holds the workload, time was up, no batch has a plan, or Ctrl-C came first.
    """
    began = time.perf_counter()
    part_s = request.time_limit / (1 + len(request.compare))  # each question has as much
    run = problem.workloads[0].run
    run.deadline = began + part_s
    tell = None if progress is None else _telling(problem, progress)
    outcome = _searched(problem, request, part_s * _SEARCH, tell)
    if outcome.solution is None or outcome.ending == "empty":  # which comes of no choice only
        raise _nothing(problem, outcome.ending, max(outcome.bound, 0.0), outcome.seconds)
    box, result = outcome.solution.box, outcome.solution.result
    workload = problem.of[box.batch]
    going = outcome.ending != "interrupted"
    if going and (system := workload.system(box)) is not None and request.heat != "aware":
        try:
            with interruptible():
                result = (workload.solver.complete if all_plans else workload.solver.fixed)(system, result)
            going = result.status != "interrupted_with_solution"
        except KeyboardInterrupt:  # the answer goes out without it
            going = cause() == LIMIT
    run.deadline = began + request.time_limit
    value = workload.valued(box, result.system, result.score) or outcome.best
    shown, best = workload.merit.shown, problem.named(box, box.low)
    comparisons, plain, more = _further(workload, request, box) if going else ((), None, ())
    others = tuple(
        OtherDesign(
            design=choice.box.which,
            best=problem.named(choice.box, choice.box.low),
            value=shown(value),
            mapping=choice.result.mapping,
        )
        for value, choice in outcome.kept[1:]
    )
    leaves = (_box(problem, leaf) for leaf in outcome.leaves)
    boxes = tuple(sorted(leaves, key=lambda box: box.order(workload.merit.name)))
    exploration = Exploration(
        **bounds_of(request.objective, shown(value), [(box.which, best), *((o.design, o.best) for o in others)], boxes),
        status=outcome.ending,
        value=shown(value),
        best_design=box.which,
        best=best,
        result=result,
        others=others,
        boxes=boxes,
        sensitivity=more,
        effort=_effort(problem, workload, box, outcome),
        fixed=restrictions(result, request),
        designs=tuple(other.design for other in workload.spaces),
        graph=workload.solver.drawn_as(result),
        other_batches=tuple(graph for other in problem.workloads if other is not workload for graph in other.graphs),
        assumptions=workload.assumptions,
        comparisons=comparisons,
        without_heat=plain,
        lumped=workload.lumped(box, result.system.chip.power_w or 0.0),
        request=request,
        version=dfopt.__version__,
    )
    # whatever ended it, nothing may be left to show
    status = exploration.status if exploration.widest_gap else "optimal"
    return exploration.model_copy(update={"status": status, "asked": exploration.asked_digest()}).sealed()


def _effort(problem: Batches, workload: ExplorationProblem, box: Box, outcome: Outcome[Box, DesignChoice]) -> Effort:
    """What the search looked at, listed and solved."""
    return Effort(
        designs=workload.designs,
        sizes=({BATCH: len(problem.of)} if len(problem.of) > 1 else {})
        | {name: len(steps) for name, steps in workload.spaces[box.which].sizes.items()},
        plans=sum(other.listed for other in problem.workloads),
        boxes=outcome.regions,
        bounds=outcome.bounded,
        solves=sum(other.solver.count for other in problem.workloads),
        seconds=outcome.seconds,
    )


def _searched(
    problem: Batches, request: ExplorationRequest, time_limit: float, tell: DesignProgress | None
) -> Outcome[Box, DesignChoice]:
    """The search over boxes; what a share of the time cut short goes on while time is left."""
    began = time.perf_counter()
    kept: Sequence[Candidate] = ()
    while True:
        left = time_limit - (time.perf_counter() - began)
        outcome = explore_boxes(problem, request.gap, left, top=request.top, kept=kept, progress=tell)
        going = outcome.ending == "exhausted" and time.perf_counter() - began <= time_limit * (1 - _LEFT)
        # a list: the solves of every batch go on
        if not (going and any([workload.solver.reopen() for workload in problem.workloads])):
            return replace(outcome, seconds=time.perf_counter() - began)
        kept = outcome.kept


def restrictions(result: Result, request: ExplorationRequest) -> tuple[str, ...]:
    """Sentences on what restricts the mappings of all designs: requested restrictions, and choices not searched.

    Only graphs of the result count: if time was up before all of them were searched, the microbatch counts as fixed.
    """
    graphs, asked = (result.graph, *result.variants), request.options or Request()
    return fixed_of(graphs, result.system, result.assumptions, asked)


def _further(
    workload: ExplorationProblem, request: ExplorationRequest, box: Box
) -> tuple[tuple[Comparison, ...], WithoutHeat | None, tuple[BudgetSensitivity, ...]]:
    """What other questions find, and what more of budgets would bring, as far as it comes.

    It comes after the search: a limit or Ctrl-C ends all of it.
    """
    comparisons, plain, more = list[Comparison](), None, list[BudgetSensitivity]()
    with suppress(KeyboardInterrupt), interruptible():
        comparisons.extend(compared(workload, request))
        plain = comparison(workload, request, None)
        budgets = request.budgets_of(workload.spaces[box.which].design) if request.sensitivity else ()
        more.extend(budget_sensitivities(workload, box, budgets, request.gap))
    return tuple(comparisons), plain, tuple(more)


def _nothing(problem: Batches, ending: str, bound: float, seconds: float) -> BaseException:
    """Why an exploration has no answer: what the smallest batch lacks that has a plan."""
    if len(problem.refused) == len(problem.of):
        return problem.refused[min(problem.of)]
    workload = next(candidate for batch, candidate in problem.of.items() if batch not in problem.refused)
    if ending == "interrupted":
        return KeyboardInterrupt()
    if ending != "empty":
        unit = f" {workload.merit.unit}"
        return NoSolution(workload.merit.shown(bound), seconds, "no design has been solved", unit)
    none = f"none of {workload.designs:,} designs"
    if workload.limits is not None and not (workload.refused or workload.solver.refused):
        limits, fixed = f"its limits ({workload.limits.words})", (*workload.request.fixed, *drawn(workload.graphs))
        return Infeasible(f"{none} keeps {limits}; levers: looser limits, larger budgets, more choices", None, fixed)
    if not (refused := workload.why_none()):
        return Infeasible(f"{none} fits the budgets; levers: more area, power or package, smaller sizes")
    lines = [f"{none} can be had, or holds the workload, such as this:", refused, smallest_package(workload)]
    return Infeasible("\n".join(filter(None, lines)))


def _telling(problem: Batches, progress: Callable[[options.Progress], None]) -> DesignProgress:
    """Tells the progress over boxes in the words of a search."""
    workload = problem.workloads[0]

    def tell(now: Snapshot[DesignChoice]) -> None:
        design = None if now.solution is None else workload.spaces[now.solution.box.which].design
        front = "no design yet" if design is None else design.technology.name
        words = f"{now.regions} boxes, {sum(each.solver.count for each in problem.workloads)} solves"
        shown, unit = workload.merit.shown, workload.merit.unit
        best = now.best if design is None else shown(now.best)
        progress(options.Progress(front, words, now.seconds, best, shown(now.bound), unit))

    return tell


def in_technologies(design: Design, technologies: Sequence[Technology | str | os.PathLike[str]]) -> tuple[Design, ...]:
    """Copies of a design in each technology; only the design itself if none is given."""
    if not technologies:
        return (design,)
    given = [
        technology if isinstance(technology, Technology) else technology_in(design.technology, technology)
        for technology in technologies
    ]
    for name, count in Counter(technology.name for technology in given).items():
        if count > 1:
            raise SystemSpecError(name, [Issue("$.name", f"found {count} technologies of this name", "rename one")])
    return tuple(
        Design.from_data({**design.to_data(), "technology": technology.to_data()}, technology.name)
        for technology in given
    )


def _box(problem: Batches, leaf: Leaf[Box]) -> DesignBox:
    return DesignBox(
        design=leaf.region.which,
        low=problem.named(leaf.region, leaf.region.low),
        high=problem.named(leaf.region, leaf.region.high),
        bound=problem.workloads[0].merit.shown(leaf.bound) if math.isfinite(leaf.bound) else None,
    )
