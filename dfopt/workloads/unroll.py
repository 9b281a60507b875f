"""Draw the layers of a graph one after another, where one drawn layer must not stand for all of its kind."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, TypeVar

from dfopt.documents.base import Part
from dfopt.documents.graph import Graph, Tensor
from dfopt.documents.sections import repeated
from dfopt.errors import GraphError, Issue

_NAMES: Final = ("name", "src", "dst", "stage_with", "accumulates_into")
"""Fields that name a kernel."""
_PartT = TypeVar("_PartT", bound=Part)


def renamed(part: _PartT, called: Callable[[str], str], **more: Any) -> _PartT:
    """A kernel, tensor or end with names mapped by ``called``, and other fields replaced."""
    names = {field: called(name) for field in _NAMES if (name := getattr(part, field, None)) is not None}
    return part.model_copy(update={**names, **more})


def unroll(graph: Graph, copies: int | None = None) -> Graph:
    """Unroll a folded graph: draw all its layers.

    Parameters
    ----------
    graph
        With sections, or any graph when ``copies`` is given.
    copies
        Number of layers of one kind to draw; by default all layers of the model. It must divide their number; a model
        with layers of several kinds is drawn as a whole.

    Returns
    -------
    Graph
        The kernels of each layer, named ``NAME.0``, ``NAME.1`` ...; tensors carried from one layer to the next are
        tensors between them, and stay carried over the ends.

    Raises
    ------
    GraphError
        When ``copies`` does not divide the layers.

    Examples
    --------
    >>> from dfopt.workloads import WORKLOADS
    >>> layer = WORKLOADS["transformer"](hidden=64, heads=4, head_dim=16, seq=32, layers=12)
    >>> drawn = unroll(layer, 4)
    >>> len(drawn.kernels), len(drawn.tensors), drawn.repeat, drawn.carried[0].src
    (72, 87, 3, 'Add_2.3')
    """
    layers, several = graph.layers, len(graph.layers.kinds) > 1
    count = layers.count if copies is None else copies
    if count < 1 or layers.count % count or (several and count != layers.count):
        message = f"{count} copies do not divide {layers.count} repeats"
        if several:
            message = f"{count} copies of a model of {len(layers.kinds)} kinds of layers"
        remedy = "leave copies out: all layers are then drawn" if several else "choose a divisor"
        raise GraphError(graph.name, [Issue("$.repeat", message, remedy)])
    # What is drawn in its order: the kind of each layer, and what is put behind the names of its kernels.
    order = [(int(kind), f".{place}") for place, kind in enumerate(layers.order[:count])]
    drawn, at = list[tuple[int, str]](), {place: list[int]() for place in range(count + 1)}
    for kind, places in enumerate(layers.at, layers.counted):
        for place in places:
            at[place].append(kind)
    for place in range(count + 1):
        drawn += [(kind, f".{place}" if layers.times(kind) > 1 else "") for kind in at[place]]
        drawn += order[place : place + 1]
    of, handed = graph.kernels_by_kind, graph.handed_on
    kind_of = {kernel.name: kind for kind, kernels in enumerate(of) for kernel in kernels}

    def between(tensor: Tensor, other: Tensor, here: str, there: str) -> Tensor:
        return tensor.model_copy(update={"src": tensor.src + here, "dst": other.dst + there})

    tensors = [between(t, t, end, end) for kind, end in drawn for t in graph.tensors if kind_of[t.src] == kind]
    carried = []
    for place in range(len(handed[0])):
        ahead = handed[0][place].direction == "forward"  # gradients go to the previous layer
        steps = [pair if ahead else pair[::-1] for pair in pairwise(order)]
        for (kind, here), (other, there) in steps:
            joint = between(handed[kind][place], handed[other][place], here, there)
            tensors.append(joint.model_copy(update={"direction": "forward"}))
        (kind, here), (other, there) = (order[-1], order[0]) if ahead else (order[0], order[-1])
        carried.append(between(handed[kind][place], handed[other][place], here, there))
    ends: dict[str, object] = {}  # stated ones are those of every layer
    for key, end in (("inputs", "dst"), ("outputs", "src")):
        stated = getattr(graph, key)
        if stated is not None:
            each = ((port, copy) for kind, copy in drawn for port in stated if kind_of[getattr(port, end)] == kind)
            ends[key] = tuple(renamed(port, f"{{}}{copy}".format) for port, copy in each)
    left = layers.count // count
    return graph.model_copy(
        update={
            **ends,
            "sections": repeated(left),
            "kernels": tuple(renamed(k, f"{{}}{end}".format, layer=None) for kind, end in drawn for k in of[kind]),
            "tensors": tuple(tensors),
            "carried": tuple(carried),
        }
    )
