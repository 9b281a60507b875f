"""Prefill and decode of decoders: what one evaluation computes, reads, writes and keeps."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from pydantic import ValidationError

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.phase import Phase, Segment, decode, verify
from dfopt.documents.tokens import Tokens
from dfopt.machines.compose import load_system
from dfopt.physics.ops import flop, streamed_rows
from dfopt.search import solve
from dfopt.workloads import WORKLOADS, load_graph
from dfopt.workloads.decoder import DecoderParameters

build = WORKLOADS["decoder"]
SMALL: dict[str, Any] = {
    "hidden": 30, "heads": 6, "kv_heads": 2, "head_dim": 5, "ffn": 40, "vocab": 100, "seq": 12, "microbatch": 3,
}  # fmt: skip


def flops(graph: Graph) -> dict[str, float]:
    return {kernel.name: flop(kernel) for kernel in graph.kernels}


def caches(graph: Graph) -> list[tuple[str, int, int, int]]:
    """Of every state: its kernel, bytes that are held, read and written."""
    return [(k.name, s.held_bytes, s.read_bytes, s.written_bytes) for k in graph.kernels for s in k.states or ()]


def test_a_decode_step() -> None:
    graph = build(**SMALL, phase="decode", context=20)
    sizes = {k.name: (k.outer, k.samples or 1, k.m, k.k, k.n) for k in graph.kernels}
    assert (sizes["QK"], sizes["AV"]) == ((6, 3, 21, 5, 1), (6, 3, 5, 21, 1))
    assert sizes["Q_Proj"] == (6, 1, 5, 30, 3) and sizes["Logits"] == (1, 1, 100, 30, 3)
    token = 2 * 5 * 2  # K/V heads, features, bytes
    held = [("QK", 3 * 21 * token, 3 * 20 * token, 3 * token), ("AV", 3 * 21 * token, 3 * 20 * token, 3 * token)]
    assert caches(graph) == held
    assert graph.tokens == Tokens(processed=3, produced=3)


def test_a_prompt_writes_what_it_does_not_read() -> None:
    graph = build(**SMALL, phase="prefill", hit=8)
    token = 2 * 5 * 2
    assert caches(graph)[0] == ("QK", 3 * 12 * token, 3 * 8 * token, 3 * 4 * token)
    assert flops(graph)["Logits"] == 2 * 100 * 30 * 3  # of the last token of every prompt
    assert flops(graph)["QK"] == 2 * 5 * 6 * 3 * (4 * 8 + 4 * 5 // 2)
    assert graph.bytes_of(next(t for t in graph.tensors if t.dst == "Logits")) == 3 * 30 * 2


def test_a_hit_of_all_but_one_token_is_a_decode_step() -> None:
    hit = build(**SMALL | {"seq": 21}, phase="prefill", hit=20)
    step = build(**SMALL, phase="decode", context=20)
    assert (hit.kernels, hit.tensors) == (step.kernels, step.tensors)


@pytest.mark.parametrize("cut", [1, 5, 11])
def test_chunks_of_a_prompt_compute_what_the_prompt_does(cut: int) -> None:
    """But logits, which each computes for its last tokens; and what all chunks have written is what is held."""
    whole, first = build(**SMALL, phase="prefill"), build(**SMALL | {"seq": cut}, phase="prefill")
    rest = build(**SMALL, phase="prefill", hit=cut)
    for name, work in flops(whole).items():
        if name != "Logits":
            assert flops(first)[name] + flops(rest)[name] == work, name
    written = [a[3] + b[3] for a, b in zip(caches(first), caches(rest), strict=True)]
    assert written == [one[1] for one in caches(whole)]


def test_a_causal_sample_that_nothing_is_kept_of_is_a_prompt_without_caches() -> None:
    plain, prompt = build(**SMALL, causal=True), build(**SMALL, phase="prefill", ends=False)
    assert not caches(plain)
    assert prompt.kernels == tuple(
        kernel.model_copy(update={"states": other.states})
        for kernel, other in zip(plain.kernels, prompt.kernels, strict=True)
    )


def test_whole_pages_are_held() -> None:
    graph = build(**SMALL, phase="decode", context=20, page=16)
    assert caches(graph)[0] == ("QK", 3 * 32 * 20, 3 * 20 * 20, 3 * 20)


@pytest.mark.parametrize(
    ("model", "bytes_per_token"),
    [  # 2 (keys and values) x layers x K/V heads x features x 2 B
        ("llama-3.1-8b", 131072),
        ("llama-3.1-70b", 327680),
        ("llama-3.1-405b", 516096),
        ("qwen3-32b", 262144),
    ],
)
def test_what_a_token_holds_in_a_whole_model(model: str, bytes_per_token: int) -> None:
    graph = load_graph(model, phase="decode", context=99, microbatch=1, batch=1)
    assert graph.repeat * sum(held for _, held, _, _ in caches(graph)) == 100 * bytes_per_token


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"phase": "decode", "hit": 4}, "which is of prefill only"),
        ({"phase": "decode", "context": 20, "window": 20}, "found 21 tokens in a sample"),
        ({"phase": decode(2, 8)}, "found 2 sequences, but a microbatch of 3"),
        ({"phase": Phase(segments="2x1@8,2x8")}, "found 4 sequences, but a microbatch of 3"),
        ({"phase": "mixed", "segments": "3x4@-1"}, "expected a segment"),
        ({"phase": "mixed", "segments": ",".join(17 * ["1x1"])}, "at most 16 items"),
        ({"phase": "decode", "tree": (0, 1)}, "found 0, 1, which is of verify only"),
        ({"phase": Phase(segments=(Segment(sequences=3, new=2, logits="none"),))}, "no token whose logits"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        build(**SMALL | changes)


def test_a_tree_is_verified_with_its_ancestors() -> None:
    graph = build(**SMALL, phase="verify", context=20, tree="0,1,1,2")
    assert flops(graph)["QK"] == 2 * 5 * 6 * 3 * (4 * 20 + 1 + 2 + 2 + 3)
    assert graph.kernels == build(**SMALL, phase=verify(3, 20, tree=(0, 1, 1, 2))).kernels
    line = build(**SMALL, phase="verify", context=20, tree=[0, 1, 2])
    assert line.kernels == build(**SMALL, phase="verify", context=20, draft=2).kernels
    assert graph.tokens == Tokens(processed=12, produced=3)  # of a draft one token of each sequence is sure


# --- measured steps; the file says where from ----------------------------------------------------------------

ROWS = json.loads((Path(__file__).resolve().parents[1] / "golden" / "decode-h100.json").read_text())["rows"]


def ratios(chosen: Assumptions, overhead: bool) -> list[float]:
    """Predicted over measured time of a decode step. Eight chips hold copies of what one batch runs on."""
    machine = load_system("h100-8")
    machine = machine if overhead else machine.model_copy(update={"collective_overhead": 0.0})
    found = []
    for tp, batch, context, measured_ms in ROWS[::3]:
        copies = 8 // tp
        graph = load_graph("llama-3.1-8b", phase="decode", context=context, microbatch=batch, batch=batch * copies)
        result = solve(graph, machine, assumptions=chosen, tp=tp, pp=1, dp=copies, sensitivity=False)
        assert result.status == "optimal"
        found.append(result.step_time_s * 1e3 / measured_ms)
    return found


def test_a_step_takes_about_what_is_measured_whatever_the_context() -> None:
    """Beside launches and what a library does not reach of the peak, which are not in the defaults."""
    found = ratios(Assumptions(execution="library"), overhead=True)
    assert 0.69 < median(found) < 0.75
    assert max(found) < 0.97


def test_a_chip_that_fuses_freely_at_peak_is_a_bound_on_what_is_measured() -> None:
    assert max(ratios(Assumptions(execution="dataflow", compute_utilization=1.0), overhead=False)) <= 1.0


def test_the_last_tokens_of_prompts_cut_no_stream_short() -> None:
    """Kernels of single tokens are no stream: else every other kernel would hold all of its output at once."""
    graph = load_graph("llama-3.1-8b", phase="prefill", seq=2048, microbatch=4, batch=4)
    assert streamed_rows(graph) == 2048
    step = load_graph("llama-3.1-8b", phase="decode", context=2048, microbatch=64, batch=64)
    assert streamed_rows(step) == 64
    assert solve(graph, load_system("h100-8"), tp=8, sensitivity=False).status == "optimal"


@pytest.mark.parametrize(
    ("changes", "where", "behind"),
    [
        ({"phase": "decode", "context": 101}, "context", 101),
        ({"phase": "verify", "context": 99, "draft": 2}, "context", 101),
        ({"phase": "prefill", "seq": 102}, "seq", 101),
        ({"phase": "mixed", "segments": "1x5@0,2x1@101"}, "segments", 101),
        ({"seq": 102}, "seq", 101),
    ],
)
def test_more_tokens_than_a_model_has_positions_are_refused(changes: dict[str, Any], where: str, behind: int) -> None:
    sizes = {"hidden": 30, "heads": 6, "head_dim": 5, "ffn": 40, "vocab": 100, "seq": 12, "positions": 100}
    DecoderParameters(**{**sizes, "phase": "decode", "context": 100})  # a step may fill all of them
    DecoderParameters(**{**sizes, **changes, "positions": behind})
    DecoderParameters(**{**sizes, **changes, "positions": None})
    with pytest.raises(ValidationError, match=f"found a token behind {behind} others, but the model has 100") as caught:
        DecoderParameters(**{**sizes, **changes})
    assert caught.value.errors()[0]["ctx"]["where"] == f"$.{where}"


def test_learned_positions_are_as_many_as_there_are() -> None:
    sizes = {"hidden": 30, "heads": 6, "head_dim": 5, "ffn": 40, "vocab": 100, "seq": 12, "learned_positions": 12}
    DecoderParameters(**sizes, phase="decode", context=12, rotary=False)
    with pytest.raises(ValidationError, match="the model has 12 positions"):
        DecoderParameters(**sizes, phase="decode", context=13, rotary=False)


def test_a_phase_says_itself_who_sees_whom() -> None:
    sizes = {"hidden": 30, "heads": 6, "head_dim": 5, "ffn": 40, "vocab": 100, "seq": 12}
    assert DecoderParameters(**sizes, phase="prefill", causal=True).evaluation.segments[0].sees == "causal"
    assert DecoderParameters(**sizes, causal=False).evaluation.segments[0].sees == "full"
    with pytest.raises(ValidationError, match="found false, but a phase of serving says who sees whom"):
        DecoderParameters(**sizes, phase="prefill", causal=False)
