"""What a search was asked for, and how it reports while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from dfopt.bnb import UNLIMITED, Clock
from dfopt.documents.plan import Plan
from dfopt.documents.plan_records import SolveRecord
from dfopt.documents.request import Request
from dfopt.milp import Solution, TracePoint

Only = dict[tuple[int, str | None], dict[Plan, float]]
"""By microbatch and variant of a graph the plans that are searched, and what a step takes at least under each."""


@dataclass(frozen=True)
class Progress:
    """State of a running search, as progress callbacks receive it.

    Of a search, ``plan`` is that of the best mapping so far, incumbent and bound are seconds of a step, and ``problem``
    says how many plans may still be better; of an exploration, ``plan`` is the technology in front, and the figures are
    those of its objective in its unit. A ``part`` of a search is one solve under one plan: its figures are seconds per
    layer and microbatch, or bytes that a sharding moves.
    """

    plan: str
    problem: str
    seconds: float
    incumbent: float
    bound: float
    unit: str = "s"
    part: bool = False


@dataclass(frozen=True)
class Options:
    """A request under way, with its clock and callbacks.

    Attributes
    ----------
    request : Request
        The request.
    clock : Clock
        Counts the work, and ends it.
    progress : callable, optional
        Callback for the progress of the search.
    only : mapping, optional
        The plans to search, if others are known to be no better, each with its known bound, which the search raises.
    """

    request: Request
    clock: Clock = UNLIMITED
    progress: Callable[[Progress], None] | None = None
    only: Only | None = None

    def asking(self, **changes: Any) -> Options:
        """A copy with some fields of the request replaced."""
        return replace(self, request=self.request.model_copy(update=changes))


def reporter(options: Options, plan: Plan, problem: str) -> Callable[[TracePoint], None] | None:
    """Progress callback for one solve under a plan; None if the caller wants no progress.

    Parameters
    ----------
    options, plan
        Options of the search, with its callback, and the plan.
    problem : str
        Name of the solve.
    """
    if options.progress is None:
        return None
    callback = options.progress
    return lambda point: callback(Progress(plan.label, problem, point.seconds, point.objective, point.bound, part=True))


def record_of(
    problem: Literal["interchip", "intrachip", "joint"],
    stage: int,
    formulation: str,
    solution: Solution,
    objective: float | None,
    bound: float,
    note: str,
) -> SolveRecord:
    """Solve record for a result document.

    Parameters
    ----------
    problem, stage, formulation
        Kind of the problem, its stage, and its formulation.
    solution
        Solution from the solver.
    objective, bound
        In units of the problem, not of its scaled model: seconds or bytes. No objective if there is no solution.
    note
        Text for the reader.
    """

    def finite(value: float) -> float | None:
        return float(value) if np.isfinite(value) else None

    return SolveRecord(
        problem=problem,
        stage=stage,
        formulation=formulation,
        termination=solution.termination.value,
        objective=objective,
        bound=finite(bound) or 0.0,  # a solver may stop without any; no time is negative
        gap=finite(solution.gap),
        seconds=solution.seconds,
        nodes=solution.nodes,
        rows=solution.rows,
        columns=solution.columns,
        nonzeros=solution.nonzeros,
        trace=tuple((p.seconds, finite(p.objective), finite(p.bound)) for p in solution.trace),
        note=note,
    )
