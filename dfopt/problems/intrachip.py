"""Intra-chip problem: which kernels are fused into which on-chip partition.

The model itself is :mod:`dfopt.problems.assignment`; here are the start, the solve and its decoding.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from dfopt.errors import Infeasible
from dfopt.milp import Solution, Termination, TracePoint, explain_infeasible, solve, unanswered
from dfopt.problems.assignment import Assignment
from dfopt.problems.blocks import StageTables, price_blocks
from dfopt.problems.lattice import Lattice, ShortestPath
from dfopt.problems.partitioning import (
    IntraChipLimits,
    Ints,
    alive_bytes,
    keeps,
    lifetimes,
    lower_bound,
    membership,
    objective,
)
from dfopt.problems.segments import best_segmentation, topological_orders

__all__ = [
    "CutOff",
    "IntraChipLimits",
    "IntraChipMapping",
    "alive_bytes",
    "greedy",
    "kernel_by_kernel",
    "legal",
    "lifetimes",
    "lower_bound",
    "membership",
    "objective",
    "optimize_intrachip",
]


_NO_TIME = 0.1  # seconds: less than building a model takes; better spent on returning the start


class CutOff(Exception):
    """Proven: no partitioning of a stage is faster than a cutoff."""

    def __init__(self, seconds: float, solution: Solution) -> None:
        self.seconds, self.solution = seconds, solution
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


def greedy(tables: StageTables, limits: IntraChipLimits) -> Ints | None:
    """A feasible start: the best cut of a topological order into consecutive blocks, or None."""
    best: tuple[float, Ints] | None = None
    for order in topological_orders(tables):
        found = best_segmentation(tables, order, limits.p_max, limits.exactly, limits.forward_backward)
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
        Down-sets of the stage: the ``columns`` form, a shortest path, is tried first. Without it, or
        when its search is cut short, the paper's matrices are solved as a MILP (``assignment``).
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
    began = time.perf_counter()
    best = start if start is not None and legal(tables, limits, start) else None
    value = objective(tables, best, limits.p_max) if best is not None else np.inf
    floor = lower_bound(tables, limits)
    form = "assignment" if lattice is None else "columns"
    if best is not None and value <= floor * (1 + 1e-12):
        message = "the greedy start meets the lower bound"
        return IntraChipMapping(best, value, floor, closed_form(value, 0.0, message), form, message)
    if best is not None and time_limit is not None and time_limit <= _NO_TIME:
        message = "no time left; the start is returned"
        solution = _unfinished(Termination.LIMIT_WITH_SOLUTION, value, floor, message)
        return IntraChipMapping(best, value, floor, solution, form, message)
    note = ""
    if lattice is not None:
        search = ShortestPath(tables, limits, lattice, min(value, np.inf if cutoff is None else cutoff))
        try:
            # half of the time at most: what is left is the assignment form's, which returns something at any time
            path = search.run(None if time_limit is None else began + time_limit / 2, progress)
        except KeyboardInterrupt:
            if best is None:
                raise
            message = "stopped by Ctrl-C; the start is the best known"
            solution = _unfinished(Termination.INTERRUPTED_WITH_SOLUTION, value, floor, message)
            return IntraChipMapping(best, value, floor, solution, form, message)
        note = f"{path.down_sets} down-sets, {path.pairs} pairs, {path.blocks} blocks could improve"
        seconds = time.perf_counter() - began
        if path.partition_k is not None:
            solution = closed_form(path.objective, seconds, note)
            return IntraChipMapping(path.partition_k, path.objective, path.objective, solution, form, note)
        if path.complete and cutoff is not None:
            raise CutOff(cutoff, closed_form(cutoff, seconds, note))
        if not path.complete:
            note += ", cut short by the time limit"
            floor = max(floor, path.bound)
        time_limit = None if time_limit is None else max(time_limit - seconds, _NO_TIME)
    usable = best if cutoff is None or value <= cutoff else None
    return _by_assignment(tables, limits, gap, time_limit, usable, cutoff, floor, progress, seed, note)


def _by_assignment(
    tables: StageTables,
    limits: IntraChipLimits,
    gap: float,
    time_limit: float | None,
    start: Ints | None,
    cutoff: float | None,
    floor: float,
    progress: Callable[[TracePoint], None] | None,
    seed: int,
    note: str,
) -> IntraChipMapping:
    """Solve the paper's matrices as a MILP; see :func:`optimize_intrachip`."""
    assignment = Assignment(tables, limits)
    unit = assignment.unit_s

    def scaled(point: TracePoint) -> None:
        if progress is not None:
            progress(TracePoint(point.seconds, point.objective * unit, max(point.bound * unit, floor)))

    solution = solve(
        assignment.model,
        gap=gap,
        time_limit=time_limit,
        start=assignment.start(start) if start is not None else None,
        cutoff=cutoff / unit if cutoff is not None else None,
        progress=scaled if progress is not None else None,
        seed=seed,
    )
    if solution.x is None and cutoff is not None and solution.termination == Termination.INFEASIBLE:
        raise CutOff(cutoff, solution)
    if solution.x is None:
        _raise(solution, assignment)
    partition_k = np.argmax(assignment.model.value("A", solution.x), axis=1).astype(np.int64)
    return IntraChipMapping(
        partition_k=partition_k,
        objective=solution.objective * unit,
        bound=min(max(solution.bound * unit, floor), solution.objective * unit),
        solution=solution,
        formulation="assignment",
        note=note,
    )


