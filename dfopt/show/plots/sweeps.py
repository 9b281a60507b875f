"""Heat maps of a sweep, alone or as small multiples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from dfopt.errors import PlanError
from dfopt.show.plots.cells import Row, figure_of, label_of, named, rows_of, text_of, varying, with_unit_of
from dfopt.show.plots.style import GREY, axes, drawn, head, unit_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["heat_map", "heat_maps"]

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
    """Draw one figure of a sweep over two axes of its study, with the number in every cell.

    The mean where several cells of the sweep meet; hatched where none has a mapping, blank where there is no cell. The
    form follows DFModel (Ko et al.), Fig. 10.

    Parameters
    ----------
    runs : Runs, pandas.DataFrame or list of dict
        What ``df.sweep`` returned, its frame, or rows.
    value : str
        Column with the figure.
    x : str, optional
        Column that runs across; by default the last axis that varies, the topology where that does.
    y : str or sequence of str, optional
        Columns that run down; by default all other axes that vary, without those that the others tell.
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
    figures = [[one if one is None else factor * one for one in line] for line in table]
    ax = axes(ax, *_size(columns, lines))
    scaled = tuple(factor * one for one in limits) if limits else None
    _cells(ax, figures, columns, lines, scaled, words, with_unit_of(value), factor)
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


def _pivot(
    rows: list[Row], value: str, across: str, down: list[str]
) -> tuple[list[str], list[str], list[list[float | None]], int]:
    """Labels across and down in order of appearance, the mean of what meets in each, and how many that is at most.

    None where there is no cell, and not a number where none has a figure.
    """
    met: dict[tuple[str, str], list[float]] = {}
    columns: dict[str, None] = {}
    lines: dict[str, None] = {}
    for row in rows:
        column = text_of(row, across) or "none"
        line = " / ".join(text_of(row, name) or "none" for name in down)
        columns.setdefault(column)
        lines.setdefault(line)
        figure = figure_of(row, value)
        met.setdefault((line, column), []).extend([] if figure is None else [figure])
    table = [[_mean(met.get((line, column))) for column in columns] for line in lines]
    return list(columns), list(lines), table, max((len(found) for found in met.values()), default=0)


def _mean(found: list[float] | None) -> float | None:
    return found if found is None else math.fsum(found) / len(found) if found else math.nan


def _size(columns: list[str], lines: list[str]) -> tuple[float, float]:
    names = 0.062 * max(map(len, lines)) + 0.7
    return max(3.6, names + 0.58 * len(columns) + 1.1), max(1.6, 1.0 + 0.27 * len(lines))


def _cells(
    ax: Axes, figures: list[list[float | None]], columns: list[str], lines: list[str], limits: Any, words: str,
    write: Callable[[float], str], factor: float,
) -> None:  # fmt: skip
    import matplotlib as mpl
    import numpy as np
    from matplotlib.colors import LogNorm, Normalize

    known = [one for line in figures for one in line if one is not None and math.isfinite(one)]
    low, high = limits or (min(known), max(known))
    # few large figures would leave all others in one shade
    wide = low > 0 and high / low > 100
    shades = LogNorm(low, high) if wide else Normalize(low, high if high > low else low + 1)
    image = ax.imshow(
        np.ma.masked_invalid(np.array(figures, float)), aspect="auto", cmap=_COLOURS, norm=shades,
        interpolation="nearest",
    )  # fmt: skip
    colours = mpl.colormaps[_COLOURS]
    for row, line in enumerate(figures):
        for column, one in enumerate(line):
            if one is None:
                continue
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
    unit_ticks(bar.ax.yaxis, lambda value: write(value / factor))


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
