"""The problem that a request about designs is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dfopt.documents.assumptions import Assumptions, profile
from dfopt.documents.design import Design
from dfopt.documents.exploration_request import ComparisonName, DesignLimits, ExplorationRequest
from dfopt.documents.graph import Graph
from dfopt.documents.request import Request
from dfopt.errors import PlanError
from dfopt.exploring.heated import Heated
from dfopt.exploring.layer_space import space_of
from dfopt.exploring.refusals import check_asked, check_known
from dfopt.exploring.workload import Workload

__all__ = ["asked_instead", "workload_of"]

_OF_GAP: Final = 0.5  # of the gap of an exploration, that each solve may leave


def workload_of(
    graphs: Sequence[Graph],
    designs: Sequence[Design],
    assumptions: Assumptions | str = "default",
    request: ExplorationRequest | None = None,
) -> Workload:
    """The problem of an exploration.

    Raises
    ------
    SystemSpecError
        If a design cannot be explored, or does not say what the objective needs to know.
    PlanError
        If heat is asked of no stack, or an objective or a limit that needs heat without it.
    """
    of = request or ExplorationRequest()
    check_asked(of, designs)
    for name in of.compare:
        check_asked(asked_instead(of, name), designs)
    chosen = profile(assumptions) if isinstance(assumptions, str) else assumptions
    spaces = tuple(space_of(_within(design, of.limits)) for design in designs)
    # what solves leave open, a box of one design leaves open too
    solves = (of.options or Request()).model_copy(update={"seed": of.seed, "gap": _OF_GAP * of.gap})
    on, most = of.stack, None if of.limits is None else of.limits.temperature
    if on is not None and most is not None:
        on = on.model_copy(update={"limits": on.limits.model_copy(update={"logic": most, "dram": most})})
    given = spaces, tuple(graphs), chosen, solves, of.objective
    made = Workload(*given, limits=of.limits, heat=of.heat, on=on)
    if on is not None and of.heat in ("throttle", "aware"):
        made = Heated(*given, limits=of.limits, heat=of.heat, on=on)
    check_known(made)
    return made


def _within(design: Design, limits: DesignLimits | None) -> Design:
    """A design whose chip keeps the limit on its area: a larger one of the same sizes has more compute."""
    if limits is None or limits.area_mm2 is None:
        return design
    return design.model_copy(update={"budgets": design.budgets.within_area(limits.area_mm2)})


def asked_instead(request: ExplorationRequest, name: ComparisonName) -> ExplorationRequest:
    """Another question about the same designs.

    Raises
    ------
    PlanError
        If it is none: heat by a formula in place of no heat, or fewer schedules than those that are fixed.
    """
    of = request.model_copy(update={"compare": ()})
    if name == "lumped":
        if request.heat not in ("throttle", "aware"):
            raise PlanError(f"compare: found lumped beside heat {request.heat}, expected heat: throttle or aware")
        return of.model_copy(update={"heat": name})
    options = Request() if request.options is None else request.options
    return of.model_copy(update={"options": Request.of(**{**options.asked(), "parallelism": name})})
