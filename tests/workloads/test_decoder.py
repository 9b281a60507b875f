"""Decoders: what their layers hold and count, their training step, their ends, and what solves."""

from __future__ import annotations

from typing import Any

import pytest
from graph_parts import by_name, product_flop, reads
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from workload_checks import refused, solved

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.zoo import find
from dfopt.machines.compose import load_system
from dfopt.physics.ops import legal_schemes, shard_extents, split_share, weight_elements, weight_share
from dfopt.search import solve
from dfopt.show.omissions import left_out
from dfopt.units import show_unit
from dfopt.workloads import WORKLOADS, load_graph
from dfopt.workloads.decoder import DecoderParameters, as_stack, counts

# the sharding that is best by itself, with whole tokens
MEGATRON = Assumptions(sharding_objective="seconds", sequence_parallelism="none")

build = WORKLOADS["decoder"]

SMALL: dict[str, Any] = {
    "hidden": 24, "heads": 6, "kv_heads": 2, "head_dim": 5, "ffn": 50, "vocab": 100, "seq": 7,
}  # fmt: skip
GPT = {"rotary": False, "gated_mlp": False, "norm": "layernorm", "bias": "all", "tie_embeddings": True}


@st.composite
def decoders(draw: Any) -> dict[str, Any]:
    kv_heads, group = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    layers = draw(st.integers(1, 3))
    return {
        "hidden": draw(st.integers(1, 30)), "heads": kv_heads * group, "kv_heads": kv_heads,
        "head_dim": draw(st.integers(1, 9)), "ffn": draw(st.integers(1, 60)), "gated_mlp": draw(st.booleans()),
        "norm": draw(st.sampled_from(["rmsnorm", "layernorm"])), "rotary": draw(st.booleans()),
        "post_norm": draw(st.booleans()), "microbatch": draw(st.integers(1, 3)), "seq": draw(st.integers(1, 9)),
        "vocab": draw(st.integers(1, 40)), "tie_embeddings": draw(st.booleans()), "layers": layers,
        "learned_positions": draw(st.integers(0, 9)), "word_bytes": draw(st.integers(1, 4)),
        "drawn": draw(st.sampled_from([1, layers])), "mode": "training", "ends": False,
    }  # fmt: skip


def test_samples_are_no_heads() -> None:
    """Chips share the heads of attention: with more chips than heads some stand idle, whatever the samples."""
    scores = by_name(build(**SMALL | {"microbatch": 4}))["QK"]
    assert (scores.outer, scores.samples, scores.matrices) == (6, 4, 24)
    assert [split_share(scores, "outer", chips, "exact") for chips in (2, 4, 6, 12)] == [1 / 2, 1 / 3, 1 / 6, 1 / 6]
    assert [shard_extents(scores, "outer", chips, "exact")[0] for chips in (4, 12)] == [2 * 4 * 7, 4 * 7]


# --- parameters ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "more"),
    [
        ({"tie_embeddings": True}, -100 * 24),
        ({"learned_positions": 7}, 7 * 24),
        ({"bias": "qkv"}, 30 + 10 + 10),
        ({"bias": "all"}, 30 + 10 + 10 + 24 + 50 + 50 + 24),  # Q, K, V, O, gate, up, down
        ({"bias": "all", "gated_mlp": False}, 30 + 10 + 10 + 24 + 50 + 24 - 24 * 50),
        ({"norm": "layernorm"}, 3 * 24),
        ({"post_norm": True}, 2 * 24),
        ({"rotary": False}, 0),
        ({"window": 9, "microbatch": 2, "word_bytes": 1}, 0),
    ],
)
def test_what_a_parameter_adds_to_the_count(change: dict[str, Any], more: int) -> None:
    plain, changed = DecoderParameters(**SMALL), DecoderParameters(**SMALL | change)
    # embedding and logits, Q and O, K and V, gate and up and down, three norms
    assert counts(plain).parameters == 2 * 100 * 24 + 2 * 24 * 30 + 2 * 24 * 10 + 3 * 24 * 50 + 3 * 24
    assert counts(changed).parameters == counts(plain).parameters + more


