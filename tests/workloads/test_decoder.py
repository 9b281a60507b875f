"""The decoder layer: its kernels and shapes, the parameters it holds, and the models of the zoo built with it."""

from __future__ import annotations

from typing import Any

import pytest
from graph_parts import by_name
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from workload_checks import refused, solved

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.zoo import find, zoo
from dfopt.errors import DocumentError
from dfopt.machines.compose import load_system
from dfopt.physics.ops import flop, legal_schemes, shard_extents, split_share, weight_elements, weight_share
from dfopt.workloads import WORKLOADS, load_graph
from dfopt.workloads.decoder import DecoderParameters, as_stack, counts

# the sharding that is best by itself, with whole tokens
MEGATRON = Assumptions(sharding_objective="seconds", sequence_parallelism="none")

build = WORKLOADS["decoder"]

SMALL: dict[str, Any] = {
    "hidden": 24, "heads": 6, "kv_heads": 2, "head_dim": 5, "ffn": 50, "vocab": 100, "seq": 7,
}  # fmt: skip
ZOO = [name for name in zoo("graphs") if load_strict(find("graphs", name)).get("workload") == "decoder"]
GPT = {"rotary": False, "gated_mlp": False, "norm": "layernorm", "bias": "all", "tie_embeddings": True}


def of_zoo(name: str) -> DecoderParameters:
    return DecoderParameters(**load_strict(find("graphs", name))["parameters"])


# --- kernels and tensors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "kernels", "tensors"),
    [
        ({}, 18, 22),
        ({"rotary": False}, 16, 20),
        ({"gated_mlp": False}, 17, 20),
        ({"post_norm": True}, 20, 24),
        ({"rotary": False, "gated_mlp": False, "post_norm": True}, 17, 20),
        ({"layers": 6, "drawn": 3}, 54, 68),  # with the two tensors between the three
    ],
)
def test_counts(change: dict[str, Any], kernels: int, tensors: int) -> None:
    graph = build(**SMALL | change)
    assert (len(graph.kernels), len(graph.tensors)) == (kernels, tensors)
    assert not graph.trains


def test_every_kernel() -> None:
    graph = build(**SMALL, microbatch=3)
    found = [(k.name, k.op, k.matrices, k.m, k.k, k.n) for k in graph.kernels]
    assert found == [
        ("Residual_In", "elementwise", 1, 24, 1, 21),
        ("RMSNorm_1", "elementwise", 1, 24, 1, 21),
        ("Q_Proj", "gemm", 6, 5, 24, 21),
        ("K_Proj", "gemm", 2, 5, 24, 21),
        ("V_Proj", "gemm", 2, 5, 24, 21),
        ("Q_RoPE", "elementwise", 6, 5, 1, 21),
        ("K_RoPE", "elementwise", 2, 5, 1, 21),
        ("QK", "matmul", 18, 7, 5, 7),
        ("Softmax", "elementwise", 18, 7, 1, 7),
        ("AV", "matmul", 18, 5, 7, 7),
        ("O_Proj", "gemm", 1, 24, 30, 21),
        ("Add_1", "elementwise", 1, 24, 1, 21),
        ("RMSNorm_2", "elementwise", 1, 24, 1, 21),
        ("Gate_Proj", "gemm", 1, 50, 24, 21),
        ("Up_Proj", "gemm", 1, 50, 24, 21),
        ("Act_Mul", "elementwise", 1, 50, 1, 21),
        ("Down_Proj", "gemm", 1, 24, 50, 21),
        ("Add_2", "elementwise", 1, 24, 1, 21),
    ]
    assert [k.name for k in graph.kernels if k.normalizes] == ["RMSNorm_1", "Softmax", "RMSNorm_2"]
    assert [(t.src, t.dst, t.direction) for t in graph.carried] == [("Add_2", "Residual_In", "forward")]


def test_every_kernel_reads_what_it_needs() -> None:
    reads: dict[str, list[str]] = {}
    for tensor in build(**SMALL, post_norm=True).tensors:
        reads.setdefault(tensor.dst, []).append(tensor.src)
    assert reads == {
        "RMSNorm_1": ["Residual_In"],
        "Q_Proj": ["RMSNorm_1"],
        "K_Proj": ["RMSNorm_1"],
        "V_Proj": ["RMSNorm_1"],
        "Q_RoPE": ["Q_Proj"],
        "K_RoPE": ["K_Proj"],
        "QK": ["Q_RoPE", "K_RoPE"],
        "Softmax": ["QK"],
        "AV": ["V_Proj", "Softmax"],
        "O_Proj": ["AV"],
        "RMSNorm_1_Post": ["O_Proj"],
        "Add_1": ["RMSNorm_1_Post", "Residual_In"],
        "RMSNorm_2": ["Add_1"],
        "Gate_Proj": ["RMSNorm_2"],
        "Up_Proj": ["RMSNorm_2"],
        "Act_Mul": ["Gate_Proj", "Up_Proj"],
        "Down_Proj": ["Act_Mul"],
        "RMSNorm_2_Post": ["Down_Proj"],
        "Add_2": ["RMSNorm_2_Post", "Add_1"],
    }


