"""Progress: the best mapping so far, what is proven and what is open of a search, as it goes on."""

from __future__ import annotations

import math
import re
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import World, worlds

import dfopt as df
from dfopt.errors import Infeasible
from dfopt.search import workload_search
from dfopt.show.progress import ProgressLine
from dfopt.solving import matrices
from dfopt.solving.options import Progress


def counts(report: Progress) -> tuple[int, int]:
    """Plans that are open, and listed."""
    if report.problem == "no plans listed yet":
        return 0, 0
    words = re.fullmatch(r"([\d,]+) of ([\d,]+) plans open", report.problem)
    assert words is not None, report.problem
    return int(words[1].replace(",", "")), int(words[2].replace(",", ""))


@given(worlds(sharding_objective=["joint", "seconds"], empty_partitions=["allow"]), st.booleans())
def test_reports_never_claim_more_than_the_result_proves(world: World, by_levels: bool) -> None:
    """Also where stages are chosen with the sharding, whose plans have their turn after all others."""
    reports = list[Progress]()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(workload_search, "_REPORT_S", -math.inf)  # whenever the clock is asked
        patched.setattr(matrices, "_SMALL", 0 if by_levels else matrices._SMALL)
        try:
            result = df.optimize(world.graph, world.system, assumptions=world.assumptions, progress=reports.append)
        except Infeasible:
            assert all(report.incumbent == math.inf for report in reports if not report.part)
            return
    reports = [report for report in reports if not report.part]
    best = [report.incumbent for report in reports]
    assert best == sorted(best, reverse=True) and best[-1] == pytest.approx(result.value, rel=1e-12)
    assert reports[-1].plan == result.plan.label
    assert all(0 <= report.bound <= result.value * (1 + 1e-9) for report in reports)
    if world.assumptions.sharding_objective == "joint" and not result.apart:
        assert all(report.bound <= result.bound * (1 + 1e-9) for report in reports)
    open_and_listed = [counts(report) for report in reports]
    assert all(open_ <= listed for open_, listed in open_and_listed)
    assert open_and_listed[-1][1] <= len({record.plan for record in result.plans})


def test_plans_are_closed_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload_search, "_REPORT_S", -math.inf)
    reports = list[Progress]()
    result = df.optimize("gpt2-small", "sn10-8-ring", microbatch=1, sensitivity=False, progress=reports.append)
    known = [(*counts(report), report) for report in reports if not report.part]
    listed = len({record.plan for record in result.plans})
    assert [known[0][2].plan, known[0][2].incumbent] == ["no mapping yet", math.inf]
    assert max(open_ for open_, *_ in known) == listed and known[-1][:2] == (0, listed)
    assert 0 < known[0][2].bound < known[-1][2].bound


def lines(*reports: Progress) -> list[str]:
    """What is written of reports that come every ten seconds."""
    stream = StringIO()
    line = ProgressLine(stream)
    for report in reports:
        line._began -= 10
        line(report)
    return [written.split(" s  ", 1)[1] for written in stream.getvalue().splitlines()]


def test_lines_are_of_the_whole_search() -> None:
    """A solve under one plan says that the search is alive; its figures are of another problem."""
    part = Progress("TP8", "interchip", 1.0, 0.279081, -math.inf, part=True)
    searched = [
        Progress("no mapping yet", "no plans listed yet", 1.0, math.inf, 0.0),
        Progress("no mapping yet", "2 of 12,651 plans open", 1.0, math.inf, 1.5),
        Progress("TP8 PP1 DP4", "2 of 12,651 plans open", 1.0, 2.0, 1.5),
    ]
    assert lines(part, *searched, part) == [
        "no mapping yet, no bound yet, no plans listed yet",
        "no mapping yet, bound 1.5 s, 2 of 12,651 plans open",
        "best 2 s, bound 1.5 s, gap 25.00 %, 2 of 12,651 plans open: TP8 PP1 DP4",
        "best 2 s, bound 1.5 s, gap 25.00 %, 2 of 12,651 plans open: TP8 PP1 DP4",
    ]
    explored = Progress("n3", "5 boxes, 4 solves", 1.0, 3.0, 1.5, "USD")
    assert lines(explored) == ["best 3 USD, bound 1.5 USD, gap 50.00 %, 5 boxes, 4 solves: n3"]
    largest = Progress("n3", "5 boxes", 1.0, 1.5, 3.0, "tokens/s")  # a bound from above
    assert lines(largest) == ["best 1.5 tokens/s, bound 3 tokens/s, gap 50.00 %, 5 boxes: n3"]
