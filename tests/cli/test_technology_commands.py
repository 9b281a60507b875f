"""From a configuration of DeepFlow to a design to a chip, and what is wrong with those files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_tools import call
from design_cases import searched

import dfopt as df
from dfopt.documents.design import Design
from dfopt.documents.system import System
from dfopt.technology.as_system import derived_system
from dfopt.technology.derive import derive_design

GOLDEN = Path(__file__).parents[1] / "golden" / "deepflow" / "age_derived_parameters.json"
BASES: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))["base_inputs"]


def run(*words: object, code: int = 0) -> str:
    answer = call(*words)
    assert answer.code == code, answer.err
    return answer.out + answer.err


@pytest.fixture
def imported(tmp_path: Path) -> Path:
    (tmp_path / "V100.yaml").write_text(yaml.safe_dump(BASES["V100"]), encoding="utf-8")
    said = run("import", "deepflow", tmp_path / "V100.yaml", "-o", tmp_path / "design.yaml")
    assert "tech_param.core.dataflow" in said and "tech_param.core.nominal_voltage" not in said  # what is not used
    return tmp_path / "design.yaml"


def test_an_imported_chip_is_derived_and_shown(imported: Path) -> None:
    said = run("derive", imported)
    for words in ("815 mm2", "643 units, 80 clusters", "4 stacks, 4096 links", "V_min, number by perimeter"):
        assert words in said
    said = json.loads(run("derive", imported, "--json"))
    parts = said["components"]
    assert said["price"] is None  # of which DeepFlow's files say nothing
    chip = derive_design(Design.load(imported))
    assert list(parts) == ["core", "registers", "L1", "L2", "dram", "in_package", "between_packages"]
    assert parts["core"]["peak"] == chip.core.peak and parts["dram"]["bandwidth"] == chip.dram.bandwidth
    assert parts["L2"]["bound"] == "power" and parts["dram"]["count_bound"] == "package area"
    assert sum(part["power"] for part in parts.values()) == pytest.approx(chip.power)


def test_layers_are_layers() -> None:
    said = json.loads(run("derive", "stacked-256", "--json"))
    dram, stack = said["components"]["dram"], said["price"]["stack"]
    assert dram["layers"] == 4 and "stacks" not in dram
    assert stack["kept"] == 0.99**4 and said["price"]["usd"] > stack["logic"] + stack["layers"] + stack["lost"]


def test_a_design_is_a_document_like_any_other(imported: Path) -> None:
    assert "ok (dfopt/design/1)" in run("check", imported)
    assert "chip_area_mm2: 815" in run("show", imported)
    assert json.loads(run("schema", "design"))["properties"]["budgets"]
    assert json.loads(run("schema", "technology"))["anyOf"][0]["properties"]["core"]


def test_shares_above_one_are_refused_with_the_excess(imported: Path) -> None:
    data = yaml.safe_load(imported.read_text(encoding="utf-8"))
    data["profile"] = "default"
    data["shares"]["power"]["core"] = "90 %"
    imported.write_text(yaml.safe_dump(data), encoding="utf-8")
    for command in ("derive", "check"):
        said = run(command, imported, code=3)
        assert "$.shares.power: found shares that sum to" in said and "too much" in said


def test_what_cannot_be_derived_is_said_of_the_file(tmp_path: Path) -> None:
    df.load_design("reticle-2026").dump(tmp_path / "mine.yaml")
    said = run("derive", tmp_path / "mine.yaml", code=3)
    assert said.startswith(f"dfopt: {tmp_path / 'mine.yaml'}: 1 problem\n  $.shares.area: found auto for L2")


def test_what_is_wrong_with_a_configuration_is_said_in_one_line(tmp_path: Path) -> None:
    file, output = tmp_path / "bad.yaml", tmp_path / "design.yaml"
    assert "no such file" in run("import", "deepflow", file, "-o", output, code=3)
    bad = json.loads(json.dumps(BASES["P4"]))
    bad["tech_param"]["core"]["threshold_voltage"] = 2.0  # above the nominal one
    file.write_text(yaml.safe_dump(bad), encoding="utf-8")
    said = run("import", "deepflow", file, "-o", output, code=3)
    assert "threshold" in said and "Traceback" not in said and not output.exists()
    assert "expected a name that ends in" in run("import", "deepflow", file, "-o", tmp_path / "x.txt", code=2)


def test_the_system_of_a_design_is_written(imported: Path, tmp_path: Path) -> None:
    system = tmp_path / "system.yaml"
    said = run("derive", imported, "--system", system, code=3)  # which DeepFlow's file says nothing of
    assert "$.template: found none" in said and not system.exists()
    data = yaml.safe_load(imported.read_text(encoding="utf-8"))
    dim = {"name": "node", "topology": "switch", "size": 8, "link_bandwidth": "50 GB/s"}
    data["template"] = {"sram": "L2", "network": [dim]}
    imported.write_text(yaml.safe_dump(data), encoding="utf-8")
    assert f"dfopt solve GRAPH {system}" in run("derive", imported, "--system", system)
    assert System.load(system) == derived_system(Design.load(imported))
    assert json.loads(call("derive", imported, "--system", system, "--json").out)["components"]["core"]["units"] == 643
    assert "expected a name that ends in" in run("derive", imported, "--system", tmp_path / "x.txt", code=2)


def test_a_technology_from_another(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "schema: dfopt/technology/1\nname: mine\nscaling:\n  from: deepflow-v100\n  steps: {core.power: 0.5}\n",
        encoding="utf-8",
    )
    assert "ok (dfopt/technology/1)" in run("check", file, "technologies/deepflow-1nm")
    assert json.loads(run("show", file, "--json"))["core"]["power"] == "65 mW"
    file.write_text(file.read_text(encoding="utf-8").replace("0.5", "0"), encoding="utf-8")
    said = run("check", file, code=3)
    assert f"{file}: 1 problem" in said
    assert "$.scaling.steps['core.power']: found 0, expected a factor above 0 (1 leaves the figure as it is" in said


def test_designs_and_technologies_of_the_zoo() -> None:
    rows = run("list", "designs").splitlines()
    assert rows[0].split() == ["name", "technology", "area", "dies", "power"]
    assert any(line.split() == ["b200", "n5-hbm3e-nvlink-5", "1600", "mm2", "2", "1", "kW"] for line in rows)
    assert "n5" in json.loads(run("list", "technologies", "--json"))
    listed = run("list", "technologies", "n5").splitlines()[-1].split("  ")
    assert [cell.strip() for cell in listed if cell] == ["n5", "0.77 mm2", "31.8 Mb/mm2", "-", "core, sram, wafer"]
    assert "ok (dfopt/technology-part/1)" in run(
        "check", "technologies/ucie-3d", "technologies/n2", "technologies/hbm3"
    )
    said = run("derive", "h100")
    assert "528 units, 132 clusters" in said and "5 stacks, 5120 links" in said and "18 links" in said
    assert json.loads(run("derive", "designs/h100", "--json")) == json.loads(run("derive", "h100", "--json"))
    assert "design of this name is designs/h100" in run("solve", "gpt2-small", "h100", code=3)
    assert "found auto for L2 and dram and between_packages" in run("derive", "reticle-2026", code=3)
    assert "did you mean" in run("derive", "h1000", code=3)


def test_a_workload_on_a_design_of_the_zoo() -> None:
    solved = json.loads(run("solve", "gpt2-small", "designs/h100", "--tp", "8", "--no-sensitivity", "--json", "-q"))
    assert solved["system"]["chip"]["name"] == "h100" and solved["status"] == "optimal"


def test_the_stack_of_a_design_is_written_and_used(tmp_path: Path) -> None:
    given = searched()
    share = {"core": "rest", "L2": 0.1, "dram": 0.15, "between_packages": 0.05}
    given |= {"shares": {"area": share, "power": share, "perimeter": {"dram": 0.5, "between_packages": 0.2}}}
    del given["choices"]
    design, stack, result = tmp_path / "design.yaml", tmp_path / "stack.yaml", tmp_path / "result.json"
    design.write_text(json.dumps(given), encoding="utf-8")  # YAML would write what is shared as an anchor
    assert f"what {design} does not say is of stack hbm3" in run("derive", design, "--stack", stack)
    assert df.load_stack(stack) == df.derive(design).stack
    assert "ok (dfopt/stack/1)" in run("check", stack)
    coarse = tmp_path / "coarse.yaml"
    coarse.write_text(json.dumps({"schema": "dfopt/stack/1", "name": "coarse", "part": "hbm3", "cells": 6}))
    run("derive", design, "--stack", stack, "--on", coarse)
    for heat in ("ignore", "aware"):
        run("solve", "gpt2-small", design, "--stack", stack, "--heat", heat, "--no-sensitivity", "-o", result)
        said = json.loads(call("score", result, "--stack", stack, "--json").out)
        assert said["physical"]["stack"] == "small" and said["physical"]["limits_broken"] == []
    said = run("derive", design, "--stack", stack, "--on", "hybrid-vault", code=3)
    assert "$.shares: found DRAM beside the chip, expected none: stack hybrid-vault has DRAM dies" in said
    assert "no zoo name in stacks" in run("derive", design, "--stack", stack, "--on", "hbm33", code=3)
