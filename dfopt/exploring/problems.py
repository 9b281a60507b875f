"""The problem that a request about designs is, and what cannot be explored, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dfopt.documents.assumptions import Assumptions, profile
from dfopt.documents.design import Design
from dfopt.documents.exploration_request import ComparisonName, DesignLimits, ExplorationRequest
from dfopt.documents.graph import Graph
from dfopt.documents.request import Request
from dfopt.errors import Issue, PlanError, SystemSpecError
from dfopt.exploring.costs import cost_of
from dfopt.exploring.heated import Heated
from dfopt.exploring.judged import layers_of
from dfopt.exploring.layer_space import space_of
from dfopt.exploring.solves import SolveResources
from dfopt.exploring.workload import ExplorationProblem
from dfopt.physics.cost import SystemCost
from dfopt.physics.merits import MERITS
from dfopt.technology.chip_price import unpriced

_OF_GAP: Final = 0.5  # of the gap of an exploration, that each solve may leave


def workload_of(
    graphs: Sequence[Graph],
    designs: Sequence[Design],
    assumptions: Assumptions | str = "default",
    request: ExplorationRequest | None = None,
    run: SolveResources | None = None,
) -> ExplorationProblem:
    """Exploration problem for graphs of one batch: designs, their bounds, and solves on their chips.

    Parameters
    ----------
    graphs : sequence of Graph
        One workload, drawn in several ways.
    designs : sequence of Design
        One design in several technologies, with choices.
    assumptions : Assumptions or str
        The assumptions, or the name of their profile.
    request : ExplorationRequest, optional
        The request; by default that of all defaults.
    run : SolveResources, optional
        Processes and deadline of the solves.

    Raises
    ------
    SystemSpecError
        If a design cannot be explored, or lacks data that the objective needs.
    PlanError
        If heat is requested without a stack, or an objective or a limit needs heat and it is not requested.
    """
    of = request or ExplorationRequest()
    _check_asked(of, designs)
    for name in of.compare:
        _check_asked(asked_instead(of, name), designs)
    chosen = profile(assumptions) if isinstance(assumptions, str) else assumptions
    spaces = tuple(space_of(_within(design, of.limits)) for design in designs)
    # what solves leave open, a box of one design leaves open too
    solves = (of.options or Request()).model_copy(update={"seed": of.seed, "gap": _OF_GAP * of.gap})
    on, most = of.stack, None if of.limits is None else of.limits.temperature
    if on is not None and most is not None:
        on = on.model_copy(update={"limits": on.limits.model_copy(update={"logic": most, "dram": most})})
    kind: type[ExplorationProblem] = (
        Heated if on is not None and of.heat in ("throttle", "aware") else ExplorationProblem
    )
    workload = kind(
        spaces,
        tuple(graphs),
        chosen,
        solves,
        run or SolveResources(),
        of.objective,
        limits=of.limits,
        heat=of.heat,
        on=on,
    )
    _check_costs(workload)
    return workload


def _within(design: Design, limits: DesignLimits | None) -> Design:
    """A design whose chip keeps the limit on its area: a larger one of the same sizes has more compute."""
    if limits is None or limits.area_mm2 is None:
        return design
    return design.model_copy(update={"budgets": design.budgets.within_area(limits.area_mm2)})


def asked_instead(request: ExplorationRequest, name: ComparisonName | None) -> ExplorationRequest:
    """The request of a comparison on the same designs; None is the question without heat.

    Raises
    ------
    PlanError
        If it is none: heat by a formula in place of no heat, or fewer schedules than those that are fixed.
    """
    of = request.model_copy(update={"compare": ()})
    if name is None:
        limits = of.limits and of.limits.model_copy(update={"temperature": None})
        return of.model_copy(update={"heat": None, "stack": None, "limits": limits})
    if name == "lumped":
        if request.heat not in ("throttle", "aware"):
            raise PlanError(f"compare: found lumped beside heat {request.heat}, expected heat: throttle or aware")
        return of.model_copy(update={"heat": name})
    options = Request() if request.options is None else request.options
    return of.model_copy(update={"options": Request.of(**{**options.asked(), "parallelism": name})})


def _check_asked(of: ExplorationRequest, designs: Sequence[Design]) -> None:
    """Raise for designs that cannot be explored, and for an objective or a limit that heat does not go with.

    Raises
    ------
    SystemSpecError
        Of a design.
    PlanError
        Of the objective, a limit, heat or a stack.
    """
    for design in designs:
        if issues := list(_issues(design)):
            raise SystemSpecError(design.name, issues)
    if of.heat != "lumped" and (of.stack is None) != (of.heat is None):
        has, lacks = ("heat", "stack") if of.stack is None else ("stack", "heat")
        raise PlanError(f"{lacks}: found none, expected it beside {has}: a stack of dies, and throttle or aware")
    for design in designs if of.heat == "lumped" else ():
        if not layers_of(design, {}, of.stack):
            message = f"heat: found lumped, a formula of DRAM layers, which {design.name} has none of"
            raise PlanError(f"{message}: expected a stack with some, or another mode")
    if of.heat is None and of.limits is not None and of.limits.temperature is not None:
        raise PlanError("limits: found a temperature without heat, expected heat")
    if "j" in MERITS[of.objective].needs and of.heat not in ("throttle", "aware"):
        raise PlanError(f"objective: {of.objective} has joules of stacks, expected heat: throttle or aware")


def _check_costs(workload: ExplorationProblem) -> None:
    """Raise `SystemSpecError` where a design does not say what the objective or a limit needs."""
    for root in workload.roots if {"w", "usd"} & set(workload.merit.needs) else ():
        space = workload.spaces[root.which]
        design, cost = space.design, cost_of(space, root, workload.system(root))
        if missing := [issue for need in workload.merit.needs for issue in _missing(design, cost, f"_{need}")]:
            raise SystemSpecError(design.name, missing)


def _missing(design: Design, cost: SystemCost | None, unit: str) -> Iterator[Issue]:
    """What a design does not say of power or price."""
    for path in cost.missing if cost is not None else ():
        if path == "$.chip.price_usd" and unit == "_usd":
            for name in unpriced(design.technology):
                yield Issue(
                    f"$.technology.{name}", "found none, expected what chips cost", "give it, or take another objective"
                )
        elif unit in path and path.startswith("$.network"):
            where = path.replace("$.", "$.template.", 1)
            yield Issue(where, "found none, expected a number", "give it, 0 if that is counted elsewhere")


def _issues(design: Design) -> Iterator[Issue]:
    """What keeps a design from being explored."""
    if not design.searched and design.sizes is not None:
        message = "found no choices, expected lists of sizes to choose from"
        remedy = "add choices: {dram_layers: [2, 4, 8]}, or map onto this design: dfopt solve"
        yield Issue("$.choices", message, remedy)
    elif not design.searched:
        message = "found no share that is auto, expected at least one to choose"
        yield Issue("$.shares.area", message, "set one to auto, or map onto this design: dfopt solve")
    if design.template is None:
        message = "found none, expected how the chips make a system"
        yield Issue("$.template", message, "add template: {sram: LEVEL, tiles: N, network: [...]}")
    elif design.template.tiles is None:
        message = "found none, expected a number: a tile that is a cluster would differ from design to design"
        yield Issue("$.template.tiles", message, "give one number for all designs")
