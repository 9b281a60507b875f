"""What copies of the batch exchange for the sake of their parameters: gradients added up, weights brought together.

Source of the levels: Rajbhandari et al., ZeRO, SC'20 (arXiv:1910.02054), sections 5 and 7: copies share out the
optimizer's state (1), gradients too (2), weights too (3), instead of each holding all; level 1 sends what an all-reduce
does. Gradients that are not held are added up after every microbatch, and weights that are not held are brought
together before a forward pass and once more before its backward pass. In groups of copies (:class:`Hybrid`) that is
within a group, and shards of gradients, which stay there, are added up over the groups once, at the end of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.axes import Dims
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.physics.collectives import Collective
from dfopt.physics.network import adds_up_at_once


class Exchange(NamedTuple):
    """A collective of data-parallel replicas.

    Attributes
    ----------
    kind, of : Collective, str
        The collective, and its data: ``gradients`` or ``weights``.
    dims : tuple of str
        Network dims that it spans.
    share : float
        Share of those data that it works on.
    times : int
        Repetitions in a step.
    """

    kind: Collective
    of: Literal["gradients", "weights"]
    dims: Dims
    share: float
    times: int


def obstacle(plan: Plan, level: int, graph: Graph, assumptions: Assumptions) -> str:
    """A sentence on why replicas cannot use a ZeRO level; empty if they can.

    Levels 2 and 3 in a pipeline with several microbatches would exchange data for every microbatch; no tool does that
    (DeepSpeed refuses it), and it is not modelled.

    Parameters
    ----------
    plan, graph, assumptions
        Plan of the replicas, the workload that they run, and resolved assumptions.
    level : int
        ZeRO level, 0 to 3; 0 shares nothing.
    """
    if level and not graph.trains:
        return "nothing is trained"
    if level and adds_up_at_once(assumptions):
        return "gradients: dfmodel holds none"
    if level and plan.copies == 1 and not (plan.modules and plan.modules.copies_weights):
        return "there is one copy of the batch"
    if level > 1 and plan.stages > 1:
        return (
            f"gradients of every microbatch would be exchanged in {plan.label_of('layers')}; use level 1, or one stage"
        )
    return ""


def exchanges(plan: Plan, dims: Dims) -> Iterator[Exchange]:
    """Collectives of a step among the chips along ``dims``, which reduce the same gradients.

    Chips of a second axis that have the same weights share them out together with the copies of the batch.

    Examples
    --------
    >>> [(one.kind.value, one.of, one.times) for one in exchanges(Plan(dp=4, dp_dims=("x",), zero=1), ("x",))]
    [('reduce_scatter', 'gradients', 1), ('all_gather', 'weights', 1)]
    >>> whole = Plan(dp=4, dp_dims=("x",), zero=3, microbatches=8)
    >>> [(one.kind.value, one.of, one.times) for one in exchanges(whole, ("x",))]
    [('reduce_scatter', 'gradients', 8), ('all_gather', 'weights', 16)]
    """
    level, copies = plan.zero or 0, plan.copy_dims
    if not level:
        yield Exchange(Collective.ALL_REDUCE, "gradients", dims, 1.0, 1)
        return
    others = tuple(dim for dim in dims if dim not in copies)
    group = (*others, *(copies if plan.hybrid is None else plan.hybrid.over))
    yield Exchange(Collective.REDUCE_SCATTER, "gradients", group, 1.0, reductions(plan))
    if plan.hybrid is not None:
        share = 1.0 / plan.held_by(1, copied=bool(others))
        yield Exchange(Collective.ALL_REDUCE, "gradients", plan.hybrid.across, share, 1)
    yield Exchange(Collective.ALL_GATHER, "weights", group, 1.0, 1 if level < 3 else 2 * plan.microbatches)


def reductions(plan: Plan) -> int:
    """Number of gradient reductions in a step: 1, or one a microbatch where gradients are not accumulated."""
    return plan.microbatches if (plan.zero or 0) > 1 else 1


def exchanged(
    plan: Plan, dims: Dims, gradients: float, weights: float, price: Callable[[Collective, float, Dims], float]
) -> float:
    """Cost of all replica exchanges in a step, for ``gradients`` and ``weights`` bytes, by the price of one collective.

    With 0 bytes of one of the two it is the time of the other alone.

    Parameters
    ----------
    plan, dims : Plan, tuple of str
        The plan, and the network dims of the replicas.
    gradients, weights : float, B
        Bytes of one chip's gradients and weights.
    price : callable
        Function from (kind, bytes of the whole tensor, dims) of a collective to its cost.
    """
    sizes = {"gradients": gradients, "weights": weights}
    return sum(
        exchange.times * price(exchange.kind, exchange.share * sizes[exchange.of], exchange.dims)
        for exchange in exchanges(plan, dims)
    )
