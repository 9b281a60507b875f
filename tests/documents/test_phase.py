"""Segments: pairs of tokens against a loop, and phases that are others by another name."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dfopt.documents.phase import Phase, Segment, decode, prefill, verify

counts = st.integers(1, 9)


def looped(segment: Segment, window: int | None = None, chunk: int | None = None) -> int:
    """Every new token and every key, one by one."""
    found = 0
    for new in range(segment.cached, segment.keys):
        for key in range(segment.keys):
            sees = segment.sees == "full" or key <= new
            sees &= window is None or new - key < window
            sees &= chunk is None or new // chunk == key // chunk
            found += sees
    return found


@given(counts, counts, st.integers(0, 12), st.sampled_from(["causal", "full"]))
def test_pairs_are_those_of_a_loop(sequences: int, new: int, cached: int, sees: str) -> None:
    segment = Segment(sequences=sequences, new=new, cached=cached, sees=sees)
    assert segment.pairs() == looped(segment)


@given(counts, st.integers(0, 12), counts)
def test_windows_and_chunks_are_those_of_a_loop(new: int, cached: int, size: int) -> None:
    segment = Segment(sequences=2, new=new, cached=cached)
    assert segment.pairs(window=size) == looped(segment, window=size)
    assert segment.pairs(chunk=size) == looped(segment, chunk=size)


@given(st.lists(st.integers(0, 10**6), max_size=12), st.integers(0, 20))
def test_a_token_of_a_tree_sees_its_ancestors(choices: list[int], cached: int) -> None:
    """A tree by the parent of every node; the first follows the cached tokens."""
    parents: list[int | None] = [None, *(choice % (place + 1) for place, choice in enumerate(choices))]
    depths, seen = [], 0
    for node in range(len(parents)):
        line = [node]
        while (parent := parents[line[-1]]) is not None:
            line.append(parent)
        depths.append(len(line) - 1)
        seen += cached + len(line)
    assert verify(1, cached, tree=tuple(depths)).segments[0].pairs() == seen


def test_decode_is_the_verification_of_nothing() -> None:
    assert (
        decode(4, 100)
        == verify(4, 100, window=0)
        == verify(4, 100, tree=(0,)).model_copy(update={"segments": decode(4, 100).segments})
    )
    assert verify(4, 100, tree=(0,)).segments[0].pairs() == decode(4, 100).segments[0].pairs()


@given(st.integers(2, 200), st.data())
def test_chunks_of_a_prompt_are_the_prompt(prompt: int, data: st.DataObject) -> None:
    """In tokens and in pairs, wherever it is cut; what is held in the end too."""
    cuts = sorted({0, prompt, *data.draw(st.lists(st.integers(1, prompt - 1), max_size=3))})
    parts = [prefill(3, there, hit=here).segments[0] for here, there in itertools.pairwise(cuts)]
    whole = prefill(3, prompt).segments[0]
    assert sum(part.tokens for part in parts) == whole.tokens
    assert sum(part.pairs() for part in parts) == whole.pairs()
    assert parts[-1].keys == whole.keys


def test_a_hit_of_all_but_one_token_is_a_decode_step() -> None:
    hit, step = prefill(5, 101, hit=100).segments[0], decode(5, 100).segments[0]
    assert (hit.tokens, hit.pairs(), hit.keys, hit.wanted) == (step.tokens, step.pairs(), step.keys, step.wanted)


def test_logits_are_counted_where_they_are_wanted() -> None:
    assert [one.wanted for one in (prefill(3, 7), decode(3, 7), Phase(segments="3x7:none,3x7:all"))] == [3, 3, 21]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: Segment(sequences=0, new=1), "sequences"),
        (lambda: Segment(sequences=1, new=2, sees=(0,)), "found 1 depths for 2 new tokens"),
        (lambda: Segment(sequences=1, new=2, sees=(0, 2)), "found a depth of 2, but none of 1"),
        (lambda: Segment(sequences=1, new=1, sees=(1,)), "found a depth of 1, but none of 0"),
        (lambda: Segment(sequences=1, new=1, sees=(-1,)), "found a depth of -1"),
        (lambda: Phase(segments=()), "segments"),
        (lambda: prefill(1, 8, hit=8), "at least one is left"),
        (lambda: Segment(sequences=1, new=8, sees="full").pairs(chunk=4), "only causal ones"),
    ],
)
def test_what_is_wrong_is_said(wrong: object, said: str) -> None:
    with pytest.raises((ValidationError, ValueError), match=said):
        wrong()  # type: ignore[operator]
