"""What 10 % more of each budget would buy: the best design near the best one, with that much more."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Final

from dfopt.documents.design import Design
from dfopt.documents.exploration import BudgetSensitivity
from dfopt.documents.exploration_request import BudgetName
from dfopt.exploring.boxes import search_boxes
from dfopt.exploring.layer_space import space_of
from dfopt.exploring.space import Box, Space
from dfopt.exploring.workload import Workload

__all__ = ["BUDGETS", "budget_sensitivities", "raised"]

BUDGETS: Final[tuple[BudgetName, ...]] = ("area", "package", "power", "edge")
_MORE: Final = 0.1
_NEAR: Final = 1.25  # sizes by up to this factor more or less are looked at, or the next ones


def raised(design: Design, budget: BudgetName) -> tuple[Design, float]:
    """A design with 10 % more of one budget, and how much that is in mm2, W or mm."""
    of = design.budgets
    now = {"area": of.chip_area_mm2, "package": of.package_area_mm2, "power": of.power, "edge": of.edge}[budget]
    more = _MORE * now
    if budget == "area":
        chip = now + more
        changed = {
            "chip_area_mm2": chip,
            "package_area_mm2": of.package_area_mm2 + more,
            "edge_mm": None if of.edge_mm is None else max(of.edge_mm, 4 * math.sqrt(chip)),
            "reticle_mm2": max(of.reticle, chip / (of.dies or 1)),
        }
    else:
        changed = {{"package": "package_area_mm2", "power": "power", "edge": "edge_mm"}[budget]: now + more}
    return design.model_copy(update={"budgets": of.model_copy(update=changed)}), more


def budget_sensitivities(workload: Workload, best: Box, gap: float, deadline: float) -> tuple[BudgetSensitivity, ...]:
    """The best designs that were found with 10 % more of each budget, near the best one, until time is up.

    Parameters
    ----------
    workload
        The problem that was searched.
    best
        The best design.
    gap
        Relative gap at which to stop.
    deadline
        Of :func:`time.perf_counter`.
    """
    sizes, found = workload.spaces[best.which].named(best.low), []
    for budget in BUDGETS:
        design, more = raised(workload.spaces[best.which].design, budget)
        space = space_of(design)
        near = Workload(
            (space,),
            workload.graphs,
            workload.assumptions,
            workload.request,
            workload.objective,
            (_near(space, sizes),),
            run=replace(workload.run, deadline=deadline),
            limits=workload.limits,
        )
        choice = search_boxes(near, gap=gap, time_limit=deadline - time.perf_counter()).choice
        if choice is not None:
            value = near.merit.shown(near.judged(choice.box, choice.result.mapping))
            best_sizes, mapping = space.named(choice.box.low), choice.result.mapping
            found.append(BudgetSensitivity(budget=budget, more=more, value=value, best=best_sizes, mapping=mapping))
    return tuple(found)


def _near(space: Space, sizes: dict[str, float]) -> Box:
    """The sizes of a space that are near given ones: some of them, and at least the next ones on each side."""
    low, high = [], []
    for name, size in sizes.items():
        every = space.sizes[name]
        at = min(range(len(every)), key=lambda position: abs(every[position] - size))
        inside = [position for position, one in enumerate(every) if size / _NEAR <= one <= size * _NEAR]
        low.append(max(min([*inside, at - 1]), 0))
        high.append(min(max([*inside, at + 1]), len(every) - 1))
    return Box(tuple(low), tuple(high))
