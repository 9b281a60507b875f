"""`dfopt check result.json`: true results are verified, every change of a number is caught."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import dfopt as df
from dfopt.cli import app
from dfopt.documents.result import Result, status_words
from dfopt.errors import DocumentError, GraphError, SystemSpecError
from dfopt.search.verify import verify
from dfopt.setting.instance import Setting
from dfopt.terms.step.roofline import least_step

CASES = [
    ("gpt3-175b", {}, "sn10-8-torus", {}),
    ("gpt3-175b", {"mode": "training"}, "sn10-8-ring", {"tp": 8}),
    ("gpt3-175b", {}, "h100-8", {}),
    ("gpt2-small", {}, "sn10-8-ring", {"tp": 8, "p_max": 2, "pin_partition": {"FFN0": 1}}),
    ("gpt2-small", {}, "sn10-8-ring", {"tp": 8, "assumptions": "dfmodel", "p_max": 3}),
]


def solved(graph: str, parameters: dict[str, Any], system: str, options: dict[str, Any]) -> Result:
    return df.optimize(df.load_graph(graph, **parameters), df.load_system(system), **options)


RESULT = solved("gpt2-small", {}, "sn10-8-ring", {})
DATA = json.loads(json.dumps(RESULT.to_data()))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[2]}-{len(case[3])}")
def test_true_results_are_verified_optimal(case: Any) -> None:
    found = verify(Result.from_data(json.loads(json.dumps(solved(*case).to_data()))))
    assert found.ok, found.problems
    assert found.verdict.startswith("verified optimal")


def leaves(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all numbers and quantities with units."""
    if isinstance(data, dict):
        return [leaf for key, value in data.items() for leaf in leaves(value, (*path, key))]
    if isinstance(data, list):
        return [leaf for i, value in enumerate(data) for leaf in leaves(value, (*path, i))]
    quantity = isinstance(data, str) and data[:1].isdigit()
    return [path] if (isinstance(data, int | float) and not isinstance(data, bool)) or quantity else []


def at(data: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        data = data[step]
    return data


def changed(path: tuple[Any, ...], factor: float) -> dict[str, Any]:
    data = copy.deepcopy(DATA)
    value = at(data, path)
    if isinstance(value, str):
        number, _, unit = value.partition(" ")
        new: Any = f"{float(number) * factor or 1:.9g} {unit}".strip() if unit else "0" + value
    else:
        new = value * factor if isinstance(value, float) and value else value + 1
    at(data, path[:-1])[path[-1]] = new
    return data


@given(path=st.sampled_from(leaves(DATA)), factor=st.sampled_from([0.5, 0.999, 1.001, 2.0]))
def test_no_number_can_be_changed_unnoticed(path: tuple[Any, ...], factor: float) -> None:
    try:
        tampered = Result.from_data(changed(path, factor))
    except (DocumentError, GraphError, SystemSpecError):
        return  # the document itself no longer holds together
    assert not verify(tampered).ok, path


FORGED = [p for p in leaves(DATA) if p[0] in ("value", "utilization", "score", "mapping", "matrices", "plan")]


@given(path=st.sampled_from(FORGED), factor=st.sampled_from([0.5, 0.999, 1.001, 2.0]))
def test_a_forger_who_seals_again_is_caught_by_the_judge(path: tuple[Any, ...], factor: float) -> None:
    try:
        tampered = Result.from_data(changed(path, factor))
    except (DocumentError, GraphError, SystemSpecError):
        return
    forged = tampered.model_copy(update={"seal": tampered.unsealed_digest()})
    # fewer or more compute tiles of a kernel change nothing under the fixed model, within the chip's tiles
    if path[0] == "mapping" and path[-1] in ("tiles", "tile_count"):
        return
    assert not verify(forged).ok, path


def test_check_says_what_it_found(tmp_path: Any) -> None:
    path = tmp_path / "result.json"
    RESULT.dump(path)
    done = CliRunner().invoke(app, ["check", str(path)])
    assert done.exit_code == 0
    assert "verified optimal" in done.stdout
    data = changed(("value",), 0.5)
    path.write_text(json.dumps(data))
    done = CliRunner().invoke(app, ["check", str(path)])
    assert done.exit_code == 3
    assert "$.value" in done.stderr
    assert "$.seal" in done.stderr


def test_what_is_fixed_is_in_the_words_and_in_the_count() -> None:
    """Also in those of the check: an optimum under pins is none without them."""
    asked = {
        "pin_sharding": {"FFN0": "k"},
        "p_max": 2,
        "objective": {"limits": [{"metric": "step_time", "at_most": 9}]},
    }
    free, result = (df.optimize("gpt2-small", "sn10-8-ring", tp=8, microbatch=1, **more) for more in ({}, asked))
    assert result.value > 2 * free.value and free.space is not None and result.space is not None
    assert status_words(result) == "optimal: no mapping in the space with p_max 2, sharding of FFN0 k is better"
    assert status_words(free) == "optimal: no mapping in the space is better"
    assert "at most 2 partitions; fixed: tp 8, p_max 2, sharding of FFN0 k, step_time at most 9 s" in result.proof
    assert 10**free.space.log10_shardings == pytest.approx(3 * 10**result.space.log10_shardings)
    assert 10**result.space.log10_fusions == pytest.approx(25)  # one cut, between two of 26 down-sets, or none
    checked = verify(result).checked[-1]
    fixed = "have tp 8, p_max 2, sharding of FFN0 k, step_time at most 9 s, microbatch 1"
    assert checked.endswith(fixed) and str(result.space) in checked


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no partition": ({"score": {**DATA["score"], "partitions": []}}, r"\$.score.partitions: found none of stage 0"),
    "no stage": ({"score": {**DATA["score"], "stages": []}}, r"\$.score.stages: found none, expected"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_does_not_hold_together_is_refused_when_it_is_read(name: str) -> None:
    """One error of its own: tables and pictures look nothing up that is not there."""
    change, says = BROKEN[name]
    with pytest.raises(DocumentError, match=says):
        Result.from_data({**DATA, **change})


@pytest.mark.parametrize("path", ["chip.dram.bandwidth", "chip.sram.capacity", "network[0].link_bandwidth"])
def test_rates_that_no_time_follows_from_are_refused(path: str) -> None:
    unit = "B" if path.endswith("capacity") else "B/s"
    with pytest.raises(SystemSpecError, match="found 1e-300 in SI units, expected 0 or a number from 1e-40"):
        df.optimize("gpt2-small", "sn10-8-ring", set={path: f"1e-300 {unit}"})


def test_graphs_that_there_was_no_time_for_are_named() -> None:
    """What all chips have to do is all that holds of their plans, and neither the plans nor the space are wrong."""
    result = df.optimize("gpt2-small", "sn10-8-ring", tp=8, microbatch=[1, 2, 4], sensitivity=False)
    assert result.variants
    late = verify(result, time_limit=0.0)
    least = min(least_step(Setting(one, result.system, result.assumptions)) for one in (result.graph, *result.variants))
    assert late.ok and late.gap == pytest.approx(1 - least / result.value, rel=1e-9) and late.problems == ()
    said = " ".join(late.unchecked)
    assert "which there was no time to show" in said and "no time to count all mappings" in said
    assert verify(result).verdict == "verified optimal"
