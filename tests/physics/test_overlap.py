"""Gradients behind the backward pass: the closed form against a clock, and that nothing that is slower ever helps."""

from __future__ import annotations

import pytest
from exposed_by_hand import Reduced, exposed_s, reduced_after_s
from hypothesis import given
from hypothesis import strategies as st

SECONDS = st.integers(0, 50).map(float)
LAYERS = st.lists(st.tuples(SECONDS, SECONDS, st.integers(0, 5)), min_size=1, max_size=6)


def watched(layers: list[tuple[float, float, int]]) -> float:
    """Seconds until all is added up, by letting a clock run in whole seconds."""
    waiting, compute = list[float](), [(back, add) for back, add, times in layers for _ in range(times)]
    clock, working, left = 0.0, compute[0][0] if compute else 0.0, 0.0
    while compute or waiting or left:
        while compute and working == 0:
            waiting.append(compute.pop(0)[1])
            working = compute[0][0] if compute else 0.0
        while waiting and left == 0:
            left = waiting.pop(0)
        if compute or left:
            clock += 1.0
            working -= 1.0 if compute else 0.0
            left -= 1.0 if left else 0.0
    return clock


@given(layers=LAYERS)
def test_closed_form(layers: list[tuple[float, float, int]]) -> None:
    assert reduced_after_s(layers) == watched(layers)


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[list[float], list[Reduced], float]:
    """Seconds of stages, what they exchange, and how often a step has the slowest: no less often than exchanges."""
    stages = draw(st.integers(1, 4))
    times = draw(st.lists(SECONDS, min_size=stages, max_size=stages))
    often = draw(st.integers(1, 8))
    reduced = [Reduced(draw(SECONDS), draw(SECONDS), draw(SECONDS), often) for _ in range(stages)]
    return times, reduced, often + draw(SECONDS)


@given(pipeline=pipelines(), more=SECONDS, at=st.integers(0, 3))
def test_nothing_slower_helps(pipeline: tuple[list[float], list[Reduced], float], more: float, at: int) -> None:
    times, of, rounds = pipeline
    at %= len(times)

    def step(stages: list[float], reduced: list[Reduced]) -> float:
        return rounds * max(stages) + exposed_s(stages, reduced)

    slower = [*times[:at], times[at] + more, *times[at + 1 :]]
    assert step(slower, of) >= step(times, of)
    for field in ("last_s", "ends_s", "weights_s"):
        changed = of[at]._replace(**{field: getattr(of[at], field) + more})
        assert step(times, [*of[:at], changed, *of[at + 1 :]]) >= step(times, of)


def test_by_hand() -> None:
    """Two microbatches; four layers of 6 s, 4 of them backward; 5 s each to add up: 5 of the last, 1 of others."""
    ends_s = 4 * 2.0 + reduced_after_s([(4.0, 5.0, 4)])
    assert exposed_s([24.0], [Reduced(5.0, ends_s, weights_s=0.25)]) == pytest.approx(5.0 + 3 * 1.0 + 0.25)


def test_weights_are_there_one_layer_after_another() -> None:
    """Four layers of 2 s forward, whose weights take 3 s each: the first is waited for, and 1 s of each of the others.

    And nothing more is waited for at the end, where gradients take no time.
    """
    assert reduced_after_s([(3.0, 2.0, 4)]) == 4 * 2.0 + 3.0 + 3 * 1.0
    ends_s = reduced_after_s([(3.0, 2.0, 4)]) + reduced_after_s([(4.0, 0.0, 4)])
    assert exposed_s([24.0], [Reduced(3.0, ends_s)]) == pytest.approx(3.0 + 3 * 1.0)
