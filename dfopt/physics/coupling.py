"""Times, power and temperature of a chip, solved together.

Heat slows a chip in three ways: leakage adds power, hot DRAM is refreshed more often and loses bandwidth, and above a
limit the clock is lowered. Time in turn decides the power: the same joules in fewer seconds.

At a given frequency and refresh rate all times are known, and temperature ``T`` solves ``T = T_a + R (P + leak(T))``
with R of nonnegative entries and ``leak`` convex and rising. From below, ``T <- T_a + R (P + leak(T))`` rises to the
lowest solution, and so do Newton's steps (Ortega and Rheinboldt, "Iterative Solution of Nonlinear Equations",
section 13.3). Once the loop gain, the spectral radius of ``R diag(leak')``, reaches 1 below a solution, there is none:
thermal runaway.

A chip that waits takes the lowest level, whatever the level of its work: nothing is made later by that, and of all
levels the lowest leaks and clocks the least. What is handed to the next stage is paid at nominal voltage, because the
links keep their rate at every level.

Refresh rates only ever rise while a solution is sought, so that two of them cannot alternate: where the hotter one
cools the DRAM (it slows the memory) below its own threshold, the hotter one is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dfopt.documents.stack import Level, Stack
from dfopt.physics import pipeline
from dfopt.physics.power import HOTTEST_EXPONENT, PowerModel
from dfopt.physics.stack_models import Heat

__all__ = ["Broken", "ChipWork", "State", "StepWork", "solve", "voltage_at"]

Floats = NDArray[np.float64]

CONVERGED_K = 1e-8
# What the solution may be above a limit: closer than the 0.05 K to which the loop is asked to converge, two
# temperatures are the same. It lets a mapping found with rounded figures keep the limit that it was made for.
SLACK_K = 0.05
_SLACK_W = 1e-6
# No chip works at 1000 degC: silicon turns intrinsic far below (Sze, "Physics of Semiconductor Devices", section 1.4).
SANE_K = 1273.15
_PLAIN, _NEWTON = 40, 60


@dataclass(frozen=True, eq=False)
class ChipWork:
    """What a chip of one pipeline stage does for one microbatch.

    Parameters
    ----------
    runs : array (P,)
        How often it evaluates each partition; 0 for those of other stages.
    once_j : array (I,)
        Joules spent on each tile beside the partitions, at any level: what is sent to the next stage.
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
    """Partitions of a mapping, and the chips of its distinct pipeline stages.

    Parameters
    ----------
    compute_s, network_s : array (P,)
        Seconds of one evaluation, compute at nominal frequency.
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
    """

    compute_s: Floats
    network_s: Floats
    clocks: Floats
    memory_s: Callable[[float], Floats]
    logic_j: Floats
    outward_j: Floats
    overlap: str
    chips: tuple[ChipWork, ...]


@dataclass(frozen=True)
class Broken:
    """A limit that is exceeded: ``logic`` and ``dram`` in kelvin, ``power`` in watts."""

    what: str
    found: float
    limit: float


@dataclass(frozen=True, eq=False)
class State:
    """The solution at one level; arrays have a row for each chip of `StepWork`.

    ``partition_s`` (C, P) and ``memory_s`` (C, P) are seconds of one evaluation, ``stage_s`` (C,) of one microbatch,
    and ``interval_s`` the slowest of these. ``tiles_w`` and ``tiles_k`` (C, I) are the mean power and temperature of
    each tile, ``die_max_k`` and ``die_mean_k`` (C, dies) what the field over the dies says. ``idle_share`` (C,) and
    ``leak_voltage`` (C,) are means over time of frequency x voltage^2 and of voltage.
    """

    level: Level
    partition_s: Floats
    memory_s: Floats
    stage_s: Floats
    interval_s: float
    dynamic_j: Floats
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
        """Whether the temperatures have settled."""
        return not self.runaway and self.change_k < SLACK_K

    @property
    def keeps_limits(self) -> bool:
        """Whether it could run for ever."""
        return self.converged and not self.broken


