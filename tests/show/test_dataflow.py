"""Drawn graphs without overlap, with cut tensors, also large ones; maps of temperatures as floorplans say."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import pytest

pytest.importorskip("matplotlib")
from matplotlib.patches import Rectangle
from plot_cases import closed_figures, overlapping, result

import dfopt as df
from dfopt.documents.physical_score import ChipHeat, DieHeat, PhysicalScore, TileHeat
from dfopt.errors import PlanError
from dfopt.machines.stacks import load_stack, with_stack
from dfopt.show.plots.dataflow import sketch

_closed = pytest.fixture(autouse=True)(closed_figures)


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


@cache
def hot(name: str = "hybrid-4", peak: int = 5) -> PhysicalScore:
    """A score whose temperatures are made up: the tile number ``peak`` is the hottest."""
    stack = load_stack(name)
    tiles = tuple(
        TileHeat(die=die, tile=tile.name, power_w=1.0, mean_c=95.0 if i == peak else 60.0 + 0.1 * i)
        for i, (die, tile) in enumerate(stack.tiles)
    )
    dies = tuple(
        DieHeat(die=d.name, kind=d.kind, power_w=16.0, max_c=96.0, mean_c=61.0)
        for d in stack.layers
        if d.kind != "passive"
    )
    chip = ChipHeat(
        stage=0, stage_time_s=1.0, power_w=80.0, refresh_rate=1.0, refresh_kept=False, dies=dies, tiles=tiles
    )
    return PhysicalScore(
        stack=name, step_time_s=1.0, modelled_step_time_s=1.0, slowdown=1.0, interval_s=1.0, frequency=1.0,
        throttled=False, iterations=1, loop_gain=0.1, energy_per_step_j=1.0, energy_per_token_j=1.0, energy_j={},
        power_w=80.0, logic_max_c=96.0, refresh_rate=1.0, partitions=(), chips=(chip,),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["ddr5", "hybrid-4", "hybrid-16"])
def test_every_tile_is_drawn_once_and_texts_do_not_overlap(name: str) -> None:
    stack = load_stack(name)
    ax = df.plot.temperature(hot(name), stack=stack)
    filled = [patch for patch in ax.patches if isinstance(patch, Rectangle) and patch.get_fill()]
    assert len(filled) == len(stack.tiles)
    area = sum(patch.get_width() * patch.get_height() for patch in filled)
    dies = sum(1 for die in stack.layers if die.kind != "passive")
    assert area == pytest.approx(dies * stack.side_x * stack.side_y)
    assert overlapping(ax) == []


def test_the_hottest_tile_is_framed_and_named() -> None:
    stack = load_stack("hybrid-4")
    ax = df.plot.temperature(hot(peak=7), stack=stack)
    die, tile = stack.tiles[7]
    frames = [patch for patch in ax.patches if isinstance(patch, Rectangle) and not patch.get_fill()]
    assert frames and all(patch.get_width() == pytest.approx(tile.width) for patch in frames)
    assert f"{tile.name} of {die}, 95.0" in ax.figure.texts[0].get_text()
    assert any("(°C)" in one.get_ylabel() for one in ax.figure.axes)


def test_the_limits_are_said() -> None:
    stack = load_stack("hybrid-4")
    assert stack.limits.logic is not None and stack.limits.dram is not None
    words = f"logic {stack.limits.logic - 273.15:.4g} °C, DRAM {stack.limits.dram - 273.15:.4g} °C"
    assert words in df.plot.temperature(hot(), stack=stack).figure.texts[0].get_text()
    free = stack.model_copy(update={"limits": stack.limits.model_copy(update={"logic": None, "dram": None})})
    assert "limits" not in df.plot.temperature(hot(), stack=free).figure.texts[0].get_text()


def test_a_result_on_a_stack_is_drawn_as_the_judge_has_it() -> None:
    system = with_stack(df.load_system("h100-8"), load_stack("hybrid-4"))
    one = df.optimize(df.load_graph("gpt2-small"), system, tp=8, sensitivity=False)
    assert one.score.physical is not None
    ax = df.plot.temperature(one)
    hottest = one.score.physical.hottest_tiles(1)[0]
    assert f"{hottest.tile} of {hottest.die}, {hottest.mean_c:.1f}" in ax.figure.texts[0].get_text()
    assert overlapping(ax) == []


def test_figures_and_stack_must_belong_together() -> None:
    with pytest.raises(PlanError, match="found no stack"):
        df.plot.temperature(hot())
    with pytest.raises(PlanError, match="which stack ddr5 does not have; give the stack that was judged"):
        df.plot.temperature(hot(), stack=load_stack("ddr5"))
    with pytest.raises(PlanError, match="found stage 9, expected one of 0"):
        df.plot.temperature(hot(), stack=load_stack("hybrid-4"), stage=9)
