"""The physical judge against figures worked out by hand: one kernel, one tile, heat in one dimension."""

from __future__ import annotations

import math
from typing import Any

import pytest
from judge_cases import PLAIN, closed, gemm, machine, place, ring, simd
from stack_cases import LEVELS, T0, TIMINGS, memory, stack

from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.mapping import Mapping, PartitionClock, Pause
from dfopt.documents.physical_score import PhysicalScore
from dfopt.documents.plan import Plan
from dfopt.documents.stack import Limits, LogicEnergies, Stack
from dfopt.documents.stack_dram import RefreshStep
from dfopt.documents.stack_parts import Bond, Die, HtcPackage, Leakage, TileGrid
from dfopt.documents.system import System
from dfopt.documents.tokens import Tokens
from dfopt.errors import SystemSpecError
from dfopt.judge import evaluate
from dfopt.technology.dram import bounds_of_streams

# 2 x 10 x 10 x 5 FLOP at 500 FLOP/s: 2 s; 200 B of weights at 100 B/s: 2 s, a little more on real DRAM.
ONE = closed(name="one", kernels=(gemm("a", 10, 10, 5),), batch=4, tokens=Tokens(processed=3))


def judged(graph: Graph, mapping: Mapping, on: Stack, system: System | None = None, **more: Any) -> PhysicalScore:
    """The physical part of a score."""
    found = evaluate(mapping, graph, system or machine(), PLAIN, on, **more).physical
    assert found is not None
    return found


def one(on: Stack, **more: Any) -> PhysicalScore:
    """One kernel by itself, four microbatches."""
    return judged(ONE, place(ONE, {"a": 0}, Plan(microbatches=4)), on, **more)


def column(leakage: Leakage | None = None, **changes: Any) -> Stack:
    """A logic die of one tile, glued to a cold plate: (50 um / 120 + 20 um / 2 + 1e-5) / 1e-4 m2."""
    tim = Bond(kind="tim", thickness=20e-6, conductivity=2.0)
    die = Die(
        name="logic", kind="logic", thickness=1e-4, floorplan=TileGrid(columns=1, rows=1), leakage=leakage, bond=tim
    )
    return stack(dies=(die,), **changes)


K_PER_W = (50e-6 / 120 + 20e-6 / 2 + 1 / 1e5) / 1e-4


def test_one_kernel_on_one_tile() -> None:
    found = one(column(logic=LogicEnergies(flop=0.01, sram=0.001, noc=1.0, network=1.0, idle=3.0), dram=memory(2)))
    (part,), (chip,) = found.partitions, found.chips
    assert part.compute_s == pytest.approx(2.0, rel=1e-12)
    # Weights are one run of 200 B, 100 B in each channel: whole rows of 8 bursts.
    assert part.bursts_per_activate == pytest.approx(8.0, rel=1e-12)
    assert part.read_share == 1.0
    assert found.step_time_s == pytest.approx(8.0, rel=1e-12)
    assert found.modelled_step_time_s == pytest.approx(8.0, rel=1e-12)
    wanted = {
        "compute": 4 * 1000 * 0.01,
        "sram": 4 * 200 * 0.001,
        "noc": 0.0,
        "network": 0.0,
        "dram_activate": 4 * 100 / 8 * 0.5,
        "dram_read": 4 * 100 * 0.1,
        "dram_write": 0.0,
        "io": 4 * 200 * 0.02,
        "dram_refresh": 8.0 * 2 * 4.0 / 20.0,
        "dram_background": 8.0 * 2 * 0.3,
        "leakage": 0.0,
        "idle": 8.0 * 3.0,
    }
    assert found.energy_j == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    assert found.energy_per_step_j == pytest.approx(sum(wanted.values()), rel=1e-9)
    assert found.energy_per_token_j == pytest.approx(sum(wanted.values()) / 12, rel=1e-9)
    # The memory is beside the die: of it only half of the interface's energy heats the die.
    watts = (10.0 + 0.2 + 0.5 * 200 * 0.02) / 2.0 + 3.0
    assert chip.power_w == pytest.approx(watts, rel=1e-9)
    assert chip.tiles[0].mean_c == pytest.approx(25 + watts * K_PER_W, rel=1e-9)
    assert chip.dies[0].max_c == pytest.approx(chip.dies[0].mean_c, rel=1e-9)
    assert found.dram_max_c is None
    assert not found.violations and not found.throttled and found.loop_gain == 0.0


