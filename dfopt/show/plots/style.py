"""What all pictures share: palette, resources and their looks, axes of one's own or a caller's, free labels.

Matplotlib is optional (the extra ``plot``) and imported inside functions only: ``import dfopt`` and the
command line start without it.
"""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, ParamSpec, TypeVar, cast

from dfopt.documents.result import Result
from dfopt.errors import PlanError, visible
from dfopt.show.answer import headline
from dfopt.units import show_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    Axes = Figure = Any  # of annotations, until Matplotlib is there

__all__ = [
    "BLACK", "BUBBLE", "CYCLE", "GREY", "LOOKS", "PALETTE", "PAPER", "Axes", "Figure", "Look", "about", "axes", "bars",
    "colour_bar", "drawn", "entry", "figure_with", "gridlines", "head", "inches", "laid_out", "letters",
    "mapping_name", "on", "panels", "patch", "scale", "short", "unit_ticks", "width",
]  # fmt: skip

# Okabe & Ito, "Color Universal Design" (2008): eight colours told apart under all common kinds of colour blindness.
# Values as in Wong, "Points of view: Color blindness", Nature Methods 8 (2011), p. 441.
PALETTE: Final = {
    "black": "#000000",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "green": "#009E73",
    "yellow": "#F0E442",
    "blue": "#0072B2",
    "vermillion": "#D55E00",
    "purple": "#CC79A7",
}
BLACK: Final = PALETTE["black"]
_OWN: Final = "dfopt"  # the id of figures that these functions make
GREY: Final = "#D9D9D9"  # what is idle or missing: no colour
CYCLE: Final = tuple(PALETTE[name] for name in ("sky", "orange", "green", "purple", "blue", "vermillion", "yellow"))


class Look(NamedTuple):
    """Label, colour and hatch of a kind of time; the hatch distinguishes it in grey."""

    label: str
    colour: str
    hatch: str


LOOKS: Final = {
    "compute": Look("compute", PALETTE["blue"], ""),
    "memory": Look("DRAM", PALETTE["orange"], "////"),
    "network": Look("network", PALETTE["green"], "||||"),
    "sram": Look("SRAM", GREY, ".."),
}
BUBBLE: Final = Look("bubble", "white", "\\\\\\\\")
PAPER: Final = {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.85}
"""What lies under a text on a hatched bar."""
_STYLE: Final[dict[str, Any]] = {
    "font.size": 8.0,
    "axes.titlesize": 9.0,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "hatch.linewidth": 0.4,
    "figure.dpi": 100,
    "text.hinting": "none",  # texts are measured as files without pixels have them
}
_PIXELS: Final = 108  # of an inch on a page: letters of 8 points are as large as small print
_WIDTH: ContextVar[float] = ContextVar("width", default=1280 / _PIXELS)
_ALONE: ContextVar[bool] = ContextVar("alone", default=True)
_P = ParamSpec("_P")
_T = TypeVar("_T")


