"""Rows of one's own in the intra-chip MILP: limits on any figure that is a sum over the partitions of a chip.

A path through the lattice of down-sets cannot keep a budget over the whole path, so here its blocks become a MILP
(:class:`dfopt.fusion.columns.Columns`) with one row per budget. Over many shardings at once, with every figure at its
least, a row holds as far as its values are no more than under any of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dfopt.arrays import LEAST_UNIT, Bools, Floats, Ints
from dfopt.bnb import Clock
from dfopt.documents.score import PartitionScore, Score
from dfopt.errors import Infeasible, NoSolution, PlanError, ScoreMismatch
from dfopt.fusion.blocks import StageTables
from dfopt.fusion.columns import Columns, beside_blocks, near_blocks
from dfopt.fusion.lattice import ShortestPath
from dfopt.fusion.partitioning import TIES, numbered
from dfopt.fusion.priced import PricedStage
from dfopt.fusion.ways import BlockWays, every_way, fastest_ways
from dfopt.milp import Termination, solve, unanswered
from dfopt.regions.chains import pareto_fronts
from dfopt.solving.options import Options
from dfopt.solving.solved import check_stage
from dfopt.terms.chip import RESOURCES

_AGREE = 1e-6
_ROUNDS = (1.1, 1.5, 3.0)  # times the unlimited optimum: blocks of slower mappings enter only if these are not enough


@dataclass(frozen=True)
class PricedBlock:
    """A set of kernels that could form one on-chip partition, with its figures for one layer, microbatch and chip.

    ``compute_s``, ``memory_s`` and ``network_s`` are busy times, and so is ``sram_s`` if the bandwidth of SRAM is
    limited; ``time_s`` is the time of the partition, ``dram_bytes`` its traffic, ``sram_bytes`` the SRAM that it uses.
    """

    kernels: tuple[str, ...]
    compute_s: float
    memory_s: float
    network_s: float
    time_s: float
    dram_bytes: float
    sram_bytes: float
    sram_s: float = 0.0


@dataclass(frozen=True)
class Budget:
    """A limit on a sum over the partitions of a chip: ``at_least <= sum of value(partition) <= at_most``.

    Parameters
    ----------
    name : str
        Name of the budget in messages and totals.
    value : callable
        Function from a :class:`PricedBlock` to its share of the sum, in any unit. It may use the kernels and all
        figures of the block, and need not be additive over kernels. A block that may take its tokens in blocks has
        separate figures for each number of blocks (:attr:`dfopt.terms.token_blocks.TokenRows.numbers`).
    at_least, at_most : float
        Ends of the range, both included.
    grows : bool
        Promise that the value of a block never falls where one of its figures grows, as that of energy or traffic: then
        ``at_most`` bounds many shardings at once. It is taken at its word; a value of the kernels alone needs none.

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
    value: Callable[[PricedBlock], float]
    at_least: float = -math.inf
    at_most: float = math.inf
    grows: bool = False

    def __post_init__(self) -> None:
        ends = f"found at_least {self.at_least:g} and at_most {self.at_most:g}"
        if math.isinf(self.at_least) and math.isinf(self.at_most):
            raise PlanError(f"budget {self.name!r}: {ends}, expected a finite end; give one of them")
        if not self.at_least <= self.at_most:
            raise PlanError(f"budget {self.name!r}: {ends}, expected at_least <= at_most")


class _Watched(PricedBlock):
    """A block that notes whether anything of it is looked at beside its kernels."""

    looked = False

    def __getattribute__(self, name: str) -> Any:
        if name not in ("kernels", "looked"):
            object.__setattr__(self, "looked", True)
        return super().__getattribute__(name)


@dataclass(frozen=True)
class _Row:
    """A budget over the blocks of a MILP."""

    name: str
    value: Floats
    at_least: float
    at_most: float

    @property
    def unit(self) -> float:
        """The largest value of a block: rows are scaled with it, so tolerances are relative to it."""
        return max(float(np.abs(self.value).max(initial=0.0)), LEAST_UNIT)


