"""Plans under which a pipeline takes two microbatches at a time, of which one sends while the other computes."""

from __future__ import annotations

from collections.abc import Iterator

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.system import System
from dfopt.errors import PlanError
from dfopt.physics.pipeline import hides_all


def in_turns(plans: list[Plan], graph: Graph, system: System, assumptions: Assumptions, asked: Request) -> list[Plan]:
    """Of some plans those under which two microbatches can take turns, doing so.

    Not offered where nothing is sent that could be hidden, in training, where ``overlap: perfect`` hides it already,
    where chips share kernels (what these send would meet what the other half sends), on stacks of dies, and where the
    partitions are not chosen as a free path together with the sharding, so that nothing could be proven.

    Parameters
    ----------
    assumptions
        Resolved.

    Raises
    ------
    PlanError
        If these alone are asked for, and there are none.
    """
    reasons = (*_of_the_machine(graph, system, assumptions), *_of_the_search(assumptions, asked))
    reason = next(iter(reasons), None)
    found = [] if reason else [plan for plan in plans if _can(plan, graph)]
    if asked.two_batch_overlap and not found:
        reason = reason or (
            "no plan with an even number of microbatches has messages that sharing out a kernel does not change, such"
            " as those of experts over chips (ep), and one chip for every kernel (tp 1)"
        )
        raise PlanError(f"two_batch_overlap: microbatches of {graph.name} on {system.name} cannot take turns: {reason}")
    return [plan.model_copy(update={"two_batch_overlap": True}) for plan in found]


def turns_left_out(graph: Graph, system: System, assumptions: Assumptions, asked: Request) -> bool:
    """Whether only the way to search, and no request of its own, may keep microbatches from taking turns."""
    free = asked.two_batch_overlap is None and not any(_of_the_machine(graph, system, assumptions))
    return free and any(_of_the_search(assumptions, asked))


def _of_the_machine(graph: Graph, system: System, assumptions: Assumptions) -> Iterator[str]:
    if graph.trains:
        yield "it trains"
    if hides_all(assumptions):
        yield "under overlap: perfect nothing is left to hide"
    if system.stack is not None:
        yield "heat of two halves on a stack of dies is not modelled"


def _of_the_search(assumptions: Assumptions, asked: Request) -> Iterator[str]:
    if assumptions.sharding_objective != "joint":
        yield "the sharding is chosen before the fusion (sharding_objective)"
    counted = asked.p_max or asked.pin_partition or assumptions.empty_partitions == "forbid"
    if counted or asked.formulation == "assignment":
        yield "partitions are counted, pinned or asked for as matrices"


def _can(plan: Plan, graph: Graph) -> bool:
    """Whether two microbatches can take turns, and something is sent meanwhile."""
    if plan.shards > 1 or plan.interleave > 1 or plan.microbatches % 2 or (plan.stages > 1 and not graph.folded):
        return False
    schemes = set() if plan.modules is None else set(plan.modules.schemes.values())
    return len(schemes) > 1 or bool(schemes - {"n", "none"}) or any(kernel.communications for kernel in graph.kernels)
