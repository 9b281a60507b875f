"""Seconds of a step: non-decreasing in the time of every stage, and turned around exactly."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.plan import Plan
from dfopt.physics.fill import line_of
from dfopt.physics.metrics import Constants, most_of_stage, step_seconds

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


@given(times=TIMES, more=st.floats(0.0, 1e6), at=st.integers(0, 4), of=constants())
def test_a_slower_stage_never_helps(times: list[float], more: float, at: int, of: Constants) -> None:
    """What bounds of plans rest on: the same function of lower bounds is a lower bound."""
    slower = list(times)
    slower[at % len(times)] += more
    assert step_seconds(slower, of) >= step_seconds(times, of) * (1 - 1e-12)


@given(times=TIMES, at=st.integers(0, 4), of=constants(), factor=st.floats(1.0, 3.0))
def test_most_is_the_largest_time(times: list[float], at: int, of: Constants, factor: float) -> None:
    """A stage that takes longer than ``most`` exceeds the value, one that takes as long does not."""
    at %= len(times)
    value = step_seconds(times, of) * factor + 1.0
    most = most_of_stage(value, times, at, of)
    there, beyond = list(times), list(times)
    there[at], beyond[at] = most, most * (1 + 1e-9) + 1e-9
    assert step_seconds(there, of) <= value * (1 + 1e-9)
    assert step_seconds(beyond, of) > value * (1 - 1e-9)


def test_step_time_by_hand() -> None:
    """Sixteen microbatches through the slowest of four stages, and three of its times to fill the pipeline."""
    of = Constants(Plan(pp=4, microbatches=16), Assumptions(step_overhead=0.75))
    assert math.isclose(step_seconds([1.0, 2.0, 1.5, 2.0], of), 2.0 * (16 + 3) + 0.75)
