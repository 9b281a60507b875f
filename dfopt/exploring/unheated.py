"""The design that is best as long as nobody asks how hot it gets, and what becomes of it under heat."""

from __future__ import annotations

import math

from dfopt.documents.exploration import WithoutHeat
from dfopt.exploring.boxes import search_boxes
from dfopt.exploring.solves import Run
from dfopt.exploring.workload import Workload
from dfopt.judge import evaluate

__all__ = ["without_heat"]


def without_heat(made: Workload, gap: float) -> WithoutHeat | None:
    """The design that is best without heat, within a gap, judged with it; none where time is up before it.

    None too where there is no heat, or the objective has joules of stacks, which nothing has without heat.
    """
    if made.heat is None or "j" in made.merit.needs:
        return None
    plain = Workload(
        made.spaces,
        made.graphs,
        made.assumptions,
        made.request,
        made.objective,
        run=Run(made.run.deadline),
        within=made.within,
        limits=made.limits,
    )
    plain.memory = made.memory
    found = search_boxes(plain, gap=gap, time_limit=made.run.left)
    if found.choice is None:
        return None
    box, result = found.choice.box, found.choice.result
    system = made.system(box)
    if system is None:
        return None
    score = evaluate(result.mapping, made.solver.drawn_as(result), system, result.assumptions)
    value, lumped = made.valued(box, system, score), made.lumped(box, system.chip.power_w or 0.0)
    told = lumped or score.physical
    assert told is not None  # the system of one design has a stack
    return WithoutHeat(
        design=box.which,
        best=made.spaces[box.which].named(box.low),
        predicted=made.merit.shown(found.best),
        judged=None if value is None or math.isinf(value) else made.merit.shown(value),
        frequency=told.frequency,
    )
