"""Stacks of layers: what every kind counts, computes, keeps and reads, against published counts and sums by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from graph_parts import by_name, product_flop, reads
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_kinds import CROSS, DELTA, FULL, HIDDEN, INSIDE, LATENT, MIXERS, SCANS, SSD, mlp, moe, one
from pydantic import ValidationError

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.phase import Segment
from dfopt.errors import DocumentError
from dfopt.judge import evaluate
from dfopt.library import load_sized
from dfopt.machines.compose import load_system
from dfopt.physics.ops import flop, legal_schemes, weight_elements
from dfopt.search import solve
from dfopt.workloads import WORKLOADS, expand, load_graph
from dfopt.workloads.stack import StackParameters, counts
from dfopt.workloads.unroll import unroll

build = WORKLOADS["stack"]


def held(graph: Graph) -> float:
    """Bytes of the caches of one layer."""
    return sum(state.held_bytes for kernel in graph.kernels for state in kernel.states or ())


def products(graph: Graph) -> float:
    return sum(flop(kernel) for kernel in graph.kernels if kernel.op in ("gemm", "matmul") and kernel.layer is None)


# --- counts -------------------------------------------------------------------------------------------------


def test_an_indexer_keeps_a_key_of_its_own() -> None:
    """DeepSeek-V3.2: 128 elements beside the 576 of V3, and 0.85 billion parameters more."""
    old, new = ({one.name: one.computed for one in load_sized(name)[1]} for name in ("deepseek-v3", "deepseek-v3.2"))
    assert new["kv_bytes_per_token"] - old["kv_bytes_per_token"] == 61 * 128 * 2
    assert new["parameters"] - old["parameters"] == 61 * (1536 * 64 * 128 + 7168 * (128 + 64) + 2 * 128)


@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize("mixer", MIXERS)
def test_weights_that_are_drawn_are_the_counted_matrices(mixer: str, inside: str) -> None:
    """Beside biases, gains, convolutions and what a state has of its own."""
    p = one(MIXERS[mixer], INSIDE[inside])
    found = counts(StackParameters(**p)).parameters
    drawn = 3 * sum(weight_elements(k) for k in build(**p).kernels) + 100 * HIDDEN * 2
    norms = HIDDEN * (1 + 3 * 2)
    inside_only = {"plain": 50 + HIDDEN, "experts": 8 * (20 + HIDDEN + 1), "beside": 4 * HIDDEN}
    mixer_only = {
        "narrow values": 30 + 10 + 6 + HIDDEN,
        "gated": 2 * 5, "norm of all": 30 + 10 + 6 + 30 + 20 + HIDDEN, "sparse": 2 * 2, "expanded": 10 + 8,
        "absorbed": 8, "chosen": 10 + 8 + 2 * 2, "compressed": 10 + 5 + 6 + 4 * 5 + 5,
        "compressed choice": 10 + 5 + 6 + 2 * 2 * (5 + 2) + 5 + 2, "delta": 4 * (2 * 6 + 20) + 2 * 4 + 5,
        "kda": 4 * 4 * 11 + 4 + 12 + 5, "mamba2": (20 + 24) * 5 + 3 * 4 + 20, "mamba": 12 * (5 + 3 + 2) + 8,
        "convolution": 3 * HIDDEN, "side by side": (20 + 24) * 5 + 3 * 4 + 20,
    }  # fmt: skip
    assert found - drawn - norms == 3 * (inside_only.get(inside, 0) + mixer_only.get(mixer, 0))


# --- what is computed and kept ------------------------------------------------------------------------------


def test_a_window_is_computed_held_and_read() -> None:
    """Of 12 tokens each sees itself and two before: 1 + 2 + 10 x 3 pairs; the last 3 are kept."""
    local = one(FULL | {"window": 3})
    graph = build(**local, phase="prefill", microbatch=2)
    assert flop(by_name(graph)["QK"]) == 2 * 5 * 6 * 2 * 33
    (keys,) = by_name(graph)["QK"].states or ()
    assert (keys.tokens, keys.reads, keys.writes, keys.bytes_per_token) == (3, 0, 3, 2 * 5 * 2)
    step = build(**local, phase="decode", context=99)
    assert flop(by_name(step)["QK"]) == 2 * 5 * 6 * 3
    (keys,) = by_name(step)["QK"].states or ()
    assert (keys.tokens, keys.reads, keys.writes, by_name(step)["QK"].m) == (3, 2, 1, 3)


def test_a_chunk_is_computed_held_and_read() -> None:
    chunks = one(FULL | {"chunk": 5})
    assert flop(by_name(build(**chunks, phase="prefill"))["QK"]) == 2 * 5 * 6 * (15 + 15 + 3)
    step = by_name(build(**chunks, phase="decode", context=13))["QK"]
    (keys,) = step.states or ()
    assert (flop(step), keys.tokens, keys.reads) == (2 * 5 * 6 * 4, 5, 3)


@pytest.mark.parametrize("local", [{"window": 12}, {"window": 50}, {"chunk": 12}])
def test_a_window_of_all_tokens_is_none(local: dict[str, int]) -> None:
    assert build(**one(FULL | local), phase="prefill").kernels == build(**one(FULL), phase="prefill").kernels


@pytest.mark.parametrize(("tokens", "cached"), [(12, 0), (3, 9), (1, 40)])
def test_both_forms_of_latent_attention(tokens: int, cached: int) -> None:
    """By hand: expanded, of every key; absorbed, of new tokens. What is kept is the same, and no head divides it."""
    phase = {"phase": {"segments": [{"sequences": 2, "new": tokens, "cached": cached}]}, "microbatch": 2}
    graphs = {form: build(**one(LATENT | {"form": form}), **phase) for form in ("expanded", "absorbed")}
    new, keys = 2 * tokens, 2 * (cached + tokens)
    pairs = 2 * (tokens * cached + tokens * (tokens + 1) // 2)
    both = 2 * new * (HIDDEN * (10 + 8 + 3) + 10 * 6 * 8 + 6 * 4 * HIDDEN)
    assert products(graphs["expanded"]) == both + 2 * keys * 8 * 6 * (5 + 4) + 2 * 6 * pairs * (5 + 3 + 4)
    assert products(graphs["absorbed"]) == both + 2 * new * 6 * 8 * (5 + 4) + 2 * 6 * pairs * (8 + 3 + 8)
    for graph in graphs.values():
        (state,) = [state for kernel in graph.kernels for state in kernel.states or ()]
        assert (state.heads, state.bytes_per_token, state.reads, state.writes) == (1, (8 + 3) * 2, cached, tokens)
        assert held(graph) == keys * (8 + 3) * 2


def test_an_indexer_scores_all_and_attention_reads_what_is_chosen() -> None:
    """Three heads of two features score 41 tokens of each sequence, of which attention reads four."""
    graph = by_name(build(**one(MIXERS["chosen"]), phase="decode", context=40, microbatch=2))
    assert flop(graph["Index_Scores"]) == 2 * 2 * 3 * 2 * 41
    assert flop(graph["QK"]) == 2 * (8 + 3) * 6 * 2 * 4
    (index,), (latents,) = graph["Index_Scores"].states or (), graph["QK"].states or ()
    assert (index.reads, index.tokens, index.bytes_per_token) == (40, 41, 2 * 2)
    assert (latents.reads, latents.tokens, latents.bytes_per_token) == (4, 41, 11 * 2)


@pytest.mark.parametrize("kind", ["delta", "kda"])
def test_the_delta_rule(kind: str) -> None:
    """Chunks of 4: of 12 tokens 3 x 10 pairs; a single token is a chunk of its own."""
    heads, key, value = 4, 3, 5
    for phase, tokens, pairs in (({"phase": "prefill"}, 12, 30), ({"phase": "decode", "context": 30}, 1, 1)):
        kernel = by_name(build(**one(MIXERS[kind]), **phase))["Delta_Rule"]
        work = heads * (2 * pairs * (3 * key + 2 * value) + 6 * tokens * key * value)
        assert work <= flop(kernel) < work + 2 * heads * value * tokens  # the contraction is a whole number
        (state,) = kernel.states or ()
        assert state.held_bytes == state.written_bytes == heads * key * value * 4
        assert state.read_bytes == (0 if tokens == 12 else state.held_bytes)


def test_the_scan_of_mamba2() -> None:
    for phase, tokens, pairs in (({"phase": "prefill"}, 12, 30), ({"phase": "decode", "context": 30}, 1, 1)):
        kernel = by_name(build(**one(SSD), **phase))["Scan"]
        work = 2 * pairs * (2 * 6 + 4 * 5) + 4 * 4 * tokens * 5 * 6
        assert work <= flop(kernel) < work + 2 * 4 * 5 * tokens
        (state,) = kernel.states or ()
        assert (state.heads, state.held_bytes) == (4, 4 * 5 * 6 * 4)


def test_what_a_mixer_with_a_state_keeps_of_a_sequence() -> None:
    """A state in 4 bytes an element, and in 2 the features that the convolution looks back at."""
    kept = {
        "delta": 4 * (4 * 3 * 5) + 2 * 3 * (2 * (2 * 3 + 2 * 5)), "kda": 4 * (4 * 3 * 5) + 2 * 3 * (4 * (2 * 3 + 5)),
        "mamba2": 4 * (4 * 5 * 6) + 2 * 3 * (4 * 5 + 2 * 2 * 6), "mamba": 4 * (12 * 3) + 2 * 3 * 12,
        "convolution": 2 * 2 * HIDDEN,
    }  # fmt: skip
    for name, each in kept.items():
        p = StackParameters(**one(MIXERS[name]))
        graph = build(**one(MIXERS[name]), phase="decode", context=1000, microbatch=7)
        assert held(graph) == 7 * each
        assert counts(p).bytes_per_token == 0


@pytest.mark.parametrize("window", [1, 2, 3, 6, 11, 12, 23, 24, 99])
def test_a_window_looks_both_ways_where_all_tokens_see_each_other(window: int) -> None:
    """As many tokens on either side, of an even window one more behind; counted one by one."""
    before, behind = (window - 1) // 2, window // 2
    pairs = sum(-before <= key - token <= behind for token in range(12) for key in range(12))
    assert Segment(sequences=1, new=12, sees="full").pairs(window=window) == pairs
    kernels = by_name(build(**one(FULL | {"window": window, "sees": "full"})))
    assert flop(kernels["QK"]) == 6 * pairs * 2 * 5
    assert flop(kernels["AV"]) == 6 * pairs * 2 * 5


def test_narrow_values_are_kept_and_collected_as_such() -> None:
    graph = build(**one(MIXERS["narrow values"]), phase="decode", context=30)
    kernels = by_name(graph)
    assert (kernels["V_Proj"].m, kernels["AV"].m, kernels["Gated"].m, kernels["O_Proj"].k) == (3, 3, 3, 18)
    assert (kernels["QK"].k, kernels["Q_Proj"].m) == (5, 5 + 3)
    states = [state for kernel in graph.kernels for state in kernel.states or ()]
    assert {state.name: state.bytes_per_token for state in states} == {"keys": 2 * 5 * 2, "values": 2 * 3 * 2}


def test_mixers_side_by_side_are_both_of_them() -> None:
    """As kernels of their own, with the states of both, and a sum."""
    for phase in ({"phase": "prefill"}, {"phase": "decode", "context": 30}):
        both, *each = (build(**one(mixer), **phase) for mixer in (MIXERS["side by side"], FULL, SSD))
        assert products(both) == sum(map(products, each))
        assert held(both) == sum(map(held, each))
        names = {kernel.name for kernel in each[1].kernels} - {kernel.name for kernel in each[0].kernels}
        assert {f"mamba2_{name}" for name in names} <= set(by_name(both))
        assert {tensor.src for tensor in both.tensors if tensor.dst == "Mixers_Add"} == {"O_Proj", "mamba2_O_Proj"}


@pytest.mark.parametrize("cut", [4, 8])
@pytest.mark.parametrize("mixer", [name for name in MIXERS if name not in ("expanded", "sparse")])
def test_chunks_of_a_prompt_compute_what_the_prompt_does(mixer: str, cut: int) -> None:
    """In the expanded form each chunk computes keys and values of all tokens before; blocks are chosen as a whole."""
    p = one(MIXERS[mixer])
    whole = products(build(**p, phase="prefill"))
    parts = [build(**p | {"seq": cut}, phase="prefill"), build(**p, phase="prefill", hit=cut)]
    assert sum(map(products, parts)) == pytest.approx(whole, rel=2e-2 if mixer in SCANS else 1e-12)


@pytest.mark.parametrize("mixer", MIXERS)
def test_decode_is_the_verification_of_no_draft(mixer: str) -> None:
    p = one(MIXERS[mixer], mlp(50), microbatch=2)
    assert build(**p, phase="verify", context=20).kernels == build(**p, phase="decode", context=20).kernels


@pytest.mark.parametrize("inside, width", [("shared", None), ("wide", 25), ("apart", 20), ("beside", 20)])
def test_shared_experts_are_more_experts_or_an_mlp(inside: str, width: int | None) -> None:
    graph = by_name(build(**one(None, INSIDE[inside])))
    if width is None:
        routed = graph["Up_Proj"].experts
        assert routed is not None and (routed.count, routed.chosen, graph["Up_Proj"].m) == (10, 4, 40)
    else:
        assert graph["Shared_Up_Proj"].m == width and graph["Shared_Up_Proj"].experts is None
    assert graph["Router"].m == 8 + bool(INSIDE[inside].get("shared_gate"))
    norms = [name for name, kernel in graph.items() if kernel.role == "norm"]
    between = ["Experts_Norm", "Experts_Norm_Post", "Shared_Norm_Post"]
    assert norms == ["RMSNorm_2", *(between if inside == "beside" else [])]
    typed = by_name(build(**one(None, INSIDE[inside] | {"shared_typed": "experts"})))
    assert all(kernel.experts for name, kernel in typed.items() if name.endswith(("Up_Proj", "Down_Proj")))


def test_an_mlp_of_the_experts_type_costs_what_one_of_that_type_does() -> None:
    """It is one expert that every token chooses: as much work, and bytes of the class that it is of."""
    types = {"weights": "bf16", "experts": "nvfp4"}
    plain, typed = (build(**one(None, mlp(50, typed=of)), dtypes=types) for of in ("weights", "experts"))
    assert [flop(kernel) for kernel in plain.kernels] == [flop(kernel) for kernel in typed.kernels]
    for kernel, other in zip(plain.kernels, typed.kernels, strict=True):
        if kernel.op == "gemm":
            assert plain.words.of_weight(kernel) == 2 and typed.words.of_weight(other) == 4.5 / 8
            assert weight_elements(kernel) == weight_elements(other)


def test_keys_of_an_encoder_are_computed_once_and_read_ever_after() -> None:
    """Of 9 tokens with 7 features, for two sequences; nothing of them is read twice."""
    p = one(CROSS, microbatch=2)
    first, later = build(**p, phase="prefill"), build(**p, phase="decode", context=30)
    names = {"Encoded", "K_Proj", "V_Proj"}
    assert names <= by_name(first).keys() and not names & by_name(later).keys()
    assert flop(by_name(first)["K_Proj"]) == 2 * 2 * 5 * 7 * 2 * 9
    for graph, new in ((first, 12), (later, 1)):
        assert flop(by_name(graph)["QK"]) == 2 * 5 * 6 * 2 * new * 9
        (keys,) = by_name(graph)["QK"].states or ()
        size = 2 * 9 * 2 * 5 * 2
        read, written = (0, size) if graph is first else (size, 0)
        assert (keys.held_bytes, keys.read_bytes, keys.written_bytes) == (size, read, written)
    assert {graph.kernels[k].name for graph in (first,) for k, _, _ in graph.reads()} >= {"Encoded"}
    assert not {later.kernels[k].name for k, _, _ in later.reads()} & {"QK", "AV"}


# --- layers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "wiring"),
    [
        (
            {"norms": "pre"},
            {"Q_Proj": ["RMSNorm_1"], "Add_1": ["O_Proj", "Residual_In"], "Add_2": ["Down_Proj", "Add_1"]},
        ),
        (
            {"norms": "post"},
            {"Q_Proj": ["Residual_In"], "RMSNorm_1": ["O_Proj"], "Add_1": ["RMSNorm_1", "Residual_In"]},
        ),
        ({"norms": "after"}, {"RMSNorm_1": ["Add_1"], "Up_Proj": ["RMSNorm_1"], "RMSNorm_2": ["Add_2"]}),
        ({"parallel": "shared"}, {"Up_Proj": ["RMSNorm_1"], "Add_1": ["O_Proj", "Down_Proj", "Residual_In"]}),
        ({"parallel": "own"}, {"Up_Proj": ["RMSNorm_2"], "RMSNorm_2": ["Residual_In"]}),
    ],
)
def test_norms_and_parallel_parts(change: dict[str, Any], wiring: dict[str, list[str]]) -> None:
    graph = build(**one(FULL, mlp(50), **change))
    found = reads(graph)
    assert {name: found[name] for name in wiring} == wiring
    assert graph.carried[0].src == ("RMSNorm_2" if change.get("norms") == "after" else graph.kernels[-1].name)


def test_ends_of_an_image_model() -> None:
    ends = {"head": {"kind": "classifier", "classes": 7, "pooler": True}, "input": [{"inputs": 48, "outputs": HIDDEN}]}
    graph = by_name(build(**one(FULL, vocab=None, learned_positions=12, ends=True, microbatch=2, **ends)))
    sizes = {name: (graph[name].m, graph[name].k, graph[name].n) for name in ("Convolution_1", "Pooler", "Classifier")}
    assert sizes == {"Convolution_1": (HIDDEN, 48, 24), "Pooler": (24, 24, 2), "Classifier": (7, 24, 2)}
    assert graph["Embedding"].resident_bytes == 12 * HIDDEN * 2


# --- training and solving -----------------------------------------------------------------------------------

TRAINED = [name for name, mixer in MIXERS.items() if mixer["kind"] in ("attention", "mla") and "sparse" not in mixer]


@pytest.mark.parametrize("mixer", [name for name in TRAINED if name != "absorbed"])
@pytest.mark.parametrize("change", [{}, {"norms": "post"}, {"norms": "after"}, {"parallel": "own"}])
def test_training_takes_three_times_the_products(mixer: str, change: dict[str, Any]) -> None:
    p = one(MIXERS[mixer], mlp(50), causal=True, **change)
    graph, once = build(**p, mode="training", ends=False), product_flop(build(**p, ends=False), "forward")
    assert product_flop(graph, "forward") == once
    assert product_flop(graph, "backward", "update") == 2 * once


@pytest.mark.parametrize("mixer", MIXERS)
def test_every_mixer_solves_in_every_phase(mixer: str) -> None:
    """Optimum and judge agree, and four chips share what their heads allow."""
    system = load_system("sn10-8-ring")
    for phase in ({"phase": "prefill"}, {"phase": "decode", "context": 30}):
        graph = build(**one(MIXERS[mixer], mlp(48), microbatch=2, batch=8, ends=False), **phase)
        result = solve(graph, system, tp=2, pp=1, dp=4, time_limit=10, sensitivity=False)
        assert result.gap == 0
        again = evaluate(result.mapping, graph, system, result.assumptions)
        assert again.step_time_s == pytest.approx(result.step_time_s, rel=1e-9)


# --- documents ----------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.sampled_from(sorted(MIXERS)), st.sampled_from(sorted(INSIDE)), st.sampled_from(["pre", "pre_post", "after"]))
def test_data_are_read_as_they_are_written(mixer: str, inside: str, norms: str) -> None:
    p = StackParameters(**one(MIXERS[mixer], INSIDE[inside], norms=norms))
    assert StackParameters(**json.loads(p.model_dump_json(exclude_unset=True))) == p
    data = {"schema": "dfopt/graph/3", "name": "x", "workload": "stack", "parameters": p.model_dump(exclude_unset=True)}
    assert expand(json.loads(json.dumps(data))).kernels == build(**p.model_dump(exclude_unset=True)).kernels


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"sections": [{"layers": ["layers"]}]},
            r"\$\.parameters\.sections\[0\]\.layers\[0\]: no layer is called 'layers'",
        ),
        ({"layers": {"layer": {}}}, r"\$\.parameters\.layers\.layer\.mixer: found neither a mixer nor a feed-forward"),
        ({"layers": {"layer": {"mixer": {"kind": "atention"}}}}, r"layer\.mixer\.kind: found 'atention'"),
        ({"layers": {"layer": {"mixer": FULL | {"kv_heads": 4}}}}, r"layer\.mixer\.kv_heads: found 4 K/V heads"),
        ({"layers": {"layer": {"mixer": FULL | {"windw": 4}}}}, r"layer\.mixer\.windw: unknown key"),
        ({"layers": {"layer": {"mixer": FULL | {"window": 4, "chunk": 4}}}}, r"layer\.mixer\.chunk: found 4 beside"),
        (
            {"layers": {"layer": {"mixer": FULL | {"chunk": 4}}}, "causal": False},
            r"layer\.mixer: found local attention",
        ),
        ({"layers": {"layer": {"mixer": DELTA}}, "mode": "training"}, r"layer\.mixer: found a mixer with a state"),
        ({"layers": {"layer": {"mixer": LATENT | {"form": "absorbed"}}}, "mode": "training"}, r"mixer: found absorbed"),
        ({"layers": {"layer": {"mixer": FULL, "parallel": "own"}}}, r"layer\.parallel: found own, but only one part"),
        ({"layers": {"layer": {"feed_forward": moe(4, 5, 8)}}}, r"feed_forward\.chosen: found 5 experts for a token"),
        ({"vocab": None}, r"\$\.parameters\.head\.kind: found logits of a model without a vocabulary"),
        ({"head": {"kind": "classifier"}}, r"\$\.parameters\.head\.classes: missing"),
    ],
)
def test_bad_parameters_are_an_issue_at_their_place(change: dict[str, Any], said: str) -> None:
    data = {"schema": "dfopt/graph/3", "name": "x", "workload": "stack", "parameters": one(FULL) | change}
    with pytest.raises(DocumentError, match=said):
        expand(data)


def test_a_tree_is_no_order_for_a_state() -> None:
    tree = {"segments": [{"sequences": 1, "new": 3, "cached": 5, "sees": (0, 1, 1)}]}
    with pytest.raises(ValidationError, match="a tree of tokens"):
        build(**one(SSD), phase=tree)


def test_the_form_of_latent_attention_that_is_less_work_is_drawn() -> None:
    """Expanded for a whole prompt, absorbed for a token behind many; unless one of them is asked for."""
    p = one(LATENT)
    asked = {form: build(**p, phase="decode", context=40, form=form).kernels for form in ("expanded", "absorbed")}
    drawn = {form: build(**one(LATENT | {"form": form}), phase="decode", context=40).kernels for form in asked}
    assert asked == drawn
    assert build(**p, phase="decode", context=40).kernels == drawn["absorbed"]
    assert build(**p, phase="prefill").kernels == build(**p, phase="prefill", form="expanded").kernels
    assert products(build(**p, phase="prefill")) < products(build(**p, phase="prefill", form="absorbed"))


def test_the_projection_to_a_latent_may_be_held_whole() -> None:
    """Chips that split heads compute the latent alike, without a collective, or share it: what is faster."""
    graph = by_name(build(**one(LATENT)))
    assert "none" in legal_schemes(graph["Down"], 2, Assumptions())
    assert "none" not in legal_schemes(graph["Q_Up"], 2, Assumptions())


# --- several kinds of layers --------------------------------------------------------------------------------

MIXED: dict[str, Any] = {
    "hidden": HIDDEN,
    "vocab": 100,
    "seq": 12,
    "causal": True,
    "layers": {
        "local": {"mixer": FULL | {"window": 3}, "feed_forward": mlp(50)},
        "wide": {"mixer": LATENT | {"form": "expanded"}, "feed_forward": moe(8, 2, 10, shared=10)},
        "alone": {"feed_forward": mlp(40, gated=False)},
    },
    "sections": [{"layers": ["alone"]}, {"layers": ["local", "local", "wide"], "repeat": 2}, {"layers": ["local"]}],
}


def test_kinds_are_drawn_once_and_called_after_themselves() -> None:
    graph = build(**MIXED, phase="prefill")
    times = {str(kernel.layer): graph.times_of(kernel) for kernel in graph.kernels}
    assert times == {"embedding": 1, "local": 5, "wide": 2, "alone": 1, "head": 1}
    assert {k.name.partition(".")[0] for k in graph.kernels if k.layer in MIXED["layers"]} == set(MIXED["layers"])
    assert {(t.src, t.dst) for t in graph.carried} == {
        ("local.Add_2", "local.Residual_In"), ("wide.Add_2", "wide.Residual_In"), ("alone.Add_2", "alone.Residual_In"),
    }  # fmt: skip


@pytest.mark.parametrize("change", [{"phase": "prefill"}, {"phase": "decode", "context": 30}, {"mode": "training"}])
def test_sections_are_the_same_layers_drawn_one_by_one(change: dict[str, Any]) -> None:
    """FLOP, weights, tables, what is kept and how many kernels there are."""
    graph = build(**MIXED, **change)
    whole = unroll(graph)
    assert len(whole.kernels) == sum(graph.times_of(kernel) for kernel in graph.kernels)
    assert whole.sections is None
    for figure in (
        flop,
        weight_elements,
        lambda k: k.resident_bytes,
        lambda k: sum(s.held_bytes for s in k.states or ()),
    ):
        folded = sum(figure(kernel) * graph.times_of(kernel) for kernel in graph.kernels)
        assert sum(map(figure, whole.kernels)) == pytest.approx(folded, rel=1e-12)
    joints = {(t.src, t.dst) for t in whole.tensors if t.src.rpartition(".")[2] != t.dst.rpartition(".")[2]}
    assert {("alone.Add_2.0", "local.Residual_In.1"), ("wide.Add_2.6", "local.Residual_In.7")} <= joints


def test_kinds_take_the_time_of_their_layers() -> None:
    """On one chip that runs kernel by kernel, the layers one after another take what the sections say."""
    alone = load_system("h100-8").model_copy(update={"network": ()})
    graph = build(**MIXED, phase="decode", context=30)
    chosen = Assumptions(execution="kernel_by_kernel")
    folded, whole = (solve(one, alone, assumptions=chosen, sensitivity=False) for one in (graph, unroll(graph)))
    assert folded.step_time_s == pytest.approx(whole.step_time_s, rel=1e-9)


@pytest.mark.parametrize("name", ["gemma-3-27b-text", "qwen3.5-27b", "nemotron-3-nano", "deepseek-v2-lite"])
def test_models_of_several_kinds_solve(name: str) -> None:
    graph = load_graph(name, phase="decode", context=4096, microbatch=16, batch=16)
    result = solve(graph, load_system("h100-8"), tp=8, sensitivity=False)
    assert result.status == "optimal"
    active = {one.name: one.computed for one in load_sized(name)[1]}["active_parameters"]
    assert result.step_time_s >= active * 2 / (8 * 3.35e12)  # what one token reads, at the rate of the memory


def test_an_end_is_called_as_no_layer() -> None:
    layers = {"head": {"mixer": FULL}}
    with pytest.raises(ValidationError, match="found 'head', as the ends are called"):
        build(**one(FULL) | {"layers": layers, "sections": [{"layers": ["head"]}]})


# --- layers that predict further tokens ---------------------------------------------------------------------

PREDICTING: dict[str, Any] = {
    "layers": {"dense": {"mixer": FULL, "feed_forward": mlp(50)}, "sparse": {"feed_forward": moe(8, 2, 10)}},
    "sections": [{"layers": ["dense"], "repeat": 3}, {"layers": ["dense", "sparse"], "repeat": 2, "predicts": True}],
}


def test_what_predicts_further_tokens_is_left_out_unless_it_is_asked_for() -> None:
    p = one(FULL, mlp(50)) | PREDICTING
    plain, asked = (counts(StackParameters(**p, predict=more, phase="decode")) for more in (False, True))
    layer = counts(StackParameters(**one(FULL, mlp(50), phase="decode")))
    assert plain == layer
    dense = 2 * HIDDEN * (30 + 10) + 3 * 50 * HIDDEN + 2 * HIDDEN
    sparse = HIDDEN * 8 + 8 * 3 * 10 * HIDDEN + HIDDEN
    assert asked.parameters - plain.parameters == 2 * (dense + sparse + 2 * HIDDEN**2 + 3 * HIDDEN)
    assert build(**p, phase="decode").kernels == build(**one(FULL, mlp(50), phase="decode")).kernels


def test_modules_stand_behind_the_head_and_read_its_matrix_again() -> None:
    p = one(FULL, mlp(50), microbatch=4, batch=16) | PREDICTING
    graph = build(**p, phase="decode", context=30, predict=True)
    assert [section.layers for section in graph.sections or ()] == [
        ("embedding",), ("dense",), ("head",), *(2 * [("predictor",), ("dense", "sparse"), ("prediction",)]),
    ]  # fmt: skip
    kernels = by_name(graph)
    assert {str(k.layer): graph.times_of(k) for k in graph.kernels} == {
        "embedding": 1, "dense": 5, "sparse": 2, "head": 1, "predictor": 2, "prediction": 2,
    }  # fmt: skip
    assert (kernels["Predict_Proj"].m, kernels["Predict_Proj"].k) == (HIDDEN, 2 * HIDDEN)
    assert weight_elements(kernels["Predict_Logits"]) == 0 and flop(kernels["Predict_Logits"]) == 2 * 100 * HIDDEN * 4
    read = {graph.kernels[k].name: size for k, operand, size in graph.reads() if operand == 2}
    assert read["Predict_Logits"] == 100 * HIDDEN * 2
    system = load_system("sn10-8-ring")
    found, without = (
        solve(build(**p, phase="decode", predict=more), system, tp=2, pp=1, dp=4, sensitivity=False)
        for more in (True, False)
    )
    assert found.status == without.status == "optimal" and found.step_time_s > without.step_time_s