def test_memory_time_is_that_of_the_bandwidth_formula() -> None:
    on = column()
    # 8 bursts a row, from 8 banks in 2 groups in turn, reads alone, no way outside the DRAM, 32 requests in flight
    eight = (8, 8, 2, False, 1.0, 0.0, math.inf, 32)
    bandwidth = float(bounds_of_streams([eight], on.dram.timings, on.dram.burst).bandwidth[0])
    (part,) = one(on).partitions
    assert bandwidth < 100
    assert part.dram_bandwidth_b_per_s == pytest.approx(bandwidth, rel=1e-12)
    assert part.memory_s == pytest.approx(200 / bandwidth, rel=1e-12)
    assert part.bound_by == "memory" and part.dram_binding == "port"
    assert one(on).step_time_s == pytest.approx(4 * 200 / bandwidth, rel=1e-12)


def test_leakage_solves_its_own_equation() -> None:
    leak = Leakage(power=10.0, at=T0 + 60, beta_per_k=0.02)
    found = one(column(leak, dram=memory(4)))
    (chip,) = found.chips
    celsius = chip.tiles[0].mean_c
    other = (100.0 + 2.0 + 0.5 * 200 * 0.02) / 2.0 + 5.0
    power = other + 10.0 * math.exp(0.02 * (celsius - 60))
    assert chip.power_w == pytest.approx(power, rel=1e-8)
    assert celsius == pytest.approx(25 + K_PER_W * power, rel=1e-8)
    # what a watt of leakage brings back
    assert found.loop_gain == pytest.approx(K_PER_W * 0.02 * 10.0 * math.exp(0.02 * (celsius - 60)), rel=1e-6)


def test_throttling_takes_the_highest_level_that_keeps_the_limit() -> None:
    free = column(dram=memory(4))
    hottest = {}
    for level in LEVELS:  # by hand: time 2 s / f, dynamic energy x V^2, clock power x f V^2
        f, v = level.frequency, level.voltage
        watts = ((100.0 + 2.0) * v**2 + 2.0) / (2.0 / f) + 5.0 * f * v**2
        hottest[f] = 25 + watts * K_PER_W
    limit = (hottest[0.7] + hottest[0.8]) / 2
    found = one(free.model_copy(update={"limits": Limits(logic=T0 + limit)}))
    assert found.throttled and found.frequency == 0.7
    assert found.logic_max_c == pytest.approx(hottest[0.7], rel=1e-9)
    assert found.step_time_s == pytest.approx(8.0 / 0.7, rel=1e-9)
    assert not found.violations


def test_no_level_keeps_the_limit() -> None:
    found = one(column(dram=memory(4), limits=Limits(logic=T0 + 26)))
    assert found.frequency == 0.5
    assert found.limits_broken == ("logic",)
    (sentence,) = found.violations
    assert "even at the lowest level (50 % of the nominal frequency)" in sentence and "limit is 26 degC" in sentence


def test_power_limit_and_no_throttle() -> None:
    on = column(dram=memory(4), limits=Limits(power=40.0))
    assert one(on).throttled and one(on).power_w <= 40.0
    kept = one(on, throttle=False)
    assert not kept.throttled and kept.frequency == 1.0 and kept.limits_broken == ("power",)
    assert kept.violations == ("the stack takes 57 W at 100 % of the nominal frequency, the limit is 40 W",)


def test_runaway_is_noticed_and_said() -> None:
    leak = Leakage(power=20.0, at=T0 + 40, beta_per_k=0.15)
    found = one(column(leak, dram=memory(4), levels=LEVELS[:1]))
    assert found.runaway and found.limits_broken == ("runaway",)
    assert found.violations[0].startswith("thermal runaway at 100 % of the nominal frequency: past ")
    assert found.logic_max_c < 1001
    cooler = one(column(leak, dram=memory(4), package=HtcPackage(mode="htc", htc_w_per_m2k=1e7), ambient=T0 + 1))
    assert not cooler.runaway and not cooler.violations


