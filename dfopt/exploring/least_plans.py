"""What no plan of a workload beats on machines with one network, worked out only where it decides something.

A box of designs lies in the one that it was split from. So what bounds a plan there bounds it here, and of thousands of
plans few have to be bounded again: those with the least bounds, until one that is bounded here is the least of all.
Graphs whose plans are not listed have one bound for all of them: by what all chips have to do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dfopt.arrays import Bools, Floats
from dfopt.documents.plan import Plan
from dfopt.setting.instance import Setting
from dfopt.terms.bounds import PlanBounds
from dfopt.terms.step.roofline import least_step

_FIRST, _MORE = 32, 4  # plans that are bounded again at once, and how many times as many the next time

PlanLows = list[Floats | float]
"""Of each graph the seconds of a step that each of its plans takes at least; one number where they are not listed."""


def least_lows(
    plans_of: Callable[[int], Sequence[Plan]], settings: Sequence[Setting], above: PlanLows | None = None
) -> tuple[float, PlanLows]:
    """Lower bound on the step over all plans of a machine, s, with bounds by plan.

    Parameters
    ----------
    plans_of
        Lists the plans of a graph, by its number: the same for all machines.
    settings
        Setting of each graph on the machine.
    above
        Bounds from a machine that is at least as good in every property.
    """
    lows: PlanLows = [low if isinstance(low, float) else low.copy() for low in above or [0.0] * len(settings)]
    bounds = [PlanBounds(setting) for setting in settings]
    here: list[Bools] = [np.zeros(np.shape(low), dtype=bool) for low in lows]  # what was bounded on this machine
    size = [_FIRST] * len(settings)
    while True:
        number = min(range(len(lows)), key=lambda graph: float(np.min(lows[graph], initial=math.inf)))
        low, least = lows[number], float(np.min(lows[number], initial=math.inf))
        if math.isinf(least):
            return least, lows
        if isinstance(low, float) and not here[number]:
            lows[number], here[number] = max(low, least_step(settings[number])), np.ones((), dtype=bool)
        elif isinstance(low, float):
            size[number] = len(plans_of(number))
            lows[number], here[number] = np.full(size[number], low), np.zeros(size[number], dtype=bool)
        elif here[number][int(low.argmin())]:
            return least, lows
        else:
            _bound(bounds[number], plans_of(number), low, here[number], size[number])
            size[number] *= _MORE


def _bound(bounds: PlanBounds, plans: Sequence[Plan], low_i: Floats, here_i: Bools, size: int) -> None:
    """Bound those plans of a graph again that have the least bounds."""
    stale = np.flatnonzero(~here_i)
    places = stale[np.argsort(low_i[stale], kind="stable")][:size].tolist()
    place_of = {plans[place]: place for place in places}
    for table in bounds.tables([*place_of]):
        shown = np.where(table.used_i <= 1.0, table.least_i, np.inf)
        at = [place_of[plan] for plan in table.plans]
        low_i[at] = np.maximum(low_i[at], shown)
    here_i[places] = True
