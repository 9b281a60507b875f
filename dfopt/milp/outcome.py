"""What every solver run is asked for and leaves behind, whichever door it went through."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Protocol

import numpy as np
import scipy.sparse as sp

from dfopt.milp.arrays import FloatArray, ModelArrays
from dfopt.milp.solution import TracePoint

_REPORT_EVERY = 0.5  # seconds between two progress reports without improvement
_BOUND_EVERY = 0.1  # seconds between two trace points that only move the bound

Progress = Callable[[TracePoint], None]


class Ending(Enum):
    """What a solver says of a run, before anybody has checked it."""

    OPTIMAL = auto()  # proven to the gap it was asked for
    INFEASIBLE = auto()
    UNBOUNDED = auto()  # perhaps of the relaxation only
    UNCLEAR = auto()  # infeasible or unbounded
    DOUBTFUL = auto()  # infeasible, by a word not to be relied on
    LIMIT = auto()
    INTERRUPTED = auto()
    BROKEN = auto()


@dataclass(frozen=True)
class Settings:
    """Options of one run; ``threads`` of None leaves it to the door, ``again`` says that the first answer was wrong."""

    gap: float = 0.0
    seed: int = 0
    threads: int | None = None
    presolve: bool = True
    cutoff: float | None = None
    again: bool = False

    @property
    def tolerance(self) -> float:
        """The feasibility tolerance: 1e-9 is at the edge of what solvers can do, the second time it is their own."""
        return 1e-7 if self.again else 1e-9


@dataclass(frozen=True)
class Outcome:
    """What a run left behind; ``said`` is the ending in the solver's own words, ``note`` what it was not told."""

    ending: Ending
    x: FloatArray | None = None
    objective: float = math.inf
    bound: float = -math.inf
    nodes: int = 0
    points: tuple[TracePoint, ...] = ()
    said: str = ""
    note: str = ""


class Runner(Protocol):
    """One run of a solver, back soon after ``deadline``; both times are ``time.perf_counter`` readings."""

    def __call__(
        self,
        arrays: ModelArrays,
        settings: Settings,
        start: FloatArray | None,
        deadline: float,
        zero: float,
        progress: Progress | None = None,
    ) -> Outcome: ...


def slack(value: float, room: float = 1e-9) -> float:
    """Return how far above a cutoff still counts as at the cutoff."""
    return room * max(1.0, abs(value))


def with_cutoff(arrays: ModelArrays, cutoff: float | None) -> ModelArrays:
    """Return the model with one more row, which keeps the objective at or below the cutoff."""
    if cutoff is None:
        return arrays
    limit = cutoff + slack(cutoff) - arrays.offset
    return replace(
        arrays,
        A=sp.csr_array(sp.vstack([arrays.A, sp.csr_array(arrays.cost[None, :])], format="csr")),
        row_lower=np.append(arrays.row_lower, -math.inf),
        row_upper=np.append(arrays.row_upper, limit),
    )


class Tracker:
    """The incumbent, the bound and the trace of a run, each moving one way only."""

    def __init__(self, zero: float, cutoff: float | None) -> None:
        self.zero, self.cutoff = zero, cutoff
        self.room = 1e-9  # what a solution may cost above the cutoff, relative to it
        self.points: list[TracePoint] = []
        # One tuple, so that a thread reading it never sees half an update.
        self.incumbent: tuple[FloatArray | None, float] = (None, math.inf)
        self.bound = -math.inf

    @property
    def best(self) -> float:
        """Objective of the incumbent, inf without one."""
        return self.incumbent[1]

    def welcome(self, objective: float) -> bool:
        """Whether the cutoff lets a solution in."""
        return self.cutoff is None or objective <= self.cutoff + slack(self.cutoff, self.room)

    def improve(self, x: FloatArray, objective: float) -> None:
        """Note a better solution."""
        if objective < self.best and self.welcome(objective):
            self.incumbent = (x, objective)
            self.mark()

    def settle(self, x: FloatArray, objective: float) -> None:
        """Note the final solution: of two equal ones it is the one the solver vouches for."""
        if objective <= self.best and self.welcome(objective):
            self.incumbent = (x, objective)

    def lift(self, bound: float) -> None:
        """Note a proven bound; bounds never go down."""
        if self.cutoff is not None:
            # Branches above the cutoff are dropped unexplored, so nothing beyond it is proven.
            bound = min(bound, self.cutoff)
        if math.isfinite(bound) and bound > self.bound + 1e-12 * max(1.0, abs(bound)):
            self.bound = bound
            last = self.points[-1].seconds if self.points else -math.inf
            if time.perf_counter() - self.zero - last >= _BOUND_EVERY:
                self.mark()

    def mark(self) -> None:
        """Append the present state to the trace."""
        self.points.append(self.state())

    def state(self) -> TracePoint:
        """Return the present state."""
        now = time.perf_counter() - self.zero
        return TracePoint(now, self.best, min(self.bound, self.best))

    def reporter(self, progress: Progress | None) -> Callable[[bool], None]:
        """Return what passes improvements, and every quiet half second, on to ``progress``."""
        told, best, last = 0, math.inf, time.perf_counter()

        def look(finished: bool) -> None:
            nonlocal told, best, last
            if progress is None:
                return
            known = len(self.points)
            for point in self.points[told:known]:
                if point.objective < best:
                    best, last = point.objective, time.perf_counter()
                    progress(point)
            told = known
            if not finished and time.perf_counter() - last >= _REPORT_EVERY:
                last = time.perf_counter()
                progress(self.state())

        return look

    def outcome(self, ending: Ending, nodes: int = 0, said: str = "", note: str = "") -> Outcome:
        """Return the state as what the run left behind."""
        x, objective = self.incumbent
        return Outcome(ending, x, objective, self.bound, nodes, tuple(self.points), said, note)
