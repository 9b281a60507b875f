"""What must hold for every mapping on every stack: balance of energy, bounds, monotony, limits, symmetry."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from judge_cases import PLAIN, gemm, machine, place
from stack_cases import HOT, LEVELS, T0, dies, memory, stack
from test_judge_properties import World, worlds

from dfopt.documents.graph import Graph
from dfopt.documents.physical_score import PhysicalScore
from dfopt.documents.plan import Plan
from dfopt.documents.score import Score
from dfopt.documents.stack import Limits, LogicEnergies, Stack
from dfopt.documents.stack_parts import HtcPackage, Leakage, Tile
from dfopt.judge import evaluate
from dfopt.technology.power import COMPONENTS

COLD = HtcPackage(mode="htc", htc_w_per_m2k=2e5)


def tiled() -> tuple[Tile, ...]:
    """A floorplan with tiles of every kind of the logic die."""
    wide = {"width": 5e-3, "height": 5e-3}
    return (
        Tile(name="left", kind="compute", x=0, y=0, **wide),
        Tile(name="right", kind="compute", x=5e-3, y=0, **wide),
        Tile(name="cache", kind="sram", x=0, y=5e-3, **wide),
        Tile(name="mesh", kind="noc", x=5e-3, y=5e-3, width=2.5e-3, height=5e-3),
        Tile(name="phy", kind="io", x=7.5e-3, y=5e-3, width=2.5e-3, height=5e-3),
    )


@st.composite
def stacks(draw: st.DrawFn, **fixed: Any) -> Stack:
    """A stack that has memory on top or beside it, is cooled well or badly, and leaks or not."""
    leakage = draw(st.sampled_from([None, Leakage(power=5.0, at=T0 + 60, beta_per_k=0.015)]))
    layers = dies(draw(st.sampled_from([0, 1, 3])), leakage, draw(st.sampled_from([1, 2])))
    if draw(st.booleans()):
        layers = (layers[0].model_copy(update={"floorplan": tiled()}), *layers[1:])
    fields: dict[str, Any] = {
        "dies": layers,
        "package": HtcPackage(mode="htc", htc_w_per_m2k=draw(st.sampled_from([1e5, 2e4, 1e4]))),
        "ambient": T0 + draw(st.sampled_from([25.0, 45.0])),
        "dram": memory(interleave=draw(st.sampled_from([2.0, 4.0, 32.0]))),
        "logic": LogicEnergies(flop=0.05, sram=0.02, noc=0.01, network=0.1, idle=draw(st.sampled_from([0.0, 5.0]))),
        "limits": draw(st.sampled_from([Limits(), Limits(logic=T0 + 85, dram=T0 + 80, power=60.0)])),
        "placement": draw(st.sampled_from(["contiguous", "interleaved"])),
    }
    return stack(**{**fields, **fixed})


def scored(world: World, on: Stack, **more: Any) -> Score:
    return evaluate(world.mapping, world.graph, world.system, world.assumptions, on, **more)


def physics(world: World, on: Stack, **more: Any) -> PhysicalScore:
    found = scored(world, on, **more).physical
    assert found is not None
    return found


@given(worlds(), stacks())
def test_real_memory_is_never_faster_than_its_peak(world: World, on: Stack) -> None:
    assert on.dram.peak == pytest.approx(world.system.chip.dram.bandwidth)
    score = scored(world, on)
    found = score.physical
    assert found is not None
    assert found.step_time_s >= score.step_time_s * (1 - 1e-12)
    assert found.slowdown == pytest.approx(found.step_time_s / score.step_time_s)
    for part, plain in zip(found.partitions, score.partitions, strict=True):
        assert part.memory_s >= plain.memory_s * (1 - 1e-12)
        assert part.compute_s == pytest.approx(plain.compute_s / found.frequency, rel=1e-12)
        assert part.network_s == plain.network_s
        assert (part.dram_binding == "none") == (plain.dram_bytes == 0)
        if plain.dram_bytes:
            assert part.memory_s * part.dram_bandwidth_b_per_s == pytest.approx(plain.dram_bytes, rel=1e-9)
    if found.refresh_rate == 1 and not found.throttled and all(p.memory_s == 0 for p in found.partitions):
        assert found.step_time_s == pytest.approx(score.step_time_s, rel=1e-12)


@given(worlds(), stacks())
def test_energy_and_heat_add_up(world: World, on: Stack) -> None:
    found = physics(world, on)
    assert set(found.energy_j) == set(COMPONENTS)
    assert all(joules >= 0 for joules in found.energy_j.values())
    assert found.energy_per_step_j == pytest.approx(math.fsum(found.energy_j.values()), rel=1e-12)
    for chip in found.chips:
        assert chip.power_w == pytest.approx(math.fsum(tile.power_w for tile in chip.tiles), rel=1e-12)
        assert chip.power_w == pytest.approx(math.fsum(die.power_w for die in chip.dies), rel=1e-12)
        assert chip.stage_time_s <= found.interval_s * (1 + 1e-12)
        for die in chip.dies:
            assert die.max_c >= die.mean_c - 1e-9
        for tile in chip.tiles:
            assert on.ambient - T0 - 1e-9 <= tile.mean_c


@given(worlds().filter(lambda w: w.mapping.plan.pp == w.mapping.plan.dp == 1), stacks())
def test_power_times_time_is_the_energy(world: World, on: Stack) -> None:
    """With all memory in the stack, and nothing sent or waited for beside the partitions, a chip's heat is all."""
    assume(on.dram_dies)
    world = world.assuming(step_overhead=None)
    found = physics(world, on)
    whole = world.mapping.plan.tp * found.power_w * found.step_time_s
    assert whole == pytest.approx(found.energy_per_step_j, rel=1e-9)


