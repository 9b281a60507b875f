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
from dfopt.exploring.entries import best_of
from dfopt.exploring.problems import asked_instead, workload_of
from dfopt.exploring.space import Box
from dfopt.exploring.workload import ExplorationProblem
from dfopt.judge import evaluate


def compared(workload: ExplorationProblem, request: ExplorationRequest) -> Iterator[Comparison]:
    """Answers to the other questions of a request, each within an equal part of the time, with one part to spare."""
    end = workload.run.deadline
    try:
        for number, name in enumerate(request.compare):
            now = time.perf_counter()
            workload.run.deadline = now + max(end - now, 0.0) / (len(request.compare) - number + 1)
            if isinstance(answer := comparison(workload, request, name), Comparison):
                yield answer
    finally:
        workload.run.deadline = end


def comparison(
    workload: ExplorationProblem, request: ExplorationRequest, name: ComparisonName | None, within: Sequence[Box] = ()
) -> WithoutHeat | None:
    """Answer of another question, evaluated under the one that was asked; None if time is up first.

    Time is that of ``workload.run``.

    Parameters
    ----------
    workload, request
        The original question.
    name
        The other question. None: the question without heat, which has no answer if heat does not count, or if the
        objective has the energy of a stack, which is unknown without heat.
    within
        Boxes of the designs to compare. None: all designs.
    """
    if name is None and (workload.heat is None or "j" in workload.merit.needs):
        return None
    designs = [space.design for space in workload.spaces]
    other = workload_of(workload.graphs, designs, workload.assumptions, asked_instead(request, name), workload.run)
    other.within, other.memory = tuple(within), workload.memory
    outcome = best_of(other, request.gap)
    if outcome.solution is None or (system := workload.system(outcome.solution.box)) is None:
        return None
    box, result = outcome.solution.box, outcome.solution.result
    score = evaluate(result.mapping, workload.solver.drawn_as(result), system, workload.setting(system).assumptions)
    value = workload.valued(box, system, score)
    if name in ("tp_pp_dp", "expanded"):  # with all schedules the same design may do better
        mapped = workload.mapped(box, system, math.inf)
        again = None if mapped is None else workload.valued(box, system, mapped.score)
        if mapped is not None and again is not None and (value is None or again < value):
            value, score = again, mapped.score
    lumped = workload.lumped(box, system.chip.power_w or 0.0)
    throttled = lumped or score.physical
    answer = WithoutHeat(
        design=box.which,
        best=workload.spaces[box.which].named(box.low),
        predicted=other.merit.shown(outcome.best),
        judged=None if value is None or math.isinf(value) else workload.merit.shown(value),
        frequency=1.0 if throttled is None else throttled.frequency,
    )
    return answer if name is None else Comparison(question=name, **dict(answer))
