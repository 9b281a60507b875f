"""Stacks of the zoo, derived stacks, and systems with a stack."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dfopt
from dfopt.documents.stack import Stack
from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.system import Dram, System
from dfopt.documents.zoo import find, zoo
from dfopt.errors import DocumentError, NotInZoo, SchemaVersionError, SystemSpecError
from dfopt.machines.compose import compose, expand_system, load_system, system_schema
from dfopt.machines.fields import with_fields
from dfopt.machines.replace import replaced
from dfopt.machines.stacks import expand_stack, load_stack, stack_schema, with_stack

HEAD = {"schema": "dfopt/system/1", "name": "s"}
TORUS = {"topology": "torus", "sizes": [4, 2], "links": "pcie-4"}
INLINE = {"name": "c", "tiles": 4, "peak": "1 TFLOP/s", "sram": {"capacity": "1 MB"}}
STACK = {"schema": "dfopt/stack/1", "name": "mine"}


def issue_of(found: pytest.ExceptionInfo[Any]) -> tuple[str, str]:
    """Place and text of the only issue."""
    (issue,) = found.value.issues
    return issue.where, issue.text


# --- the zoo --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", zoo("stacks"))
def test_every_stack_is_sound(name: str) -> None:
    stack = load_stack(name)
    assert stack.name == name
    assert Stack.from_data(stack.to_data()) == stack
    assert stack.limits.logic == 105 + 273.15
    assert stack.limits.dram == (95 + 273.15 if stack.dram_dies else None)
    assert [(step.above, step.rate) for step in stack.dram.refresh] == [(358.15, 2), (368.15, 4)]
    assert 6 <= len(stack.levels) <= 8 and stack.levels[-1].frequency == 0.5
    for level in stack.levels:
        assert level.voltage == pytest.approx(0.4 + 0.6 * level.frequency)
    # what is in flight, by Little's law, is no narrower than the buses
    dram, timings = stack.dram, stack.dram.timings
    latency = dram.buffers.round_trip + timings.tRP + timings.tRCDRD + timings.CL + timings.tBL
    assert dram.channels * dram.buffers.requests * dram.burst / latency > dram.peak


@pytest.mark.parametrize(
    "name, dram_dies, peak, capacity",
    [
        ("ddr5", 0, 102.4e9, 128 * 2**30), ("hbm2", 0, 1024e9, 32 * 2**30), ("hbm3", 0, 4096e9, 80 * 2**30),
        ("hybrid-4", 4, 16384e9, 80e9), ("hybrid-8", 8, 16384e9, 160e9), ("hybrid-12", 12, 16384e9, 240e9),
        ("hybrid-16", 16, 16384e9, 320e9), ("hybrid-vault", 8, 16384e9, 160e9), ("microbump-8", 8, 16384e9, 160e9),
        ("3d-100tbps", 8, 100e12, 160e9),
    ],
)  # fmt: skip
def test_the_figures_of_the_zoo(name: str, dram_dies: int, peak: float, capacity: float) -> None:
    stack = load_stack(name)
    assert (len(stack.dram_dies), stack.dram.capacity) == (dram_dies, capacity)
    assert stack.dram.peak == pytest.approx(peak, rel=1e-12)


def amperes(**ma: float) -> dict[str, float]:
    return {key: value * 1e-3 for key, value in ma.items()}


@pytest.mark.parametrize(
    "name, devices, volts, current",
    [
        ("hbm2", 1, 1.2, amperes(i0=65, i2n=40, i3n=55, i4r=390, i4w=500, i5=250)),
        ("hybrid-vault", 1, 1.2, amperes(i0=65, i2n=40, i3n=55, i4r=390, i4w=500, i5=250)),
        ("ddr5", 4, 1.1, amperes(i0=60, i2n=50, i3n=55, i4r=145, i4w=145, i5=362)),
    ],
)
def test_energies_follow_from_the_currents(name: str, devices: int, volts: float, current: dict[str, float]) -> None:
    """The IDD formulas of DRAMsim3: what the comments in the files say."""
    dram = load_stack(name).dram
    t, e, scale = dram.timings, dram.energies, devices * volts
    cycle = t.tRAS + t.tRP
    activate = scale * (current["i0"] * cycle - current["i3n"] * t.tRAS - current["i2n"] * t.tRP)
    assert e.activate == pytest.approx(activate, rel=1e-3)
    assert e.read_burst == pytest.approx(scale * (current["i4r"] - current["i3n"]) * t.tBL, rel=1e-3)
    assert e.write_burst == pytest.approx(scale * (current["i4w"] - current["i3n"]) * t.tBL, rel=1e-3)
    assert e.refresh == pytest.approx(scale * (current["i5"] - current["i3n"]) * t.tRFC, rel=1e-3)
    if name != "hybrid-vault":  # there by capacity
        assert e.background == pytest.approx(scale * current["i3n"], rel=1e-3)


@pytest.mark.parametrize("chip, least, most", [("h100-sxm", 550, 750), ("sn30", 300, 600), ("sn10", 200, 450)])
def test_a_chip_at_its_peak_takes_the_power_of_such_chips(chip: str, least: float, most: float) -> None:
    """Compute at peak, its operands once through SRAM, leakage at 85 degC and idle power; TDPs are 445 to 700 W."""
    for name in zoo("stacks"):
        stack = load_stack(name)
        memory = None if chip == "h100-sxm" else "ddr4"
        peak = compose(chip=chip, memory=memory, network=TORUS).chip.peak_flops
        leakage = stack.logic_die.leakage
        assert leakage is not None
        from_sram = peak / 128 * 2 * stack.logic.sram  # a 2-byte word for each 128 FLOP
        watts = peak * stack.logic.flop + from_sram + leakage.power + stack.logic.idle
        assert least < watts < most


def test_derived_stacks_differ_in_what_they_say() -> None:
    base, made = load_stack("hybrid-vault").to_data(), load_stack("microbump-8").to_data()
    for key in ("name", "description", "source"):
        base.pop(key), made.pop(key)
    assert {key for key in base if base[key] != made[key]} == {"dies", "dram"}
    assert [die["bond"]["kind"] for die in made["dies"]] == ["microbump", "microbump", "tim"]
    same, other = load_stack("hybrid-8"), load_stack("hybrid-vault")
    assert same == other.model_copy(update={"name": "hybrid-8", "description": same.description, "source": same.source})


# --- load_stack -----------------------------------------------------------------------------------


def test_overrides() -> None:
    more = {"dies[1].count": 3, "package.r_convec_k_per_w": 0.1, "dram.channels": 512, "limits.dram": "85 degC"}
    stack = dfopt.load_stack("hybrid-vault", more)
    assert len(stack.dram_dies) == 4 and stack.dram.channels == 512 and stack.limits.dram == 85 + 273.15
    assert stack.package.r_convec_k_per_w == 0.1  # type: ignore[union-attr]
    for path in ("dies.dram.count", "dies.1.count", "dies[1].count"):
        assert len(load_stack("hybrid-vault", {path: 3}).dram_dies) == 4
    assert load_stack("hybrid-vault", {"levels[1].voltage": 0.96}).levels[1].voltage == 0.96
    assert load_stack("hybrid-vault", {}) == load_stack("hybrid-vault")


@given(st.integers(1, 20), st.floats(0.01, 1))
def test_an_overridden_figure_is_the_figure(count: int, resistance: float) -> None:
    made = load_stack("hybrid-vault", {"dies.dram.count": count, "package.r_convec_k_per_w": resistance})
    assert len(made.layers) == count + 2 and made.package.r_convec_k_per_w == resistance  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "path, value, where, text",
    [
        ("dies[1].cuont", 3, "$.dies[1].cuont", "did you mean 'count'"),
        ("dies[7].count", 3, "$.dies.7", "no such die (dies: logic, dram, top)"),
        ("dies.drm.count", 3, "$.dies.drm", "no such die (did you mean 'dram'?)"),
        ("levels.9.voltage", 1, "$.levels.9", "no such entry (entries: 0 to 7)"),
        ("pakage.mode", "htc", "$.pakage", "did you mean 'package'"),
        ("dies[1", 3, "$", "found the path 'dies[1', expected one such as"),
        ("dram.channels", "many", "$.dram.channels", "expected a whole number"),
        ("ambient", 35, "$.ambient", "missing unit"),
        ("ambient", "200 degC", "$.limits", "expected more than the ambient of 200 degC"),
    ],
)
def test_overrides_that_are_wrong(path: str, value: Any, where: str, text: str) -> None:
    with pytest.raises((DocumentError, SystemSpecError)) as found:
        load_stack("hybrid-vault", {path: value})
    assert found.value.issues[0].where.startswith(where) and text in found.value.issues[0].text


def test_names_and_paths(tmp_path: Path) -> None:
    with pytest.raises(NotInZoo, match="hybrid-vault"):
        load_stack("hybird-vault")
    with pytest.raises(DocumentError, match="found the name of a memory, expected a stack"):
        load_stack("hbm3-stack")
    with pytest.raises(DocumentError, match="no such file"):
        load_stack("nowhere.yaml")
    with pytest.raises(SchemaVersionError, match="this is a system where a stack is wanted"):
        load_stack(find("systems", "h100-8"))
    copy = tmp_path / "my.yaml"
    shutil.copy(find("stacks", "hbm2"), copy)
    assert load_stack(copy) == load_stack("hbm2")


# --- derived stacks -------------------------------------------------------------------------------


def test_a_derived_stack() -> None:
    made = expand_stack({**STACK, "part": "hybrid-4", "set": {"dies[0].thickness": "200 um"}, "ambient": "45 degC"})
    base = load_stack("hybrid-4")
    assert (made.name, made.description, made.source) == ("mine", "", base.source)
    logic = base.dies[0].model_copy(update={"thickness": 200e-6})
    changes = {"name": "mine", "description": "", "ambient": 318.15, "dies": (logic, *base.dies[1:])}
    assert made == base.model_copy(update=changes)


def test_derived_from_a_file_beside_it(tmp_path: Path) -> None:
    shutil.copy(find("stacks", "hbm2"), tmp_path / "base.yaml")
    (tmp_path / "mine.yaml").write_text("schema: dfopt/stack/1\nname: mine\npart: base.yaml\ncells: 8\n")
    assert load_stack(tmp_path / "mine.yaml").cells == 8
    system = tmp_path / "system.yaml"
    system.write_text(
        "schema: dfopt/system/1\nname: s\nchip: sn30\nstack: mine.yaml\n"
        "network: {topology: ring, sizes: [2], links: pcie-4}\n"
    )
    made = load_system(system)
    assert made.stack is not None and made.stack.cells == 8


@pytest.mark.parametrize(
    "data, where, text",
    [
        ({"part": "hybird-vault"}, "$.part", "no stack of this name and no file: 'hybird-vault' (did you mean"),
        ({"part": "hbm3-stack"}, "$.part", "found the name of a memory, expected a stack"),
        ({"part": "no/such.yaml"}, "$.part", "no such file"),
        ({"part": 3}, "$.part", "found 3, expected the name of a stack"),
        ({"part": "hbm2", "set": {"dies.dram.count": 3}}, "$.set", "no such die (dies: logic)"),
        ({"part": "hbm2", "set": ["ambient"]}, "$.set", "found a list of 1, expected a mapping of paths"),
        ({"part": "hbm2", "ambiant": "35 degC"}, "$.ambiant", "did you mean 'ambient'"),
        ({"part": "hbm2", "set": {"ambient": 3}}, "$.ambient", "missing unit"),
    ],
)
def test_derived_stacks_that_are_wrong(data: dict[str, Any], where: str, text: str) -> None:
    with pytest.raises(DocumentError) as found:
        expand_stack({**STACK, **data}, "mine.yaml")
    place, says = issue_of(found)
    assert place == where and text in says and found.value.path == "mine.yaml"


def test_a_derived_stack_needs_a_name_of_its_own() -> None:
    with pytest.raises(DocumentError) as found:
        expand_stack({"schema": "dfopt/stack/1", "part": "hbm2"})
    assert issue_of(found)[0] == "$.name"
    with pytest.raises(DocumentError) as found:
        expand_stack({"name": "mine", "part": "hbm2"})
    assert issue_of(found)[0] == "$.schema"


def test_stacks_derived_from_each_other(tmp_path: Path) -> None:
    for one, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{one}.yaml").write_text(f"schema: dfopt/stack/1\nname: {one}\npart: {other}.yaml\n")
    with pytest.raises(DocumentError, match=r"derived from itself: a\.yaml -> b\.yaml -> a\.yaml"):
        load_stack(tmp_path / "a.yaml")


# --- systems with a stack -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stack",
    [
        "hybrid-vault",
        {"part": "hybrid-vault"},
        {"part": "hybrid-vault", "ambient": "308.15 K"},
        {"part": "hybrid-vault", "set": {"dies.dram.count": 7}},
        load_stack("hybrid-vault").to_data(),
        load_stack("hybrid-vault"),
    ],
    ids=["name", "part", "same key", "same set", "data", "model"],
)
def test_ways_to_say_the_stack(stack: Any) -> None:
    made = compose("s", chip="sn30", network=TORUS, stack=stack)
    base = load_stack("hybrid-vault")
    assert made.stack == base
    assert (made.chip.dram.bandwidth, made.chip.dram.capacity) == (base.dram.peak, base.dram.capacity)
    plain = compose("s", chip="sn30", memory="ddr4", network=TORUS)
    assert with_stack(plain, base).chip.dram.usd_per_gb_s == plain.chip.dram.usd_per_gb_s == 1
    assert System.from_data(made.to_data()) == made


def test_where_the_memory_comes_from() -> None:
    """The system's, else what the chip itself is written with, else the stack's, keeping the prices of the part's."""
    stacked = compose("s", chip="h100-sxm", network=TORUS, stack="hbm2").chip.dram
    assert (stacked.bandwidth, stacked.usd_per_gb_s) == (load_stack("hbm2").dram.peak, 0)
    given = compose("s", chip="h100-sxm", memory="ddr-100", network=TORUS, stack="hbm2").chip.dram
    assert given.bandwidth == 100e9
    own = {**INLINE, "dram": {"bandwidth": "10 GB/s"}}
    assert compose("s", chip=own, network=TORUS, stack="hbm2").chip.dram == Dram(bandwidth=10e9)
    bare = expand_system({**HEAD, "chip": INLINE, "stack": load_stack("hbm2").to_data()})
    assert bare.chip.dram.capacity == 32 * 2**30 and bare.chips == 1
    explicit = expand_system({**HEAD, "chip": own, "stack": load_stack("hbm2").to_data()})
    assert explicit.chip.dram.bandwidth == 10e9 and explicit.stack == load_stack("hbm2")


