"""Heat maps of a sweep, alone or as small multiples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from dfopt.errors import PlanError
from dfopt.show.plots.cells import Row, axis_title, figure_of, label_of, named, rows_of, text_of, varying, with_unit_of
from dfopt.show.plots.style import GREY, Axes, Figure, axes, colour_bar, drawn, head, inches, on, unit_ticks

_MOST: Final = 120  # rows or columns of one heat map
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
    """Plot one figure of a sweep over two axes of its study, with the value in every cell.

    The mean where several cells of the sweep meet; hatched where none has a mapping, blank where there is no cell. The
    form follows DFModel (Ko et al.), Fig. 10. `PlanError` if a column is missing or has no figures, or nothing varies.

    Parameters
    ----------
    runs : Runs, pandas.DataFrame or list of dict
        Result of ``df.sweep``, its frame, or rows.
    x : str, optional
        Column that runs across; by default the last axis that varies, the topology where that does.
    y : str or sequence of str, optional
        Columns that run down; by default all other axes that vary, without those that the others tell.
    limits : (float, float), optional
        Ends of the colour scale in the units of the column.

    Examples
    --------
    >>> rows = [{"chip": c, "topology": t, "utilization": 0.1 * i} for i, (c, t) in enumerate(["ax", "ay", "bx", "by"])]
    >>> heat_map(rows, "utilization", x="topology", y="chip").get_xlabel()
    'topology'
    """
    rows = rows_of(runs)
    named(rows, value, "value", figures=True)
    across, down = _sides(rows, x, y)
    columns, lines, values = _pivot(rows, value, across, down)
    if max(len(columns), len(lines)) > _MOST:
        size = f"found {len(columns)} x {len(lines)} cells"
        raise PlanError(f"heat map: {size}, expected at most {_MOST} a side; choose other axes with x and y")
    words, factor = label_of(value)
    means = {at: factor * (math.fsum(all_) / len(all_)) if all_ else math.nan for at, all_ in sorted(values.items())}
    ax = axes(ax, *_size(columns, lines))
    finite = [mean for mean in means.values() if math.isfinite(mean)]
    ends = [factor * end for end in limits] if limits else [min(finite), max(finite)]
    _draw(ax, means, columns, lines, ends, value)
    ax.set(xlabel=axis_title(across), ylabel=" / ".join(map(axis_title, down)))
    most_met = max(map(len, values.values()))
    graphs = {text_of(row, "graph") for row in rows}
    words = f"{graphs.pop()}: {words}" if len(graphs) == 1 and graphs != {""} else words
    head(ax, title or words + (f", mean of up to {most_met} cells each" if most_met > 1 else ""))
    return ax


def _sides(
    rows: list[Row], x: str | None, y: str | Sequence[str] | None, taken: Sequence[str] = ()
) -> tuple[str, list[str]]:
    """The columns that run across and down; by default axes that vary, but those ``taken``."""
    down = [y] if isinstance(y, str) else list(y or ())
    for option, name in [*(("x", name) for name in (x,) if name), *(("y", name) for name in down)]:
        named(rows, name, option)
    if x is None:
        free = varying(rows, [*down, *taken])
        if not free:
            raise PlanError("heat map: found no axis with more than one label, expected one; choose it with x")
        x = "topology" if "topology" in free else free[-1]
    return x, down or varying(rows, [x, *taken]) or ["graph" if "graph" in rows[0] and x != "graph" else x]


def _pivot(
    rows: list[Row], value: str, across: str, down: list[str]
) -> tuple[list[str], list[str], dict[tuple[int, int], list[float]]]:
    """Labels across and down in order of appearance, and the figures of the cells that meet in each row and column."""
    downs = [" / ".join(text_of(row, name) or "none" for name in down) for row in rows]
    spots = list(zip(downs, (text_of(row, across) or "none" for row in rows), strict=True))
    lines = {line: i for i, line in enumerate(dict.fromkeys(line for line, _ in spots))}
    columns = {column: i for i, column in enumerate(_merged([[c for at, c in spots if at == line] for line in lines]))}
    values: dict[tuple[int, int], list[float]] = {}
    for row, (line, column) in zip(rows, spots, strict=True):
        figure = figure_of(row, value)
        values.setdefault((lines[line], columns[column]), []).extend([] if figure is None else [figure])
    return list(columns), list(lines), values


def _merged(orders: Sequence[Sequence[str]]) -> list[str]:
    """Labels in the order of all lines, of which each may lack some.

    Examples
    --------
    >>> _merged([["a", "c"], ["a", "b", "c"], ["d"]])
    ['a', 'b', 'c', 'd']
    """
    merged: list[str] = []
    for labels in orders:
        place = 0 if set(labels) & set(merged) else len(merged)
        for label in labels:
            if label not in merged:
                merged.insert(place, label)
            place = max(place, merged.index(label) + 1)
    return merged


def _size(columns: list[str], lines: list[str]) -> tuple[float, float]:
    names = 0.062 * max(map(len, lines)) + 0.7
    return max(3.6, names + 0.58 * len(columns) + 1.1), max(1.6, 1.0 + 0.27 * len(lines))


def _draw(
    ax: Axes, means: dict[tuple[int, int], float], columns: list[str], lines: list[str], ends: list[float], value: str
) -> None:  # fmt: skip
    import matplotlib as mpl
    import numpy as np
    from matplotlib.colors import LogNorm, Normalize

    low, high = ends
    # few large figures would leave all others in one shade
    wide = low > 0 and high / low > 100
    shades = LogNorm(low, high) if wide else Normalize(low, high if high > low else low + 1)
    colours = mpl.colormaps[_COLOURS]
    table = np.full((len(lines), len(columns)), math.nan)
    for at, mean in means.items():
        table[at] = mean
    masked = np.ma.masked_invalid(table)
    image = ax.imshow(masked, aspect="auto", cmap=_COLOURS, norm=shades, interpolation="nearest")
    largest = float(abs(masked).max())
    wanted = _size(columns, lines)[0]
    cell = 0.58 - (wanted - inches(wanted)) / len(columns)  # inches
    for (row, column), mean in means.items():
        if math.isfinite(mean):
            words = _brief(mean, largest) * (cell >= 0.32)  # else there is no room for numbers
            ax.text(column, row, words, ha="center", va="center", fontsize=6.5, color=on(colours(shades(mean))))
        else:
            style: dict[str, Any] = {"facecolor": GREY, "hatch": "////", "edgecolor": "white", "linewidth": 0}
            ax.add_patch(mpl.patches.Rectangle((column - 0.5, row - 0.5), 1, 1, **style))
    upright = sum(map(len, columns)) * 0.075 > cell * len(columns)
    turned: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if upright else {}
    turned = {"rotation": 90} if upright and cell < 0.25 else turned
    ax.set_xticks(range(len(columns)), columns, **turned)
    ax.set_yticks(range(len(lines)), lines)
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
    (label, factor), write = label_of(value), with_unit_of(value)
    bar = colour_bar(ax, image, label + (", logarithmic scale" if wide else ""))
    unit_ticks(bar.ax.yaxis, lambda tick: write(tick / factor))


def _brief(value: float, largest: float) -> str:
    """A number for a cell: as many digits as tell the largest, and never wider than six letters."""
    if largest >= 1e5 or 0 < largest < 1e-2:
        return f"{value:.1e}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    if largest >= 10:
        return f"{value:.0f}" if largest >= 1000 else f"{value:.3g}"
    return f"{value:.4f}" if 0 < largest < 0.1 else f"{value:.2f}"


@drawn
def heat_maps(
    runs: Any,
    by: str,
    value: str = "utilization",
    x: str | None = None,
    y: str | Sequence[str] | None = None,
    across: int = 2,
) -> Figure:
    """Plot small multiples: one heat map for every label of an axis, with a common colour scale.

    `PlanError` as of `heat_map`; or if ``by`` has more than 16 labels.

    Parameters
    ----------
    runs, value, x, y
        As of `heat_map`.
    by : str
        Column whose labels each get a map.
    across : int
        Number of maps in a row.

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
    figures = [number for row in rows if (number := figure_of(row, value)) is not None]
    shared = (min(figures), max(figures))
    side_x, side_y = _sides(rows, x, y, [by])
    wide, high = _size(*_pivot(rows, value, side_x, side_y)[:2])
    across = min(across, len(groups))
    deep = -(-len(groups) // across)
    figure, grid = plt.subplots(deep, across, figsize=(wide * across, high * deep), layout="constrained", squeeze=False)
    spots = grid.ravel()
    for spot, (label, members) in zip(spots, groups.items(), strict=False):
        heat_map(members, value, side_x, side_y, ax=spot, limits=shared, title=f"{by}: {label}")
    for spot in spots[len(groups) :]:
        spot.set_axis_off()
    return figure
