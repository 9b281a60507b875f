"""A plan closed at once: its program shows what no mapping of it is below, where the search takes many steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dfopt.arrays import Ints
from dfopt.bnb import OutOfTime
from dfopt.formulation.plan_model import Large, Unstated, plan_model, structure_of
from dfopt.fusion.partitioning import IntraChipLimits
from dfopt.joint.menu import Menu
from dfopt.milp import Termination, solve
from dfopt.search.options import Options
from dfopt.setting.instance import Instance
from dfopt.terms.step.offload import moves
from dfopt.terms.step.overlap import hides_any

__all__ = ["closes", "least_of_plan"]


def closes(instance: Instance, limits: Sequence[IntraChipLimits]) -> bool:
    """Whether the program of a plan is small and says all of its step: blocks are listed, and no work hides another."""
    hidden = hides_any(instance.assumptions, instance.graph) or moves(instance) or instance.plan.two_batch_overlap
    return not hidden and structure_of(instance, limits).is_listable


def least_of_plan(
    instance: Instance, options: Options, menu: Menu, tiles: int, limits: Sequence[IntraChipLimits], cutoff: float
) -> tuple[float, Ints | None]:
    """What no mapping of a plan with so many tiles is below, by its program without what waits between partitions.

    Returns
    -------
    (value, options)
        Of the metric, at least; and the option of every kernel that comes to it, if that is below the cutoff.

    Raises
    ------
    KeyboardInterrupt
    """
    (layer, table), metric = menu.priced(tiles), options.request.objective.metric
    try:
        form = plan_model(instance, layer, table, menu.domain, limits, metric, options.clock, relaxed=True)
    except (OutOfTime, Large, Unstated):
        return 0.0, None
    cut = cutoff / form.unit_s if np.isfinite(cutoff) else None
    found = solve(form.model, clock=options.clock, cutoff=cut)
    if found.interrupted:
        raise KeyboardInterrupt
    if found.termination is Termination.INFEASIBLE:
        return cutoff, None
    option_k = None
    if found.x is not None:
        taken = zip(menu.tables.of_kernel, form.choices.taken(found.x), strict=True)
        option_k = np.array([of_kernel[o] for of_kernel, o in taken])
    return max(found.bound, 0.0) * form.unit_s, option_k
