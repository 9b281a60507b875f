"""Technologies made of parts and of each other, and designs that name them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from design_cases import SUPPLY, data
from hypothesis import given
from hypothesis import strategies as st

from dfopt.documents.design import Design
from dfopt.documents.strict_yaml import dump_yaml
from dfopt.documents.technology import Technology
from dfopt.errors import DfoptError, DocumentError
from dfopt.frontends.deepflow import read_design
from dfopt.library import as_design, load_system
from dfopt.machines.designs import expand_design
from dfopt.machines.technologies import expand_part, expand_technology, load_technology

GOLDEN = Path(__file__).parents[1] / "golden" / "deepflow" / "age_derived_parameters.json"
BASES: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))["base_inputs"]
LOGIC = {
    "core": {
        "nominal_power_per_mcu": 0.54, "nominal_area_per_mcu": 0.67, "operating_area_per_mcu": 0.67,
        "nominal_voltage": 0.9,
    },
    "DRAM": {"mem_ctrl_area": 0.9},
    **{f"SRAM-{level}": {"area_per_bit": 0.67, "controller_area_per_link": 0.67, "dynamic_energy_per_bit": 0.54}
       for level in ("R", "L1", "L2")},
}  # fmt: skip


def whole(name: str = "base") -> dict[str, Any]:
    return {**data()["technology"], "name": name}


def made(**terms: Any) -> Technology:
    return expand_technology({"schema": "dfopt/technology/1", "name": "mine", **terms})


def wrong(**terms: Any) -> str:
    with pytest.raises(DfoptError) as caught:
        made(**terms)
    return str(caught.value)


def write(folder: Path, name: str, data: dict[str, Any]) -> str:
    (folder / name).write_text(dump_yaml(data), encoding="utf-8")
    return str(folder / name)


@pytest.mark.parametrize(
    ("name", "base"), [("deepflow-p4", "P4"), ("deepflow-v100", "V100"), ("deepflow-v100-search", "exp_config")]
)
def test_the_bases_are_the_configurations(name: str, base: str) -> None:
    ours = load_technology(name).model_dump(mode="json", exclude={"name", "description", "source"})
    theirs = read_design(BASES[base], base)[0].technology.model_dump(
        mode="json", exclude={"name", "description", "source"}
    )
    assert ours == theirs


@pytest.mark.parametrize("steps, node", list(enumerate([14, 10, 7, 5, 3, 2, 1])))
def test_logic_nodes_are_the_scaled_configurations(steps: int, node: int) -> None:
    """The factors of DeepFlow's scripts, applied to its own configuration as often as there are nodes between."""
    config = json.loads(json.dumps(BASES["V100"]))
    for part, factors in LOGIC.items():
        for key, factor in factors.items():
            config["tech_param"][part][key] *= factor**steps
    theirs = read_design(config, "V100")[0].technology.model_dump()
    ours = load_technology(f"deepflow-{node}nm").model_dump()
    for key in ("core", "dram", "links"):
        assert flat(ours[key]) == pytest.approx(flat(theirs[key]), rel=1e-12)
    assert [flat(level) for level in ours["sram"]] == [
        pytest.approx(flat(level), rel=1e-12) for level in theirs["sram"]
    ]


def flat(data: dict[str, Any], above: str = "") -> dict[str, float]:
    found: dict[str, float] = {}
    for key, value in data.items():
        if isinstance(value, dict):
            found |= flat(value, f"{above}{key}.")
        elif isinstance(value, int | float):
            found[above + key] = value
    return found


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_steps_multiply(one: float, other: float) -> None:
    """Two technologies, one from the other, are one with the product of the factors; and a quantity keeps its unit."""
    base = load_technology("deepflow-v100")
    first = made(scaling={"from": "deepflow-v100", "steps": {"core.power": one, "sram.L2.energy": other}})
    assert first.core.power == pytest.approx(base.core.power * one, rel=1e-14)
    assert first.sram[2].energy == pytest.approx(base.sram[2].energy * other, rel=1e-14)
    assert first.sram[:2] == base.sram[:2] and first.dram == base.dram and first.links == base.links


