"""Kernels say ``pass``; files up to ``dfopt/graph/2`` said ``phase``."""

from __future__ import annotations

from typing import Any

import pytest

from dfopt.documents.graph import Graph, Kernel
from dfopt.errors import DocumentError
from dfopt.workloads import graph_schema

NAMES = ("forward", "backward", "update")


def data(version: int, key: str, *said: Any) -> dict[str, Any]:
    kernels = [{"name": f"k{place}", "op": "gemm", "m": 4, "k": 4, "n": 4, key: one} for place, one in enumerate(said)]
    return {"schema": f"dfopt/graph/{version}", "name": "g", "kernels": kernels}


@pytest.mark.parametrize("version", [1, 2])
def test_earlier_files_mean_what_they_meant(version: int) -> None:
    read, now = Graph.from_data(data(version, "phase", *NAMES)), Graph.from_data(data(3, "pass", *NAMES))
    assert [kernel.pass_ for kernel in read.kernels] == list(NAMES)
    assert read == now and read.digest() == now.digest()
    assert [one["pass"] for one in read.to_data()["kernels"]] == list(NAMES)
    assert read.to_data()["schema"] == "dfopt/graph/3"


def test_it_is_written_either_way_in_python() -> None:
    fields: dict[str, Any] = {"name": "a", "op": "gemm", "m": 4, "k": 4, "n": 4}
    assert Kernel(**fields, pass_="backward") == Kernel(**fields, **{"pass": "backward"})
    assert Kernel(**fields).pass_ == "forward"


@pytest.mark.parametrize(
    ("given", "where", "words"),
    [
        (data(3, "phase", "forward", "backward"), "$.kernels[1].phase", ("unknown key", "write 'pass'")),
        (data(3, "pass_", "forward"), "$.kernels[0].pass_", ("unknown key", "did you mean 'pass'?")),
        (data(3, "pass", "backwards"), "$.kernels[0].pass", ("found 'backwards'", "did you mean 'backward'?")),
        (data(2, "phase", "forward", "back"), "$.kernels[1].phase", ("found 'back', expected forward, backward",)),
        (data(2, "phase", ["update"]), "$.kernels[0].phase", ("found a list of 1",)),
        (data(2, "pass", "backward"), "$.kernels[0].pass", ("earlier version", "dfopt/graph/3")),
    ],
)
def test_the_other_word_is_refused_with_a_remedy(given: dict[str, Any], where: str, words: tuple[str, ...]) -> None:
    with pytest.raises(DocumentError) as caught:
        Graph.from_data(given)
    found = {issue.where: f"{issue.message} {issue.remedy}" for issue in caught.value.issues}
    assert all(word in found[where] for word in words), found


def test_what_is_wrong_beside_it_is_still_told() -> None:
    wrong = data(3, "phase", "forward") | {"batch": 0}
    with pytest.raises(DocumentError) as caught:
        Graph.from_data(wrong)
    assert {issue.where for issue in caught.value.issues} == {"$.batch", "$.kernels[0].phase"}


def test_editors_are_told_of_one_word() -> None:
    fields = graph_schema()["$defs"]["Kernel"]["properties"]
    assert "pass" in fields and not {"phase", "pass_"} & fields.keys()