@dataclass(frozen=True)
class Fitted:
    """The best partitions of a stage that keep budgets, with their proof.

    Attributes
    ----------
    partition_k : int array
        Partition of every kernel of the stage.
    tokens_k : int array
        Number of blocks in which the partition of every kernel takes its tokens, 0 where it holds its weights.
    seconds, low : float
        Seconds of one evaluation, and the lower bound over all partitions.
    units : tuple of float
        Scale of every budget, relative to which its total is compared with its limits.
    blocks : int
        Blocks in the MILP.
    """

    partition_k: Ints
    tokens_k: Ints
    seconds: float
    low: float
    units: tuple[float, ...]
    blocks: int


def fit(
    stage: PricedStage,
    budgets: Sequence[Budget],
    near_s: float,
    options: Options,
    most: float = np.inf,
    every: bool = False,
) -> Fitted | None:
    """The fastest partitions of a stage that keep budgets; None if they take ``most`` seconds or more.

    Parameters
    ----------
    stage : PricedStage
        Stage with its lattice.
    budgets : sequence of Budget
        Rows.
    near_s : float, s
        Seconds near which the answer is looked for first.
    options : Options
        Gap, solver and clock.
    most : float
        Seconds from which on nothing matters.
    every : bool
        Whether the stage stands for many shardings, with every figure at its least. Only budget rows that hold for all
        shardings are then used; without any, nothing is solved.

    Raises
    ------
    Infeasible
        If no partitioning keeps the budgets; the message names the totals that can be reached.
    PlanError, SolverFailure
        See :mod:`dfopt.errors`.
    """
    rounds = [factor * near_s for factor in _ROUNDS if factor * near_s < most] + [most]
    asked = options.request
    while True:
        upper = rounds.pop(0)
        columns, tokens_w, rows = _columns(stage, upper, budgets, options.clock, every)
        if not rows:
            none = np.zeros(0, dtype=np.int64)
            return Fitted(none, none, near_s, 0.0, (), 0)
        if not rounds and math.isinf(upper):
            _refuse(columns, rows)
        for row in rows:
            columns.add(f"budget {row.name}", row.value, row.at_least, row.at_most)
        solution = solve(
            columns.model, gap=asked.gap, clock=options.clock, seed=asked.seed, solver=asked.solver
        ).in_units(columns.unit_s)
        if solution.x is None and solution.termination is Termination.INFEASIBLE:
            if rounds:
                continue
            if math.isfinite(upper):
                return None
            listed = ", ".join(repr(row.name) for row in rows)
            raise Infeasible(
                f"no partitioning keeps the budgets {listed} together, nor with the limits of the chip; move one"
            )
        if solution.x is None:
            raise unanswered(solution)
        found_s = solution.objective
        if found_s > upper and upper >= most:
            return None
        if found_s <= upper or options.clock.over:
            break
        rounds = [min(found_s * (1 + TIES), most)]  # blocks of all that is no slower: the next answer is the last
    part = numbered(stage.tables, stage.limits, columns.decode(solution.x))
    taken = columns.block[columns.taken(solution.x)]
    low = min(solution.bound, upper, found_s)
    units = tuple(row.unit for row in rows)
    return Fitted(part, tokens_w[taken] @ columns.member[taken], found_s, low, units, len(columns.seconds))


def _columns(
    stage: PricedStage, upper: float, budgets: Sequence[Budget], clock: Clock, every: bool
) -> tuple[Columns, Ints, list[_Row]]:
    """The MILP over the blocks of mappings up to ``upper`` seconds, without rows; how each of them runs; and the rows.

    Where a budget looks at more than kernels, a block is there once for every way to run it. The int array has the
    number of blocks of tokens of each way, 0 where weights are held.
    """
    assert stage.lattice is not None
    began = time.perf_counter()
    search = ShortestPath(stage.tables, stage.limits, stage.lattice, upper)
    if not search.run(clock).complete:
        raise NoSolution(0.0, time.perf_counter() - began)
    before, after, _ = near_blocks(search)
    member = stage.lattice.member[after] & ~stage.lattice.member[before]
    ways = fastest_ways(stage.tables, member)
    value_rw, looked_rw = _valued(stage.tables, member, ways, budgets)
    if stage.tables.sharded.token_charges is not None and looked_rw.any():
        ways = every_way(stage.tables, member, upper - beside_blocks(search, before, after))
        value_rw, looked_rw = _valued(stage.tables, member, ways, budgets)
    rows = list[_Row]()
    for budget, value_w, looked_w in zip(budgets, value_rw, looked_rw, strict=True):
        least, most = budget.at_least, budget.at_most
        if every and looked_w.any():  # it may be anything under some sharding
            least, most = -math.inf, most if budget.grows else math.inf
        if math.isfinite(least) or math.isfinite(most):
            rows.append(_Row(budget.name, value_w, least, most))
    kept = _undominated(ways, rows)
    rows = [replace(row, value=row.value[kept]) for row in rows]
    ways = ways.of(kept)
    blocks = before[ways.place_w], after[ways.place_w], ways.prices.time
    return Columns(search, blocks=blocks), ways.tokens_w, rows