def matplotlib_for(what: str, needs: str) -> Any:
    """The matplotlib module; raises `PlanError` that names what needs it if it is missing."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise PlanError(f"{what}: found no matplotlib, which {needs} need; python -m pip install matplotlib") from None
    return mpl


def drawn(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Decorator of plot functions: applies the common style, and raises one clear error without Matplotlib."""

    @functools.wraps(function)
    def styled(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        mpl = matplotlib_for(function.__name__, "pictures")
        with mpl.rc_context(cast(Any, _STYLE)):
            drawing = function(*args, **kwargs)
            interactive = mpl.is_interactive()
        # the first figure of a notebook turns it on, and the end of the context would turn it off again
        mpl.interactive(interactive)
        return drawing

    return styled


@contextmanager
def width(pixels: float, alone: bool = True) -> Iterator[None]:
    """Context manager that limits figures to a page width in pixels (420 for a phone; default 1280).

    ``alone``: whether titles state the question; a page that states it does not need them.

    Examples
    --------
    >>> with width(420):
    ...     round(inches(9.0), 1)
    3.9
    """
    before, shown = _WIDTH.set(max(pixels, 300) / _PIXELS), _ALONE.set(alone)
    try:
        yield
    finally:
        _WIDTH.reset(before)
        _ALONE.reset(shown)


def inches(wanted: float) -> float:
    """Width of a figure in inches: the wanted one, or less if the page is narrower."""
    return min(wanted, _WIDTH.get())


def letters(wanted: int) -> int:
    """Number of label letters that fit, scaled from ``wanted`` on a page of 1280 pixels."""
    return max(12, min(wanted, int(wanted * _WIDTH.get() / 9.0)))


def axes(ax: Axes | None, width: float, height: float) -> Axes:
    """The given axes, or those of a new figure of this size in inches.

    Parameters
    ----------
    ax : Axes, optional
        Axes to draw in.
    width, height : float, inch
        Size of the new figure if there are none.
    """
    return ax if ax is not None else panels(width, [height])[0]


def panels(width: float, heights: Sequence[float]) -> list[Axes]:
    """Axes in one column of a new figure."""
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(
        len(heights), 1, figsize=(inches(width), sum(heights)), layout="constrained", height_ratios=list(heights),
        squeeze=False,
    )  # fmt: skip
    figure.set_gid(_OWN)
    return list(grid[:, 0])


def figure_with(ax: Axes | Figure) -> Figure:
    """The figure that contains the axes."""
    return cast("Figure", ax.get_figure(root=True))


def bars(
    ax: Axes, row: float, lengths: Iterable[tuple[Look, float]], start: float = 0.0, height: float = 0.68
) -> float:  # fmt: skip
    """Draw consecutive bars in a row and return the end of the last one.

    Parameters
    ----------
    ax : Axes
        Axes to draw on.
    row, height : float
        The middle of the row, and how high bars are.
    lengths : iterable of (Look, float)
        Look and length of each bar; bars of no length are left out.
    start : float
        Start of the first bar.
    """
    for fill, length in lengths:
        if length:
            ax.barh([row], [length], left=[start], height=height, color=fill.colour, hatch=fill.hatch,
                    edgecolor="black", linewidth=0.5)  # fmt: skip
        start += length
    return start


def gridlines(ax: Axes, axis: Literal["both", "x"] = "both") -> None:
    """Add light gridlines at the ticks, behind the data."""
    ax.grid(True, axis=axis, color="#E6E6E6", linewidth=0.5)
    ax.set_axisbelow(True)


def colour_bar(ax: Axes, mappable: Any, label: str) -> Any:
    """Add a colour bar beside the axes.

    Parameters
    ----------
    ax
        Axes of the plot.
    mappable
        What the colours are of, as of Matplotlib.
    label : str
        Text beside the bar.
    """
    bar = figure_with(ax).colorbar(mappable, ax=ax, pad=0.02, shrink=0.9)
    bar.set_label(label)
    bar.outline.set_visible(False)
    return bar


def on(colour: tuple[float, float, float, float]) -> str:
    """Colour of readable text on a background colour (RGBA)."""
    red, green, blue, _ = colour
    return "black" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.45 else "white"  # luminance, ITU-R BT.709


def patch(fill: Look, label: str | None = None) -> Any:
    """Legend handle of a kind of time."""
    from matplotlib.patches import Patch

    return Patch(facecolor=fill.colour, hatch=fill.hatch, edgecolor="black", linewidth=0.4, label=label or fill.label)


def entry(label: str, **style: Any) -> Any:
    """Legend handle of a marker, or of a line if ``linestyle`` is given."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **{"linestyle": "", **style})


def head(ax: Axes, title: str, handles: Sequence[Any] = ()) -> None:
    """Add a title and a legend above the plot.

    Both go above the axes. In a figure created by dfopt they start at its left edge, and the figure grows by their
    height.

    Parameters
    ----------
    ax
        Axes of the plot.
    title : str
        The title; lines are wrapped to the width of the axes.
    handles
        Handles of the legend; without any there is none.
    """
    figure = figure_with(ax)
    own = figure.get_gid() == _OWN  # as `panels` has marked it
    inches = figure.get_figwidth() * (1.0 if own else ax.get_position().width)
    letters = max(16, int(inches * 14.0))  # letters of 9 points that an inch takes
    lines = [line for part in title.split("\n") for line in textwrap.wrap(part, letters)]
    longest = max((len(str(handle.get_label())) for handle in handles), default=0) + 7
    across = max(1, min(len(handles), int(letters * 1.25 / longest)))
    rows = -(-len(handles) // across)
    style: dict[str, Any] = {
        "handles": list(handles), "ncols": across, "frameon": False, "borderaxespad": 0.3, "columnspacing": 1.2,
        "handlelength": 1.6, "borderpad": 0.2,
    }  # fmt: skip
    if not own:
        if handles:
            ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), **style)
        ax.set_title("\n".join(lines), pad=8 + 13.5 * rows)
        return
    below = figure.get_figheight()
    words, boxes = 0.16 * len(lines) + 0.06, 0.175 * rows + (0.06 if rows else 0.0)
    height = below + words + boxes
    figure.set_figheight(height)
    figure.set_layout_engine("constrained", rect=(0.0, 0.0, 1.0, below / height))
    figure.text(0.08 / inches, 1.0, "\n".join(lines), ha="left", va="top", fontsize=9)
    if handles:
        figure.legend(loc="upper left", bbox_to_anchor=(0.0, 1.0 - words / height), **style)


def laid_out(figure: Figure) -> Any:
    """Apply a figure's layout without drawing it, and return the renderer that measured its texts."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    for axis in (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)):
        labels = [label.get_text() for label in axis.get_ticklabels()]  # which are only known when asked for
        if (seen := [*map(visible, labels)]) != labels:
            axis.set_ticks(axis.get_majorticklocs(), seen)
    for text in cast(list[Text], figure.findobj(Text)):
        text.set_text(visible(text.get_text()))
        if "$" in text.get_text() and r"\mathdefault" not in text.get_text():  # a name, and no formula
            text.set_parse_math(False)
    canvas: Any = figure.canvas if hasattr(figure.canvas, "get_renderer") else FigureCanvasAgg(figure)
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
    for ax in figure.axes:
        ax.apply_aspect()
    return canvas.get_renderer()


def unit_ticks(axis: Any, write: Callable[[float], str]) -> None:
    """Label axis ticks with their unit; on a logarithmic axis mainly at powers of ten."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    if axis.get_scale() == "log":
        low, high = axis.get_view_interval()
        narrow = axis.axis_name == "x" and inches(9.0) < 6 and high >= 20 * low
        few = (1.0,) if narrow else (1.0, 2.0, 5.0) if high >= 10 * low else (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
        axis.set_major_locator(LogLocator(subs=(1.0,) if high >= 300 * low else few))
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(
            MaxNLocator(6 if axis.axis_name == "y" or inches(9.0) > 6 else 4, steps=[1, 2, 2.5, 5, 10])
        )
    axis.set_major_formatter(lambda value, _: write(float(f"{value:.6g}")))


_STEPS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def scale(largest_s: float) -> tuple[float, str]:
    """Seconds per unit, and the unit, for an axis of times up to ``largest_s``."""
    return next(((size, unit) for size, unit in _STEPS if largest_s >= size), _STEPS[-1] if largest_s > 0 else (1, "s"))


def about(result: Result) -> str:
    """Title of a result: question and machine, and the die stack if it changes the step."""
    lines, physical = [*headline(result)] * _ALONE.get(), result.score.physical
    if physical is not None and abs(physical.slowdown - 1) >= 5e-4:
        step = show_unit(physical.step_time_s, "time", 3)
        lines.append(f"modelled; on its stack {physical.stack} the step takes {step} ({physical.slowdown:.4g} x)")
    return "\n".join(lines)


def mapping_name(result: Result) -> str:
    """Plan of a result as text, and its execution if unusual."""
    alone = "kernel by kernel" if result.assumptions.execution == "kernel_by_kernel" else ""
    return ", ".join(filter(None, (result.plan.label, result.graph.variant, alone)))


def short(names: Iterable[str], letters: int = 46) -> str:
    """Names in one line of at most ``letters`` letters; the middle ones are only counted if they do not fit.

    Examples
    --------
    >>> short(["Q", "K", "V"]), short(["Norm", "Q", "K", "V", "Project"], 21)
    ('Q, K, V', 'Norm... +4')
    """
    listed = list(names)
    text = ", ".join(listed)
    if len(listed) == 1 and len(text) > letters:
        return text[: letters - 3] + "..."
    kept = len(listed) - 1
    while len(text) > letters and kept > 1:
        kept -= 1
        text = ", ".join([*listed[:kept], f"... {len(listed) - kept - 1} more", listed[-1]])
    return text if len(text) <= letters else f"{listed[0][: letters - 6]}... +{len(listed) - 1}"
