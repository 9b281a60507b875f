"""Branch and bound over boxes, against looking at everything."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfopt.exploring.boxes import Progress, Stage, search_boxes

Grid = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Box = tuple[tuple[int, int], ...]


def window(values: Grid, box: Box) -> Grid:
    return values[tuple(slice(low, high + 1) for low, high in box)]


@dataclass
class Table:
    """Choices are the cells of an array; what cannot be had is infinite. Bounds are those of a box, less some slack."""

    values: Grid
    slack: Sequence[float] = (2.0, 0.0)
    seen: list[Box] = field(default_factory=list)

    @property
    def roots(self) -> list[Box]:
        return [tuple((0, size - 1) for size in self.values.shape)]

    @property
    def stages(self) -> list[Stage[Box]]:
        def bound(slack: float) -> Stage[Box]:
            return Stage(f"less {slack:g}", lambda box, cutoff: float(window(self.values, box).min()) - slack)

        return [bound(slack) for slack in self.slack]

    def candidates(self, box: Box, best: float) -> list[tuple[float, tuple[int, ...]]]:
        self.seen.append(box)
        middle = tuple((low + high) // 2 for low, high in box)
        value = float(self.values[middle])
        return [(value, middle)] if np.isfinite(value) else []

    def split(self, box: Box) -> list[Box]:
        widest = max(range(len(box)), key=lambda axis: box[axis][1] - box[axis][0])
        low, high = box[widest]
        if low == high:
            return []
        middle = (low + high) // 2
        return [(*box[:widest], part, *box[widest + 1 :]) for part in ((low, middle), (middle + 1, high))]


grids = st.lists(st.one_of(st.floats(0.5, 100), st.just(np.inf)), min_size=24, max_size=24).map(
    lambda values: np.array(values).reshape(2, 3, 4)
)


@dataclass
class Together(Table):
    """The last bound is worked out ahead, of several boxes at a time: it is known when its turn comes."""

    known: dict[Box, float] = field(default_factory=dict)

    @property
    def stages(self) -> list[Stage[Box]]:
        *before, last = super().stages

        def ahead(boxes: Sequence[Box], cutoff: float) -> None:
            assert boxes and len(set(boxes)) == len(boxes) and not self.known.keys() & set(boxes)
            self.known |= {box: last.of(box, cutoff) for box in boxes}

        return [*before, Stage(last.name, lambda box, cutoff: self.known[box], ahead)]


@given(grids, st.sampled_from([(0.0,), (2.0, 0.0), (3.0,), (50.0, 1.0)]), st.integers(1, 3))
def test_bounds_that_are_worked_out_ahead_prove_the_same(values: Grid, slack: Sequence[float], top: int) -> None:
    values = np.round(values, -1)  # so that many bounds are equal
    alone, together = (search_boxes(of, top=top) for of in (Table(values, slack), Together(values, slack)))
    assert together.best == alone.best and [v for v, _ in together.kept] == [v for v, _ in alone.kept]
    cells = [cell for leaf in together.leaves for cell in itertools.product(*(range(a, b + 1) for a, b in leaf.box))]
    assert sorted(cells) == sorted(np.ndindex(values.shape))  # each once
    assert all(leaf.bound <= window(values, leaf.box).min() for leaf in together.leaves)


@given(grids, st.sampled_from([0.0, 0.05, 0.5]), st.sampled_from([(0.0,), (2.0, 0.0), (3.0,), (50.0, 1.0)]))
def test_the_best_and_its_bound_are_those_of_everything(values: Grid, gap: float, slack: Sequence[float]) -> None:
    table = Table(values, slack)
    found = search_boxes(table, gap=gap)
    least = float(values.min())
    if not np.isfinite(least):
        assert found.ending == "empty" and found.choice is None
        return
    assert found.choice is not None and values[found.choice] == found.best
    assert found.bound <= least <= found.best
    if slack[-1] == 0 or found.ending == "optimal":
        assert found.gap <= gap + 1e-12
    if gap == 0 and slack[-1] == 0:
        assert found.best == found.bound == least and found.ending == "optimal"


@given(grids, st.integers(1, 30), st.sampled_from([0.0, 0.1]), st.sampled_from([(0.0,), (2.0, 0.0)]))
def test_several_are_kept_and_nothing_else_is_better(
    values: Grid, top: int, gap: float, slack: Sequence[float]
) -> None:
    found = search_boxes(Table(values, slack), top=top, gap=gap)
    cells = [cell for _, cell in found.kept]
    had = np.sort(values[np.isfinite(values)])[:top]
    assert len(set(cells)) == len(cells) == len(had)
    kept = [value for value, _ in found.kept]
    assert kept == sorted(kept) == [values[cell] for cell in cells]
    if not len(had):
        assert found.ending == "empty"
        return
    others = [values[cell] for cell in np.ndindex(values.shape) if cell not in cells]
    assert min(others, default=np.inf) >= kept[-1] * (1 - gap - 1e-12)
    if gap == 0:
        assert kept == had.tolist() and found.ending == "optimal"


@given(grids, st.sampled_from([0.0, 0.3]))
def test_leaves_hold_each_choice_once_and_none_is_below_its_bound(values: Grid, gap: float) -> None:
    found = search_boxes(Table(values), gap=gap)
    held = [cell for leaf in found.leaves for cell in itertools.product(*(range(a, b + 1) for a, b in leaf.box))]
    assert sorted(held) == sorted(np.ndindex(values.shape))
    for leaf in found.leaves:
        assert leaf.bound <= window(values, leaf.box).min()
    assert found.bound == min([found.best, *(leaf.bound for leaf in found.leaves)])


def test_most_boxes_are_not_looked_into() -> None:
    a, b = np.meshgrid(np.arange(64), np.arange(64))
    table = Table(((a - 20.0) ** 2 + (b - 50.0) ** 2 + 10).astype(float))
    found = search_boxes(table)
    assert found.best == 10 and found.choice == (50, 20)
    assert len(table.seen) < 100
    assert found.bounded["less 0"] <= found.bounded["less 2"] <= found.boxes


def test_a_time_limit_leaves_an_honest_gap() -> None:
    values = np.random.default_rng(1).uniform(1, 2, (16, 16))
    found = search_boxes(Table(values), time_limit=0.0)
    assert found.ending == "time_limit"
    assert found.bound <= values.min()
    assert sum(leaf.bound == -np.inf for leaf in found.leaves) >= 1


@pytest.mark.parametrize("when", [1, 2, 7, 20, 41])
def test_an_interrupt_loses_no_box(when: int) -> None:
    values = np.random.default_rng(2).uniform(1, 2, (8, 8))
    table, calls = Table(values, (2.0,)), itertools.count(1)

    def interrupts(progress: Progress[tuple[int, ...]]) -> None:
        if next(calls) == when:
            raise KeyboardInterrupt

    found = search_boxes(table, progress=interrupts)
    assert found.ending == "interrupted" and found.bound <= values.min()
    held = [cell for leaf in found.leaves for cell in itertools.product(*(range(a, b + 1) for a, b in leaf.box))]
    assert sorted(held) == sorted(np.ndindex(values.shape))
    if found.choice is not None:
        assert values[found.choice] == found.best


def test_progress_never_claims_more_than_it_knows() -> None:
    values = np.random.default_rng(3).uniform(1, 2, (8, 8))
    told: list[Progress[tuple[int, ...]]] = []
    found = search_boxes(Table(values), progress=told.append)
    assert all(one.bound <= values.min() <= one.best for one in told)
    assert [one.best for one in told] == sorted((one.best for one in told), reverse=True)
    assert [one.bound for one in told] == sorted(one.bound for one in told)
    assert told[-1].best == found.best


def test_a_choice_that_is_kept_gets_a_better_value_and_a_stage_may_give_some() -> None:
    class Twice:
        """The least of 4 x over x from 1 to 8, whose values are known a little too high at first."""

        roots = ((1, 8),)

        def __init__(self) -> None:
            self.stages = [Stage("low", lambda box, cutoff: 4.0 * box[0], gives=self._give)]

        @staticmethod
        def _give(box: tuple[int, int], best: float) -> list[tuple[float, int]]:
            return [(4.0 * box[1] + 1, box[1])]

        def candidates(self, box: tuple[int, int], best: float) -> list[tuple[float, int]]:
            return [(4.0 * box[1], box[1])]

        def split(self, box: tuple[int, int]) -> list[tuple[int, int]]:
            (low, high), middle = box, sum(box) // 2
            return [(low, middle), (middle + 1, high)] if low < high else []

    found = search_boxes(Twice(), top=2)
    assert found.kept == ((4.0, 1), (8.0, 2)) and found.ending == "optimal"
