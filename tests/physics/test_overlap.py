"""Gradients behind the backward pass: the closed form against a clock, and that nothing that is slower ever helps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.plan import Plan
from dfopt.physics.metrics import METRICS, Constants
from dfopt.physics.overlap import Reduced, reduced_after_s

SECONDS = st.integers(0, 50).map(float)
LAYERS = st.lists(st.tuples(SECONDS, SECONDS, st.integers(0, 5)), min_size=1, max_size=6)
STEP = METRICS["step_time"]


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
def pipelines(draw: st.DrawFn) -> tuple[list[float], Constants]:
    """Stages with what they exchange, as they may be: no stage is through before its own work."""
    stages = draw(st.integers(1, 4))
    times = draw(st.lists(SECONDS, min_size=stages, max_size=stages))
    plan = Plan(pp=stages, microbatches=draw(st.integers(1, 8)), layers_per_stage=4)
    often = plan.microbatches if stages == 1 and draw(st.booleans()) else 1
    reduced = tuple(Reduced(draw(SECONDS), draw(SECONDS), draw(SECONDS), often) for _ in range(stages))
    return times, Constants(plan, Assumptions(), per_step_s=draw(SECONDS), reduced=reduced)


@given(pipeline=pipelines(), more=SECONDS, at=st.integers(0, 3))
def test_nothing_slower_helps(pipeline: tuple[list[float], Constants], more: float, at: int) -> None:
    times, of = pipeline
    at %= len(times)
    slower, reduced = list(times), list(of.reduced)
    slower[at] += more
    assert STEP.value(slower, of) >= STEP.value(times, of)
    for field in ("last_s", "ends_s", "weights_s"):
        reduced[at] = of.reduced[at]._replace(**{field: getattr(of.reduced[at], field) + more})
        changed = Constants(of.plan, of.assumptions, of.per_step_s, reduced=tuple(reduced))
        assert STEP.value(times, changed) >= STEP.value(times, of)


@given(pipeline=pipelines(), at=st.integers(0, 3), spare=SECONDS)
def test_most_is_the_largest_time(pipeline: tuple[list[float], Constants], at: int, spare: float) -> None:
    times, of = pipeline
    at %= len(times)
    value = STEP.value(times, of) + spare + 0.5
    there, beyond = list(times), list(times)
    there[at] = most = STEP.most(value, times, at, of)
    beyond[at] = most * (1 + 1e-9) + 1e-9
    assert STEP.value(there, of) <= value * (1 + 1e-9)
    assert STEP.value(beyond, of) > value * (1 - 1e-9)


def test_by_hand() -> None:
    """Two microbatches; four layers of 6 s, 4 of them backward; 5 s each to add up: 5 of the last, 1 of others."""
    ends_s = 4 * 2.0 + reduced_after_s([(4.0, 5.0, 4)])
    of = Constants(Plan(microbatches=2), Assumptions(), reduced=(Reduced(5.0, ends_s, weights_s=0.25),))
    assert STEP.value([24.0], of) == pytest.approx(2 * 24.0 + 5.0 + 3 * 1.0 + 0.25)


def test_weights_are_there_one_layer_after_another() -> None:
    """Four layers of 2 s forward, whose weights take 3 s each: the first is waited for, and 1 s of each of the others.

    And nothing more is waited for at the end, where gradients take no time.
    """
    assert reduced_after_s([(3.0, 2.0, 4)]) == 4 * 2.0 + 3.0 + 3 * 1.0
    ends_s = reduced_after_s([(3.0, 2.0, 4)]) + reduced_after_s([(4.0, 0.0, 4)])
    of = Constants(Plan(microbatches=2), Assumptions(), reduced=(Reduced(3.0, ends_s),))
    assert STEP.value([24.0], of) == pytest.approx(2 * 24.0 + 3.0 + 3 * 1.0)
