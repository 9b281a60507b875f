"""The smallest package with which some design holds a workload, where none of those that are allowed does."""

from __future__ import annotations

import math
from typing import Final

from dfopt.documents.design import Design
from dfopt.documents.design_choices import MOST_STACKS, DesignChoices, StackSteps
from dfopt.errors import Infeasible, NoSolution, PlanError
from dfopt.exploring.entries import Batches, explore_boxes
from dfopt.exploring.layer_space import space_of
from dfopt.exploring.space import Box
from dfopt.exploring.workload import ExplorationProblem
from dfopt.search import solve
from dfopt.search.shortage import LeastHeld

_TRIED: Final = 8  # numbers of stacks from the least that can do


def smallest_package(workload: ExplorationProblem) -> str:
    """A sentence on the smallest feasible package over all technologies; empty if a larger one does not help.

    The memory shortage of the best corner of all designs gives a lower bound on the number of stacks; each number from
    there on is tried. If the number of stacks is not free, the sentence is empty.
    """
    return min(_smallest(workload, root) for root in workload.roots)[1]


def _smallest(workload: ExplorationProblem, root: Box) -> tuple[float, str]:
    """The mm2 of the smallest package in one technology, and what it holds; infinite where none is found."""
    space, held, none = workload.spaces[root.which], None, (math.inf, "")
    if "dram" not in space.sizes or (system := workload.system(root)) is None:
        return none
    part = space.design.technology.stacks
    request = workload.request.model_copy(update={"time_limit": workload.run.left})
    try:
        solve(workload.graph, system, request, assumptions=workload.assumptions, variants=workload.graphs[1:])
    except Infeasible as error:
        held = error.least
    except (PlanError, NoSolution):
        return none
    if not isinstance(held, LeastHeld) or held.tier != "dram" or held.others:
        return none
    least = max(math.ceil(held.bytes / part.stack), int(space.sizes["dram"][-1]) + 1)
    for stacks in range(least, min(least + _TRIED, MOST_STACKS)):
        design = _with_stacks(space.design, stacks)
        alone = ExplorationProblem(
            (space_of(design),), workload.graphs, workload.assumptions, workload.request, workload.run
        )
        outcome = explore_boxes(Batches((alone,)), 1.0, workload.run.left)  # the first that there is
        if outcome.solution is not None:
            mm2, sizes = design.budgets.package_area_mm2, alone.spaces[0].named(outcome.solution.box.low)
            others = ", ".join(f"{name} {size:g}" for name, size in sizes.items() if name != "dram")
            words = f"{stacks} stack{'' if stacks == 1 else 's'} of {design.technology.name} ($.choices.stacks)"
            words += f", with {others}" if others else ""
            return mm2, f"smallest budget that would: $.budgets.package_area_mm2 of {mm2:.6g} for {words}"
        if outcome.ending != "empty":  # of so many stacks nothing is known
            break
    return none


def _with_stacks(design: Design, stacks: int) -> Design:
    """The design with so many stacks, and a package that has room for no more."""
    of, given = design.budgets, design.choices or DesignChoices()
    package = of.chip_area_mm2 + stacks * design.technology.stacks.stack_area_mm2
    choices = given.model_copy(update={"stacks": StackSteps(least=stacks, most=stacks)})
    budgets = of.model_copy(update={"package_area_mm2": max(package, of.package_area_mm2)})
    return design.model_copy(update={"budgets": budgets, "choices": choices})