@pytest.mark.parametrize(
    ("graph", "vocab", "published"),
    [
        # Vocabulary of GPT-2 from transformers 4.46.3, GPT2Config; of GPT-3 1T padded to 51200, unconfirmed.
        ("gpt2-small", 50257, 124_439_808),  # elements of the Hugging Face checkpoint openai-community/gpt2
        ("gpt3-175b", 50257, 175e9),  # Brown et al. 2020, table 2.1
        ("gpt3-1t", 51200, 1008e9),  # Narayanan et al. 2021, table 1
    ],
)
def test_counts_of_the_models_that_transformer_draws(graph: str, vocab: int, published: float) -> None:
    theirs = load_strict(find("graphs", graph))["parameters"]
    sizes = {key: theirs[key] for key in ("hidden", "heads", "head_dim", "ffn", "layers", "seq")}
    counted = counts(DecoderParameters(**sizes, **GPT, vocab=vocab, learned_positions=theirs["seq"])).parameters
    assert counted == pytest.approx(published, rel=0.015)
    assert graph != "gpt2-small" or counted == published


def test_what_is_for_the_count_changes_nothing_in_the_graph() -> None:
    said = {"tie_embeddings": True, "learned_positions": 9, "bias": "all", "vocab": 3, "qk_norm": "head"}
    said, plain = build(**SMALL | said), build(**SMALL)
    assert said.model_copy(update={"architecture": plain.architecture}) == plain
    kept = said.architecture
    assert kept is not None and (kept.bias, kept.qk_norm, kept.tied_embeddings) == ("all", "head", True)


# --- bad parameters -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        ({"kv_heads": 4}, "dfopt", "found 4 K/V heads, expected a divisor of the 6 query heads"),
        ({"kv_heads": 12}, "dfopt", "found 12 K/V heads, expected a divisor of the 6 query heads"),
        ({"window": 6}, "dfopt", "found 7 tokens in a sample, but local layers attend to 6: layers would differ"),
        ({"microbatch": 4, "batch": 3}, "dfopt", "found 3 samples in a step, fewer than the 4 of one microbatch"),
        ({"layers": 6, "drawn": 4}, "dfopt", "found 4 drawn layers, expected a divisor of the 6 layers"),
        ({"kv_heads": 0}, "greater_than_equal", "greater than or equal to 1"),
        ({"gated_mlp": 1}, "bool_type", "valid boolean"),
        ({"norm": "batchnorm"}, "literal_error", "'rmsnorm' or 'layernorm'"),
        ({"mode": "backward"}, "literal_error", "'forward' or 'training'"),
        ({"hiden": 24}, "extra_forbidden", "not permitted"),
    ],
)
def test_bad_parameters_give_one_error(change: dict[str, Any], kind: str, says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        build(**SMALL | change)
    (error,) = caught.value.errors()
    assert error["type"] == kind
    assert says in error["msg"]


# --- windows ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("every", "times"),
    [(0, {"local": 7}), (1, {"global": 7}), (2, {"local": 4, "global": 3}), (6, {"local": 6, "global": 1})],
)
def test_layers_differ_where_samples_are_longer_than_the_window(every: int, times: dict[str, int]) -> None:
    sizes = SMALL | {"layers": 7, "window": 4, "global_every": every, "phase": "decode"}
    assert as_stack(DecoderParameters(**sizes, context=9)).times == times
    held = {"local": 4, "global": 10}
    graph = build(**sizes, context=9)
    kept = sum(graph.times_of(k) * state.held_bytes for k in graph.kernels for state in k.states or ())
    assert kept == sum(2 * 2 * 5 * 2 * held[name] * count for name, count in times.items())
    assert build(**sizes, context=3) == build(**SMALL | {"layers": 7, "phase": "decode"}, context=3)


@pytest.mark.parametrize(
    ("change", "where", "says"),
    [
        ({"global_every": 2}, "$.seq", "found 7 tokens, of which local layers attend to 4 before them, but no mask"),
        ({"global_every": None, "causal": True}, "$.seq", "layers would differ"),
        ({"global_every": 2, "causal": True, "layers": 4, "drawn": 2}, "$.drawn", "found 2 drawn layers"),
        ({"window": None, "global_every": 2}, "$.global_every", "found it without a window"),
    ],
)
def test_what_a_window_does_not_allow(change: dict[str, Any], where: str, says: str) -> None:
    refused(build, SMALL | {"window": 4} | change, where, says)


