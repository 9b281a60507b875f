"""Designs and technologies on the command line: derived, explored, and where systems go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_tools import answered, assert_refused, call, changed, own_folder, run, spawn, write
from design_cases import SIZES, chosen, searched

import dfopt as df
from dfopt.documents.design import Design
from dfopt.documents.exploration import Exploration
from dfopt.documents.system import System
from dfopt.studies.cells import expand
from dfopt.technology.as_system import derived_system
from dfopt.technology.derive import derive_design
from tests.technology.test_as_system import fixed

_inside = pytest.fixture(autouse=True)(own_folder)

GOLDEN = Path(__file__).parents[1] / "golden" / "deepflow" / "age_derived_parameters.json"
BASES: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))["base_inputs"]


def printed(*words: object, code: int = 0) -> str:
    answer = run(*words, code=code)
    return answer.out + answer.err


@pytest.fixture
def imported(tmp_path: Path) -> Path:
    (tmp_path / "V100.yaml").write_text(yaml.safe_dump(BASES["V100"]), encoding="utf-8")
    said = printed("import", "deepflow", tmp_path / "V100.yaml", "-o", tmp_path / "design.yaml")
    assert "tech_param.core.dataflow" in said and "tech_param.core.nominal_voltage" not in said  # what is not used
    return tmp_path / "design.yaml"


def test_an_imported_chip_is_derived_and_shown(imported: Path) -> None:
    said = printed("derive", imported)
    for words in ("815 mm2", "643 units, 80 clusters", "4 stacks, 4096 links", "V_min, number by perimeter"):
        assert words in said
    said = answered("derive", imported)
    parts = said["components"]
    assert said["price"] is None  # of which DeepFlow's files say nothing
    chip = derive_design(Design.load(imported))
    assert list(parts) == ["core", "registers", "L1", "L2", "dram", "in_package", "between_packages"]
    assert parts["core"]["peak"] == chip.core.peak and parts["dram"]["bandwidth"] == chip.dram.bandwidth
    assert parts["L2"]["bound"] == "power" and parts["dram"]["count_bound"] == "package area"
    assert sum(part["power"] for part in parts.values()) == pytest.approx(chip.power)


def test_layers_are_layers() -> None:
    said = answered("derive", "stacked-256")
    dram, stack = said["components"]["dram"], said["price"]["stack"]
    assert dram["layers"] == 4 and "stacks" not in dram
    assert stack["kept"] == 0.99**4 and said["price"]["usd"] > stack["logic"] + stack["layers"] + stack["lost"]


def test_a_design_is_a_document_like_any_other(imported: Path) -> None:
    assert "ok (dfopt/design/1)" in printed("check", imported)
    assert "chip_area_mm2: 815" in printed("show", imported)


def test_what_cannot_be_derived_is_said_of_the_file() -> None:
    df.load_design("reticle-2026").dump("mine.yaml")
    assert_refused(call("derive", "mine.yaml"), 3, "dfopt: mine.yaml: 1 problem\n  $.shares.area: found auto for L2")


def test_what_is_wrong_with_a_configuration_is_said_in_one_line(tmp_path: Path) -> None:
    importing = ("import", "deepflow", "bad.yaml", "-o")
    assert_refused(call(*importing, "design.yaml"), 3, "no such file")
    bad = changed(BASES["P4"], tech_param__core__threshold_voltage=2.0)  # above the nominal one
    write(tmp_path, "bad.yaml", yaml.safe_dump(bad))
    assert_refused(call(*importing, "design.yaml"), 3, "threshold")
    assert not Path("design.yaml").exists()
    assert_refused(call(*importing, "x.txt"), 2, "expected a name that ends in")


def test_the_system_of_a_design_is_written(imported: Path) -> None:
    system = Path("system.yaml")
    none = call("derive", imported, "--system", system)  # which DeepFlow's file says nothing of
    assert_refused(none, 3, "$.template: found none")
    assert not system.exists()
    data = yaml.safe_load(imported.read_text(encoding="utf-8"))
    dim = {"name": "node", "topology": "switch", "size": 8, "link_bandwidth": "50 GB/s"}
    data["template"] = {"sram": "L2", "network": [dim]}
    imported.write_text(yaml.safe_dump(data), encoding="utf-8")
    assert f"dfopt solve GRAPH {system}" in printed("derive", imported, "--system", system)
    assert System.load(system) == derived_system(Design.load(imported))
    assert answered("derive", imported, "--system", system)["components"]["core"]["units"] == 643
    assert_refused(call("derive", imported, "--system", "x.txt"), 2, "expected a name that ends in")


def test_a_technology_from_another(tmp_path: Path) -> None:
    scaling = {"from": "deepflow-v100", "steps": {"core.power": 0.5}}
    data = {"schema": "dfopt/technology/1", "name": "mine", "scaling": scaling}
    file = write(tmp_path, "mine.yaml", data)
    assert "ok (dfopt/technology/1)" in printed("check", file, "technologies/deepflow-1nm")
    assert answered("show", file)["core"]["power"] == "65 mW"
    scaling["steps"]["core.power"] = 0
    said = "$.scaling.steps['core.power']: found 0, expected a factor above 0 (1 leaves the figure as it is"
    assert_refused(call("check", write(tmp_path, "mine.yaml", data)), 3, f"{file}: 1 problem", said)


def test_designs_and_technologies_of_the_zoo() -> None:
    rows = printed("list", "designs").splitlines()
    assert rows[0].split() == ["name", "technology", "area", "dies", "power"]
    assert any(line.split() == ["b200", "n5-hbm3e-nvlink-5", "1600", "mm2", "2", "1", "kW"] for line in rows)
    assert "n5" in answered("list", "technologies")
    listed = printed("list", "technologies", "n5").splitlines()[-1].split("  ")
    assert [cell.strip() for cell in listed if cell] == ["n5", "0.77 mm2", "31.8 Mb/mm2", "-", "core, sram, wafer"]
    parts = [f"technologies/{name}" for name in ("ucie-3d", "n2", "hbm3")]
    assert printed("check", *parts).count("ok (dfopt/technology-part/1)") == 3
    said = printed("derive", "h100")
    assert "528 units, 132 clusters" in said and "5 stacks, 5120 links" in said and "18 links" in said
    assert answered("derive", "designs/h100") == answered("derive", "h100")
    assert "found auto for L2 and dram and between_packages" in printed("derive", "reticle-2026", code=3)
    assert "did you mean" in printed("derive", "h1000", code=3)


def test_the_stack_of_a_design_is_written_and_used(tmp_path: Path) -> None:
    given = searched()
    share = {"core": "rest", "L2": 0.1, "dram": 0.15, "between_packages": 0.05}
    given |= {"shares": {"area": share, "power": share, "perimeter": {"dram": 0.5, "between_packages": 0.2}}}
    del given["choices"]
    design, stack, result = write(tmp_path, "design.json", given), "stack.yaml", "result.json"
    assert f"what {design} does not say is of stack hbm3" in printed("derive", design, "--stack", stack)
    assert df.load_stack(Path(stack)) == df.derive(design).stack
    assert "ok (dfopt/stack/1)" in printed("check", stack)
    coarse = write(tmp_path, "coarse.yaml", {"schema": "dfopt/stack/1", "name": "coarse", "part": "hbm3", "cells": 6})
    printed("derive", design, "--stack", stack, "--on", coarse)
    for heat in ("ignore", "aware"):
        printed("solve", "gpt2-small", design, "--stack", stack, "--heat", heat, "--no-sensitivity", "-o", result)
        said = answered("score", result, "--stack", stack)
        assert said["physical"]["stack"] == "small" and said["physical"]["limits_broken"] == []
    said = "$.shares: found DRAM beside the chip, expected none: stack hybrid-vault has DRAM dies"
    assert_refused(call("derive", design, "--stack", stack, "--on", "hybrid-vault"), 3, said)
    assert_refused(call("derive", design, "--stack", stack, "--on", "hbm33"), 3, "no zoo name in stacks")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    fixed().dump(tmp_path / "design.yaml")
    return tmp_path / "design.yaml"


def test_functions_take_a_design(file: Path) -> None:
    made = df.derive(file).system
    assert df.load_system(file) == df.load_system(str(file)) == made
    asked: dict[str, Any] = {"tp": 8, "time_limit": 20}
    results = [df.optimize("gpt2-small", given, **asked) for given in (fixed(), file, made)]
    assert len({result.step_time_s for result in results}) == 1 and results[0].system == made
    assert df.evaluate(results[0], "gpt2-small", fixed()) == df.evaluate(results[0], "gpt2-small", made)


def test_overrides_reach_both(file: Path) -> None:
    plain = df.load_system(file)
    cooler = df.load_system(file, {"design.budgets.power": "150 W", "network.node.latency": "2 us"})
    assert cooler.chip.peak_flops < plain.chip.peak_flops and cooler.network[0].latency == 2e-6
    given = fixed().to_data()
    given["budgets"]["power"] = "150 W"
    assert cooler.chip == df.derive(df.Design.from_data(given)).system.chip
    with pytest.raises(df.DocumentError, match=r"sum to 1\.4.*0\.4 too much"):
        df.load_system(file, {"design.shares.power.core": 1.2})
    with pytest.raises(df.DocumentError, match=r"\$\.design: found a system, which has no budgets\.power of a design"):
        df.load_system("sn10-8-ring", {"design.budgets.power": "150 W"})
    with pytest.raises(df.DocumentError, match=r"budgets\.watts"):
        df.load_system(file, {"design.budgets.watts": "150 W"})


def test_a_design_without_a_template_is_refused_by_the_name_of_its_file(tmp_path: Path) -> None:
    fixed().model_copy(update={"template": None}).dump(tmp_path / "bare.yaml")
    said = run("solve", "gpt2-small", tmp_path / "bare.yaml", code=3)
    assert "bare.yaml" in said.err and "$.template: found none" in said.err


def test_the_command_line_takes_a_design(file: Path, tmp_path: Path) -> None:
    run("solve", "gpt2-small", file, "--tp", "8", "--quiet", "-o", tmp_path / "r.json")
    assert df.Result.load(tmp_path / "r.json").system == df.derive(file).system
    df.Result.load(tmp_path / "r.json").mapping.dump(tmp_path / "m.json")
    run("score", tmp_path / "m.json", "gpt2-small", file)


def study(**more: Any) -> df.Study:
    given = {"name": "watts", "graphs": [{"graph": "gpt2-small"}], "systems": [{"system": "design.yaml"}], **more}
    return df.Study(**given)


def test_axes_set_budgets_and_shares_of_a_design(file: Path) -> None:
    points = [{"label": watts, "set": {"design.budgets.power": f"{watts} W"}} for watts in (150, 300)]
    shares = [{"label": share, "set": {"design.shares.area.L2": share}} for share in (0.1, 0.2)]
    cells = expand(study(axes={"watts": points, "cache": shares}), file.parent)
    peaks = {(cell.axes["watts"], cell.axes["cache"]): cell.system.chip.peak_flops for cell in cells}
    sizes = {cell.axes["cache"]: cell.system.chip.sram.capacity for cell in cells}
    assert peaks[150, 0.1] < peaks[300, 0.1] and sizes[0.1] < sizes[0.2]
    assert len({cell.key for cell in cells}) == 4
    plain = expand(study(), file.parent)[0]
    assert plain.key == next(cell.key for cell in cells if cell.axes["watts"] == 300 and cell.axes["cache"] == 0.1)


def test_an_axis_meets_the_fields_of_its_entry(file: Path) -> None:
    entry = {"system": "design.yaml", "set": {"design.budgets.power": "150 W", "network.node.latency": "2 us"}}
    points = [{"label": "more", "set": {"design.shares.area.L2": 0.2, "system.chip.tiles": 32}}]
    system = expand(study(systems=[entry], axes={"cache": points}), file.parent)[0].system
    assert system.network[0].latency == 2e-6 and system.chip.tiles == 32
    given = fixed().to_data()
    given["budgets"]["power"] = "150 W"
    given["shares"]["area"]["L2"] = 0.2
    assert system.chip.sram == df.derive(df.Design.from_data(given)).system.chip.sram


def test_what_is_wrong_with_such_an_axis_is_told_at_its_place(file: Path) -> None:
    points = [{"label": "much", "set": {"design.shares.area.L2": 0.9}}]
    with pytest.raises(df.DocumentError, match=r"axes\.cache\[0\]\.set.*too much"):
        expand(study(axes={"cache": points}), file.parent)
    with pytest.raises(df.DocumentError, match=r"axes\.cache\[0\]\.set.*found a system.*expected a design"):
        expand(study(systems=[{"system": "sn10-8-ring"}], axes={"cache": points}))


def of_packages() -> Design:
    """Packages of 4 x 4 of those chips, at a switch."""
    side = {"topology": "line", "size": 4, "link_bandwidth": "50 GB/s", "tier": "package"}
    sides = [{"name": name, **side} for name in "xy"]
    return fixed(network=[*sides, {"name": "node", "topology": "switch", "size": 2, "links": "between_packages"}])


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is best on them, where the copies are those of the switch."""
    folder = tmp_path_factory.mktemp("packages")
    of_packages().dump(folder / "design.yaml")
    asked = "--tp", "16", "--dp-dims", "node", "--no-sensitivity", "--quiet", "--detail", "plan,proof"
    said = run("solve", "gpt2-small", folder / "design.yaml", *asked, "-o", folder / "r.json")
    assert "TP16(x+y) PP1 DP2(node)" in said.out
    assert "in a shared dim but x, y tensor before" in " ".join(said.out.split())
    return folder


