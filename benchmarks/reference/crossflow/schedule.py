"""When the kernels of a training step run on one chip and its link, as the program's queue of events has it."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from crossflow.language_model import Model, Parts

CHIP, LINK, NOTHING = "chip", "link", "nothing"
"""What an event occupies: edges of the graph take no time and occupy nothing."""
EDGE = "edge"


class Event(NamedTuple):
    """One event: which part of a step its seconds are, what it occupies, which events wait for it, and for how many."""

    part: str
    on: str
    then: tuple[int, ...]
    waits_for: int


def forward(model: Model, parts: Parts) -> float:
    """Seconds forward: there is one kernel at a time, and always one."""
    return model.steps * (parts.embedding + model.layers * parts.cell + parts.softmax)


def backward(model: Model, parts: Parts) -> float:
    """Seconds backward, with the gradients."""
    return run(backward_graph(model.steps, model.layers), parts)


def backward_at_least(model: Model, parts: Parts) -> float:
    """Seconds that `backward` is not below, whatever order the parts bring about: all kernels, then a gradient.

    The chip serves kernels in the order in which they get ready. The last of them is the embedding of step 0: it waits
    for the cell of layer 0 and step 0, and by the edges of the graph that cell waits for every other cell and for every
    softmax. The embedding of a later step gets ready when its own cell of layer 0 ends, which is before the cell of
    step 0 begins, so it is served earlier. Kernels run one at a time, so that last one ends no sooner than all of them
    take together; and only then its gradients begin.
    """
    kernels = parts.softmax_back + model.layers * parts.cell_back + parts.embedding_back
    return model.steps * kernels + parts.embedding_gradients


def run(graph: Sequence[Event], parts: Parts) -> float:
    """First come, first served, from the first event on.

    What ends frees what it occupied. An edge occupies nothing, but its end frees the link, too (the program writes to
    the last of its links for want of another), so that gradients of several layers may be under way at once.
    """
    seconds = {**parts._asdict(), EDGE: 0.0}
    waits = [event.waits_for for event in graph]
    busy = {CHIP: False, LINK: False, NOTHING: False}
    ready, order, now = [0], 0, 0.0
    under_way: list[tuple[float, int, int]] = []
    while True:
        waiting = []
        for index in ready:
            part, on, _, _ = graph[index]
            if busy[on]:
                waiting.append(index)
                continue
            busy[on] = on != NOTHING
            heapq.heappush(under_way, (now + seconds[part], order, index))
            order += 1
        if not under_way:
            return now
        now, _, ended = heapq.heappop(under_way)
        busy[LINK if graph[ended].on == NOTHING else graph[ended].on] = False
        ready = waiting
        for index in graph[ended].then:
            waits[index] -= 1
            if not waits[index]:
                ready.append(index)


@lru_cache(maxsize=64)
def backward_graph(steps: int, layers: int) -> tuple[Event, ...]:
    """The events of a backward pass; the first one is the softmax of the last step."""
    kernels = [("softmax_back", 0, step) for step in reversed(range(steps))]
    kernels += [("cell_back", layer, step) for layer in range(layers) for step in range(steps)]
    kernels += [("embedding_back", 0, step) for step in range(steps)]
    index = {kernel: at for at, kernel in enumerate(kernels)}
    parts = [(part, CHIP) for part, _, _ in kernels]
    then: list[list[int]] = [[] for _ in kernels]
    for before, after in _edges(steps, layers):
        then[index[before]].append(len(then))
        then.append([index[after]])
        parts.append((EDGE, NOTHING))
    for gradients, after in _gradients(layers):
        then[index[after]].append(len(then))
        then.append([])
        parts.append((gradients, LINK))
    waits = [0] * len(then)
    for others in then:
        for other in others:
            waits[other] += 1
    return tuple(Event(*part, tuple(then[at]), waits[at]) for at, part in enumerate(parts))


Kernel = tuple[str, int, int]


def _edges(steps: int, layers: int) -> Iterator[tuple[Kernel, Kernel]]:
    """Pairs of kernels, in the order in which the program joins them (which is that in which they get ready).

    The last two kinds carry nothing: they make later steps, and within them upper layers, go first.
    """
    for layer in range(layers):
        for step in reversed(range(1, steps)):
            yield ("cell_back", layer, step), ("cell_back", layer, step - 1)
    for step in range(steps):
        yield ("cell_back", 0, step), ("embedding_back", 0, step)
        yield ("softmax_back", 0, step), ("cell_back", layers - 1, step)
    for layer in reversed(range(1, layers)):
        for step in range(steps):
            yield ("cell_back", layer, step), ("cell_back", layer - 1, step)
    for layer in range(layers - 1):
        for step in range(1, steps):
            yield ("cell_back", layer, step), ("cell_back", layer + 1, step - 1)
    for step in range(1, steps):
        yield ("softmax_back", 0, step), ("softmax_back", 0, step - 1)


def _gradients(layers: int) -> Iterator[tuple[str, Kernel]]:
    yield "softmax_gradients", ("softmax_back", 0, 0)
    yield "embedding_gradients", ("embedding_back", 0, 0)
    for layer in range(layers):
        yield "cell_gradients", ("cell_back", layer, 0)