def test_a_stack_file_that_is_wrong_is_named(tmp_path: Path) -> None:
    data = load_strict(find("stacks", "hbm2"))
    data["cells"] = 1
    (tmp_path / "bad.json").write_text(json.dumps(data))
    with pytest.raises(DocumentError) as found:
        expand_system({**HEAD, "chip": "sn30", "network": TORUS, "stack": str(tmp_path / "bad.json")}, "s.yaml")
    assert found.value.path.endswith("bad.json") and issue_of(found)[0] == "$.cells"


def test_with_stack() -> None:
    h100 = load_system("h100-8")
    stack = load_stack("hybrid-vault")
    made = dfopt.with_stack(h100, stack)
    assert made.stack == stack and made.network == h100.network and h100.stack is None
    assert made.chip.model_copy(update={"dram": h100.chip.dram}) == h100.chip
    assert made == dfopt.with_stack(h100, "hybrid-vault") == dfopt.with_stack(made, stack)
    assert System.from_data(made.to_data()) == made
    kept = with_stack(h100, stack, memory=False)
    assert kept.chip == h100.chip and kept.stack == stack
    with pytest.raises(SystemSpecError) as found:
        with_stack(h100, "hbm2", memory=False)
    assert [issue.where for issue in found.value.issues] == ["$.chip.dram.bandwidth", "$.chip.dram.capacity"]
    assert "found 3.35 TB/s, expected at most the 1.024 TB/s of stack 'hbm2'" in str(found.value)


