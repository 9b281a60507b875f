"""The smallest package with which some design holds a workload, where none of those that are allowed does."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from dfopt.documents.design import Design
from dfopt.documents.design_choices import MOST_STACKS, DesignChoices, StackSteps
from dfopt.errors import Infeasible, NoSolution, PlanError
from dfopt.exploring.entries import Batches, explore_boxes
from dfopt.exploring.layer_space import space_of
from dfopt.exploring.workload import Workload
from dfopt.search import solve
from dfopt.search.shortage import LeastHeld

__all__ = ["SmallestPackage", "smallest_package"]

_TRIED: Final = 8  # numbers of stacks from the least that can do


class SmallestPackage(NamedTuple):
    """What would hold a workload: so many stacks in a package of so many mm2, with these sizes of components."""

    technology: str
    stacks: int
    package_area_mm2: float
    sizes: dict[str, float]

    def __str__(self) -> str:
        others = ", ".join(f"{name} {size:g}" for name, size in self.sizes.items() if name != "dram")
        stacks = f"{self.stacks} stack{'' if self.stacks == 1 else 's'} of {self.technology} ($.choices.stacks)"
        return f"smallest budget that would: $.budgets.package_area_mm2 of {self.package_area_mm2:.6g} for {stacks}" + (
            f", with {others}" if others else ""
        )


def smallest_package(workload: Workload) -> SmallestPackage | None:
    """The smallest package over all technologies; none where a larger one alone does not help, or time is up.

    No mapping holds less than what the best corner of all designs lacks, which says how many stacks it takes at least;
    from there on each number is tried. Where the number of stacks is not to be chosen there is nothing to try.
    """
    found = [_smallest(workload, which) for which in range(len(workload.spaces))]
    return min((one for one in found if one is not None), key=lambda one: one.package_area_mm2, default=None)


def _smallest(workload: Workload, which: int) -> SmallestPackage | None:
    space = workload.spaces[which]
    if "dram" not in space.sizes or (system := workload.system(space.whole._replace(which=which))) is None:
        return None
    part = space.design.technology.stacks
    request = workload.request.model_copy(update={"time_limit": workload.run.left})
    try:
        solve(workload.graph, system, request, assumptions=workload.assumptions, variants=workload.graphs[1:])
        return None
    except (PlanError, NoSolution):
        return None
    except Infeasible as error:
        held = error.least
    if not isinstance(held, LeastHeld) or held.tier != "dram" or held.others:
        return None
    least = max(math.ceil(held.bytes / part.stack), int(space.sizes["dram"][-1]) + 1)
    for stacks in range(least, min(least + _TRIED, MOST_STACKS)):
        design = _with_stacks(space.design, stacks)
        alone = Workload((space_of(design),), workload.graphs, workload.assumptions, workload.request, workload.run)
        found = explore_boxes(Batches((alone,)), 1.0, workload.run.left)  # the first that there is
        if found.solution is not None:
            sizes = alone.spaces[0].named(found.solution.box.low)
            package = design.budgets.package_area_mm2
            return SmallestPackage(design.technology.name, stacks, package, sizes)
        if found.ending != "empty":  # of so many stacks nothing is known
            break
    return None


def _with_stacks(design: Design, stacks: int) -> Design:
    """The design with so many stacks, and a package that has room for no more."""
    of, given = design.budgets, design.choices or DesignChoices()
    package = of.chip_area_mm2 + stacks * design.technology.stacks.stack_area_mm2
    choices = given.model_copy(update={"stacks": StackSteps(least=stacks, most=stacks)})
    budgets = of.model_copy(update={"package_area_mm2": max(package, of.package_area_mm2)})
    return design.model_copy(update={"budgets": budgets, "choices": choices})
