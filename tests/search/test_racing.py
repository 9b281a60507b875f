"""Searches of several microbatches: who takes the next step, and that the order changes nothing that is proven."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

import dfopt as df
from dfopt.bnb import UNLIMITED, Clock
from dfopt.documents.result import TOO_MANY, status_words
from dfopt.search import known, racing
from dfopt.search.verify import verify


@dataclass
class Runner:
    """What `race` asks of a search."""

    microbatch: int
    clock: Clock
    stopped: bool = False

    @property
    def options(self) -> Any:
        return SimpleNamespace(clock=self.clock)

    @property
    def setting(self) -> Any:
        return SimpleNamespace(graph=SimpleNamespace(microbatch=self.microbatch))

    def stop(self) -> None:
        self.stopped = True


def steps(log: list[int], name: int, bounds: list[float]) -> Iterator[tuple[bool, float]]:
    for bound in bounds:
        log.append(name)
        yield False, bound


def raced(sizes: list[int], bounds: list[list[float]], plans: int) -> list[int]:
    log: list[int] = []
    clock = Clock.of_limit(60.0)
    runners: Any = [Runner(size, clock) for size in sizes]
    racing.race(runners, [steps(log, number, each) for number, each in enumerate(bounds)], plans)
    return log


def test_the_least_bound_takes_the_next_step() -> None:
    assert raced([4, 2], [[1.0, 5.0, 6.0], [2.0, 3.0, 7.0]], 10) == [0, 1, 0, 1, 1, 0]


def test_whole_batches_go_ahead_where_plans_are_very_many() -> None:
    assert raced([1, 4, 2], [[1.0], [8.0, 9.0], [2.0]], racing.MANY + 1) == [1, 1, 0, 2]


def test_what_is_left_after_the_start_races_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(racing, "_AHEAD_WORK", 0.0)  # over before it begins
    assert sorted(raced([1, 4], [[1.0], [2.0, 3.0]], racing.MANY + 1)) == [0, 1, 1]


def test_when_one_is_stopped_all_are() -> None:
    runners: Any = [Runner(2, UNLIMITED), Runner(1, UNLIMITED)]

    def stopping() -> Iterator[tuple[bool, float]]:
        runners[0].stopped = True
        yield False, 1.0

    racing.race(runners, [stopping(), iter([])], 2)
    assert runners[1].stopped


def test_a_start_changes_no_answer_and_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [df.load_graph("gpt2-small", mode="training", batch=16, microbatch=size) for size in (1, 2, 4)]

    def found() -> df.Result:
        return df.optimize(drawn[0], "sn10-8-ring", variants=drawn[1:], sensitivity=False)

    usual = found()
    monkeypatch.setattr(racing, "MANY", 0)
    ahead = found()
    assert ahead.step_time == pytest.approx(usual.step_time, rel=1e-12)
    assert (ahead.gap, ahead.plan, ahead.graph.microbatch) == (0.0, usual.plan, usual.graph.microbatch)
    assert {record.plan for record in ahead.plans} == {record.plan for record in usual.plans}
    assert verify(ahead).verdict == "verified optimal"


def test_beyond_very_many_plans_no_other_graph_lists_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left is bounded by what all chips have to do at least, and the answer says why it is open."""
    monkeypatch.setattr(known, "_MOST_PLANS", 0)
    asked: dict[str, Any] = {"batch": 16}
    few = df.optimize("gpt2-small", "sn10-8-ring", tp=8, **asked)
    monkeypatch.undo()
    every = df.optimize("gpt2-small", "sn10-8-ring", tp=8, **asked)
    assert few.bound <= every.value <= few.value and few.apart is not None and every.status == "optimal"
    left = [record for record in few.apart if record.status == "limit"]
    assert left and {record.note for record in left} == {TOO_MANY}
    assert status_words(few).startswith(TOO_MANY) and len(few.plans) < len(every.plans)
    assert verify(few).ok
