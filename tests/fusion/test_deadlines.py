"""Every step of a fusion that can take long looks at the clock: past its deadline it gives up with what it has."""

from __future__ import annotations

import time
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from problem_cases import partitionings, stages
from stage_cases import gemms, lattice_of
from strategies import share

from dfopt.bnb import ENDED, Clock, OutOfTime
from dfopt.errors import Infeasible, NoSolution
from dfopt.fusion import intrachip, shortfalls
from dfopt.fusion.assignment import Assignment
from dfopt.fusion.classes import distinct, interchangeable
from dfopt.fusion.columns import Columns
from dfopt.fusion.downsets import down_sets
from dfopt.fusion.generation import Generation
from dfopt.fusion.intervals import price_intervals
from dfopt.fusion.intrachip import CutOff, optimize_intrachip
from dfopt.fusion.lattice import ShortestPath
from dfopt.fusion.one_block import OneBlock
from dfopt.fusion.partitioning import IntraChipLimits
from dfopt.fusion.rounding import lined_up
from dfopt.fusion.segments import best_segmentation, precedence, topological_orders
from dfopt.milp import Termination

TABLES = gemms([64] * 6, [(0, 1), (1, 2), (0, 3)], 1e9)
LIMITS = IntraChipLimits(p_max=3)


def test_steps_give_up() -> None:
    order, classes = topological_orders(TABLES)[0], interchangeable(TABLES)
    assert down_sets(TABLES, "shared", 100, ENDED) is None
    search = ShortestPath(TABLES, LIMITS, lattice_of(TABLES), np.inf)
    search.run()
    for step in (
        lambda: list(price_intervals(TABLES, order, "shared", 6, ENDED)),
        lambda: best_segmentation(TABLES, order, 3, False, "shared", ENDED),
        lambda: interchangeable(TABLES, ENDED),
        lambda: OneBlock(TABLES, LIMITS, classes, ENDED),
        lambda: Columns(search, ENDED),
        lambda: Assignment(TABLES, LIMITS, ENDED),
    ):
        with pytest.raises(OutOfTime):
            step()
    assert intrachip.greedy(TABLES, LIMITS, ENDED) is None
    patterns = [np.ones(6, dtype=np.int64)]
    (rest,) = lined_up(patterns, distinct(TABLES), precedence(TABLES)[0], order, ENDED)
    assert (rest == order).all()


class Rounds(Generation):
    """A generation in whose rounds one order takes all of the work."""

    def __init__(self, *of) -> None:
        super().__init__(*of)
        self.wanted, self.taken, self.part = list[int](), list[int](), None

    def _round(self, point, clock) -> None:
        self.wanted.append(int((point.x > 1e-6).sum()))
        self.taken.append(0)
        self.part = clock
        super()._round(point, clock)
        self.part = None

    def _take_up(self, order) -> None:
        if self.part is None:
            super()._take_up(order)
        else:
            self.taken[-1] += 1
            self.clock.charge(self.part.work_left)


def test_a_round_lines_up_blocks_for_half_of_its_work() -> None:
    ends = [(0, 1), (0, 2), (0, 4), (1, 6), (7, 8), (7, 10)]
    search = Rounds(gemms([64] * 12, ends, 2.9 * 64 * 64 * 2), IntraChipLimits(p_max=12))
    search.run(0.0, Clock(work=1e9))
    assert max(search.wanted) > 2
    assert max(search.taken) <= 2  # the first of them, and what the round ends with


@share(0.2)
@given(stages(least=3, limited=True))
def test_what_is_given_up_leaves_a_bound_that_holds(stage) -> None:
    tables, limits = stage
    best = partitionings(tables, limits)[1].min(initial=np.inf)
    found = Generation(tables, limits).run(0.0, ENDED)
    assert found.partition_k is None and found.solution.bound <= best * (1 + 1e-9)
    assert " 0 searches" in found.solution.message and np.isinf(found.solution.objective)
    path = ShortestPath(tables, limits, lattice_of(tables, limits.forward_backward), np.inf).run(ENDED)
    assert not path.complete and path.partition_k is None and path.bound <= best * (1 + 1e-9)


@pytest.mark.parametrize("formulation", ["columns", "assignment"])
def test_without_time_and_start_the_error_says_what_is_known(formulation: str) -> None:
    best = optimize_intrachip(TABLES, LIMITS, lattice=lattice_of(TABLES)).objective
    given_ = {"formulation": formulation}
    with patch.object(time, "perf_counter", ticks(10.0)), pytest.raises(NoSolution) as caught:
        optimize_intrachip(TABLES, LIMITS, clock=Clock.of_limit(1.0), **given_)
    assert 0 < caught.value.bound <= best * (1 + 1e-9)
    start = np.array([0, 1, 2, 1, 2, 2])
    with patch.object(time, "perf_counter", ticks(10.0)):
        found = optimize_intrachip(TABLES, LIMITS, start=start, clock=Clock.of_limit(1.0), **given_)
    assert found.solution.termination is Termination.LIMIT_WITH_SOLUTION
    assert (found.partition_k == start).all() and found.bound <= best * (1 + 1e-9)


def ticks(step: float):
    """A clock that goes on by ``step`` seconds whenever somebody looks at it."""
    now = [0.0]

    def perf_counter() -> float:
        now[0] += step
        return now[0]

    return perf_counter


@pytest.mark.parametrize("limit", range(1, 160, 3))
def test_the_time_may_be_up_anywhere(limit: int) -> None:
    """The clock goes on by a second at every look: a run ends soon behind its deadline, wherever that falls."""
    tables = gemms([64, 80, 96, 64, 112, 64, 80, 64], [(0, 3), (0, 5), (3, 6), (0, 7)], 2.5 * 64 * 64 * 2)
    with patch.object(time, "perf_counter", ticks(1.0)):
        found = Generation(tables, IntraChipLimits(p_max=8)).run(0.0, Clock(float(limit)))
    assert found.solution.bound <= found.solution.objective


def test_a_cutoff_is_not_claimed_for_lack_of_time() -> None:
    with patch.object(time, "perf_counter", ticks(10.0)):
        try:
            optimize_intrachip(TABLES, LIMITS, clock=Clock.of_limit(1.0), cutoff=1e3)
        except CutOff:
            pytest.fail("nothing was proven")
        except NoSolution:
            pass


def test_infeasible_is_said_also_when_there_is_no_time_to_explain_it() -> None:
    tight = replace(LIMITS, p_max=2, exactly=True, pins=((0, 1), (1, 0)))
    with pytest.raises(Infeasible, match="no order of exactly 2 partitions"):
        optimize_intrachip(TABLES, tight, formulation="assignment")
    with (
        patch.object(shortfalls, "explain_infeasible", side_effect=TimeoutError),
        pytest.raises(Infeasible, match="no time left to find out"),
    ):
        optimize_intrachip(TABLES, tight, formulation="assignment", clock=Clock.of_limit(60.0))
