"""What a judged mapping on a design comes to in a metric, without heat or by one of the modes of heat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from dfopt.documents.design import Design
from dfopt.documents.exploration import DesignBox, LumpedHeat
from dfopt.documents.exploration_request import DesignLimits, HeatMode, ObjectiveName, turned
from dfopt.documents.score import Score
from dfopt.documents.stack import Stack
from dfopt.documents.system import System
from dfopt.physics.lumped import LIMIT_C, clock, temperature_c
from dfopt.physics.merits import Merit, MeritFigures

_ZERO_C = 273.15


def seconds_on_stack(score: Score) -> float | None:
    """Step on a stack of dies at the clock level that keeps its limits, s; None if no level does."""
    on_stack = score.physical
    if on_stack is None or on_stack.limits_broken or on_stack.runaway:
        return None
    return on_stack.step_time_s


def value_of(
    merit: Merit, score: Score, system: System, heat: HeatMode | None, lumped: LumpedHeat | None
) -> float | None:
    """Objective of a scored mapping as the search minimizes it; None if it is too hot or unknown.

    Parameters
    ----------
    merit : Merit
        The metric that decides.
    score : Score
        Score of the mapping by the judge.
    system : System
        System of the mapping; its power and price may be missing.
    heat : str, optional
        Under ``throttle`` and ``aware`` the step has the time that a stack of dies keeps up.
    lumped : LumpedHeat, optional
        Heat by a formula, which lowers the clock.
    """
    on_stack = score.physical if heat in ("throttle", "aware") else None
    seconds = score.step_time_s if on_stack is None else seconds_on_stack(score)
    figures = {
        "w": score.power_w,
        "usd": score.price_usd,
        "device_w": system.chip.power_w,
        "once_j": None if on_stack is None else on_stack.energy_per_step_j,
    }
    if seconds is None or any(figures["once_j" if need == "j" else need] is None for need in merit.needs):
        return None
    of = MeritFigures(tokens=score.tokens_per_s * score.step_time_s, clock=1.0 if lumped is None else lumped.frequency)
    return merit.value(seconds, of._replace(**{name: figure or 0.0 for name, figure in figures.items()}))


def layers_of(design: Design, sizes: Mapping[str, float], on: Stack | None) -> int:
    """Number of DRAM layers of a design with given sizes, or of its stack.

    Parameters
    ----------
    design : Design
        The design.
    sizes : mapping of str to float
        Chosen sizes, by component.
    on : Stack, optional
        Stack of a design without stated sizes.
    """
    if design.sizes is not None:
        return int(sizes.get("dram_layers", design.sizes.dram_layers))
    return 0 if on is None else len(on.dram_dies)


def lumped_heat(watts: float, layers: int, limits: DesignLimits | None) -> LumpedHeat:
    """Temperature of a chip by a single thermal resistance, and the clock that keeps its limit.

    Parameters
    ----------
    watts, layers : float, W, and int
        Power of a chip, and its DRAM layers.
    limits : DesignLimits, optional
        Limit on the temperature.
    """
    most = None if limits is None else limits.temperature
    limit_c = LIMIT_C if most is None else most - _ZERO_C
    return LumpedHeat(temperature_c=temperature_c(watts, layers), frequency=clock(watts, layers, limit_c))


def bounds_of(
    objective: ObjectiveName, value: float, named: Sequence[tuple[int, Mapping[str, float]]], boxes: Sequence[DesignBox]
) -> dict[str, Any]:
    """Bound fields of an exploration: bound and gap over all designs, and bound over all but the reported ones.

    A design that is named and inside of a larger box is not below the bound of that box either.

    Parameters
    ----------
    objective
        The metric.
    value
        Objective of the best design.
    named
        The best designs, by position and sizes.
    boxes
        Boxes of all designs, each with a bound on the objective of its designs.
    """
    turn = partial(turned, objective)
    bound = min([value, *(box.bound for box in boxes if box.bound is not None)], key=turn)
    gap = max(0.0, 1 - turn(bound) / turn(value)) if turn(value) > 0 else 0.0
    rest = [box for box in boxes if box.low != box.high or (box.design, box.low) not in named]
    others = min((box.bound for box in rest if box.bound is not None), key=turn, default=None)
    return {"bound": bound, "gap": gap, "others_bound": others}