@given(worlds().filter(lambda w: w.mapping.plan.tp == 1), stacks())
def test_every_flop_of_a_step_is_paid_once(world: World, on: Stack) -> None:
    """On every stage and copy, whatever stands for what; with one chip per layer no work is done twice."""
    score = scored(world, on)
    found = score.physical
    assert found is not None
    voltage = next(level.voltage for level in on.levels if level.frequency == found.frequency)
    wanted = score.flop_per_step * on.logic.flop * voltage**2
    assert found.energy_j["compute"] == pytest.approx(wanted, rel=1e-9)
    chips = world.system.chips
    assert found.energy_j["dram_background"] == pytest.approx(chips * 0.3 * found.step_time_s, rel=1e-9)


@given(worlds(), stacks(limits=Limits(logic=T0 + 70, dram=T0 + 68, power=50.0)))
def test_throttling_keeps_the_limits_or_says_that_it_cannot(world: World, on: Stack) -> None:
    found, hot = physics(world, on), physics(world, on, throttle=False)
    assert hot.frequency == 1.0 and not hot.throttled
    assert found.throttled == bool(hot.violations)
    assert found.frequency in [level.frequency for level in on.levels]
    # a lower clock cools the DRAM too, and memory that is refreshed less often may make up for it
    assert found.step_time_s >= hot.step_time_s * (1 - 1e-12) or found.refresh_rate < hot.refresh_rate
    if found.violations:
        assert found.frequency == LEVELS[-1].frequency
        assert len(found.violations) == len(found.limits_broken)
        assert all("even at the lowest level" in sentence for sentence in found.violations)
        return
    assert found.logic_max_c <= 70.05 and found.power_w <= 50 * (1 + 1e-6)
    assert found.dram_max_c is None or found.dram_max_c <= 68.05
    faster = tuple(level for level in on.levels if level.frequency > found.frequency)
    if faster:  # no level above it would do
        assert physics(world, on.model_copy(update={"levels": faster})).violations


@given(worlds(), stacks())
def test_a_hotter_room_is_never_faster_and_never_cooler(world: World, on: Stack) -> None:
    steady = on.model_copy(update={"limits": Limits()})
    hotter = steady.model_copy(update={"ambient": steady.ambient + 15.0})
    before, after = physics(world, steady), physics(world, hotter)
    assert after.step_time_s >= before.step_time_s * (1 - 1e-12)
    # Refreshed more often, slower memory can cool a chip: only at one rate is the comparison of heat strict.
    if after.refresh_rate == before.refresh_rate == 1:
        assert after.logic_max_c >= before.logic_max_c + 15 - 1e-6
        assert after.energy_per_step_j >= before.energy_per_step_j * (1 - 1e-12)


