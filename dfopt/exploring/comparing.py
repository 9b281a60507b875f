"""What is best in another question about the same designs, and what becomes of it in the one that was asked.

Without heat, with heat by a formula, or with fewer schedules: each is an exploration of its own, and its best design is
judged as the others are. Fewer schedules choose silicon that no schedule may save: so that design is mapped anew, with
all of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

from dfopt.documents.exploration import Comparison, WithoutHeat
from dfopt.documents.exploration_request import ComparisonName, ExplorationRequest
from dfopt.documents.score import Score
from dfopt.documents.system import System
from dfopt.exploring.entries import best_of
from dfopt.exploring.problems import asked_instead, workload_of
from dfopt.exploring.solves import Run
from dfopt.exploring.space import Box
from dfopt.exploring.workload import Workload
from dfopt.judge import evaluate

__all__ = ["compared", "comparison", "without_heat"]


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
    found = best_of(plain, gap, plain.run.left)
    if found.solution is None or (system := made.system((choice := found.solution.choice).box)) is None:
        return None
    score = evaluate(choice.result.mapping, made.solver.drawn_as(choice.result), system, choice.result.assumptions)
    return WithoutHeat(
        design=choice.box.which,
        best=made.spaces[choice.box.which].named(choice.box.low),
        predicted=made.merit.shown(found.best),
        judged=_shown(made, made.valued(choice.box, system, score)),
        frequency=_clock(made, choice.box, system, score),
    )


def compared(made: Workload, request: ExplorationRequest) -> Iterator[Comparison]:
    """What each of the other questions of a request finds, each in an equal part of the time; one part is left."""
    end = made.run.deadline
    try:
        for number, name in enumerate(request.compare):
            now = time.perf_counter()
            made.run.deadline = now + max(end - now, 0.0) / (len(request.compare) - number + 1)
            if (found := comparison(made, request, name)) is not None:
                yield found
    finally:
        made.run.deadline = end


def comparison(
    made: Workload, request: ExplorationRequest, name: ComparisonName, within: Sequence[Box] = ()
) -> Comparison | None:
    """What another question finds, and what comes of it in the one that was asked; none where time is up before it.

    Time is that of ``made.run``.

    Parameters
    ----------
    made, request
        The question that was asked.
    name
        The other one.
    within
        Boxes of designs, in place of all of them.
    """
    designs = [space.design for space in made.spaces]
    other = workload_of(made.graphs, designs, made.assumptions, asked_instead(request, name))
    other.run, other.within, other.memory = Run(made.run.deadline), tuple(within), made.memory
    found = best_of(other, request.gap, other.run.left)
    if found.solution is None or (system := made.system((choice := found.solution.choice).box)) is None:
        return None
    box, result = choice.box, choice.result
    score = evaluate(result.mapping, made.solver.drawn_as(result), system, made.setting(system).assumptions)
    value = made.valued(box, system, score)
    if name != "lumped":  # with all schedules the same design may do better
        mapped = made.mapped(box, system, math.inf)
        again = None if mapped is None else made.valued(box, system, mapped.score)
        if mapped is not None and again is not None and (value is None or again < value):
            value, score = again, mapped.score
    return Comparison(
        question=name,
        design=box.which,
        best=made.spaces[box.which].named(box.low),
        predicted=other.merit.shown(found.best),
        judged=_shown(made, value),
        frequency=_clock(made, box, system, score),
    )


def _shown(made: Workload, value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else made.merit.shown(value)


def _clock(made: Workload, box: Box, system: System, score: Score) -> float:
    """The share of its clock at which a design runs in the question that was asked."""
    lumped = made.lumped(box, system.chip.power_w or 0.0)
    if lumped is not None:
        return lumped.frequency
    return 1.0 if score.physical is None else score.physical.frequency