def test_chips_beyond_the_kv_heads_hold_a_whole_head() -> None:
    key, query = (by_name(build(**SMALL))[name] for name in ("K_Proj", "Q_Proj"))
    for kernel, share in ((key, 1 / 2), (query, 1 / 6)):  # of 2 heads and of 6
        assert legal_schemes(kernel, 6, Assumptions()) == ("outer",)
        assert split_share(kernel, "outer", 6, "exact") == pytest.approx(share)
        assert weight_share(kernel, "outer", 6, "exact") == pytest.approx(share)


# --- training -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recompute, again", [("none", []), ("attention", ["Scores_Dropout_again"])])
def test_dropped_scores_are_one_kernel_in_each_pass(recompute: str, again: list[str]) -> None:
    plain, dropped = (
        build(**SMALL, layers=2, mode="training", recompute=recompute, scores_dropout=drops) for drops in (False, True)
    )
    more = [name for name in by_name(dropped) if name not in by_name(plain)]
    assert more == ["Scores_Dropout", *again, "Scores_Dropout_bwd"]
    kept = (again or more)[0]
    assert sorted(reads(dropped)[kept]) == ["Softmax_again" if again else "Softmax"]
    assert sorted(reads(dropped)["Scores_Dropout_bwd"]) == sorted(["AV_bwd_scores", kept])
    assert len({(by_name(dropped)[name].matrices, by_name(dropped)[name].m) for name in (*more, "Softmax")}) == 1


def test_serving_drops_nothing() -> None:
    assert build(**SMALL, scores_dropout=True) == build(**SMALL)


