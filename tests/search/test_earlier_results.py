"""Results of other versions are refused in one sentence; assumptions of version 1 mean what they meant."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import dfopt as df
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
            execution=read, sharding_objective="seconds", sequence_parallelism="none"
        )
    path.write_text("schema: dfopt/assumptions/1\n")
    assert df.Assumptions.load(path).execution == "chip"
    path.write_text("schema: dfopt/assumptions/1\nsequence_parallelism: allow\nsharding_objective: joint\n")
    read = df.Assumptions.load(path)
    assert (read.sequence_parallelism, read.sharding_objective) == ("allow", "joint")
    path.write_text("schema: dfopt/assumptions/2\n")
    assert df.Assumptions.load(path) == df.Assumptions()
