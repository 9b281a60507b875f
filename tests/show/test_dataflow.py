"""Drawn graphs: boxes and arrows without overlap, cut tensors, large graphs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("matplotlib")
import matplotlib as mpl

mpl.use("Agg")
import itertools

import matplotlib.pyplot as plt
from plot_cases import result

import dfopt as df
from dfopt.show.plots.dataflow import sketch


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    plt.close("all")


def test_cut_tensors_are_those_between_partitions() -> None:
    one = result("fused")
    made = sketch(one)
    place = {kernel.name: kernel.partition for kernel in one.mapping.kernels}
    cut = {(t.src, t.dst) for t in one.graph.tensors if place[t.src] != place[t.dst]}
    names = [label.split(" ", 1)[1] for label in made.labels]
    assert {(names[a], names[b]) for (a, b), c in zip(made.edges, made.cut, strict=True) if c} == cut
    ax = df.plot.dataflow(one)
    thick = [patch for patch in ax.patches if patch.get_gid() and patch.get_linewidth() > 1]
    assert len(thick) == len(cut) > 0
    assert all(patch.get_linestyle() != "-" for patch in thick)


def test_of_a_large_result_each_partition_is_a_box() -> None:
    one = result("fused")
    made = sketch(one, limit=5)
    for label, part in zip(made.labels, one.score.partitions, strict=True):
        assert label.startswith(f"{part.partition}  {part.kernels[0]}, ") and label.endswith(part.kernels[-1])
    assert "each box is a partition" in made.note and all(made.cut)
    assert made.note in df.plot.dataflow(one, limit=5).figure.texts[0].get_text()


def test_of_a_large_graph_the_first_kernels_are_drawn_and_a_note_says_so() -> None:
    graph = result("fused").graph
    made = sketch(graph, limit=4)
    assert len(made.labels) == 4 and made.note == f"the first 4 of {len(graph.kernels)} kernels"
    assert set(made.labels) <= {kernel.name for kernel in graph.kernels}


def placed(ax: Any) -> tuple[list[Any], dict[str, Any]]:
    """Boxes of a picture in its order, and arrows by what they are called."""
    return [patch for patch in ax.patches if not patch.get_gid()], {
        patch.get_gid(): patch for patch in ax.patches if patch.get_gid()
    }


@pytest.mark.parametrize("case", ["fused", "many", "one-by-one"])
def test_boxes_stand_in_a_column_and_arrows_beside_it_inside_the_picture(case: str) -> None:
    for pixels in (1280, 420):
        with df.plot.width(pixels):
            ax = df.plot.dataflow(result(case))
        boxes, arrows = placed(ax)
        frames = [box.get_bbox() for box in boxes]
        assert all(above.y0 > below.y1 for above, below in itertools.pairwise(frames))
        right = frames[0].x1
        assert all(frame.x1 == pytest.approx(right) and frame.x0 >= ax.get_xlim()[0] for frame in frames)
        for name, arrow in arrows.items():
            x = arrow.get_path().interpolated(1).to_polygons(closed_only=False)[0][:, 0]
            assert right <= x.min() + 1e-9 and x.max() <= ax.get_xlim()[1], name


def test_every_arrow_has_a_head_that_touches_its_box() -> None:
    one = result("fused")
    boxes, arrows = placed(df.plot.dataflow(one))
    for src, dst in sketch(one).edges:
        tip, frame = arrows[f"head-{src}-{dst}"].get_xy()[0], boxes[dst].get_bbox()
        assert tip[0] == pytest.approx(frame.x1) and frame.y0 < tip[1] < frame.y1
        start = arrows[f"tensor-{src}-{dst}"].get_path().vertices[0]
        assert start[0] == pytest.approx(frame.x1) and boxes[src].get_bbox().y0 < start[1] < boxes[src].get_bbox().y1
