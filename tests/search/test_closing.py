"""Plans that their program closes at once: the search is right from the first step on, whatever the program shows."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch

from hypothesis import given, note
from hypothesis import strategies as st
from strategies import ROWS, World, share, worlds

import dfopt as df
import dfopt.search as optimizer
from dfopt.documents.request import Request
from dfopt.errors import Infeasible, PlanError
from dfopt.search import jointly
from dfopt.search.verify import verify

sys.path.append(str(Path(__file__).parents[1] / "joint"))
from brute import joint_optimum
from proven import check_value

DRAWN = {
    "most": 4,
    "least": 2,
    "execution": ["library", "kernel_by_kernel"],
    "sharding_objective": "joint",
    "tile_rows": ROWS,
    "empty_partitions": "allow",
}


def check(world: World, step: int) -> None:
    asked: dict[str, object] = {} if world.graph.folded or world.system.chips == 1 else {"pp": 1}
    best = joint_optimum(world.graph, world.system, world.assumptions, Request(**asked))
    with patch.object(jointly, "_CLOSING", step):
        try:
            result = optimizer.solve(world.graph, world.system, assumptions=world.assumptions, **asked)
        except (Infeasible, PlanError):
            assert best is None
            return
        assert best is not None
        note(f"{result.value} {result.status} {result.bound} against {best}")
        check_value(result, best.value)
        assert verify(result).ok


@share(0.2)
@given(worlds(**DRAWN, zero=True), st.integers(1, 3))
def test_the_best_of_all_mappings(world: World, step: int) -> None:
    check(world, step)


@share(0.1)
@given(worlds(**DRAWN, memory=True, compute_model="efficiency"), st.integers(1, 2))
def test_the_best_where_few_bytes_are_moved_slower(world: World, step: int) -> None:
    check(world, step)


def test_a_question_that_took_minutes_is_closed() -> None:
    """A decode of calibrated kernels: its steps came to a gap of 9 % in 40 s, the program of its plan takes one."""
    question = df.Question(
        graph="dit-xl-2", system="h100-8", assumptions="calibrated", options=df.Request.of(tp=8, time_limit=60)
    )
    assert df.solve(question).status == "optimal"
