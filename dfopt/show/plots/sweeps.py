"""Pictures of a sweep: heat maps, alone or as small multiples, and scatters with their Pareto front."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from dfopt.errors import PlanError
from dfopt.show.plots.cells import Row, figure_of, label_of, named, rows_of, smaller_is_better, text_of, varying
from dfopt.show.plots.style import BLACK, CYCLE, GREY, axes, drawn, free_labels, head, log_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["front", "heat_map", "heat_maps", "pareto"]

_MOST: Final = 120  # rows or columns of one heat map
_MARKERS: Final = "osD^vPX"
_COLOURS: Final = "cividis"  # Nunez, Anderton, Renslow, PLoS ONE 13(7), 2018: even lightness for all colour vision


@drawn
def heat_map(
    runs: Any,
    value: str = "utilization",
    x: str | None = None,
    y: str | Sequence[str] | None = None,
    ax: Axes | None = None,
    limits: tuple[float, float] | None = None,
    title: str | None = None,
) -> Axes:
    """Draw one figure of a sweep over two axes of its study, with the number in every cell.

    The mean where several cells of the sweep meet; hatched where none has a mapping. The form follows DFModel
    (Ko et al.), Fig. 10.

    Parameters
    ----------
    runs : Runs, pandas.DataFrame or list of dict
        What ``df.sweep`` returned, its frame, or rows.
    value : str
        Column with the figure.
    x : str, optional
        Column that runs across; by default the last axis that varies, the topology where that does.
    y : str or sequence of str, optional
        Columns that run down; by default all other axes that vary.
    ax : matplotlib.axes.Axes, optional
        Where; by default in a new figure.
    limits : (float, float), optional
        Ends of the colour scale in the units of the column.
    title : str, optional
        In place of one that names the columns.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    PlanError
        If a column is not there or has no figures, nothing varies, or Matplotlib is missing.

    Examples
    --------
    >>> rows = [{"chip": c, "topology": t, "utilization": 0.1 * i} for i, (c, t) in enumerate(["ax", "ay", "bx", "by"])]
    >>> heat_map(rows, "utilization", x="topology", y="chip").get_xlabel()
    'topology'
    """
    rows = rows_of(runs)
    named(rows, value, "value", figures=True)
    across, down = _sides(rows, x, y)
    columns, lines, table, met = _pivot(rows, value, across, down)
    if max(len(columns), len(lines)) > _MOST:
        most = f"{len(columns)} x {len(lines)}"
        raise PlanError(
            f"heat map: found {most} cells, expected at most {_MOST} a side; choose other axes with x and y"
        )
    words, factor = label_of(value)
    figures = [[math.nan if one is None else factor * one for one in line] for line in table]
    ax = axes(ax, *_size(columns, lines))
    _cells(ax, figures, columns, lines, tuple(factor * one for one in limits) if limits else None, words)
    ax.set_xlabel(across.replace("_", " "))
    ax.set_ylabel(" / ".join(name.replace("_", " ") for name in down))
    head(ax, title or words + (f", mean of up to {met} cells each" if met > 1 else ""))
    return ax


def _sides(
    rows: list[Row], x: str | None, y: str | Sequence[str] | None, apart: Sequence[str] = ()
) -> tuple[str, list[str]]:
    """The columns that run across and down; by default axes that vary, but those ``apart``."""
    down = [y] if isinstance(y, str) else list(y or ())
    for option, name in [*(("x", name) for name in (x,) if name), *(("y", name) for name in down)]:
        named(rows, name, option)
    if x is None:
        free = varying(rows, [*down, *apart])
        if not free:
            raise PlanError("heat map: found no axis with more than one label, expected one; choose it with x")
        x = "topology" if "topology" in free else free[-1]
    return x, down or varying(rows, [x, *apart]) or ["graph" if "graph" in rows[0] and x != "graph" else x]


def _pivot(rows: list[Row], value: str, across: str, down: list[str]) -> tuple[list[str], list[str], list[Any], int]:
    """Labels across and down in order of appearance, the mean of what meets in each, and how many that is at most."""
    met: dict[tuple[str, str], list[float]] = {}
    columns: dict[str, None] = {}
    lines: dict[str, None] = {}
    for row in rows:
        column = text_of(row, across) or "none"
        line = " / ".join(text_of(row, name) or "none" for name in down)
        columns.setdefault(column)
        lines.setdefault(line)
        figure = figure_of(row, value)
        if figure is not None:
            met.setdefault((line, column), []).append(figure)
    table = [[_mean(met.get((line, column))) for column in columns] for line in lines]
    return list(columns), list(lines), table, max((len(found) for found in met.values()), default=0)


def _mean(found: list[float] | None) -> float | None:
    return math.fsum(found) / len(found) if found else None


def _size(columns: list[str], lines: list[str]) -> tuple[float, float]:
    names = 0.062 * max(map(len, lines)) + 0.7
    return max(3.6, names + 0.58 * len(columns) + 1.1), max(1.6, 1.0 + 0.27 * len(lines))


def _cells(ax: Axes, figures: list[list[float]], columns: list[str], lines: list[str], limits: Any, words: str) -> None:
    import matplotlib as mpl
    import numpy as np
    from matplotlib.colors import LogNorm, Normalize

    known = [one for line in figures for one in line if math.isfinite(one)]
    low, high = limits or (min(known), max(known))
    # few large figures would leave all others in one shade
    wide = low > 0 and high / low > 100
    shades = LogNorm(low, high) if wide else Normalize(low, high if high > low else low + 1)
    image = ax.imshow(
        np.ma.masked_invalid(np.asarray(figures)), aspect="auto", cmap=_COLOURS, norm=shades, interpolation="nearest"
    )
    colours = mpl.colormaps[_COLOURS]
    for row, line in enumerate(figures):
        for column, one in enumerate(line):
            if not math.isfinite(one):
                ax.add_patch(
                    mpl.patches.Rectangle(
                        (column - 0.5, row - 0.5), 1, 1, facecolor=GREY, hatch="////", edgecolor="white", linewidth=0
                    )
                )
                continue
            red, green, blue, _ = colours(shades(one))
            light = 0.2126 * red + 0.7152 * green + 0.0722 * blue  # luminance, ITU-R BT.709
            ax.text(
                column, row, _brief(one, known), ha="center", va="center", fontsize=6.5,
                color="black" if light > 0.45 else "white",
            )  # fmt: skip
    upright = sum(map(len, columns)) * 0.075 > 0.58 * len(columns)
    ax.set_xticks(
        range(len(columns)), columns, rotation=35 if upright else 0, ha="right" if upright else "center",
        rotation_mode="anchor" if upright else "default",
    )  # fmt: skip
    ax.set_yticks(range(len(lines)), lines)
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
    figure = ax.get_figure(root=True)
    assert figure is not None
    bar = figure.colorbar(image, ax=ax, pad=0.02, shrink=0.9)
    bar.set_label(words + (", logarithmic scale" if wide else ""))
    bar.outline.set_visible(False)
    log_ticks(bar.ax)


def _brief(value: float, all_of_them: Sequence[float]) -> str:
    """A number for a cell: as many digits as tell, and never wider than six letters."""
    largest = max(map(abs, all_of_them))
    if largest >= 1e5 or 0 < largest < 1e-2:
        return f"{value:.1e}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    return f"{value:.0f}" if largest >= 1000 else f"{value:.3g}" if largest >= 10 else f"{value:.2f}"


@drawn
def heat_maps(
    runs: Any,
    by: str,
    value: str = "utilization",
    x: str | None = None,
    y: str | Sequence[str] | None = None,
    across: int = 2,
) -> Figure:
    """Draw small multiples: one heat map for every label of an axis, all with one colour scale.

    Parameters
    ----------
    runs, value, x, y
        As of `heat_map`.
    by : str
        Column whose labels each get a map, such as ``graph``.
    across : int
        Maps beside each other.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    PlanError
        As of `heat_map`; or if ``by`` has more than 16 labels.

    Examples
    --------
    >>> rows = [{"graph": g, "chip": c, "topology": t, "gap": 0.1} for g in "gh" for c in "ab" for t in "xy"]
    >>> len(heat_maps(rows, "graph", "gap").axes)  # two maps with their colour bars
    4
    """
    import matplotlib.pyplot as plt

    rows = rows_of(runs)
    named(rows, by, "by")
    named(rows, value, "value", figures=True)
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(text_of(row, by) or "none", []).append(row)
    if len(groups) > 16:
        raise PlanError(f"heat maps: by: found {len(groups)} labels of {by!r}, expected at most 16")
    figures = [one for row in rows if (one := figure_of(row, value)) is not None]
    side_x, side_y = _sides(rows, x, y, [by])
    columns, lines, *_ = _pivot(rows, value, side_x, side_y)
    wide, high = _size(columns, lines)
    across = min(across, len(groups))
    deep = -(-len(groups) // across)
    figure, grid = plt.subplots(deep, across, figsize=(wide * across, high * deep), layout="constrained", squeeze=False)
    spots = [spot for line in grid for spot in line]
    for spot, (label, mine) in zip(spots, groups.items(), strict=False):
        shared = (min(figures), max(figures))
        heat_map(mine, value, side_x, side_y, ax=spot, limits=shared, title=f"{by}: {label}")
    for spot in spots[len(groups) :]:
        spot.set_axis_off()
    return figure


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

    Less is better of times, prices, powers and resources, more of the others.

    Parameters
    ----------
    runs : Runs, pandas.DataFrame or list of dict
        What ``df.sweep`` returned, its frame, or rows.
    x, y : str
        Columns with figures.
    by : str, optional
        Column that colours and marks tell apart, of at most seven labels; by default the first axis that varies and
        has so few.
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
    'price (USD), less is better'
    """
    from matplotlib.lines import Line2D

    rows = rows_of(runs)
    for option, name in (("x", x), ("y", y)):
        named(rows, name, option, figures=True)
    if by is not None:
        named(rows, by, "by")
    pairs = [(row, figure_of(row, x), figure_of(row, y)) for row in rows]
    (words_x, times_x), (words_y, times_y) = label_of(x), label_of(y)
    kept = [(row, times_x * a, times_y * b) for row, a, b in pairs if a is not None and b is not None]
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
    best = front([(signs[0] * a, signs[1] * b) for _, a, b in kept])
    handles += ax.plot(
        [kept[i][1] for i in best], [kept[i][2] for i in best], color=BLACK, linewidth=1.1, linestyle="--", zorder=2,
        label="Pareto front",
    )  # fmt: skip
    for axis, one in ((ax.xaxis, [a for _, a, _ in kept]), (ax.yaxis, [b for *_, b in kept])):
        if min(one) > 0 and max(one) / min(one) > 30:
            (ax.set_xscale if axis is ax.xaxis else ax.set_yscale)("log")
    log_ticks(ax)
    ax.margins(0.08)
    way = {1: "less is better", -1: "more is better"}
    ax.set_xlabel(f"{words_x}, {way[signs[0]]}")
    ax.set_ylabel(f"{words_y}, {way[signs[1]]}")
    ax.grid(True, color="#E6E6E6", linewidth=0.5)
    ax.set_axisbelow(True)
    head(ax, f"{len(kept)} of {len(rows)} cells, {len(best)} on the front", handles)
    some = [row for row, *_ in kept]
    names = varying(some) or _known(some)
    points = [(kept[i][1], kept[i][2], _stacked([text_of(kept[i][0], name) for name in names])) for i in best]
    free_labels(ax, points, 6.5, most=1, others=[(a, b) for _, a, b in kept])
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
        by = few[0] if few else None
    if by is None:
        return {"": list(range(len(rows)))}
    found: dict[str, list[int]] = {}
    for position, row in enumerate(rows):
        found.setdefault(text_of(row, by) or "none", []).append(position)
    if len(found) > len(CYCLE):
        raise PlanError(f"pareto: by: found {len(found)} labels of {by!r}, expected at most {len(CYCLE)}")
    return found
