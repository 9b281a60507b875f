"""LSTM language models: FLOP, parameters and bytes against loops over tokens and cells, wrong parameters, a solve."""

from __future__ import annotations

from typing import Any

import pytest
from graph_parts import by_name, product_flop
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dfopt.machines.compose import load_system
from dfopt.physics.ops import flop, weight_elements
from dfopt.search import solve
from dfopt.workloads import WORKLOADS, load_graph
from dfopt.workloads.lstm import LstmParameters, counts

build = WORKLOADS["lstm"]

models = st.fixed_dictionaries(
    {
        "hidden": st.integers(1, 9), "layers": st.integers(1, 4), "vocab": st.integers(1, 99), "seq": st.integers(1, 7),
        "microbatch": st.integers(1, 5), "word_bytes": st.integers(1, 4),
        "products": st.sampled_from(["all_tokens", "each_token"]),
    }
)  # fmt: skip


def multiply_adds(p: dict[str, Any]) -> int:
    """Of a forward pass, one token, layer, gate and matrix after the other."""
    found = 0
    for _token in range(p["seq"] * p["microbatch"]):
        for _layer in range(p["layers"]):
            for _gate in "ifgo":
                for _matrix in ("of the input", "of the output before"):
                    found += p["hidden"] * p["hidden"]
        found += p["hidden"] * p["vocab"]
    return found


@given(models)
def test_flop(p: dict[str, Any]) -> None:
    graph, forward = build(**p, mode="training"), 2 * multiply_adds(p)
    assert product_flop(graph, "forward") == forward == product_flop(build(**p), "forward")
    assert product_flop(graph, "backward") == product_flop(graph, "update") == forward  # two gradients of every product


@given(models)
def test_parameters(p: dict[str, Any]) -> None:
    found, graph = counts(LstmParameters(**p)), build(**p)
    table = biases = matrices = 0
    for _word in range(p["vocab"]):
        table += p["hidden"]
        matrices += p["hidden"]
    for _layer in range(p["layers"]):
        for _gate in "ifgo":
            biases += p["hidden"]
            matrices += p["hidden"] * (p["hidden"] + p["hidden"])
    assert found.parameters == table + biases + matrices
    assert found.active == found.parameters - table
    assert sum(weight_elements(kernel) * graph.times_of(kernel) for kernel in graph.kernels) == matrices
    assert by_name(graph)["Embedding"].resident_bytes == table * p["word_bytes"]


@given(models)
def test_matrices_are_read_again_for_every_token(p: dict[str, Any]) -> None:
    graph = build(**p, mode="training")
    of_every_token = {"H_Proj": 4 * p["hidden"] ** 2}
    if p["products"] == "each_token":
        of_every_token |= {"X_Proj": 4 * p["hidden"] ** 2, "Logits": p["hidden"] * p["vocab"]}
    other = p["hidden"] * p["seq"] * p["microbatch"]  # the ends exchange features with the layers
    for name, kernel in by_name(graph).items():
        if kernel.op != "gemm":
            continue
        again = sum(of_every_token.get(name.removesuffix("_bwd"), 0) for _token in range(1, p["seq"]))
        moved = again + (other if name.startswith("Logits") else 0)
        assert kernel.dram_bytes == moved * p["word_bytes"], name


def test_a_cell_hands_on_what_its_gradient_returns() -> None:
    graph = build(hidden=8, layers=3, vocab=50, seq=5, microbatch=2, mode="training")
    assert graph.repeat == 3
    assert {(one.src, one.dst, one.direction) for one in graph.carried} == {
        ("Hidden", "Dropout", "forward"), ("Dropout_bwd", "Hidden_bwd", "backward"),
        ("Dropout_bwd", "Hidden_bwd_gate", "backward"),
    }  # fmt: skip
    # one of the gradients of both products is added to the other: one collective
    assert sum(kernel.accumulates_into is not None for kernel in graph.kernels) == 1
    features = {name: kernel.m for name, kernel in by_name(graph).items()}
    assert (features["Hidden_bwd"], features["Hidden_bwd_gate"], features["Cell_bwd"]) == (8, 8, 32)


def test_the_model_of_the_paper() -> None:
    graph = load_graph("lstm-deepflow")
    assert (graph.batch, graph.microbatch, graph.tokens.processed) == (16384, 32, 640)  # type: ignore[union-attr]
    weights = 2 * 2 * (16384 * 65536) + 16384 * 800_000
    assert product_flop(graph, "forward", "backward", "update") == 6 * 640 * weights


def test_layers_are_spread_over_chips_and_judged() -> None:
    graph = build(hidden=512, layers=2, vocab=4096, seq=8, microbatch=8, batch=64, mode="training")
    found = solve(graph, load_system("sn10-8-ring"), tp=2, dp=4, time_limit=20)
    assert found.score.step_time_s > 0 and found.score.violations == ()
    drawn = sum(flop(kernel) * graph.times_of(kernel) for kernel in graph.kernels)
    assert found.score.flop_per_step == pytest.approx(drawn * graph.batch / graph.microbatch)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"hidden": 0}, "greater than or equal to 1"), ({"batch": 2, "microbatch": 4}, "fewer than the 4"),
        ({"products": "some"}, "all_tokens"), ({"heads": 4}, "Extra inputs"),
    ],
)  # fmt: skip
def test_wrong_parameters(changed: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        build(**{"hidden": 8, "vocab": 50, "seq": 5, **changed})