def voltage_at(stack: Stack, frequency: float) -> float:
    """Voltage, as a share of the nominal one, of the slowest level that is as fast as asked for.

    Examples
    --------
    >>> from dfopt.documents.zoo import find
    >>> voltage_at(Stack.load(find("stacks", "hybrid-vault")), 1.0)
    1.0
    """
    return next(level.voltage for level in reversed(stack.levels) if level.frequency >= frequency * (1 - 1e-9))


def solve(work: StepWork, model: PowerModel, heat: Heat, throttle: bool = True) -> tuple[State, int]:
    """Find the highest level of the whole chip that keeps the limits, and the solution there.

    A level caps the frequency of every partition; one that the mapping has put below the cap stays there. A chip that
    waits is at the lowest level in any case, so a mapping whose clocks are all at a level is as warm as one throttled
    to it.

    Parameters
    ----------
    work, model, heat
        What is done, what it costs, and how that warms the stack.
    throttle : bool
        False: stay at the nominal level whatever the limits say.

    Returns
    -------
    (State, int)
        The solution (of the last level if none keeps the limits), and the solutions of the loop in all.

    Examples
    --------
    One partition of 1 ms on a chip that does nothing but leak and keep its clocks running:

    >>> from dfopt.documents.zoo import find
    >>> from dfopt.physics.stack_models import heat_of
    >>> stack = Stack.load(find("stacks", "hybrid-vault"))
    >>> model = PowerModel.from_stack(stack, chip_tiles=64)
    >>> one, nothing = np.ones(1), np.zeros((1, model.count))
    >>> chip = ChipWork(runs=one, once_j=nothing[0], pause_s=0.0, hop_s=None)
    >>> work = StepWork(1e-3 * one, 0 * one, one, lambda rate: 0 * one, nothing, nothing, "perfect", (chip,))
    >>> state, _ = solve(work, model, heat_of(stack))
    >>> state.interval_s, state.keeps_limits, bool(state.tiles_w.sum() > stack.logic.idle)
    (0.001, True, True)
    """
    rounds = 0
    levels: Sequence[Level] = model.stack.levels if throttle else model.stack.levels[:1]
    state, feedback = None, _Feedback.of(model, heat)
    for level in levels:
        state = _settle(work, model, heat, feedback, level)
        rounds += state.iterations
        if state.keeps_limits:
            break
    assert state is not None  # a stack has a level
    leaky = feedback.leaky
    gains = (
        _gain(feedback.all_tiles, model.leakage_slope(tiles_k, float(voltage))[leaky], leaky)
        for tiles_k, voltage in zip(state.tiles_k, state.leak_voltage, strict=True)
    )
    return replace(state, gain=max(gains)), rounds


