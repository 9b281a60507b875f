"""Two figures of the cells of a sweep against each other, with the Pareto front of each workload."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from dfopt.errors import PlanError
from dfopt.show.plots.cells import (
    Row,
    figure_of,
    label_of,
    named,
    rows_of,
    smaller_is_better,
    text_of,
    varying,
    with_unit_of,
    workload_of,
)
from dfopt.show.plots.style import BLACK, CYCLE, axes, drawn, free_labels, head, unit_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["front", "pareto"]

_FEW: Final = 8  # points with labels that may stand far from them; the lines to more of them would cross
_MARKERS: Final = "osD^vPX"


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Positions of the points that no other one beats, both figures taken as smaller is better; sorted by the first.

    Of equal points the first is kept.

    Examples
    --------
    >>> front([(1.0, 5.0), (2.0, 3.0), (3.0, 4.0), (4.0, 1.0)])
    [0, 1, 3]
    """
    best, found = math.inf, []
    for position in sorted(range(len(points)), key=lambda one: points[one]):
        if points[position][1] < best:
            best = points[position][1]
            found.append(position)
    return found


@drawn
def pareto(
    runs: Any, x: str = "price_usd", y: str = "flop_per_s", by: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw two figures of every cell of a sweep against each other, and the front that no cell beats in both.

    Every workload has a front of its own: cells that do other work do not beat each other. Less is better of times,
    prices, powers and resources, more of the others.

    Parameters
    ----------
    runs : Runs, pandas.DataFrame or list of dict
        What ``df.sweep`` returned, its frame, or rows.
    x, y : str
        Columns with figures.
    by : str, optional
        Column that colours and marks tell apart, of at most seven labels; by default the graph, or the first axis that
        varies and has so few.
    ax : matplotlib.axes.Axes, optional
        Where; by default in a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    PlanError
        If a column is not there or has no figures, or Matplotlib is missing.

    Examples
    --------
    >>> rows = [{"system": s, "price_usd": p, "utilization": u} for s, p, u in [("a", 1, 0.1), ("b", 2, 0.5)]]
    >>> pareto(rows, "price_usd", "utilization").get_xlabel()
    'price, less is better'
    """
    from matplotlib.lines import Line2D

    rows = rows_of(runs)
    for option, name in (("x", x), ("y", y)):
        named(rows, name, option, figures=True)
    if by is not None:
        named(rows, by, "by")
    pairs = [(row, figure_of(row, x), figure_of(row, y)) for row in rows]
    kept = [(row, a, b) for row, a, b in pairs if a is not None and b is not None]
    if not kept:
        raise PlanError(f"pareto: found no cell that has both {x!r} and {y!r}, expected some")
    groups = _groups([row for row, *_ in kept], by)
    ax = axes(ax, 7.2, 4.2)
    handles = []
    for position, (label, mine) in enumerate(groups.items()):
        colour, marker = CYCLE[position], _MARKERS[position]
        ax.scatter(
            [kept[i][1] for i in mine], [kept[i][2] for i in mine], s=26, marker=marker, facecolor=colour,
            edgecolor="black", linewidth=0.4, zorder=3,
        )  # fmt: skip
        if label:
            handles.append(
                Line2D([], [], marker=marker, linestyle="", color=colour, markeredgecolor="black", markeredgewidth=0.4,
                       label=label)
            )  # fmt: skip
    signs = [1 if smaller_is_better(name) else -1 for name in (x, y)]
    fronts: list[list[int]] = []
    for work in dict.fromkeys(workload_of(row) for row, *_ in kept):
        mine = [i for i, (row, *_) in enumerate(kept) if workload_of(row) == work]
        fronts.append([mine[i] for i in front([(signs[0] * kept[i][1], signs[1] * kept[i][2]) for i in mine])])
    for best in fronts:
        points = [kept[i][1:] for i in best]
        (line,) = ax.plot(*zip(*points, strict=True), color=BLACK, linewidth=1.1, linestyle="--", zorder=2)
    line.set_label("Pareto front" + (" of each workload" if len(fronts) > 1 else ""))
    handles.append(line)
    for axis, one in ((ax.xaxis, [a for _, a, _ in kept]), (ax.yaxis, [b for *_, b in kept])):
        if min(one) > 0 and max(one) / min(one) > 30:
            (ax.set_xscale if axis is ax.xaxis else ax.set_yscale)("log")
    ax.margins(0.08)
    ax.autoscale_view()
    way = {1: "less is better", -1: "more is better"}
    for axis, name, sign in ((ax.xaxis, x, signs[0]), (ax.yaxis, y, signs[1])):
        unit_ticks(axis, with_unit_of(name))
        axis.set_label_text(f"{label_of(name)[0].rpartition(' (')[0]}, {way[sign]}")
    ax.grid(True, color="#E6E6E6", linewidth=0.5)
    ax.set_axisbelow(True)
    on_it = sum(map(len, fronts))
    names_of = {text_of(row, "graph") for row in rows}
    title = f"{names_of.pop()}: ".removeprefix(": ") if len(names_of) == 1 else ""
    title += f"{len(kept)} of {len(rows)} cells, {on_it} on {'a' if len(fronts) > 1 else 'the'} front"
    head(ax, title, handles)
    some = [row for row, *_ in kept]
    told = ["graph"] if by in (None, "graph") and len(groups) > 1 and "graph" in some[0] else []
    names = varying(some, told) or varying(some) or _known(some)
    labels = [(*kept[i][1:], _stacked([text_of(kept[i][0], name) for name in names])) for best in fronts for i in best]
    free_labels(ax, labels, 6.5, most=1, others=[(a, b) for _, a, b in kept], far=on_it <= _FEW)
    return ax


def _known(rows: Sequence[Row]) -> list[str]:
    """What names the points where no axis does, as in an old store: the system, or else the plan and the cell."""
    return ["system"] if any(text_of(row, "system") for row in rows) else ["plan", "cell"]


def _stacked(words: list[str]) -> str:
    """Labels of a point in lines of two."""
    return "\n".join(", ".join(word for word in words[i : i + 2] if word) for i in range(0, len(words), 2))


def _groups(rows: list[Row], by: str | None) -> dict[str, list[int]]:
    if by is None:
        few = [name for name in varying(rows) if len({text_of(row, name) for row in rows}) <= len(CYCLE)]
        by = "graph" if "graph" in few else few[0] if few else None
    if by is None:
        return {"": list(range(len(rows)))}
    found: dict[str, list[int]] = {}
    for position, row in enumerate(rows):
        found.setdefault(text_of(row, by) or "none", []).append(position)
    if len(found) > len(CYCLE):
        raise PlanError(f"pareto: by: found {len(found)} labels of {by!r}, expected at most {len(CYCLE)}")
    return found