def test_fields_of_and_for_stacks() -> None:
    """What an axis of a study sets: another stack takes its memory along, a figure of it does not."""
    plain = load_system("sn30-8")
    for name in ("ddr5", "hbm2", "hybrid-4", "hybrid-16", "3d-100tbps"):
        made = with_fields(plain, {"stack": name})
        assert made == with_stack(plain, name)
    made = with_fields(plain, {"stack": {"part": "hbm2", "cells": 8}, "chip.tiles": 640, "chip.peak": "307.2 TFLOP/s"})
    assert made.stack is not None and (made.stack.cells, made.chip.tiles) == (8, 640)
    more = {"stack.dies.dram.count": 3, "stack.ambient": "45 degC"}
    four = load_system("h100-8-hybrid", more)
    assert four.stack is not None and (len(four.stack.dram_dies), four.stack.ambient) == (4, 318.15)
    assert four.chip.dram == load_system("h100-8-hybrid").chip.dram
    assert with_fields(four, {"stack": None}).stack is None
    for fields, where in (
        ({"stack": "hbm9"}, "$.stack"),
        ({"stack": {"part": "hbm2", "cels": 3}}, "$.stack.cels"),
        ({"stack.ambient": "45 degC"}, "$.stack"),
    ):
        with pytest.raises(DocumentError) as found:
            with_fields(plain, fields, "s")
        assert issue_of(found)[0] == where and found.value.path == "s"


