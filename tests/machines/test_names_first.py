"""Names of the zoo and of profiles go before files and folders that happen to have them; a file is ./NAME."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import dfopt as df
from dfopt.cli import app
from dfopt.library import load_any
from dfopt.machines.calibrations import assumed_on

SOLVE = ("solve", "gpt2-small", "h100-8", "--tp", "8", "-q", "--no-sensitivity")


@pytest.fixture(autouse=True)
def _crowded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder in which everything is called like something of the zoo."""
    monkeypatch.chdir(tmp_path)
    for name in ("default", "ideal", "calibrated", "h100-8", "gpt2-small", "h100", "h100-calibrated", "hbm3", "stacks"):
        (tmp_path / name).mkdir()
    (tmp_path / "h100-sxm").write_text("no chip")
    (tmp_path / "stacks" / "hbm3").write_text("no stack")
    (tmp_path / "gpt2-small" / "config.json").write_text("{}")


@pytest.mark.parametrize("assume", [(), ("--assume", "default"), ("--assume", "ideal")])
def test_a_solve_takes_the_names(assume: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*SOLVE, *assume])
    assert done.exit_code == 0, done.output
    assert "gpt2-small" in done.stdout and "8 x NVIDIA H100" in done.stdout


def test_every_loader_takes_the_names() -> None:
    system = df.load_system("h100-8")
    assert system.chips == 8 and df.load_system("h100:4").chips == 4
    assert df.load_graph("gpt2-small").name == "gpt2-small"
    assert assumed_on("calibrated", system).assumptions.profile == "h100-calibrated"
    assert assumed_on("h100-calibrated", system).calibration is not None
    assert load_any("default") == df.profile("default") and load_any("stacks/hbm3").name == "hbm3"  # type: ignore
    assert df.compose(chip="h100-sxm", network={"topology": "switch", "sizes": [2], "links": "nvlink-3"}).chips == 2


def test_a_file_of_the_name_is_told_by_its_folder_or_suffix(tmp_path: Path) -> None:
    df.load_system("h100-8", {"network.nvlink.size": 2}).dump(tmp_path / "two.yaml")
    (tmp_path / "a100-8").write_text((tmp_path / "two.yaml").read_text())
    assert df.load_system("a100-8").chips == 8
    assert df.load_system("./a100-8").chips == df.load_system("two.yaml").chips == 2
    with pytest.raises(df.DocumentError, match="found a directory"):
        df.load_system("./h100-8")
