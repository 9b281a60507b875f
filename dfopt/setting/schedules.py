"""Plans of the schedule that is asked for: 1F1B, interleaved 1F1B, GPipe."""

from __future__ import annotations

from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.errors import PlanError

__all__ = ["of_schedule"]


def of_schedule(found: list[Plan], graph: Graph, asked: Request) -> list[Plan]:
    """The plans that a schedule has: stages in several chunks, or in one.

    Unless one is asked for, 1F1B and all that is interleaved are searched, and GPipe is not: its step takes no less
    than that of 1F1B, and its stages hold all microbatches of a step.

    Raises
    ------
    PlanError
        If no plan has it.
    """
    if asked.schedule is None:
        return found
    if not graph.trains:
        raise PlanError(
            f"schedule: found {asked.schedule}, but {graph.name} has no backward pass to order; leave it out, or add"
            " --param mode=training"
        )
    kept = [plan for plan in found if (plan.interleave > 1) == (asked.schedule == "interleaved")]
    if kept:
        return kept
    if asked.schedule != "interleaved":
        raise PlanError(f"schedule: found {asked.schedule} beside interleave: {asked.interleave}; drop one of them")
    raise PlanError(
        f"schedule: found interleaved, but no plan of {graph.name} has stages in several chunks of layers; expected"
        " some with several stages (--pp) that divide the microbatches, of a folded graph, and bubble: one_f_one_b or"
        " stages"
    )
