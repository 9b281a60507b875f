"""Results of earlier versions load with today's words and can be checked.

``tests/golden/result-version-1.json``, whose one bound is that of a sharding, was written by dfopt on 2026-11-22
(commit 3371375) with ``dfopt solve gpt2-small sn10-8-ring --tp 4``; ``result-version-2.json``, whose assumptions are
of version 1, on the same day (commit f5dc7a1) with ``--no-sensitivity`` beside. ``result-version-4.json``, whose
kernels say ``phase`` for ``pass``, was written on 2026-11-23 (commit aae6f57) with ``dfopt solve t.yaml sn10-8-ring
--tp 4 --no-sensitivity``; ``t.yaml`` is a transformer that trains: hidden 64, 4 heads of 16, seq 32, 3 layers, batch 8.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import dfopt as df
from dfopt.documents.result import OF_EARLIER, Result
from dfopt.errors import SchemaVersionError
from dfopt.search.verify import verify

OLD, SECOND, FOURTH = (Path(__file__).parents[1] / "golden" / f"result-version-{version}.json" for version in (1, 2, 4))


def data(version: Path = OLD) -> dict[str, Any]:
    return json.loads(version.read_text())


def test_its_words_become_those_of_a_level() -> None:
    old, result = data(), df.Result.load(OLD)
    assert (old["status"], result.status) == ("optimal", "optimal_per_level")
    assert result.value == result.step_time_s == old["step_time_s"]
    assert (result.level_bound, result.level_gap) == (old["bound_s"], old["gap"])
    assert (result.bound, result.gap) == (0.0, 1.0)  # nothing was said of other shardings
    assert [record.status for record in result.plans] == ["pruned_per_level", "solved"]
    assert [record.value for record in result.plans] == [one.get("step_time_s") for one in old["plans"]]
    assert result.to_data()["schema"] == "dfopt/result/6"


def test_it_is_verified_and_says_what_was_not_checked() -> None:
    found = verify(Result.load(OLD))
    assert found.ok, found.problems
    assert found.verdict.startswith("verified optimal per level")
    assert "$.proof: the words of an earlier version" in found.unchecked


def test_what_version_2_took_for_granted_stays_as_it_was() -> None:
    result = Result.load(SECOND)
    assert (result.assumptions.execution, result.assumptions.sequence_parallelism) == ("dataflow", "none")
    assert result.provenance.assumptions_digest == result.assumptions.digest()
    found = verify(result)
    assert found.ok and found.verdict.startswith("verified optimal per level"), found.problems
    assert "$.proof: the words of an earlier version" in found.unchecked


def test_version_4_is_the_same_in_other_words_and_stays_proven() -> None:
    old, result = data(FOURTH), Result.load(FOURTH)
    assert {one.get("phase") for one in old["graph"]["kernels"]} == {"forward", "backward", "update"}
    assert [one.pass_ for one in result.graph.kernels] == [one.get("phase") for one in old["graph"]["kernels"]]
    found = verify(result)
    assert found.ok and found.verdict.startswith("verified optimal"), found.problems
    assert result.proof == OF_EARLIER + old["proof"]
    again = result.to_data()
    assert Result.from_data(again) == result
    assert (
        again | {key: old[key] for key in ("schema", "seal", "provenance", "graph", "request", "proof", "assumptions")}
        == old
    )
    # then no microbatches took turns, ZeRO was tried where it was asked for, and exchanges went dim by dim
    assert again["request"] == {"two_batch_overlap": False, "zero": [0], **old["request"]}
    assert again["assumptions"] == {**old["assumptions"], "all_to_all_dims": "in_turn", "masked_scores": "skipped"}


@pytest.mark.parametrize("change", [{"p_max": 3}, {"assumptions": {**data(SECOND)["assumptions"], "overlap": "none"}}])
@pytest.mark.parametrize("version", [OLD, SECOND, FOURTH])
def test_an_edited_one_is_found_out(tmp_path: Path, version: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "edited.json"
    path.write_text(json.dumps({**data(version), **change}))
    assert any(problem.startswith("$.seal") for problem in verify(Result.load(path)).problems)


def test_assumptions_of_version_1_mean_what_they_meant(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    for written, read in (("auto", "chip"), ("library", "library")):
        path.write_text(f"schema: dfopt/assumptions/1\nexecution: {written}\n")
        assert df.Assumptions.load(path) == df.Assumptions(
            execution=read, sharding_objective="seconds", sequence_parallelism="none"
        )
    path.write_text("schema: dfopt/assumptions/1\n")
    assert df.Assumptions.load(path).execution == "chip"
    path.write_text("schema: dfopt/assumptions/1\nsequence_parallelism: allow\nsharding_objective: joint\n")
    read = df.Assumptions.load(path)
    assert (read.sequence_parallelism, read.sharding_objective) == ("allow", "joint")
    path.write_text("schema: dfopt/assumptions/2\n")
    assert df.Assumptions.load(path) == df.Assumptions()


def test_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "later.json"
    path.write_text(json.dumps({**data(), "schema": "dfopt/result/7"}))
    with pytest.raises(SchemaVersionError, match="upgrade dfopt"):
        Result.load(path)
