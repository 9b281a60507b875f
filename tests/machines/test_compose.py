"""Systems composed of parts are the systems that one would write out, and what does not fit is told where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfopt.documents.system import Chip, Dram, Link, NetworkDim, Sram, System
from dfopt.documents.zoo import find
from dfopt.errors import DocumentError, NotInZoo, SchemaVersionError, SystemSpecError, UnitError
from dfopt.machines.compose import compose, expand_system, load_system
from dfopt.machines.fields import with_fields
from dfopt.units import exact

HEAD = {"schema": "dfopt/system/1", "name": "s"}
TORUS = {"topology": "torus", "sizes": [4, 2], "links": "pcie-4"}
INLINE = {"name": "c", "tiles": 4, "peak": "1 TFLOP/s", "sram": {"capacity": "1 MB"}}


def without_prices(system: System) -> dict[str, Any]:
    """What is left of a system's data for a comparison with a file that has no prices, names and texts."""

    def stripped(data: Any) -> Any:
        if isinstance(data, dict):
            gone = ("price_usd", "power_w", "description", "source")
            return {k: stripped(v) for k, v in data.items() if k not in gone and not k.endswith("_per_gb_s")}
        return [stripped(item) for item in data] if isinstance(data, list) else data

    data = stripped(system.to_data())
    for dim in data["network"]:
        dim.pop("tier", None)
        dim.pop("name")
    data["chip"].pop("efficiency", None)
    data.pop("scale_out", None)
    return data


@pytest.mark.parametrize(
    "name, parts, overhead",
    [
        ("sn10-8-ring", {"chip": "sn10", "memory": "ddr4", "network": {**TORUS, "topology": "ring", "sizes": [8]}}, 5),
        ("sn10-8-torus", {"chip": "sn10", "memory": "ddr4", "network": TORUS}, 5),
        (
            "sn30-1024-2dtorus",
            {"chip": "sn30", "memory": "ddr4", "network": {"part": "torus-2d-1024", "links": "pcie-4"}},
            5,
        ),
        ("a100-8", {"chip": "a100-sxm", "network": {"topology": "switch", "sizes": [8], "links": "nvlink-3"}}, 9),
        ("h100-8", {"chip": "h100-sxm", "network": {"topology": "switch", "sizes": [8], "links": "nvlink-4-450"}}, 9),
    ],
)
def test_parts_make_the_systems_written_out(name: str, parts: dict[str, Any], overhead: int) -> None:
    made = expand_system({**HEAD, "name": name, **parts, "collective_overhead": f"{overhead} us"})
    assert without_prices(made) == without_prices(load_system(name))


@given(
    tiles=st.integers(1, 1000),
    bandwidth=st.floats(1e9, 1e13),
    latency=st.floats(0, 1e-3),
    dims=st.lists(
        st.tuples(st.sampled_from(["ring", "line", "switch", "fully_connected"]), st.integers(1, 9)), max_size=4
    ),
)
def test_models_and_data_make_the_same(
    tiles: int, bandwidth: float, latency: float, dims: list[tuple[str, int]]
) -> None:
    """Composed of models, of data, and written out by hand: one and the same document, which survives a file."""
    sram, dram = Sram(capacity=1e6), Dram(bandwidth=bandwidth, usd_per_gb_s=1.5)
    chip = Chip(name="c", tiles=tiles, peak=1e12, sram=sram, dram=Dram(bandwidth=1.0), price_usd=3.0)
    network = tuple(
        NetworkDim(
            name=name, topology=kind, size=size, link_bandwidth=bandwidth, latency=latency, link_usd_per_gb_s=2.0
        )
        for name, (kind, size) in zip("xyzw", dims, strict=False)
    )
    by_hand = System(name="s", chip=chip.model_copy(update={"dram": dram}), network=network)
    assert compose("s", chip=chip, memory=dram, network=network) == by_hand
    link = Link(bandwidth=bandwidth, latency=latency, usd_per_gb_s=2.0)
    if dims:
        wiring = {"topology": [kind for kind, _ in dims], "sizes": [size for _, size in dims]}
        assert compose("s", chip=chip, memory=dram, network={**wiring, "links": link}) == by_hand
        assert compose("s", chip=chip, memory=dram, network={**wiring, "links": [link] * len(dims)}) == by_hand
    assert expand_system(by_hand.to_data()) == by_hand


def test_an_explicit_file_is_read_as_ever() -> None:
    assert load_system("sn10-8-ring") == System.load(find("systems", "sn10-8-ring"))


