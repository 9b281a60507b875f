"""Masks: what is needed of a matrix is counted in whole numbers, in the forward and in the backward pass."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from strategies import World, share, worlds

import dfopt as df
from dfopt.documents.graph import Graph, Kernel
from dfopt.errors import Infeasible
from dfopt.physics import ops
from dfopt.physics.library import as_computed
from dfopt.workloads import WORKLOADS

SIZES: dict[str, dict[str, Any]] = {
    "decoder": {"hidden": 8, "heads": 4, "kv_heads": 2, "head_dim": 2, "ffn": 12, "vocab": 9},
    "transformer": {"hidden": 8, "heads": 4, "head_dim": 2},
}
SCORES = {"decoder": ("QK", "Softmax", "AV"), "transformer": ("MHA_GEMM_1", "SOFTMAX", "MHA_GEMM_2")}


def layers(workload: str, seq: int, mode: str, **more: Any) -> list[Graph]:
    return [WORKLOADS[workload](**SIZES[workload], seq=seq, mode=mode, causal=c, **more) for c in (False, True)]


@pytest.mark.parametrize("workload", SIZES)
@given(seq=st.integers(1, 5000), size=st.integers(1, 3))
def test_a_causal_mask_leaves_the_lower_triangle(workload: str, seq: int, size: int) -> None:
    whole, causal = layers(workload, seq, "forward", microbatch=size)
    pairs, heads, features = seq * (seq + 1) // 2, 4 * size, 2
    scores, softmax, context = (causal.kernels[causal.index()[name]] for name in SCORES[workload])
    assert ops.flop(scores) == ops.flop(context) == 2 * heads * features * pairs
    assert ops.flop(softmax) == heads * pairs
    assert causal.output_bytes(scores.name) == causal.output_bytes(softmax.name) == 2 * heads * pairs
    assert causal.output_bytes(context.name) == whole.output_bytes(context.name)
    Graph.from_data(causal.to_data())  # shapes agree
    masked = {k.name for k in causal.kernels if k.density is not None}
    for one, other in zip(whole.kernels, causal.kernels, strict=True):
        assert one.name in masked or one == other


@pytest.mark.parametrize("workload", SIZES)
@pytest.mark.parametrize("recompute", ["none", "attention", "full", "full+attention"])
def test_gradients_of_what_is_masked_are(workload: str, recompute: str) -> None:
    """Every backward product of attention has the FLOP of a forward one, and only gradients of scores are triangles."""
    seq = 7
    whole, causal = layers(workload, seq, "training", recompute=recompute)
    Graph.from_data(causal.to_data())
    pairs = seq * (seq + 1) // 2
    for one, other in zip(whole.kernels, causal.kernels, strict=True):
        if other.role in ("scores", "softmax", "scores_dropout", "context"):
            each = 4 * one.m * one.k * one.n  # heads
            flop = each * 2 if one.op == "matmul" else each * one.flop_per_element
            assert (ops.flop(one), ops.flop(other)) == (flop, flop * pairs / seq**2)
            square = one.m == one.n == seq
            share = pairs / seq**2 if square else 1.0
            assert causal.output_bytes(other.name) == whole.output_bytes(one.name) * share
        else:
            assert one == other


def test_tiles_of_a_mask_are_as_long_as_its_longest_rows() -> None:
    scores = Kernel(name="s", op="matmul", m=8, k=4, n=8, density=9 / 16)
    assert ops.tile_share(scores, 8) * ops.needed(scores) == 8
    assert ops.tile_share(scores, 1) == 1.0
    context = Kernel(name="c", op="matmul", m=4, k=8, n=8, density=9 / 16, masked=1)
    assert ops.tile_share(context, 8) == 1 / 8
    assert ops.input_tile_share(context, 8, 1) * 36 == 8 and ops.input_tile_share(context, 8, 2) == 1 / 8


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"op": "gemm", "density": 0.5}, "weights and their gradients are whole"),
        ({"op": "matmul", "masked": 1}, "no matmul with a density"),
        ({"op": "elementwise", "density": 0.5, "masked": 1}, "no matmul with a density"),
        ({"op": "matmul", "density": 0.0}, "greater than 0"),
        ({"op": "matmul", "role": "scorse"}, "'scores', 'softmax'"),
    ],
)
def test_what_has_no_mask_is_said(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Kernel(name="k", m=4, n=4, **fields)


@pytest.mark.parametrize(
    ("execution", "recompute", "skips"),
    [("kernel_by_kernel", "none", False), ("kernel_by_kernel", "attention", False), ("library", "none", False),
     ("library", "attention", True), ("dataflow", "none", True)],
)  # fmt: skip
def test_only_a_kernel_for_all_of_attention_skips_what_is_masked(execution: str, recompute: str, skips: bool) -> None:
    """Scores that kernels make one by one, or that are kept, are whole squares in time and memory, as without mask."""
    sizes = {"hidden": 64, "heads": 4, "kv_heads": 1, "head_dim": 16, "ffn": 256, "layers": 2, "seq": 128, "vocab": 100}
    kind = {"rotary": False, "gated_mlp": False, "norm": "layernorm", "scores_dropout": True, "mode": "training"}
    drawn = [WORKLOADS["decoder"](**sizes, **kind, causal=c, batch=8, recompute=recompute) for c in (False, True)]
    rules = df.Assumptions(execution=execution)
    asked = {"tp": 1, "pp": 1, "dp": 8, "zero": 0, "sensitivity": False}
    whole, masked = (df.optimize(graph, "a100-8", assumptions=rules, **asked) for graph in drawn)
    figures = [(one.step_time_s, one.score.stages[0].dram_bytes) for one in (whole, masked)]
    assert (figures[1] < figures[0]) == skips and (figures[0] == figures[1]) != skips
    assert df.evaluate(masked.mapping, drawn[1], "a100-8", rules).step_time_s == pytest.approx(masked.step_time_s)
    if not skips:
        before = df.optimize(drawn[1], "a100-8", assumptions=rules.with_(masked_scores="skipped"), **asked)
        assert before.step_time_s < masked.step_time_s


@share(0.25)
@given(worlds(most=4, trains=False), st.sampled_from(["library", "kernel_by_kernel", "dataflow"]))
def test_what_is_computed_is_the_graph_that_is_optimized(world: World, execution: str) -> None:
    """Random kernels with a mask: the answer is that of the rewritten graph, of which all is computed as written."""
    rules = world.assumptions.with_(execution=execution, empty_partitions="allow", masked_scores="fused")
    seen = []
    for graph, masked in ((world.graph, "fused"), (as_computed(world.graph, rules), "skipped")):
        chosen = rules.with_(masked_scores=masked)
        try:
            seen.append(df.solve(graph, world.system, assumptions=chosen, sensitivity=False).value)
        except Infeasible:
            seen.append(None)
    assert seen[0] == (seen[1] if seen[1] is None else pytest.approx(seen[1], rel=1e-9))
