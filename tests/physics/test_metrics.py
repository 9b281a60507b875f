"""Metrics of a plan: non-decreasing in the time of every stage, and turned around exactly."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.plan import Plan
from dfopt.physics.fill import line_of
from dfopt.physics.metrics import METRICS, Constants, Metric

TIMES = st.lists(st.floats(0.0, 1e6), min_size=5, max_size=5)


@st.composite
def constants(draw: st.DrawFn) -> Constants:
    plan = Plan(
        pp=draw(st.integers(1, 64)),
        microbatches=draw(st.integers(1, 4096)),
        interleave=draw(st.integers(1, 8)),
        layers_per_stage=draw(st.integers(1, 128)),
    )
    assumptions = Assumptions(
        bubble=draw(st.sampled_from(["one_f_one_b", "interleaved", "stages"])),
        schedule=draw(st.sampled_from(["one_f_one_b", "gpipe"])),
        step_overhead=draw(st.none() | st.floats(0.0, 1e3)),
    )
    places = [*range(5), *draw(st.lists(st.integers(0, 4), max_size=6))]  # five distinct stages, in some order
    line = line_of(plan, assumptions, draw(st.booleans()), draw(st.permutations(places)))
    return Constants(plan, assumptions, line)


@pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
@given(times=TIMES, more=st.floats(0.0, 1e6), at=st.integers(0, 4), of=constants())
def test_a_slower_stage_never_helps(metric: Metric, times: list[float], more: float, at: int, of: Constants) -> None:
    """What bounds of plans rest on: the same function of lower bounds is a lower bound."""
    slower = list(times)
    slower[at % len(times)] += more
    assert metric.value(slower, of) >= metric.value(times, of) * (1 - 1e-12)


@pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
@given(times=TIMES, at=st.integers(0, 4), of=constants(), factor=st.floats(1.0, 3.0))
def test_most_is_the_largest_time(metric: Metric, times: list[float], at: int, of: Constants, factor: float) -> None:
    """A stage that takes longer than ``most`` exceeds the value, one that takes as long does not."""
    at %= len(times)
    value = metric.value(times, of) * factor + 1.0
    most = metric.most(value, times, at, of)
    there, beyond = list(times), list(times)
    there[at], beyond[at] = most, most * (1 + 1e-9) + 1e-9
    assert metric.value(there, of) <= value * (1 + 1e-9)
    assert metric.value(beyond, of) > value * (1 - 1e-9)


def test_step_time_by_hand() -> None:
    """Sixteen microbatches through the slowest of four stages, and three of its times to fill the pipeline."""
    of = Constants(Plan(pp=4, microbatches=16), Assumptions(step_overhead=0.75))
    assert math.isclose(METRICS["step_time"].value([1.0, 2.0, 1.5, 2.0], of), 2.0 * (16 + 3) + 0.75)
