"""The study document: what it refuses, and that it loads back as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from golden_files import golden, rows
from study_cases import SMALL, study

from dfopt.documents.json_schema import schema_json
from dfopt.documents.study import Study
from dfopt.documents.study_columns import AXIS_COLUMNS, COLUMNS, TEXT_COLUMNS
from dfopt.documents.study_expressions import names_in
from dfopt.errors import DocumentError

CLAIM: dict[str, Any] = {"name": "c", "value": "utilization", "at_least": 0.1}
POINT = {"label": 1, "set": {"options.tp": 8}}


def refused(**changes: Any) -> str:
    with pytest.raises(DocumentError) as caught:
        study(**changes)
    assert len(caught.value.issues) == 1, str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "place", "words"), rows(golden("bad_studies.yaml")["document"], "change", "place", "says")
)
def test_what_is_wrong_is_told_with_its_place(changes: dict[str, Any], place: str, words: str) -> None:
    said = refused(**changes)
    assert f"  {place}: " in said and words in said, said


def test_it_loads_back_as_it_was(tmp_path: Path) -> None:
    whole = study(
        systems=[*SMALL["systems"], {"chips": ["h100", {"label": "x", "use": {"part": "h100"}}], "topologies": ["t"]}],
        axes={"sram": [{"label": 0.5, "set": {"system.chip.sram.capacity": "1 MB"}}, {"label": 2}]},
        claims=[{**CLAIM, "over": "sram > 1 and chip not in ['a'] and seq < 8 and limits == 'gap 10 %'"}],
        parameters={"seq": [4, 8], "mode": ["forward", "training"], "ends": [True, False]},
        limits=[{"time_limit": "60 s", "p_max": 4}, {"gap": 0.1, "graphs": ["gpt2-small"]}, {"label": "as they are"}],
        options={"tp": 8},
    )
    for name in ("s.yaml", "s.json"):
        whole.dump(tmp_path / name)
        assert Study.load(tmp_path / name) == whole


def test_an_axis_may_be_called_limits_where_the_study_has_none() -> None:
    whole = study(axes={"limits": [{"label": "a"}]}, claims=[{**CLAIM, "over": "limits == 'a'"}])
    assert whole.axis_columns.count("limits") == 1


def test_the_schema_shows_parameters_and_limits() -> None:
    schema = schema_json(Study)
    entry = schema["$defs"]["LimitsEntry"]["properties"]
    assert set(entry) == {"label", "time_limit", "gap", "p_max", "graphs"}
    assert schema["properties"]["limits"]["items"]["$ref"].endswith("LimitsEntry")
    assert schema["properties"]["parameters"]["additionalProperties"]["type"] == "array"


def test_named_axes_are_columns_of_claims() -> None:
    whole = study(axes={"sram": [{"label": 1}]}, claims=[{**CLAIM, "value": "utilization / sram", "over": "sram > 0"}])
    assert "sram" in whole.columns
    assert "holds text" in refused(axes={"sram": [{"label": "a"}]}, claims=[{**CLAIM, "value": "sram"}])


def test_every_column_is_documented_once() -> None:
    assert not set(AXIS_COLUMNS) & set(COLUMNS)
    assert {*AXIS_COLUMNS, *COLUMNS} >= TEXT_COLUMNS
    assert all(text for text in [*AXIS_COLUMNS.values(), *COLUMNS.values()])


def test_conditions_may_run_over_lines() -> None:
    assert names_in("chip == 'a'\n  and tp > 1") == ("chip", "tp")
