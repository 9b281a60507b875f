"""From heat problems to mappings that the judge finds cool enough: leakage, refresh rate and choice agree."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from dfopt.arrays import ROUNDING, Ints
from dfopt.documents.mapping import Mapping, PartitionClock, Pause
from dfopt.documents.physical_score import PhysicalScore
from dfopt.documents.score import Score
from dfopt.errors import Infeasible
from dfopt.fusion.priced import PricedPlan
from dfopt.heat.blocks import StageBlocks
from dfopt.heat.limits import ZERO_C, HeatLimits, Linearization, Rate
from dfopt.heat.period import HeatEffort, HeatSolution
from dfopt.heat.problem import HeatChoice, HeatProblem, HeatRows
from dfopt.judge import evaluate
from dfopt.terms.step.hops import hides_hops, hop_seconds

TOO_HOT_K = 0.02  # above a limit: then it is solved again, with a margin
_ABOVE: Final = 1.01  # times that: what a mapping is above its limit at least that needs another refresh rate
_SETTLED_K = 0.02  # change of the tiles' temperatures from one round to the next
_NEARLY: Final = 5  # times that change: up to it the next solve is the last
_BOILING_C: Final = 100.0  # of a die without a limit where no other has one: water boils
_ROUNDS = 8
_HEAT = {"logic", "dram", "power", "runaway", "convergence"}

Choose = Callable[[HeatRows, bool], tuple[list[StageBlocks], HeatProblem, HeatSolution]]


@dataclass(frozen=True)
class StackedMapping:
    """A mapping with its score on the stack."""

    mapping: Mapping
    score: Score

    @property
    def step_s(self) -> float:
        """Seconds of a step on the stack."""
        return physical(self.score).step_time_s


@dataclass(frozen=True)
class Settled(StackedMapping):
    """A mapping that keeps the limits by the judge, with the last solve that led to it.

    Attributes
    ----------
    answer : HeatSolution
        The last solve.
    rate : Rate
        Refresh rate of the DRAM.
    rows : HeatRows
        Limits of the last solve.
    blocks, rounds : int
        Number of blocks, and of solves until temperatures agreed.
    """

    answer: HeatSolution
    rate: Rate
    rows: HeatRows
    blocks: int
    rounds: int


def physical(score: Score) -> PhysicalScore:
    """Die-stack part of a score."""
    assert score.physical is not None  # judged with a stack
    return score.physical


def cool(score: Score) -> bool:
    """Whether a mapping keeps the limits on temperature and power, apart from memory capacity."""
    return not _HEAT & set(physical(score).limits_broken)


class HeatSettler:
    """Fixed-point iteration between choice and temperature, for one plan and sharding on a stack."""

    def __init__(self, ready: PricedPlan, limits: HeatLimits, effort: HeatEffort) -> None:
        self.ready, self.limits, self.effort = ready, limits, effort
        self.used = [*ready.stages]
        ranks = len(ready.instance.pipeline)
        self.runs_rs = np.zeros((ranks, len(self.used)))
        for r, rank in enumerate(ready.instance.pipeline):
            for number, times in rank.runs:
                if number in self.used:
                    self.runs_rs[r, self.used.index(number)] = times
        hops = np.array(hop_seconds(ready.instance, ready.sharded, ready.stage_k, least=False))
        hidden = hides_hops(ready.instance)
        pipelined = ready.instance.plan.stages > 1
        self.wait_r = hops if pipelined and not hidden else np.zeros(ranks)
        self.floor = float(hops.max()) if pipelined and hidden else 0.0

    # ------------------------------------------------------------ judge

    def judge(self, mapping: Mapping, throttle: bool = False) -> Score:
        """Score of a mapping on the stack at its own clocks, or throttled if allowed."""
        ready = self.ready
        model = ready.instance.setting.model
        return evaluate(
            mapping, model, ready.instance.system, ready.instance.assumptions, self.limits.stack, throttle=throttle
        )

    def at_level(self, mapping: Mapping, level: int) -> Mapping:
        """A mapping with all partitions at one clock level, without pauses."""
        frequency = float(self.limits.frequency_l[level])
        places = sorted({(kernel.stage, kernel.partition) for kernel in mapping.kernels})
        clocks = tuple(PartitionClock(stage=s, partition=p, frequency=frequency) for s, p in places)
        return mapping.model_copy(update={"clocks": clocks if frequency < 1 else None, "pauses": None})

    def over(self, score: Score, rate: Rate) -> float:
        """Largest excess over a temperature limit or over the refresh rate's limit, K; negative if all hold."""
        judged, limits = physical(score), self.limits.stack.limits
        hot = [-np.inf]
        if limits.logic is not None:
            hot.append(judged.logic_max_c + ZERO_C - limits.logic)
        if judged.dram_max_c is not None:
            if limits.dram is not None:
                hot.append(judged.dram_max_c + ZERO_C - limits.dram)
            if judged.refresh_rate > rate.rate:
                hot.append(max(judged.dram_max_c + ZERO_C - rate.below_k, TOO_HOT_K * _ABOVE))
        return max(hot)

    def operating(self, score: Score) -> Linearization:
        """Operating point of a score for linearization, with temperatures capped at the limits."""
        tiles = np.array([[t.mean_c + ZERO_C for t in chip.tiles] for chip in physical(score).chips])
        return self.held(Linearization(tiles, np.ones(len(tiles))))

    def held(self, where: Linearization) -> Linearization:
        """An operating point with temperatures capped at the limits."""
        most = np.array([self.limits.stack.most_k(die) for die, _ in self.limits.stack.tiles])
        # without a limit of its own a die is taken to be no hotter than the highest one, or boiling water
        other = most[np.isfinite(most)].max(initial=-np.inf)
        most[np.isinf(most)] = other if np.isfinite(other) else ZERO_C + _BOILING_C
        return Linearization(np.minimum(where.tiles_k, most), where.voltage_r)

    # ------------------------------------------------------------ blocks

    def chain(self, mapping: Mapping, rate: float) -> list[StageBlocks]:
        """For every used stage, the on-chip partitions of a mapping as its only blocks, at a refresh rate of DRAM."""
        kernels = self.limits.kernels
        return [
            kernels.hot(number, rate).chain(self.partitions(mapping, number), self.blocks_of_tokens(mapping, number))
            for number in self.used
        ]

    def partitions(self, mapping: Mapping, number: int) -> Ints:
        """Partition of every kernel of stage ``number`` in a mapping: int array, shape (kernels of the stage,)."""
        where = {kernel.name: kernel.partition for kernel in mapping.kernels}
        names = self.ready.sharded.names
        return np.array([where[names[k]] for k in self.ready.stages[number].members.tolist()], dtype=np.int64)

    def blocks_of_tokens(self, mapping: Mapping, number: int) -> Ints:
        """Number of blocks of tokens of the partition of every kernel of a stage; 0 if it stores its weights."""
        taken, partitions = mapping.blocks_by_partition, self.partitions(mapping, number).tolist()
        return np.array([taken.get((number, p), 0) for p in partitions], dtype=np.int64)

    def problem(self, blocks: list[StageBlocks], rows: HeatRows) -> HeatProblem:
        """The heat problem over some blocks."""
        stages = tuple(block.stage for block in blocks)
        return HeatProblem(stages, self.runs_rs, self.wait_r, self.floor, rows)

    def without_limits(self) -> HeatRows:
        """Empty limits, for the answer that ignores heat."""
        ranks, levels = len(self.runs_rs), len(self.limits.frequency_l)
        scale = self.limits.scale()
        none = np.zeros((ranks, 0))
        return HeatRows((), np.zeros((ranks, 0, scale.shape[1])), scale, np.zeros((ranks, 0, levels)), none, none)

    def starts(self, blocks: list[StageBlocks], mappings: list[Mapping]) -> list[HeatChoice]:
        """Starting choices: the given mappings at every uniform clock level and at their own clocks."""
        starts = []
        for mapping in mappings:
            clocks = {(clock.stage, clock.partition): clock.frequency for clock in mapping.clocks or ()}
            level_of = {float(f): level for level, f in enumerate(self.limits.frequency_l)}
            own: list[int | None] = [None, *range(len(self.limits.frequency_l))]
            for level in own:
                paths = []
                for number, block in zip(self.used, blocks, strict=True):
                    partition_k = self.partitions(mapping, number)
                    level_k = np.array([level_of.get(clocks.get((number, p), 1.0), 0) for p in partition_k.tolist()])
                    level_k = level_k if level is None else np.full_like(level_k, level)
                    paths.append(block.choice_of(partition_k, level_k, self.blocks_of_tokens(mapping, number)))
                starts.append(HeatChoice(tuple(arcs for arcs, _ in paths), tuple(levels for _, levels in paths)))
        return starts

    # ------------------------------------------------------------ mapping

    def mapping(self, blocks: list[StageBlocks], problem: HeatProblem, choice: HeatChoice, period_s: float) -> Mapping:
        """Mapping of a choice, with its clocks and the pause that completes its period.

        Parameters
        ----------
        blocks, problem, choice : list of StageBlocks, HeatProblem, HeatChoice
            A choice of the problem over some blocks.
        period_s : float, s
            Interval between microbatches, which pauses complete.
        """
        ready = self.ready
        count = len(ready.sharded.names)
        partition_k, level_k, tokens_k = np.zeros((3, count), np.int64)
        for s, number in enumerate(self.used):
            members = ready.stages[number].members
            partition_k[members], level_k[members], tokens_k[members] = blocks[s].partition_of(choice, s)
        places = {(int(ready.stage_k[k]), int(partition_k[k])): int(level_k[k]) for k in range(count)}
        clocks = tuple(
            PartitionClock(stage=stage, partition=partition, frequency=float(self.limits.frequency_l[level]))
            for (stage, partition), level in sorted(places.items())
            if level > 0
        )
        pauses = self._pauses(problem, choice, period_s)
        mapping = ready.mapping(partition_k, tokens_k)
        return mapping.model_copy(update={"clocks": clocks or None, "pauses": pauses or None})

    def _pauses(self, problem: HeatProblem, choice: HeatChoice, period_s: float) -> tuple[Pause, ...]:
        """One stage waits: of the slowest rank, one that no other rank runs if there is such a stage."""
        busy = problem.busy(choice)
        slowest = int(np.argmax(busy))
        idle = period_s - float(busy[slowest])
        if period_s <= problem.floor * (1 + ROUNDING) or idle <= ROUNDING * period_s:
            return ()
        stages = np.flatnonzero(self.runs_rs[slowest] > 0)
        alone = [s for s in stages.tolist() if (self.runs_rs[:, s] > 0).sum() == 1]
        stage = (alone or stages.tolist())[0]
        return (Pause(stage=self.used[stage], time=idle / float(self.runs_rs[slowest, stage])),)

    # ------------------------------------------------------------ the loop

    def settle(self, rate: Rate, where: Linearization, choose: Choose) -> Settled | None:
        """Alternate between choosing and judging until temperatures agree.

        Parameters
        ----------
        rate : Rate
            The refresh rate to stay at.
        where : Linearization
            Temperatures to begin with.
        choose : callable
            From rows to blocks, a problem over them and the answer; its second argument says whether it will do.

        Returns
        -------
        Settled or None
            The fastest mapping that the judge found cool enough; None if there was none.
        """
        best: Settled | None = None
        margin, final = 0.0, False
        for rounds in range(1, _ROUNDS + 1):
            rows = self.limits.rows(where, rate, margin)
            blocks, problem, answer = choose(rows, final)
            mapping = self.mapping(blocks, problem, answer.choice, answer.period_s)
            score = self.judge(mapping)
            after, over = self.limits.settled(problem, answer.choice, answer.period_s, rate)
            after = self.held(after)
            if physical(score).refresh_rate > rate.rate:
                over = max(over, self._before(mapping, rate))
            moved = float(np.abs(after.tiles_k - where.tiles_k).max())
            kept = self.over(score, rate) <= TOO_HOT_K and cool(score)
            if kept:
                settled = Settled(
                    mapping, score, answer, rate, rows, sum(len(block.member) for block in blocks), rounds
                )
                if best is None or settled.step_s <= best.step_s or final:
                    best = settled
            elif moved <= _NEARLY * _SETTLED_K or rounds > _ROUNDS // 2:
                margin += max(over, TOO_HOT_K) if np.isfinite(over) else TOO_HOT_K
            if final and kept and moved <= _NEARLY * _SETTLED_K:
                break
            if best is not None and time.perf_counter() > self.effort.deadline:
                break
            final = moved <= _NEARLY * _SETTLED_K
            where = after
        return best

    def _before(self, mapping: Mapping, rate: Rate) -> float:
        """Kelvin above what a refresh rate allows, of a mapping while its DRAM is refreshed less often.

        The judge raises rates from the slowest on. While the memory is faster the chip is hotter, and a rate that
        would do may be passed over.
        """
        over = -np.inf
        pauses = {pause.stage: pause.time for pause in mapping.pauses or ()}
        for lower in self.limits.rates:
            if lower.rate >= rate.rate:
                break
            blocks = self.chain(mapping, lower.rate)
            problem = self.problem(blocks, self.without_limits())
            choice = self.starts(blocks, [mapping])[0]
            idle = self.runs_rs @ np.array([pauses.get(number, 0.0) for number in self.used])
            period = max(self.floor, float((problem.busy(choice) + idle).max()))
            over = max(over, self.limits.settled(problem, choice, period, Rate(lower.rate, rate.below_k))[1])
        return over

    def fixed(self, blocks: list[StageBlocks], choice: HeatChoice) -> Choose:
        """A chooser that always returns one choice, with its shortest feasible period."""

        def choose(rows: HeatRows, final: bool) -> tuple[list[StageBlocks], HeatProblem, HeatSolution]:
            problem = self.problem(blocks, rows)
            period = problem.period(choice)
            none = np.zeros_like(rows.budget_ri)
            return blocks, problem, HeatSolution(choice, period, 0.0, problem.demand(choice), none, 0, "")

        return choose

    # ------------------------------------------------------------ throttling

    def throttled(self, mapping: Mapping) -> StackedMapping:
        """The mapping at the highest uniform clock level that keeps the limits, with pauses if none does.

        Raises
        ------
        Infeasible
            If even a chip that hardly works is too hot.
        """
        for level in range(len(self.limits.frequency_l)):
            slowed = self.at_level(mapping, level)
            score = self.judge(slowed)
            if cool(score):
                return StackedMapping(slowed, score)
        begin = self.operating(score)

        def with_pauses(rate: Rate, best: Settled | None) -> Settled | None:
            blocks = self.chain(mapping, rate.rate)
            choice = self.starts(blocks, [mapping])[-1]  # at the lowest level
            return self.settle(rate, begin, self.fixed(blocks, choice))

        why = "heat: no pause was found under which the throttled mapping keeps its limits"
        return fastest(self.limits.rates, with_pauses, why)


def fastest(rates: Iterable[Rate], at: Callable[[Rate, Settled | None], Settled | None], why: str) -> Settled:
    """The fastest settled mapping over some refresh rates.

    Parameters
    ----------
    rates : iterable of Rate
        Refresh rates to try.
    at : callable
        Function from a refresh rate and the best mapping so far to the mapping at that rate, or None.
    why : str
        Message of the error if there is none.
    """
    best: Settled | None = None
    refused = Infeasible(why)
    for rate in rates:
        try:
            settled = at(rate, best)
        except Infeasible as error:
            refused = error
            continue
        if settled is not None and (best is None or settled.step_s < best.step_s):
            best = settled
    if best is None:
        raise refused
    return best
