"""Results of other versions are refused in one sentence; assumptions of version 1 mean what they meant."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import dfopt as df
from dfopt.documents.question import Question
from dfopt.documents.result import Result
from dfopt.errors import DocumentError, SchemaVersionError


def data() -> dict[str, Any]:
    result = df.optimize("gpt2-small", "sn10-8-ring", tp=8, microbatch=1, sensitivity=False)
    return copy.deepcopy(result.to_data())


@pytest.mark.parametrize(
    ("version", "remedy"), [(1, "use the dfopt that wrote it"), (6, "use the dfopt"), (8, "upgrade")]
)
def test_another_version_is_refused(tmp_path: Path, version: int, remedy: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps({**data(), "schema": f"dfopt/result/{version}"}))
    with pytest.raises(SchemaVersionError, match=f"found 'dfopt/result/{version}', this dfopt reads") as refused:
        Result.load(path)
    assert len(refused.value.issues) == 1 and remedy in str(refused.value)


@pytest.mark.parametrize("name", ["trace", "fixed", "space"])
def test_what_every_result_says_is_not_left_out(name: str) -> None:
    made = data()
    del made[name]
    with pytest.raises(DocumentError, match=rf"\$\.{name}: the key is missing"):
        Result.from_data(made)


def test_assumptions_of_version_1_mean_what_they_meant(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    for written, read in (("auto", "chip"), ("library", "library")):
        path.write_text(f"schema: dfopt/assumptions/1\nexecution: {written}\n")
        assert df.Assumptions.load(path) == df.Assumptions(
            profile="default (changed)",
            execution=read,
            sharding_objective="seconds",
            sequence_parallelism="none",
            token_blocks="none",
        )
    path.write_text("schema: dfopt/assumptions/1\n")
    assert df.Assumptions.load(path).execution == "chip"
    path.write_text("schema: dfopt/assumptions/1\nsequence_parallelism: allow\nsharding_objective: joint\n")
    read = df.Assumptions.load(path)
    assert (read.sequence_parallelism, read.sharding_objective) == ("allow", "joint")
    path.write_text("schema: dfopt/assumptions/2\n")
    assert df.Assumptions.load(path) == df.Assumptions().changed({"token_blocks": "none"})
    for said in ("", "token_blocks: auto\n"):
        path.write_text(f"schema: dfopt/assumptions/3\n{said}")
        assert df.Assumptions.load(path) == df.Assumptions()
    path.write_text("schema: dfopt/assumptions/2\ntoken_blocks: allow\n")
    assert df.Assumptions.load(path) == df.Assumptions(token_blocks="allow")


def test_nothing_is_the_earlier_word_for_no_blocks_of_tokens() -> None:
    assert df.Assumptions(token_blocks=None).token_blocks == "none"  # type: ignore[arg-type]
    for said in ("none", None):
        assert df.Assumptions().changed({"token_blocks": said}).token_blocks == "none"
    question = {"schema": "dfopt/question/1", "graph": "gpt2-small", "system": "sn10-8-ring"}
    assert Question.from_data(question).set == {"token_blocks": "none"}
    assert Question.from_data({**question, "schema": "dfopt/question/2"}).set == {}
