"""The study document: what it refuses, and that it loads back as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
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
    ("changes", "place", "words"),
    [
        ({"graphs": []}, "$.graphs", "expected 1 or more entries"),
        ({"systems": []}, "$.systems", "expected 1 or more entries"),
        ({"systems": [{"chips": [], "topologies": ["t"]}]}, "$.systems[0].chips", "expected 1 or more entries"),
        ({"graphs": [{"grahp": "x", "graph": "y"}]}, "$.graphs[0].grahp", "did you mean 'graph'?"),
        ({"graphs": [{"graph": "a"}, {"graph": "a"}]}, "$.graphs", "'a' is there twice"),
        ({"systems": [{"chips": ["h100"]}]}, "$.systems[0].topologies", "the key is missing"),
        ({"systems": [{"system": "s", "labl": "x"}]}, "$.systems[0].labl", "did you mean 'label'?"),
        ({"systems": [{"chips": ["a", "a"], "topologies": ["t"]}]}, "$.systems[0].chips", "'a' is there twice"),
        ({"assumptions": [{}, {"set": {}}]}, "$.assumptions", "'auto' is there twice"),
        ({"assumptions": [{"graphs": ["gpt2-smal"]}]}, "$.assumptions[0].graphs", "did you mean 'gpt2-small'?"),
        ({"axes": {"2nd": [POINT]}}, "$.axes.2nd", "expected a word"),
        ({"axes": {"class": [POINT]}}, "$.axes.class", "expected a word"),
        ({"axes": {"gap": [POINT]}}, "$.axes.gap", "has a column 'gap' already"),
        ({"axes": {"chip": [POINT]}}, "$.axes.chip", "has a column 'chip' already"),
        ({"axes": {"a": []}}, "$.axes.a", "an axis without values"),
        ({"axes": {"a": [POINT, POINT]}}, "$.axes.a", "1 is there twice"),
        ({"axes": {"a": [POINT, {"label": "b"}]}}, "$.axes.a", "text and numbers mixed"),
        ({"axes": {"a": [{"label": 1, "set": {"chip.tiles": 8}}]}}, "$.axes.a[0].set", "expected one of graph.FIELD"),
        ({"graphs": ["gpt2-small"]}, "$.graphs[0]", "write {graph: gpt2-small}"),
        ({"systems": [SMALL["systems"][0], "h100-8"]}, "$.systems[1]", "write {system: h100-8}"),
        ({"assumptions": ["dfmodel"]}, "$.assumptions[0]", "write {profile: dfmodel}"),
        ({"parameters": {"batch": {"a": 8}}}, "$.parameters.batch", "expected a list"),
        ({"parameters": {"batch": []}}, "$.parameters.batch", "an axis without values"),
        ({"parameters": {"batch": [8, 8]}}, "$.parameters.batch", "8 is there twice"),
        ({"parameters": {"seq": [8, "a"]}}, "$.parameters.seq", "text and numbers mixed"),
        ({"parameters": {"chips": [8]}}, "$.parameters.chips", "make it an axis that sets graph.chips"),
        ({"parameters": {"seq": [8]}, "axes": {"seq": [POINT]}}, "$.parameters.seq", "has a column 'seq' already"),
        ({"parameters": {"batch": [8]}}, "$.graphs[0].parameters.batch", "$.parameters give it too"),
        (
            {"parameters": {"seq": [8]}, "axes": {"a": [{"label": 1, "set": {"graph.seq": 8}}]}},
            "$.axes.a[0].set['graph.seq']",
            "$.parameters give it too",
        ),
        ({"limits": {"gap": 0.1}}, "$.limits", "expected a list"),
        ({"limits": [{"time_limt": "1 s"}]}, "$.limits[0].time_limt", "did you mean 'time_limit'?"),
        ({"limits": [{"time_limit": 60}]}, "$.limits[0].time_limit", "missing unit"),
        ({"limits": [{"time_limit": "0 s"}]}, "$.limits[0].time_limit", "or more"),
        ({"limits": [{"gap": 2}]}, "$.limits[0].gap", "or less"),
        ({"limits": [{}]}, "$.limits[0]", "give time_limit, gap, p_max or a label"),
        ({"limits": [{"gap": 0.1}, {"gap": 0.1, "label": None}]}, "$.limits", "'gap 10 %' is there twice"),
        ({"limits": [{"gap": 0.1, "graphs": ["gpt2-smal"]}]}, "$.limits[0].graphs", "did you mean 'gpt2-small'?"),
        ({"limits": [{"time_limit": "1 s"}]}, "$.options.time_limit", "$.limits give it too"),
        (
            {"limits": [{"gap": 0.1}], "graphs": [{"graph": "a", "options": {"gap": 0.2}}]},
            "$.graphs[0].options.gap",
            "$.limits give it too",
        ),
        (
            {"limits": [{"p_max": 4}], "axes": {"a": [POINT, {"label": 2, "set": {"options.p_max": 4}}]}},
            "$.axes.a[1].set['options.p_max']",
            "$.limits give it too",
        ),
        ({"limits": [{"gap": 0.1}], "axes": {"limits": [POINT]}}, "$.axes.limits", "has a column 'limits' already"),
        ({"claims": [{**CLAIM, "over": "limits == 'a'"}]}, "$.claims[0].over", "there is no column 'limits'"),
        (
            {"limits": [{"gap": 0.1}], "claims": [{**CLAIM, "value": "limits"}]},
            "$.claims[0].value",
            "holds text, expected numbers",
        ),
        ({"options": {"tpp": 8}}, "$.options.tpp", "did you mean 'tp' or 'pp'?"),
        ({"options": {"time_limit": 60}}, "$.options.time_limit", "missing unit"),
        ({"filters": [{"drop": "chipp == 'x'"}]}, "$.filters[0].drop", "did you mean 'chip'?"),
        ({"filters": [{"drop": "gap > 1"}]}, "$.filters[0].drop", "there is no column 'gap'"),
        ({"claims": [{**CLAIM, "value": "utilisation"}]}, "$.claims[0].value", "did you mean 'utilization'?"),
        ({"claims": [{**CLAIM, "value": "chip"}]}, "$.claims[0].value", "holds text, expected numbers"),
        ({"claims": [{**CLAIM, "value": "tp > 8"}]}, "$.claims[0].value", "a comparison, expected a value"),
        ({"claims": [{**CLAIM, "value": "tp / 'a'"}]}, "$.claims[0].value", "a constant of this kind"),
        ({"claims": [{**CLAIM, "over": "tp"}]}, "$.claims[0].over", "a value, expected a condition"),
        ({"claims": [{**CLAIM, "over": "chip == "}]}, "$.claims[0].over", "expected a condition"),
        ({"claims": [{**CLAIM, "over": "chip.upper() == 'A'"}]}, "$.claims[0].over", "a call is no part"),
        ({"claims": [{**CLAIM, "over": "chip.real == 'A'"}]}, "$.claims[0].over", "an attribute is no part"),
        ({"claims": [{**CLAIM, "over": "tp ** 9 > 1"}]}, "$.claims[0].over", "a pow is no part"),
        ({"claims": [{"name": "c", "value": "gap"}]}, "$.claims[0]", "a claim that cannot fail"),
        ({"claims": [{**CLAIM, "within": 0.1}]}, "$.claims[0]", "a distance from paper, which is missing"),
        ({"claims": [{**CLAIM, "aggregate": "sum"}]}, "$.claims[0].aggregate", "'mean_of_ratios'"),
        ({"claims": [{**CLAIM, "aggregate": "mean_of_ratios"}]}, "$.claims[0]", "needs against and match"),
        ({"claims": [{**CLAIM, "aggregate": "argmax"}]}, "$.claims[0]", "argmax needs of"),
        ({"claims": [{**CLAIM, "of": "tp"}]}, "$.claims[0].of", "of belongs to aggregate"),
        ({"claims": [{**CLAIM, "match": ["chip"]}]}, "$.claims[0].match", "match belongs to an"),
        ({"claims": [CLAIM, CLAIM]}, "$.claims", "'c' is there twice"),
        (
            {"claims": [{**CLAIM, "aggregate": "mean_of_ratios", "against": "tp > 1", "match": ["chp"]}]},
            "$.claims[0].match[0]",
            "did you mean 'chip' or 'chips'?",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(changes: dict[str, Any], place: str, words: str) -> None:
    said = refused(**changes)
    assert f"  {place}: " in said, said
    assert words in said, said


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
