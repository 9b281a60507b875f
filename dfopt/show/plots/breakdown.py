"""Where the time goes: of every partition, and of a step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from dfopt.documents.result import Result
from dfopt.documents.score import PartitionScore
from dfopt.errors import PlanError
from dfopt.physics.schedule import TERMS, terms_of
from dfopt.show.plots.style import LOOKS, Axes, axes, drawn, entry, head, on_stack, panels, patch, scale, short
from dfopt.units import format as show_unit

__all__ = ["breakdown", "longest", "step_parts"]

_MOST = 60  # bars of partitions in one picture
_ORDER = (*TERMS, "pause", "point_to_point", "fill", "gradient")


def step_parts(result: Result) -> dict[str, float]:
    """Seconds of a step by what takes them; their sum is the step.

    ``compute``, ``memory``, ``network`` and ``sram`` are the times of partitions that each of them binds (a
    partition's time, not its busy time), on the slowest stage, over all microbatches. Where two of them
    take turns, each has its share of the time that both take together.
    """
    score, plan = result.score, result.plan
    slowest = max(score.stages, key=lambda one: (one.time_s, one.layers * one.layer_time_s + one.once_time_s))
    found = dict.fromkeys(_ORDER, 0.0)
    terms: list[tuple[int, str, float]] = [(part.stage, part.bound_by, part.time_s) for part in score.partitions]
    terms += [(pause.stage, "pause", pause.time) for pause in result.mapping.pauses or ()]
    for stage, term, time in terms:
        found[term] += plan.microbatches * slowest.runs.get(stage, 0) * time
    if plan.two_batch_overlap:
        spent, taken = math.fsum(found.values()), plan.rounds * (slowest.time_s - 2 * slowest.point_to_point_s)
        found = {name: time * taken / (spent or 1.0) for name, time in found.items()}
    # what a stage waits for its neighbours beyond its own work: all of the hop, or what is not hidden behind the work
    hop = plan.rounds * slowest.time_s - math.fsum(found.values())
    rounding = 1e-12 * score.step_time_s
    found["point_to_point"] = (hop if hop > rounding else 0.0) + score.point_to_point_s
    found["fill"], found["gradient"] = score.pipeline_fill_s, score.gradient_reduction_s
    return found


@drawn
def breakdown(*results: Result, ax: Axes | None = None, of: Literal["partitions", "step"] | None = None) -> Axes:
    """Draw stacked bars of compute, DRAM and network time, of the partitions of one result or of the steps of several.

    Bars of partitions stack the busy times of the three resources; a black mark says what the partition takes, which is
    less where they overlap. Bars of steps stack what takes the time of the step. By default one result has both in a
    figure, of which the axes of the partitions are returned. The form follows DFModel (Ko et al.), Fig. 11. `PlanError`
    if there is no result, or several where ``of="partitions"``.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.optimize(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
    >>> df.plot.breakdown(result, of="step").get_xlabel()
    'time of a step (ms)'
    """
    if not results:
        raise PlanError("breakdown: found no result, expected one or more")
    if of == "partitions" and len(results) > 1:
        found = f"found {len(results)} results"
        raise PlanError(f"breakdown: {found}, expected one of which to draw the partitions")
    if of == "step" or len(results) > 1:
        ax = axes(ax, 7.2, 0.9 + 0.42 * len(results))
        _steps(results, ax)
        shown = [name for name in _ORDER if any(step_parts(result)[name] > 0 for result in results)]
        bound = [patch(LOOKS[n], f"bound by {LOOKS[n].label}" if n in TERMS else None) for n in shown]
        head(ax, "What takes the time of a step", bound)
        return ax
    (one,) = results
    parts, left, rest = longest(one.score.partitions, _MOST)
    together = f"{show_unit(rest, 'time', 3)} together"
    note = f"\n{left} shorter partitions, {together}, are not shown" if left else ""
    wide, high = 5.0 + 0.065 * max(len(_label(one, part)) for part in parts), 0.7 + 0.19 * max(3, len(parts))
    named: Sequence[str] = terms_of(parts)
    if ax is not None or of == "partitions":
        ax = axes(ax, wide, high)
    else:
        ax, lower = panels(wide, [high, 0.95])
        _steps(results, lower)
        named = [name for name in _ORDER if name in terms_of(parts) or step_parts(one)[name] > 0]
    _partitions(one, parts, ax)
    mark = entry("time taken", marker="|", markersize=9, markeredgewidth=2.2, color="black")
    title = f"{one.mapping.graph} on {one.mapping.system}, {one.plan.label}{note}{on_stack(one)}"
    head(ax, title, [*(patch(LOOKS[name]) for name in named), mark])
    return ax


def longest(parts: Sequence[PartitionScore], most: int) -> tuple[list[PartitionScore], int, float]:
    """The partitions that take longest, in order; how many others there are, and how many seconds these take."""
    out = {id(part) for part in sorted(parts, key=lambda part: -part.time_s)[most:]}
    rest = sum(part.time_s for part in parts if id(part) in out)
    return [part for part in parts if id(part) not in out], len(out), rest


def _label(result: Result, part: PartitionScore) -> str:
    several = any(one.stage != part.stage for one in result.score.partitions)
    return (f"{part.stage}." if several else "") + f"{part.partition}  {short(part.kernels)}"


def _stacked(ax: Axes, times: Mapping[str, Sequence[float]], labels: Sequence[str], height: float) -> list[float]:
    """Bars below each other, in each the times of several kinds; returns where they end."""
    ends = np.zeros(len(labels))
    for name, widths in times.items():
        look = LOOKS[name]
        ax.barh(
            range(len(labels)), widths, left=ends, height=height, color=look.colour, hatch=look.hatch,
            edgecolor="black", linewidth=0.4,
        )  # fmt: skip
        ends = ends + widths
    ax.set_yticks(range(len(labels)), labels)
    return ends.tolist()


def _partitions(result: Result, parts: list[PartitionScore], ax: Axes) -> None:
    unit_s, unit = scale(max((sum(part.terms.values()) for part in parts), default=0.0))
    times = {term: [part.terms.get(term, 0.0) / unit_s for part in parts] for term in terms_of(parts)}
    ends = _stacked(ax, times, [_label(result, part) for part in parts], 0.72)
    for row, part in enumerate(parts):
        at = [row - 0.45, row + 0.45]
        ax.plot([part.time_s / unit_s] * 2, at, color="black", linewidth=2.2, solid_capstyle="butt")
    ax.set(xlim=(0, 1.02 * max(ends) or 1.0), ylim=(len(parts) - 0.4, -0.6))
    ax.set(xlabel=f"busy time for one layer and microbatch ({unit})", ylabel="partition")


def _steps(results: tuple[Result, ...], ax: Axes) -> None:
    whole = [step_parts(result) for result in results]
    unit_s, unit = scale(max(result.step_time for result in results))
    times = {name: [parts[name] / unit_s for parts in whole] for name in _ORDER if any(one[name] for one in whole)}
    names = [f"{one.mapping.graph} on {one.mapping.system}\n{one.plan.label}" for one in results]
    ends = _stacked(ax, times, names if len(names) > 1 else ["step, by what binds"], 0.6)
    for row, result in enumerate(results):
        ax.text(ends[row], row, f" {show_unit(result.step_time, 'time', 3)}", va="center", ha="left", fontsize=7.5)
    ax.set(xlim=(0, 1.13 * max(ends)), ylim=(len(results) - 0.5, -0.5), xlabel=f"time of a step ({unit})")
