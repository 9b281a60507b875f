"""What cannot be explored, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dfopt.documents.design import Design
from dfopt.documents.exploration_request import ExplorationRequest
from dfopt.errors import Issue, PlanError, SystemSpecError
from dfopt.exploring.judged import layers_of
from dfopt.exploring.workload import Workload
from dfopt.physics.cost import SystemCost
from dfopt.physics.merits import MERITS
from dfopt.technology.chip_price import unpriced

__all__ = ["check_asked", "check_known"]


def check_asked(of: ExplorationRequest, designs: Sequence[Design]) -> None:
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
            found = f"heat: found lumped, a formula of DRAM layers, which {design.name} has none of"
            raise PlanError(f"{found}: expected a stack with some, or another mode")
    if of.heat is None and of.limits is not None and of.limits.temperature is not None:
        raise PlanError("limits: found a temperature without heat, expected heat")
    if "j" in MERITS[of.objective].needs and of.heat not in ("throttle", "aware"):
        raise PlanError(f"objective: {of.objective} has joules of stacks, expected heat: throttle or aware")


def check_known(made: Workload) -> None:
    """Raise `SystemSpecError` where a design does not say what the objective or a limit needs."""
    for root in made.roots if {"w", "usd"} & set(made.merit.needs) else ():
        design, cost = made.spaces[root.which].design, made.costs.of(root, made.system(root))
        if missing := [issue for need in made.merit.needs for issue in _missing(design, cost, f"_{need}")]:
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
