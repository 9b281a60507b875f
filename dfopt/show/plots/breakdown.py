"""Where the time of a step goes: its parts one after the other, by resource or by pass."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from dfopt.documents.result import Result
from dfopt.documents.score import Score
from dfopt.errors import PlanError
from dfopt.show.parts import time_parts
from dfopt.show.plots import style
from dfopt.show.plots.style import BUBBLE, GREY, LOOKS, PALETTE, Axes, Look, bars, drawn, inches, letters
from dfopt.units import number, show_unit

PARTS: Final = {  # by the field of a breakdown; work is blue, communication green or warm, waiting grey
    "forward": Look("forward", PALETTE["blue"], ""),
    "backward": Look("backward", PALETTE["sky"], ""),
    "recompute": Look("recompute", PALETTE["yellow"], "////"),
    "optimizer": Look("optimizer", PALETTE["purple"], ".."),
    "tensor_parallel": Look("tensor parallel", PALETTE["green"], "||||"),
    "exchange": Look("all-to-all and other exchange", PALETTE["green"], "xxxx"),
    "recomputed_communication": Look("recomputed communication", PALETTE["green"], "////"),
    "pipeline_parallel": Look("pipeline sends", PALETTE["orange"], "----"),
    "data_parallel": Look("data parallel", PALETTE["vermillion"], "++++"),
    "offload_forward": Look("offload, forward", PALETTE["vermillion"], "////"),
    "offload_backward": Look("offload, backward", PALETTE["vermillion"], "\\\\\\\\"),
    "overhead": Look("overhead", GREY, "xxxx"),
    "bubble": BUBBLE,
    "pause": Look("pause to cool", GREY, ".."),
}
_LOOKS: Final = {**LOOKS, **PARTS}
_ROW: Final = 0.27  # inches of a part


@drawn
def breakdown(*results: Result, ax: Axes | None = None) -> Axes:
    """Plot the time of a step by cause: chip resources, exposed communication, pipeline bubble.

    One result is a waterfall, in which each part starts where the last one ends; several are a bar each. The parts add
    up to the step. `PlanError` if there is no result.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.solve(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
    >>> df.plot.breakdown(result).get_xlabel()
    'time of a step (ms)'
    """
    return _drawn(results, ax, "breakdown", time_parts)


@drawn
def step(*results: Result, ax: Axes | None = None) -> Axes:
    """Plot the time of a step by pass: forward, backward, recompute, optimizer, communication, bubble.

    See :mod:`dfopt.documents.breakdown`. `PlanError` as of `breakdown`.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.solve(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
    >>> [label.get_text() for label in df.plot.step(result).get_yticklabels()]
    ['forward', 'tensor parallel', 'step']
    """
    return _drawn(results, ax, "step", lambda score: score.breakdown.parts)


def _drawn(
    results: Sequence[Result], ax: Axes | None, kind: str, split: Callable[[Score], dict[str, float]]
) -> Axes:  # fmt: skip
    if not results:
        raise PlanError(f"{kind}: found no result, expected one or more")
    by = "by pass" if kind == "step" else "by resource"
    parts = [split(result.score) for result in results]
    unit_s, unit = style.scale(max(result.step_time for result in results))
    if len(results) == 1:
        time = show_unit(results[0].step_time, "time", 3)
        ax = style.axes(ax, 8.0, 0.55 + _ROW * (len(parts[0]) + 1))
        _waterfall(ax, parts[0], unit_s)
        title, handles = f"Where the step of {time} goes, {by}\n{style.about(results[0])}\n{results[0].plan.label}", []
    else:
        shown = [name for name in _LOOKS if any(name in each for each in parts)]
        names = [_named(result) for result in results]
        tall = 1.0 + 0.45 * max(name.count("\n") + 1 for name in names)
        ax = style.axes(ax, 9.0, 0.6 + 0.33 * tall * len(results))
        _stacks(ax, parts, shown, unit_s, tall)
        for row, name in enumerate(names):
            ax.text(0, tall * row - 0.42, name, va="bottom", ha="left", fontsize=7.5)
        ax.set_yticks([])
        title, handles = f"Where the time of a step goes, {by}", [style.patch(_LOOKS[name]) for name in shown]
    ax.set(xlabel=f"time of a step ({unit})")
    style.gridlines(ax, "x")
    style.head(ax, title, handles)
    return ax


def _waterfall(ax: Axes, parts: Mapping[str, float], unit_s: float) -> None:
    total, start = sum(parts.values()), 0.0
    length = total / unit_s
    for row, (name, part) in enumerate(parts.items()):
        end = bars(ax, row, [(_LOOKS[name], part / unit_s)], start)
        words = f" {show_unit(part, 'time', 3)}, {number(100 * part / total, 2)} % "
        side, at, under = "right", start, None
        if end < 0.55 * length:
            side, at = "left", end
        elif end - start > 0.35 * length:
            side, at, under = "center", (start + end) / 2, style.PAPER
        ax.text(at, row, words, va="center", ha=side, fontsize=7.5, bbox=under)
        ax.plot([end] * 2, [row + 0.34, row + 0.66], color="#7F7F7F", linewidth=0.6)
        start = end
    bars(ax, len(parts), [(Look("step", GREY, ""), length)])
    ax.text(0.5 * length, len(parts), show_unit(total, "time", 3), va="center", ha="center", fontsize=7.5)
    names = [textwrap.fill(_LOOKS[name].label, letters(36)) for name in parts]
    ax.set_yticks(range(len(parts) + 1), [*names, "step"])
    ax.set(xlim=(0, 1.01 * length or 1.0), ylim=(len(parts) + 0.5, -0.5))


def _stacks(ax: Axes, parts: Sequence[Mapping[str, float]], shown: Sequence[str], unit_s: float, tall: float) -> None:
    longest = max(sum(each.values()) for each in parts) / unit_s
    for position, each in enumerate(parts):
        row, start, total = tall * position, 0.0, sum(each.values()) / unit_s
        for name in shown:
            end = bars(ax, row, [(_LOOKS[name], each.get(name, 0.0) / unit_s)], start)
            if end - start > 0.08 * longest * 9.0 / inches(9.0):
                share = f"{number(100 * (end - start) / total, 2)} %"
                ax.text((start + end) / 2, row, share, va="center", ha="center", fontsize=7, bbox=style.PAPER)
            start = end
        ax.text(start, row, f" {show_unit(total * unit_s, 'time', 3)}", va="center", ha="left", fontsize=7.5)
    room = 1.1 if inches(9.0) > 6 else 1.3
    ax.set(xlim=(0, room * longest), ylim=(tall * len(parts) - tall + 0.5, 0.3 - tall))


def _named(result: Result) -> str:
    """The workload, the machine and the plan of a result, in lines."""
    first = f"{result.mapping.graph} on {result.mapping.system}"
    return "\n".join(textwrap.wrap(f"{first}: {style.mapping_name(result)}", letters(130)))
