"""Certificates: a check that follows one comes to the same, and one that was forged shows no more than what is true."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dfopt as df
from dfopt.documents.certificate import Certificate
from dfopt.documents.result import Result
from dfopt.errors import DfoptError, DocumentError
from dfopt.judge.items import LayerItems
from dfopt.proof import prices
from dfopt.proof.plans import PlanClaim, proven
from dfopt.proof.weights import Weights

Data = dict[str, Any]


@cache
def _result() -> Result:
    added = df.Assumptions(overlap="none", sequence_parallelism="none")
    return df.solve("gpt3-175b", "sn10-8-ring", tp=8, microbatch=1, assumptions=added)


@cache
def _text(few: int = 0) -> str:
    """The certificate of a proof that prices choices one by one only where blocks under all of them are so few."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prices, "_EACH", few)
        certificate = df.check(_result()).certificate
    assert certificate is not None
    return json.dumps(certificate.to_data())


def _opened(certificate: Data, above: float) -> dict[PlanClaim, str]:
    """What a certificate leaves open of the claim that nothing is below so many times the best."""
    result, of = _result(), Certificate.from_data(certificate)
    claims = {(result.plan, result.mapping.tile_count): above * result.value}
    return proven(result.graph, result.system, result.assumptions, claims, certificate=of).open


def _with(certificate: Data, key: str) -> Data:
    """A region that has something, in the class of the best mapping."""
    region: Data = next(region for region in _regions(certificate) if key in region)
    return region


def _regions(certificate: Data) -> list[Data]:
    """The regions of the class of the best mapping."""
    tiles = _result().mapping.tile_count
    regions: list[Data] = next(each["regions"] for each in certificate["classes"] if tiles in each["tile_counts"])
    return regions


def _of_weights(change: Callable[[float], float]) -> Callable[[Data], None]:
    def changed(certificate: Data) -> None:
        for each in certificate["classes"]:
            each["weights"] = [[[change(w) for w in row] for row in weights] for weights in each["weights"]]

    return changed


