"""Tokens of an evaluation: counted by whoever draws it, told per second by the judge, read from earlier documents."""

from __future__ import annotations

from typing import Any

import pytest

import dfopt as df
from dfopt.documents.graph import Graph
from dfopt.documents.tokens import Tokens
from dfopt.errors import DocumentError

KERNEL = {"name": "a", "op": "gemm", "m": 4, "k": 8, "n": 16}
BEFORE: dict[str, Any] = {"schema": "dfopt/graph/2", "name": "g", "batch": 8, "microbatch": 2, "kernels": [KERNEL]}


@pytest.mark.parametrize("schema", ["dfopt/graph/1", "dfopt/graph/2"])
@pytest.mark.parametrize(
    ("each", "tokens"), [(1, None), (8, Tokens(processed=16)), (8.0, Tokens(processed=16)), (None, None)]
)
def test_tokens_of_a_sample_become_those_of_an_evaluation(schema: str, each: object, tokens: Tokens | None) -> None:
    more = {} if each is None else {"tokens_per_sample": each}
    graph = Graph.from_data({**BEFORE, **more, "schema": schema})
    assert graph.tokens == tokens
    assert graph.evaluation_tokens.processed == (16 if tokens else 2)
    assert "tokens_per_sample" not in graph.to_data() and Graph.from_data(graph.to_data()) == graph


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tokens_per_sample": 0}, "$.tokens_per_sample: found 0, expected a whole number from 1"),
        ({"tokens_per_sample": "8"}, "$.tokens_per_sample: found '8', expected a whole number"),
        ({"tokens_per_sample": True}, "$.tokens_per_sample: found true, expected a whole number"),
        ({"tokens_per_sample": 8, "tokens": {"processed": 16}}, "found both tokens_per_sample and tokens"),
        ({"tokens_per_sample": 8, "microbatch": "2"}, "$.microbatch: found '2', expected a whole number"),
        ({"tokens": {"processed": 0}}, "$.tokens.processed: found 0, expected a number of 1 or more"),
        ({"tokens": 16}, "$.tokens: found 16, expected a mapping"),
        ({"tokens": {"produced": 2}}, "$.tokens.processed: the key is missing"),
    ],
)
def test_what_is_no_count_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(DocumentError) as error:
        Graph.from_data({**BEFORE, **change})
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("phase", "tokens"),
    [
        ({}, Tokens(processed=3 * 64)),
        ({"mode": "training"}, Tokens(processed=3 * 64)),
        ({"phase": "prefill", "hit": 60}, Tokens(processed=3 * 4, produced=3)),
        ({"phase": "decode"}, Tokens(processed=3, produced=3)),
        ({"phase": "verify", "draft": 3}, Tokens(processed=3 * 4, produced=3)),
    ],
)
def test_what_a_phase_processes_and_produces(phase: dict[str, Any], tokens: Tokens) -> None:
    graph = df.load_graph("llama-3.1-8b", seq=64, microbatch=3, batch=12, **phase)
    assert graph.tokens == tokens
    if graph.trains:
        return
    apart = df.Assumptions(execution="kernel_by_kernel")
    score = df.optimize(graph, "h100-8", tp=8, sensitivity=False, assumptions=apart).score
    assert score.tokens_per_s == pytest.approx(4 * tokens.processed / score.step_time_s, rel=1e-12)
    if tokens.produced is None:
        assert score.produced_tokens_per_s is None and "produced" not in str(score.to_data())
    else:
        assert score.produced_tokens_per_s == pytest.approx(4 * 3 / score.step_time_s, rel=1e-12)
