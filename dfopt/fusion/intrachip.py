"""Intra-chip problem: which kernels are fused into which on-chip partition.

The model itself is :mod:`dfopt.fusion.assignment`; here are the start, the solve and its decoding.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dfopt.errors import Infeasible, NoSolution, SolverFailure
from dfopt.fusion.assignment import Assignment
from dfopt.fusion.blocks import StageTables, price_each, singles
from dfopt.fusion.certificates import Certificate
from dfopt.fusion.clock import OutOfTime
from dfopt.fusion.columns import Columns
from dfopt.fusion.downsets import Lattice
from dfopt.fusion.generation import SAME, Generation
from dfopt.fusion.lattice import ShortestPath
from dfopt.fusion.partitioning import IntraChipLimits, keeps, legal, lower_bound, most_alive, objective
from dfopt.fusion.segments import best_segmentation, topological_orders
from dfopt.fusion.shortfalls import dram_report, no_partitioning
from dfopt.milp import Solution, Termination, TracePoint, closed_form, solve, unanswered
from dfopt.setting.tables import Ints

_SMALL = 2000  # binaries: more than these the assignment form does not solve in any patience
_NEAR = 1.05  # a MILP that is to confirm the shortest path gets blocks of somewhat worse ones to choose from
_NO_TIME = 0.1  # seconds: less than building a model takes; better spent on returning the start


class CutOff(Exception):
    """Proven: no partitioning of a stage is faster than a cutoff."""

    def __init__(self, seconds: float, solution: Solution, certificate: Certificate | None) -> None:
        self.seconds, self.solution, self.certificate = seconds, solution, certificate
        super().__init__(seconds, solution)


@dataclass(frozen=True)
class IntraChipMapping:
    """Partition of every kernel of a stage, its prices, and the solve that proves it."""

    partition_k: Ints
    objective: float  # seconds: sum of the partitions' times
    bound: float
    solution: Solution
    formulation: str
    note: str
    certificate: Certificate | None = None  # prices that prove the bound, where blocks were generated


def greedy(tables: StageTables, limits: IntraChipLimits, deadline: float = np.inf) -> Ints | None:
    """A feasible start: the best cut of a topological order into consecutive blocks, or None.

    Past the deadline (``time.perf_counter``) the best of the orders that were cut until then.
    """
    best: tuple[float, Ints] | None = None
    for order in topological_orders(tables):
        try:
            found = best_segmentation(tables, order, limits.p_max, limits.exactly, limits.forward_backward, deadline)
        except OutOfTime:
            break
        if found is not None and keeps(tables, limits, found[1]) and (best is None or found[0] < best[0]):
            best = found
    return best[1] if best else None


def optimize_intrachip(
    tables: StageTables,
    limits: IntraChipLimits,
    *,
    gap: float = 0.0,
    time_limit: float | None = None,
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
    tables : StageTables
        Prices of the stage.
    limits : IntraChipLimits
        ``p_max``, pins, order of passes, DRAM left.
    gap : float
        Relative gap at which to stop; 0 asks for a proof.
    time_limit : float, optional
        Seconds.
    lattice : Lattice, optional
        Down-sets of the stage: then the ``columns`` form is a shortest path through them.
    formulation : str
        ``columns``: blocks, enumerated when there is a lattice, else generated on demand. ``assignment``: the
        paper's matrices as a MILP. ``auto``: columns, and assignment where those find no partitioning.
    solver : str
        Of the MILPs, see :func:`dfopt.milp.solve`. With another one than HiGHS a MILP is solved in any case:
        that of the columns when there is a lattice, else the assignment.
    start : int array, optional
        A partitioning to start from; :func:`greedy` makes one.
    cutoff : float, optional
        Seconds above which a mapping is of no interest.
    progress : callable, optional
        Receives (seconds, incumbent, bound) in units of the result.

    Raises
    ------
    Infeasible
        No partitioning keeps the limits; says which is short, by how much, and what would help.
    CutOff
        No partitioning is faster than the cutoff.
    NoSolution
        The time limit came first.
    """
    if not tables.chip.fused:
        return kernel_by_kernel(tables, limits)
    best = start if start is not None and legal(tables, limits, start) else None
    value = objective(tables, best) if best is not None else np.inf
    task = _Task(
        tables=tables,
        limits=limits,
        gap=gap,
        began=time.perf_counter(),
        deadline=np.inf if time_limit is None else time.perf_counter() + max(time_limit, _NO_TIME),
        best=best,
        value=value,
        floor=lower_bound(tables, limits),
        cutoff=cutoff,
        progress=progress,
        seed=seed,
        solver=solver,
    )
    form = "assignment" if formulation == "assignment" else "columns"
    if best is not None and value <= task.floor * (1 + 1e-12) and solver == "highs":
        message = "the greedy start meets the lower bound"
        return IntraChipMapping(best, value, task.floor, closed_form(value, 0.0, message), form, message)
    if best is not None and time_limit is not None and time_limit <= _NO_TIME:
        return _as_it_is(task, Termination.LIMIT_WITH_SOLUTION, form, "no time left; the start is returned")
    if form == "columns" and lattice is not None:
        task, found = _by_path(task, lattice)
        if found is not None:
            return found
    if form == "columns" and (solver == "highs" or formulation == "columns"):
        task, found = _by_generation(task, formulation == "columns")
        if found is not None:
            return found
    return _by_assignment(task)


