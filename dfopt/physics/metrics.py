"""Metrics: what a plan costs, from the times of its pipeline stages. An objective is one of them, limits are others.

Every metric is non-decreasing in the time of every stage, so the same function of lower bounds is a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.plan import Plan
from dfopt.physics.fill import Line
from dfopt.physics.overlap import Reduced, exposed_s, most_s
from dfopt.physics.pipeline import step_time
from dfopt.physics.window import Shown

_CLOSE = 1e-12


@dataclass(frozen=True)
class Constants:
    """What a metric needs of a plan beside the times of its stages.

    ``per_step_s`` and ``gradients_s``: seconds of point-to-point messages, and of the reduction of gradients, charged
    once per step. ``reduced``: of every stage, where the reduction is hidden behind the backward pass; then it says
    what of it is charged (:mod:`dfopt.physics.overlap`). ``line``: how stages lie in the pipeline, where the time of
    each is charged (:mod:`dfopt.physics.fill`).
    """

    plan: Plan
    assumptions: Assumptions
    per_step_s: float = 0.0
    gradients_s: float = 0.0
    reduced: tuple[Reduced | Shown, ...] = ()
    line: Line | None = None


@dataclass(frozen=True)
class Metric:
    """One figure of a mapping, named as in documents; ``unit`` is a kind of :func:`dfopt.units.format`.

    ``value``: (seconds of every stage for one microbatch, constants) -> the figure; non-decreasing in every stage.
    ``most``: (figure, seconds of every stage, position, constants) -> the largest time of the stage at that position,
    the others as given, with which the figure is not exceeded.
    """

    name: str
    unit: str
    value: Callable[[Sequence[float], Constants], float]
    most: Callable[[float, Sequence[float], int, Constants], float]


def _step_time(stages: Sequence[float], constants: Constants) -> float:
    """Seconds of a step: every microbatch passes the slowest stage, the pipeline fills once."""
    return step_time(
        constants.plan,
        constants.assumptions,
        max(stages),
        through_s=None if constants.line is None else constants.line.seconds(stages),
        point_to_point_per_step_s=constants.per_step_s,
        gradient_reduction_s=exposed_s(stages, constants.reduced) if constants.reduced else constants.gradients_s,
        overhead_s=constants.assumptions.step_overhead or 0.0,
    ).total


def _slowest_of(value: float, stages: Sequence[float], position: int, constants: Constants) -> float:
    """Whatever the others take, no stage may take longer than a step of this length allows the slowest one."""
    if constants.line is not None:
        return _of_line(value, stages, position, constants, constants.line)
    rounds = step_time(constants.plan, constants.assumptions, 1.0).total
    once = constants.per_step_s + (constants.assumptions.step_overhead or 0.0)
    if constants.reduced:
        return most_s(value - once, rounds, stages, position, constants.reduced)
    return (value - once - constants.gradients_s) / rounds


def _of_line(value: float, stages: Sequence[float], position: int, constants: Constants, line: Line) -> float:
    """The same where the time of every stage is charged; what is exchanged behind it is found by halves."""
    once = constants.per_step_s + (constants.assumptions.step_overhead or 0.0)
    if not constants.reduced:
        return line.most_s(value - once - constants.gradients_s, stages, position)
    low, high = 0.0, line.most_s(value - once, stages, position)
    while high - low > _CLOSE * high:
        middle = (low + high) / 2
        exceeds = _step_time([*stages[:position], middle, *stages[position + 1 :]], constants) > value
        low, high = (low, middle) if exceeds else (middle, high)
    return high


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (Metric("step_time", "time", _step_time, _slowest_of),)
}  # fmt: skip
"""By name; ``Objective.metric`` is one of them."""
