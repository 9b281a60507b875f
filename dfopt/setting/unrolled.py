"""Equal layers that a graph draws one after another: what one of them is, and which kernels are alike."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple, TypeVar

from dfopt.documents.graph import Graph, Input, Kernel, Output, Tensor

_NAMES = ("name", "src", "dst", "stage_with", "accumulates_into")  # fields that name a kernel
_ENDS = ("inputs", "outputs")
_Part = TypeVar("_Part", Kernel, Tensor, Input, Output)


class Unrolled(NamedTuple):
    """One layer of a chain of equal ones, and the kernel of it that each kernel of the chain repeats."""

    layer: Graph
    kernel: dict[str, str]


def unrolled(graph: Graph) -> Unrolled | None:
    """The smallest layer that a graph draws several times, one after another.

    Equal parts of the list of kernels are tried: they are layers if the first of them, drawn as often, is the graph,
    whatever its kernels are called, and what leads from one to the next is what the graph carries.

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
        if count % size == 0 and (found := _one_of(graph, size)) is not None:
            return found
    return None


def _one_of(graph: Graph, size: int) -> Unrolled | None:
    """The first so many kernels as a layer, if the graph is a chain of them."""
    assert graph.sections is not None
    names, (section,) = [kernel.name for kernel in graph.kernels], graph.sections
    first = {name: names[place % size] for place, name in enumerate(names)}
    if any(_renamed(kernel, first) != graph.kernels[place % size] for place, kernel in enumerate(graph.kernels)):
        return None
    mine = set(names[:size])
    fields = {name: getattr(graph, name) for name in Graph.model_fields if name != "schema_"}
    fields["kernels"] = graph.kernels[:size]
    fields["tensors"] = tuple(tensor for tensor in graph.tensors if {tensor.src, tensor.dst} <= mine)
    fields["carried"] = tuple(_renamed(tensor, first) for tensor in graph.carried)
    fields["inputs"] = graph.inputs and tuple(one for one in graph.inputs if one.dst in mine)
    fields["outputs"] = graph.outputs and tuple(one for one in graph.outputs if one.src in mine)
    fields["sections"] = (section.model_copy(update={"repeat": section.repeat * (len(names) // size)}),)
    layers = [dict(zip(names[:size], names[at : at + size], strict=True)) for at in range(0, len(names), size)]
    if any(_bag(again) != _bag(getattr(graph, name)) for name, again in _drawn(fields, layers).items()):
        return None
    return Unrolled(Graph(**fields), first)


def _drawn(layer: dict[str, Any], layers: list[dict[str, str]]) -> dict[str, list[Any]]:
    """What belongs to kernels of a layer, drawn for layers one after another whose kernels have these names."""
    ends = {name: [_renamed(one, names) for names in layers for one in layer[name] or ()] for name in _ENDS}
    tensors = [_renamed(tensor, names) for names in layers for tensor in layer["tensors"]]
    carried: list[Tensor] = []
    for tensor in layer["carried"]:
        ahead = tensor.direction == "forward"
        for at, names in enumerate(layers):
            to = at + 1 if ahead else at - 1
            ends_at = {"src": names[tensor.src], "dst": layers[to % len(layers)][tensor.dst]}
            if 0 <= to < len(layers):
                tensors.append(tensor.model_copy(update=ends_at | {"direction": "forward"}))
            else:
                carried.append(tensor.model_copy(update=ends_at))
    return {"tensors": tensors, "carried": carried, **ends}


def _renamed(part: _Part, names: dict[str, str]) -> _Part:
    """The same about other kernels."""
    said = {field: getattr(part, field, None) for field in _NAMES}
    return part.model_copy(update={field: names[name] for field, name in said.items() if name in names})


def _bag(parts: Any) -> Counter[str]:
    return Counter(part.model_dump_json() for part in parts or ())