def test_chips_of_a_package_run_around_it(packages: Path) -> None:
    """Which is faster than along its sides, one after the other; the judge walks the ring."""
    result = df.Result.load(packages / "r.json")
    sides = result.mapping.model_copy(update={"plan": df.Plan(**result.plan.to_data() | {"tp_dims": ("x", "y")})})
    assert result.step_time_s < 0.9 * df.evaluate(sides, "gpt2-small", of_packages()).step_time_s
    assert result.step_time_s == df.evaluate(result.mapping, "gpt2-small", of_packages()).step_time_s
    run("check", packages / "r.json")


@pytest.mark.parametrize(
    ("forged", "caught"), [(["y", "x"], "recomputed"), (["y+x"], "no record"), (["x+node"], "expected rings or lines")]
)
def test_a_forged_block_is_caught(forged: list[str], caught: str, packages: Path, tmp_path: Path) -> None:
    """Sealed again, with the other dims wherever the ring was told."""
    text = json.dumps(df.Result.load(packages / "r.json").to_data())
    data = json.loads(text.replace('"tp_dims": ["x+y"]', f'"tp_dims": {json.dumps(forged)}'))
    assert data["plan"]["tp_dims"] == data["mapping"]["plan"]["tp_dims"] == forged
    df.Result.from_data(data).sealed().dump(tmp_path / "forged.json")
    said = call("check", tmp_path / "forged.json")
    assert said.code != 0 and caught in said.out + said.err


