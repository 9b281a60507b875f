"""What more of each budget and looser limits would buy: the best design near the best one, with that much more.

More is 10 % of a budget of a chip or of a limit on the price, one DRAM layer, or 10 K of all limits on temperature.
Under heat the budgets of a chip stay as they are: with others it would be another stack.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from dfopt.documents.design import Design
from dfopt.documents.exploration import BudgetSensitivity
from dfopt.documents.exploration_request import BudgetName, DesignLimits
from dfopt.errors import DfoptError
from dfopt.exploring.entries import best_of
from dfopt.exploring.layer_space import space_of
from dfopt.exploring.space import Box
from dfopt.exploring.workload import ExplorationProblem
from dfopt.physics.lumped import LIMIT_C

_MORE: Final = 0.1
_KELVIN, _ZERO_C = 10.0, 273.15
_NEAR: Final = 1.25  # sizes by up to this factor more or less are looked at, or the next ones


def raised(design: Design, budget: BudgetName) -> tuple[Design, float]:
    """A design with 10 % more of one budget, and the increase in mm2, W or mm."""
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


def with_more(
    workload: ExplorationProblem, which: int, best: dict[str, float], budget: BudgetName
) -> tuple[ExplorationProblem, float]:
    """The exploration of one design with more of a budget or looser limits, and the increase.

    Raises `DfoptError` where there is no such design: with a layer more than can be stacked.

    Parameters
    ----------
    workload : ExplorationProblem
        The question about all designs.
    which, best : int and dict
        The place of the design, and the sizes that were found best for it.
    budget : str
        Budget to increase.
    """
    design, limits, on = workload.spaces[which].design, workload.limits, workload.on
    if budget == "layers":
        data, more = design.to_data(), 1.0
        data["choices"]["dram_layers"] = [int(best["dram_layers"]) + 1]
        design = Design.from_data(data, design.name)
    elif budget == "price":
        assert limits is not None and limits.price is not None  # it is among the budgets
        more = _MORE * limits.price
        limits = limits.model_copy(update={"price": limits.price + more})
    elif budget == "temperature":
        of, more = limits or DesignLimits(), _KELVIN
        if of.temperature is not None or workload.heat == "lumped":
            limit_k = LIMIT_C + _ZERO_C if of.temperature is None else of.temperature
            limits = of.model_copy(update={"temperature": limit_k + more})
        if on is not None:
            given = {"logic": on.limits.logic, "dram": on.limits.dram}
            looser = {name: limit + more for name, limit in given.items() if limit is not None}
            on = on.model_copy(update={"limits": on.limits.model_copy(update=looser)})
    else:
        design, more = raised(design, budget)
    return replace(workload, spaces=(space_of(design),), within=(), limits=limits, on=on), more


def budget_sensitivities(
    workload: ExplorationProblem, best: Box, budgets: Sequence[BudgetName], gap: float
) -> Iterator[BudgetSensitivity]:
    """The best designs found with more of each budget, near the best one, until time is up.

    Parameters
    ----------
    workload : ExplorationProblem
        The problem that was searched.
    best : Box
        The best design.
    budgets : sequence of str
        Budgets to increase: `ExplorationRequest.budgets_of`.
    gap : float
        Relative gap at which to stop.
    """
    sizes = workload.spaces[best.which].named(best.low)
    for budget in budgets:
        with suppress(DfoptError):  # such a design there is not
            near, more = with_more(workload, best.which, sizes, budget)
            near.within = (_near(near, sizes),)
            if (choice := best_of(near, gap).solution) is not None:
                value = near.merit.shown(near.judged(choice.box, choice.result.mapping))
                best_sizes, mapping = near.spaces[0].named(choice.box.low), choice.result.mapping
                yield BudgetSensitivity(budget=budget, more=more, value=value, best=best_sizes, mapping=mapping)


def _near(workload: ExplorationProblem, sizes: dict[str, float]) -> Box:
    """The designs whose sizes are near given ones: some of them, and at least the next ones on each side."""
    low, high = [], []
    for name, size in sizes.items():
        steps = workload.spaces[0].sizes[name]
        at = min(range(len(steps)), key=lambda position: abs(steps[position] - size))
        inside = [position for position, step in enumerate(steps) if size / _NEAR <= step <= size * _NEAR]
        low.append(max(min([*inside, at - 1]), 0))
        high.append(min(max([*inside, at + 1]), len(steps) - 1))
    return workload.roots[0]._replace(low=tuple(low), high=tuple(high))
