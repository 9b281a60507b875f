"""What kernels keep for sequences: bytes by hand, how chips share them, and what a memory is too small for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judge_cases import PLAIN, closed, judged, machine, ring
from pydantic import ValidationError

import dfopt as df
from dfopt.documents.assumptions import profile
from dfopt.documents.graph import Kernel, SequenceState
from dfopt.documents.plan import Plan
from dfopt.errors import Infeasible
from dfopt.physics.states import cached_bytes, head_share

# 2 sequences, 10 tokens in pages of 4: 12 of them, 6 B each; 8 are read and one is written. 4 B besides
KEYS = SequenceState(
    name="keys", sequences=2, heads=2, bytes_per_token=6, bytes_per_sequence=4, tokens=10, reads=8, writes=1, page=4
)
SCORES = Kernel(name="scores", op="matmul", outer=4, samples=2, m=10, k=3, n=1, states=(KEYS,))
GRAPH = closed(name="g", repeat=3, microbatch=2, batch=10, kernels=(SCORES,))
ONE = Plan(microbatches=5, layers_per_stage=3)
TP2 = Plan(tp=2, tp_dims=("x",), microbatches=5, layers_per_stage=3)
TP4 = TP2.model_copy(update={"tp": 4})


@pytest.mark.parametrize(
    ("plan", "chips", "share"),
    [(ONE, None, 1.0), (TP2, 2, 0.5), (TP4, 4, 0.5)],  # of two heads, a chip has one at least
)
def test_a_chip_reads_writes_and_holds_its_heads(plan: Plan, chips: int | None, share: float) -> None:
    places = {"scores": ("outer" if chips else "none", 0)}
    score = judged(GRAPH, places, plan, machine(*[ring("x", chips)] if chips else []))
    read, written, held = 2 * (8 * 6 + 4), 2 * (1 * 6 + 4), 2 * (12 * 6 + 4)
    assert (KEYS.read_bytes, KEYS.written_bytes, KEYS.held_bytes) == (read, written, held)
    assert score.partitions[0].dram_bytes == (read + written) * share
    assert score.stages[0].states["dram"]["caches"] == 3 * 5 * held * share  # of all layers and microbatches


def test_what_is_too_little_for_them_names_them() -> None:
    most = 3 * 5 * KEYS.held_bytes
    assert df.solve(GRAPH, machine(dram_capacity=most), assumptions=PLAIN).status == "optimal"
    with pytest.raises(Infeasible, match="caches of sequences"):
        df.solve(GRAPH, machine(dram_capacity=most - 1), assumptions=PLAIN)


def test_copies_have_sequences_of_their_own() -> None:
    """To share what copies hold whole would not make caches smaller."""
    graph = GRAPH.model_copy(update={"batch": 8})
    with pytest.raises(Infeasible) as refused:
        df.solve(graph, machine(ring("x", 2), dram_capacity=3 * 2 * KEYS.held_bytes - 1), assumptions=PLAIN, dp=2)
    least = refused.value.least
    assert least is not None
    assert (least.states, least.alike) == ({"caches of sequences": 3 * 2 * KEYS.held_bytes}, {})


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 40))
def test_the_heads_of_a_chip_are_those_of_a_loop(heads: int, group: int, chips: int) -> None:
    """Chips take the query heads of a K/V head, if there are enough chips for that; else all in a row."""
    outer = heads * group
    each = -(-outer // chips)
    by_head = [place for head in range(heads) for place in range(head * group, (head + 1) * group, each)]
    owned = [{q // group for q in range(chip * each, min((chip + 1) * each, outer))} for chip in range(chips)]
    most = 1 if len(by_head) <= chips else max(map(len, owned))
    assert head_share(outer, heads, "outer", chips) == most / heads


def test_a_chip_needs_one_head_of_keys_where_query_heads_do_not_divide() -> None:
    """Qwen 2.5 7B on eight chips: 28 query heads, of which a chip has 4 or 3, all of one of 4 K/V heads."""
    graph = df.load_graph("qwen2.5-7b", phase="decode", batch=16, context=4096)
    result = df.solve(graph, df.load_system("h100-8"), tp=8, pp=1, dp=1, assumptions=profile("ideal"))
    layers, keys_and_values, tokens, features = 28, 2, 16 * (4096 + 1), 128
    assert result.score.stages[0].states["dram"]["caches"] == layers * keys_and_values * tokens * features * 2


@given(st.sampled_from(["none", "m", "k", "n"]), st.integers(1, 9))
def test_what_is_split_otherwise_is_held_whole(scheme: str, chips: int) -> None:
    assert cached_bytes(SCORES, scheme, chips) == KEYS.held_bytes  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"states": (KEYS.model_copy(update={"heads": 3}),)}, "found 3, expected a divisor of outer, 4 of 'scores'"),
        ({"pass_": "backward"}, "which is no kernel of a forward pass"),
        ({"op": "gemm"}, "whose matrix is that of all samples"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Kernel(**{**dict(SCORES), **changes})