def test_designs_are_explored(tmp_path: Path) -> None:
    chosen(**SIZES, choices__capacity__L2__most="12 MiB").dump(tmp_path / "design.yaml")
    asked = ("explore", "gpt2-small", tmp_path / "design.yaml", "--gap", "5%", "-q")
    answer = call(*asked, "-o", tmp_path / "best.json")
    printed = " ".join(answer.out.split())
    assert answer.code == 0 and "is better by more, under any mapping (fixed: microbatch 1/2/4/8)" in printed
    assert f"dfopt: wrote {tmp_path / 'best.json'};" in answer.err
    shown = call("show", tmp_path / "best.json").out
    assert "More of each budget" in shown and "area of the package" in shown
    assert "18 designs" in shown and "between_packages" in shown
    assert "verified" in call("check", tmp_path / "best.json").out
    told = answered(*asked, "--no-sensitivity")
    assert told["gap"] <= 0.05 and told["schema"] == "dfopt/exploration/2"
    assert call("explore", "gpt2-small", tmp_path / "none.yaml").code == 3
    fast = run(*asked[:3], "--step-limit", "1ns", "-q", code=4)
    assert "keeps its limits (step time at most 1 ns)" in fast.err and "\nfixed: microbatch 1/2/4/8" in fast.err
    wrong = run(*asked[:3], "--power-limit", "20ms", "-q", code=2)
    assert "--power-limit: found '20ms'" in wrong.err
    assert call(*asked, "--gap", "5").code == 2
    late = spawn(*asked, "--time-limit", "0.1")  # from the start of the process
    assert late.code == 5 and "no design has been solved" in late.err
    few = call(*asked, "--time-limit", "60", "--top", "3", "--objective", "time", "--no-sensitivity").out
    assert "Best designs" in few and "bound on all other designs" in few
    assert call(*asked, "--objective", "speed").code == 2


