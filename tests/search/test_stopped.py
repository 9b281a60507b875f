"""A search that is stopped after some steps: what it says of every plan holds against what is in the answer."""

from __future__ import annotations

from typing import Any

import pytest
from counted_clock import over_when

import dfopt as df
from dfopt.search.state import SearchState
from dfopt.search.verify import verify
from dfopt.solving.solved import Solved

CASES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "seconds": ({"top": 3, "set": {"sharding_objective": "seconds"}}, (0, 8, 24)),
    "bytes": ({"top": 3, "set": {"sharding_objective": "bytes"}}, (0, 6)),
    "joint": ({"phase": "training", "microbatch": "1", "recompute": "none"}, (0, 8)),
    "next best": ({"top": 3, "distinct": "sharding", "pp": 1}, (20,)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_plan_is_excluded_only_by_what_is_in_the_answer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By no start that was dropped when time was up, whenever that is."""
    (options, steps), cut_off = CASES[name], 0
    for number in steps:
        left, accept = [number], SearchState.accept
        found = list[Solved]()

        def kept(state: SearchState, outcome: Solved, accept=accept, found=found) -> None:
            accept(state, outcome)
            found.append(outcome)

        def is_over(left=left, found=found) -> bool:
            left[0] -= bool(found)
            return left[0] < 0

        with monkeypatch.context() as patched:
            patched.setattr(SearchState, "accept", kept)
            over_when(patched, is_over)
            result = df.optimize("gpt2-small", "sn10-8-torus", time_limit=600, **options)
        if result.status == "optimal":  # the time was enough
            break
        cut_off += 1
        assert result.status == "limit_with_solution"
        assert name != "next best" or (result.gap == 0 and "not all of the next best are proven" in str(result))
        checked = verify(result)
        assert checked.ok, "\n".join([str(number), *checked.problems])
    assert cut_off
