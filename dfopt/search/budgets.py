"""Rows of one's own in the intra-chip MILP: limits on any figure that is a sum over the partitions of a chip.

A path through the lattice of down-sets cannot keep a budget over the whole path, so here its blocks become a MILP
(:class:`dfopt.fusion.columns.Columns`) with one row per budget.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dfopt.documents.mapping import Mapping
from dfopt.documents.result import Result
from dfopt.documents.score import PartitionScore, Score
from dfopt.errors import Infeasible, PlanError, ScoreMismatch
from dfopt.fusion.blocks import StageTables, price_blocks
from dfopt.fusion.columns import Columns
from dfopt.fusion.lattice import ShortestPath
from dfopt.fusion.partitioning import IntraChipLimits, objective
from dfopt.judge import evaluate
from dfopt.milp import Termination, check_solver, solve, unanswered
from dfopt.search.candidate import Prepared, Stage, prepare_mapping
from dfopt.search.options import Options
from dfopt.setting.instance import Setting
from dfopt.setting.tables import Floats

__all__ = ["Block", "Budget", "Within", "optimize_within"]

_AGREE = 1e-6
_ROUNDS = (1.1, 1.5, 3.0)  # times the unlimited optimum: blocks of slower mappings enter only if these are not enough


@dataclass(frozen=True)
class Block:
    """A set of kernels that could be one on-chip partition, for one layer and one microbatch on one chip.

    ``compute_s``, ``memory_s`` and ``network_s`` are busy times, ``time_s`` what the partition takes; ``dram_bytes``
    is its traffic, ``sram_bytes`` what it holds.
    """

    kernels: tuple[str, ...]
    compute_s: float
    memory_s: float
    network_s: float
    time_s: float
    dram_bytes: float
    sram_bytes: float


@dataclass(frozen=True)
class Budget:
    """A limit on a sum over the partitions of a chip: ``at_least <= sum of value(partition) <= at_most``.

    Parameters
    ----------
    name : str
        What it is called in messages and totals.
    value : callable
        A :class:`Block` -> its share of the sum, in any unit. It may look at the kernels and at all figures of the
        block, need not be additive over kernels, and is asked once per block.
    at_least, at_most : float
        Ends of the range, both included.

    Raises
    ------
    PlanError
        If there is no end, or they leave nothing between them.

    Examples
    --------
    At most two partitions that the network binds:

    >>> Budget("network-bound", lambda block: float(block.network_s >= block.time_s > 0), at_most=2).at_most
    2
    """

    name: str
    value: Callable[[Block], float]
    at_least: float = -math.inf
    at_most: float = math.inf

    def __post_init__(self) -> None:
        ends = f"found at_least {self.at_least:g} and at_most {self.at_most:g}"
        if math.isinf(self.at_least) and math.isinf(self.at_most):
            raise PlanError(f"budget {self.name!r}: {ends}, expected a finite end; give one of them")
        if not self.at_least <= self.at_most:
            raise PlanError(f"budget {self.name!r}: {ends}, expected at_least <= at_most")


@dataclass(frozen=True)
class Within:
    """The fastest mapping within budgets.

    Attributes
    ----------
    mapping, score : Mapping, Score
        The mapping, and the judge's figures of it.
    totals : dict
        Sum of every budget's value over the judge's partitions.
    gap : float
        Proven relative distance of the stage's time to its bound; 0: optimal under plan, sharding and tile count.
    blocks : int
        Blocks in the MILP.
    """

    mapping: Mapping
    score: Score
    totals: dict[str, float]
    gap: float
    blocks: int


def optimize_within(
    result: Result,
    *budgets: Budget,
    stage: int = 0,
    gap: float = 0.0,
    time_limit: float = 60.0,
    solver: str = "highs",
    seed: int = 0,
) -> Within:
    """Choose the partitions of a result anew, so that sums over them stay within budgets.

    Plan, sharding, tile count and the other stages are those of the result. The answer is optimal among all
    partitionings of that stage which keep the budgets, and the judge recomputes time and sums.

    Parameters
    ----------
    result : Result
        Of :func:`dfopt.optimize`, on a chip that fuses kernels.
    *budgets : Budget
        One row of the MILP each.
    stage : int
        Stage of the mapping; 0 is the layer of a repeated graph.
    gap : float
        Relative gap at which the solve may stop; 0 asks for a proof.
    time_limit : float
        Seconds for everything.
    solver, seed
        See :func:`dfopt.milp.solve`.

    Returns
    -------
    Within

    Raises
    ------
    PlanError
        If there is no budget, two share a name, a value is no finite number, there is no such stage, or its blocks
        cannot be listed.
    Infeasible
        If no partitioning keeps the budgets; with what can be reached.
    NoSolution, SolverFailure, ScoreMismatch
        See :mod:`dfopt.errors`.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.optimize(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
    >>> alone = Budget("largest partition", lambda block: max(len(block.kernels) - 6, 0), at_most=0)
    >>> found = optimize_within(result, alone)
    >>> found.gap, max(len(part.kernels) for part in found.score.partitions) <= 6
    (0.0, True)
    >>> found.score.step_time_s >= result.step_time_s
    True
    """
    names = [budget.name for budget in budgets]
    if not budgets or len(set(names)) < len(names):
        raise PlanError(f"optimize_within: found budgets {names}, expected one or more with names of their own")
    deadline = time.perf_counter() + time_limit
    ready = _again(result, gap, deadline, check_solver(solver), seed)
    chosen = _stage(ready, stage)
    assert chosen.tables is not None and chosen.limits is not None
    place = {kernel.name: kernel.partition for kernel in result.mapping.kernels}
    partition_k = np.array([place[name] for name in ready.sharded.names], dtype=np.int64)
    known = objective(chosen.tables, partition_k[chosen.members])
    rounds = [factor * known for factor in _ROUNDS] + [math.inf]
    while True:
        upper = rounds.pop(0)
        columns, values = _columns(chosen, upper, budgets, deadline)
        if not rounds and math.isinf(upper):
            _refuse(columns, budgets, values)
        for budget, value in zip(budgets, values, strict=True):
            columns.add(f"budget {budget.name}", value, budget.at_least, budget.at_most)
        left = max(deadline - time.perf_counter(), 0.05)
        solution = solve(columns.model, gap=gap, time_limit=left, seed=seed, solver=solver).in_units(columns.unit_s)
        if solution.x is None and solution.termination is Termination.INFEASIBLE:
            if math.isinf(upper):
                listed = ", ".join(repr(name) for name in names)
                raise Infeasible(
                    f"no partitioning keeps the budgets {listed} together, nor with the limits of the chip; move one"
                )
            continue
        if solution.x is None:
            raise unanswered(solution)
        found_s = solution.objective
        if found_s <= upper or time.perf_counter() >= deadline:
            break
        rounds = [found_s * (1 + 1e-9)]  # blocks of all mappings that are no slower: the next answer is the last
    part = columns.decode(solution.x)
    if chosen.limits.forward_backward != "halves":  # there an empty partition in the middle has a meaning
        part = np.unique(part, return_inverse=True)[1].astype(np.int64)
    partition_k[chosen.members] = part
    mapping = ready.mapping(partition_k)
    score = evaluate(mapping, result.graph, result.system, result.assumptions)
    totals = _checked(score, stage, budgets, [_unit(value) for value in values], found_s)
    low_s = min(solution.bound, upper, found_s)
    distance = (found_s - low_s) / found_s if found_s > 0 else 0.0
    return Within(mapping, score, totals, distance if distance > _AGREE else 0.0, len(columns.seconds))


def _again(result: Result, gap: float, deadline: float, solver: str, seed: int) -> Prepared:
    """The plan of a result, priced as its mapping has it."""
    options = Options(result.request, deadline).asking(
        gap=gap, solver=solver, seed=seed, formulation="auto", pin_sharding={}
    )
    return prepare_mapping(Setting(result.graph, result.system, result.assumptions), result.mapping, options)


def _stage(ready: Prepared, number: int) -> Stage:
    held = [n for n, stage in enumerate(ready.stages) if stage.tables is not None]
    if number not in held:
        raise PlanError(f"optimize_within: found stage {number}, expected one of {', '.join(map(str, held))}")
    stage = ready.stages[number]
    if stage.tables is not None and not stage.tables.chip.fused:
        raise PlanError(
            "optimize_within: the chip runs kernel by kernel, so there are no partitions to choose; use a dataflow"
            " chip (assumption execution: dataflow)"
        )
    if stage.lattice is None:
        raise PlanError(
            f"optimize_within: stage {number} has too many down-sets to list its blocks; expected at most 20000:"
            " draw fewer layers (repeat) or fewer parallel branches"
        )
    return stage


def _columns(stage: Stage, upper: float, budgets: tuple[Budget, ...], deadline: float) -> tuple[Columns, list[Floats]]:
    """The MILP over the blocks of mappings up to ``upper`` seconds, without rows, and the values of every block."""
    tables, limits = _parts(stage)
    assert stage.lattice is not None
    search = ShortestPath(tables, limits, stage.lattice, upper)
    if not search.run(deadline).complete:
        raise PlanError("optimize_within: the time limit came while blocks were priced; expected more time")
    columns = Columns(search)
    blocks = _blocks(tables, columns)
    values = []
    for budget in budgets:
        value = np.array([budget.value(block) for block in blocks], dtype=np.float64)
        if not np.isfinite(value).all():
            at = int(np.argmin(np.isfinite(value)))
            raise PlanError(
                f"budget {budget.name!r}: found {value[at]} for the block {', '.join(blocks[at].kernels)}, expected a"
                " finite number"
            )
        values.append(value)
    return columns, values


def _unit(value: Floats) -> float:
    """The largest value of a block: rows are scaled with it, so tolerances are relative to it."""
    return max(float(np.abs(value).max(initial=0.0)), 1e-30)


def _parts(stage: Stage) -> tuple[StageTables, IntraChipLimits]:
    assert stage.tables is not None and stage.limits is not None
    return stage.tables, stage.limits


def _blocks(tables: StageTables, columns: Columns) -> list[Block]:
    """What a budget sees of every block."""
    member = columns.member
    prices = price_blocks(tables, member)
    names = np.array(tables.sharded.names, dtype=object)
    figures = np.stack(
        [prices.compute, prices.memory, prices.network, prices.time, prices.dram_bytes, prices.sram_bytes], axis=1
    )
    return [Block(tuple(names[row]), *line) for row, line in zip(member, figures.tolist(), strict=True)]


def _refuse(columns: Columns, budgets: tuple[Budget, ...], values: list[Floats]) -> None:
    """Raise `Infeasible` for budgets that no mapping keeps even alone, with how far mappings can go.

    The least sum over a path is a shortest path; where partitions are counted, it is a bound on that.
    """
    said = []
    for budget, value in zip(budgets, values, strict=True):
        for sign, limit, word, end in (
            (1.0, budget.at_most, "at_most", "least"),
            (-1.0, budget.at_least, "at_least", "most"),
        ):
            reached = sign * _least_sum(columns, sign * value)
            if math.isfinite(limit) and sign * (reached - limit) > _AGREE * _unit(value):
                said.append(
                    f"budget {budget.name!r}: found {word} {limit:.6g}, but the {end} that any partitioning reaches is"
                    f" {reached:.6g}"
                )
    if said:
        raise Infeasible("; ".join(said) + "; move the limit, or choose another sharding, plan or chip")


def _least_sum(columns: Columns, value: Floats) -> float:
    """The least sum of a value over the blocks of any path through the lattice."""
    least = np.full(len(columns.search.lattice.size), np.inf)
    least[0] = 0.0
    order = np.argsort(columns.before, kind="stable")  # down-sets are sorted by size, so every block leads upwards
    cuts = np.flatnonzero(np.diff(columns.before[order])) + 1
    for arcs in np.split(order, cuts):
        if len(arcs):
            ends = least[columns.before[arcs[0]]] + value[arcs]
            least[columns.after[arcs]] = np.minimum(least[columns.after[arcs]], ends)
    return float(least[-1])


def _checked(
    score: Score, stage: int, budgets: tuple[Budget, ...], units: list[float], expected_s: float
) -> dict[str, float]:
    """The totals as the judge has them.

    Raises
    ------
    ScoreMismatch
        If judge and MILP disagree.
    """
    parts = [part for part in score.partitions if part.stage == stage]
    seconds = sum(part.time_s for part in parts)
    if abs(seconds - expected_s) > _AGREE * max(expected_s, 1e-30):
        raise ScoreMismatch("time of the stage", expected_s, seconds)
    if score.violations:
        raise ScoreMismatch(f"limits ({score.violations[0]})", 0.0, float(len(score.violations)))
    totals = {}
    for budget, unit in zip(budgets, units, strict=True):
        values = [float(budget.value(_judged(part))) for part in parts]
        total, room = sum(values), _AGREE * max(sum(map(abs, values)), unit)
        if not budget.at_least - room <= total <= budget.at_most + room:
            limit = budget.at_most if total > budget.at_most else budget.at_least
            raise ScoreMismatch(f"budget {budget.name!r}", limit, total)
        totals[budget.name] = total
    return totals


def _judged(part: PartitionScore) -> Block:
    return Block(
        part.kernels, part.compute_s, part.memory_s, part.network_s, part.time_s, part.dram_bytes, part.sram_bytes
    )
