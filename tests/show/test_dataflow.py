"""Drawn graphs: layouts without overlap, cut tensors, large graphs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest

pytest.importorskip("matplotlib")
import matplotlib as mpl

mpl.use("Agg")
import itertools

import matplotlib.pyplot as plt
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from plot_cases import result

import dfopt as df
from dfopt.show.plots.dataflow import sketch
from dfopt.show.plots.layout import layered, stacked

dags = st.integers(1, 14).flatmap(
    lambda n: st.tuples(
        st.lists(st.floats(0.3, 3.0), min_size=n, max_size=n),
        st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] < e[1]), max_size=30),
    )
)


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    plt.close("all")


@given(dags)
def test_boxes_lie_apart_inside_the_picture_and_arrows_go_down(
    dag: tuple[list[float], set[tuple[int, int]]],
) -> None:
    widths, edges = dag[0], sorted(dag[1])
    made = layered(widths, edges)
    spots = list(zip(made.centres, widths, strict=True))
    for i, ((x, y), wide) in enumerate(spots):
        assert x - wide / 2 >= -1e-9 and x + wide / 2 <= made.width + 1e-9 and 0 < y < made.height
        for (other, level), width in spots[:i]:
            assert level != y or abs(other - x) >= (wide + width) / 2 + 0.1
    for (src, dst), way in zip(edges, made.ways, strict=True):
        assert way[0] == made.centres[src] and way[-1] == made.centres[dst]
        assert all(before[1] > after[1] for before, after in itertools.pairwise(way))


def test_a_layout_is_the_same_each_time() -> None:
    widths, edges = [1.0] * 6, [(0, 2), (0, 5), (1, 2), (2, 3), (2, 4), (1, 5), (3, 5)]
    assert layered(widths, edges) == layered(widths, edges)


def test_cut_tensors_are_those_between_partitions() -> None:
    one = result("fused")
    made = sketch(one)
    place = {kernel.name: kernel.partition for kernel in one.mapping.kernels}
    cut = {(t.src, t.dst) for t in one.graph.tensors if place[t.src] != place[t.dst]}
    names = [label.split(" ", 1)[1] for label in made.labels]
    assert {(names[a], names[b]) for (a, b), c in zip(made.edges, made.cut, strict=True) if c} == cut
    ax = df.plot.dataflow(one, layout="layered")
    thick = [patch for patch in ax.patches if patch.get_gid() and patch.get_linewidth() > 1]
    assert len(thick) == len(cut) > 0
    assert all(patch.get_linestyle() != "-" for patch in thick)


def test_of_a_large_result_each_partition_is_a_box() -> None:
    one = result("fused")
    made = sketch(one, limit=5)
    for label, part in zip(made.labels, one.score.partitions, strict=True):
        assert label.startswith(f"{part.partition}  {part.kernels[0]}, ") and label.endswith(part.kernels[-1])
    assert "each box is a partition" in made.note and all(made.cut)
    assert made.note in df.plot.dataflow(one, layout="layered", limit=5).figure.texts[0].get_text()


def test_of_a_large_graph_the_first_kernels_are_drawn_and_a_note_says_so() -> None:
    graph = result("fused").graph
    made = sketch(graph, limit=4)
    assert len(made.labels) == 4 and made.note == f"the first 4 of {len(graph.kernels)} kernels"
    assert set(made.labels) <= {kernel.name for kernel in graph.kernels}


@given(dags)
def test_arcs_of_a_column_stay_inside_the_picture(dag: tuple[list[float], set[tuple[int, int]]]) -> None:
    widths, edges = dag[0], sorted(dag[1])
    made = stacked(widths, edges, 3.6)
    assert [y for _, y in made.centres] == sorted((y for _, y in made.centres), reverse=True)
    for (src, dst), (start, one, other, end) in zip(edges, made.ways, strict=True):
        for node, (x, y) in ((src, start), (dst, end)):
            assert (x, y) == (made.centres[node][0] + widths[node] / 2, made.centres[node][1])
        most = max((start[0] * (1 - t) ** 3 + 3 * one[0] * t * (1 - t) + end[0] * t**3) for t in np.linspace(0, 1, 50))
        assert max(start[0], end[0]) < most <= made.width + 1e-9 and one[0] == other[0]


@pytest.mark.parametrize("layout", ["layered", "stacked"])
def test_every_arrow_has_a_whole_head_at_its_box(layout: Literal["layered", "stacked"]) -> None:
    one = result("fused")
    ax = df.plot.dataflow(one, layout=layout)
    marks = {patch.get_gid(): patch for patch in ax.patches if patch.get_gid()}
    boxes = [patch.get_window_extent() for patch in ax.patches if not patch.get_gid()]
    pixels = boxes[0].height / 0.27  # per inch of the layout
    made = sketch(one)
    for src, dst in made.edges:
        head = marks[f"head-{src}-{dst}"]
        assert head.get_linestyle() == "solid"
        tip = ax.transData.transform(head.get_xy()[0])
        box = boxes[dst]
        outside = max(box.x0 - tip[0], tip[0] - box.x1, box.y0 - tip[1], tip[1] - box.y1)
        assert abs(outside) < 0.02 * pixels
