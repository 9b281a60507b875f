"""Where the time goes: of every partition, and of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import numpy as np

from dfopt.documents.result import Result
from dfopt.documents.score import PartitionScore
from dfopt.errors import PlanError
from dfopt.physics.schedule import TERMS, terms_of
from dfopt.show.parts import bound_parts
from dfopt.show.plots.step import PARTS
from dfopt.show.plots.style import LOOKS, Axes, axes, drawn, entry, head, on_stack, panels, patch, scale, short
from dfopt.units import format as show_unit

__all__ = ["breakdown", "longest"]

_MOST = 60  # bars of partitions in one picture
_STEP: Final = {
    **PARTS, **LOOKS, "network_bandwidth": LOOKS["network"]._replace(label="network bandwidth"),
    "network_latency": LOOKS["network"]._replace(label="network latency", hatch="...."),
}  # fmt: skip


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
    >>> result = df.solve(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
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
        shown = dict.fromkeys(name for result in results for name in bound_parts(result.score))
        bound = [patch(_STEP[n], f"bound by {_STEP[n].label}" if n.startswith(TERMS) else None) for n in shown]
        head(ax, "What takes the time of a step", bound)
        return ax
    (one,) = results
    parts, left, rest = longest(one.score.partitions, _MOST)
    together = f"{show_unit(rest, 'time', 3)} together"
    note = f"\n{left} shorter partitions, {together}, are not shown" if left else ""
    wide, high = 5.0 + 0.065 * max(len(_label(one, part)) for part in parts), 0.7 + 0.19 * max(3, len(parts))
    named: Sequence[str] = terms_of(parts)
    if ax is not None or of == "partitions" or one.score.breakdown is None:
        ax = axes(ax, wide, high)
    else:
        ax, lower = panels(wide, [high, 0.95])
        _steps(results, lower)
        named = [*dict.fromkeys([*named, *bound_parts(one.score)])]
    _partitions(one, parts, ax)
    mark = entry("time taken", marker="|", markersize=9, markeredgewidth=2.2, color="black")
    title = f"{one.mapping.graph} on {one.mapping.system}, {one.plan.label}{note}{on_stack(one)}"
    head(ax, title, [*(patch(_STEP[name]) for name in named), mark])
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
        look = _STEP[name]
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
    whole = [bound_parts(result.score) for result in results]
    unit_s, unit = scale(max(result.step_time for result in results))
    shown = dict.fromkeys(name for parts in whole for name in parts)
    times = {name: [parts.get(name, 0.0) / unit_s for parts in whole] for name in shown}
    names = [f"{one.mapping.graph} on {one.mapping.system}\n{one.plan.label}" for one in results]
    ends = _stacked(ax, times, names if len(names) > 1 else ["step, by what binds"], 0.6)
    for row, result in enumerate(results):
        ax.text(ends[row], row, f" {show_unit(result.step_time, 'time', 3)}", va="center", ha="left", fontsize=7.5)
    ax.set(xlim=(0, 1.13 * max(ends)), ylim=(len(results) - 0.5, -0.5), xlabel=f"time of a step ({unit})")