def test_overrides_of_parts() -> None:
    chip = {"part": "sn30", "compute_utilization": 0.8, "sram": {"capacity": "1 GB"}}
    memory = {"part": "ddr4", "capacity": None}
    network = {"part": "torus-2d-1024", "sizes": [2, 3], "links": {"part": "pcie-4", "latency": "1 us"}}
    made = compose("s", chip=chip, memory=memory, network=network)
    plain = compose("s", chip="sn30", memory="ddr4", network={"part": "torus-2d-1024", "links": "pcie-4"})
    assert (made.chip.compute_utilization, made.chip.sram.capacity, made.chips) == (0.8, 1e9, 6)
    assert made.chip.dram == plain.chip.dram.model_copy(update={"capacity": None})
    assert [dim.latency for dim in made.network] == [1e-6, 1e-6] and plain.network[0].latency == 9e-7
    changed = {"compute_utilization": 0.8, "sram": Sram(capacity=1e9), "dram": made.chip.dram}
    assert made.chip == plain.chip.model_copy(update=changed)


def test_more_tiles_without_the_peak() -> None:
    with pytest.raises(DocumentError, match="leave one of them out"):
        compose(chip={"part": "sn30", "tiles": 640}, memory="ddr4")
    assert compose(chip={"part": "sn30", "tiles": 640, "peak": None}, memory="ddr4").chip.peak_flops == 307.2e12


def test_several_stacks() -> None:
    five = compose(chip="h100", memory={"part": "hbm3-stack", "count": 5}).chip.dram
    one = compose(chip="h100", memory="hbm3-stack").chip.dram
    assert five.capacity == 5 * one.capacity == 120e9 and five.bandwidth == pytest.approx(5 * 819e9, rel=1e-12)
    assert five.usd_per_gb_s == one.usd_per_gb_s  # a price by bandwidth is the same for each
    for count in (0, -1, 1.5, "two", True):
        with pytest.raises(DocumentError, match=r"\$\.memory\.count: .*expected a whole number"):
            compose(chip="h100", memory={"part": "hbm3-stack", "count": count})


def test_the_memory_of_the_package_and_another() -> None:
    own, other = compose(chip="h200-sxm"), compose(chip="h200-sxm", memory="ddr4")
    assert (own.chip.dram.bandwidth, other.chip.dram.bandwidth) == (4800e9, 200e9)


def test_links_by_role_and_by_dim() -> None:
    by_role = {"part": "dgx-1-1024", "links": {"scale_out": "infiniband-ndr", "scale_up": "nvlink-4-450"}}
    by_dim = {"part": "dgx-1-1024", "links": ["nvlink-4-450", "infiniband-ndr"]}
    made = compose("s", chip="h100", memory="hbm3", network=by_role)
    assert made == compose("s", chip="h100", memory="hbm3", network=by_dim)
    assert [dim.link_bandwidth for dim in made.network] == [450e9, 50e9]
    listed = [
        {"name": "node", "topology": "ring", "size": 8, "link": "nvlink-4-450"},
        {"name": "cluster", "topology": "switch", "size": 128, "link": "infiniband-ndr"},
    ]
    assert made == compose("s", chip="h100", memory="hbm3", network=listed)


