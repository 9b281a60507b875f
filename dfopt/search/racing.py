"""Several searches of one workload at a time: who takes the next step."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from dfopt.search.branching import Search
from dfopt.search.diving import dive
from dfopt.search.starts import begin, stopping

if TYPE_CHECKING:
    from dfopt.search.jointly import JointSearch

__all__ = ["MANY", "Steps", "race"]

MANY: Final = 20_000  # plans of all microbatches, about, from which on those of the largest go ahead
_PATIENCE: Final = 100  # steps without any mapping, after which one is looked for where there is room
_UNTIL_STARTS: Final = 40  # the same, after which textbook mappings are looked for, unless they were at first
_AHEAD, _AHEAD_WORK = 0.3, 4e6  # for so much of the work, and units of it, at most

# What one search has left to do: before each step, whether only what takes long is left, and the least bound.
Steps = Iterator[tuple[bool, float]]
_Entry = tuple[tuple[bool, float], int]  # the same of the search of a number


def race(searches: Sequence[Search], steps: Sequence[Steps], plans: int) -> None:
    """Take the steps of all searches, always one of that with the least bound.

    The bounds of very many plans take longer than a good mapping, which is to be had from whole batches: so those of
    the largest microbatch have a start of a few seconds. What is proven is the same in any order.

    Parameters
    ----------
    searches
        Of one workload in several microbatches; when one is stopped, all are.
    steps
        What each has left to do.
    plans
        Of all of them together, about.
    """
    open_ = [((False, 0.0), number) for number in range(len(steps))]
    if plans > MANY:
        largest = max(one.setting.graph.microbatch for one in searches)
        whole, later = list[_Entry](), list[_Entry]()
        for entry, one in zip(open_, searches, strict=True):
            (whole if one.setting.graph.microbatch == largest else later).append(entry)
        clock = searches[0].options.clock
        _until(searches, steps, whole, clock.spent + min(_AHEAD_WORK, _AHEAD * clock.work_left))
        open_ = whole + later
        heapq.heapify(open_)
    _until(searches, steps, open_, np.inf)


def _begin(search: Search, steps: Steps) -> bool:
    """Take the first steps of a search, if it takes any."""
    while not hasattr(search, "units") and next(steps, None) is not None:
        pass
    return hasattr(search, "units")


def _dive(searches: Sequence[Search], steps: Sequence[Steps]) -> None:
    """Look for a first mapping; others than those that have begun may never have to, once something is known."""
    for further in (False, True):
        begun = [
            cast("JointSearch", search)
            for search, steps_of in zip(searches, steps, strict=True)
            if hasattr(search, "units") or (further and _begin(search, steps_of))
        ]
        if begun:
            with stopping(searches):
                dive(begun)
        if searches[0].found or searches[0]._out_of_time(False):
            return


def _until(searches: Sequence[Search], steps: Sequence[Steps], open_: list[_Entry], end: float) -> None:
    """Steps until so much work is spent; what is left stays in the heap."""
    taken, dived = 0, False
    late = [cast("JointSearch", search) for search in searches if getattr(search, "starts_later", False)]
    while open_ and searches[0].options.clock.spent < end:
        taken += 1
        if taken == _UNTIL_STARTS and late and not searches[0].found:
            begin(late, anyway=True)
        if taken > _PATIENCE and not dived and not searches[0].found and not searches[0]._out_of_time(False):
            dived = True
            _dive(searches, steps)
        _, number = heapq.heappop(open_)
        if (least := next(steps[number], None)) is not None:
            heapq.heappush(open_, (least, number))
        searches[number].least = np.inf if least is None else least[1]
        if searches[number].stopped:
            for search in searches:
                search.stop()
