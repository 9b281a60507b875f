"""Batches of cells: none is lost, none comes twice, and all threads end together."""

from __future__ import annotations

import heapq
import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from dfopt.processes.batches import SECONDS, TaskQueue


@given(st.integers(0, 300), st.integers(0, 2**32))
def test_every_number_is_done_once_whatever_comes_back(count: int, seed: int) -> None:
    """Batches come back whole, in part, or not at all because something in them kills."""
    drawn = random.Random(seed)  # thousands of draws: hypothesis takes its time for each
    batches, out, done = TaskQueue(range(count)), [], Counter[int]()
    alone: set[int] = set()
    while True:
        if out and drawn.random() < 0.5:
            batch = out.pop(drawn.randrange(len(out)))
            if len(batch) > 1 and drawn.random() < 0.1:
                batches.put_back_alone(batch)
                alone.update(batch)
                continue
            solved = drawn.randint(1, len(batch))
            done.update(batch[:solved])
            batches.put_back(batch[solved:])
            batches.learn(solved * 10 ** drawn.uniform(-4, 2), solved)
            continue
        batch = batches.next(drawn.randint(0, 9))
        if batch:
            assert len(batch) <= 64
            assert len(batch) == 1 or not alone & set(batch)
            assert not set(batch) & {number for other in out for number in other} and not set(batch) & set(done)
            out.append(batch)
        elif not out:
            break
    assert done == Counter(range(count))


@given(st.integers(0, 500), st.integers(1, 16), st.floats(1e-3, 100.0))
def test_cells_of_one_speed_end_together(count: int, threads: int, seconds: float) -> None:
    """No thread ends more than two cells later than with equal shares, and no batch is longer than it should be."""
    batches, waiting = TaskQueue(range(count)), []
    free = [(0.0, thread) for thread in range(threads)]
    sizes = []
    while True:
        while len(waiting) < threads and (batch := batches.next(threads)):
            waiting.append(batch)
        if not waiting:
            break
        at, thread = heapq.heappop(free)
        batch = waiting.pop(0)
        heapq.heappush(free, (at + len(batch) * seconds, thread))
        batches.learn(len(batch) * seconds, len(batch))
        sizes.append(len(batch))
    assert sum(sizes) == count
    assert max(at for at, _ in free) <= (count / threads + 2) * seconds * (1 + 1e-9)
    assert all(size == 1 or size * seconds <= SECONDS * (1 + 1e-9) for size in sizes)


def test_a_long_study_of_fast_cells_has_few_batches() -> None:
    batches = TaskQueue(range(10_000))
    sizes = []
    while batch := batches.next(threads=2):
        sizes.append(len(batch))
        batches.learn(0.1 * len(batch), len(batch))
    assert sum(sizes) == 10_000
    assert len(sizes) < 1_100


def test_cells_that_are_slower_than_those_before_shrink_the_next_batch() -> None:
    batches = TaskQueue(range(1000))
    batches.learn(0.1, 10)
    first = batches.next(threads=2)
    assert len(first) == 64
    batches.learn(2.0, 4)  # half a second each, against 10 ms
    batches.put_back(first[4:])
    assert batches.next(threads=2) == [4, 5, 6]
