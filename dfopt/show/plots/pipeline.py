"""The pipeline schedule of a batch: which stage works on which microbatch, and where it waits."""

from __future__ import annotations

from typing import Final

from dfopt.documents.plan import Plan
from dfopt.documents.result import Result
from dfopt.errors import PlanError
from dfopt.physics.schedule import Block, blocks, passes, trains
from dfopt.show.plots.style import GREY, PALETTE, Axes, Look, axes, drawn, figure_with, head, patch, scale
from dfopt.units import format as show_unit

__all__ = ["schedule"]

_ROWS: Final = 64  # stages in one picture
_BLOCKS: Final = 20000  # of a drawn schedule
_RASTER: Final = 4000  # more blocks than that are one image in an SVG, not paths
_LOOKS: Final = {
    # by pass, and whether the chunk is odd; light and dark enough to be told apart without colour
    ("forward", 0): Look("forward", PALETTE["blue"], ""),
    ("forward", 1): Look("forward, odd chunks", PALETTE["sky"], ""),
    ("backward", 0): Look("backward", PALETTE["yellow"], ""),
    ("backward", 1): Look("backward, odd chunks", PALETTE["vermillion"], ""),
}


def _enough(plan: Plan) -> int:
    """Microbatches that show the schedule of a plan: enough to fill and to drain, few enough to be told apart.

    Interleaved stages take them in groups of one per stage.
    """
    twice = 4 * plan.stages**2 * plan.interleave <= _BLOCKS and plan.interleave <= 8
    wanted = 2 * plan.stages if twice else plan.stages
    return min(plan.rounds, wanted if plan.interleave > 1 else max(8, wanted))


@drawn
def schedule(result: Result, ax: Axes | None = None, microbatches: int | None = None) -> Axes:
    """Draw the pipeline schedule of a step: 1F1B, its interleaved form, or GPipe, as plan and assumptions say.

    Forward and backward times are those of the judge, hops between stages included. At most ``microbatches`` are drawn;
    by default as many as the schedule needs to be seen. `PlanError` if ``microbatches`` is below 1, or the interleaved
    order does not work with so many.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.solve(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=2, pp=4)
    >>> df.plot.schedule(result).get_ylabel()
    'pipeline stage'
    """
    plan = result.plan
    if microbatches is not None and microbatches < 1:
        raise PlanError(f"schedule: microbatches: found {microbatches}, expected 1 or more")
    count = min(microbatches, plan.rounds) if microbatches is not None else _enough(plan)
    made = blocks(plan, result.assumptions.schedule, passes(result), trains(result), count)
    end = max(block.end for stage in made for block in stage)
    unit_s, unit = scale(end)
    rows = made if plan.stages <= _ROWS else [*made[: _ROWS // 2], *made[-_ROWS // 2 :]]
    ax = axes(ax, 9.0, 0.7 + (0.13 if len(rows) > 16 else 0.3) * max(len(rows), 3))
    ax.barh(range(len(rows)), [end / unit_s] * len(rows), height=0.86, color="white", edgecolor=GREY, linewidth=0.6)
    dense = sum(map(len, rows)) > _RASTER
    found = set()
    for row, stage in enumerate(rows):
        for key, look in _LOOKS.items():
            mine = [one for one in stage if (one.kind, one.chunk % 2) == key]
            if mine:
                found.add(key)
                ax.broken_barh(
                    [(one.start / unit_s, (one.end - one.start) / unit_s) for one in mine], (row - 0.43, 0.86),
                    facecolor=look.colour, edgecolor="black", linewidth=0.1 if dense else 0.3, rasterized=dense,
                )  # fmt: skip
    if len(rows) <= 16:
        _numbers(ax, rows, unit_s, end)
    every = 1 if len(rows) <= 16 else 4
    ax.set_yticks(range(0, len(rows), every), [str(stage[0].stage) for stage in rows][::every])
    ax.set(xlim=(0, end / unit_s), ylim=(len(rows) - 0.4, -0.6))
    ax.set(xlabel=f"time ({unit})", ylabel="pipeline stage")
    even = ", even chunks" if plan.interleave > 1 else ""
    handles = [patch(look, look.label + even * (key[1] == 0)) for key, look in _LOOKS.items() if key in found]
    busy = sum(one.end - one.start for stage in made for one in stage) / (end * plan.stages)
    head(ax, _title(result, count, 1 - busy, len(rows)), [*handles, patch(Look("idle", "white", ""))])
    return ax


def _title(result: Result, count: int, idle: float, rows: int) -> str:
    plan = result.plan
    name = "GPipe" if result.assumptions.schedule == "gpipe" else "1F1B"
    if plan.interleave > 1:
        name = f"{name}, interleaved over {plan.interleave} chunks"
    if not trains(result):
        name = "forward only"
    stages = f"{plan.stages} stage{'' if plan.stages == 1 else 's'}"
    said = f"{result.mapping.graph} on {result.mapping.system}: {name}, {stages}"
    some = "all" if count == plan.rounds else f"drawn with {count} of the step's"
    taken = "pair of microbatches" if plan.two_batch_overlap else "microbatch"
    several = "pairs of microbatches" if plan.two_batch_overlap else "microbatches"
    many = f"{some} {plan.rounds} {several}" if plan.rounds > 1 else f"one {taken}"
    said += f"\n{many}, idle {100 * idle:.3g} % of what is drawn"
    if count < plan.rounds:
        said += f"; filling takes {100 * result.score.pipeline_fill_s / result.step_time:.2g} % of the step"
        said += f" of {show_unit(result.step_time, 'time', 3)}"
    return said + (f"\nthe first and the last {rows // 2} stages" if rows < plan.stages else "")


def _numbers(ax: Axes, rows: list[list[Block]], unit_s: float, end: float) -> None:
    """The microbatch in every block that is wide enough for it."""
    figure = figure_with(ax)
    share = 0.92 if figure.axes == [ax] else ax.get_position().width  # of the figure's width, before it is laid out
    points = 72 * figure.get_size_inches()[0] * share / (end / unit_s)
    for row, stage in enumerate(rows):
        for one in stage:
            words = str(one.microbatch)
            if (one.end - one.start) / unit_s * points > 5.5 * len(words) + 3:
                ax.text(
                    (one.start + one.end) / 2 / unit_s, row, words, ha="center", va="center", fontsize=7,
                    color="white" if (one.kind == "forward") == (one.chunk % 2 == 0) else "black",
                )  # fmt: skip