def test_a_dragonfly_is_paid_by_its_cables() -> None:
    """One global link between each two groups, however little of it a chip sees."""
    from dfopt.physics.cost import system_cost

    a, g = 4, 6
    network = {"topology": "dragonfly", "sizes": [a, g], "links": "pcie-4"}
    found = system_cost(compose(chip="sn30", memory="ddr4", network=network))
    cables = g * (a * (a - 1) // 2) + g * (g - 1) // 2
    assert found.usd["links"] == pytest.approx(cables * 25 * 2.0)
    assert found.w["links"] == pytest.approx(cables * 25 * 0.052)


def test_names_and_paths(tmp_path: Path) -> None:
    """A part may be a file beside the system's, whatever the current folder is."""
    (tmp_path / "parts").mkdir()
    text = "schema: dfopt/memory/1\nname: mine\nbandwidth: 7 GB/s\n"
    (tmp_path / "parts" / "mine.yaml").write_text(text)
    path = tmp_path / "s.yaml"
    path.write_text("schema: dfopt/system/1\nname: s\nchip: sn30\nmemory: parts/mine.yaml\n")
    assert load_system(path).chip.dram.bandwidth == 7e9
    (tmp_path / "parts" / "mine.yaml").write_text(text.replace("7 GB/s", "7 GBs"))
    with pytest.raises(UnitError) as found:
        load_system(path)
    assert found.value.path.endswith("mine.yaml") and found.value.issues[0].where == "$.bandwidth"
    (tmp_path / "parts" / "mine.yaml").write_text(text.replace("memory", "link"))
    with pytest.raises(SchemaVersionError, match="this is a link where a memory is wanted"):
        load_system(path)


def test_names_made_of_parts() -> None:
    assert compose(chip="sn10", memory="ddr4", network=TORUS).name == "sn10-ddr4-torus-pcie-4-4x2"
    assert compose(chip={**INLINE, "dram": {"bandwidth": "1 GB/s"}}).name == "composed"


DDR4 = {"chip": "sn30", "memory": "ddr4"}
SN30 = {"chip": "sn30", "network": TORUS}
WRONG: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    ({"chip": "sn3O", "memory": "ddr4"}, [("$.chip", "did you mean 'sn30'")]),
    ({"chip": {"part": "sn3O"}, "memory": "ddr4"}, [("$.chip.part", "did you mean 'sn30'")]),
    ({"chip": "ddr4"}, [("$.chip", "found the name of a memory, expected a chip")]),
    ({"chip": "zzz"}, [("$.chip", "chips: a100-sxm")]),
    ({"chip": "zzz", "memory": "zzz", "network": {**TORUS, "links": ["zzz", "pcie-4"]}},
     [("$.chip", "no chip"), ("$.memory", "no memory"), ("$.network.links[0]", "no link")]),
    ({"chip": "none.yaml", "memory": "ddr4"}, [("$.chip", "no such file: 'none.yaml'")]),
    ({"chip": {"part": 3}}, [("$.chip.part", "expected the name of a chip")]),
    ({"chip": "sn30"}, [("$.memory", "comes without a memory")]),
    ({"chip": INLINE, "memory": {"bandwidth": "1 GB"}}, [("$.memory.bandwidth", "GB")]),
    ({"chip": {"part": "sn30", "tile": 3}, "memory": "ddr4"}, [("$.chip.tile", "did you mean 'tiles'")]),
    ({"chip": {"part": "sn30", "sram": {"capcity": "1 MB"}}, "memory": "ddr4"},
     [("$.chip.sram.capcity", "did you mean 'capacity'")]),
    ({"chip": "sn30", "memory": {"part": "ddr4", "bandwidth": 7}}, [("$.memory.bandwidth", "unit")]),
    ({**DDR4, "netwrok": TORUS}, [("$.netwrok", "did you mean 'network'")]),
    ({"chip": "sn30", "memory": 3}, [("$.memory", "expected a mapping")]),
    ({**DDR4, "network": 3}, [("$.network", "expected a list")]),
    ({**DDR4, "network": "torus2d"}, [("$.network.part", "no topology")]),
    ({**DDR4, "network": {**TORUS, "topology": "tours"}}, [("$.network.topology", "did you mean 'torus'")]),
    ({**DDR4, "network": {**TORUS, "topology": ["ring", "rnig"]}},
     [("$.network.topology[1]", "expected one of ring, line")]),
    ({**DDR4, "network": {**TORUS, "topology": ["ring"]}},
     [("$.network.sizes", "found 2 sizes, expected 1 for product")]),
    ({**DDR4, "network": {**TORUS, "sizes": [8]}}, [("$.network.sizes", "found 1 sizes")]),
    ({**DDR4, "network": {**TORUS, "sizes": [8, 0]}}, [("$.network.sizes[1]", "expected a number of 1 or more")]),
    ({**DDR4, "network": {"topology": ["ring", "ring"], "sizes": [8, 0], "links": "pcie-4"}},
     [("$.network.sizes[1]", "1 or more")]),
    ({**DDR4, "network": {**TORUS, "links": ["pcie-4"] * 3}},
     [("$.network.links", "found 3 links, expected one for each of the 2 sizes")]),
    ({**DDR4, "network": {"part": "torus-2d-1024"}}, [("$.network.links", "missing")]),
    ({**DDR4, "network": {"part": "dgx-2-1024", "links": {"scale_up": "pcie-4", "rack": "pcie-4"}}},
     [("$.network.links.rack", "roles: scale_up, scale_out"), ("$.network.links.scale_out", "missing")]),
    ({**DDR4, "network": [{"name": "x", "topology": "ring", "size": 2, "link": 3}]},
     [("$.network[0].link", "expected a link")]),
    ({**DDR4, "network": [{"name": "x", "topology": "ring", "link": "pcie-4"}]}, [("$.network[0].size", "missing")]),
    ({**SN30, "stack": "hybird-vault"}, [("$.stack", "no stack of this name and no file: 'hybird-vault'")]),
    ({**SN30, "stack": {"part": "hybird-vault"}}, [("$.stack.part", "did you mean 'hybrid-vault'")]),
    ({**SN30, "stack": "hbm3-stack"}, [("$.stack", "found the name of a memory, expected a stack")]),
    ({**SN30, "stack": "my/stack.yaml"}, [("$.stack", "no such file: 'my/stack.yaml'")]),
    ({**SN30, "stack": {"part": "hbm2", "ambiant": "1 K"}}, [("$.stack.ambiant", "did you mean 'ambient'")]),
    ({**SN30, "stack": {"part": "hbm2", "set": {"dies.x.count": 1}}},
     [("$.stack.set", "$.dies.x: there is no such die")]),
    ({**SN30, "stack": {"part": "hbm2", "ambient": "200 degC"}},
     [("$.stack.limits.logic", "expected more than the ambient")]),
    ({**SN30, "stack": {"part": "hbm2", "limits": {"logic": 3}}}, [("$.stack.limits.logic", "missing unit")]),
    ({**SN30, "stack": 3}, [("$.stack", "found 3, expected a mapping")]),
    ({**SN30, "stack": "hbm2", "memory": {"part": "hbm3", "capacity": None}},
     [("$.memory.bandwidth", "at most the 1.024 TB/s of stack 'hbm2'")]),
    ({**SN30, "stack": "hbm2", "memory": {"part": "ddr-100", "capacity": "1 TB"}},
     [("$.memory.capacity", "found 1 TB, expected at most the 34.36 GB of stack 'hbm2'")]),
]  # fmt: skip