def _valued(tables: StageTables, member: Bools, ways: BlockWays, budgets: Sequence[Budget]) -> tuple[Floats, Bools]:
    """Values of ways to run blocks for each budget, and whether each looked at more than kernels."""
    names, prices = np.array(tables.sharded.names, dtype=object), ways.prices
    shared, more = np.split(prices.seconds, [len(RESOURCES)])
    figures = np.stack([*shared, prices.time, prices.dram_bytes, prices.sram_bytes, *more], axis=1)
    kernels = [tuple(names[row]) for row in member]
    blocks = [_Watched(kernels[b], *line) for b, line in zip(ways.place_w.tolist(), figures.tolist(), strict=True)]
    value_rw, looked_rw = np.zeros((len(budgets), len(blocks))), np.zeros((len(budgets), len(blocks)), dtype=bool)
    for budget, value_w, looked_w in zip(budgets, value_rw, looked_rw, strict=True):
        for block in blocks:
            object.__setattr__(block, "looked", False)
        value_w[:] = [budget.value(block) for block in blocks]
        if not np.isfinite(value_w).all():
            at = int(np.argmin(np.isfinite(value_w)))
            raise PlanError(
                f"budget {budget.name!r}: found {value_w[at]} for the block {', '.join(blocks[at].kernels)}, expected a"
                " finite number"
            )
        looked_w[:] = [block.looked for block in blocks]
    return value_rw, looked_rw


def _undominated(ways: BlockWays, rows: Sequence[_Row]) -> Ints:
    """Ways without those that are no faster than another way of the same block, and no better for any row."""
    ends = [-row.value for row in rows if math.isfinite(row.at_least)]
    ends += [row.value for row in rows if math.isfinite(row.at_most)]
    return np.sort(pareto_fronts(ways.place_w, np.stack([ways.prices.time, *ends], axis=1)))


def _refuse(columns: Columns, rows: Sequence[_Row]) -> None:
    """Raise `Infeasible` for rows that no mapping keeps even alone, with how far mappings can go.

    The least sum over a path is a shortest path; where partitions are counted, it is a bound on that.
    """
    shortfalls = []
    for row in rows:
        for sign, limit, word, end in (
            (1.0, row.at_most, "at_most", "least"),
            (-1.0, row.at_least, "at_least", "most"),
        ):
            reached = sign * _least_sum(columns, sign * row.value)
            if math.isfinite(limit) and sign * (reached - limit) > _AGREE * row.unit:
                shortfalls.append(
                    f"budget {row.name!r}: found {word} {limit:.6g}, but the {end} that any partitioning reaches is"
                    f" {reached:.6g}"
                )
    if shortfalls:
        raise Infeasible("; ".join(shortfalls) + "; move the limit, or choose another sharding, plan or chip")


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


def totals_of(
    score: Score, stage: int, budgets: Sequence[Budget], units: Sequence[float], expected_s: float
) -> dict[str, float]:
    """Totals of the budgets over the judge's partitions of a stage.

    Parameters
    ----------
    score : Score
        The judge's score of the mapping.
    stage : int
        Stage of the mapping.
    budgets : sequence of Budget
        Sums that are limited.
    units : sequence of float
        Scale of each total, for the comparison.
    expected_s : float, s
        Seconds of the stage by the MILP.

    Returns
    -------
    dict
        Total by name of the budget.

    Raises
    ------
    ScoreMismatch
        If judge and MILP disagree.
    """
    check_stage(score, stage, expected_s)
    parts = [part for part in score.partitions if part.stage == stage]
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


def _judged(part: PartitionScore) -> PricedBlock:
    busy = part.compute_s, part.memory_s, part.network_s, part.time_s
    return PricedBlock(part.kernels, *busy, part.dram_bytes, part.sram_bytes, part.sram_s or 0.0)
