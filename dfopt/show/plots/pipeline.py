"""The pipeline schedule of a batch: which stage works on which microbatch, and where it waits."""

from __future__ import annotations

import textwrap
from typing import Any, Final

from dfopt.documents.plan import Plan
from dfopt.documents.result import Result
from dfopt.errors import PlanError
from dfopt.physics.schedule import Block, blocks, passes, trains
from dfopt.show.plots.breakdown import PARTS
from dfopt.show.plots.style import (
    GREY,
    PALETTE,
    Axes,
    Look,
    about,
    axes,
    drawn,
    figure_with,
    head,
    inches,
    letters,
    panels,
    patch,
    scale,
)
from dfopt.units import format as show_unit

__all__ = ["timeline"]

_ROWS: Final = 64  # stages in one picture
_BLOCKS: Final = 20000  # of a drawn schedule
_RASTER: Final = 4000  # more blocks than that are one image in an SVG, not paths
_SHOWS: Final = Look("communication that the step waits for", PALETTE["green"], "||||")
_HIDDEN: Final = Look("hidden behind work", GREY, "")
_LOOKS: Final = {
    # by pass, and whether the chunk is odd; light and dark enough to be told apart without colour
    ("forward", 0): Look("forward", PALETTE["blue"], ""),
    ("forward", 1): Look("forward, odd chunks", PALETTE["sky"], ""),
    ("backward", 0): Look("backward", PALETTE["orange"], ""),
    ("backward", 1): Look("backward, odd chunks", PALETTE["yellow"], ""),
}


def _enough(plan: Plan) -> int:
    """Microbatches that show the schedule of a plan: enough to fill and to drain, few enough to be told apart.

    Interleaved stages take them in groups of one per stage.
    """
    twice = 4 * plan.stages**2 * plan.interleave <= _BLOCKS and plan.interleave <= 2
    wanted = 2 * plan.stages if twice else plan.stages
    return min(plan.rounds, wanted if plan.interleave > 1 else max(8, wanted))


@drawn
def timeline(result: Result, ax: Axes | None = None, microbatches: int | None = None) -> Axes:
    """Draw a step: when each pipeline stage works on which microbatch, its bubble, and how much communication hides.

    Forward and backward times are those of the judge, hops between stages included. At most ``microbatches`` are drawn;
    by default as many as the schedule needs to be seen. `PlanError` if ``microbatches`` is below 1, or the interleaved
    order does not work with so many.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.solve(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=2, pp=4)
    >>> df.plot.timeline(result).get_ylabel()
    'pipeline stage'
    """
    plan = result.plan
    if microbatches is not None and microbatches < 1:
        raise PlanError(f"timeline: microbatches: found {microbatches}, expected 1 or more")
    count = min(microbatches, plan.rounds) if microbatches is not None else _enough(plan)
    made = blocks(plan, result.assumptions.schedule, passes(result), trains(result), count)
    end = max(block.end for stage in made for block in stage)
    unit_s, unit = scale(end)
    rows = made if plan.stages <= _ROWS else [*made[: _ROWS // 2], *made[-_ROWS // 2 :]]
    tall = 0.7 + (0.13 if len(rows) > 16 else 0.3) * max(len(rows), 2)
    links = _links(result)
    if ax is None and links:
        ax, lower = panels(11.0, [tall, 0.75 + 0.24 * len(links)])
        _overlap(lower, links, result.step_time)
    else:
        ax = axes(ax, 11.0, tall)
    bubble: dict[str, Any] = {"color": "white", "hatch": "\\\\\\\\", "edgecolor": "#7F7F7F"}
    ax.barh(range(len(rows)), [end / unit_s] * len(rows), height=0.86, linewidth=0.6, **bubble)
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
    handles += [patch(Look("bubble", "white", "\\\\\\\\"))]
    handles += [patch(_SHOWS), patch(_HIDDEN)] if links and len(figure_with(ax).axes) > 1 else []
    head(ax, _title(result, count, 1 - busy, len(rows)), handles)
    return ax


def _links(result: Result) -> dict[str, tuple[float, float]]:
    """Seconds of a step in which links are busy with each kind of communication, and those that the step waits."""
    busy, shows = result.score.link_time, result.score.breakdown
    if busy is None or shows is None:
        return {}
    return {name: (max(time, dict(shows)[f"{name}_s"]), dict(shows)[f"{name}_s"]) for name, time in busy.parts.items()}


def _overlap(ax: Axes, links: dict[str, tuple[float, float]], step_s: float) -> None:
    """A bar for each kind of communication: what the step waits for, and what hides behind work."""
    for row, (busy, shows) in enumerate(links.values()):
        for start, length, look in ((0.0, shows, _SHOWS), (shows, busy - shows, _HIDDEN)):
            ax.barh([row], [100 * length / step_s], left=[100 * start / step_s], height=0.7, color=look.colour,
                    hatch=look.hatch, edgecolor="black", linewidth=0.4)  # fmt: skip
        words = f" {show_unit(busy, 'time', 3)}, {100 * (busy - shows) / busy:.0f} % hidden"
        ax.text(100 * busy / step_s, row, words, va="center", ha="left", fontsize=7)
    longest = 100 * max(busy for busy, _ in links.values()) / step_s
    ax.set_yticks(range(len(links)), [textwrap.fill(PARTS[name].label, letters(36)) for name in links])
    ax.set(xlim=(0, (1.3 if inches(9.0) > 6 else 2.4) * longest), ylim=(len(links) - 0.4, -0.6))
    ax.set(xlabel="links busy (% of the step)")


def _title(result: Result, count: int, idle: float, rows: int) -> str:
    plan = result.plan
    name = "GPipe" if result.assumptions.schedule == "gpipe" else "1F1B"
    if plan.interleave > 1:
        name = f"{name}, interleaved over {plan.interleave} chunks"
    if not trains(result):
        name = "forward only"
    stages = f"{plan.stages} stage{'' if plan.stages == 1 else 's'}"
    said = f"A step over time: {name}, {stages}\n{about(result)}"
    some = "all" if count == plan.rounds else f"drawn with {count} of the step's"
    taken = "pair of microbatches" if plan.two_batch_overlap else "microbatch"
    several = "pairs of microbatches" if plan.two_batch_overlap else "microbatches"
    many = f"{some} {plan.rounds} {several}" if plan.rounds > 1 else f"one {taken}"
    said += f"\n{many}, bubble {100 * idle:.3g} % of the chart"
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