def _settle(work: StepWork, model: PowerModel, heat: Heat, feedback: _Feedback, level: Level) -> State:
    stack, chips = model.stack, work.chips
    lowest = stack.levels[-1]
    clocks = np.minimum(work.clocks, level.frequency)
    voltage_of = {clock: voltage_at(stack, clock) for clock in set(clocks.tolist())}
    voltages = np.array([voltage_of[clock] for clock in clocks.tolist()])
    compute_s = work.compute_s / clocks
    logic_j = np.square(voltages)[:, None] * work.logic_j + work.outward_j
    dynamic_j = np.array([chip.runs @ logic_j + chip.once_j for chip in chips])
    kinds = {die.name: die.kind for die in stack.layers}
    dram, logic = (np.array([kinds[die] == kind for die in heat.dies]) for kind in ("dram", "logic"))
    rates = [stack.dram.refresh_rate(stack.ambient)] * len(chips)
    iterations, times = 0, dict[float, tuple[Floats, Floats]]()
    while True:
        times |= {rate: _times(work, compute_s, rate) for rate in set(rates) - times.keys()}
        memory_s, partition_s = (np.array([times[rate][i] for rate in rates]) for i in (0, 1))
        stage_s = np.array([_stage_s(work, *both) for both in zip(chips, partition_s, strict=True)])
        interval = float(stage_s.max())
        found, idle, leak = [], np.empty(len(chips)), np.empty(len(chips))
        for c, (chip, rate) in enumerate(zip(chips, rates, strict=True)):
            busy = chip.runs * partition_s[c] / interval
            rest = max(1.0 - float(busy.sum()), 0.0)
            idle[c] = busy @ (clocks * np.square(voltages)) + rest * lowest.frequency * lowest.voltage**2
            leak[c] = busy @ voltages + rest * lowest.voltage
            watts = dynamic_j[c] / interval + model.steady_power(rate, idle[c])
            found.append(_leaking(heat, feedback, watts, leak[c]))
            iterations += found[-1].rounds
        tiles_w = np.array([one.watts for one in found])
        die_max = heat.die_max(tiles_w)
        wanted = list(rates)
        if dram.any():
            wanted = [stack.dram.refresh_rate(float(hot)) for hot in die_max[:, dram].max(axis=1)]
        # one step at a time: at the next rate the memory is slower, and may be cool enough to stay there
        higher = [_next_rate(stack, rate) if more > rate else rate for rate, more in zip(rates, wanted, strict=True)]
        if higher == rates:
            break
        rates = higher
    return State(
        level=level,
        partition_s=partition_s,
        memory_s=memory_s,
        stage_s=stage_s,
        interval_s=interval,
        dynamic_j=dynamic_j,
        tiles_w=tiles_w,
        tiles_k=np.array([one.temperature for one in found]),
        die_max_k=die_max,
        die_mean_k=heat.die_mean(tiles_w),
        refresh_rates=tuple(rates),
        refresh_kept=tuple(low < rate for low, rate in zip(wanted, rates, strict=True)),
        idle_share=idle,
        leak_voltage=leak,
        voltages=voltages,
        gain=0.0,
        runaway=any(one.runaway for one in found),
        change_k=max(one.change for one in found),
        iterations=iterations,
        broken=tuple(_broken(stack, die_max[:, logic], die_max[:, dram], tiles_w.sum(axis=1))),
    )


def _next_rate(stack: Stack, rate: float) -> float:
    """The refresh rate that follows on one; there is one, because a hotter DRAM asked for more."""
    return min(step.rate for step in stack.dram.refresh if step.rate > rate)


def _times(work: StepWork, compute_s: Floats, rate: float) -> tuple[Floats, Floats]:
    """Seconds of memory and of everything for each partition."""
    memory_s = work.memory_s(rate)
    terms = zip(compute_s.tolist(), memory_s.tolist(), work.network_s.tolist(), strict=True)
    return memory_s, np.array([pipeline.partition_time(*three, work.overlap) for three in terms])


def _stage_s(work: StepWork, chip: ChipWork, partition_s: Floats) -> float:
    """Seconds of one microbatch of a stage."""
    stage = float(chip.runs @ partition_s) + chip.pause_s
    return stage if chip.hop_s is None else pipeline.with_point_to_point(stage, chip.hop_s, work.overlap)


@dataclass(frozen=True, eq=False)
class _Feedback:
    """The tiles that leak, with the responses to their watts: what feeds back. The others only follow.

    ``matrix`` (L, L) is how they warm each other, ``all_tiles`` (I, L) how they warm all tiles.
    """

    leaky: NDArray[np.int64]
    matrix: Floats
    all_tiles: Floats
    beta: Floats
    at: Floats
    nominal: Floats
    on_logic: NDArray[np.bool_]

    @classmethod
    def of(cls, model: PowerModel, heat: Heat) -> Self:
        leaky = model.leaky
        columns = np.ascontiguousarray(heat.means_k_per_w[:, leaky])
        own = (model.leakage_beta[leaky], model.leakage_at_k[leaky], model.leakage_w[leaky])
        return cls(leaky, columns[leaky], columns, *own, model.on_logic[leaky])


