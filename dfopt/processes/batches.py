"""How many cells go to a cluster at once: about a second of work, so that handing them out costs little beside it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence

SECONDS = 1.0  # of solving per batch: a task of Dask costs milliseconds on each side, and a lost worker repeats one
_MOST = 64  # cells, however fast they are: memory and messages stay bounded
_SHARES = 2  # of what waits, per thread: batches shrink to one cell at the end, so that all threads end together
_FASTEST = 1e-3  # seconds per cell that are believed


class TaskQueue:
    """Queue of task numbers that adapts the size of batches to the measured speed.

    Every number is given out once, and again only after it was put back.

    Examples
    --------
    >>> batches = TaskQueue(range(100))
    >>> batches.next(threads=2)
    [0]
    >>> batches.learn(seconds=0.2, cells=1)
    >>> batches.next(threads=2)
    [1, 2, 3, 4, 5]
    >>> batches.put_back([4, 5])
    >>> batches.next(threads=2)
    [4, 5, 6, 7, 8]
    """

    def __init__(self, numbers: Iterable[int]) -> None:
        self._waiting = deque(numbers)
        self._alone: deque[int] = deque()
        self._pace: float | None = None

    def next(self, threads: int) -> list[int]:
        """The next batch for a cluster of ``threads`` threads; empty if nothing waits."""
        if self._alone:
            return [self._alone.popleft()]
        waiting = len(self._waiting)
        size = 1 if self._pace is None else int(SECONDS / self._pace)
        share = math.ceil(waiting / (_SHARES * max(threads, 1)))
        return [self._waiting.popleft() for _ in range(min(max(size, 1), share, _MOST))]

    def put_back(self, numbers: Sequence[int]) -> None:
        """Put unfinished tasks back at the front of the queue."""
        self._waiting.extendleft(reversed(numbers))

    def put_back_alone(self, numbers: Sequence[int]) -> None:
        """Put tasks back that may kill their worker, each as a batch of its own."""
        self._alone.extend(numbers)

    def learn(self, seconds: float, cells: int) -> None:
        """Update the estimate of seconds per cell after ``cells`` cells in ``seconds`` seconds."""
        pace = max(seconds / cells, _FASTEST)
        self._pace = pace if self._pace is None else (self._pace + pace) / 2
