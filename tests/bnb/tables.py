"""A problem whose members are the cells of an array: what cannot be had is infinite, and every bound can be checked."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
from hypothesis import strategies as st

from dfopt.bnb import (
    BRANCHING,
    Bound,
    BranchingRule,
    Candidate,
    Clock,
    Heuristic,
    LeafAnswer,
    LeafSolver,
    Node,
    Outcome,
    Problem,
    Relaxation,
    View,
)

Grid = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Box = tuple[tuple[int, int], ...]
Cell = tuple[int, ...]

GRIDS = st.lists(st.one_of(st.floats(0.5, 100), st.just(np.inf)), min_size=24, max_size=24).map(
    lambda values: np.array(values).reshape(2, 3, 4)
)
SLACKS = st.sampled_from([(0.0,), (2.0, 0.0), (3.0,), (50.0, 1.0)])


def window(values: Grid, box: Box) -> Grid:
    """The values of the cells of a box."""
    return values[tuple(slice(low, high + 1) for low, high in box)]


def cells_of(boxes: Iterable[Box]) -> list[Cell]:
    """The cells of some boxes, in order, each as often as a box holds it."""
    return sorted(cell for box in boxes for cell in itertools.product(*(range(a, b + 1) for a, b in box)))


def whole(values: Grid) -> Box:
    """The box of all cells."""
    return tuple((0, size - 1) for size in values.shape)


class Least(Relaxation[Box, float]):
    """The least value of a box, less some slack."""

    def __init__(self, values: Grid, slack: float) -> None:
        self.name, self.values, self.slack = f"less {slack:g}", values, slack

    def answers(self, regions: Sequence[Box], cutoff: float, clock: Clock) -> list[float]:
        """One unit of work each."""
        clock.charge(len(regions))
        return [float(window(self.values, box).min()) - self.slack for box in regions]


class Middle(Heuristic[Box, Cell]):
    """The cell in the middle of a box; which boxes it saw."""

    def __init__(self, values: Grid) -> None:
        self.values, self.seen = values, list[Box]()

    def due(self, node: Node[Box], after: str) -> bool:
        """Before a box is divided."""
        return after == BRANCHING

    def propose(self, node: Node[Box], view: View) -> list[Candidate]:
        """The cell, if it can be had."""
        self.seen.append(node.region)
        middle = tuple((low + high) // 2 for low, high in node.region)
        value = float(self.values[middle])
        return [Candidate(value, middle)] if np.isfinite(value) else []


class OneCell(LeafSolver[Box, Cell]):
    """A box of one cell is decided by its value: it has no other member."""

    def __init__(self, values: Grid) -> None:
        self.values = values

    def accepts(self, region: Box, bound: Bound) -> bool:
        """One cell."""
        return all(low == high for low, high in region)

    def solve(self, region: Box, bound: Bound, view: View, clock: Clock) -> LeafAnswer:
        """The cell, if it can be had."""
        cell = tuple(low for low, _ in region)
        value = float(self.values[cell])
        return LeafAnswer([Candidate(value, cell)] if np.isfinite(value) else [])


class Halves(BranchingRule[Box]):
    """A box in two halves, along its longest side."""

    def children(self, region: Box, bound: Bound, view: View) -> list[tuple[Box, float]]:
        """Two, or none of one cell."""
        widest = max(range(len(region)), key=lambda axis: region[axis][1] - region[axis][0])
        low, high = region[widest]
        if low == high:
            return []
        middle = (low + high) // 2
        parts = ((low, middle), (middle + 1, high))
        return [((*region[:widest], part, *region[widest + 1 :]), bound.value) for part in parts]


def problem(values: Grid, slack: Sequence[float] = (2.0, 0.0)) -> Problem[Box, Cell]:
    """All cells, bounded by their least values with less and less slack."""
    return Problem(
        [whole(values)], [Least(values, one) for one in slack], [Halves()], [Middle(values)], leaves=[OneCell(values)]
    )


def covers(region: Box, parts: Sequence[Box]) -> bool:
    """Whether some boxes hold every cell of another one, each once."""
    return cells_of(parts) == cells_of([region])


def check_leaves(found: Outcome[Box, Cell], values: Grid) -> None:
    """Leaves hold each cell once, and none is below the bound of its leaf, but for what is kept."""
    assert cells_of(leaf.region for leaf in found.leaves) == sorted(np.ndindex(values.shape))
    for leaf in found.leaves:
        assert leaf.bound <= window(values, leaf.region).min()
