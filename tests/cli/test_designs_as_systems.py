"""Designs where systems go: functions, the command line, and axes of studies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_tools import call

import dfopt as df
from dfopt.documents.design import Design
from dfopt.studies.cells import expand
from tests.technology.test_as_system import fixed


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
    said = call("solve", "gpt2-small", tmp_path / "bare.yaml")
    assert said.code == 3 and "bare.yaml" in said.err and "$.template: found none" in said.err


def test_the_command_line_takes_a_design(file: Path, tmp_path: Path) -> None:
    said = call("solve", "gpt2-small", file, "--tp", "8", "--quiet", "-o", tmp_path / "r.json")
    assert said.code == 0, said.err
    assert df.Result.load(tmp_path / "r.json").system == df.derive(file).system
    df.Result.load(tmp_path / "r.json").mapping.dump(tmp_path / "m.json")
    assert call("score", tmp_path / "m.json", "gpt2-small", file).code == 0


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
    said = call("solve", "gpt2-small", folder / "design.yaml", *asked, "-o", folder / "r.json")
    assert said.code == 0, said.err
    assert "TP16(x+y) PP1 DP2(node)" in said.out
    assert "in a shared dim but x, y tensor before" in " ".join(said.out.split())
    return folder


def test_chips_of_a_package_run_around_it(packages: Path) -> None:
    """Which is faster than along its sides, one after the other; the judge walks the ring."""
    result = df.Result.load(packages / "r.json")
    sides = result.mapping.model_copy(update={"plan": df.Plan(**result.plan.to_data() | {"tp_dims": ("x", "y")})})
    assert result.step_time_s < 0.9 * df.evaluate(sides, "gpt2-small", of_packages()).step_time_s
    assert result.step_time_s == df.evaluate(result.mapping, "gpt2-small", of_packages()).step_time_s
    assert call("check", packages / "r.json").code == 0


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