def test_a_loss_of_several_kernels_moves_its_bytes_for_every_logit() -> None:
    once, many = (build(**SMALL, layers=1, mode="training", batch=8, **m) for m in ({}, {"loss_bytes": 44.0}))
    changed = [(k.name, k.dram_bytes) for k in many.kernels if k != by_name(once)[k.name]]
    assert changed == [("Loss", 44.0 * SMALL["vocab"] * SMALL["seq"])]
    system = load_system("h100-8")
    assert system.chip.dram is not None
    times = {tp: [solve(graph, system, assumptions=MEGATRON, tp=tp, pp=1, dp=8 // tp).score.partitions
                  for graph in (once, many)] for tp in (1, 8)}  # fmt: skip
    for tp, (before, after) in times.items():
        moved = [sum(part.dram_bytes for part in parts) for parts in (before, after)]
        assert moved[1] - moved[0] == pytest.approx(changed[0][1] / tp)
    with pytest.raises(ValueError, match="found it without a loss"):
        build(**SMALL, layers=1, mode="training", ends=False, loss_bytes=44.0)


def test_a_loss_in_fp32_holds_its_bytes_for_every_logit_of_a_chip() -> None:
    """While it runs, in the stage that has it; the two books are compared by the search. Left out, it is named."""
    some = SMALL | {"layers": 1, "mode": "training", "batch": 8, "vocab": 104}
    fused, apart = (build(**some, **more) for more in ({}, {"loss_held": 12.0}))
    logits = 104 * SMALL["seq"]
    for tp in (1, 8):
        asked = {"assumptions": MEGATRON, "tp": tp, "pp": 1, "dp": 8 // tp, "sensitivity": False}
        results = [solve(graph, load_system("h100-8"), **asked) for graph in (fused, apart)]
        before, after = (result.score.memory[0] for result in results)
        assert after.working_b - before.working_b == pytest.approx(12 * logits / tp)
        told = [left_out(result) for result in results]
        assert f"a loss in fp32 ({show_unit(12 * logits / tp, 'bytes')}: --param loss_held=12B)" in told[0]
        assert "loss" not in told[1]
    with pytest.raises(ValueError, match="found it without a loss"):
        build(**SMALL, layers=1, mode="training", ends=False, loss_held=12.0)


# --- ends ---------------------------------------------------------------------------------------------------


def test_a_training_step_has_its_ends_unless_they_are_left_out() -> None:
    """As a served one; of a whole sample that is only evaluated they have to be asked for."""
    ends = [{}, {"ends": True}, {"ends": False}]
    default, drawn, without = (build(**SMALL, layers=2, mode="training", **each) for each in ends)
    assert default == drawn and reads(default)["Loss"] == ["Logits"]
    assert {kernel.module for kernel in default.kernels} - {kernel.module for kernel in without.kernels} == {"ends"}
    assert build(**SMALL, layers=2) == build(**SMALL, layers=2, ends=False)


@given(decoders())
def test_with_ends_every_parameter_but_norms_is_drawn(p: dict[str, Any]) -> None:
    p = p | {"drawn": p["layers"], "ends": True}
    graph, counted = build(**p), DecoderParameters(**p)
    weights = sum(weight_elements(kernel) for kernel in graph.kernels if kernel.pass_ == "forward")
    tables = sum(k.resident_bytes for k in graph.kernels if k.pass_ == "forward") / p["word_bytes"]
    norms = sum(k.m for k in graph.kernels if k.normalizes and k.pass_ == "forward" and "Norm" in k.name)
    assert weights + tables + norms * (2 if p["norm"] == "layernorm" else 1) == counts(counted).parameters
    assert graph.repeat == 1
    assert not graph.carried


@given(decoders())
def test_ends_cost_their_lookups_and_logits(p: dict[str, Any]) -> None:
    p = p | {"drawn": p["layers"]}
    inner, graph = build(**p), build(**p | {"ends": True})
    tokens = p["seq"] * p["microbatch"]
    logits = 2 * p["hidden"] * p["vocab"] * tokens
    assert product_flop(graph, "forward") == product_flop(inner, "forward") + logits
    assert product_flop(graph, "backward", "update") == 2 * product_flop(graph, "forward")
    rows = tokens * p["hidden"] * p["word_bytes"] * (2 if p["learned_positions"] else 1)
    kernels = by_name(graph)
    assert (kernels["Embedding"].dram_bytes, kernels["Embedding_bwd"].dram_bytes) == (rows, 2 * rows)


@given(decoders())
def test_ends_of_layers_that_repeat_are_drawn_once(p: dict[str, Any]) -> None:
    """The same kernels, FLOP and weights; what passes between ends and layers is DRAM traffic of the ends."""
    p = p | {"layers": 6, "drawn": 2, "ends": True}
    graph, whole = build(**p), build(**p | {"drawn": 6})
    ends = {k.name: k for k in graph.kernels if k.layer}
    assert graph.repeat == 3
    assert graph.carried
    for name, kernel in ends.items():
        same = by_name(whole)[name]
        assert kernel.layer == ("embedding" if name.startswith("Embedding") else "head")
        assert kernel.model_copy(update={"layer": None, "dram_bytes": same.dram_bytes}) == same
    activation = p["seq"] * p["microbatch"] * p["hidden"] * p["word_bytes"]
    more = {name: ends[name].dram_bytes - by_name(whole)[name].dram_bytes for name in ends}
    final = next(name for name in ends if name.endswith("_Final"))
    wanted = {"Embedding": 1, "Embedding_bwd": 1, final: 1, f"{final}_bwd": 2}
    assert {name: size / activation for name, size in more.items() if size} == {
        name: count for name, count in wanted.items() if name in ends
    }
    place = {k.name: k.layer for k in graph.kernels}
    assert all(place[t.src] == place[t.dst] for t in graph.tensors)


# --- solving ------------------------------------------------------------------------------------------------

FORWARD = {"all_reduce.forward": 2}
BOTH_WAYS = {"all_reduce.forward": 2, "all_reduce.backward": 2}
TRAINED = {"mode": "training", "batch": 2, "ends": False}


@pytest.mark.parametrize(
    ("name", "change", "plan", "collectives"),
    [
        # Attention splits by heads and the MLP by features, so that only sums communicate: forward those behind O_Proj
        # and Down_Proj, backward those of what Q, K, V and gate, up have read.
        ("llama-3.2-1b", {}, {"tp": 8}, FORWARD),
        ("llama-3.2-1b", {"kv_heads": 2}, {"tp": 8}, FORWARD),  # fewer K/V heads than chips
        ("gemma-2-9b", {}, {"tp": 8}, FORWARD),
        ("megatron-530b", {"seq": 512}, {"tp": 8}, FORWARD),
        ("llama-3.1-8b", TRAINED, {"tp": 8}, BOTH_WAYS),
        ("gemma-2-9b", TRAINED | {"seq": 1024}, {"tp": 8}, BOTH_WAYS),
        ("llama-68m", {"mode": "training", "batch": 8, "drawn": 2}, {"tp": 4, "dp": 2}, None),
    ],
)
def test_a_model_solves(
    name: str, change: dict[str, Any], plan: dict[str, int], collectives: dict[str, int] | None
) -> None:
    result = solved(load_graph(name, **change), load_system("sn10-8-ring"), assumptions=MEGATRON, **plan)
    assert collectives is None or result.score.collectives == collectives