@dataclass(frozen=True)
class _Task:
    """One call of :func:`optimize_intrachip`, with the best start and the bound as they are known so far."""

    tables: StageTables
    limits: IntraChipLimits
    gap: float
    began: float
    deadline: float
    best: Ints | None
    value: float
    floor: float
    cutoff: float | None
    progress: Callable[[TracePoint], None] | None
    seed: int
    solver: str
    note: str = ""

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return max(self.deadline - time.perf_counter(), _NO_TIME)


def _as_it_is(task: _Task, ended: Termination, form: str, message: str) -> IntraChipMapping:
    """The start as the best that is known, without a solve that could prove it."""
    assert task.best is not None
    solution = replace(
        closed_form(task.value, time.perf_counter() - task.began, message),
        termination=ended,
        bound=task.floor,
        gap=(task.value - task.floor) / task.value,
    )
    return IntraChipMapping(task.best, task.value, task.floor, solution, form, message)


def _by_path(task: _Task, lattice: Lattice) -> tuple[_Task, IntraChipMapping | None]:
    """The shortest path through the lattice; without an answer, the task with what it has shown."""
    known = min(task.value, np.inf if task.cutoff is None else task.cutoff)
    if task.solver != "highs":
        known *= _NEAR
    search = ShortestPath(task.tables, task.limits, lattice, known)
    try:
        # half of the time at most: what is left goes to a form that returns something at any time
        until = (task.began + task.deadline) / 2 if np.isfinite(task.deadline) else None
        path = search.run(until, task.progress)
    except KeyboardInterrupt:
        if task.best is None:
            raise
        message = "stopped by Ctrl-C; the start is the best known"
        return task, _as_it_is(task, Termination.INTERRUPTED_WITH_SOLUTION, "columns", message)
    note = f"{path.down_sets} down-sets, {path.pairs} pairs, {path.blocks} blocks could improve"
    seconds = time.perf_counter() - task.began
    if path.partition_k is not None and task.solver == "highs":
        trace = tuple(path.trace)
        solution = replace(closed_form(path.objective, seconds, note), trace=trace)
        return task, IntraChipMapping(path.partition_k, path.objective, path.objective, solution, "columns", note)
    if path.partition_k is not None:
        return task, _by_columns(task, search, path.objective, note)
    if path.complete and task.cutoff is not None:
        raise CutOff(task.cutoff, closed_form(task.cutoff, seconds, note), None)
    if not path.complete:
        note += ", cut short by the time limit"
        task = replace(task, floor=max(task.floor, path.bound))
    return replace(task, note=note), None


def _by_columns(task: _Task, search: ShortestPath, value: float, note: str) -> IntraChipMapping:
    """The blocks of a finished search once more, as a MILP for the solver that was asked for."""
    try:
        columns = Columns(search, task.deadline)
    except OutOfTime:
        note += f", no time left for {task.solver}"
        solution = closed_form(value, time.perf_counter() - task.began, note)
        return IntraChipMapping(search.partition_of(search.path), value, value, solution, "columns", note)
    solution = solve(
        columns.model,
        gap=task.gap,
        time_limit=None if np.isinf(task.deadline) else task.left,
        start=columns.start(search.path),
        seed=task.seed,
        solver=task.solver,
    )
    if solution.x is None:
        raise unanswered(solution, columns.unit_s)
    found = solution.objective * columns.unit_s
    if solution.proven and abs(found - value) > max(task.gap, 1e-6) * value:
        raise SolverFailure(f"{task.solver} proves {found:.9g} s where the shortest path is {value:.9g} s")
    note += f", {len(columns.seconds)} blocks in the MILP, solved by {task.solver}"
    return IntraChipMapping(
        columns.decode(solution.x), found, min(solution.bound * columns.unit_s, found), solution, "columns", note
    )