def test_scaled_by_ones_is_the_same(tmp_path: Path) -> None:
    file = write(tmp_path, "base.yaml", whole())
    paths = ("core.area_mm2", "core.units_per_cluster", "core.supply.margin_v", "sram[0].bank", "dram.links_per_stack")
    assert made(scaling={"from": file, "steps": dict.fromkeys(paths, 1.0)}) == Technology.load(file).model_copy(
        update={"name": "mine"}
    )


def test_parts_and_fields(tmp_path: Path) -> None:
    base = whole()
    logic = write(tmp_path, "logic.yaml", {
        "schema": "dfopt/technology-part/1", "name": "l", "core": base["core"], "sram": base["sram"],
    })  # fmt: skip
    memory = {"schema": "dfopt/technology-part/1", "name": "m", "dram": base["dram"]}
    write(tmp_path, "memory.yaml", memory)
    link = {"area_mm2": 1, "links_per_mm": 2, "frequency": "9 GHz", "supply": SUPPLY, "energy": "1 pJ/bit"}
    file = write(tmp_path, "mine.yaml", {
        "schema": "dfopt/technology/1", "name": "mine", "parts": [logic, "./memory.yaml"],
        "links": {"in_package": link}, "set": {"dram.frequency": "3 GHz", "links.in_package.area_mm2": 4},
    })  # fmt: skip
    found = load_technology(file)
    assert found.core == Technology.from_data(base).core and found.dram.frequency == 3e9
    assert found.links["in_package"].area_mm2 == 4 and found.name == "mine"
    assert expand_part(memory).sections == ("dram",)


def test_what_is_there_twice(tmp_path: Path) -> None:
    base = whole()
    file = write(tmp_path, "base.yaml", base)
    assert "$.parts[0]: found dram in" in wrong(parts=[file], dram=base["dram"])
    assert "and in this document, expected it once" in wrong(parts=[file], dram=base["dram"])
    assert f"$.scaling: found core in scaling and in {file}" in wrong(parts=[file], scaling={"from": file})


def test_links_of_several_parts(tmp_path: Path) -> None:
    link = {"area_mm2": 1, "links_per_mm": 2, "frequency": "9 GHz", "supply": SUPPLY, "energy": "1 pJ/bit"}
    roles = ("in_package", "between_packages")
    files = [
        write(tmp_path, f"{role}.yaml", {"schema": "dfopt/technology-part/1", "name": role, "links": {role: link}})
        for role in roles
    ]
    base = write(tmp_path, "base.yaml", whole())
    assert tuple(made(parts=[base, *files]).links) == roles
    assert "$.parts[2]: found links.in_package in" in wrong(parts=[base, files[0], files[0]])


@pytest.mark.parametrize(
    ("terms", "says"),
    [
        ({"scaling": "n5"}, "$.scaling: found 'n5', expected the name of a technology and factors"),
        ({"scaling": {"steps": {}}}, "$.scaling: found no from, expected the name"),
        (
            {"scaling": {"from": "deepflow-v10"}},
            "$.scaling.from: no technology of this name and no file: 'deepflow-v10'",
        ),
        ({"scaling": {"from": "./none.yaml"}}, "$.scaling.from: no such file: './none.yaml'"),
        ({"scaling": {"from": "nvlink-9"}}, "no technology of this name and no file: 'nvlink-9'"),
        ({"scaling": {"from": "deepflow-v100", "factors": {}}}, "$.scaling.factors: unknown key"),
        (
            {"scaling": {"from": "deepflow-v100", "steps": [2]}},
            "$.scaling.steps: found a list of 1, expected a mapping",
        ),
        ({"parts": "n5"}, "$.parts: found 'n5', expected a list of names"),
        ({"parts": ["deepflow-v100", "hbm9"]}, "$.parts[1]: no technology of this name and no file: 'hbm9'"),
        ({"parts": ["deepflow-v100"], "set": [1]}, "$.set: found a list of 1, expected a mapping"),
        ({"parts": ["deepflow-v100"], "set": {"cores.x": 1}}, "$.set: $.cores: there is no such part"),
        ({"parts": ["deepflow-v100"], "set": {"core.x": 1}}, "$.core.x: unknown key"),
        ({"parts": []}, "$.core: the key is missing"),
    ],
)
def test_terms_that_are_wrong_are_refused_by_their_path(terms: dict[str, Any], says: str) -> None:
    assert says in wrong(**terms)


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ({"core.power": 0}, "found 0, expected a factor above 0"),
        ({"core.power": -0.5}, "found -0.5, expected a factor above 0"),
        ({"core.power": True}, "found true, expected a factor above 0"),
        ({"core.power": "2"}, "found '2', expected a factor above 0"),
        ({"core.power": float("inf")}, "expected a factor above 0"),
        ({"core.watts": 2}, "'watts' is not there, expected one of area_mm2, "),
        ({"cores.power": 2}, "$.cores: there is no such part (did you mean 'core'"),
        ({"sram.L9.bank": 2}, "$.sram.L9: there is no such level (levels: reg"),
        ({"sram.L1.name": 2}, "it is 'L1', expected a number or a quantity"),
        ({"core": 2}, "expected a number or a quantity"),
        ({"sram.L1.shared": 2}, "it is false, expected a number or a quantity"),
        ({"core.utilization": 2}, "$.core.utilization: found 1.7, expected"),
        ({"dram.links_per_stack": 0.3}, "$.dram.links_per_stack: found 307.2"),
        ({"core.supply.nominal_v": 0.2}, "$.core.supply.threshold_v: found 0.2 V"),
    ],
)
def test_steps_that_are_wrong_are_refused_by_their_path(steps: dict[str, Any], says: str) -> None:
    assert says in wrong(scaling={"from": "deepflow-v100", "steps": steps})