@dataclass(frozen=True, eq=False)
class _Leaking:
    """Temperatures of the tiles with the power that belongs to them."""

    temperature: Floats
    watts: Floats
    runaway: bool
    change: float
    rounds: int


def _leaking(heat: Heat, feedback: _Feedback, watts: Floats, voltage: float) -> _Leaking:
    """Solve T = T_a + R (watts + leak(T)) for the lowest temperatures, or notice that there are none."""
    base, leaky = heat.ambient_k + heat.means_k_per_w @ watts, feedback.leaky
    if not len(leaky):
        return _Leaking(base, watts, False, 0.0, 1)
    matrix, start, beta, at = feedback.matrix, base[leaky], feedback.beta, feedback.at
    nominal = np.where(feedback.on_logic, voltage, 1.0) * feedback.nominal
    steepest, rises = float(beta.max()), bool(beta.any())
    now, leak, change, rounds, runaway = start, np.zeros(len(leaky)), 0.0, 0, False
    for rounds in range(1, _PLAIN + _NEWTON + 1):
        after = nominal * np.exp(np.minimum(beta * (now - at), HOTTEST_EXPONENT))
        warmed = matrix @ after
        step = start + warmed - now
        change = float(np.abs(step).max())
        # A row sum is at least the spectral radius, which is looked for only where it may be 1; and no row sum of
        # R diag(beta leak) is more than the largest beta times that of R diag(leak).
        if change > CONVERGED_K and steepest * float(warmed.max()) > 1 - 1e-9:
            slope = beta * after
            if float((matrix @ slope).max()) >= 1 and _gain(matrix, slope, np.arange(len(leaky))) >= 1:
                runaway = True
                break
        if rounds > _PLAIN:  # close to runaway the plain steps become too small to wait for
            solved = np.linalg.solve(np.eye(len(now)) - matrix * (beta * after), step)
            step = np.asarray(solved, dtype=np.float64)
        then = now + step
        if rises and float(then.max()) > SANE_K:
            runaway = True
            break
        now, leak = then, after  # `leak` is what brings `now` about
        if change < CONVERGED_K:
            break
    whole = watts.copy()
    whole[leaky] += leak
    return _Leaking(base + feedback.all_tiles @ leak, whole, runaway, change, rounds)


def _gain(columns: Floats, slope: Floats, leaky: NDArray[np.int64]) -> float:
    """Loop gain: the spectral radius of the positive matrix R diag(slope), between the bounds of Collatz and Wielandt.

    The ``columns`` of R and the ``slope`` are those of the ``leaky`` tiles; the slope of the others is 0.
    Source: Varga, "Matrix Iterative Analysis", theorem 2.2; the vector is that of the power method.
    """
    if not slope.any():
        return 0.0
    vector, most = np.ones(len(columns)), 0.0
    for _ in range(100):
        after = columns @ (slope * vector[leaky])
        ratio = after / vector
        most = float(ratio.max())
        if most - float(ratio.min()) <= 1e-7 * most:
            break
        vector = after / after.max()
    return most


def _broken(stack: Stack, logic_k: Floats, dram_k: Floats, power_w: Floats) -> Iterator[Broken]:
    limits = stack.limits
    hottest = float(logic_k.max())
    if limits.logic is not None and hottest > limits.logic + SLACK_K:
        yield Broken("logic", hottest, limits.logic)
    if limits.dram is not None and dram_k.size and float(dram_k.max()) > limits.dram + SLACK_K:
        yield Broken("dram", float(dram_k.max()), limits.dram)
    if limits.power is not None and float(power_w.max()) > limits.power * (1 + _SLACK_W):
        yield Broken("power", float(power_w.max()), limits.power)
