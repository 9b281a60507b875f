"""The pipeline schedule of a batch: which stage works on which microbatch, and where it waits."""

from __future__ import annotations

import textwrap
from typing import Any, Final

from dfopt.documents.plan import Plan
from dfopt.documents.result import Result
from dfopt.errors import PlanError
from dfopt.physics.schedule import ScheduledPass, blocks, passes, trains
from dfopt.show.plots import style
from dfopt.show.plots.breakdown import PARTS
from dfopt.show.plots.style import BUBBLE, GREY, PALETTE, Axes, Look, bars, drawn, figure_with, letters, patch
from dfopt.units import show_unit

_ROWS: Final = 64  # stages in one picture
_BLOCKS: Final = 20000  # of a drawn schedule
_THIN: Final = 6.0  # points of a mean block, below which chunks are not told apart
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
    """Plot a step over time: microbatches in each pipeline stage, the bubble, and hidden communication.

    Forward and backward times are those of the judge, hops between stages included.

    Parameters
    ----------
    result
        The result.
    ax : Axes, optional
        Axes to draw in; by default those of a new figure.
    microbatches : int, optional
        Most microbatches that are drawn; by default as many as show the schedule.

    Raises
    ------
    PlanError
        If ``microbatches`` is below 1, or not possible in the interleaved order.

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
    stages = blocks(plan, result.assumptions.schedule, passes(result), trains(result), count)
    end = max(block.end for stage in stages for block in stage)
    unit_s, unit = style.scale(end)
    rows = stages if plan.stages <= _ROWS else [*stages[: _ROWS // 2], *stages[-_ROWS // 2 :]]
    tall = 0.7 + (0.13 if len(rows) > 16 else 0.3) * max(len(rows), 2)
    links = _links(result)
    handles = []
    if ax is None and links:
        ax, lower = style.panels(11.0, [tall, 0.75 + 0.36 * len(links)])
        handles = _overlap(lower, links, result.step_time)
    else:
        ax = style.axes(ax, 11.0, tall)
    ax.barh(range(len(rows)), [end / unit_s] * len(rows), height=0.86, linewidth=0.6, color="white",
            edgecolor="#7F7F7F", hatch=BUBBLE.hatch)  # fmt: skip
    figure = figure_with(ax)
    share = 0.92 if len(figure.axes) <= 2 else ax.get_position().width  # of the width, before it is laid out
    points = 72 * figure.get_size_inches()[0] * share / end  # of a second
    thin = points * sum(block.end - block.start for block in stages[0]) < _THIN * len(stages[0])
    dense = sum(map(len, rows)) > _RASTER
    shown = set()
    for row, stage in enumerate(rows):
        for key, fill in _LOOKS.items():
            spans = [(block.start / unit_s, (block.end - block.start) / unit_s) for block in stage
                     if (block.kind, 0 if thin else block.chunk % 2) == key]  # fmt: skip
            if spans:
                shown.add(key)
                ax.broken_barh(spans, (row - 0.43, 0.86), facecolor=fill.colour, rasterized=dense or thin,
                               edgecolor=fill.colour if thin else "black", linewidth=0.1 if dense else 0.3)  # fmt: skip
        if len(rows) <= 16:
            _numbers(ax, row, stage, points, unit_s)
    every = 1 if len(rows) <= 16 else 4
    ax.set_yticks(range(0, len(rows), every), [str(stage[0].stage) for stage in rows][::every])
    ax.set(xlim=(0, end / unit_s), ylim=(len(rows) - 0.4, -0.6))
    ax.set(xlabel=f"time ({unit})", ylabel="pipeline stage")
    even = ", even chunks" * (plan.interleave > 1 and not thin)
    named = [patch(fill, fill.label + even * (key[1] == 0)) for key, fill in _LOOKS.items() if key in shown]
    waits = any(sum(block.end - block.start for block in stage) < (1 - 1e-9) * end for stage in stages)
    style.head(ax, _title(result, count, len(rows)), [*named, *[patch(BUBBLE)] * waits, *handles])
    return ax


def _links(result: Result) -> dict[str, tuple[float, float]]:
    """Seconds of a step in which links are busy with each kind of communication, and those that the step waits."""
    busy, shows = result.score.link_time.parts, dict(result.score.breakdown)
    return {name: (max(time, shows[f"{name}_s"]), shows[f"{name}_s"]) for name, time in busy.items()}


def _overlap(ax: Axes, links: dict[str, tuple[float, float]], step_s: float) -> list[Any]:
    """A bar for each kind of communication: what the step waits for, and what hides behind work; its legend."""
    ends = [100.0]
    for row, (busy, shows) in enumerate(links.values()):
        waited, hidden = 100 * shows / step_s, 100 * (busy - shows) / step_s
        ends.append(bars(ax, row + 0.14, [(_SHOWS, waited), (_HIDDEN, hidden)], height=0.46))
        words = f" {show_unit(busy, 'time', 3)}, {100 * (busy - shows) / busy:.0f} % hidden"
        ax.text(0, row - 0.28, words, va="center", ha="left", fontsize=7)
    ax.set_yticks(range(len(links)), [textwrap.fill(PARTS[name].label, letters(36)) for name in links])
    ax.set(xlim=(0, 1.02 * max(ends)), ylim=(len(links) - 0.5, -0.5), xlabel="links busy (% of the step)")
    shown = [patch(_SHOWS)] * any(shows for _, shows in links.values())
    return shown + [patch(_HIDDEN)] * any(busy > shows for busy, shows in links.values())


def _title(result: Result, count: int, rows: int) -> str:
    plan = result.plan
    name = "GPipe" if result.assumptions.schedule == "gpipe" else "1F1B"
    if plan.interleave > 1:
        name = f"{name}, interleaved over {plan.interleave} chunks"
    if not trains(result):
        name = "forward only"
    text = f"A step over time: {name}, {plan.stages} stage{'s' * (plan.stages > 1)}\n{style.about(result)}"
    some = "all" if count == plan.rounds else f"drawn with {count} of the step's"
    singular, plural = "microbatch", "microbatches"
    if plan.two_batch_overlap:
        singular, plural = "pair of microbatches", "pairs of microbatches"
    many = f"{some} {plan.rounds} {plural}" if plan.rounds > 1 else f"one {singular}"
    step = show_unit(result.step_time, "time", 3)
    text += f"\nbubble {100 * result.score.breakdown.bubble_s / result.step_time:.2g} % of the step of {step}; {many}"
    return text + (f"\nthe first and the last {rows // 2} stages" if rows < plan.stages else "")


def _numbers(ax: Axes, row: int, stage: list[ScheduledPass], points: float, unit_s: float) -> None:
    """The microbatch in every block that is wide enough for it."""
    from matplotlib.colors import to_rgba

    for block in stage:
        words = str(block.microbatch)
        if (block.end - block.start) * points > 5.5 * len(words) + 3:
            colour = style.on(to_rgba(_LOOKS[block.kind, block.chunk % 2].colour))
            middle = (block.start + block.end) / 2 / unit_s
            ax.text(middle, row, words, ha="center", va="center", fontsize=7, color=colour)
