"""`dfopt solve --heat aware` and `dfopt heat`, end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_tools import call

HOT = "schema: dfopt/stack/1\nname: hot\npart: hybrid-vault\nset: {package.r_convec_k_per_w: 0.25}\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: Any) -> tuple[Path, Path]:
    """A stack that is too hot, and a heat-aware result on it."""
    folder = tmp_path_factory.mktemp("heat")
    (folder / "hot.yaml").write_text(HOT)
    words = ["gpt3-175b", "sn10-8-ring", "--tp", 1, "--pp", 8, "--stack", folder / "hot.yaml", "--heat", "aware"]
    found = call("solve", *words, "--gap", 1e-3, "--no-sensitivity", "-q", "-o", folder / "aware.json")
    assert found.code == 0, found.err
    assert json.loads((folder / "aware.json").read_text())["mapping"]["clocks"]
    return folder / "hot.yaml", folder / "aware.json"


def test_a_heat_aware_result_passes_check_and_score(files: tuple[Path, Path]) -> None:
    assert call("check", files[1]).code == 0
    assert call("score", files[1]).code == 0  # its limits are kept


def test_three_answers_as_a_table_and_as_json(files: tuple[Path, Path], tmp_path: Path) -> None:
    table = call("heat", files[1], "--gap", 1e-3, "-o", tmp_path / "report.json")
    assert table.code == 0, table.err
    for word in ("ignore heat", "throttle", "heat-aware", "step time", "one kelvin", "binding"):
        assert word in table.out
    again = call("heat", files[1], "--stack", files[0], "--gap", 1e-3, "--json", "--no-one-kelvin")
    assert [one["name"] for one in json.loads(again.out)["answers"]] == ["ignore", "throttle", "aware"]
    assert json.loads((tmp_path / "report.json").read_text())["schema"] == "dfopt/heat/1"
    assert call("check", tmp_path / "report.json").code == 0


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["solve", "gpt2-small", "sn10-8-ring", "--heat", "hot"], 2, "--heat: expected one of ignore, aware"),
        (["solve", "gpt2-small", "sn10-8-ring", "--tp", "8", "--heat", "aware"], 3, "found none, expected a stack"),
        (["heat", "nothing.json"], 3, "nothing.json"),
        (["heat", "RESULT", "--stack", "hybird-vault"], 3, "hybrid-vault"),
        (["heat", "RESULT", "-o", "report.txt"], 2, "--output"),
    ],
)
def test_errors_are_one_message(files: tuple[Path, Path], words: list[str], code: int, says: str) -> None:
    found = call(*(str(files[1]) if word == "RESULT" else word for word in words))
    assert found.code == code and says in found.err and "Traceback" not in found.err