@pytest.mark.parametrize("name", ["sn40l-8-ddr5", "sn40l-8-hbm2", "sn40l-8-3d", "h100-8-hybrid"])
def test_systems_of_the_zoo_with_a_stack_are_solved(name: str) -> None:
    system = load_system(name)
    assert system.stack is not None
    assert system.chip.dram.bandwidth == system.stack.dram.peak
    graph, levels = dfopt.load_graph("gpt2-small", layers=1, batch=8), dfopt.Assumptions(sharding_objective="seconds")
    result = dfopt.optimize(graph, system, assumptions=levels, time_limit=20)
    assert result.system == system and result.level_gap == 0.0
    again = type(result).from_data(result.to_data())
    assert again.system.stack == system.stack


# --- the rest -------------------------------------------------------------------------------------


def test_editors_know_the_forms() -> None:
    written, derived = stack_schema()["anyOf"]
    assert "part" not in written["properties"] and {"part", "set", "ambient"} <= set(derived["properties"])
    assert "dies" in written["required"]
    explicit, composed = system_schema()["anyOf"]
    assert "stack" in explicit["properties"] and {"stack", "memory"} <= set(composed["properties"])
    assert "memory" not in explicit["properties"] and composed["required"] == ["schema", "name", "chip"]


def test_replacing_leaves_the_data_alone() -> None:
    data = load_stack("hybrid-vault").to_data()
    made = replaced(data, {"dies.dram.count": 3}, "f")
    assert data == load_stack("hybrid-vault").to_data() and made["dies"][1]["count"] == 3
