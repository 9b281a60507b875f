"""Draw the repeats of a graph one after another, where one drawn layer must not stand for all of them."""

from __future__ import annotations

from dfopt.documents.graph import Graph, Tensor
from dfopt.errors import GraphError, Issue

__all__ = ["unroll"]


def unroll(graph: Graph, copies: int | None = None) -> Graph:
    """Replace a repeated graph by one in which its repeats are drawn.

    Parameters
    ----------
    graph
        With ``repeat`` above 1, or any graph when ``copies`` is given.
    copies
        How many repeats to draw; all of ``graph.repeat`` if left out. Must divide it.

    Returns
    -------
    Graph
        ``copies`` times the kernels, named ``NAME.0``, ``NAME.1`` ...; tensors carried from one repeat to the
        next are tensors between the copies, and stay carried over the ends.

    Raises
    ------
    GraphError
        When ``copies`` does not divide the repeats.

    Examples
    --------
    >>> from dfopt.workloads import WORKLOADS
    >>> layer = WORKLOADS["transformer"](hidden=64, heads=4, head_dim=16, seq=32, layers=12)
    >>> drawn = unroll(layer, 4)
    >>> len(drawn.kernels), len(drawn.tensors), drawn.repeat, drawn.carried[0].src
    (72, 87, 3, 'Add_2.3')
    """
    count = graph.repeat if copies is None else copies
    if count < 1 or graph.repeat % count:
        raise GraphError(
            graph.name, [Issue("$.repeat", f"{count} copies do not divide {graph.repeat} repeats", "choose a divisor")]
        )

    def place(name: str | None, copy: int) -> str | None:
        return None if name is None else f"{name}.{copy}"

    named = ("name", "accumulates_into", "stage_with")
    kernels = [
        kernel.model_copy(update={key: place(getattr(kernel, key), copy) for key in named})
        for copy in range(count)
        for kernel in graph.kernels
    ]

    def between(tensor: Tensor, here: int, there: int) -> Tensor:
        return tensor.model_copy(update={"src": f"{tensor.src}.{here}", "dst": f"{tensor.dst}.{there}"})

    tensors = [between(tensor, copy, copy) for copy in range(count) for tensor in graph.tensors]
    carried = []
    for tensor in graph.carried:
        ahead = tensor.direction == "forward"  # gradients go to the previous repeat
        for copy in range(count - 1):
            here, there = (copy, copy + 1) if ahead else (copy + 1, copy)
            tensors.append(between(tensor, here, there).model_copy(update={"direction": "forward"}))
        first, last = (0, count - 1) if ahead else (count - 1, 0)
        carried.append(between(tensor, last, first))
    drawn = {"repeat": graph.repeat // count, "kernels": tuple(kernels), "tensors": tuple(tensors)}
    ends: dict[str, object] = {}  # stated ones are those of every copy
    for key, end in (("inputs", "dst"), ("outputs", "src")):
        stated = getattr(graph, key)
        if stated is not None:
            each = [(one, place(getattr(one, end), copy)) for copy in range(count) for one in stated]
            ends[key] = tuple(one.model_copy(update={end: name}) for one, name in each)
    return graph.model_copy(update={**drawn, **ends, "carried": tuple(carried)})