def test_designs_are_explored_under_heat(tmp_path: Path) -> None:
    given = {**SIZES, "choices__capacity__L2": {"least": "16 MiB", "most": "16 MiB", "step": "16 MiB"}}
    given |= {"choices__stacks": {"least": 2, "most": 2}, "choices__rate__between_packages__most": "50 GB/s"}
    given |= {"choices__power": {"least": "150 W", "most": "450 W", "step": "300 W"}}
    chosen(**given).dump(tmp_path / "design.yaml")
    plate = {"package": {"mode": "htc", "htc_w_per_m2k": 4000}, "cells": 4, "limits.logic": "70 degC"}
    plate["levels"] = [{"frequency": f, "voltage": 0.4 + 0.6 * f} for f in (1, 0.75, 0.5)]
    df.load_stack("hbm3", plate).dump(tmp_path / "on.yaml")
    asked = ("explore", "gpt2-small", tmp_path / "design.yaml", "--stack", tmp_path / "on.yaml", "--gap", "20%", "-q")
    answer = run(*asked, "--heat", "throttle", "-o", tmp_path / "best.json")
    assert "throttle on stack" in answer.out and "without heat" in answer.out
    assert json.loads((tmp_path / "best.json").read_text(encoding="utf-8"))["request"]["heat"] == "throttle"
    assert "heat: found none, expected it beside stack" in call(*asked).err


