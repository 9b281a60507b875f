"""Claims: their arithmetic against numbers worked out by hand, and what leaves them open."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfopt.documents.study_entries import Claim
from dfopt.studies.claims import Verdict, judge

A, B = "chip == 'a'", "chip == 'b'"
FRAME = pd.DataFrame(
    {
        "chip": ["a", "a", "a", "b", "b", "b"],
        "link": ["x", "y", "z", "x", "y", "z"],
        "size": [1, 2, 3, 1, 2, 3],
        "speed": [8.0, 2.0, 2.0, 4.0, 4.0, 0.5],
        "cost": [2.0, 2.0, 4.0, 1.0, 1.0, 1.0],
        "status": "optimal",
    }
)


def claim(**changes: Any) -> Claim:
    return Claim(**{"name": "c", "value": "speed", "at_least": 0.0, **changes})


def check(frame: Any = FRAME, **changes: Any) -> Verdict:
    return judge(claim(**changes), frame)


@pytest.mark.parametrize(
    ("changes", "ours"),
    [
        ({}, 20.5 / 6),
        ({"over": A}, 4.0),
        ({"over": A, "against": B}, 12.0 / 8.5),
        ({"over": A, "against": B, "aggregate": "geometric_mean"}, (32.0 / 8.0) ** (1 / 3)),
        ({"over": A, "against": B, "aggregate": "median"}, 2.0 / 4.0),
        ({"over": A, "against": B, "aggregate": "max"}, 2.0),
        ({"over": A, "against": B, "aggregate": "min"}, 4.0),
        # 8/4, 2/4 and 2/0.5, link by link
        ({"over": A, "against": B, "aggregate": "mean_of_ratios", "match": ("link",)}, (2.0 + 0.5 + 4.0) / 3),
        # links y and z of b against the only link x of a, which none of them is equal to but x
        ({"over": A, "against": "chip == 'b' and link == 'x'", "aggregate": "mean_of_ratios", "match": ("link",)}, 2.0),
        ({"over": A, "against": B, "aggregate": "geometric_mean_of_ratios", "match": ("link",)}, 4.0 ** (1 / 3)),
        ({"over": A, "against": B, "aggregate": "min_of_ratios", "match": ("link",)}, 0.5),
        ({"over": A, "against": B, "aggregate": "max_of_ratios", "match": ("link",)}, 4.0),
        # all of a in one group, all of b in another: the means of the groups
        ({"over": A, "against": B, "aggregate": "max_of_ratios", "match": ("status",)}, 12.0 / 8.5),
        ({"over": B, "aggregate": "argmin", "of": "size"}, 3.0),
        ({"over": A, "aggregate": "argmax", "of": "size * 10"}, 10.0),
        ({"value": "speed / cost", "over": A}, (4.0 + 1.0 + 0.5) / 3),
        ({"value": "-speed + 1", "over": B, "aggregate": "max"}, 0.5),
        ({"value": "7", "over": B}, 7.0),
    ],
)
def test_arithmetic(changes: dict[str, Any], ours: float) -> None:
    found = check(**changes)
    assert found.ours == pytest.approx(ours, rel=1e-12)
    assert found.holds is True


@pytest.mark.parametrize(
    ("changes", "holds", "expected"),
    [
        ({"paper": 5.0, "within": 0.2}, True, "5 ± 20 %"),  # exactly at the limit
        ({"paper": 5.0, "within": 0.19}, False, "5 ± 19 %"),
        ({"paper": 3.4, "within": 0.2}, True, "3.4 ± 20 %"),
        ({"paper": 3.3, "within": 0.2}, False, "3.3 ± 20 %"),
        ({"paper": 9.0, "at_least": 4.0}, True, ">= 4"),
        ({"at_least": 4.1}, False, ">= 4.1"),
        ({"at_most": 4.0}, True, "<= 4"),
        ({"at_most": 3.9}, False, "<= 3.9"),
        ({"at_least": 3.0, "at_most": 3.9}, False, ">= 3, <= 3.9"),
    ],
)
def test_what_holds(changes: dict[str, Any], holds: bool, expected: str) -> None:
    found = judge(Claim(name="c", value="speed", over=A, reason="because", **changes), FRAME)
    assert (found.holds, found.expected) == (holds, expected)
    assert found.why == ("" if holds else "because")


@given(st.lists(st.floats(0.1, 1e3), min_size=1, max_size=8), st.lists(st.floats(0.1, 1e3), min_size=1, max_size=8))
def test_a_ratio_of_aggregates_turns_over(top: list[float], bottom: list[float]) -> None:
    frame = pd.DataFrame({"chip": ["a"] * len(top) + ["b"] * len(bottom), "speed": top + bottom, "status": "optimal"})
    for aggregate in ("mean", "geometric_mean", "median", "min", "max"):
        there = check(frame, over=A, against=B, aggregate=aggregate).ours
        back = check(frame, over=B, against=A, aggregate=aggregate).ours
        assert there is not None and back is not None
        assert there * back == pytest.approx(1.0)


def test_cells_without_a_figure_are_left_out_and_told() -> None:
    frame = FRAME.assign(speed=[8.0, math.nan, 2.0, 4.0, math.nan, math.nan], status="infeasible")
    found = check(frame, over=A, against=B)
    assert (found.ours, found.cells) == (1.25, "2 of 3 against 1 of 3")
    assert found.why == "3 cells without a figure left out"


@pytest.mark.parametrize(
    ("changes", "frame", "why"),
    [
        ({"over": "chip == 'c'"}, FRAME, "over selects no cell"),
        ({"against": "size > 3"}, FRAME, "against selects no cell"),
        ({"over": A}, FRAME.assign(status=["pending"] * 2 + ["optimal"] * 4), "2 of the cells not run yet"),
        ({"over": A}, FRAME.assign(speed=math.nan), "none of the cells of over has this figure"),
        ({"over": A, "against": B}, FRAME.assign(speed=[1.0] * 3 + [math.nan] * 3), "none of the cells of against"),
        ({"over": A, "against": B}, FRAME.assign(speed=[1.0] * 3 + [0.0] * 3), "the figure of against is 0"),
        ({"over": A, "aggregate": "geometric_mean"}, FRAME.assign(speed=0.0), "needs figures above 0, found 0 in over"),
        (
            {"over": "link == 'x'", "against": "link == 'y'", "aggregate": "mean_of_ratios", "match": ("link",)},
            FRAME,
            "no cells of over and against are equal in link",
        ),
    ],
)
def test_what_leaves_a_claim_open(changes: dict[str, Any], frame: Any, why: str) -> None:
    found = check(frame, **changes)
    assert (found.ours, found.holds) == (None, None)
    assert why in found.why


def test_pending_cells_outside_the_selection_do_not_matter() -> None:
    found = check(FRAME.assign(status=["optimal"] * 3 + ["pending"] * 3), over=A)
    assert found.ours == 4.0


def test_labels_may_be_missing() -> None:
    """The memory of a system that is given as a whole has no label, and still matches itself."""
    frame = FRAME.assign(memory=None)
    found = check(frame, over=A, against=B, aggregate="mean_of_ratios", match=("memory", "link"))
    assert found.ours == pytest.approx(6.5 / 3)
