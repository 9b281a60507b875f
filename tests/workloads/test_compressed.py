"""Compressed attention and several residual streams, against loops and sums by hand."""

from __future__ import annotations

from typing import Any

import pytest
from graph_parts import by_name
from hypothesis import given
from hypothesis import strategies as st
from layer_kinds import COMPRESSED as MIXER
from layer_kinds import HIDDEN, one
from pydantic import ValidationError

from dfopt.documents.phase import Segment
from dfopt.errors import DocumentError
from dfopt.library import load_sized
from dfopt.machines.compose import load_system
from dfopt.physics.ops import flop, weight_elements
from dfopt.search import solve
from dfopt.workloads import WORKLOADS, expand
from dfopt.workloads.blocks.compressed import group_pairs
from dfopt.workloads.stack import StackParameters, counts

build = WORKLOADS["stack"]
CHOICE: dict[str, Any] = {"group": 4, "overlaps": True, "sparse": {"heads": 3, "head_dim": 2, "top_k": 2}}
INSIDE = {"kind": "mlp", "ffn": 50}


@given(st.integers(1, 40), st.integers(0, 40), st.integers(1, 9), st.none() | st.integers(1, 6))
def test_pairs_are_those_of_a_loop(new: int, cached: int, group: int, most: int | None) -> None:
    seen = [(token + 1) // group for token in range(cached, cached + new)]
    found = group_pairs(Segment(sequences=1, new=new, cached=cached), group, most)
    assert found == sum(one if most is None else min(one, most) for one in seen)


def test_a_token_uses_as_many_parameters_of_the_model_as_were_published() -> None:
    """DeepSeek-V4-Flash: 13 billion (its model card)."""
    active = {one.name: one.computed for one in load_sized("deepseek-v4-flash")[1]}["active_parameters"]
    assert active == pytest.approx(13e9, abs=0.5e9)


def test_a_window_and_groups_are_attended_to_and_kept() -> None:
    """Behind 22 tokens the 23rd sees two before and itself, and five groups of four."""
    p = one(MIXER | {"group": 4}, microbatch=2)
    step = by_name(build(**p, phase="decode", context=22))
    assert flop(step["QK"]) == 2 * 6 * 5 * 2 * (3 + 5)
    keys, entries = step["QK"].states or ()
    assert (keys.tokens, keys.reads, keys.writes, keys.heads) == (3, 2, 1, 1)
    assert (entries.tokens, entries.reads, entries.writes, entries.bytes_per_token) == (5, 5, 0, 5 * 2)
    (waiting,) = step["Down_Norm"].states or ()
    assert (waiting.tokens, waiting.reads, waiting.writes, waiting.bytes_per_token) == (4, 0, 1, 2 * 5 * 4)
    ends = by_name(build(**p, phase="decode", context=23))
    entries, waiting = (ends["QK"].states or ())[1], (ends["Down_Norm"].states or ())[0]
    assert (entries.tokens, entries.reads, entries.writes, waiting.reads) == (6, 5, 1, 3)
    whole = by_name(build(**p, phase="prefill"))
    assert flop(whole["QK"]) == 2 * 6 * 5 * 2 * ((1 + 2 + 10 * 3) + (4 * 1 + 4 * 2 + 3))
    assert (whole["QK"].states or ())[1].writes == 3


def test_an_indexer_scores_every_group_and_attention_reads_the_best() -> None:
    p = one(MIXER | CHOICE, microbatch=2)
    step = by_name(build(**p, phase="decode", context=40))
    assert flop(step["Index_Scores"]) == 2 * 2 * 3 * 2 * 10
    assert flop(step["QK"]) == 2 * 6 * 5 * 2 * (3 + 2)
    (index,), (_, entries) = step["Index_Scores"].states or (), step["QK"].states or ()
    assert (index.tokens, index.reads, index.bytes_per_token) == (10, 10, 2 * 2)
    assert (entries.tokens, entries.reads) == (10, 2)
    waiting = step["Down_Norm"].states or ()  # of keys and of the indexer, of two groups each
    assert [(one.tokens, one.bytes_per_token) for one in waiting] == [(8, 4 * 4 * 5), (8, 4 * 4 * 2)]
    assert "Index_Scores" not in by_name(build(**p | {"seq": 3}, phase="prefill"))  # no group is complete


def test_without_groups_it_is_attention_to_a_window() -> None:
    graph = by_name(build(**one(MIXER), phase="decode", context=40))
    (keys,) = graph["QK"].states or ()
    assert (keys.tokens, keys.reads, flop(graph["QK"])) == (3, 2, 2 * 6 * 5 * 3)
    assert graph["Down_Norm"].states is None and counts(StackParameters(**one(MIXER))).bytes_per_token == 0


@pytest.mark.parametrize("phase", [{"phase": "prefill"}, {"phase": "decode", "context": 30}])
def test_streams_are_read_mixed_and_written(phase: dict[str, Any]) -> None:
    plain, several = (one(MIXER, INSIDE, microbatch=2, batch=8, streams=s) for s in (None, {"count": 3}))
    old, new = (StackParameters(**p) for p in (plain, several))
    each = 15 * (3 * HIDDEN + 1) + 3
    assert counts(new).parameters - counts(old).parameters == 3 * 2 * each + 3 * (3 * HIDDEN + 1) + 1
    graphs = [build(**p, ends=True, **phase) for p in (plain, several)]
    weights = [sum(map(weight_elements, graph.kernels)) for graph in graphs]
    assert weights[1] - weights[0] == 2 * 15 * 3 * HIDDEN
    kernels, tokens = by_name(graphs[1]), 2 * (1 if "context" in phase else 12)
    assert kernels["Residual_In"].m == kernels["Add_2"].m == 3 * HIDDEN
    assert graphs[1].output_bytes("Add_2") == 3 * HIDDEN * tokens * 2
    assert kernels["Streams"].dram_bytes == 3 * 3 * HIDDEN * 2 + 3 * HIDDEN * tokens * 2
    read = {name: {t.src for t in graphs[1].tensors if t.dst == name} for name in ("Streams_1", "Add_1")}
    assert read == {"Streams_1": {"Residual_In", "Mix_1"}, "Add_1": {"O_Proj", "Residual_In"}}
    result = solve(graphs[1], load_system("sn10-8-ring"), tp=2, pp=2, dp=2, time_limit=20, sensitivity=False)
    assert result.status == "optimal"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"output_groups": 4}, r"mixer\.output_groups: found 4 groups, expected a divisor of the 6 heads"),
        ({"overlaps": True}, r"mixer\.overlaps: found, but no groups"),
        ({"sparse": CHOICE["sparse"]}, r"mixer\.sparse: found, but no groups"),
        (CHOICE | {"sparse": CHOICE["sparse"] | {"block": 2}}, r"mixer\.sparse: found an indexer of tokens"),
    ],
)
def test_sizes_that_do_not_fit_together_are_an_issue(change: dict[str, Any], said: str) -> None:
    data = {"schema": "dfopt/graph/3", "name": "x", "workload": "stack", "parameters": one(MIXER | change)}
    with pytest.raises(DocumentError, match=said):
        expand(data)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mode": "training"}, "gradients are not drawn"),
        ({"causal": False}, "found groups of tokens, where those of 12 see more"),
        ({"layers": {"layer": {"mixer": MIXER, "norms": "after"}}, "streams": {"count": 2}}, "beside several streams"),
        ({"streams": {"count": 2}, "predict": True, "ends": True}, "beside several streams"),
    ],
)
def test_what_is_not_drawn_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        build(**one(MIXER) | change)
