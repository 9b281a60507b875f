"""Plans under which some layers of every stage are computed again in the backward pass, and the others are not."""

from __future__ import annotations

from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.errors import PlanError

__all__ = ["with_recomputed"]


def with_recomputed(found: list[Plan], graph: Graph, asked: int | None) -> list[Plan]:
    """The plans with every number of layers that may be recomputed, of a graph that draws both kinds.

    At least one of a stage and not all, which a graph of one kind says; of interleaved stages as many in every chunk.
    Under one mapping of both kinds a step is linear in their number, and stages hold less with each: where a layer that
    is recomputed takes longer than one that is kept, the fewest that fit are the best. Computing may also be faster
    than reading, so every number is a plan.

    Raises
    ------
    PlanError
        If a number is asked for that no plan can have.
    """
    if graph.recomputed is None:
        if asked is None:
            return found
        raise PlanError(
            f"recomputed: found {asked} layers of a stage, but all layers of {graph.name} are computed alike; expected"
            " a graph that draws both ways (--recompute full/none or full/attention), or no number"
        )
    kept = []
    for plan in found:
        counts = range(plan.interleave, plan.layers_per_stage, plan.interleave)
        kept += [plan.model_copy(update={"recomputed": count}) for count in counts if asked in (None, count)]
    if not kept:
        most = max(plan.layers_per_stage for plan in found)
        what = f"{asked} layers of a stage" if asked else "some layers of a stage, and not the others,"
        raise PlanError(
            f"recomputed: {what} cannot be computed again where stages have {most} at most, in equal chunks; expected"
            " fewer than they have, or fewer stages (--pp); --recompute full does all"
        )
    return kept