def test_a_plain_gpt_layer() -> None:
    graph = build(**SMALL | GPT)
    assert [k.name for k in graph.kernels] == [
        "Residual_In", "LayerNorm_1", "Q_Proj", "K_Proj", "V_Proj", "QK", "Softmax", "AV", "O_Proj", "Add_1",
        "LayerNorm_2", "Up_Proj", "Act", "Down_Proj", "Add_2",
    ]  # fmt: skip
    reads = {(t.src, t.dst) for t in graph.tensors}
    assert {("Q_Proj", "QK"), ("K_Proj", "QK"), ("Up_Proj", "Act"), ("Act", "Down_Proj")} <= reads


def test_a_plain_layer_costs_what_the_transformer_costs_without_dropout() -> None:
    sizes: dict[str, Any] = {"hidden": 24, "heads": 4, "head_dim": 6, "ffn": 96, "seq": 7, "microbatch": 2}
    ours = build(**sizes, **GPT, vocab=100)
    theirs = WORKLOADS["transformer"](**sizes)
    kept = [k for k in theirs.kernels if not k.name.startswith("DropOut")]
    assert [(k.op, k.matrices, k.m, k.k, k.n) for k in ours.kernels] == [
        (k.op, k.matrices, k.m, k.k, k.n) for k in kept
    ]


def test_samples_are_no_heads() -> None:
    """Chips share the heads of attention: with more chips than heads some stand idle, whatever the samples."""
    scores = by_name(build(**SMALL | {"microbatch": 4}))["QK"]
    assert (scores.outer, scores.samples, scores.matrices) == (6, 4, 24)
    assert [split_share(scores, "outer", chips, "exact") for chips in (2, 4, 6, 12)] == [1 / 2, 1 / 3, 1 / 6, 1 / 6]
    assert [shard_extents(scores, "outer", chips, "exact")[0] for chips in (4, 12)] == [2 * 4 * 7, 4 * 7]


# --- grouped-query attention --------------------------------------------------------------------------------


@pytest.mark.parametrize("rotary", [True, False])
@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6, None])
def test_k_and_v_are_as_large_as_their_heads(kv_heads: int | None, rotary: bool) -> None:
    graph = build(**SMALL | {"kv_heads": kv_heads, "rotary": rotary, "microbatch": 3, "word_bytes": 4})
    q, k = ("Q_RoPE", "K_RoPE") if rotary else ("Q_Proj", "K_Proj")
    sizes = {(t.src, t.dst): graph.bytes_of(t) for t in graph.tensors}
    tokens, word = 21, 4
    assert sizes[q, "QK"] == 6 * 5 * tokens * word
    assert sizes[k, "QK"] == sizes["V_Proj", "AV"] == (kv_heads or 6) * 5 * tokens * word
    for product in ("QK", "AV"):  # every query head multiplies, however few heads K and V have
        assert flop(by_name(graph)[product]) == 2 * 6 * 3 * 7 * 7 * 5


def test_operands_of_attention() -> None:
    for kv_heads in (2, 6):
        graph = build(**SMALL | {"kv_heads": kv_heads})
        sides = {
            (t.src, t.dst): side
            for t, side in zip(graph.tensors, graph.operands(), strict=True)
            if t.dst in ("QK", "AV")
        }
        # QK: queries are the k x n side, keys the m x k side; AV: scores the k x n side, values the m x k side.
        assert sides == {("Q_RoPE", "QK"): 1, ("K_RoPE", "QK"): 2, ("Softmax", "AV"): 1, ("V_Proj", "AV"): 2}


def test_a_file_holds_the_same_graph(tmp_path: Any) -> None:
    graph = build("tiny", "d", "s", **SMALL, layers=4)
    graph.dump(tmp_path / "graph.yaml")
    assert load_graph(tmp_path / "graph.yaml") == graph