def test_refresh_that_would_alternate_stays_at_the_higher_rate() -> None:
    """Two DRAM dies at the edge: hot enough for eight refreshes at the normal rate, too cool at eight."""
    steps = (RefreshStep(above=T0 + 40.0, rate=8.0),)
    calm = one(stack(dram=memory(refresh=())))
    edge = calm.dram_max_c
    assert edge is not None
    on = stack(dram=memory(refresh=(steps[0].model_copy(update={"above": T0 + edge - 1e-3}),)))
    found = one(on)
    assert found.refresh_rate == 8.0
    assert found.chips[0].refresh_kept
    assert found.dram_max_c is not None and found.dram_max_c < edge - 1e-3
    assert found.step_time_s > calm.step_time_s
    lost = TIMINGS.tRFC + TIMINGS.tRP + TIMINGS.tRCDRD + TIMINGS.CL
    assert found.step_time_s / calm.step_time_s == pytest.approx((1 - lost / 20) / (1 - 8 * lost / 20), rel=0.05)


def test_refresh_rises_one_step_at_a_time() -> None:
    """At the normal rate hot enough for eight refreshes; at four the memory is slower, and cool enough to stay."""
    edge = one(stack(dram=memory(refresh=()))).dram_max_c
    at_four = one(stack(dram=memory(refresh=(RefreshStep(above=1.0, rate=4.0),)))).dram_max_c
    assert edge is not None and at_four is not None and at_four < edge
    between = T0 + (edge + at_four) / 2
    steps = (RefreshStep(above=T0 + at_four - 1.0, rate=4.0), RefreshStep(above=between, rate=8.0))
    found = one(stack(dram=memory(refresh=steps)))
    assert (found.refresh_rate, found.chips[0].refresh_kept) == (4.0, False)
    assert found.dram_max_c == pytest.approx(at_four, abs=1e-6)


def test_a_clock_and_a_pause_in_the_plain_and_the_physical_judge() -> None:
    mapping = place(ONE, {"a": 0}, Plan(microbatches=4)).model_copy(
        update={"clocks": (PartitionClock(partition=0, frequency=0.8),), "pauses": (Pause(time=1.5),)}
    )
    score = evaluate(mapping, ONE, machine(), PLAIN, column(dram=memory(4)))
    assert score.partitions[0].compute_s == pytest.approx(2.5, rel=1e-12)
    assert score.step_time_s == pytest.approx(4 * (2.5 + 1.5), rel=1e-12)
    found = score.physical
    assert found is not None
    assert found.step_time_s == pytest.approx(16.0, rel=1e-12)
    assert found.partitions[0].frequency == 0.8
    voltage = 0.4 + 0.6 * 0.8
    # The pause is at the lowest level, the partition at its own.
    idle = 5.0 * (2.5 * 0.8 * voltage**2 + 1.5 * 0.5 * 0.7**2) / 4.0
    watts = (102.0 * voltage**2 + 2.0) / 4.0 + idle
    assert found.power_w == pytest.approx(watts, rel=1e-9)
    assert found.energy_j["compute"] == pytest.approx(4 * 100.0 * voltage**2, rel=1e-9)


def test_energy_of_messages() -> None:
    """A layer on two chips in a ring, split along the contraction: an all-reduce of 100 B, half of it sent twice."""
    graph = closed(name="pair", kernels=(gemm("a", 10, 10, 5), simd("b", 10, 5)), tensors=(Tensor(src="a", dst="b"),))
    mapping = place(graph, {"a": ("k", 0), "b": ("none", 0)}, Plan(tp=2, tp_dims=("x",)))
    found = judged(graph, mapping, column(), machine(ring("x", 2)))
    assert found.energy_j["network"] == pytest.approx(2 * 100.0 * 0.02, rel=1e-9)
    assert found.energy_j["noc"] == pytest.approx(2 * 100.0 * 0.005, rel=1e-9)
    # a reads half of its weights and writes its output, which b reads
    assert found.energy_j["sram"] == pytest.approx(2 * (100 + 100 + 100) * 0.01, rel=1e-9)
    assert found.energy_j["compute"] == pytest.approx((1000 + 2 * 50) * 0.1, rel=1e-9)


