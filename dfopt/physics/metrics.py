"""Metrics: what a plan costs, from the times of its pipeline stages. An objective is one of them, limits are others.

Every metric is non-decreasing in the time of every stage, so the same function of lower bounds is a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.plan import Plan
from dfopt.physics.overlap import Reduced, exposed_s, most_s
from dfopt.physics.pipeline import step_time
from dfopt.physics.window import Shown


@dataclass(frozen=True)
class Constants:
    """What a metric needs of a plan beside the times of its stages.

    ``per_step_s`` and ``gradients_s``: seconds of point-to-point messages, and of the reduction of gradients, charged
    once per step. ``reduced``: of every stage, where the reduction is hidden behind the backward pass; then it says
    what of it is charged (:mod:`dfopt.physics.overlap`).
    """

    plan: Plan
    assumptions: Assumptions
    per_step_s: float = 0.0
    gradients_s: float = 0.0
    reduced: tuple[Reduced | Shown, ...] = ()


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
        point_to_point_per_step_s=constants.per_step_s,
        gradient_reduction_s=exposed_s(stages, constants.reduced) if constants.reduced else constants.gradients_s,
        overhead_s=constants.assumptions.step_overhead or 0.0,
    ).total


def _slowest_of(value: float, stages: Sequence[float], position: int, constants: Constants) -> float:
    """Whatever the others take, no stage may take longer than a step of this length allows the slowest one."""
    rounds = step_time(constants.plan, constants.assumptions, 1.0).total
    once = constants.per_step_s + (constants.assumptions.step_overhead or 0.0)
    if constants.reduced:
        return most_s(value - once, rounds, stages, position, constants.reduced)
    return (value - once - constants.gradients_s) / rounds


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (Metric("step_time", "time", _step_time, _slowest_of),)
}  # fmt: skip
"""By name; ``Objective.metric`` is one of them."""
