"""Several segments in one evaluation, such as a chunk of a prompt beside decode steps, against the segments alone."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_kinds import CROSS, DELTA, FULL, INDEXER, LATENT, MIXERS, mlp, moe, one
from pydantic import ValidationError
from test_published import RECIPES

import dfopt as df
from dfopt.documents.graph import Graph
from dfopt.documents.phase import Phase, Segment, decode, prefill, verify
from dfopt.documents.tokens import Tokens
from dfopt.judge import evaluate
from dfopt.machines.compose import load_system
from dfopt.physics.ops import flop, streamed_rows, weight_elements
from dfopt.workloads import WORKLOADS
from dfopt.workloads.stack import StackParameters, variants

build = WORKLOADS["stack"]
EVERY = MIXERS | {"chosen, expanded": LATENT | {"form": "expanded", "sparse": INDEXER}}
APART = df.Assumptions(execution="kernel_by_kernel")
BESIDE = {"Collected"}
"""Kernels that only a mix has."""

some = st.builds(
    Segment,
    sequences=st.integers(1, 3),
    new=st.integers(1, 6),
    cached=st.integers(0, 9),
    logits=st.sampled_from(["last", "all"]),
)


def drawn(mixer: Any, *segments: Segment, **more: Any) -> Graph:
    """A model of one mixer that works on some segments."""
    return build(**one(mixer, moe(8, 2, 10), phase="mixed", segments=segments, **more))


def bare(name: str) -> str:
    """The name of a kernel without the segments that it is of."""
    return re.sub(r"(_[1-4])+$", "", name) if name not in ("Add_1", "Add_2", "RMSNorm_1", "RMSNorm_2") else name


def work(*graphs: Graph) -> dict[str, float]:
    found = Counter[str]()
    for graph in graphs:
        for kernel in graph.kernels:
            found[bare(kernel.name)] += flop(kernel)
    return {name: size for name, size in found.items() if name not in BESIDE}


def caches(*graphs: Graph) -> list[tuple[str, int, int, int]]:
    """Of every state of every segment its bytes that are held, read and written."""
    every = [(bare(state.name), state) for graph in graphs for kernel in graph.kernels for state in kernel.states or ()]
    return sorted((name, one.held_bytes, one.read_bytes, one.written_bytes) for name, one in every)


@settings(max_examples=30)
@given(st.sampled_from(sorted(EVERY)), some, st.integers(1, 3))
def test_a_mix_of_one_segment_is_that_segment(mixer: str, segment: Segment, times: int) -> None:
    """Under every name that it has."""
    made = drawn(EVERY[mixer], segment, microbatch=times)
    p = one(EVERY[mixer], moe(8, 2, 10), microbatch=times * segment.sequences)
    scaled = segment.model_copy(update={"sequences": times * segment.sequences})
    same = [build(**p, phase=Phase(segments=(scaled,)))]
    if segment.logits == "all":
        same.append(build(**p, phase="verify", context=segment.cached, draft=segment.new - 1))
        if segment.new == 1:
            same.append(build(**p, phase="decode", context=segment.cached))
    else:
        same.append(build(**p | {"seq": segment.keys}, phase="prefill", hit=segment.cached))
    for other in same:
        assert (made.kernels, made.tensors, made.inputs, made.tokens) == (
            other.kernels,
            other.tensors,
            other.inputs,
            other.tokens,
        )


@settings(max_examples=30)
@given(st.sampled_from(sorted(EVERY)), st.lists(some, min_size=2, max_size=4))
def test_a_mix_computes_and_keeps_what_its_segments_do(mixer: str, segments: list[Segment]) -> None:
    """Kernel by kernel; weights are held and read once, and experts see the tokens of all."""
    mix, alone = drawn(EVERY[mixer], *segments), [drawn(EVERY[mixer], segment) for segment in segments]
    assert work(mix) == pytest.approx(work(*alone), rel=1e-12)
    assert caches(mix) == caches(*alone)
    assert {bare(k.name): weight_elements(k) for k in mix.kernels if weight_elements(k)} == {
        k.name: weight_elements(k) for graph in alone for k in graph.kernels if weight_elements(k)
    }
    tokens, wanted = (sum(getattr(one, key) for one in segments) for key in ("tokens", "wanted"))
    sizes = {kernel.name: kernel.n for kernel in mix.kernels}
    assert (sizes["RMSNorm_1"], sizes["O_Proj"], sizes["Up_Proj"], sizes["Logits"]) == (*[tokens] * 3, wanted)
    assert mix.tokens == Tokens(processed=tokens, produced=sum(one.sequences for one in segments))
    assert Graph.from_data(mix.to_data()) == mix


@settings(max_examples=20)
@given(st.sampled_from(sorted(EVERY)), st.lists(some, min_size=2, max_size=3))
def test_segments_share_what_projections_make(mixer: str, segments: list[Segment]) -> None:
    """Of every kernel over tokens, all that is read of it by segments is no more than it, and by all of it no less."""
    graph = drawn(EVERY[mixer], *segments)
    ways = Counter[tuple[str, str]]()
    for tensor in graph.tensors:
        ways[tensor.src, bare(tensor.dst) + str(tensor.operand)] += graph.bytes_of(tensor)
    for (src, _), size in ways.items():
        assert size <= graph.output_bytes(src) * (1 + 1e-12) or bare(src) == "Residual_In"
    whole = sum(graph.bytes_of(tensor) for tensor in graph.tensors if tensor.dst == "O_Proj")
    projection = next(kernel for kernel in graph.kernels if kernel.name == "O_Proj")
    assert whole == projection.k * projection.n * graph.word_bytes


def test_a_chunk_of_a_prompt_beside_decode_steps() -> None:
    """By hand: 5 new tokens behind 7 of one sequence, and one behind 20 of each of 3."""
    graph = WORKLOADS["decoder"](
        hidden=30, heads=6, kv_heads=2, head_dim=5, ffn=40, vocab=100, seq=12, phase="mixed", segments="1x5@7,3x1@20"
    )
    sizes = {k.name: (k.outer, k.samples or 1, k.m, k.k, k.n) for k in graph.kernels}
    assert (sizes["QK_1"], sizes["QK_2"]) == ((6, 1, 12, 5, 5), (6, 3, 21, 5, 1))
    assert (sizes["AV_1"], sizes["AV_2"]) == ((6, 1, 5, 12, 5), (6, 3, 5, 21, 1))
    assert sizes["Q_Proj"] == (6, 1, 5, 30, 8) and sizes["Logits"] == (1, 1, 100, 30, 4)
    index = graph.index()
    assert flop(graph.kernels[index["QK_1"]]) == 2 * 5 * 6 * (8 + 9 + 10 + 11 + 12)
    read = {(t.src, t.dst): t.bytes for t in graph.tensors}
    assert read["Q_RoPE", "QK_1"] == 6 * 5 * 5 * 2 and read["Q_RoPE", "QK_2"] == 6 * 5 * 3 * 2
    assert read["K_RoPE", "QK_1"] == 2 * 5 * 5 * 2 and read["V_Proj", "AV_2"] == 2 * 5 * 3 * 2
    assert read["AV_1", "O_Proj"] == 30 * 5 * 2 and read["AV_2", "O_Proj"] == 30 * 3 * 2
    token = 2 * 5 * 2  # K/V heads, features, bytes
    states = {k.name: s for k in graph.kernels for s in k.states or ()}
    assert (states["QK_1"].held_bytes, states["AV_2"].held_bytes) == (12 * token, 3 * 21 * token)
    assert graph.tokens == Tokens(processed=8, produced=4)


def test_a_mix_is_asked_for_in_several_words() -> None:
    p = one(FULL, mlp(50))
    text = build(**p, phase="mixed", segments="1x8@0:none, 2x1@20:all")
    parts = [{"sequences": 1, "new": 8, "logits": "none"}, "2x1@20:all"]
    listed = build(**p, phase="mixed", segments=parts)
    chunk = Segment(sequences=1, new=8, logits="none")
    named = build(**p, phase=Phase(segments=(chunk, *decode(2, 20).segments)), microbatch=3)
    assert text.kernels == listed.kernels == named.kernels
    assert text.tokens == Tokens(processed=10, produced=2)
    assert (text.microbatch, named.microbatch) == (1, 3)  # a mix is one sample


CAUSAL = [name for name, data in RECIPES.items() if data["parameters"].get("causal")]


@pytest.mark.parametrize("name", [name for name in CAUSAL if not RECIPES[name]["parameters"].get("learned_positions")])
def test_published_models_take_mixes(name: str) -> None:
    graph = df.load_graph(name, phase="mixed", segments="1x512@1024,8x1@4096")
    assert graph.tokens == Tokens(processed=520, produced=9)


# --- streams ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("segments", "rows"),
    [
        ("1x512@0,16x1@4096", 512),
        ("1x512@0,4x4@4096:all", 512),
        ("1x512@0,16x4@4096:all", 4),
        ("2x512@0,2x256@0", 256),
        ("16x1@4096,4x1@8", 20),
    ],
)
def test_few_tokens_cut_no_stream_of_many_short(segments: str, rows: int) -> None:
    graph = build(**one(FULL, mlp(50), ends=False), phase="mixed", segments=segments)
    assert streamed_rows(graph) == rows


# --- latent attention ------------------------------------------------------------------------------------------


def test_segments_of_latent_attention_take_the_form_that_is_less_work() -> None:
    p = one(LATENT, mlp(50), phase="mixed", segments="1x12@0,2x1@40")
    assert build(**p).variant == "expanded, absorbed"
    assert build(**p).kernels == build(**p, form=("expanded", "absorbed")).kernels
    others = [one["form"] for one in variants(StackParameters(**p))]
    assert others == [("expanded", "expanded"), ("absorbed", "expanded"), ("absorbed", "absorbed")]
    both = build(**p)
    assert {"KV_Up_1", "Q_Absorb_2", "V_Up_2"} <= both.index().keys()
    sizes = {kernel.name: kernel.n for kernel in both.kernels}
    assert (sizes["KV_Up_1"], sizes["Q_Absorb_2"]) == (12, 2)
    with pytest.raises(ValidationError, match="found 1 forms for 2 segments"):
        build(**p, form=("expanded",))


def test_keys_of_expanded_segments_are_computed_together() -> None:
    graph = build(**one(LATENT, mlp(50), phase="mixed", segments="1x12@0,2x3@40", form="expanded"))
    kernels = {kernel.name: kernel for kernel in graph.kernels}
    assert kernels["KV_Up"].n == 12 + 2 * 43
    assert [state.name for state in kernels["Latents"].states or ()] == ["latents_1", "latents_2"]


def test_the_search_tries_the_forms_of_all_segments() -> None:
    p = one(LATENT, None, phase="mixed", segments="1x12@0,2x1@40", ends=False, batch=4)
    graphs = [build(**p), *(build(**p, **more) for more in variants(StackParameters(**p)))]
    system, fixed = load_system("sn10-8-ring"), {"tp": 2, "dp": 4, "sensitivity": False, "assumptions": APART}
    alone = [df.solve(graph, system, **fixed).value for graph in graphs]
    found = df.solve(graphs[0], system, variants=graphs[1:], **fixed)
    assert (found.status, found.value) == ("optimal", pytest.approx(min(alone), rel=1e-9))


# --- what is found ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mixer", "fuses"), [*((name, False) for name in EVERY), ("grouped", True), ("mamba", True)])
def test_the_judge_agrees_on_every_mixer(mixer: str, *, fuses: bool) -> None:
    system, chosen = load_system("sn10-8-ring"), df.Assumptions() if fuses else APART
    graph = build(**one(EVERY[mixer], None, batch=4, ends=False), phase="mixed", segments="1x6@4,2x1@9")
    result = df.solve(graph, system, tp=2, pp=1, dp=4, sensitivity=False, assumptions=chosen)
    again = evaluate(result.mapping, graph, system, result.assumptions)
    assert again.step_time_s == pytest.approx(result.value, rel=1e-9)
    assert result.gap == 0
    assert again.tokens_per_s == pytest.approx(4 * 8 / result.value)
    assert again.produced_tokens_per_s == pytest.approx(4 * 3 / result.value)


def test_a_chunk_rides_along() -> None:
    """Weights are read once for both: a mix is faster than one step after the other, and slower than each."""
    times = [
        df.optimize(
            df.load_graph("llama-3.1-8b", phase="mixed", segments=segments, microbatch=1, batch=1),
            "h100-8",
            tp=8,
            sensitivity=False,
            assumptions=APART,
        ).value
        for segments in ("1x256@0", "32x1@4096", "1x256@0,32x1@4096")
    ]
    assert max(times[:2]) < times[2] < sum(times[:2])


def test_a_zoo_name_and_a_study_know_the_words() -> None:
    graph = df.load_graph("llama-3.1-8b", phase="mixed", segments="1x512@0,16x1@4096", batch=8)
    assert (graph.batch, graph.microbatch, graph.tokens) == (8, 1, Tokens(processed=528, produced=17))
    tree = df.load_graph("llama-3.1-8b", phase="verify", context=100, tree=[0, 1, 1])
    assert tree.kernels == df.load_graph("llama-3.1-8b", phase=verify(1, 100, tree=(0, 1, 1))).kernels
    assert prefill(1, 8, hit=3).segments[0] == Segment.model_validate("1x5@3")


def test_a_tree_stays_refused_where_tokens_have_an_order() -> None:
    segments = ["2x1@3", {"sequences": 1, "new": 2, "sees": [0, 0]}]
    with pytest.raises(ValidationError, match="tree of tokens"):
        build(**one(DELTA), phase="mixed", segments=segments)
    assert build(**one(CROSS), phase="mixed", segments=segments)
