"""`coupling.solve` against one that converges everything: every level, every refresh rate, every chip."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st
from stack_cases import HOT, LEVELS, T0, dies, memory, stack

from dfopt.arrays import Floats
from dfopt.documents.stack import Level, Limits, LogicEnergies, Stack
from dfopt.documents.stack_parts import HtcPackage, Leakage
from dfopt.physics import pipeline
from dfopt.technology.coupling import SLACK_K, ChipWork, StepWork, solve, voltage_at
from dfopt.technology.leaking import Feedback, leaking
from dfopt.technology.power import PowerModel
from dfopt.technology.stack_models import Heat, heat_of

BURNT_K = 2000.0


@dataclass(frozen=True)
class Plain:
    """What `solve` is to find."""

    frequency: float
    rates: tuple[float, ...]
    runaway: tuple[bool, ...]
    tiles_k: Floats
    tiles_w: Floats
    die_max_k: Floats
    interval_s: float
    broken: tuple[str, ...]


def lowest(model: PowerModel, heat: Heat, watts: Floats, voltage: float) -> tuple[Floats, Floats] | None:
    """The lowest temperatures of the tiles with their watts, by plain steps from below; none in a runaway."""
    kelvin = heat.ambient_k + heat.means_k_per_w @ watts
    for _ in range(200_000):
        whole = watts + model.leakage(kelvin, voltage)
        after = heat.ambient_k + heat.means_k_per_w @ whole
        if not float(after.max()) < BURNT_K:
            return None
        if float(np.abs(after - kelvin).max()) < 1e-11:
            return after, whole
        kelvin = after
    # After so many steps it creeps: past the point where solutions end, or so near it that it makes no difference.
    assume(False)
    raise AssertionError


def settled(work: StepWork, model: PowerModel, heat: Heat, level: Level) -> Plain:
    """The solution at one level."""
    on, chips = model.stack, work.chips
    clocks = np.minimum(work.clocks, level.frequency)
    voltages = np.array([voltage_at(on, float(clock)) for clock in clocks])
    slow = on.levels[-1]
    kinds = {die.name: die.kind for die in on.layers}
    dram = [kinds[die] == "dram" for die in heat.dies]
    logic = [kinds[die] == "logic" for die in heat.dies]
    rates = [on.dram.refresh_rate(on.ambient)] * len(chips)
    while True:
        seconds, stages = [], []
        for chip, rate in zip(chips, rates, strict=True):
            terms = zip(work.compute_s / clocks, work.memory_s(rate), work.network_s, strict=True)
            seconds.append(np.array([pipeline.partition_time(*map(float, term), work.overlap) for term in terms]))
            stages.append(float(chip.runs @ seconds[-1]) + chip.pause_s)
        interval = max(stages)
        found = []
        for chip, rate, spent in zip(chips, rates, seconds, strict=True):
            busy = chip.runs * spent / interval
            rest = max(1 - float(busy.sum()), 0.0)
            idle = float(busy @ (clocks * voltages**2)) + rest * slow.frequency * slow.voltage**2
            leak = float(busy @ voltages) + rest * slow.voltage
            joules = chip.runs @ (voltages[:, None] ** 2 * work.logic_j + work.outward_j) + chip.once_j
            found.append(lowest(model, heat, joules / interval + model.steady_power(rate, idle), leak))
        nothing = (np.full(model.count, np.inf),) * 2
        tiles_k, tiles_w = (np.array(each) for each in zip(*(one or nothing for one in found), strict=True))
        hot = np.array([[np.inf] * len(heat.dies) if one is None else heat.die_max(one[1]) for one in found])
        wanted = [on.dram.refresh_rate(float(row[dram].max())) if any(dram) else 0.0 for row in hot]
        pairs = list(zip(rates, wanted, strict=True))
        if all(more <= rate for rate, more in pairs):
            break
        rates = [min(s.rate for s in on.dram.refresh if s.rate > rate) if more > rate else rate for rate, more in pairs]
    limits, broken = on.limits, []
    if limits.logic is not None and hot[:, logic].max() > limits.logic + SLACK_K:
        broken.append("logic")
    if limits.dram is not None and any(dram) and hot[:, dram].max() > limits.dram + SLACK_K:
        broken.append("dram")
    if limits.power is not None and tiles_w.sum(axis=1).max() > limits.power * (1 + 1e-6):
        broken.append("power")
    runaway = tuple(one is None for one in found)
    return Plain(level.frequency, tuple(rates), runaway, tiles_k, tiles_w, hot, interval, tuple(broken))


def reference(work: StepWork, model: PowerModel, heat: Heat) -> Plain:
    """The first level that keeps the limits, or the last one."""
    for level in model.stack.levels:
        found = settled(work, model, heat, level)
        if not found.broken and not any(found.runaway):
            break
    return found


@st.composite
def hot_stacks(draw: st.DrawFn) -> Stack:
    """A small stack that leaks from little to far too much, with limits or without."""
    leakage = Leakage(
        power=draw(st.sampled_from([2.0, 10.0, 20.0])),
        at=T0 + draw(st.floats(40.0, 90.0)),
        beta_per_k=draw(st.sampled_from([0.005, 0.02, 0.04])),
    )
    ambient = T0 + draw(st.sampled_from([25.0, 45.0, 88.0]))
    warm = st.none() | st.floats(ambient + 5, T0 + 140)
    return stack(
        dies=dies(draw(st.sampled_from([0, 1, 2])), leakage),
        package=HtcPackage(mode="htc", htc_w_per_m2k=draw(st.sampled_from([5e3, 1e4, 3e4]))),
        ambient=ambient,
        limits=Limits(logic=draw(warm), dram=draw(warm), power=draw(st.none() | st.floats(5.0, 120.0))),
        dram=memory(refresh=draw(st.sampled_from([(), HOT[:1], HOT]))),
        logic=LogicEnergies(flop=0.1, sram=0.01, noc=0.005, network=0.02, idle=2.0),
        levels=draw(st.sampled_from([LEVELS, LEVELS[:1], LEVELS[::2]])),
    )


@st.composite
def works(draw: st.DrawFn, tiles: int) -> StepWork:
    """Partitions on one to three chips; memory gets slower with every refresh."""
    partitions, chips = draw(st.integers(1, 4)), draw(st.integers(1, 3))

    def floats(low: float, high: float, *shape: int) -> Floats:
        count = int(np.prod(shape))
        return np.array(draw(st.lists(st.floats(low, high), min_size=count, max_size=count))).reshape(shape)

    memory_s, slower = floats(0.0, 2.0, partitions), draw(st.sampled_from([0.05, 0.5, 3.0]))
    runs = floats(0.0, 3.0, chips, partitions).round()
    runs[:, 0] += 1
    return StepWork(
        compute_s=floats(0.1, 2.0, partitions),
        network_s=floats(0.0, 1.0, partitions),
        clocks=np.array([draw(st.sampled_from([1.0, 1.0, 0.6])) for _ in range(partitions)]),
        memory_s=lambda rate: memory_s * (1 + slower * rate),
        logic_j=draw(st.sampled_from([0.1, 3.0])) * floats(0.0, 5.0, partitions, tiles),
        outward_j=floats(0.0, 1.0, partitions, tiles),
        overlap=draw(st.sampled_from(["perfect", "none", "compute_memory"])),
        chips=tuple(ChipWork(row, np.zeros(tiles), draw(st.sampled_from([0.0, 1.0])), None) for row in runs),
    )


@given(st.data(), hot_stacks())
def test_what_is_not_converged_changes_nothing(data: st.DataObject, on: Stack) -> None:
    model, heat = PowerModel.from_stack(on), heat_of(on)
    work = data.draw(works(model.count))
    if len(on.levels) == 1:  # a clock is one of them
        work = replace(work, clocks=np.ones(len(work.clocks)))
    wanted = reference(work, model, heat)
    found, rounds = solve(work, model, heat)
    event(f"runaway {any(wanted.runaway)}, chips {len(work.chips)}, throttled {wanted.frequency < 1}")
    assert (found.level.frequency, found.refresh_rates) == (wanted.frequency, wanted.rates)
    assert found.runaway == any(wanted.runaway)
    assert found.interval_s == pytest.approx(wanted.interval_s, rel=1e-12)
    assert rounds >= found.iterations > 0
    for c, lost in enumerate(wanted.runaway):
        if not lost:
            assert found.tiles_k[c] == pytest.approx(wanted.tiles_k[c], abs=1e-6)
            assert found.tiles_w[c] == pytest.approx(wanted.tiles_w[c], rel=1e-6)
            assert found.die_max_k[c] == pytest.approx(wanted.die_max_k[c], abs=1e-6)
    if not found.runaway:
        assert tuple(one.what for one in found.broken) == wanted.broken


@given(hot_stacks(), st.floats(0.0, 60.0), st.floats(0.4, 1.0))
def test_iterates_are_lower_bounds(on: Stack, watts: float, voltage: float) -> None:
    """Those that are offered to `enough`, plain steps and Newton's alike."""
    model, heat = PowerModel.from_stack(on), heat_of(on)
    spent = np.full(model.count, watts / model.count)
    seen: list[tuple[Any, Any]] = []
    found = leaking(heat, Feedback.of(model, heat), spent, voltage, lambda *bounds: bool(seen.append(bounds)))
    whole = lowest(model, heat, spent, voltage)
    assert found.runaway == (whole is None)
    if whole is None:
        return
    for kelvin, power in [*seen, (found.temperature, found.watts)]:
        assert (kelvin <= whole[0] + 1e-7).all() and (power <= whole[1] + 1e-7).all()
    assert found.temperature == pytest.approx(whole[0], abs=1e-6)