@pytest.mark.parametrize("parts, expected", WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_what_is_wrong_is_told_where_it_is(parts: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    with pytest.raises((DocumentError, SystemSpecError)) as found:
        expand_system({**HEAD, **parts}, "s.yaml")
    assert found.value.path == "s.yaml"
    for where, text in expected:
        assert any(issue.where == where and text in issue.text for issue in found.value.issues), str(found.value)
    assert {issue.where for issue in found.value.issues} == {where for where, _ in expected}, str(found.value)


def test_dims_of_one_name() -> None:
    with pytest.raises(SystemSpecError, match="named twice") as found:
        expand_system({**HEAD, "chip": "sn30", "memory": "ddr4", "network": {**TORUS, "names": ["x", "x"]}}, "s.yaml")
    assert found.value.path == "s.yaml"


def test_a_name_that_is_not_in_the_zoo() -> None:
    with pytest.raises(NotInZoo, match="sn10-8-ring"):
        load_system("sn10-8-rng")
    with pytest.raises(DocumentError, match="found the name of a chip, expected a system"):
        load_system("h200-sxm")


def test_fields_replaced() -> None:
    ring = load_system("sn10-8-ring")
    more = {
        "chip.sram.capacity": "1 GB",
        "network.ring.size": 16,
        "network.0.latency": "2 us",
        "chip.dram.capacity": None,
    }
    made = with_fields(ring, more)
    assert (made.chip.sram.capacity, made.chips, made.network[0].latency) == (1e9, 16, 2e-6)
    assert made.chip.dram.capacity is None and with_fields(ring, {}) == ring
    assert load_system("sn10-8-ring", more) == made
    parts = {"chip": "sn10", "memory": "ddr4", "network": {**TORUS, "topology": "ring", "sizes": [8]}}
    assert compose("s", **parts, overrides=more).chips == 16


@pytest.mark.parametrize(
    "field, where, text",
    [
        ("chip.srma.capacity", "$.chip.srma", "did you mean 'sram'"),
        ("chip.sram.capcity", "$.chip.sram.capcity", "did you mean 'capacity'"),
        ("network.rng.size", "$.network.rng", "did you mean 'ring'"),
        ("network.1.size", "$.network.1", "no such network dim"),
        ("chip.name.size", "$.chip.name.size", "has no fields of its own"),
        ("network.ring.name.size", "$.network[0].name.size", "has no fields of its own"),
        ("chip.tiles", "$.chip.tiles", "whole number"),
    ],
)
def test_fields_that_are_not_there(field: str, where: str, text: str) -> None:
    with pytest.raises(DocumentError) as found:
        with_fields(load_system("sn10-8-ring"), {field: "x"}, "s")
    assert [issue.where for issue in found.value.issues] == [where] and text in found.value.issues[0].text


@given(st.floats(1e6, 1e12))
def test_a_replaced_figure_is_the_figure(capacity: float) -> None:
    made = with_fields(load_system("sn10-8-ring"), {"chip.sram.capacity": exact(capacity, "bytes")})
    assert made.chip.sram.capacity == capacity
