"""Plans by how stages take microbatches and what their layers compute again: schedules, turns, recomputed layers."""

from __future__ import annotations

from collections.abc import Iterator

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.system import System
from dfopt.errors import PlanError
from dfopt.physics.pipeline import hides_all


def of_schedule(plans: list[Plan], graph: Graph, asked: Request) -> list[Plan]:
    """Expand plans by pipeline schedules: one chunk of layers for each stage, or several (interleaved).

    By default 1F1B and all interleaved schedules are searched, and GPipe is not: its step is never shorter than that of
    1F1B, and its stages store all microbatches of a step.

    Parameters
    ----------
    plans, graph
        Plans with one chunk of layers for each stage or several, and the workload.
    asked
        The request, which may name a schedule.

    Raises
    ------
    PlanError
        If no plan has it.
    """
    if asked.schedule is None:
        return plans
    if not graph.trains:
        raise PlanError(
            f"schedule: found {asked.schedule}, but {graph.name} has no backward pass to order; leave it out, or add"
            " --param mode=training"
        )
    kept = [plan for plan in plans if (plan.interleave > 1) == (asked.schedule == "interleaved")]
    if kept:
        return kept
    if asked.schedule != "interleaved":
        raise PlanError(f"schedule: found {asked.schedule} beside interleave: {asked.interleave}; drop one of them")
    raise PlanError(
        f"schedule: found interleaved, but no plan of {graph.name} has stages in several chunks of layers; expected"
        " some with several stages (--pp) that divide the microbatches, of a folded graph, and bubble: one_f_one_b or"
        " stages"
    )


def with_recomputed(plans: list[Plan], graph: Graph, asked: int | None) -> list[Plan]:
    """Expand plans by the number of recomputed layers, for a graph that draws layers with and without recomputation.

    At least one of a stage and not all, which a graph of one kind says; of interleaved stages as many in every chunk.
    Under one mapping of both kinds a step is linear in their number, and stages hold less with each: where a layer that
    is recomputed takes longer than one that is kept, the fewest that fit are the best. Computing may also be faster
    than reading, so every number is a plan.

    Parameters
    ----------
    plans, graph : list of Plan, Graph
        Plans, and a graph that draws both kinds of layers.
    asked : int, optional
        Requested number of recomputed layers in each stage.

    Raises
    ------
    PlanError
        If a number is requested that no plan can have.
    """
    if graph.recomputed is None:
        if asked is None:
            return plans
        raise PlanError(
            f"recomputed: found {asked} layers of a stage, but all layers of {graph.name} are computed alike; expected"
            " a graph that draws both ways (--recompute full/none or full/attention), or no number"
        )
    kept = []
    for plan in plans:
        counts = range(plan.interleave, plan.layers_per_stage, plan.interleave)
        kept += [plan.variant(recomputed=count) for count in counts if asked in (None, count)]
    if not kept:
        most = max(plan.layers_per_stage for plan in plans)
        what = f"{asked} layers of a stage" if asked else "some layers of a stage, and not the others,"
        raise PlanError(
            f"recomputed: {what} cannot be computed again where stages have {most} at most, in equal chunks; expected"
            " fewer than they have, or fewer stages (--pp); --recompute full does all"
        )
    return kept


def in_turns(plans: list[Plan], graph: Graph, system: System, assumptions: Assumptions, asked: Request) -> list[Plan]:
    """Copies of plans with two-batch overlap, for those plans that allow it.

    There are none in these cases: no message could be hidden; training; ``overlap: perfect``, which hides messages
    already; tensor parallelism, whose messages would meet those of the other microbatch; stacks of dies; and partitions
    that are not chosen freely together with the sharding, as nothing could be proven.

    Parameters
    ----------
    assumptions
        Resolved.

    Raises
    ------
    PlanError
        If only these are requested, and there are none.
    """
    reasons = (*_of_the_machine(graph, system, assumptions), *_of_the_search(assumptions, asked))
    reason = next(iter(reasons), None)
    kept = [] if reason else [plan for plan in plans if _can_alternate(plan, graph)]
    if asked.two_batch_overlap and not kept:
        reason = reason or (
            "no plan with an even number of microbatches has messages that sharing out a kernel does not change, such"
            " as those of experts over chips (ep), and one chip for every kernel (tp 1)"
        )
        raise PlanError(f"two_batch_overlap: microbatches of {graph.name} on {system.name} cannot take turns: {reason}")
    return [plan.variant(two_batch_overlap=True) for plan in kept]


def turns_left_out(graph: Graph, system: System, assumptions: Assumptions, asked: Request) -> bool:
    """Whether two-batch overlap is left out only because of the way to search.

    Parameters
    ----------
    graph, system, assumptions, asked
        Workload, machine and resolved assumptions, and the request.
    """
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


def _can_alternate(plan: Plan, graph: Graph) -> bool:
    """Whether two microbatches can take turns, and something is sent meanwhile."""
    if plan.shards > 1 or plan.interleave > 1 or plan.microbatches % 2 or (plan.stages > 1 and not graph.folded):
        return False
    schemes = set() if plan.modules is None else set(plan.modules.schemes.values())
    return len(schemes) > 1 or bool(schemes - {"n", "none"}) or any(kernel.communications for kernel in graph.kernels)