@given(worlds(), stacks(limits=Limits(), dram=memory(refresh=HOT)))
def test_better_cooling_never_hurts(world: World, on: Stack) -> None:
    before = physics(world, on)
    after = physics(world, on.model_copy(update={"package": COLD}))
    assert after.step_time_s <= before.step_time_s * (1 + 1e-12)
    assert after.refresh_rate <= before.refresh_rate


@given(worlds(), stacks(limits=Limits()), st.sampled_from(["banks", "channels", "tRC", "requests", "refresh"]))
def test_better_memory_never_hurts(world: World, on: Stack, what: str) -> None:
    """Without limits and refresh steps: else a faster chip, being hotter, may have to slow down."""
    dram = memory(refresh=())
    changes: dict[str, Any] = {
        "banks": {"banks_per_group": 8},
        "channels": {"channels": 2},
        "tRC": {"timings": dram.timings.model_copy(update={"tRAS": 0.1, "tRP": 0.04})},
        "requests": {"buffers": dram.buffers.model_copy(update={"requests": 64})},
        "refresh": {"timings": dram.timings.model_copy(update={"tRFC": 0.2})},
    }
    before = physics(world, on.model_copy(update={"dram": dram}))
    after = physics(world, on.model_copy(update={"dram": dram.model_copy(update=changes[what])}))
    assert after.step_time_s <= before.step_time_s * (1 + 1e-9)


@given(worlds(), stacks())
def test_scores_are_documents_and_repeat_themselves(world: World, on: Stack) -> None:
    score = scored(world, on)
    assert Score.from_data(score.to_data()) == score
    assert scored(world, on) == score
    plain = scored(world, on, physical=False)
    assert score.model_copy(update={"physical": None}) == plain
    assert "physical" not in plain.to_data()


@given(st.integers(1, 4), st.booleans())
def test_an_even_chip_is_evenly_hot(drams: int, leaks: bool) -> None:
    leakage = Leakage(power=5.0, at=T0 + 60, beta_per_k=0.015) if leaks else None
    on = stack(dies=dies(drams, leakage), placement="interleaved")
    graph = Graph(name="g", kernels=(gemm("a", 10, 10, 5), gemm("b", 5, 3, 8)))
    found = evaluate(place(graph, {"a": 0, "b": 1}), graph, machine(), PLAIN, on).physical
    assert found is not None
    for die in ("logic", *(die.name for die in on.dram_dies)):
        heat = [tile.mean_c for tile in found.chips[0].tiles if tile.die == die]
        assert heat == pytest.approx([heat[0]] * 4, abs=1e-9)
    means = [die.mean_c for die in found.chips[0].dies]
    assert means == sorted(means, reverse=True)  # from the far face to the sink it gets cooler


def test_contiguous_kernels_heat_their_own_corner() -> None:
    """Two kernels with half of the chip each, all work in one of them: its half is the hotter one."""
    graph = Graph(name="g", kernels=(gemm("a", 40, 20, 10), gemm("b", 1, 1, 1)))
    mapping = place(graph, {"a": 0, "b": 0}, Plan(), tiles=4)
    on = stack(dies=dies(0))
    cycle = machine(tiles=8, lanes=1, stages=1, frequency=1e4)
    rules = PLAIN.with_(compute_model="cycle", tile_rows=10)
    found = evaluate(mapping, graph, cycle, rules, on).physical
    spread = evaluate(mapping, graph, cycle, rules, on.model_copy(update={"placement": "interleaved"})).physical
    assert found is not None and spread is not None
    watts = {tile.tile: tile.power_w for tile in found.chips[0].tiles}
    assert watts["0,0"] == pytest.approx(watts["1,0"], rel=1e-9)
    assert watts["0,1"] == pytest.approx(watts["1,1"], rel=1e-9)
    assert watts["0,0"] > 5 * watts["0,1"]
    assert spread.power_w == pytest.approx(found.power_w, rel=1e-9)
    assert spread.logic_max_c < found.logic_max_c
