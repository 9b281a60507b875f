"""Times, power and temperature of a chip, solved together.

Heat slows a chip in three ways: leakage adds power, hot DRAM is refreshed more often and loses bandwidth, and above a
limit the clock is lowered. Time in turn decides the power: the same joules in fewer seconds.

At a given frequency and refresh rate all times are known, and temperature ``T`` solves ``T = T_a + R (P + leak(T))``:
`dfopt.technology.leaking`, from below. What such a lower bound already decides, a higher refresh rate or a lower level,
needs no solution.

A chip that waits takes the lowest level, whatever the level of its work: nothing is made later by that, and of all
levels the lowest leaks and clocks the least. What is handed to the next stage is paid at nominal voltage, because the
links keep their rate at every level.

Refresh rates only ever rise while a solution is sought, so that two of them cannot alternate: where the hotter one
cools the DRAM (it slows the memory) below its own threshold, the hotter one is kept. A stack that runs away gets as hot
as it takes: its DRAM asks for the highest rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.documents.stack import Level, Stack
from dfopt.physics import pipeline
from dfopt.technology.leaking import Feedback, Leaking, gain, leaking
from dfopt.technology.power import PowerModel
from dfopt.technology.stack_models import Heat

# What the solution may be above a limit: closer than the 0.05 K to which the loop is asked to converge, two
# temperatures are the same. It lets a mapping found with rounded figures keep the limit that it was made for.
SLACK_K = 0.05
_SLACK_W = 1e-6


@dataclass(frozen=True, eq=False)
class ChipWork:
    """Work of a chip of one pipeline stage for one microbatch.

    Parameters
    ----------
    runs : array (P,)
        Number of times that it evaluates each partition; 0 for those of other stages.
    once_j : array (I,)
        Energy on each tile outside of the partitions, J, at any clock level: that of messages to the next stage.
    pause_s : float
        Idle seconds of all its evaluations.
    hop_s : float or None
        Seconds to hand its tensors on; None without a pipeline.
    """

    runs: Floats
    once_j: Floats
    pause_s: float
    hop_s: float | None


@dataclass(frozen=True, eq=False)
class StepWork:
    """Work of a mapping on the chips of its distinct pipeline stages, for the thermal solution.

    Parameters
    ----------
    compute_s, network_s, sram_s : array (P,)
        Seconds of one evaluation, compute and SRAM at nominal frequency; without the last SRAM is never waited for.
    clocks : array (P,)
        Share of the nominal frequency that the mapping gives to each partition.
    memory_s : callable
        Refresh rate -> seconds of memory (P,).
    logic_j, outward_j : array (P, I)
        Joules of one evaluation on each tile: of the logic at nominal voltage, and of memory and links at any.
    overlap : str
        As in `dfopt.physics.pipeline.partition_time`.
    chips : tuple of ChipWork
        One for each distinct stage.
    hides_hops : bool, optional
        Whether stages work while they send to each other; as ``overlap`` has it if left out.
    """

    compute_s: Floats
    network_s: Floats
    clocks: Floats
    memory_s: Callable[[float], Floats]
    logic_j: Floats
    outward_j: Floats
    overlap: str
    chips: tuple[ChipWork, ...]
    sram_s: Floats | float = 0.0
    hides_hops: bool | None = None


@dataclass(frozen=True)
class Broken:
    """A limit that is exceeded.

    Attributes
    ----------
    what : str
        ``logic``, ``dram`` (temperature) or ``power``.
    value, limit : float, K or W
        Actual value, and the limit.
    """

    what: str
    value: float
    limit: float


@dataclass(frozen=True, eq=False)
class ThermalState:
    """Steady state of power and temperature at one clock level; arrays have one row for each chip of `StepWork`.

    ``partition_s`` (C, P) and ``memory_s`` (C, P) are seconds of one evaluation, ``stage_s`` (C,) of one microbatch,
    and ``interval_s`` the slowest of these. ``tiles_w`` and ``tiles_k`` (C, I) are the mean power and temperature of
    each tile, ``die_max_k`` and ``die_mean_k`` (C, dies) the maximum and mean of the temperature field of each die.
    ``idle_share`` (C,) and ``leak_voltage`` (C,) are means over time of frequency x voltage^2 and of voltage.

    ``level`` is the clock level, ``voltages`` the logic voltage of each partition, and ``refresh_rates`` the rate of
    each chip's DRAM, with ``refresh_kept`` where its temperature alone asks for less. ``gain`` is the loop gain of
    leakage, ``runaway`` whether it diverges, ``change_k`` the last change of a temperature, and ``broken`` the exceeded
    limits.
    """

    level: Level
    partition_s: Floats
    memory_s: Floats
    stage_s: Floats
    interval_s: float
    tiles_w: Floats
    tiles_k: Floats
    die_max_k: Floats
    die_mean_k: Floats
    refresh_rates: tuple[float, ...]
    refresh_kept: tuple[bool, ...]
    idle_share: Floats
    leak_voltage: Floats
    voltages: Floats
    gain: float
    runaway: bool
    change_k: float
    iterations: int
    broken: tuple[Broken, ...]

    @property
    def converged(self) -> bool:
        """Whether the temperature iteration has converged."""
        return not self.runaway and self.change_k < SLACK_K

    @property
    def keeps_limits(self) -> bool:
        """Whether all limits hold in the steady state."""
        return self.converged and not self.broken


def voltage_at(stack: Stack, frequency: float) -> float:
    """Voltage, relative to nominal, of the slowest level with at least this frequency.

    Examples
    --------
    >>> from dfopt.documents.zoo import find
    >>> voltage_at(Stack.load(find("stacks", "hybrid-vault")), 1.0)
    1.0
    """
    return next(level.voltage for level in reversed(stack.levels) if level.frequency >= frequency * (1 - 1e-9))


def solve(work: StepWork, model: PowerModel, heat: Heat, throttle: bool = True) -> tuple[ThermalState, int]:
    """Highest clock level of the whole chip that keeps the limits, and its steady state.

    A level caps the frequency of every partition; one that the mapping has put below the cap stays there. A chip that
    waits is at the lowest level in any case, so a mapping whose clocks are all at a level is as warm as one throttled
    to it.

    Parameters
    ----------
    work, model, heat
        Work of the mapping, power model, and thermal model of the stack.
    throttle : bool
        False: stay at the nominal level even if limits are exceeded.

    Returns
    -------
    (ThermalState, int)
        The solution (of the last level if none keeps the limits), and the solutions of the loop in all.

    Examples
    --------
    One partition of 1 ms on a chip that does nothing but leak and keep its clocks running:

    >>> from dfopt.documents.zoo import find
    >>> from dfopt.technology.stack_models import heat_of
    >>> stack = Stack.load(find("stacks", "hybrid-vault"))
    >>> model = PowerModel.from_stack(stack)
    >>> one, nothing = np.ones(1), np.zeros((1, model.count))
    >>> chip = ChipWork(runs=one, once_j=nothing[0], pause_s=0.0, hop_s=None)
    >>> work = StepWork(1e-3 * one, 0 * one, one, lambda rate: 0 * one, nothing, nothing, "perfect", (chip,))
    >>> state, _ = solve(work, model, heat_of(stack))
    >>> state.interval_s, state.keeps_limits, bool(state.tiles_w.sum() > stack.logic.idle)
    (0.001, True, True)
    """
    rounds, feedback, dies = 0, Feedback.of(model, heat), _Dies.of(model, heat)
    levels: Sequence[Level] = model.stack.levels if throttle else model.stack.levels[:1]
    state = None
    for level in levels:
        state, spent = _settle(work, model, heat, feedback, dies, level, last=level is levels[-1])
        rounds += spent
        if state is not None and state.keeps_limits:
            break
    assert state is not None  # a stack has a level, and the last one is always solved
    leaky = feedback.leaky
    gains = (
        gain(feedback.all_tiles, model.leakage_slope(tiles_k, float(voltage))[leaky], leaky)
        for tiles_k, voltage in zip(state.tiles_k, state.leak_voltage, strict=True)
    )
    return replace(state, gain=max(gains)), rounds


@dataclass(frozen=True, eq=False)
class _Dies:
    """Which dies, of those of `Heat`, and which tiles are logic and DRAM, and the highest refresh rate."""

    logic: Bools
    dram: Bools
    logic_tiles: Ints
    dram_tiles: Ints
    top_rate: float

    @classmethod
    def of(cls, model: PowerModel, heat: Heat) -> Self:
        kinds = {die.name: die.kind for die in model.stack.layers}
        logic, dram = (np.array([kinds[die] == kind for die in heat.dies]) for kind in ("logic", "dram"))
        tiles = (np.flatnonzero(model.on_logic), np.flatnonzero(model.dram_tiles))
        return cls(logic, dram, *tiles, max((step.rate for step in model.stack.dram.refresh), default=1.0))


def _settle(
    work: StepWork, model: PowerModel, heat: Heat, feedback: Feedback, dies: _Dies, level: Level, *, last: bool
) -> tuple[ThermalState | None, int]:
    """The solution at a level and the rounds that it took; none where a level that is not the last is lost earlier."""
    stack, chips = model.stack, work.chips
    lowest = stack.levels[-1]
    clocks = np.minimum(work.clocks, level.frequency)
    each_clock, place = np.unique(clocks, return_inverse=True)
    voltages = np.array([voltage_at(stack, clock) for clock in each_clock.tolist()])[place]
    clocked_s = work.compute_s / clocks, work.sram_s / clocks
    logic_j = np.square(voltages)[:, None] * work.logic_j + work.outward_j
    dynamic_j = np.array([chip.runs @ logic_j + chip.once_j for chip in chips])
    rates = [stack.dram.refresh_rate(stack.ambient)] * len(chips)
    iterations, times = 0, dict[float, tuple[Floats, Floats]]()
    while True:
        times |= {rate: _times(work, *clocked_s, rate) for rate in set(rates) - times.keys()}
        memory_s, partition_s = (np.array([times[rate][i] for rate in rates]) for i in (0, 1))
        stage_s = np.array([_stage_s(work, *both) for both in zip(chips, partition_s, strict=True)])
        interval = float(stage_s.max())
        # While rates may still rise, a chip above a limit may be saved by it: slower memory asks for less power.
        settled = not dies.dram.any() or min(rates) >= dies.top_rate
        solved, idle, leak = list[Leaking](), np.empty(len(chips)), np.empty(len(chips))
        for c, (chip, rate) in enumerate(zip(chips, rates, strict=True)):
            busy = chip.runs * partition_s[c] / interval
            rest = max(1.0 - float(busy.sum()), 0.0)
            idle[c] = busy @ (clocks * np.square(voltages)) + rest * lowest.frequency * lowest.voltage**2
            leak[c] = busy @ voltages + rest * lowest.voltage
            watts = dynamic_j[c] / interval + model.steady_power(rate, idle[c])
            lost = None if last else partial(_is_lost, stack, heat, dies)
            enough = lost if settled else partial(_asks_for_more, stack, heat, dies, rate)
            solved.append(leaking(heat, feedback, watts, leak[c], enough))
            iterations += solved[-1].rounds
            if settled and not last and (solved[-1].enough or solved[-1].runaway):
                return None, iterations
        tiles_w = np.array([solution.watts for solution in solved])
        die_max = _hottest(heat, solved, tiles_w)
        wanted = _refresh_rates(stack, dies, solved, die_max) if dies.dram.any() else list(rates)
        # one step at a time: at the next rate the memory is slower, and may be cool enough to stay there
        higher = [_next_rate(stack, rate) if more > rate else rate for rate, more in zip(rates, wanted, strict=True)]
        if higher == rates:
            break
        rates = higher
    state = ThermalState(
        level=level,
        partition_s=partition_s,
        memory_s=memory_s,
        stage_s=stage_s,
        interval_s=interval,
        tiles_w=tiles_w,
        tiles_k=np.array([solution.temperature for solution in solved]),
        die_max_k=die_max,
        die_mean_k=heat.die_mean(tiles_w),
        refresh_rates=tuple(rates),
        refresh_kept=tuple(low < rate for low, rate in zip(wanted, rates, strict=True)),
        idle_share=idle,
        leak_voltage=leak,
        voltages=voltages,
        gain=0.0,
        runaway=any(solution.runaway for solution in solved),
        change_k=max(solution.change for solution in solved),
        iterations=iterations,
        broken=tuple(_broken(stack, dies, die_max, tiles_w)),
    )
    return state, iterations


def _hottest(heat: Heat, solved: Sequence[Leaking], tiles_w: Floats) -> Floats:
    """The hottest place of each die, by chip; infinite for a chip whose solution was left as more than enough."""
    complete = [c for c, solution in enumerate(solved) if not solution.enough]
    die_max = np.full((len(solved), len(heat.dies)), np.inf)
    if complete:
        die_max[complete] = heat.die_max(tiles_w[complete])
    return die_max


def _refresh_rates(stack: Stack, dies: _Dies, solved: Sequence[Leaking], die_max: Floats) -> list[float]:
    """The refresh rate that the DRAM of each chip asks for at its temperature."""
    hottest = zip(solved, die_max[:, dies.dram].max(axis=1).tolist(), strict=True)
    return [dies.top_rate if solution.runaway else stack.dram.refresh_rate(hot) for solution, hot in hottest]


def _asks_for_more(stack: Stack, heat: Heat, dies: _Dies, rate: float, tiles_k: Floats, tiles_w: Floats) -> bool:
    """Whether DRAM at least so hot is refreshed more often than now."""
    # The means of tiles are at hand, its hottest cell is dear: it is looked at only where it is going to say yes.
    if not dies.dram_tiles.size or stack.dram.refresh_rate(float(tiles_k[dies.dram_tiles].max())) <= rate:
        return False
    return stack.dram.refresh_rate(float(heat.die_max(tiles_w)[dies.dram].max())) > rate


def _is_lost(stack: Stack, heat: Heat, dies: _Dies, tiles_k: Floats, tiles_w: Floats) -> bool:
    """Whether a stack at least so warm and so thirsty is above a limit."""
    limits = stack.limits
    if limits.power is None or float(tiles_w.sum()) <= limits.power:
        pairs = ((limits.logic, dies.logic_tiles), (limits.dram, dies.dram_tiles))
        if not any(limit is not None and of.size and float(tiles_k[of].max()) > limit for limit, of in pairs):
            return False
    return any(True for _ in _broken(stack, dies, heat.die_max(tiles_w[None]), tiles_w[None]))


def _next_rate(stack: Stack, rate: float) -> float:
    """The refresh rate that follows on one; there is one, because a hotter DRAM asked for more."""
    return min(step.rate for step in stack.dram.refresh if step.rate > rate)


def _times(work: StepWork, compute_s: Floats, sram_s: Floats, rate: float) -> tuple[Floats, Floats]:
    """Seconds of memory and of everything for each partition."""
    memory_s = work.memory_s(rate)
    terms = zip(*(each.tolist() for each in (compute_s, memory_s, work.network_s, sram_s)), strict=True)
    return memory_s, np.array([pipeline.partition_time(c, m, n, work.overlap, s) for c, m, n, s in terms])


def _stage_s(work: StepWork, chip: ChipWork, partition_s: Floats) -> float:
    """Seconds of one microbatch of a stage."""
    stage = float(chip.runs @ partition_s) + chip.pause_s
    hidden = work.overlap == "perfect" if work.hides_hops is None else work.hides_hops
    return stage if chip.hop_s is None else pipeline.with_point_to_point(stage, chip.hop_s, hidden)


def _broken(stack: Stack, dies: _Dies, die_max_k: Floats, tiles_w: Floats) -> Iterator[Broken]:
    """The limits that some chip is above; arrays as in `ThermalState`."""
    limits, power = stack.limits, float(tiles_w.sum(axis=1).max())
    logic_k, dram_k = die_max_k[:, dies.logic], die_max_k[:, dies.dram]
    hottest = float(logic_k.max())
    if limits.logic is not None and hottest > limits.logic + SLACK_K:
        yield Broken("logic", hottest, limits.logic)
    if limits.dram is not None and dram_k.size and float(dram_k.max()) > limits.dram + SLACK_K:
        yield Broken("dram", float(dram_k.max()), limits.dram)
    if limits.power is not None and power > limits.power * (1 + _SLACK_W):
        yield Broken("power", power, limits.power)
