"""Chains through a pipeline against its schedule, pass by pass, and what a step takes of the times of its stages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.plan import Plan
from dfopt.physics.fill import Line, chains, line_of
from dfopt.physics.metrics import Constants, most_of_stage, step_seconds
from dfopt.physics.schedule import blocks

Pass = tuple[str, int, int]  # forward or back, chunk, microbatch


class Case(NamedTuple):
    """Seconds of the forward and of the backward pass through every chunk of every stage."""

    forward: list[list[float]]
    back: list[list[float]]
    microbatches: int

    @property
    def stages(self) -> list[float]:
        """Seconds of every stage."""
        return [sum(ahead) + sum(back) for ahead, back in zip(self.forward, self.back, strict=True)]


def order(stages: int, chunks: int, stage: int, microbatches: int, schedule: str) -> list[Pass]:
    """What a stage does, as Megatron-LM's schedules have it, written down anew."""
    ahead, back = list[Pass](), list[Pass]()
    for number in range(microbatches * chunks):
        turn, place = divmod(number, stages * chunks)
        chunk, one = divmod(place, stages)
        ahead.append(("forward", chunk, turn * stages + one))
        back.append(("back", chunks - 1 - chunk, turn * stages + one))
    if chunks == 1:
        ahead, back = ([(name, 0, one) for one in range(microbatches)] for name in ("forward", "back"))
    if schedule == "inference":
        return ahead
    if schedule == "gpipe":
        return ahead + back
    behind = stages - 1 - stage
    warm = min(behind if chunks == 1 else 2 * behind + (chunks - 1) * stages, len(ahead))
    found = ahead[:warm]
    for number, one in enumerate(ahead[warm:]):
        found += [one, back[number]]
    return found + back[len(ahead) - warm :]


def simulated(case: Case, schedule: str) -> float:
    """Seconds of a step in which every pass begins as soon as its stage and the pass before it are done."""
    stages, chunks = len(case.forward), len(case.forward[0])
    left = [order(stages, chunks, stage, case.microbatches, schedule) for stage in range(stages)]
    clock, done = [0.0] * stages, dict[tuple[int, str, int, int], float]()
    while any(left):
        before = sum(map(len, left))
        for stage, todo in enumerate(left):
            while todo:
                name, chunk, one = todo[0]
                needs = (stage - 1, name, chunk, one) if name == "forward" else (stage + 1, name, chunk, one)
                if name == "forward" and stage == 0:
                    needs = (stages - 1, name, chunk - 1, one)
                elif name == "back" and stage == stages - 1:
                    last = chunk == chunks - 1
                    needs = (stage, "forward", chunk, one) if last else (0, name, chunk + 1, one)
                first = name == "forward" and stage == chunk == 0
                if not first and needs not in done:
                    break
                takes = (case.forward if name == "forward" else case.back)[stage][chunk]
                clock[stage] = max(clock[stage], 0.0 if first else done[needs]) + takes
                done[stage, name, chunk, one] = clock[stage]
                todo.pop(0)
        assert sum(map(len, left)) < before
    return max(clock)


def told(stages: Sequence[float], microbatches: int, chunks: int = 1, *, turns: bool = True) -> float:
    """The longest chain."""
    return float(chains(stages, [1] * len(stages), microbatches, chunks, turns=turns).max())


def added(stages: Sequence[float], microbatches: int, chunks: int = 1) -> float:
    """The slowest stage for every microbatch, and every other one once, over its chunks."""
    return microbatches * max(stages) + (sum(stages) - max(stages)) / chunks