def test_metrics_and_heat_by_a_formula(tmp_path: Path) -> None:
    data = df.load_design("stacked-256").to_data()
    data["template"]["network"] = data["template"]["network"][:1]
    Design.from_data({**data, "choices": {"dram_layers": [4, 6]}}, "it").dump(tmp_path / "design.yaml")
    asked = ("explore", "llama-68m", tmp_path / "design.yaml", "--tp", "4", "--objective", "tokens_per_s", "--top", "2")
    asked += ("--no-sensitivity",)
    answer = run(*asked, "--heat", "lumped", "--temperature-limit", "80", "-q", "-o", tmp_path / "best.json")
    assert "temperature at most 80 degC" in answer.out and "lumped: " in answer.out
    made = Exploration.load(tmp_path / "best.json")
    assert made.bound >= made.value > made.others[0].value and f"{made.value:,.0f}"[:3] in answer.out
    assert "bound on all other designs" in answer.out and "tokens/s" in answer.out
    assert "verified" in call("check", tmp_path / "best.json").out
    assert "expected one of lumped, tp_pp_dp, expanded" in call(*asked, "--compare", "vague").err
    fewer = run(*asked, "--compare", "tp_pp_dp", "--parallelism", "expanded")
    assert "under tp_pp_dp" in fewer.out and ", here " in fewer.out
    assert "degC such as 85" in call(*asked, "--temperature-limit", "-400").err
    assert "found a temperature without heat" in call(*asked, "--temperature-limit", "80").err
    assert "expected heat: throttle or aware" in call(*asked[:5], "--objective", "tokens_per_j").err


def test_both_ends_of_the_energy_of_dram(tmp_path: Path) -> None:
    few = {**SIZES, "choices__capacity__L2__most": "12 MiB", "choices__rate__between_packages__most": "50 GB/s"}
    chosen(**few, technology__dram__energy_range=["1 pJ/bit", "60 pJ/bit"]).dump(tmp_path / "design.yaml")
    asked = ("explore", "gpt2-small", tmp_path / "design.yaml", "--gap", "0", "--no-sensitivity", "-q", "--range")
    answer = call(*asked, "--store", tmp_path / "solved.jsonl", "-o", tmp_path / "best.json")
    rows = [line.split()[:3] for line in answer.out.splitlines() if line.split()[2:3] == ["pJ/bit"]]
    assert answer.code == 0 and rows == [["low", "1", "pJ/bit"], ["middle", "4", "pJ/bit"], ["high", "60", "pJ/bit"]]
    told = json.loads((tmp_path / "best.json").read_text(encoding="utf-8"))
    sizes = [one["best"] for one in (told["energy_range"]["low"], told, told["energy_range"]["high"])]
    same = "the same design is best at both ends" in answer.out
    assert same == (sizes[0] == sizes[1] == sizes[2]) and same != ("another design is best at the" in answer.out)
    assert call("check", tmp_path / "best.json").out.count("verified optimal") == 3
    chosen(**few).dump(tmp_path / "design.yaml")
    without = run(*asked, code=3)
    assert "$.technology.dram.energy_range: found none" in without.err