def _by_generation(task: _Task, asked: bool) -> tuple[_Task, IntraChipMapping | None]:
    """Blocks generated on demand; without an answer, the task with what it has shown."""
    generation = Generation(task.tables, task.limits, task.best, task.cutoff, task.seed)
    small = task.tables.kernels * task.limits.p_max <= _SMALL
    # where the matrices have a chance afterwards, they get half of the time
    until = (time.perf_counter() + task.deadline) / 2 if small and np.isfinite(task.deadline) else task.deadline
    found = generation.run(task.gap, until, task.progress)
    note = f"{found.classes} classes of kernels, {found.blocks} blocks generated, {found.pricings} searches"
    if found.closed:
        note += ", no block is left that could raise the bound"
    note = f"{task.note}; {note}" if task.note else note
    bound = max(found.bound, task.floor)
    solution = Solution(
        termination=Termination.LIMIT_WITH_SOLUTION,
        objective=found.objective,
        bound=bound,
        gap=(found.objective - bound) / found.objective if found.partition_k is not None else np.inf,
        seconds=time.perf_counter() - task.began,
        nodes=found.nodes,
        rows=found.classes,
        columns=found.blocks,
        nonzeros=0,
        trace=found.trace,
        x=None,
        message=note,
    )
    if task.cutoff is not None and bound >= task.cutoff * (1 - SAME):
        raise CutOff(task.cutoff, solution, found.certificate)
    if found.partition_k is None:
        if found.interrupted:
            raise KeyboardInterrupt
        # pins, or a limit that no cut of an order keeps: only the matrices know them all
        return replace(task, note=f"{note}, none that keep every limit", floor=bound), None
    if solution.gap <= SAME:
        solution = replace(solution, termination=Termination.OPTIMAL, gap=0.0)
    elif solution.gap <= task.gap:
        solution = replace(solution, termination=Termination.GAP_REACHED)
    elif found.interrupted:
        solution = replace(solution, termination=Termination.INTERRUPTED_WITH_SOLUTION)
    elif small and not asked:
        return replace(task, best=found.partition_k, value=found.objective, floor=bound, note=note), None
    mapping = IntraChipMapping(found.partition_k, found.objective, bound, solution, "columns", note, found.certificate)
    return task, mapping


def _by_assignment(task: _Task) -> IntraChipMapping:
    """Solve the paper's matrices as a MILP; see :func:`optimize_intrachip`."""
    floor, cutoff = task.floor, task.cutoff
    start = task.best if cutoff is None or task.value <= cutoff else None
    message = f"{task.note}; the start is the best known".removeprefix("; ")
    try:
        assignment = Assignment(task.tables, task.limits, task.deadline)
    except OutOfTime:
        if start is None:
            raise NoSolution(floor, time.perf_counter() - task.began) from None
        return _as_it_is(task, Termination.LIMIT_WITH_SOLUTION, "assignment", message)
    unit = assignment.unit_s

    def scaled(point: TracePoint) -> None:
        if task.progress is not None:
            task.progress(TracePoint(point.seconds, point.objective * unit, max(point.bound * unit, floor)))

    solution = solve(
        assignment.model,
        gap=task.gap,
        time_limit=None if np.isinf(task.deadline) else task.left,
        start=assignment.start(start) if start is not None else None,
        cutoff=cutoff / unit if cutoff is not None else None,
        progress=scaled if task.progress is not None else None,
        seed=task.seed,
        solver=task.solver,
    )
    if solution.x is None and cutoff is not None and solution.termination == Termination.INFEASIBLE:
        raise CutOff(cutoff, solution, None)
    if solution.x is None and start is not None:  # too little time even to complete the start
        if solution.termination is Termination.LIMIT_NO_SOLUTION:
            return _as_it_is(task, Termination.LIMIT_WITH_SOLUTION, "assignment", message)
        if solution.termination is Termination.INTERRUPTED_NO_SOLUTION:
            return _as_it_is(task, Termination.INTERRUPTED_WITH_SOLUTION, "assignment", message)
    if solution.x is None:
        no_partitioning(solution, assignment, task.left)
    partition_k = np.argmax(assignment.model.value("A", solution.x), axis=1).astype(np.int64)
    # times are columns above what partitions take: of a solution that is not proven they may be larger than needed
    value = objective(task.tables, partition_k)
    if solution.proven and abs(value - solution.objective * unit) > max(task.gap, 1e-6) * value:
        raise SolverFailure(
            f"{task.solver} proves {solution.objective * unit:.9g} s, its partitions take {value:.9g} s"
        )
    return IntraChipMapping(
        partition_k=partition_k,
        objective=value,
        bound=min(max(solution.bound * unit, floor), value),
        solution=solution,
        formulation="assignment",
        note=task.note,
    )


def kernel_by_kernel(tables: StageTables, limits: IntraChipLimits) -> IntraChipMapping:
    """Every kernel alone, in a topological order: nothing is left to choose."""
    order = topological_orders(tables)[0]
    partition_k = np.empty(tables.kernels, dtype=np.int64)
    partition_k[order] = np.arange(tables.kernels)
    prices = price_each(tables, singles(tables))
    if not prices.legal.all():
        worst = int(np.argmax(prices.sram_bytes))
        raise Infeasible(f"kernel {tables.sharded.names[worst]!r} does not fit the chip alone")
    value = float(prices.time.sum())
    alive = most_alive(tables, limits, partition_k)
    if alive > limits.dram_left:
        raise Infeasible(dram_report(alive, limits.dram_left))
    solution = closed_form(value, 0.0, "one kernel per partition: nothing to choose")
    return IntraChipMapping(partition_k, value, value, solution, "kernel_by_kernel", solution.message)