@st.composite
def cases(draw: st.DrawFn, least: float = 0.0, chunks: int = 1, share: float | None = None) -> Case:
    """Stages of up to 1 s, no less than ``least``, and a share of that for the forward pass, or any of each."""
    stages = draw(st.integers(2, 6))
    microbatches = draw(st.integers(1, 12)) if chunks == 1 else stages * draw(st.integers(1, 4))
    times = [draw(st.floats(least, 1.0)) for _ in range(stages)]
    part = [draw(st.floats(0.0, 1.0)) if share is None else share for _ in times]
    forward = [[each * one / chunks] * chunks for each, one in zip(times, part, strict=True)]
    back = [[each * (1 - one) / chunks] * chunks for each, one in zip(times, part, strict=True)]
    return Case(forward, back, microbatches)


@given(cases())
def test_no_schedule_is_faster_than_a_chain(case: Case) -> None:
    """Whatever share of each stage is forward."""
    for schedule, turns in (("one_f_one_b", True), ("gpipe", False)):
        assert told(case.stages, case.microbatches, turns=turns) <= simulated(case, schedule) * (1 + 1e-12)
    alone = Case([[one] for one in case.stages], [[0.0] for _ in case.stages], case.microbatches)
    assert told(case.stages, case.microbatches, turns=False) == pytest.approx(simulated(alone, "inference"), rel=1e-12)


@given(cases(least=0.67, share=1 / 3))
def test_the_longest_chain_is_the_step_where_stages_are_not_too_different(case: Case) -> None:
    """All at least as long as the longer pass of the slowest, microbatches enough for all: exact; never above the sum.

    With fewer microbatches than stages, of stages of up to so different times, less than 15 % below.
    """
    step, longest = simulated(case, "one_f_one_b"), told(case.stages, case.microbatches)
    if case.microbatches > len(case.stages):
        assert longest == pytest.approx(step, rel=1e-12)
    assert step * 0.85 <= longest <= step * (1 + 1e-12) <= added(case.stages, case.microbatches) * (1 + 1e-9)
    assert told(case.stages, case.microbatches, turns=False) == pytest.approx(simulated(case, "gpipe"), rel=1e-12)


@given(cases(least=1.0, share=1 / 3), st.floats(0.0, 2.0))
def test_a_last_stage_with_logits_is_the_slowest(case: Case, more: float) -> None:
    """Whatever it has more than the others: every other stage once, and all the work of the last."""
    case.forward[-1][0] += more / 3
    case.back[-1][0] += more * 2 / 3
    by_hand = sum(case.stages[:-1]) + case.microbatches * case.stages[-1]
    assert told(case.stages, case.microbatches) == pytest.approx(by_hand, rel=1e-12)
    assert simulated(case, "one_f_one_b") == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize("chunks", [2, 4])
@given(data=st.data(), more=st.floats(0.0, 0.5))
def test_interleaved_stages(chunks: int, data: st.DataObject, more: float) -> None:
    """Exact where chunks are equal and the last one has more; within a fifth, and never above the sum, in general."""
    case = data.draw(cases(least=1.0, chunks=chunks, share=1 / 3))
    case.forward[-1][-1] += more / 3
    case.back[-1][-1] += more * 2 / 3
    step = simulated(case, "one_f_one_b")
    assert told(case.stages, case.microbatches, chunks) == pytest.approx(step, rel=1e-12)
    case = data.draw(cases(least=0.7, chunks=chunks, share=1 / 3))
    step, longest = simulated(case, "one_f_one_b"), told(case.stages, case.microbatches, chunks)
    assert step * 0.8 <= longest <= step * (1 + 1e-9)
    assert step <= added(case.stages, case.microbatches, chunks) * (1 + 1e-9)