def waiting_for_memory(model: PowerModel, *watts: float) -> StepWork:
    """A chip for each of the watts that it takes at the normal refresh rate, 4 s of memory; 7 s at twice that rate."""
    count, nothing = model.count, np.zeros((len(watts), model.count))
    joules = 4.0 * np.array(watts)[:, None] * np.ones(count) / count
    ones = np.ones(len(watts))
    chips = tuple(ChipWork(row, np.zeros(count), 0.0, None) for row in np.eye(len(watts)))
    return StepWork(ones, 0 * ones, ones, lambda rate: (1 + 3 * rate) * ones, nothing, joules, "perfect", chips)


def leaks_a_little(**changes: Any) -> Stack:
    """About 1 K/W above 25 degC, and leakage that adds some watts at 85 degC."""
    package = HtcPackage(mode="htc", htc_w_per_m2k=1e4)
    idle = LogicEnergies(flop=0.1, sram=0.01, noc=0.005, network=0.02, idle=0.0)
    return stack(dies=dies(1, Leakage(power=5.0, at=T0 + 85, beta_per_k=0.02)), package=package, logic=idle, **changes)


def test_a_level_is_not_lost_where_slower_memory_saves_it() -> None:
    on = leaks_a_little(limits=Limits(logic=T0 + 84))
    model, heat = PowerModel.from_stack(on), heat_of(on)
    work = waiting_for_memory(model, 75.0)
    found, _ = solve(work, model, heat)
    assert (found.level.frequency, found.refresh_rates, found.broken) == (1.0, (2.0,), ())
    steady = on.model_copy(update={"dram": memory(refresh=())})  # as warm as it gets if the rate stays
    hot, _ = solve(work, PowerModel.from_stack(steady), heat, throttle=False)
    assert [one.what for one in hot.broken] == ["logic"]


def test_a_chip_that_asks_early_leaves_the_question_to_the_others() -> None:
    """At the normal rate both want more, the second only because of its leakage; had it waited, it would not."""
    on = leaks_a_little()
    model, heat = PowerModel.from_stack(on), heat_of(on)
    work = waiting_for_memory(model, 65.0, 57.0)
    found, _ = solve(work, model, heat)
    assert found.refresh_rates == reference(work, model, heat).rates == (2.0, 2.0)
    assert found.refresh_kept == (True, True)
    alone, _ = solve(waiting_for_memory(model, 50.0), model, heat)
    assert alone.refresh_rates == (1.0,)