def test_none_comes_from_itself(tmp_path: Path) -> None:
    for name, base in (("a", "b"), ("b", "c"), ("c", "a")):
        write(tmp_path, f"{name}.yaml", {
            "schema": "dfopt/technology/1", "name": name, "scaling": {"from": f"./{base}.yaml"},
        })  # fmt: skip
    with pytest.raises(DocumentError, match=r"cannot be derived from itself: a.yaml -> b.yaml -> c.yaml -> a.yaml"):
        load_technology(tmp_path / "a.yaml")
    design = {**data(), "technology": "./a.yaml"}
    with pytest.raises(DocumentError, match=r"cannot be derived from itself"):
        as_design(write(tmp_path, "design.yaml", design))


def test_what_is_wrong_in_a_base_is_told_of_its_file(tmp_path: Path) -> None:
    file = write(tmp_path, "base.yaml", {**whole(), "dram": {"stack": "1 GiB"}})
    message = wrong(scaling={"from": file})
    assert message.startswith(file) and "$.dram.stack_area_mm2: the key is missing" in message
    other = write(tmp_path, "graph.yaml", {"schema": "dfopt/link/1", "name": "x", "bandwidth": "1 GB/s"})
    assert "this is a link where a technology is wanted" in wrong(scaling={"from": other})


def test_a_design_names_its_technology(tmp_path: Path) -> None:
    write(tmp_path, "base.yaml", whole())
    inline = Design.from_data({**data(), "technology": whole()})
    assert as_design(write(tmp_path, "design.yaml", {**data(), "technology": "./base.yaml"})) == inline
    twice = {"name": "twice", "scaling": {"from": str(tmp_path / "base.yaml"), "steps": {"core.power": 2}}}
    assert expand_design({**data(), "technology": twice}).technology.core.power == 2 * inline.technology.core.power
    with pytest.raises(DocumentError, match=r"\$\.technology: no technology of this name and no file: 'deepflow-v9'"):
        expand_design({**data(), "technology": "deepflow-v9"})
    with pytest.raises(DocumentError, match=r"\$\.technology\.scaling\.steps\['core\.power'\]: found 0"):
        expand_design(
            {**data(), "technology": {**twice, "scaling": {"from": "deepflow-v100", "steps": {"core.power": 0}}}}
        )


def test_fields_of_designs_may_name_one(tmp_path: Path) -> None:
    given = {**data(), "technology": "deepflow-14nm", "template": {"sram": "L2"}}
    given["shares"]["power"] = {"core": "rest", "dram": 0.16, "L2": 0.008}
    given["shares"]["perimeter"] = {"dram": 0.5}
    given["profile"] = "deepflow"
    file = write(tmp_path, "design.yaml", given)
    peaks = [load_system(file, {"design.technology": f"deepflow-{node}nm"}).chip.peak_flops for node in (14, 10, 7, 5)]
    assert peaks == sorted(peaks) and peaks[0] == load_system(file).chip.peak_flops < peaks[1]
