"""A search that is stopped after some steps: what it says of every plan holds against what is in the answer."""

from __future__ import annotations

from typing import Any

import pytest
from dfopt.search.branching import Search
from dfopt.search.jointly import JointSearch

import dfopt as df
from dfopt.search.verify import verify

CASES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "seconds": ({"top": 3, "set": {"sharding_objective": "seconds"}}, (8, 16, 24)),
    "bytes": ({"set": {"sharding_objective": "bytes"}}, (6, 12)),
    "joint": ({"phase": "training"}, (30,)),
    "next best": ({"top": 3, "distinct": "sharding", "pp": 1}, (50,)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_plan_is_excluded_only_by_what_is_in_the_answer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By no start that was dropped when time was up, whenever that is."""
    options, steps = CASES[name]
    left = [0]

    def out_of_time(search: Search, something: bool) -> bool:
        left[0] -= 1
        return left[0] < 0

    for kind in (Search, JointSearch):
        monkeypatch.setattr(kind, "_out_of_time", out_of_time)
    for number in steps:
        left[0] = number
        result = df.optimize("gpt2-small", "sn10-8-torus", time_limit=600, **options)
        assert result.status == "limit_with_solution"
        assert name != "next best" or (result.gap == 0 and "not all of the next best are proven" in str(result))
        left[0] = 10**9
        found = verify(result)
        assert found.ok, (number, found.problems)