def legal(tables: StageTables, limits: IntraChipLimits, partition_k: Ints) -> bool:
    """Whether a partitioning keeps every limit of its stage."""
    if partition_k.max(initial=0) >= limits.p_max:
        return False
    prices = price_blocks(tables, membership(partition_k, limits.p_max))
    return bool(prices.legal.all()) and keeps(tables, limits, partition_k)


def kernel_by_kernel(tables: StageTables, limits: IntraChipLimits) -> IntraChipMapping:
    """Every kernel alone, in a topological order: nothing is left to choose."""
    order = topological_orders(tables)[0]
    partition_k = np.empty(tables.kernels, dtype=np.int64)
    partition_k[order] = np.arange(tables.kernels)
    prices = price_blocks(tables, np.eye(tables.kernels, dtype=bool))
    if not prices.legal.all():
        worst = int(np.argmax(prices.sram_bytes))
        raise Infeasible(f"kernel {tables.sharded.names[worst]!r} does not fit the chip alone")
    value = float(prices.time.sum())
    alive = alive_bytes(tables, limits, partition_k).max(initial=0.0)
    if alive > limits.dram_left:
        raise Infeasible(dram_report(alive, limits.dram_left))
    solution = closed_form(value, 0.0, "one kernel per partition: nothing to choose")
    return IntraChipMapping(partition_k, value, value, solution, "kernel_by_kernel", solution.message)


def closed_form(value: float, seconds: float, message: str) -> Solution:
    """A proven solution that needed no solver."""
    return Solution(
        termination=Termination.OPTIMAL,
        objective=value,
        bound=value,
        gap=0.0,
        seconds=seconds,
        nodes=0,
        rows=0,
        columns=0,
        nonzeros=0,
        trace=(),
        x=None,
        message=message,
    )


def dram_report(need: float, left: float) -> str:
    """Sentence for activations that do not fit DRAM."""
    return (
        f"activations alive between partitions need {need / 1e9:.4g} GB of DRAM per chip,"
        f" {max(left, 0) / 1e9:.4g} GB are left beside weights and optimizer: short by {(need - left) / 1e9:.4g} GB;"
        " levers: more tensor or pipeline parallelism, a smaller microbatch, more DRAM"
    )


def _no_order(tables: StageTables, limits: IntraChipLimits) -> str:
    """Why no partitioning is legal although SRAM is not short: the count, the kernels alone, or the pins."""
    n, alone = tables.kernels, np.flatnonzero(tables.parts_k > 1)
    what = f"{'exactly' if limits.exactly else 'at most'} {limits.p_max} partitions"
    if limits.exactly and limits.p_max > n:
        return f"{what} need as many kernels, there are {n}; levers: p_max {n} or less, empty_partitions allow"
    if len(alone) + (n > len(alone)) > limits.p_max:
        names = ", ".join(repr(tables.sharded.names[k]) for k in alone[:4]) + (", ..." if len(alone) > 4 else "")
        return (
            f"{what} are too few: the weights of {len(alone)} kernels ({names}) do not fit SRAM beside anything, each"
            f" needs a partition of its own; levers: p_max {len(alone) + 1} or more, a larger tensor-parallel degree"
        )
    rules = ["precedence", f"the forward/backward rule ({limits.forward_backward})"]
    levers = ["another p_max"]
    if limits.pins:
        rules, levers = ["the pins", *rules], ["fewer pins", *levers]
    return f"no order of {what} satisfies {' and '.join(rules)} together; levers: {', '.join(levers)}"


def _unfinished(termination: Termination, value: float, bound: float, message: str) -> Solution:
    """The start as the best that is known, without a solve that could prove it."""
    return replace(closed_form(value, 0.0, message), termination=termination, bound=bound, gap=(value - bound) / value)


def _raise(solution: Solution, assignment: Assignment) -> NoReturn:
    limits, unit = assignment.limits, assignment.unit_b
    if solution.termination == Termination.INFEASIBLE:
        blocks = [f"sram_{p}" for p in range(limits.p_max)]
        slack = explain_infeasible(assignment.model, blocks)
        short = {p: float(slack[b].max()) * unit for p, b in enumerate(blocks) if b in slack and slack[b].max() > 1e-9}
        if short:
            where = ", ".join(f"{value / 1e6:.4g} MB in partition {p}" for p, value in sorted(short.items()))
            levers = "more partitions (p_max), a larger tensor-parallel degree, a smaller microbatch"
            raise Infeasible(f"with at most {limits.p_max} partitions SRAM is short by {where}; levers: {levers}")
        raise Infeasible(_no_order(assignment.tables, limits))
    raise unanswered(solution, assignment.unit_s)
