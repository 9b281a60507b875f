"""Metrics: what a plan costs, from the times of its pipeline stages. An objective is one of them, limits are others.

Every metric is non-decreasing in the time of every stage, so the same function of lower bounds is a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.plan import Plan
from dfopt.physics.fill import Line
from dfopt.physics.pipeline import step_time


@dataclass(frozen=True)
class Constants:
    """What a metric needs of a plan beside the times of its stages.

    ``line``: how stages lie in the pipeline, where the time of each is charged (:mod:`dfopt.physics.fill`).
    """

    plan: Plan
    assumptions: Assumptions
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
        overhead_s=constants.assumptions.step_overhead or 0.0,
    ).total


def _slowest_of(value: float, stages: Sequence[float], position: int, constants: Constants) -> float:
    """Whatever the others take, no stage may take longer than a step of this length allows the slowest one."""
    left = value - (constants.assumptions.step_overhead or 0.0)
    if constants.line is not None:
        return constants.line.most_s(left, stages, position)
    return left / step_time(constants.plan, constants.assumptions, 1.0).total


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (Metric("step_time", "time", _step_time, _slowest_of),)
}  # fmt: skip
"""By name; ``Objective.metric`` is one of them."""
