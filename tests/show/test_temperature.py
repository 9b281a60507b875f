"""Maps of temperatures: every tile where its floorplan says, the hottest framed."""

from __future__ import annotations

from functools import cache

import pytest

pytest.importorskip("matplotlib")
import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle
from plot_cases import overlapping

import dfopt as df
from dfopt.documents.physical_score import ChipHeat, DieHeat, PhysicalScore, TileHeat
from dfopt.errors import PlanError
from dfopt.machines.stacks import load_stack, with_stack


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
    plt.close("all")


def test_the_hottest_tile_is_framed_and_named() -> None:
    stack = load_stack("hybrid-4")
    ax = df.plot.temperature(hot(peak=7), stack=stack)
    die, tile = stack.tiles[7]
    frames = [patch for patch in ax.patches if isinstance(patch, Rectangle) and not patch.get_fill()]
    assert frames and all(patch.get_width() == pytest.approx(tile.width) for patch in frames)
    assert f"{tile.name} of {die}, 95.0" in ax.figure.texts[0].get_text()
    assert any("(°C)" in one.get_ylabel() for one in ax.figure.axes)
    plt.close("all")


def test_the_limits_are_said() -> None:
    stack = load_stack("hybrid-4")
    assert stack.limits.logic is not None and stack.limits.dram is not None
    words = f"logic {stack.limits.logic - 273.15:.4g} °C, DRAM {stack.limits.dram - 273.15:.4g} °C"
    assert words in df.plot.temperature(hot(), stack=stack).figure.texts[0].get_text()
    free = stack.model_copy(update={"limits": stack.limits.model_copy(update={"logic": None, "dram": None})})
    assert "limits" not in df.plot.temperature(hot(), stack=free).figure.texts[0].get_text()
    plt.close("all")


def test_a_result_on_a_stack_is_drawn_as_the_judge_has_it() -> None:
    system = with_stack(df.load_system("h100-8"), load_stack("hybrid-4"))
    one = df.optimize(df.load_graph("gpt2-small"), system, tp=8, sensitivity=False)
    assert one.score.physical is not None
    ax = df.plot.temperature(one)
    hottest = one.score.physical.hottest_tiles(1)[0]
    assert f"{hottest.tile} of {hottest.die}, {hottest.mean_c:.1f}" in ax.figure.texts[0].get_text()
    assert overlapping(ax) == []
    plt.close("all")


def test_figures_and_stack_must_belong_together() -> None:
    with pytest.raises(PlanError, match="found no stack"):
        df.plot.temperature(hot())
    with pytest.raises(PlanError, match="which stack ddr5 does not have; give the stack that was judged"):
        df.plot.temperature(hot(), stack=load_stack("ddr5"))
    with pytest.raises(PlanError, match="found stage 9, expected one of 0"):
        df.plot.temperature(hot(), stack=load_stack("hybrid-4"), stage=9)
