"""Forty searches come to the same answers by the same steps, on an idle machine or a busy one."""

from __future__ import annotations

import pytest
from traces import cases, trace

CASES = cases()


def test_there_are_forty() -> None:
    assert len(CASES) == 40 and len({one["order"] for one in CASES.values()}) > 30


@pytest.mark.parametrize("name", CASES)
def test_a_search_takes_the_steps_that_are_on_record(name: str) -> None:
    recorded = dict(CASES[name])
    now = trace(recorded.pop("question"))
    for figure in ("value", "bound"):
        assert now.pop(figure, 0.0) == pytest.approx(recorded.pop(figure, 0.0), rel=1e-9)
    assert now == recorded
