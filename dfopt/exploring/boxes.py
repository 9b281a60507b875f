"""Branch and bound over boxes of decisions: what is best among very many things, and what none of them can beat.

A box is a set of things to choose from, such as all designs with 2 to 5 stacks. A bound of a box holds for everything
in it. Bounds come in stages, from the cheapest to the tightest, and each is computed only when the box comes to the
top: the least bound first. What is then still promising gives a few candidates, whose values are known, and is split.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np

from dfopt.interrupts import LIMIT, cause, interruptible

__all__ = ["Leaf", "Problem", "Progress", "Searched", "Stage", "best_of", "search_boxes"]

Box = TypeVar("Box")
Choice = TypeVar("Choice")
Choice_co = TypeVar("Choice_co", covariant=True)
_ROUND = 1e-12
_TOGETHER = 4  # boxes that a stage is told of ahead: a few, as what the first ones show may close the others
Ending = Literal["optimal", "gap_reached", "exhausted", "time_limit", "interrupted", "empty"]


@dataclass(frozen=True)
class Stage(Generic[Box]):
    """One kind of bound: ``of(box, cutoff)`` is at most the value of everything in the box.

    ``ahead`` is given the boxes that need the bound next, the first of them now, with a cutoff for all of them: it may
    work them out together. Which these are does not depend on how it does that.

    ``gives(box, best)``: things that the bound of a box led to, as `Problem.candidates` has them.

    A stage may stop early where it knows that nothing in the box is below the cutoff, and return the cutoff. Infinity
    says that nothing in the box can be had.
    """

    name: str
    of: Callable[[Box, float], float]
    ahead: Callable[[Sequence[Box], float], None] | None = None
    gives: Callable[[Box, float], Iterable[tuple[float, Any]]] | None = None


class Problem(Protocol[Box, Choice_co]):
    """What is searched; lower values are better."""

    @property
    def roots(self) -> Sequence[Box]:
        """Boxes that hold everything there is to choose from, each thing once."""
        ...

    @property
    def stages(self) -> Sequence[Stage[Box]]:
        """Bounds, the cheapest first."""
        ...

    def candidates(self, box: Box, best: float) -> Iterable[tuple[float, Choice_co]]:
        """Things that can be had, with their values: of a box of one thing, that thing, if it can be had."""
        ...

    def split(self, box: Box) -> Sequence[Box]:
        """Boxes that together hold the same things, each once; none for one thing."""
        ...


@dataclass(frozen=True)
class Leaf(Generic[Box]):
    """A box that was not split further.

    ``value``: of a box of one thing that was looked at, its value; infinite if it cannot be had.
    """

    box: Box
    bound: float
    value: float | None = None


@dataclass(frozen=True)
class Progress(Generic[Choice]):
    """Where a search stands: boxes looked at, bounds computed by stage, and the best so far."""

    best: float
    bound: float
    boxes: int
    bounded: tuple[int, ...]
    choice: Choice | None
    seconds: float


@dataclass(frozen=True)
class Searched(Generic[Box, Choice]):
    """What a search found: no choice has a value below ``bound``.

    Attributes
    ----------
    best, choice
        The best value and what has it; infinity and none, if nothing was found.
    kept
        So many of the best as were asked for, with their values, the best first.
    bound
        The least bound of all leaves, or the best value where that is less.
    ending
        ``optimal``: nothing that is not kept is better than what is; ``gap_reached``: by more than the gap that was
        asked for; ``exhausted``: boxes of one thing, whose bounds leave a larger gap, were all looked at; ``empty``:
        nothing can be had.
    leaves
        Boxes that cover everything, each thing once, with what bounds them.
    boxes, bounded, seconds
        Boxes looked at, bounds computed by stage, and time.
    """

    best: float
    choice: Choice | None
    kept: tuple[tuple[float, Choice], ...]
    bound: float
    ending: Ending
    leaves: tuple[Leaf[Box], ...]
    boxes: int
    bounded: dict[str, int]
    seconds: float

    @property
    def gap(self) -> float:
        """How much less than the best a value may be at most, relative to it."""
        return 0.0 if not np.isfinite(self.best) or self.best <= 0 else max(0.0, 1 - self.bound / self.best)


def search_boxes(
    problem: Problem[Box, Choice],
    *,
    gap: float = 0.0,
    top: int = 1,
    time_limit: float = np.inf,
    progress: Callable[[Progress[Choice]], None] | None = None,
    kept: Sequence[tuple[float, Choice]] = (),
) -> Searched[Box, Choice]:
    """Find the best choice, or several, and prove how good they are.

    Parameters
    ----------
    problem
        What is searched; see `Problem`.
    gap
        Relative gap at which to stop; with 0 the choice is the best there is.
    top
        How many of the best to keep; the gap is then that of the last of them.
    time_limit
        In seconds; the best so far is returned with an honest gap. A bound that has begun is finished.
    progress
        Called after each bound.
    kept
        Choices that are known already, with their values, the best first: no more than ``top``.

    Examples
    --------
    The least of x^2 - 10 x over the integers from 0 to 100, in boxes of integers from a to b:

    >>> class Parabola:
    ...     roots = [(0, 100)]
    ...     stages = [Stage("interval", lambda box, cutoff: box[0] ** 2 - 10 * box[1])]
    ...     def candidates(self, box, best):
    ...         middle = sum(box) // 2
    ...         return [(middle**2 - 10 * middle, middle)]
    ...     def split(self, box):
    ...         (a, b), middle = box, sum(box) // 2
    ...         return [(a, middle), (middle + 1, b)] if a < b else []
    >>> found = search_boxes(Parabola())
    >>> found.choice, found.best, found.bound, found.ending
    (5, -25, -25, 'optimal')
    """
    return _Search(problem, gap, top, time_limit, progress, kept).run()


def best_of(problem: Problem[Box, Choice], gap: float, time_limit: float) -> Searched[Box, Choice]:
    """The same inside of a larger question, which an interrupt ends: it is raised."""
    found = search_boxes(problem, gap=gap, time_limit=time_limit)
    if found.ending == "interrupted":
        raise KeyboardInterrupt
    return found


class _Search(Generic[Box, Choice]):
    def __init__(
        self,
        problem: Problem[Box, Choice],
        gap: float,
        top: int,
        time_limit: float,
        progress: Callable[[Progress[Choice]], None] | None,
        kept: Sequence[tuple[float, Choice]],
    ) -> None:
        self.problem, self.gap, self.top, self.progress = problem, gap, top, progress
        self.began = time.perf_counter()
        self.deadline = self.began + time_limit
        self.kept: list[tuple[float, Choice]] = [*kept]
        # bound, how often it was tightened (the tighter first, among equals), when, box
        self.open: list[tuple[float, int, int, Box]] = []
        self.order = itertools.count()
        self.leaves: list[Leaf[Box]] = []
        self.told: set[int] = set()  # whose next bound is being worked out ahead
        self.boxes = 0
        self.bounded = [0] * len(problem.stages)

    def run(self) -> Searched[Box, Choice]:
        stopped: Ending | None = None
        try:
            for box in self.problem.roots:
                self._add(box, -np.inf)
            while self.open and self.open[0][0] < self.cutoff:
                if time.perf_counter() > self.deadline:
                    stopped = "time_limit"
                    break
                # the box stays in the heap until what replaces it is known: an interrupt loses nothing
                self._step(*self.open[0][::3], -self.open[0][1])
        except KeyboardInterrupt:
            stopped = "time_limit" if cause() == LIMIT else "interrupted"
        return self._ended(stopped)

    @property
    def cutoff(self) -> float:
        """What is not below this is of no interest any more."""
        return self.last - self.gap * abs(self.last) if np.isfinite(self.last) else np.inf

    @property
    def best(self) -> float:
        return self.kept[0][0] if self.kept else np.inf

    @property
    def last(self) -> float:
        """The value of the last one that is kept; infinity while there is room for more."""
        return self.kept[-1][0] if len(self.kept) >= self.top else np.inf

    def _keep(self, value: float, choice: Choice) -> None:
        same = next((known for known, other in self.kept if other == choice), np.inf)
        if value < min(self.last, same):
            self.kept = [
                (known, other) for known, other in self.kept if other != choice
            ]  # it was kept with a worse one
            self.kept.append((value, choice))
            self.kept.sort(key=lambda one: one[0])
            del self.kept[self.top :]

    def _add(self, box: Box, bound: float) -> None:
        heapq.heappush(self.open, (bound, 0, next(self.order), box))
        self.boxes += 1

    def _step(self, bound: float, box: Box, stage: int) -> None:
        if stage < len(self.problem.stages):
            if (ahead := self.problem.stages[stage].ahead) is not None and self.open[0][2] not in self.told:
                together = self._next(stage)
                self.told.update(order for order, _ in together)
                with interruptible():
                    ahead([one for _, one in together], self.cutoff)
                if self.open[0][3] != box:  # of equal bounds another one comes first now
                    return
            tighter = self._tighter(bound, box, stage)
            heapq.heapreplace(self.open, (tighter, -stage - 1, next(self.order), box))
            if (gives := self.problem.stages[stage].gives) is not None:
                self._look(gives(box, self.last))
        else:
            looked = self._look(self.problem.candidates(box, self.last))
            with interruptible():
                parts = self.problem.split(box)
            heapq.heappop(self.open)
            if not parts:
                self.leaves.append(Leaf(box, bound, looked))
            for part in parts:
                self._add(part, bound)
        if self.progress is not None:
            self.progress(self._now())

    def _look(self, candidates: Iterable[tuple[float, Choice]]) -> float:
        """Keep the best of some candidates; the least of their values."""
        least = np.inf
        for value, choice in interruptible.steps(candidates):
            least = min(least, value)
            self._keep(value, choice)
        return least

    def _tighter(self, bound: float, box: Box, stage: int) -> float:
        with interruptible():
            low = self.problem.stages[stage].of(box, self.cutoff)
        self.bounded[stage] += 1
        return max(bound, low)

    def _next(self, stage: int) -> list[tuple[int, Box]]:
        """The first boxes that come to a stage, that at the top before others, each bounded by all stages before it."""
        found: list[tuple[int, Box]] = []
        waiting = list(self.open)  # which stay open meanwhile
        while waiting and len(found) < _TOGETHER and waiting[0][0] < self.cutoff:
            entry = heapq.heappop(waiting)
            bound, done, order, box = entry
            if -done == stage and order not in self.told:
                found.append((order, box))
            elif -done < stage:
                again = (self._tighter(bound, box, -done), done - 1, order, box)
                heapq.heappush(waiting, again)
                self.open[self.open.index(entry)] = again
                heapq.heapify(self.open)
        return found

    def _least(self) -> float:
        """What no choice is below, as far as it is known."""
        least = min((leaf.bound for leaf in self.leaves), default=np.inf)
        return min(self.best, least, self.open[0][0] if self.open else np.inf)

    def _now(self) -> Progress[Choice]:
        choice = self.kept[0][1] if self.kept else None
        spent = time.perf_counter() - self.began
        return Progress(self.best, self._least(), self.boxes, tuple(self.bounded), choice, spent)

    def _ended(self, stopped: Ending | None) -> Searched[Box, Choice]:
        bound = self._least()
        self.leaves += [Leaf(entry[3], entry[0]) for entry in sorted(self.open, key=lambda entry: entry[:3])]
        ending: Ending = stopped or "optimal"
        if stopped is None and not self.kept:
            ending = "empty"
        elif stopped is None and any(_below(leaf.bound, min(self.last, leaf.value or np.inf)) for leaf in self.leaves):
            more = np.isfinite(self.last) and bound < self.cutoff * (1 - 1e-9)
            ending = "exhausted" if more else "gap_reached"
        return Searched(
            best=self.best,
            choice=self.kept[0][1] if self.kept else None,
            kept=tuple(self.kept),
            bound=bound,
            ending=ending,
            leaves=tuple(self.leaves),
            boxes=self.boxes,
            bounded=dict(zip((stage.name for stage in self.problem.stages), self.bounded, strict=True)),
            seconds=time.perf_counter() - self.began,
        )


def _below(bound: float, value: float) -> bool:
    """Whether a bound is below a value by more than the rounding of the sums that both are."""
    return bound < value and not math.isclose(bound, value, rel_tol=_ROUND)
