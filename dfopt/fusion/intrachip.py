"""Intra-chip problem: which kernels are fused into which on-chip partition.

The model itself is :mod:`dfopt.fusion.assignment`; here are the start, the solve and its decoding.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dfopt.arrays import ROUNDING, Ints
from dfopt.bnb import UNLIMITED, Clock, OutOfTime
from dfopt.errors import Infeasible, NoSolution, SolverFailure
from dfopt.fusion.assignment import Assignment
from dfopt.fusion.blocks import StageTables, price_each, singles
from dfopt.fusion.columns import Columns
from dfopt.fusion.downsets import Lattice
from dfopt.fusion.lattice import PathResult, ShortestPath
from dfopt.fusion.partitioning import SAME, IntraChipLimits, keeps, legal, lower_bound, most_alive, objective
from dfopt.fusion.pieces import piecewise
from dfopt.fusion.segments import best_segmentation, topological_orders
from dfopt.fusion.shortfalls import check_count, dram_report, no_partitioning
from dfopt.milp import Solution, Termination, TracePoint, closed_form, solve, unanswered

_SMALL = 2000  # binaries: more than these the assignment form does not solve in any patience
_NEAR = 1.05  # a MILP that is to confirm the shortest path gets blocks of somewhat worse ones to choose from
_WITH_START = {
    Termination.LIMIT_NO_SOLUTION: Termination.LIMIT_WITH_SOLUTION,
    Termination.INTERRUPTED_NO_SOLUTION: Termination.INTERRUPTED_WITH_SOLUTION,
}
_NO_TIME = 0.1  # seconds: less than building a model takes; better spent on returning the start


class CutOff(Exception):
    """Raised where it is proven that no partitioning of a stage is faster than the cutoff."""

    def __init__(self, seconds: float, solution: Solution) -> None:
        self.seconds, self.solution = seconds, solution
        super().__init__(seconds, solution)


@dataclass(frozen=True)
class IntraChipMapping:
    """Partitions of a stage with their proof.

    Attributes
    ----------
    partition_k : int array, shape (kernels,)
        Partition of every kernel.
    solution : Solution
        The solve, in seconds.
    formulation : str
        Form in which it was solved.
    """

    partition_k: Ints
    solution: Solution
    formulation: str

    @property
    def objective(self) -> float:
        """Seconds of the stage: the sum over its partitions."""
        return self.solution.objective

    @property
    def bound(self) -> float:
        """Lower bound on the seconds of any partitioning."""
        return self.solution.bound

    @property
    def note(self) -> str:
        """Remark of the solve on how the partitioning was found."""
        return self.solution.message


def greedy(tables: StageTables, limits: IntraChipLimits, clock: Clock = UNLIMITED) -> Ints | None:
    """A feasible partitioning: the best cut of a topological order into consecutive blocks; None if there is none.

    When the clock is over, it is the best of the orders that were cut until then.

    Parameters
    ----------
    tables, limits
        The stage, and the limits on its partitions.
    clock
        The clock of the search.
    """
    best: tuple[float, Ints] | None = None
    for order in topological_orders(tables):
        try:
            cut = best_segmentation(tables, order, limits.p_max, limits.exactly, limits.forward_backward, clock)
        except OutOfTime:
            break
        if cut is not None and keeps(tables, limits, cut[1]) and (best is None or cut[0] < best[0]):
            best = cut
    return best[1] if best else None


def optimize_intrachip(  # noqa: PLR0913 - a public function with options
    tables: StageTables,
    limits: IntraChipLimits,
    *,
    gap: float = 0.0,
    clock: Clock = UNLIMITED,
    lattice: Lattice | None = None,
    formulation: str = "auto",
    solver: str = "highs",
    start: Ints | None = None,
    cutoff: float | None = None,
    progress: Callable[[TracePoint], None] | None = None,
    seed: int = 0,
) -> IntraChipMapping:
    """Partition the kernels of one stage so that the sum of the partitions' times is least.

    Parameters
    ----------
    tables, limits : StageTables, IntraChipLimits
        Prices of the stage, and ``p_max``, pins, order of passes and DRAM left.
    gap : float
        Relative gap at which to stop; 0 asks for a proof.
    clock : Clock, optional
        Limit on the work and time of the solve.
    lattice : Lattice, optional
        Down-sets of the stage: then the ``columns`` form is a shortest path through them.
    formulation : str
        ``columns``: blocks, enumerated when there is a lattice, else generated on demand. ``assignment``: the
        paper's matrices as a MILP. ``auto``: columns, and assignment where those find no partitioning.
    solver : str
        Solver of the MILPs, see :func:`dfopt.milp.solve`. With a solver other than HiGHS a MILP is always solved: that
        of the columns if there is a lattice, else the assignment.
    start : int array, optional
        A partitioning to start from; :func:`greedy` makes one.
    cutoff : float, optional
        Seconds above which a mapping is of no interest.
    progress : callable, optional
        Receives (seconds, incumbent, bound) in seconds of the result.

    Raises
    ------
    Infeasible
        If no partitioning keeps the limits; the message says which resource is short, by how much, and what would help.
    CutOff
        No partitioning is faster than the cutoff.
    NoSolution
        The time limit came first.
    """
    if not tables.chip.fused:
        return kernel_by_kernel(tables, limits)
    if tables.sharded.token_charges is None:  # in blocks of tokens no weight is cut
        check_count(tables, limits)
    best = start if start is not None and legal(tables, limits, start) else None
    if best is None and clock.over:  # nothing would be returned: a small stage takes no longer
        clock = Clock.of_limit(_NO_TIME)
    task = _FusionProblem(
        tables=tables,
        limits=limits,
        gap=gap,
        began=time.perf_counter(),
        clock=clock,
        best=best,
        value=objective(tables, best) if best is not None else np.inf,
        floor=lower_bound(tables, limits),
        cutoff=cutoff,
        progress=progress or (lambda point: None),
        seed=seed,
        solver=solver,
    )
    form = "assignment" if formulation == "assignment" else "columns"
    if best is not None and task.value <= task.floor * (1 + ROUNDING) and solver == "highs":
        return _as_it_is(task, Termination.OPTIMAL, form, "the greedy start meets the lower bound")
    if best is not None and clock.over:
        return _as_it_is(task, Termination.LIMIT_WITH_SOLUTION, form, "no time left; the start is returned")
    if form == "columns" and (lattice is not None or solver == "highs"):
        task, mapping = _by_path(task, lattice)
        if mapping is not None:
            return mapping
    if tables.sharded.token_charges is not None:  # what generates blocks on demand prices them in one way only
        return _by_assignment(task) if form == "assignment" or task.is_small else _as_far_as_shown(task, form)
    if form == "columns" and (solver == "highs" or formulation == "columns"):
        task, mapping = _by_generation(task, formulation == "columns")
        if mapping is not None:
            return mapping
    return _by_assignment(task)


@dataclass(frozen=True)
class _FusionProblem:
    """One call of :func:`optimize_intrachip`, with the best start and the bound as they are known so far."""

    tables: StageTables
    limits: IntraChipLimits
    gap: float
    began: float
    clock: Clock
    best: Ints | None
    value: float
    floor: float
    cutoff: float | None
    progress: Callable[[TracePoint], None]
    seed: int
    solver: str
    note: str = ""

    @property
    def is_small(self) -> bool:
        """Whether the matrices have a chance."""
        return self.tables.kernels * self.limits.p_max <= _SMALL

    def closed(self, value: float, message: str) -> Solution:
        """A proof without a solver, as long as this call has taken."""
        return closed_form(value, time.perf_counter() - self.began, message)


def _as_it_is(task: _FusionProblem, ended: Termination, form: str, message: str) -> IntraChipMapping:
    """The start as the best that is known, without a solve that could prove it."""
    assert task.best is not None
    gap = max(task.value - task.floor, 0.0) / task.value if ended is not Termination.OPTIMAL else 0.0
    solution = replace(task.closed(task.value, message), termination=ended, bound=task.floor, gap=gap)
    return IntraChipMapping(task.best, solution, form)


def _as_far_as_shown(task: _FusionProblem, form: str) -> IntraChipMapping:
    """The start where there are too many blocks of kernels to list, and too many to leave to a MILP."""
    if task.best is None:
        raise NoSolution(task.floor, time.perf_counter() - task.began)
    message = f"{task.note}; with blocks of tokens a MILP would be too large".removeprefix("; ")
    return _as_it_is(task, Termination.LIMIT_WITH_SOLUTION, form, message)


def _by_path(task: _FusionProblem, lattice: Lattice | None) -> tuple[_FusionProblem, IntraChipMapping | None]:
    """The shortest path through the lattice, or piece by piece without one; else the task with what that has shown."""
    upper = min(task.value, np.inf if task.cutoff is None else task.cutoff)
    # half of the work at most: what is left goes to a form that returns something at any time
    until = task.clock.share(0.5)
    try:
        if lattice is None:
            return _by_pieces(task, piecewise(task.tables, task.limits, upper, until, task.seed))
        search = ShortestPath(task.tables, task.limits, lattice, upper * (1.0 if task.solver == "highs" else _NEAR))
        path = search.run(until, task.progress)
    except KeyboardInterrupt:
        if task.best is None:
            raise
        message = "stopped by Ctrl-C; the start is the best known"
        return task, _as_it_is(task, Termination.INTERRUPTED_WITH_SOLUTION, "columns", message)
    if path.partition_k is not None and task.solver == "highs":
        solution = replace(task.closed(path.objective, path.note), trace=path.trace)
        return task, IntraChipMapping(path.partition_k, solution, "columns")
    if path.partition_k is not None:
        return task, _by_columns(task, search, path)
    if path.complete and task.cutoff is not None:
        raise CutOff(task.cutoff, task.closed(task.cutoff, path.note))
    if path.complete:
        return replace(task, note=path.note), None
    note = f"{path.note}, cut short by the time limit"
    return replace(task, note=note, floor=max(task.floor, path.bound)), None


def _by_pieces(task: _FusionProblem, result: PathResult | None) -> tuple[_FusionProblem, IntraChipMapping | None]:
    """What pieces have shown, and the answer where their result is the best there is."""
    if result is None:
        return task, None
    task = replace(task, floor=max(task.floor, result.bound), note=result.note)
    if task.cutoff is not None and task.floor >= task.cutoff * (1 - SAME):
        raise CutOff(task.cutoff, task.closed(task.cutoff, result.note))
    if result.objective < task.value:
        task = replace(task, best=result.partition_k, value=result.objective)
    if not result.complete or task.best is None:
        return task, None
    solution = replace(task.closed(task.value, result.note), bound=min(task.floor, task.value))
    return task, IntraChipMapping(task.best, solution, "columns")


def _by_columns(task: _FusionProblem, search: ShortestPath, path: PathResult) -> IntraChipMapping:
    """The blocks of a finished search once more, as a MILP for the solver that was asked for."""
    assert path.partition_k is not None
    value = path.objective
    try:
        columns = Columns(search, task.clock)
    except OutOfTime:
        solution = task.closed(value, f"{path.note}, no time left for {task.solver}")
        return IntraChipMapping(path.partition_k, solution, "columns")
    start = columns.start(search.path)
    solution = solve(
        columns.model, gap=task.gap, clock=task.clock, start=start, seed=task.seed, solver=task.solver
    ).in_units(columns.unit_s)
    if solution.x is None:
        raise unanswered(solution)
    if solution.proven and abs(solution.objective - value) > max(task.gap, SAME) * value:
        raise SolverFailure(f"{task.solver} proves {solution.objective:.9g} s where the shortest path is {value:.9g} s")
    note = f"{path.note}, {len(columns.seconds)} blocks in the MILP, solved by {task.solver}"
    return IntraChipMapping(columns.decode(solution.x), replace(solution, message=note), "columns")


def _by_generation(task: _FusionProblem, asked: bool) -> tuple[_FusionProblem, IntraChipMapping | None]:
    """Blocks generated on demand; without an answer, the task with what it has shown."""
    from dfopt.fusion.generation import Generation

    generation = Generation(task.tables, task.limits, task.best, task.cutoff, task.seed, task.floor)
    # where the matrices have a chance afterwards, they get half of the work
    until = task.clock.share(0.5) if task.is_small else task.clock
    generated = generation.run(task.gap, until, task.progress)
    note = f"{task.note}; {generated.solution.message}".removeprefix("; ")
    solution = replace(generated.solution, seconds=time.perf_counter() - task.began, message=note)
    if task.cutoff is not None and solution.bound >= task.cutoff * (1 - SAME):
        raise CutOff(task.cutoff, solution)
    task = replace(task, floor=solution.bound, note=note)
    if generated.partition_k is None:
        if solution.termination is Termination.INTERRUPTED_NO_SOLUTION:
            raise KeyboardInterrupt
        # pins, or a limit that no cut of an order keeps: only the matrices know them all
        return replace(task, note=f"{note}, none that keep every limit"), None
    if solution.termination is Termination.LIMIT_WITH_SOLUTION and task.is_small and not asked:
        return replace(task, best=generated.partition_k, value=solution.objective), None
    return task, IntraChipMapping(generated.partition_k, solution, "columns")


def _by_assignment(task: _FusionProblem) -> IntraChipMapping:
    """Solve the paper's matrices as a MILP; see :func:`optimize_intrachip`."""
    floor, cutoff = task.floor, task.cutoff
    # its times are linear in bytes: where shares of bandwidth depend on them, those of a block are bounds
    linear = replace(task.tables, chip=task.tables.chip.bounding)
    start = task.best if cutoff is None or task.value <= cutoff else None
    message = f"{task.note}; the start is the best known".removeprefix("; ")
    try:
        assignment = Assignment(linear, task.limits, task.clock)
    except OutOfTime:
        if start is None:
            raise NoSolution(floor, time.perf_counter() - task.began) from None
        return _as_it_is(task, Termination.LIMIT_WITH_SOLUTION, "assignment", message)
    unit = assignment.unit_s

    def scaled(point: TracePoint) -> None:
        task.progress(TracePoint(point.seconds, point.objective * unit, max(point.bound * unit, floor)))

    solution = solve(
        assignment.model,
        gap=task.gap,
        clock=task.clock,
        start=assignment.start(start) if start is not None else None,
        cutoff=cutoff / unit if cutoff is not None else None,
        progress=scaled,
        seed=task.seed,
        solver=task.solver,
    ).in_units(unit)
    if solution.x is None and cutoff is not None and solution.termination == Termination.INFEASIBLE:
        raise CutOff(cutoff, solution)
    if start is not None and solution.termination in _WITH_START:  # too little time even to complete the start
        return _as_it_is(task, _WITH_START[solution.termination], "assignment", message)
    if solution.x is None:
        no_partitioning(solution, assignment, task.clock)
    partition_k = np.argmax(assignment.model.value("A", solution.x), axis=1).astype(np.int64)
    # of a solve that was stopped the columns of the times tell nothing: then they may be larger than needed
    value = objective(linear, partition_k)
    if solution.proven and abs(value - solution.objective) > max(task.gap, SAME) * value:
        raise SolverFailure(f"{task.solver} proves {solution.objective:.9g} s, its partitions take {value:.9g} s")
    bound = min(max(solution.bound, floor), value)
    if task.tables.chip.memory_rows:
        value = objective(task.tables, partition_k)
        if start is not None and task.value < value:
            partition_k, value = start, task.value
        if value > bound * (1 + SAME):
            gap = (value - bound) / value
            solution = replace(solution, termination=Termination.LIMIT_WITH_SOLUTION, gap=gap)
    return IntraChipMapping(
        partition_k, replace(solution, objective=value, bound=bound, message=task.note), "assignment"
    )


def kernel_by_kernel(tables: StageTables, limits: IntraChipLimits) -> IntraChipMapping:
    """The mapping with every kernel in a partition of its own, in topological order."""
    order = topological_orders(tables)[0]
    partition_k = np.argsort(order).astype(np.int64)
    prices = price_each(tables, singles(tables))
    if not prices.legal.all():
        worst = int(np.argmax(prices.sram_bytes))
        raise Infeasible(f"kernel {tables.sharded.names[worst]!r} does not fit the chip alone")
    value = float(prices.time.sum())
    alive = most_alive(tables, limits, partition_k)
    if alive > limits.dram_left:
        raise Infeasible(dram_report(alive, limits.dram_left))
    solution = closed_form(value, 0.0, "one kernel per partition: nothing to choose")
    return IntraChipMapping(partition_k, solution, "kernel_by_kernel")
