"""Plans whose copies of the batch share out what each of them would hold: the levels of ZeRO."""

from __future__ import annotations

from collections.abc import Sequence

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.errors import PlanError
from dfopt.physics.copies import obstacle

__all__ = ["shared_out"]


def shared_out(found: list[Plan], graph: Graph, assumptions: Assumptions, levels: Sequence[int] | None) -> list[Plan]:
    """The plans with every level that is asked for, where it can be; with no copies there is nothing to share out.

    Raises
    ------
    PlanError
        If a level is asked for that no plan has, and no other is; it says what stands against it.
    """
    if levels is None or tuple(levels) == (0,):
        return found
    if not graph.trains and 0 not in levels:
        asked = ", ".join(f"ZeRO-{level}" for level in levels)
        raise PlanError(f"zero: {graph.name} keeps no gradients that copies could share out; drop {asked}")
    kept, reasons = list[Plan](), dict[str, None]()
    for plan in found:
        if plan.copies == 1:
            kept.append(plan)
            continue
        for level in sorted(set(levels)):
            reason = obstacle(plan, level, graph, assumptions.gradients)
            if reason:
                reasons[f"ZeRO-{level}: {reason}"] = None
            else:
                kept.append(plan.model_copy(update={"zero": level or None}))
    if not kept:
        raise PlanError(f"no plan of {graph.name} shares its states out as asked for: {'; '.join(reasons)}")
    return kept