@given(cases(share=1 / 3))
def test_the_order_of_passes_is_that_which_is_drawn(case: Case) -> None:
    """The schedule of :mod:`dfopt.physics.schedule`, which plots show, takes as long."""
    times = [list(zip(*both, strict=True)) for both in zip(case.forward, case.back, strict=True)]
    made = blocks(Plan(pp=len(times)), "one_f_one_b", times, True, case.microbatches)
    assert max(block.end for stage in made for block in stage) == pytest.approx(simulated(case, "one_f_one_b"))


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(1, 4)), min_size=1, max_size=4), st.integers(1, 9))
def test_stages_that_are_alike_are_counted(runs: list[tuple[float, int]], rounds: int) -> None:
    """Runs of equal stages, with gaps between them, give what their stages do one by one; so do many lines at once."""
    every = [one for one, count in runs for _ in range(count)]
    for turns in (True, False):
        whole = told(every, rounds, turns=turns)
        gaps = [(one, n) for run in runs for one, n in (run, (7.0, 0))]
        seconds, counts = (np.array([[run[at] for run in gaps]] * 2) for at in (0, 1))
        both = chains(seconds, counts, np.array([rounds, rounds + 1]), np.ones(2), turns=turns).max(axis=-1)
        assert both.tolist() == pytest.approx([whole, told(every, rounds + 1, turns=turns)], rel=1e-12)
        places = tuple(number for number, (_, count) in enumerate(runs) for _ in range(count))
        line = Line(places, rounds, 1, turns)
        assert line.seconds([one for one, _ in runs]) == pytest.approx(whole, rel=1e-12)


def test_what_never_ends() -> None:
    line = Line((0, 1, 1, 2), 8, 1, turns=True)
    assert [line.seconds([*[1.0] * at, math.inf, *[1.0] * (2 - at)]) for at in range(3)] == [math.inf] * 3


TIMES = st.lists(st.floats(0.0, 1e6), min_size=5, max_size=5)


@st.composite
def constants(draw: st.DrawFn) -> Constants:
    plan = Plan(
        pp=draw(st.integers(1, 64)),
        microbatches=draw(st.integers(1, 4096)),
        interleave=draw(st.integers(1, 8)),
        layers_per_stage=draw(st.integers(1, 128)),
    )
    assumptions = Assumptions(
        bubble=draw(st.sampled_from(["one_f_one_b", "interleaved", "stages"])),
        schedule=draw(st.sampled_from(["one_f_one_b", "gpipe"])),
        step_overhead=draw(st.none() | st.floats(0.0, 1e3)),
    )
    places = [*range(5), *draw(st.lists(st.integers(0, 4), max_size=6))]  # five distinct stages, in some order
    line = line_of(plan, assumptions, draw(st.booleans()), draw(st.permutations(places)))
    return Constants(plan, assumptions, line)


@given(times=TIMES, more=st.floats(0.0, 1e6), at=st.integers(0, 4), of=constants())
def test_a_slower_stage_never_helps(times: list[float], more: float, at: int, of: Constants) -> None:
    """What bounds of plans rest on: the same function of lower bounds is a lower bound."""
    slower = list(times)
    slower[at % len(times)] += more
    assert step_seconds(slower, of) >= step_seconds(times, of) * (1 - 1e-12)


@given(times=TIMES, at=st.integers(0, 4), of=constants(), factor=st.floats(1.0, 3.0))
def test_most_is_the_largest_time(times: list[float], at: int, of: Constants, factor: float) -> None:
    """A stage that takes longer than ``most`` exceeds the value, one that takes as long does not."""
    at %= len(times)
    value = step_seconds(times, of) * factor + 1.0
    most = most_of_stage(value, times, at, of)
    there, beyond = list(times), list(times)
    there[at], beyond[at] = most, most * (1 + 1e-9) + 1e-9
    assert step_seconds(there, of) <= value * (1 + 1e-9)
    assert step_seconds(beyond, of) > value * (1 - 1e-9)


def test_step_time_by_hand() -> None:
    """Sixteen microbatches through the slowest of four stages, and three of its times to fill the pipeline."""
    of = Constants(Plan(pp=4, microbatches=16), Assumptions(step_overhead=0.75))
    assert math.isclose(step_seconds([1.0, 2.0, 1.5, 2.0], of), 2.0 * (16 + 3) + 0.75)
