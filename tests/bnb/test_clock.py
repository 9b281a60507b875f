"""A clock counts work, here and in the clock that it is a part of; only the deadline looks at the time."""

from __future__ import annotations

import time
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfopt.bnb import ENDED, UNITS_PER_S, UNLIMITED, Clock, OutOfTime

WORK = st.floats(0.0, 1e6)


@given(st.lists(WORK, max_size=6), WORK, WORK)
def test_work_is_counted_in_every_clock_around(charges: list[float], own: float, allowed: float) -> None:
    clock = Clock(work=own)
    part = clock.allowance(allowed)
    inner = part.allowance(allowed / 2)
    for units in charges:
        inner.charge(units)
        assert inner.spent == part.spent == clock.spent
        assert clock.over == (clock.spent >= own)
        assert part.over == (clock.over or part.spent >= allowed)
        assert inner.over == (part.over or inner.spent >= allowed / 2)
    assert inner.units_left == max(min(own, allowed, allowed / 2) - inner.spent, 0.0)


def test_a_check_charges_unless_the_clock_is_over() -> None:
    clock = Clock(work=2.5)
    for _ in range(3):
        clock.check()
    with pytest.raises(OutOfTime):
        clock.check()
    assert clock.spent == 3.0


@given(WORK, WORK, st.floats(0.0, 1.0))
def test_a_share_is_one_of_the_planned_work_that_is_left(planned: float, spent: float, share: float) -> None:
    clock = Clock(planned=planned)
    clock.charge(spent)
    left = max(planned - spent, 0.1 * planned)
    assert clock.work_left == left and not clock.over
    assert clock.share(share).work == share * left
    assert clock.share(share, 10.0).work == min(share * left, 10.0)


def test_a_plan_ends_nothing_and_a_deadline_ends_all() -> None:
    with patch.object(time, "perf_counter", lambda: 100.0):
        clock = Clock.of_limit(5.0)
        assert clock.planned == 5.0 * UNITS_PER_S and clock.last == 105.0 and clock.seconds_left == 5.0
        clock.charge(10 * clock.planned)
        part = clock.share(0.5)
        assert not clock.over and not part.over and part.last == 105.0
    with patch.object(time, "perf_counter", lambda: 105.5):
        assert clock.over and part.over and not clock.over_since(1.0)
        assert clock.seconds_left > 0
        clock.end_earlier(1.0)
        assert clock.last == 104.0 and part.over_since(1.0)
    assert ENDED.over and ENDED.over_since(1e9) and not UNLIMITED.over


def test_a_clock_is_watched_through_its_parts() -> None:
    clock, heard = Clock(work=10.0), list[float]()
    clock.watch = lambda: heard.append(clock.spent)
    part = clock.share(0.5).allowance(3.0)
    part.charge(1.0)
    assert not part.over and not clock.over
    part.check(9.0)
    assert clock.over and heard == [1.0, 1.0, 1.0, 10.0]
