"""What a step takes from the times of its pipeline stages, and what it leaves to one of them.

A step is non-decreasing in the time of every stage, so the same function of lower bounds is a lower bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.plan import Plan
from dfopt.physics.fill import Line
from dfopt.physics.pipeline import step_time


@dataclass(frozen=True)
class Constants:
    """What the step formula needs of a plan in addition to the seconds of its stages.

    ``line``: order of the stages in the pipeline, if the time of each is charged (:mod:`dfopt.physics.fill`).
    """

    plan: Plan
    assumptions: Assumptions
    line: Line | None = None


def step_seconds(stages: Sequence[float], constants: Constants) -> float:
    """Seconds of a step: all microbatches pass the slowest stage, and the pipeline fills once."""
    return step_time(
        constants.plan,
        constants.assumptions,
        max(stages),
        through_s=None if constants.line is None else constants.line.seconds(stages),
        overhead_s=constants.assumptions.step_overhead or 0.0,
    ).total


def most_of_stage(value: float, stages: Sequence[float], position: int, constants: Constants) -> float:
    """Largest time, s, of the stage at ``position``, others fixed, with which a step takes at most ``value`` seconds.

    No stage may take longer than a step of this length allows for the slowest stage, for any times of the others.

    Parameters
    ----------
    value : float, s
        Largest step.
    stages : sequence of float, s
        Times of all distinct stages for one microbatch.
    position : int
        Index of the stage in question.
    constants : Constants
        Other figures of the step.
    """
    left = value - (constants.assumptions.step_overhead or 0.0)
    if constants.line is not None:
        return constants.line.most_s(left, stages, position)
    return left / step_time(constants.plan, constants.assumptions, 1.0).total
