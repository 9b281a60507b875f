"""How a search went: the best answer and what is proven, against time."""

from __future__ import annotations

from dfopt.documents.result import Result
from dfopt.show.answer import proof_in_words
from dfopt.show.plots.style import PALETTE, Axes, about, axes, drawn, gridlines, head, scale
from dfopt.units import number


@drawn
def progress(result: Result, ax: Axes | None = None) -> Axes:
    """Plot incumbent and bound of a search over time, relative to the final value.

    Both are in multiples of the value of the answer.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.solve(df.load_graph("gpt3-175b"), df.load_system("sn10-8-ring"), tp=8)
    >>> df.plot.progress(result).get_ylabel()
    'step time (multiples of the answer)'
    """
    unit_s, unit = scale(result.trace[-1][0])
    times = [seconds / unit_s for seconds, *_ in result.trace]
    best = [float("nan") if value is None else value / result.value for _, value, _ in result.trace]
    bound = [value / result.value for *_, value in result.trace]
    ax = axes(ax, 7.2, 3.0)
    (above,) = ax.step(
        times, best, where="post", color=PALETTE["blue"], marker="o", markersize=3.5, linewidth=1.4, label="best answer"
    )
    (below,) = ax.step(
        times, bound, where="post", color=PALETTE["vermillion"], marker="s", markersize=3.5, linewidth=1.4,
        linestyle="--", label="bound: no plan is faster",
    )  # fmt: skip
    ax.fill_between(times, bound, best, step="post", color=PALETTE["sky"], alpha=0.25, linewidth=0)
    ax.set(xlim=(0, times[-1] * 1.02), xlabel=f"time of the search ({unit})")
    ax.set_ylabel("step time (multiples of the answer)")
    gridlines(ax)
    gap = f"end {number(100 * result.gap, 2)} % apart" if result.gap else "meet: the answer is optimal"
    head(ax, f"Best answer and bound {gap}\n{about(result)}\n{proof_in_words(result)}", [above, below])
    return ax
