"""Many plans in few words: what is written together is read again plan by plan, and holds no other claim."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import dfopt as df
from dfopt.documents.modules import Modules
from dfopt.documents.packed import packed, unpacked
from dfopt.documents.result import Result
from dfopt.errors import DocumentError
from dfopt.search import unlisted
from dfopt.search.verify import verify

QUESTION = {"batch": 8, "sensitivity": False, "time_limit": 600}


@pytest.fixture(scope="module", params=[0.0, 0.5], ids=["optimal", "gap"])
def results(request: Any) -> tuple[Result, Result]:
    """An answer with a record of every plan, and the same in few words."""
    question = {**QUESTION, "gap": request.param}
    found = []
    for listed in (10**9, 4):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(unlisted, "LISTED", listed)
            patch.setattr(unlisted, "_NEAREST", 2)
            found.append(df.optimize("gpt2-small", "h100:4", **question))
    return found[0], found[1]


def test_a_file_in_few_words_says_the_same(results: tuple[Result, Result], tmp_path: Path) -> None:
    every, few = results
    assert few.unlisted
    assert len(few.plans) < len(every.plans)
    assert (few.proof, few.status, few.bound) == (every.proof, every.status, every.bound)
    assert few.plan_counts == every.plan_counts == Counter(record.status for record in every.plans)
    few.dump(tmp_path / "few.json")
    assert Result.load(tmp_path / "few.json") == few
    found = verify(few)
    assert found.ok, found.problems
    assert found.verdict == verify(every).verdict


def test_plans_are_in_the_order_of_their_text() -> None:
    fields: list[dict[str, Any]] = [
        {}, {"tp": 2, "tp_dims": ("x[2]",)}, {"tp": 16, "tp_dims": ("x", "y")}, {"mp": 2, "mp_dims": ("x[2]",)},
        {"mp": 2, "mp_dims": ("x[2]",), "modules": Modules(stream="n", dense="m")}, {"interleave": 2}, {"zero": 1},
        {"two_batch_overlap": True}, {"first_layers": 0, "layers_per_stage": 16}, {"layers_per_stage": 2},
    ]  # fmt: skip
    plans = [df.Plan(microbatches=number, **each) for each in fields for number in (1, 2, 16)]
    order = [plan for plan, _ in unlisted._in_order(plans, [])]
    assert order == sorted(plans, key=df.Plan.model_dump_json)


def test_every_degree_has_a_record(results: tuple[Result, Result]) -> None:
    for axis in range(len(results[0].plan.axes)):
        degrees = [{record.plan.axes[axis].degree for record in each.plans} for each in results]
        assert degrees[0] == degrees[1]


def forged(result: Result, letters: str) -> Result:
    data = copy.deepcopy(result.to_data())
    data["unlisted"][0]["members"] = packed(letters)
    return Result.from_data(data).sealed()


def test_another_status_of_a_plan_is_noticed(results: tuple[Result, Result]) -> None:
    few = results[1]
    letters = unpacked((few.unlisted or ())[0].members)
    kinds = sorted(set(letters) - {"."})
    for letter in kinds:
        place = letters.index(letter)
        for other in {*kinds, "."} - {letter}:
            changed = letters[:place] + other + letters[place + 1 :]
            assert not verify(forged(few, changed)).ok, (place, letter, other)
    assert any("members: of" in problem for problem in verify(forged(few, letters[:-1])).problems)


def test_plans_that_are_left_out_are_noticed(results: tuple[Result, Result]) -> None:
    few = results[1]
    gone = few.model_copy(update={"unlisted": None}).sealed()
    assert any("no record of" in problem for problem in verify(gone).problems)
    twice = few.model_copy(update={"unlisted": (few.unlisted or ())[:1] * 2}).sealed()
    assert "$.unlisted: two records of one graph" in verify(twice).problems


@pytest.mark.parametrize("text", ["", "abc", packed(["a"]), packed("az"), packed("a") + "0"])
def test_damaged_letters_are_refused(results: tuple[Result, Result], text: str) -> None:
    data = copy.deepcopy(results[1].to_data())
    data["unlisted"][0]["members"] = text
    with pytest.raises(DocumentError, match="packed letters"):
        Result.from_data(data)


def test_variants_are_one_text_in_a_file(results: tuple[Result, Result], tmp_path: Path) -> None:
    data = results[1].to_data()
    with pytest.raises(DocumentError, match=r"\$\.variants: found 'abc', expected graphs"):
        Result.from_data({**data, "variants": "abc"})
    assert Result.from_data({**data, "variants": packed(data["variants"])}) == results[1]
