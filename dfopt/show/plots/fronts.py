"""Two figures of the cells of a sweep against each other, with the Pareto front of each workload."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from dfopt.errors import PlanError
from dfopt.show.plots import cells
from dfopt.show.plots.cells import Row, figure_of, named, rows_of, text_of, varying
from dfopt.show.plots.labels import free_labels
from dfopt.show.plots.style import BLACK, CYCLE, Axes, axes, drawn, entry, gridlines, head, unit_ticks
from dfopt.show.tables import first_of

_FEW: Final = 8  # points with labels that may stand far from them; the lines to more of them would cross
_MARKERS: Final = "osD^vPX"


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the Pareto-optimal points, sorted by the first coordinate; smaller is better."""
    best, positions = math.inf, []
    for position in sorted(range(len(points)), key=lambda position: points[position]):
        if points[position][1] < best:
            best = points[position][1]
            positions.append(position)
    return positions


@drawn
def pareto(
    runs: Any, x: str = "price_usd", y: str = "flop_per_s", by: str | None = None, ax: Axes | None = None
) -> Axes:
    """Plot two figures of all cells of a sweep, with their Pareto front.

    Every workload has a separate front, as cells with different work cannot be compared; with ``by``, every value of
    that column has one. Less is better for times, prices, powers and resources, more for all other columns. `PlanError`
    if a column is not there or has no figures.

    Parameters
    ----------
    runs : Runs, pandas.DataFrame or list of dict
        Result of ``df.sweep``, its frame, or rows.
    x, y, by : str
        Columns with figures, and a column of at most seven labels, each with a colour, a marker and a front; by default
        colours are by graph, or by the first varying axis with few enough labels.

    Examples
    --------
    >>> rows = [{"system": s, "price_usd": p, "utilization": u} for s, p, u in [("a", 1, 0.1), ("b", 2, 0.5)]]
    >>> pareto(rows, "price_usd", "utilization").get_xlabel()
    'price, less is better'
    """
    rows = rows_of(runs)
    for option, name in (("x", x), ("y", y)):
        named(rows, name, option, figures=True)
    if by is not None:
        named(rows, by, "by")
    kept = [row for row in rows if figure_of(row, x) is not None and figure_of(row, y) is not None]
    points = [(figure_of(row, x) or 0.0, figure_of(row, y) or 0.0) for row in kept]
    if not kept:
        why = f"; {notes[0]}" if (notes := [note for row in rows if (note := text_of(row, "note"))]) else ""
        raise PlanError(f"pareto: found no cell that has both {x!r} and {y!r}, expected some{why}")
    if by is None and {x, y} <= {*cells.RATES} and len({text_of(row, "system") for row in kept}) in range(2, 8):
        by = "system"  # a front of each, over all of its batches
    groups = _groups(kept, by)
    ax = axes(ax, 8.0, 4.2)
    handles = []
    for (label, members), colour, marker in zip(groups.items(), CYCLE, _MARKERS, strict=False):
        ax.scatter(
            [points[i][0] for i in members], [points[i][1] for i in members], s=26, marker=marker, facecolor=colour,
            edgecolor="black", linewidth=0.4, zorder=3,
        )  # fmt: skip
        if label:
            handles.append(entry(label, marker=marker, color=colour, markeredgecolor="black", markeredgewidth=0.4))
    signs = [1 if cells.smaller_is_better(name) else -1 for name in (x, y)]
    # cells that do the same work: a parameter of a graph may change that of a step
    works: dict[tuple[str, float | None], list[int]] = {}
    any_work = by is not None or {x, y} <= {*cells.RATES}
    for i, row in enumerate(kept):
        work = text_of(row, by or "graph"), None if any_work else figure_of(row, "flop_per_step")
        works.setdefault(work, []).append(i)
    best: list[int] = []
    colours = dict(zip(groups, CYCLE, strict=False)) if by else {}
    for (label, _), members in works.items():
        on_front = [members[i] for i in front([(signs[0] * points[i][0], signs[1] * points[i][1]) for i in members])]
        (line,) = ax.plot(
            *zip(*(points[i] for i in on_front), strict=True), color=colours.get(label, BLACK), linewidth=1.1,
            linestyle="--", zorder=2, drawstyle="steps-post",
        )  # fmt: skip
        best += on_front
    line.set_label("Pareto front" + (f" of each {(by or 'workload').replace('_', ' ')}" if len(works) > 1 else ""))
    handles.append(line)
    for figures, log in zip(zip(*points, strict=True), (ax.set_xscale, ax.set_yscale), strict=True):
        if min(figures) > 0 and max(figures) / min(figures) > 30:
            log("log")
    ax.margins(0.08)
    ax.autoscale_view()
    for axis, name, sign in zip((ax.xaxis, ax.yaxis), (x, y), signs, strict=True):
        words, write = cells.axis_of(name)
        unit_ticks(axis, write)
        axis.set_label_text(f"{words}, {'less' if sign > 0 else 'more'} is better")
    gridlines(ax)
    coloured = by or "graph"
    shown = [coloured] if coloured in ("graph", "system") and len(groups) > 1 and coloured in kept[0] else []
    names = varying(kept, shown) or varying(kept) or _names_without_axes(kept)
    graphs = {text_of(row, "graph") for row in rows}
    title = f"{graphs.pop()}: ".removeprefix(": ") if len(graphs) == 1 else ""
    title += f"{len(kept)} of {len(rows)} cells, {len(best)} on {'a' if len(works) > 1 else 'the'} front"
    title += f"; labels: {', '.join(map(cells.axis_title, names))}"
    head(ax, title + _lacking(rows, (x, y)), handles)
    labels = [(*points[i], _stacked([text_of(kept[i], name) for name in names])) for i in best]
    free_labels(ax, labels, 6.5, most=1, others=points, far=len(best) <= _FEW)
    return ax


def _lacking(rows: Sequence[Row], names: Sequence[str]) -> str:
    """A line for each figure that some systems do not have."""
    lines = ""
    for name in names:
        systems = list(dict.fromkeys(text_of(row, "system") for row in rows if figure_of(row, name) is None))
        lines += f"\nwithout {cells.axis_of(name)[0]}: {first_of(systems, 4)}" if systems else ""
    return lines


def _names_without_axes(rows: Sequence[Row]) -> list[str]:
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
    groups: dict[str, list[int]] = {}
    for position, row in enumerate(rows):
        groups.setdefault(text_of(row, by) or "none", []).append(position)
    if len(groups) > len(CYCLE):
        raise PlanError(f"pareto: by: found {len(groups)} labels of {by!r}, expected at most {len(CYCLE)}")
    return groups