# --- parameters ---------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    hidden=st.integers(1, 30),
    kv_heads=st.integers(1, 4),
    group=st.integers(1, 4),
    head_dim=st.integers(1, 9),
    ffn=st.integers(1, 60),
    gated=st.booleans(),
    norm=st.sampled_from(["rmsnorm", "layernorm"]),
    post_norm=st.booleans(),
    microbatch=st.integers(1, 3),
)
def test_drawn_weights_are_the_counted_matrices(
    hidden: int, kv_heads: int, group: int, head_dim: int, ffn: int, gated: bool, norm: str, post_norm: bool,
    microbatch: int,
) -> None:  # fmt: skip
    sizes: dict[str, Any] = {
        "hidden": hidden, "heads": kv_heads * group, "kv_heads": kv_heads, "head_dim": head_dim, "ffn": ffn,
        "gated_mlp": gated, "norm": norm, "post_norm": post_norm, "vocab": 11, "seq": 5, "microbatch": microbatch,
    }  # fmt: skip
    graph = build(**sizes)
    drawn = sum(weight_elements(kernel) for kernel in graph.kernels)
    norms = [k for k in graph.kernels if "Norm" in k.name]
    of_norms = sum(kernel.m * (2 if norm == "layernorm" else 1) for kernel in norms)
    one, two = (counts(DecoderParameters(**sizes, layers=layers)).parameters for layers in (1, 2))
    assert drawn + of_norms == two - one


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


def test_a_bad_override_is_an_issue_at_its_parameter() -> None:
    for override, where in (({"kv_heads": 5}, "kv_heads"), ({"seq": 4097}, "seq"), ({"batch": 0}, "batch")):
        with pytest.raises(DocumentError) as caught:
            load_graph("gemma-2-9b", **override)
        assert [issue.where for issue in caught.value.issues] == [f"$.parameters.{where}"]


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


# --- the zoo ------------------------------------------------------------------------------------------------


def test_the_models_of_the_zoo() -> None:
    assert {
        "gemma-2-27b", "gemma-2-9b", "gemma-3-27b-text", "llama-2-13b", "llama-2-70b", "llama-2-7b",
        "llama-3.1-405b", "llama-3.1-70b", "llama-3.1-8b", "llama-3.2-1b", "llama-3.2-3b", "llama-68m",
        "megatron-530b", "mistral-7b", "mistral-nemo-12b", "qwen2.5-72b", "qwen2.5-7b", "qwen3-32b", "qwen3-8b",
    } <= set(ZOO)  # fmt: skip


def test_list_names_the_models() -> None:
    from typer.testing import CliRunner

    from dfopt.cli import app

    answer = CliRunner().invoke(app, ["list", "graphs"])
    assert answer.exit_code == 0
    assert {"llama-3.1-8b", "qwen3-32b", "gemma-2-9b", "megatron-530b"} <= set(answer.output.split())


@pytest.mark.parametrize("name", ZOO)
def test_every_model_counts_what_is_published(name: str) -> None:
    parameters, graph = of_zoo(name), load_graph(name)
    published = load_strict(find("graphs", name))["published"]["parameters"]
    assert counts(parameters).parameters == pytest.approx(published, rel=0.015)
    assert graph.repeat == parameters.layers
    # What is drawn is the model without embeddings, norms and biases: all but those of its parameters.
    drawn = graph.repeat * sum(weight_elements(kernel) for kernel in graph.kernels)
    embeddings = parameters.hidden * parameters.vocab * (1 if parameters.tie_embeddings else 2)
    assert drawn + embeddings == pytest.approx(published, rel=0.015)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("llama-3.2-1b", {}),
        ("llama-3.2-1b", {"kv_heads": 2}),  # fewer K/V heads than chips
        ("gemma-2-9b", {}),
        ("megatron-530b", {"seq": 512}),
    ],
)
def test_a_model_solves(name: str, change: dict[str, Any]) -> None:
    graph, system = load_graph(name, **change), load_system("sn10-8-ring")
    result = solved(graph, system, tp=8, assumptions=MEGATRON)
    # Attention splits by heads and the MLP by features, so only the sums behind O_Proj and Down_Proj communicate.
    assert result.score.collectives == {"all_reduce.forward": 2}


def test_chips_beyond_the_kv_heads_hold_a_whole_head() -> None:
    key, query = (by_name(build(**SMALL))[name] for name in ("K_Proj", "Q_Proj"))
    for kernel, share in ((key, 1 / 2), (query, 1 / 6)):  # of 2 heads and of 6
        assert legal_schemes(kernel, 6, Assumptions()) == ("outer",)
        assert split_share(kernel, "outer", 6, "exact") == pytest.approx(share)
        assert weight_share(kernel, "outer", 6, "exact") == pytest.approx(share)