def test_memory_that_does_nothing_but_refresh() -> None:
    always = (RefreshStep(above=1.0, rate=19.0),)
    with pytest.raises(SystemSpecError, match=r"\$\.dram\.refresh: at 19 times the normal refresh rate"):
        one(stack(dram=memory(refresh=always)))


def test_a_stack_that_is_too_small() -> None:
    found = one(column(dram=memory(4, capacity=100.0)))
    assert found.limits_broken == ("capacity",)
    assert "needs 2e-07 GB of DRAM per chip, the stack has 1e-07 GB" in found.violations[0]


def test_the_stack_of_the_system_counts_unless_told_otherwise() -> None:
    system = machine().model_copy(update={"stack": column()})
    mapping = place(ONE, {"a": 0}, Plan(microbatches=4))
    assert evaluate(mapping, ONE, system, PLAIN).physical == one(column())
    assert evaluate(mapping, ONE, system, PLAIN, physical=False).physical is None
    other = evaluate(mapping, ONE, system, PLAIN, stack(name="other")).physical
    assert other is not None and other.stack == "other"
    assert evaluate(mapping, ONE, machine(), PLAIN).physical is None


def test_a_throttled_chip_caps_every_clock() -> None:
    """A level of 90 % leaves the partition that the mapping runs at 80 % where it is."""
    graph = closed(name="two", kernels=(gemm("a", 10, 10, 5), gemm("b", 10, 10, 5)))
    slowed = place(graph, {"a": 0, "b": 1}).model_copy(update={"clocks": (PartitionClock(partition=1, frequency=0.8),)})
    free = judged(graph, slowed, column(dram=memory(4)))
    assert [part.frequency for part in free.partitions] == [1.0, 0.8]
    assert free.step_time_s == pytest.approx(2 + 2 / 0.8, rel=1e-12)
    tight = column(dram=memory(4), limits=Limits(power=free.power_w - 1.0))
    found = judged(graph, slowed, tight)
    assert found.frequency == 0.9
    assert [part.frequency for part in found.partitions] == [0.9, 0.8]
    assert found.step_time_s == pytest.approx(2 / 0.9 + 2 / 0.8, rel=1e-12)


def test_messages_between_stages_and_copies() -> None:
    """Two stages on two copies: 100 B go from stage to stage, and gradients of 200 B are summed over the copies."""
    kernels = (
        gemm("a", 10, 10, 5),
        simd("b", 10, 5),
        Kernel(name="w", op="weight_update", m=10, k=5, n=10, pass_="update"),
    )
    graph = closed(name="g", kernels=kernels, tensors=(Tensor(src="a", dst="b"), Tensor(src="b", dst="w")), batch=6)
    plan = Plan(pp=2, dp=2, pp_dims=("x",), dp_dims=("y",), microbatches=3)
    mapping = place(graph, {"a": ("none", 0, 0), "b": ("none", 0, 1), "w": ("none", 1, 1)}, plan)
    system = machine(ring("x", 2, 1000.0), ring("y", 2, 1000.0))
    on = column(dram=memory(4))
    found = judged(graph, mapping, on, system)
    messages, gradients = 2 * 3 * 100.0, 2 * 2 * (1 / 2) * 200.0
    assert found.energy_j["network"] == pytest.approx((messages + gradients) * 0.02, rel=1e-9)
    first = next(chip for chip in found.chips if chip.stage == 0)
    fast = on.model_copy(update={"logic": on.logic.model_copy(update={"network": 0.0})})
    silent = next(chip for chip in judged(graph, mapping, fast, system).chips if chip.stage == 0)
    assert first.power_w - silent.power_w == pytest.approx(100.0 * 0.02 / found.interval_s, rel=1e-9)
