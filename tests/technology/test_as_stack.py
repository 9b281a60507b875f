"""A derived chip as a stack of dies: it draws what it was derived to draw, and slows down by the same law."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest
from design_cases import chosen, data
from hypothesis import given
from hypothesis import strategies as st
from test_derive import TECHNOLOGY, drawn, one_of

import dfopt as df
from dfopt.documents.design import Design
from dfopt.documents.stack import Stack
from dfopt.errors import SystemSpecError
from dfopt.machines.stacks import load_stack
from dfopt.technology.as_stack import derived_stack, levels_of
from dfopt.technology.derived_design import DerivedDesign
from dfopt.technology.floorplan import Interface, floorplan
from dfopt.technology.voltage import overdrive, speed

HBM3, VAULT = load_stack("hbm3"), load_stack("hybrid-vault")


def some(seed: int) -> Design:
    """A random design of the technology of those tests, with a network over each role of links."""
    one = one_of(drawn(seed, 1), 0)
    shares = {"area": one.area_shares, "power": one.power_shares, "perimeter": one.edge_shares}
    budgets = {"chip_area_mm2": one.chip_area, "package_area_mm2": one.package_area, "power": one.power}
    dims = [{"name": role, "topology": "ring", "size": 4, "links": role} for role in TECHNOLOGY.links]
    return Design.from_data(
        {
            "schema": Design.SCHEMA, "name": "some", "technology": TECHNOLOGY.to_data(),
            "budgets": {**budgets, "power": f"{one.power} W"}, "shares": shares,
            "template": {"sram": "L2", "tiles": 8, "network": dims},
        }
    )  # fmt: skip


@given(st.integers(0, 10**6))
def test_a_chip_that_does_all_it_can_draws_what_it_was_derived_to_draw(seed: int) -> None:
    design = some(seed)
    made = DerivedDesign(design, HBM3)
    chip = made.components
    if not (chip.core.peak > 0 and chip.dram.bandwidth > 0):
        with pytest.raises(SystemSpecError, match=r"\$.shares: found a chip without"):
            _ = made.stack
        return
    stack = made.stack
    assert stack.side_x * stack.side_y == pytest.approx(design.budgets.chip_area_mm2 * 1e-6)
    logic, memory, dram = stack.logic, stack.dram.energies, stack.dram
    leaks = stack.logic_die.leakage.power if stack.logic_die.leakage else 0.0
    own = chip.sram["L2"]
    drawn_w = logic.flop * float(chip.core.peak) + logic.sram * float(own.bandwidth) + leaks + logic.idle
    assert dram.peak == pytest.approx(float(chip.dram.bandwidth), rel=1e-12)
    assert dram.capacity == float(chip.dram.size)
    drawn_w += dram.peak * (memory.activate / dram.row + memory.read_burst / dram.burst + memory.io)
    drawn_w += dram.channels * (memory.background + memory.refresh / dram.timings.tREFI)
    on = {role: part for role, part in chip.links.items() if part.rate > 0}
    sent = math.fsum(float(part.power) for part in chip.links.values())
    # an SRAM that its leakage leaves no bandwidth is off
    assert drawn_w + sent == pytest.approx(float(chip.power), rel=1e-9)
    assert drawn_w + sent <= design.budgets.power * (1 + 1e-9)
    assert logic.network == max((float(part.energy) for part in on.values()), default=0.0)
    assert Stack.from_data(stack.to_data()) == stack


@given(st.integers(0, 10**6))
def test_levels_have_the_voltage_of_the_law(seed: int) -> None:
    chip = DerivedDesign(some(seed), HBM3).components.core
    if not chip.peak > 0:
        return
    supply, nominal = TECHNOLOGY.core.supply, TECHNOLOGY.core.frequency
    levels = levels_of(TECHNOLOGY.core, chip, [1.0, 0.8, 0.5, 0.1])
    assert levels[0].voltage == pytest.approx(1.0, rel=1e-12)
    for level in levels:
        volts, clock = level.voltage * chip.voltage, level.frequency * chip.frequency
        assert supply.floor * (1 - 1e-12) <= volts <= chip.voltage * (1 + 1e-12)
        fastest = nominal * speed(volts - supply.threshold_v, supply.nominal_v, supply.threshold_v)
        if volts > supply.floor * (1 + 1e-12):  # the least that carries the clock
            assert fastest == pytest.approx(clock, rel=1e-9)
        else:
            assert fastest >= clock * (1 - 1e-9)


def test_the_straight_line_of_the_zoo_asks_for_too_little_voltage() -> None:
    """With V_t = 0.25 V at 0.75 V: at the power of a level of the line the law gives 3 % less clock at 0.72."""
    nominal, threshold, faster = 0.75, 0.25, {}
    for level in VAULT.levels:
        assert level.voltage == pytest.approx(0.4 + 0.6 * level.frequency, abs=1e-12)
        low, high = threshold, nominal  # the root of the law by halving
        for _ in range(60):
            middle = (low + high) / 2
            clock = ((middle - threshold) ** 2 / middle) / ((nominal - threshold) ** 2 / nominal)
            low, high = (middle, high) if clock < level.frequency else (low, middle)
        assert level.voltage <= low / nominal + 1e-9
        above = overdrive(level.frequency * level.voltage**2, nominal, threshold)
        faster[level.frequency] = level.frequency / speed(above, nominal, threshold) - 1
    assert faster[1.0] == pytest.approx(0.0, abs=1e-9) and max(list(faster.values())[:5]) == faster[0.72]
    assert 0.03 < faster[0.72] < 0.035


areas = st.just(0.0) | st.floats(1e-6, 0.12)


@given(
    st.floats(5, 40), st.floats(5, 40), st.floats(0.1, 1), areas, st.integers(2, 8),
    st.lists(st.tuples(areas, st.floats(0, 1)), min_size=2, max_size=3),
)  # fmt: skip
def test_floorplans_have_the_areas_of_the_components(
    x: float, y: float, compute: float, sram: float, grid: int, faces: list[tuple[float, float]]
) -> None:
    x, y = x * 1e-3, y * 1e-3
    parts = [Interface(f"part{i}", share * x * y, edge * 2 * (x + y) / 2) for i, (share, edge) in enumerate(faces)]
    tiles = floorplan(x, y, compute, sram, grid, parts[0], tuple(parts[1:]))
    area = {kind: math.fsum(t.width * t.height for t in tiles if t.kind == kind) for kind in ("io", "compute", "sram")}
    assert area["io"] == pytest.approx(math.fsum(part.area for part in parts))
    assert area["sram"] * compute == pytest.approx(area["compute"] * sram, abs=1e-15)
    covered = np.zeros((64, 64))  # no two tiles on one spot, none outside
    for tile in tiles:
        ends = [(tile.x, tile.width, x), (tile.y, tile.height, y)]
        assert all(at >= -1e-12 and at + long <= side * (1 + 1e-9) for at, long, side in ends)
        at_x, at_y = (
            np.clip((np.minimum(at + long, side / 64 * np.arange(1, 65)) - np.maximum(at, side / 64 * np.arange(64))),
                    0, None)
            for at, long, side in ends
        )  # fmt: skip
        covered += at_y[:, None] * at_x[None]
    assert covered.max() <= x * y / 64**2 * (1 + 1e-6)


def test_a_chip_under_dram_dies_has_their_memory() -> None:
    given = data()
    given["budgets"] = {"chip_area_mm2": 814, "package_area_mm2": 814, "power": "500 W"}
    given["shares"] = {"area": {"core": 0.7, "L2": 0.2}, "power": {"core": 0.9, "L2": 0.1}}
    given["template"] = {"sram": "L2", "tiles": 8}
    made = df.derive(Design.from_data(given), "hybrid-vault")
    assert made.stack.dram == VAULT.dram and len(made.stack.dram_dies) == 8
    memory = made.system.chip.fastest
    assert (memory.bandwidth, memory.capacity) == (VAULT.dram.peak, VAULT.dram.capacity)
    assert {tile.kind for die, tile in made.stack.tiles if die == "logic"} == {"compute", "sram"}
    with pytest.raises(
        SystemSpecError, match=r"\$.shares: found a chip without DRAM, expected some: stack hbm3 has no"
    ):
        _ = df.derive(Design.from_data(given)).stack


def test_what_cannot_be_a_stack() -> None:
    def issue(design: Design, on: Any = HBM3) -> str:
        with pytest.raises(SystemSpecError) as caught:
            derived_stack(design, DerivedDesign(design).components, on)
        return str(caught.value)

    fixed = {
        "area": {"core": 0.5, "L2": 0.1, "dram": 0.1},
        "power": {"core": 0.7, "dram": 0.2},
        "perimeter": {"dram": 0.5},
    }
    assert "dies of a stack have one size" in issue(chosen(shares=fixed, choices=None), VAULT)
    assert "found DRAM beside the chip, expected none: stack hybrid-vault" in issue(
        chosen(shares=fixed, choices=None), VAULT
    )
    none: dict[str, Any] = {**fixed, "power": {"dram": 0.2}}
    assert "found a chip without cores" in issue(chosen(shares=none, choices=None))


@pytest.mark.parametrize("part", ["hybrid-16", "microbump-8"])
@pytest.mark.parametrize(("stack", "where"), [("hbm2", r"\$\.technology"), ("hybrid-16", r"\$\.shares")])
def test_no_answer_has_two_drams(part: str, stack: str, where: str) -> None:
    """DRAM of a technology that lies on the logic die is neither beside it nor on it a second time."""
    with pytest.raises(SystemSpecError, match=where) as error:
        df.explore("gpt2-small", "reticle-2026", technologies=[f"n3+{part}"], stack=stack, heat="throttle")
    assert "name a stack without DRAM dies" not in str(error.value)


def test_the_command_and_the_library_say_the_same_default() -> None:
    from typer.main import get_command

    from dfopt.cli import app

    (on,) = [one for one in get_command(app).commands["derive"].params if one.name == "on"]  # type: ignore[attr-defined]
    assert on.default is inspect.signature(df.derive).parameters["on"].default is None
