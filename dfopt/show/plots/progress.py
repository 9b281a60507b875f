"""How a solve went: the best found and what is proven, against time."""

from __future__ import annotations

from dfopt.documents.result import Result
from dfopt.errors import PlanError
from dfopt.show.plots.style import PALETTE, Axes, axes, drawn, gridlines, head, scale

__all__ = ["progress"]


@drawn
def progress(result: Result, ax: Axes | None = None, problem: str | None = None) -> Axes:
    """Draw incumbent and bound against time, of the solve with the longest trace of the result's plan.

    Both are given in multiples of the value that the solve ended with: 1 is the answer, and where the two lines meet it
    is proven. ``problem`` is ``interchip`` or ``intrachip`` to take solves of one of them only. `PlanError` if no such
    solve kept a trace (a closed form has none).

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.solve(df.load_graph("gpt3-175b"), df.load_system("sn10-8-ring"), tp=8)
    >>> df.plot.progress(result).get_ylabel()
    'objective (multiples of the final value)'
    """
    found = [(plan, solve) for plan in result.plans for solve in plan.solves if len(solve.trace) > 1]
    own = [(plan, solve) for plan, solve in found if plan.plan == result.plan and plan.status == "solved"]
    found = [(plan, solve) for plan, solve in own or found if problem in (None, solve.problem)]
    if not found:
        asked = f"of the {problem} problem " if problem else ""
        raise PlanError(
            f"progress: found no solve {asked}with a trace: closed forms and solves that one point ended have none;"
            " draw a result of a larger search"
        )
    plan, solve = max(found, key=lambda pair: (len(pair[1].trace), pair[1].seconds))
    best = [(seconds, value) for seconds, value, _ in solve.trace if value is not None]
    bound = [(seconds, value) for seconds, _, value in solve.trace if value is not None]
    final = best[-1][1] if best else bound[-1][1]
    if not final:
        raise PlanError("progress: found an objective of 0, expected another: its multiples say nothing")
    last = max(solve.trace[-1][0], solve.seconds)
    unit_s, unit = scale(last)
    ax = axes(ax, 6.4, 3.0)
    handles = []
    for points, name, colour, style, marker in (
        (best, "best found", PALETTE["blue"], "-", "o"),
        (bound, "bound", PALETTE["vermillion"], "--", "s"),
    ):
        if not points:
            continue
        x = [seconds / unit_s for seconds, _ in points] + [last / unit_s]
        y = [value / final for _, value in points] + [points[-1][1] / final]
        handles += ax.step(
            x, y, where="post", color=colour, linestyle=style, marker=marker if len(x) < 40 else "", markersize=3.5,
            linewidth=1.4, label=name,
        )  # fmt: skip
    if best and bound:
        both = sorted({seconds for seconds, *_ in solve.trace} | {last})
        ax.fill_between(
            [t / unit_s for t in both], [_at(bound, t, final) for t in both], [_at(best, t, final) for t in both],
            step="post", color=PALETTE["sky"], alpha=0.25, linewidth=0,
        )  # fmt: skip
    ax.set(xlim=(0, last / unit_s * 1.02), xlabel=f"time of the solve ({unit})")
    ax.set_ylabel("objective (multiples of the final value)")
    gridlines(ax)
    gap = "" if solve.gap is None else f", gap {100 * solve.gap:.3g} %"
    what = f"{solve.problem} problem of {result.mapping.graph}, {plan.plan.label}"
    head(ax, f"{what}\n{solve.formulation}, {solve.termination}{gap}", handles)
    return ax


def _at(points: list[tuple[float, float]], time: float, final: float) -> float:
    """The value at a time, of a line of steps; not a number before the first one."""
    before = [value for seconds, value in points if seconds <= time]
    return before[-1] / final if before else float("nan")