SHOWS_LESS: dict[str, Callable[[Data], None]] = {
    "no region": lambda data: _regions(data).clear(),
    "the last region is missing": lambda data: _regions(data).pop(),
    "a region is missing": lambda data: _regions(data).pop(0),
    "no class": lambda data: data["classes"].clear(),
    "a scheme is left out twice": lambda data: _with(data, "excluded")["excluded"].append(
        _with(data, "excluded")["excluded"][0]
    ),
    "a scheme that is not excluded is left out": lambda data: _with(data, "kernel").update(
        excluded=[[_with(data, "kernel")["kernel"], 0]]
    ),
    "a kernel that is not there": lambda data: _with(data, "kernel").update(kernel=10**9),
    "a scheme that is not there": lambda data: _with(data, "excluded").update(excluded=[[0, 10**30]]),
    "dominated by a scheme that is not there": lambda data: _with(data, "kernel").update(dominated=[[0, 0, 10**6]]),
    "dominated by itself": lambda data: _with(data, "kernel").update(dominated=[[0, 0, 0]]),
    "dominated by any other": lambda data: _with(data, "kernel").update(
        dominated=[[k, 0, 1] for k in range(10)], parts=1, kernel=None
    ),
    "blocks of a kernel that is not there": lambda data: _with(data, "kernel").update(kernel=None, blocks_of=10**9),
    "blocks of another number": lambda data: _with(data, "kernel").update(kernel=None, blocks_of=0),
    "less is enough": lambda data: _with(data, "enough").update(enough=[1e-9]),
    "nothing is enough": lambda data: _with(data, "enough").update(enough=[]),
    "fewer parts": lambda data: _with(data, "kernel").update(parts=1),
    "more parts than regions": lambda data: _with(data, "kernel").update(parts=10**30),
    "not divided": lambda data: _with(data, "kernel").update(parts=0),
    "weights that are not there": lambda data: _with(data, "weights").update(weights=10**6),
    "no weights": lambda data: [region.pop("weights", None) for region in _regions(data)],
    "weights of nothing": _of_weights(lambda w: 0.0),
    "weights of other resources": lambda data: [
        row.append(0.0) for each in data["classes"] for weights in each["weights"] for row in weights
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWS_LESS)
def test_what_is_forged_shows_less(name: str) -> None:
    data = json.loads(_text())
    SHOWS_LESS[name](data)
    assert data != json.loads(_text()), "nothing was forged"
    assert _opened(data, 1 - 1e-6)
    found = df.check(_result(), certificate=Certificate.from_data(data))
    assert not found.ok and all(problem.startswith("certificate: ") for problem in found.problems), found.problems


@pytest.mark.parametrize("factor", [2.0, 1e30])
def test_weights_that_are_too_large_show_no_more_than_what_is_true(factor: float) -> None:
    data = json.loads(_text())
    _of_weights(lambda w: factor * w)(data)
    assert not _opened(data, 1 - 1e-6)
    assert _opened(data, 1.01) and _opened(data, math.inf)


def test_the_same_weights_are_shown_again_once_lowered() -> None:
    result = _result()
    items = LayerItems(result.graph, result.system, result.assumptions, result.plan, result.mapping.tile_count)
    weights, dice = Weights(items), np.random.default_rng(0)
    count = len(weights.time)
    for weight_cr in (weights.greedy(dice.random((3, count))), dice.random((3, count)) * 9):
        lowered_cr = weights.lowered(weight_cr)
        assert (lowered_cr <= weight_cr).all()
        sums_br = np.zeros((50, len(items.resources)))
        taken_br = dice.random((50, count)) ** 5
        sums_br[:, [*weights.time]] = taken_br / [*weights.time.values()]
        seconds_b = items.time.at_most_bandwidth.seconds(sums_br, np.full(50, 2))
        seconds_b -= items.time.at_most_bandwidth.seconds(np.zeros((1, len(items.resources))), np.array([2]))
        assert (taken_br @ lowered_cr.T <= seconds_b[:, None] * (1 + 1e-9)).all()
    np.testing.assert_allclose(
        weights.lowered(weights.greedy(np.eye(count))), weights.greedy(np.eye(count)), rtol=1e-12
    )


@pytest.mark.parametrize("weight", [math.nan, math.inf, -math.inf, -1e-9, "1", None, True])
def test_weights_are_finite_and_not_negative(weight: Any) -> None:
    data = json.loads(_text())
    _of_weights(lambda w: weight)(data)
    with pytest.raises(DocumentError):
        Certificate.from_data(data)


@pytest.mark.parametrize("priced", [None, [], [7]])
def test_choices_are_priced_one_by_one_where_it_says_so(priced: list[int] | None) -> None:
    data = json.loads(_text(50_000))
    assert "priced" in _with(data, "priced")
    assert not _opened(data, 1 - 1e-6)
    assert _opened(data, 1.01)
    for region in _regions(data):
        region |= {"priced": priced}
    assert _opened(data, 1 - 1e-6)


def test_a_file_says_the_same(tmp_path: Path) -> None:
    path, result = tmp_path / "certificate.json", _result()
    Certificate.from_data(json.loads(_text())).dump(path)
    found = df.check(result, certificate=path)
    assert found.verdict == df.check(result).verdict == "verified optimal"
    assert any("bounded as the certificate says" in line for line in found.checked)
    assert found.certificate == Certificate.load(path)


@pytest.mark.parametrize("change", ["truncated", "deep", "NaN", "empty", "twice", "list"])
def test_a_file_that_is_damaged_is_refused(tmp_path: Path, change: str) -> None:
    path, text = tmp_path / "certificate.json", _text()
    deep = "[" * 100_000 + "]" * 100_000
    path.write_text(
        {
            "truncated": text[: len(text) // 2],
            "deep": f'{{"schema": "dfopt/certificate/1", "result": "a", "classes": {deep}}}',
            "NaN": text.replace("0.0", "NaN"),
            "empty": "",
            "twice": f'{{"result": "a", {text[1:]}',
            "list": f"[{text}]",
        }[change],
        encoding="utf-8",
    )
    with pytest.raises(DocumentError):
        df.check(_result(), certificate=path)


def test_a_huge_one_is_soon_refused() -> None:
    data = json.loads(_text())
    _regions(data)[1:] = [{"parts": 2, "kernel": 0}] * 100_000
    found = df.check(_result(), certificate=Certificate.from_data(data))
    assert not found.ok


def test_of_another_result_or_document_it_is_refused() -> None:
    certificate = Certificate.from_data(json.loads(_text()))
    other = df.solve("gpt2-small", "sn10-8-ring", tp=8, microbatch=1)
    assert [problem.partition(":")[0] for problem in df.check(other, certificate=certificate).problems] == [
        "certificate"
    ]
    again = df.check(other, certificate=certificate.model_copy(update={"result": other.seal}))
    assert not again.ok and all(problem.startswith("certificate: ") for problem in again.problems)
    with pytest.raises(DfoptError, match="only a result has one"):
        df.check("gpt2-small", certificate=certificate)


def test_a_result_of_two_levels_has_none() -> None:
    asked: Data = {"tp": 8, "phase": "prefill", "batch": 8, "microbatch": 1}
    levels = df.Assumptions(sharding_objective="seconds")
    result = df.solve("llama-68m", "sn10-8-ring", assumptions=levels, **asked)
    assert result.assumptions.sharding_objective != "joint" and df.check(result).certificate is None
    forged = Certificate.from_data(json.loads(_text())).model_copy(update={"result": result.seal})
    found = df.check(result, certificate=forged)
    assert not found.ok and "two levels" in found.problems[0]


def test_a_claim_that_is_too_high_is_not_shown_by_it() -> None:
    """Also where the file of the result is consistent."""
    data = copy.deepcopy(_result().to_data())
    for record in data["plans"]:
        record.update({name: 1.01 * record[name] for name in ("bound", "level_bound", "value")})
    data |= {name: 1.01 * data[name] for name in ("value", "bound", "level_bound")}
    forged = Result.from_data(json.loads(json.dumps(data))).sealed()
    certificate = Certificate.from_data(json.loads(_text())).model_copy(update={"result": forged.seal})
    assert not df.check(forged, certificate=certificate).ok


def test_what_it_leaves_open_is_shown_by_the_search_and_counted() -> None:
    data = json.loads(_text())
    for each in data["classes"]:
        each |= {"left_open": [0], "regions": []}
    found = df.check(_result(), certificate=Certificate.from_data(data))
    assert found.ok and found.rests is not None and found.rests.plans == 1


def test_where_there_was_no_time_it_leaves_all_open() -> None:
    result = _result()
    early = df.check(result, time_limit=1e-9).certificate
    assert early is None or df.check(result, certificate=early).ok


@pytest.mark.parametrize(("below", "shown"), [(1 - 1e-6, True), (1.01, False)])
def test_numbers_of_tiles_show_together_what_each_shows(below: float, shown: bool) -> None:
    """Where more tiles are not allowed for all schemes, neither number of tiles pays less than the other everywhere."""
    result = df.solve("gpt2-small", "sn10-8-ring", tp=8, microbatch=1, sensitivity=False)
    of, tiles = (result.graph, result.system, result.assumptions), (1024, 128)
    first, second, both = (LayerItems(*of, result.plan, *counts) for counts in ([1024], [128], tiles))
    assert first.is_exact and second.is_exact and not both.is_exact
    for item in both.items:
        assert np.array_equal(both.table(item), np.minimum(first.table(item), second.table(item))), item
    claims = {(result.plan, count): below * result.value for count in tiles}
    together = proven(*of, claims)
    apart = [proven(*of, {claim: low}) for claim, low in claims.items()]
    assert together.open.keys() == {claim for each in apart for claim in each.open}
    assert bool(together.open) != shown
    again = proven(*of, claims, certificate=Certificate(result="", classes=tuple(together.classes)))
    assert again.open.keys() == together.open.keys() and not again.refused
    assert len(together.classes) == (1 if shown else 2)
