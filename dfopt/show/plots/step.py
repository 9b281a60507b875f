"""The parts of a step as bars: what passes, exposed communication and the pipeline's ends take of it."""

from __future__ import annotations

from typing import Final

from dfopt.documents.result import Result
from dfopt.errors import PlanError
from dfopt.show.plots.style import GREY, PALETTE, Axes, Look, axes, drawn, head, patch, scale
from dfopt.units import format as show_unit

__all__ = ["PARTS", "step"]

PARTS: Final = {  # by the field of a breakdown
    "forward": Look("forward", PALETTE["blue"], ""),
    "backward": Look("backward", PALETTE["sky"], ""),
    "recompute": Look("recompute", PALETTE["yellow"], "////"),
    "optimizer": Look("optimizer", PALETTE["purple"], "...."),
    "tensor_parallel": Look("tensor parallel", PALETTE["green"], "||||"),
    "exchange": Look("exchanges of kernels", PALETTE["green"], "xxxx"),
    "recomputed_communication": Look("recomputed communication", PALETTE["yellow"], "||||"),
    "pipeline_parallel": Look("pipeline parallel", PALETTE["orange"], "----"),
    "data_parallel": Look("data parallel", PALETTE["vermillion"], "++++"),
    "offload_forward": Look("offload, forward", PALETTE["vermillion"], "////"),
    "offload_backward": Look("offload, backward", PALETTE["vermillion"], "\\\\\\\\"),
    "overhead": Look("overhead", GREY, "xxxx"),
    "bubble": Look("bubble", GREY, ""),
    "pause": Look("pause to cool", GREY, "...."),
}


@drawn
def step(*results: Result, ax: Axes | None = None) -> Axes:
    """Draw the steps of results as bars of the parts that add up to them (:mod:`dfopt.documents.breakdown`).

    Communication is what it makes a step longer. `PlanError` if there is no result, or one of an earlier version,
    whose judge did not tell the parts: score it again.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.solve(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
    >>> df.plot.step(result).get_xlabel()
    'time of a step (ms)'
    """
    if not results:
        raise PlanError("step: found no result, expected one or more")
    parts = []
    for one in results:
        if one.score.breakdown is None:
            raise PlanError(f"step: found a result of {one.mapping.graph} without parts of its step; solve it again")
        parts.append(one.score.breakdown.parts)
    ax = axes(ax, 7.2, 0.9 + 0.42 * len(results))
    unit_s, unit = scale(max(one.step_time for one in results))
    ends = [0.0] * len(results)
    shown = [name for name in PARTS if any(name in each for each in parts)]
    for name in shown:
        widths = [each.get(name, 0.0) / unit_s for each in parts]
        look = PARTS[name]
        ax.barh(
            range(len(results)), widths, left=ends, height=0.6, color=look.colour, hatch=look.hatch,
            edgecolor="black", linewidth=0.4,
        )  # fmt: skip
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
    for row, one in enumerate(results):
        ax.text(ends[row], row, f" {show_unit(one.step_time, 'time', 3)}", va="center", ha="left", fontsize=7.5)
    several = [_named(one) for one in results]
    ax.set_yticks(range(len(results)), several if len(results) > 1 else ["step"])
    ax.set(xlim=(0, 1.13 * max(ends)), ylim=(len(results) - 0.5, -0.5), xlabel=f"time of a step ({unit})")
    title = several[0].replace("\n", ", ") if len(results) == 1 else "Parts of a step"
    head(ax, title, [patch(PARTS[name]) for name in shown])
    return ax


def _named(one: Result) -> str:
    how = f", {one.graph.variant}" if one.graph.variant else ""
    return f"{one.mapping.graph} on {one.mapping.system}\n{one.plan.label}{how}"
