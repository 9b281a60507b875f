"""The closed form of voltage and clock, against the cubic it solves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfopt.technology.arithmetic import ARRAYS, SCALARS
from dfopt.technology.voltage import overdrive, power_share, speed

NOMINAL = st.floats(0.3, 2.0)
SHARE = st.floats(-15.0, 9.0).map(lambda power: 10**power)
THRESHOLD = st.one_of(st.just(0.0), st.floats(1e-9, 0.9), st.floats(1e-100, 1e-20))  # as a share of the nominal one


def voltage(share: Any, nominal: Any, threshold: Any) -> Any:
    return threshold + overdrive(share, nominal, threshold)


def test_a_v100_with_112_watts_for_its_cores() -> None:
    assert voltage(112.35 / (643 * 0.13), 0.8, 0.2) == pytest.approx(0.868, abs=5e-4)


@given(SHARE, NOMINAL, THRESHOLD)
def test_power_at_the_operating_point_is_the_budget(share: float, nominal: float, part: float) -> None:
    threshold = nominal * part
    above = overdrive(share, nominal, threshold)
    assert above >= 0
    drawn = power_share(threshold + above, speed(above, nominal, threshold), nominal)
    assert drawn == pytest.approx(share, rel=1e-11)


@given(st.lists(st.tuples(SHARE, NOMINAL, THRESHOLD), min_size=1, max_size=20))
def test_many_are_as_one_by_one(rows: list[tuple[float, float, float]]) -> None:
    share, nominal, part = (np.array(column) for column in zip(*rows, strict=True))
    together = voltage(share, nominal, nominal * part)
    alone = [voltage(float(s), float(n), float(n * p)) for s, n, p in zip(share, nominal, part, strict=True)]
    np.testing.assert_allclose(together, alone, rtol=1e-12)


def test_the_published_form_is_the_same() -> None:
    share, nominal, threshold = np.geomspace(0.05, 50, 41), 0.8, 0.2
    x = 13.5 * share * nominal * (nominal - threshold) ** 2 / threshold**3 - 1
    third = np.where(x <= 1, np.cos(np.arccos(np.minimum(x, 1)) / 3), np.cosh(np.arccosh(np.maximum(x, 1)) / 3))
    np.testing.assert_allclose(voltage(share, nominal, threshold), 2 / 3 * threshold * (1 + third), rtol=1e-13)


def test_more_power_is_never_slower() -> None:
    clock = speed(overdrive(np.geomspace(1e-9, 1e9, 10_001), 0.8, 0.2), 0.8, 0.2)
    assert (np.diff(clock) > 0).all()


def test_floats_and_arrays_have_the_same_functions() -> None:
    for name in ("sqrt", "sin", "asin", "cosh", "floor"):
        assert getattr(SCALARS, name)(0.7) == pytest.approx(float(getattr(ARRAYS, name)(np.array(0.7))), rel=1e-15)
    assert SCALARS.acosh(1.7) == pytest.approx(float(ARRAYS.acosh(np.array(1.7))), rel=1e-15)
