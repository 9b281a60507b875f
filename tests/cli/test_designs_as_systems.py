"""Designs where systems go: functions, the command line, and axes of studies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_tools import call

import dfopt as df
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
