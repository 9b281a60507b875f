"""Stack documents: what is valid survives a file, what is not is told in one line at its place."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dfopt.documents.result import Result
from dfopt.documents.stack import Level, Limits, LogicEnergies, Stack
from dfopt.documents.stack_dram import DramBuffers, DramEnergies, DramStack, DramTimings, RefreshStep
from dfopt.documents.stack_parts import Bond, Die, HtcPackage, Leakage, Plate, SinkPackage, Tile, TileGrid
from dfopt.documents.system import System
from dfopt.errors import DocumentError, SchemaVersionError, SystemSpecError, UnitError
from dfopt.machines.compose import load_system
from dfopt.machines.replace import replaced
from dfopt.machines.stacks import load_stack

NS = 1e-9
EACH = st.floats(0, 2e-9)
ENERGIES = st.builds(
    DramEnergies, activate=EACH, read_burst=EACH, write_burst=EACH, refresh=st.floats(0, 1e-6),
    background=st.floats(0, 1), io=st.floats(0, 1e-10),
)  # fmt: skip
BONDS = st.builds(
    Bond, kind=st.sampled_from(["microbump", "hybrid", "adhesive", "tim"]), thickness=st.floats(1e-6, 100e-6),
    conductivity=st.floats(0.5, 50),
)  # fmt: skip
LOGIC = st.builds(LogicEnergies, flop=st.floats(0, 1e-12), sram=st.floats(0, 1e-11), idle=st.floats(0, 99))


@st.composite
def drams(draw: st.DrawFn) -> DramStack:
    """Any memory whose timings fit each other."""

    def ns(low: float, high: float) -> float:
        return draw(st.floats(low, high)) * NS

    def pair(low: float, high: float) -> tuple[float, float]:
        short, long = sorted((ns(low, high), ns(low, high)))
        return short, long

    (ccd_s, ccd_l), (rrd_s, rrd_l), (wtr_s, wtr_l) = pair(0.5, 8), pair(1, 10), pair(0, 12)
    rfc = ns(50, 400)
    ras, rp = ns(15, 50), ns(5, 25)
    timings = DramTimings(
        tCK=ns(0.3, 2), tBL=ns(0.5, 8), tRCDRD=ns(5, 25), tRCDWR=ns(5, 25), tRP=rp, tRAS=ras,
        tRC=draw(st.none() | st.floats(1.0, 2.0).map(lambda x: x * (ras + rp))),
        tRTP=ns(0, 10), tWR=ns(0, 40), tCCD_S=ccd_s, tCCD_L=ccd_l, tRRD_S=rrd_s, tRRD_L=rrd_l, tFAW=ns(5, 40),
        tWTR_S=wtr_s, tWTR_L=wtr_l, tRTW=draw(st.none() | st.floats(0, 20e-9)), CL=ns(4, 30), CWL=ns(2, 30),
        tRFC=rfc, tREFI=rfc * draw(st.floats(9, 40)),
    )  # fmt: skip
    above = sorted(draw(st.lists(st.floats(330, 400), max_size=3, unique=True)))
    rates = sorted(draw(st.lists(st.floats(1, 8), min_size=len(above), max_size=len(above))))
    burst = draw(st.sampled_from([32, 64, 128]))
    return DramStack(
        channels=draw(st.integers(1, 2000)),
        capacity=draw(st.floats(1e9, 1e12)),
        bank_groups=draw(st.integers(1, 8)),
        banks_per_group=draw(st.integers(1, 32)),
        row=burst * draw(st.integers(1, 64)),
        burst=burst,
        interleave=burst * draw(st.integers(1, 64)),
        io_bits=draw(st.integers(1, 1024)),
        timings=timings,
        refresh=tuple(RefreshStep(above=at, rate=rate) for at, rate in zip(above, rates, strict=True)),
        buffers=DramBuffers(requests=draw(st.integers(1, 512)), round_trip=ns(0, 200)),
        energies=draw(ENERGIES),
    )


@st.composite
def floorplans(draw: st.DrawFn, kind: str, side_x: float, side_y: float) -> TileGrid | tuple[Tile, ...]:
    """A grid, or strips that leave a part of the die free."""
    if draw(st.booleans()):
        return TileGrid(columns=draw(st.integers(1, 5)), rows=draw(st.integers(1, 5)))
    count = draw(st.integers(1, 4))
    first: Any = "dram" if kind == "dram" else "compute"
    others = ["dram"] if kind == "dram" else ["compute", "sram", "noc", "io"]
    kinds = [first, *(draw(st.sampled_from(others)) for _ in range(count - 1))]
    width = side_x / count
    return tuple(
        Tile(name=f"t{i}", kind=kinds[i], x=i * width, y=0.0, width=width, height=side_y * draw(st.floats(0.1, 1.0)))
        for i in range(count)
    )


@st.composite
def stacks(draw: st.DrawFn) -> Stack:
    """Any valid stack, small enough to write down."""
    side_x, side_y = draw(st.floats(1e-3, 30e-3)), draw(st.floats(1e-3, 30e-3))

    def die(name: str, kind: Any, count: int = 1) -> Die:
        thickness = draw(st.floats(20e-6, 800e-6))
        return Die(
            name=name,
            kind=kind,
            count=count,
            thickness=thickness,
            conductivity=draw(st.floats(50, 200)),
            source_thickness=draw(st.none() | st.floats(0.01, 0.9).map(lambda share: share * thickness)),
            floorplan=TileGrid(columns=1, rows=1) if kind == "passive" else draw(floorplans(kind, side_x, side_y)),
            leakage=draw(st.none() | st.just(Leakage(power=10.0, at=358.15, beta_per_k=0.015))),
            bond=draw(st.none() | BONDS),
        )

    dies = [die("logic", "logic")]
    if draw(st.booleans()):
        dies.insert(draw(st.integers(0, 1)), die("dram", "dram", draw(st.integers(1, 4))))
    if draw(st.booleans()):
        dies.append(die("lid", "passive"))
    spreader = Plate(side=draw(st.floats(30e-3, 60e-3)), thickness=draw(st.floats(1e-3, 3e-3)))
    sink = Plate(side=spreader.side * draw(st.floats(1, 3)), thickness=6.9e-3)
    mode: Any = draw(st.sampled_from(["hotspot", "plates"]))
    packages = st.floats(100, 1e5).map(lambda htc: HtcPackage(mode="htc", htc_w_per_m2k=htc))
    ambient = draw(st.floats(280, 330))
    limits = st.none() | st.floats(1, 100).map(lambda rise: ambient + rise)
    shares = sorted(draw(st.lists(st.floats(0.3, 0.99), max_size=4, unique=True)), reverse=True)
    return Stack(
        name="drawn",
        side_x=side_x,
        side_y=side_y,
        dies=tuple(dies),
        package=draw(st.just(SinkPackage(mode=mode, r_convec_k_per_w=0.1, spreader=spreader, sink=sink)) | packages),
        ambient=ambient,
        dram=draw(drams()),
        logic=draw(LOGIC),
        levels=(Level(frequency=1.0, voltage=1.0), *(Level(frequency=f, voltage=f) for f in shares)),
        limits=Limits(logic=draw(limits), dram=draw(limits), power=draw(st.none() | st.floats(1, 1000))),
        placement=draw(st.sampled_from(["contiguous", "interleaved"])),
        cells=draw(st.integers(4, 64)),
    )


@given(stacks())
def test_a_stack_survives_its_files(stack: Stack) -> None:
    through_json = Stack.from_data(json.loads(json.dumps(stack.to_data())))
    assert through_json == stack and through_json.digest() == stack.digest()
    assert pickle.loads(pickle.dumps(stack)) == stack


@given(stacks())
def test_tiles_lie_on_the_dies_and_grids_cover_them(stack: Stack) -> None:
    sizes: dict[str, float] = {}
    for die, tile in stack.tiles:
        assert tile.x + tile.width <= stack.side_x * (1 + 1e-9) and tile.y + tile.height <= stack.side_y * (1 + 1e-9)
        sizes[die] = sizes.get(die, 0.0) + tile.width * tile.height
    assert set(sizes) == {die.name for die in stack.layers if die.kind != "passive"}
    for die in stack.layers:
        if isinstance(die.floorplan, TileGrid) and die.kind != "passive":
            assert sizes[die.name] == pytest.approx(stack.side_x * stack.side_y, rel=1e-12)
            assert sum(owner == die.name for owner, _ in stack.tiles) == die.floorplan.columns * die.floorplan.rows


@given(stacks())
def test_layers_are_the_dies_one_by_one(stack: Stack) -> None:
    assert [layer.count for layer in stack.layers] == [1] * sum(die.count for die in stack.dies)
    assert len({layer.name for layer in stack.layers}) == len(stack.layers)
    whole = sum(die.count * die.thickness for die in stack.dies)
    assert sum(layer.thickness for layer in stack.layers) == pytest.approx(whole, rel=1e-12)
    assert stack.logic_die.kind == "logic" and all(die.kind == "dram" for die in stack.dram_dies)


@given(drams())
def test_peak_is_that_of_the_buses(dram: DramStack) -> None:
    """Bits on a bus over a burst, and the same in bytes."""
    rate = dram.burst * 8 / dram.io_bits / dram.timings.tBL  # bits per second and connection
    assert dram.peak == pytest.approx(dram.channels * dram.io_bits * rate / 8, rel=1e-12)
    twice = dram.model_copy(update={"channels": 2 * dram.channels})
    assert twice.peak == pytest.approx(2 * dram.peak, rel=1e-12) and dram.banks >= dram.bank_groups


@given(drams(), st.floats(300, 420), st.floats(0, 50))
def test_refresh_comes_no_less_often_when_hotter(dram: DramStack, at: float, more: float) -> None:
    assert dram.refresh_rate(at + more) >= dram.refresh_rate(at) >= 1
    for step in dram.refresh:
        assert dram.refresh_rate(step.above + 1e-6) >= step.rate
        assert dram.refresh_rate(step.above) <= step.rate
    assert dram.refresh_rate(300.0) == 1  # the first step drawn is above 330 K


def test_a_copy_with_other_dies_has_their_layers_and_tiles() -> None:
    stack = load_stack("hybrid-vault")
    assert (len(stack.layers), len(stack.tiles)) == (9, 64 + 8 * 16)
    alone = stack.model_copy(update={"dies": stack.dies[:1]})
    assert (len(alone.layers), len(alone.tiles), alone.dram_dies) == (1, 64, ())
    assert len(stack.layers) == 9 and stack == load_stack("hybrid-vault")


# --- vertical connections -------------------------------------------------------------------------


def test_connections_next_to_the_logic_die() -> None:
    stack = load_stack("hybrid-vault")
    assert stack.connections_needed == 256 * 256
    assert stack.connections_available == pytest.approx(26e-3 * 31.3e-3 * 0.5 / 10e-6**2)
    assert load_stack("hbm2").connections_needed == 0 and load_stack("hbm2").connections_available is None
    # the logic die at the sink: what counts is the bond of the DRAM die behind it
    data = stack.to_data()
    data["dies"] = [data["dies"][1], data["dies"][0]]
    data["dies"][0]["bond"]["pitch"] = "20 um"
    near = Stack.from_data(data)
    assert near.connections_available == pytest.approx(stack.connections_available / 4)
    del data["dies"][0]["bond"]["pitch"]
    assert Stack.from_data(data).connections_available is None


@given(st.floats(1e-6, 1e-3), st.integers(1, 4000), st.integers(1, 1024))
def test_what_does_not_fit_between_the_dies_is_refused(pitch: float, channels: int, bits: int) -> None:
    data = load_stack("hybrid-vault").to_data()
    data["dies"][0]["bond"]["pitch"] = f"{pitch!r} m"
    data["dram"] |= {"channels": channels, "io_bits": bits}
    room = 26e-3 * 31.3e-3 * 0.5 / pitch**2
    if channels * bits <= room:
        assert Stack.from_data(data).connections_available == pytest.approx(room)
        return
    with pytest.raises(SystemSpecError) as found:
        Stack.from_data(data)
    assert [issue.where for issue in found.value.issues] == ["$.dies[0].bond.pitch"]
    assert f"expected {channels * bits:,}" in str(found.value)


def test_off_stack_memory_needs_no_connections() -> None:
    data = load_stack("hbm2").to_data()
    data["dies"][0]["bond"]["pitch"] = "1 mm"
    assert Stack.from_data(data).connections_available is None


# --- errors ---------------------------------------------------------------------------------------


def tile(**changes: Any) -> dict[str, Any]:
    return {"name": "a", "kind": "compute", "x": "0 mm", "y": "0 mm", "width": "1 mm", "height": "1 mm"} | changes


HALF = [{"frequency": 1, "voltage": 1}, {"frequency": 0.5, "voltage": 0.7}]
WRONG: list[tuple[dict[str, Any], type[Exception], str, str, str]] = [
    ({"dies.logic.thicknes": "1 um"}, DocumentError, "$.dies[0].thicknes", "unknown key", "did you mean 'thickness'"),
    ({"dies.logic.thickness": "-1 um"}, UnitError, "$.dies[0].thickness", "found '-1 um', expected", "drop the sign"),
    ({"ambient": 35}, UnitError, "$.ambient", "missing unit: found 35, expected", "write its unit"),
    ({"ambient": "35 mm"}, UnitError, "$.ambient", "found '35 mm', a length, expected a temperature", "units of"),
    ({"dies": []}, DocumentError, "$.dies", "found a list of 0, expected 1 or more", ""),
    ({"dies.logic.kind": "passive"}, SystemSpecError, "$.dies", "found 0 dies of kind logic, expected one", "add the"),
    ({"dies.top.kind": "logic"}, SystemSpecError, "$.dies", "found 2 dies of kind logic, expected one", "only one"),
    ({"dies.top.name": "dram3"}, SystemSpecError, "$.dies[2].name", "'dram3' is named twice", "name of its own"),
    ({"dies.logic.source_thickness": "1 mm"}, DocumentError, "$.dies[0].source_thickness", "expected less", "leave it"),
    ({"dies.logic.floorplan": [tile(widht="1 mm")]}, DocumentError, "$.dies[0].floorplan[0].widht", "unknown", "width"),
    (
        {"dies.logic.floorplan": {"columns": 4, "rows": 4, "sides": 1}},
        DocumentError, "$.dies[0].floorplan.sides", "unknown key", "known keys: columns, rows",
    ),
    (
        {"dies.logic.floorplan": [tile(width="40 mm")]},
        SystemSpecError, "$.dies[0].floorplan[0]", "reaches to 40 x 1 mm, outside the die of 26 x 31.3 mm", "power",
    ),
    (
        {"dies.logic.floorplan": [tile(), tile(name="b", x="0.5 mm")]},
        SystemSpecError, "$.dies[0].floorplan[1]", "tile 'b' overlaps tile 'a'", "move or shrink one",
    ),
    (
        {"dies.logic.floorplan": [tile(), tile(x="2 mm")]},
        SystemSpecError, "$.dies[0].floorplan[1].name", "tile 'a' is named twice", "name",
    ),
    (
        {"dies.logic.floorplan": [tile(kind="io")]},
        SystemSpecError, "$.dies[0].floorplan", "no tile of kind compute", "add one",
    ),
    (
        {"dies.logic.floorplan": [tile(), tile(name="b", kind="dram", x="2 mm")]},
        SystemSpecError, "$.dies[0].floorplan[1].kind", "found 'dram' on a logic die, expected compute", "move it",
    ),
    ({"package.mode": "hotspt"}, DocumentError, "$.package.mode", "'htc', 'hotspot', 'plates'", "mean 'hotspot'"),
    ({"package": {}}, DocumentError, "$.package.mode", "the key is missing", "htc, hotspot or plates"),
    ({"package": "htc"}, DocumentError, "$.package", "expected a mapping", ""),
    ({"package.spreader.side": "20 mm"}, SystemSpecError, "$.package.spreader.side", "expected 31.3 mm or", "larger"),
    ({"package.sink.side": "50 mm"}, DocumentError, "$.package.sink.side", "expected the 60 mm of the", "larger"),
    ({"limits.dram": "20 degC"}, SystemSpecError, "$.limits.dram", "expected more than the ambient of 35", "raise"),
    ({"limits.logic": "35 degC"}, SystemSpecError, "$.limits.logic", "found 35 degC, expected more", "raise the limit"),
    ({"levels": [HALF[0], HALF[1], HALF[1]]}, SystemSpecError, "$.levels[2]", "expected less than 0.5", "fast to slow"),
    ({"levels": HALF[1:]}, SystemSpecError, "$.levels[0]", "found frequency 0.5 and voltage 0.7, expected 1", "first"),
    (
        {"levels": [*HALF, {"frequency": 0.4, "voltage": 0.8}]},
        SystemSpecError, "$.levels[2]", "at voltage 0.8, expected less than 0.5 at 0.7 or less", "fast to slow",
    ),
    ({"dram.refresh.1.above": "80 degC"}, DocumentError, "$.dram.refresh[1]", "expected 2 or more above", "cool to"),
    ({"dram.refresh.1.rate": 1}, DocumentError, "$.dram.refresh[1]", "found rate 1 above 95 degC", "cool to hot"),
    ({"dram.refresh.1.rate": 30}, DocumentError, "$.dram.refresh[1].rate", "less than tREFI / tRFC", "nothing"),
    ({"dram.timings.tRC": "20 ns"}, DocumentError, "$.dram.timings.tRC", "expected tRAS + tRP = 34 ns", "leave tRC"),
    ({"dram.timings.tCCD_S": "9 ns"}, DocumentError, "$.dram.timings.tCCD_S", "tCCD_S = 9 ns above tCCD_L", "never"),
    ({"dram.timings.tRRD_S": "9 ns"}, DocumentError, "$.dram.timings.tRRD_S", "tRRD_S = 9 ns above tRRD_L", "never"),
    ({"dram.timings.tWTR_S": "9 ns"}, DocumentError, "$.dram.timings.tWTR_S", "tWTR_S = 9 ns above tWTR_L", "never"),
    ({"dram.timings.tRFC": "4 us"}, DocumentError, "$.dram.timings.tRFC", "expected less than tREFI", "nothing but"),
    ({"dram.row": "64 B"}, DocumentError, "$.dram.burst", "expected at most the row of 64 B", "one burst or more"),
    ({"dram.row": "200 B"}, DocumentError, "$.dram.row", "expected a multiple of the burst of 128 B", "whole bursts"),
    ({"dram.interleave": "64 B"}, DocumentError, "$.dram.interleave", "expected a multiple of the burst", "whole"),
    ({"dram.channels": 0}, DocumentError, "$.dram.channels", "found 0, expected a number of 1 or more", ""),
]  # fmt: skip


@pytest.mark.parametrize("fields, kind, where, text, remedy", WRONG, ids=[str(case[2]) for case in WRONG])
def test_what_is_wrong_is_told_in_one_line(
    fields: dict[str, Any], kind: type[DocumentError], where: str, text: str, remedy: str
) -> None:
    with pytest.raises((DocumentError, SystemSpecError)) as found:
        Stack.from_data(replaced(load_stack("hybrid-vault").to_data(), fields, "mine.yaml"), "mine.yaml")
    assert type(found.value) is kind and found.value.path == "mine.yaml"
    (issue,) = found.value.issues
    assert issue.where == where and text in issue.message and remedy in issue.remedy
    assert "\n" not in str(issue)


def test_keys_that_are_missing() -> None:
    with pytest.raises(DocumentError) as found:
        Stack.from_data({"schema": Stack.SCHEMA})
    missing = {issue.where for issue in found.value.issues if issue.message == "the key is missing"}
    assert missing >= {f"$.{key}" for key in ("dies", "package", "ambient", "dram", "logic", "side_x", "name")}


def test_a_file_of_another_kind() -> None:
    with pytest.raises(SchemaVersionError, match="this is a system where a stack is wanted"):
        Stack.from_data(load_system("h100-8").to_data())


def test_python_gets_the_same_checks() -> None:
    with pytest.raises(ValidationError, match="expected less than the 100 um"):
        Die(name="d", kind="dram", thickness=100e-6, source_thickness=1e-3)
    with pytest.raises(SystemSpecError, match="found 0 dies of kind logic"):
        Stack(**{**dict(load_stack("hbm2")), "dies": (Die(name="d", kind="dram", thickness=100e-6),)})


# --- in other documents ---------------------------------------------------------------------------


def test_a_system_without_a_stack_is_written_as_ever() -> None:
    """No key, so no other digest: it is that of the data without the new field."""
    for name, digest in (("h100-256", "H100"), ("sn10-8-ring", "SN10")):
        system = load_system(name)
        assert system.stack is None and "stack" not in system.to_data() and digest in system.chip.name
        assert list(system.to_data()) == [
            "schema", "name", "description", "source", "chip", "network", "collective_overhead",
        ]  # fmt: skip
    assert "stack" not in Result.model_fields  # it is in the system that a result embeds


@given(stacks())
def test_a_system_with_a_stack_carries_all_of_it(stack: Stack) -> None:
    system = load_system("sn10-8-ring").model_copy(update={"stack": stack})
    again = System.from_data(json.loads(json.dumps(system.to_data())))
    assert again == system and again.digest() == system.digest() and again.stack == stack


def test_issues_of_a_stack_inside_a_system_are_told_there() -> None:
    data = load_system("sn10-8-ring").to_data() | {"stack": load_stack("hbm2").to_data()}
    data["stack"]["limits"]["logic"] = "0 degC"
    with pytest.raises(SystemSpecError) as found:
        System.from_data(data, "s.yaml")
    assert [issue.where for issue in found.value.issues] == ["$.stack.limits.logic"]
