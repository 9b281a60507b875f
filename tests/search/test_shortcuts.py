"""What tools for serving get wrong, each as figures of a whole model by hand."""

from __future__ import annotations

import pytest
from graph_parts import by_name

from dfopt.documents.assumptions import Assumptions
from dfopt.errors import DocumentError
from dfopt.frontends.hf import recipe
from dfopt.machines.compose import load_system
from dfopt.physics.collectives import Collective
from dfopt.physics.network import communication_seconds
from dfopt.physics.ops import flop, weight_elements, weights_read
from dfopt.search import solve
from dfopt.workloads import load_graph

DECODE = {"phase": "decode", "context": 4096, "batch": 16, "microbatch": 16}
VOCAB, HIDDEN, LAYERS = 128256, 4096, 32  # Llama 3.1 8B


def test_an_embedding_is_a_lookup_and_no_product() -> None:
    graph = load_graph("llama-3.1-8b", **DECODE)
    table = by_name(graph)["Embedding"]
    assert (table.op, table.resident_bytes) == ("elementwise", VOCAB * HIDDEN * 2)
    assert table.dram_bytes == 2 * 16 * HIDDEN * 2  # a row of every token is read, and handed to the first layer
    products = sum(flop(k) * graph.times_of(k) for k in graph.kernels if k.op == "gemm")
    matrices = LAYERS * (2 * HIDDEN * (4096 + 1024) + 3 * HIDDEN * 14336) + VOCAB * HIDDEN
    assert products == 2 * 16 * matrices


def test_keys_and_values_are_read_once_for_each_of_their_heads_and_once_in_a_step() -> None:
    """8 heads of keys and of values, whatever the 32 of queries, and by whatever chips."""
    graph = load_graph("llama-3.1-8b", **DECODE)
    read = sum(s.read_bytes * graph.times_of(k) for k in graph.kernels for s in k.states or ())
    assert read == 16 * 4096 * LAYERS * 2 * 8 * 128 * 2
    longer = load_graph("llama-3.1-8b", **DECODE | {"context": 8192})
    moved = [
        sum(part.dram_bytes for part in solve(one, "sn10-8-ring", tp=8, sensitivity=False).score.partitions)
        for one in (graph, longer)
    ]
    assert moved[1] - moved[0] == pytest.approx(read / LAYERS / 8, rel=1e-3)


def test_embeddings_that_are_not_tied_are_both_held() -> None:
    graph = load_graph("llama-3.1-8b", **DECODE)
    matrices = sum(weight_elements(k) * graph.times_of(k) for k in graph.kernels)
    tables = sum(kernel.resident_bytes for kernel in graph.kernels) / 2
    assert matrices + tables + 65 * HIDDEN == 8_030_261_248
    tied = load_graph("llama-3.1-8b", **DECODE, tie_embeddings=True)
    assert sum(kernel.resident_bytes for kernel in tied.kernels) == 0


def test_features_of_a_head_are_read_and_not_derived() -> None:
    """Qwen3 32B: 64 heads of 128 features beside a residual of 5120."""
    query = by_name(load_graph("qwen3-32b"))["Q_Proj"]
    assert (query.outer * query.m, query.k) == (8192, 5120)
    config = {"model_type": "qwen3", "hidden_size": 5120, "num_attention_heads": 64, "num_key_value_heads": 8}
    config |= {"num_hidden_layers": 2, "intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 32}
    config |= {"torch_dtype": "bfloat16", "hidden_act": "silu", "tie_word_embeddings": False}
    assert recipe(config | {"head_dim": 128}, "x/config.json")["parameters"]["head_dim"] == 128
    with pytest.raises(DocumentError, match=r"\$\.head_dim: missing"):
        recipe(config, "x/config.json")


@pytest.mark.parametrize(
    ("phase", "tokens"),
    [({"phase": "prefill", "seq": 512}, 4), ({"phase": "decode"}, 4), ({"phase": "verify", "draft": 2}, 12)],
)
def test_logits_are_those_of_the_tokens_that_need_them(phase: dict[str, object], tokens: int) -> None:
    graph = load_graph("llama-3.1-8b", **phase, batch=4, microbatch=4)
    assert flop(by_name(graph)["Logits"]) == 2 * VOCAB * HIDDEN * tokens


def test_the_bandwidth_of_a_link_is_that_of_one_direction() -> None:
    """Of eight chips behind a switch each gets 7/8 of a tensor, at half of what both directions add up to."""
    system = load_system("h100-8")
    assert system.network[0].link_bandwidth == 450e9  # NVLink 4 is sold as 900 GB/s
    size = 1e9
    taken = communication_seconds(Collective.ALL_GATHER, size, ("nvlink",), system, Assumptions())
    assert taken == pytest.approx(7 / 8 * size / 450e9, rel=0.02)  # the rest is latency


def test_a_latent_is_held_by_every_chip_that_shares_heads() -> None:
    """DeepSeek-V2-Lite keeps 576 elements of a token in each of 27 layers, Llama 8 heads, one for each chip."""
    for name, held, share in (("deepseek-v2-lite", 27 * 576 * 2, 1), ("llama-3.1-8b", 131072, 1 / 8)):
        result = solve(load_graph(name, **DECODE), "sn40l-16", tp=16, sensitivity=False)
        assert result.score.stages[0].states["dram"]["caches"] == pytest.approx(16 * 4097 * held * share, rel=1e-12)


def test_experts_are_read_if_a_token_chooses_them_and_not_all() -> None:
    """Qwen3 30B A3B: one token takes 8 of 128, 16 tokens 82 of them, and all are held."""
    for batch, touched in ((1, 8.0), (16, 128 * (1 - (15 / 16) ** 16))):
        graph = load_graph("qwen3-30b-a3b", **DECODE | {"batch": batch, "microbatch": batch})
        up = by_name(graph)["Up_Proj"]
        assert weights_read(up) == pytest.approx(touched * 768 * 2048, rel=1e-12)
        assert weight_elements(up) == 128 * 768 * 2048
