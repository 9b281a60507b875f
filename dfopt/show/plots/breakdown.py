"""Where the time goes: of every partition, and of a step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from dfopt.documents.result import Result
from dfopt.documents.score import PartitionScore
from dfopt.errors import PlanError
from dfopt.show.plots.style import LOOKS, axes, drawn, head, on_stack, panels, patch, scale, short, with_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["latency_breakdown", "step_parts"]

_MOST = 60  # bars of partitions in one picture
_TERMS = ("compute", "memory", "network")
_ORDER = (*_TERMS, "pause", "point_to_point", "fill", "gradient")


def step_parts(result: Result) -> dict[str, float]:
    """Seconds of a step by what takes them; their sum is the step.

    ``compute``, ``memory`` and ``network`` are the times of partitions that each of them binds (a partition's time,
    not its busy time), on the slowest stage, over all microbatches.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.optimize(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
    >>> abs(sum(step_parts(result).values()) / result.step_time - 1) < 1e-9
    True
    """
    score, plan = result.score, result.plan
    slowest = max(score.stages, key=lambda one: (one.time_s, one.layers * one.layer_time_s + one.once_time_s))
    found = dict.fromkeys(_ORDER, 0.0)
    held = slowest.holds or (slowest.stage,)
    for part in score.partitions:
        if part.stage in held:
            times = slowest.layers if part.stage == held[0] else 1
            found[part.bound_by] += plan.microbatches * times * part.time_s
    for pause in result.mapping.pauses or ():
        if pause.stage in held:
            times = slowest.layers if pause.stage == held[0] else 1
            found["pause"] += plan.microbatches * times * pause.time
    # what a stage waits for its neighbours beyond its own work: all of the hop, or what is not hidden behind the work
    hop = plan.microbatches * slowest.time_s - math.fsum(found.values())
    rounding = 1e-12 * score.step_time_s
    found["point_to_point"] = (hop if hop > rounding else 0.0) + score.point_to_point_s
    found["fill"], found["gradient"] = score.pipeline_fill_s, score.gradient_reduction_s
    return found


@drawn
def latency_breakdown(
    *results: Result, ax: Axes | None = None, of: Literal["partitions", "step"] | None = None
) -> Axes:
    """Draw stacked bars of compute, DRAM and network time, of the partitions of one result or of the steps of several.

    Bars of partitions stack the busy times of the three resources; a black mark says what the partition takes, which
    is less where they overlap. Bars of steps stack what takes the time of the step. The form follows DFModel
    (Ko et al.), Fig. 11.

    Parameters
    ----------
    *results : Result
        One, or several to compare.
    ax : matplotlib.axes.Axes, optional
        Where; by default in a new figure, which of one result holds both partitions and step.
    of : {"partitions", "step"}, optional
        What to draw; by default partitions of one result, steps of several.

    Returns
    -------
    matplotlib.axes.Axes
        Of the partitions, where there are two.

    Raises
    ------
    PlanError
        If there is no result, or several where ``of="partitions"``, or Matplotlib is missing.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.optimize(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
    >>> df.plot.latency_breakdown(result, of="step").get_xlabel()
    'time of a step (ms)'
    """
    from matplotlib.lines import Line2D

    if not results:
        raise PlanError("latency_breakdown: found no result, expected one or more")
    if of == "partitions" and len(results) > 1:
        raise PlanError(
            f"latency_breakdown: found {len(results)} results, expected one of which to draw the partitions"
        )
    if of == "step" or len(results) > 1:
        ax = axes(ax, 7.2, 0.9 + 0.42 * len(results))
        _steps(results, ax)
        head(ax, "What takes the time of a step", _step_patches(results))
        return ax
    (one,) = results
    shown, note = _shown(one)
    wide, high = 5.0 + 0.065 * max(len(_label(one, part)) for part in shown), 0.7 + 0.19 * max(3, len(shown))
    if ax is not None or of == "partitions":
        ax, names = axes(ax, wide, high), [patch(LOOKS[term]) for term in _TERMS]
    else:
        ax, lower = panels(wide, [high, 0.95])
        _steps(results, lower)
        names = [patch(LOOKS[name]) for name in _ORDER if name in _TERMS or step_parts(one)[name] > 0]
    _partitions(one, shown, ax)
    mark = Line2D(
        [], [], marker="|", markersize=9, markeredgewidth=2.2, linestyle="", color="black", label="time taken"
    )
    head(ax, f"{one.mapping.graph} on {one.mapping.system}, {one.plan.label}{note}{on_stack(one)}", [*names, mark])
    return ax


def _shown(result: Result) -> tuple[list[PartitionScore], str]:
    """The partitions that are drawn, and what to say of the others."""
    parts = list(result.score.partitions)
    hidden = {id(part) for part in sorted(parts, key=lambda part: -part.time_s)[_MOST:]}
    if not hidden:
        return parts, ""
    rest = with_unit(sum(part.time_s for part in parts if id(part) in hidden), "time")
    note = f"\n{len(hidden)} shorter partitions, {rest} together, are not shown"
    return [part for part in parts if id(part) not in hidden], note


def _label(result: Result, part: PartitionScore) -> str:
    several = any(one.stage != part.stage for one in result.score.partitions)
    return (f"{part.stage}." if several else "") + f"{part.partition}  {short(part.kernels)}"


def _partitions(result: Result, parts: list[PartitionScore], ax: Axes) -> None:
    unit_s, unit = scale(max((sum(_busy(part).values()) for part in parts), default=0.0))
    rows = range(len(parts))
    left = [0.0] * len(parts)
    for term in _TERMS:
        look, width = LOOKS[term], [_busy(part)[term] / unit_s for part in parts]
        ax.barh(
            rows, width, left=left, height=0.72, color=look.colour, hatch=look.hatch, edgecolor="black", linewidth=0.4
        )
        left = [before + more for before, more in zip(left, width, strict=True)]
    for row, part in enumerate(parts):
        ends = [row - 0.45, row + 0.45]
        ax.plot([part.time_s / unit_s] * 2, ends, color="black", linewidth=2.2, solid_capstyle="butt")
    ax.set_yticks(list(rows), [_label(result, part) for part in parts])
    ax.set_ylim(len(parts) - 0.4, -0.6)
    ax.set_xlim(0, 1.02 * max(left) or 1.0)
    ax.set_ylabel("partition")
    ax.set_xlabel(f"busy time for one layer and microbatch ({unit})")


def _busy(part: PartitionScore) -> dict[str, float]:
    return {"compute": part.compute_s, "memory": part.memory_s, "network": part.network_s}


def _step_patches(results: tuple[Result, ...]) -> list[object]:
    shown = [name for name in _ORDER if any(step_parts(result)[name] > 0 for result in results)]
    return [patch(LOOKS[n], f"bound by {LOOKS[n].label}" if n in _TERMS else LOOKS[n].label) for n in shown]


def _steps(results: tuple[Result, ...], ax: Axes) -> None:
    whole = [step_parts(result) for result in results]
    unit_s, unit = scale(max(result.step_time for result in results))
    rows = range(len(results))
    left = [0.0] * len(results)
    for name in _ORDER:
        look, width = LOOKS[name], [parts[name] / unit_s for parts in whole]
        if any(width):
            ax.barh(
                rows, width, left=left, height=0.6, color=look.colour, hatch=look.hatch, edgecolor="black",
                linewidth=0.4,
            )  # fmt: skip
        left = [before + more for before, more in zip(left, width, strict=True)]
    for row, result in enumerate(results):
        ax.text(left[row], row, f" {with_unit(result.step_time, 'time')}", va="center", ha="left", fontsize=7.5)
    names = ["step, by what binds"] if len(results) == 1 else [_name(result) for result in results]
    ax.set_yticks(list(rows), names)
    ax.set_ylim(len(results) - 0.5, -0.5)
    ax.set_xlim(0, 1.13 * max(left))
    ax.set_xlabel(f"time of a step ({unit})")


def _name(result: Result) -> str:
    return f"{result.mapping.graph} on {result.mapping.system}\n{result.plan.label}"
