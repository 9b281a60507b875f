"""Layers of a model in their order: kinds, what a stage runs of them, and the documents that say so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.plan import Plan
from dfopt.documents.sections import Section, layers_of
from dfopt.errors import DocumentError, GraphError
from dfopt.setting.stages import pipeline_stages

NAMES = st.sampled_from(["a", "b", "c"])
SECTIONS = st.lists(
    st.builds(Section, layers=st.lists(NAMES, min_size=1, max_size=3).map(tuple), repeat=st.integers(1, 4)),
    min_size=1,
    max_size=4,
)


def graph(sections: Any, **more: Any) -> Graph:
    names = dict.fromkeys(name for one in sections for name in one.layers)
    kernels = tuple(Kernel(name=f"k_{name}", op="gemm", m=4, k=4, n=4, layer=name) for name in names)
    handed = tuple(Tensor(src=f"k_{name}", dst=f"k_{name}") for name in names if name not in ("embed", "head"))
    return Graph(**{"name": "g", "sections": sections, "kernels": kernels, "carried": handed, "batch": 64, **more})


@given(SECTIONS)
def test_layers_are_those_of_the_sections_in_order(sections: list[Section]) -> None:
    written = [name for one in sections for _ in range(one.repeat) for name in one.layers]
    layers = layers_of(sections, carrying={*written})
    assert [layers.kinds[kind] for kind in layers.order] == written
    assert layers.counted == len(layers.kinds) == len({*written}) and layers.count == len(written)
    assert [layers.times(kind) for kind in range(layers.counted)] == [written.count(name) for name in layers.kinds]


@given(SECTIONS, st.integers(1, 9))
def test_every_layer_is_in_one_stage(sections: list[Section], stages: int) -> None:
    """An embedding in the first, a head in the last, and between them contiguous runs of no more than a share."""
    drawn = graph((Section(layers=("embed",)), *sections, Section(layers=("head",))))
    layers = drawn.layers
    if stages > layers.count:
        return
    plan = Plan(pp=stages, pp_dims=("x",), layers_per_stage=-(-layers.count // stages))
    found = pipeline_stages(drawn, plan)
    place, whole = 0, [name for name in (layers.kinds[kind] for kind in layers.order)]
    embed, head = layers.kinds.index("embed"), layers.kinds.index("head")
    known = {stage.runs for stage in found}
    for number in range(stages):
        mine = whole[place : place + plan.layers_per_stage]
        if layers.counted == 1:  # where all are alike a full stage stands for those that are not
            mine = whole[:1] * plan.layers_per_stage
        place += plan.layers_per_stage
        runs = {layers.kinds.index(name): mine.count(name) for name in mine}
        runs |= {embed: 1} if number == 0 else {}
        runs |= {head: 1} if number == stages - 1 else {}
        assert runs in [{kind: times for kind, times in one if times} for one in known]
    assert len(found) <= stages


def test_the_short_form_is_one_section() -> None:
    kernel = Kernel(name="a", op="gemm", m=1, k=1, n=1)
    short = Graph(name="g", repeat=4, kernels=(kernel,))
    assert short == Graph(name="g", sections=(Section(repeat=4),), kernels=(kernel,))
    assert (short.repeat, short.folded) == (4, True)
    assert Graph(name="g", repeat=1, kernels=(kernel,)).sections is None
    assert Graph.from_data({**short.to_data(), "sections": [{"repeat": 4}]}) == short


def test_version_1_had_a_layer_and_what_runs_once() -> None:
    kernel = {"op": "gemm", "m": 1, "k": 1, "n": 1}
    data = {
        "schema": "dfopt/graph/1", "name": "g", "repeat": 12,
        "kernels": [{"name": "e", "runs": "first", **kernel}, {"name": "l", **kernel},
                    {"name": "h", "runs": "last", **kernel}],
    }  # fmt: skip
    read = Graph.from_data(data)
    assert read.layers.kinds == ("layer", "first", "last")
    assert [(one.layers, one.repeat) for one in read.sections or ()] == [
        (("first",), 1),
        (("layer",), 12),
        (("last",), 1),
    ]
    assert [read.kind_of(one) for one in read.kernels] == [1, 0, 2]
    assert not Graph.from_data({**data, "repeat": 1}).folded
    assert read.to_data()["schema"] == "dfopt/graph/3"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"sections": [{"layers": ["layr"], "repeat": 2}]},
            r"\$\.kernels\[0\]\.layer.*found 'layer'.*no section has it",
        ),
        ({"sections": [{"repeat": 2}, {"layers": ["x"]}]}, r"\$\.sections\[1\]\.layers\[0\]: no kernel belongs to 'x'"),
        ({"sections": [{"repeat": 0}]}, r"\$\.sections\[0\]\.repeat: found 0, expected a number of 1 or more"),
        ({"sections": [{"layers": []}]}, r"\$\.sections\[0\]\.layers: found a list of 0"),
        ({"sections": [{"repeat": 2}], "repeat": 2}, r"\$\.repeat: found both repeat and sections"),
        ({"repeat": 0}, r"\$\.repeat: found 0, expected a whole number"),
        ({"repeat": "three"}, r"\$\.repeat: found 'three'"),
        ({"kernels": [{"name": "a", "op": "gemm", "m": 1, "k": 1, "n": 1, "layer": "x"}]}, "the graph has no sections"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], said: str) -> None:
    data = {"schema": "dfopt/graph/3", "name": "g", "kernels": [{"name": "a", "op": "gemm", "m": 1, "k": 1, "n": 1}]}
    with pytest.raises((DocumentError, GraphError), match=said):
        Graph.from_data({**data, **change})


def test_all_kinds_hand_on_the_same() -> None:
    sections = (Section(layers=("a", "b"), repeat=2),)
    with pytest.raises(GraphError, match=r"\$\.carried: 'a' hands on 32 B forward, but 'b' nothing"):
        graph(sections, carried=(Tensor(src="k_a", dst="k_a"),))
    with pytest.raises(GraphError, match=r"'k_a' belongs to 'a', but 'k_b' to 'b'"):
        graph(sections, tensors=(Tensor(src="k_a", dst="k_b"),))
