"""Equal layers that a graph draws one after another: what one of them is, and which kernels are alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from dfopt.documents.base import Part
from dfopt.documents.graph import Graph
from dfopt.workloads.unroll import renamed, unroll

_PARTS = ("tensors", "carried", "inputs", "outputs")
_Part = TypeVar("_Part", bound=Part)


class Unrolled(NamedTuple):
    """The repeated layer of an unrolled graph, and which of its kernels each kernel of the graph repeats."""

    layer: Graph
    kernel: dict[str, str]


def unrolled(graph: Graph) -> Unrolled | None:
    """The smallest layer that an unrolled graph repeats in a row; None if there is none.

    Equal parts of the list of kernels are tried. They are layers if repeating the first of them gives the graph, apart
    from names, and if the tensors from one to the next are those that the graph carries.

    Parameters
    ----------
    graph : Graph
        Kernels of one kind of layer.

    Returns
    -------
    Unrolled or None
        The layer, as often as the model has it; none if no layer is drawn twice.

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel, Tensor
    >>> layers = [Kernel(name=f"add{i}", op="elementwise", m=4, n=2) for i in range(3)]
    >>> chain = [Tensor(src="add0", dst="add1"), Tensor(src="add1", dst="add2")]
    >>> drawn = Graph(name="three", kernels=layers, tensors=chain, carried=[Tensor(src="add2", dst="add0")], repeat=4)
    >>> unrolled(drawn).layer
    Graph(three: 1 kernels, 12 times, batch 1)
    """
    count = len(graph.kernels)
    if graph.sections is None or len(graph.sections) > 1 or len(graph.layers.kinds) > 1 or not graph.carried:
        return None
    for size in range(1, count // 2 + 1):
        if count % size == 0 and (layer := _layer_of(graph, size)) is not None:
            return layer
    return None


def _layer_of(graph: Graph, size: int) -> Unrolled | None:
    """The first so many kernels as a layer, if the graph is what :func:`~dfopt.workloads.unroll.unroll` makes of it."""
    assert graph.sections is not None
    names, (section,) = [kernel.name for kernel in graph.kernels], graph.sections
    first, times = {name: names[place % size] for place, name in enumerate(names)}, len(names) // size
    if any(_renamed(kernel, first) != graph.kernels[place % size] for place, kernel in enumerate(graph.kernels)):
        return None
    own = set(names[:size])
    fields = {name: getattr(graph, name) for name in Graph.model_fields if name != "schema_"}
    fields["kernels"] = graph.kernels[:size]
    fields["tensors"] = tuple(tensor for tensor in graph.tensors if {tensor.src, tensor.dst} <= own)
    fields["carried"] = tuple(_renamed(tensor, first) for tensor in graph.carried)
    fields["inputs"] = graph.inputs and tuple(port for port in graph.inputs if port.dst in own)
    fields["outputs"] = graph.outputs and tuple(port for port in graph.outputs if port.src in own)
    fields["sections"] = (section.model_copy(update={"repeat": section.repeat * times}),)
    again = unroll(Graph.model_construct(**fields), times)  # not checked before it is known to be one
    drawn = dict(zip(names, (kernel.name for kernel in again.kernels), strict=True))
    if any(_bag(getattr(again, part)) != _bag(getattr(graph, part), drawn) for part in _PARTS):
        return None
    return Unrolled(Graph(**fields), first)


def _renamed(part: _Part, names: Mapping[str, str]) -> _Part:
    """A kernel, tensor or end of a graph with the names of other kernels in it."""
    return renamed(part, lambda name: names.get(name, name))


def _bag(parts: Iterable[Part] | None, names: Mapping[str, str] = MappingProxyType({})) -> Counter[str]:
    return Counter(_renamed(part, names).model_dump_json() for part in parts or ())
