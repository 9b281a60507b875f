"""Graphs that draw equal layers one after another: the layer is found, and only where they are equal."""

from __future__ import annotations

import pytest

import dfopt as df
from dfopt.documents.graph import Graph, Input
from dfopt.setting.unrolled import unrolled


def changed(graph: Graph, **fields: object) -> Graph:
    """The same document with other fields."""
    return Graph(**{name: getattr(graph, name) for name in Graph.model_fields if name != "schema_"} | fields)


@pytest.mark.parametrize("mode", ["forward", "training"])
@pytest.mark.parametrize("drawn", [2, 3, 4])
@pytest.mark.parametrize("name", ["gpt2-small", "llama-3.1-8b"])
def test_the_layer_is_the_one_that_is_drawn_once(name: str, drawn: int, mode: str) -> None:
    """Drawn once or several times, it is the same document but for the names of its kernels."""
    asked = {"gpt2-small": {"layers": 12}, "llama-3.1-8b": {"layers": 24, "ends": False}}[name]
    once, several = (df.load_graph(name, mode=mode, **asked, drawn=many) for many in (1, drawn))
    found = unrolled(several)
    assert found is not None and unrolled(once) is None
    assert found.layer.repeat == once.repeat == drawn * several.repeat
    names = dict(zip((kernel.name for kernel in found.layer.kernels), (k.name for k in once.kernels), strict=True))
    assert [(names[t.src], names[t.dst], t.bytes, t.operand) for t in found.layer.tensors] == [
        (t.src, t.dst, t.bytes, t.operand) for t in once.tensors
    ]
    assert [(names[t.src], names[t.dst], t.direction) for t in found.layer.carried] == [
        (t.src, t.dst, t.direction) for t in once.carried
    ]
    assert {found.kernel[kernel.name] for kernel in several.kernels} == set(names)


def test_layers_that_differ_are_none() -> None:
    graph = df.load_graph("gpt2-small", mode="training", drawn=2)
    dearer = tuple(k.model_copy(update={"flop_per_element": 9}) if k.name == "GeLU.1" else k for k in graph.kernels)
    assert unrolled(changed(graph, kernels=dearer)) is None
    assert unrolled(changed(graph, inputs=(Input(dst="GeLU.1", bytes=8.0),), outputs=())) is None
    assert unrolled(changed(graph, inputs=(), outputs=())) is not None
    skipped = [tensor for tensor in graph.tensors if (tensor.src, tensor.dst) != ("Add_2.0", "Add_Prev_Layer.1")]
    assert len(skipped) == len(graph.tensors) - 1 and unrolled(changed(graph, tensors=tuple(skipped))) is None


def test_a_chain_that_leads_round_the_other_way_is_none() -> None:
    """What goes from each layer to the next has to be what is carried, in its direction."""
    graph = df.load_graph("gpt2-small", mode="training", drawn=2)
    turned = [t.model_copy(update={"direction": "backward"}) for t in graph.carried]
    assert unrolled(changed(graph, carried=tuple(turned))) is None
