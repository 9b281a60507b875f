"""What a step may take: what is proven of plans, and of a layer's usual communication the rest."""

from __future__ import annotations

from collections.abc import Mapping

from dfopt.documents.axes import Dims
from dfopt.documents.plan import Plan
from dfopt.physics.collectives import Collective
from dfopt.physics.network import communication_seconds
from dfopt.setting.instance import Setting

__all__ = ["estimated"]


def estimated(setting: Setting, bounds: Mapping[Plan, float]) -> dict[Plan, float]:
    """Seconds that a step may take, from those that no mapping beats.

    A layer's usual communication are two all-reduces of what layers hand on, and two of their gradients (Shoeybi et
    al., arXiv:1909.08053, section 3), as if nothing hid them. It only says where to look first.
    """
    graph, once = setting.graph, dict[Dims, float]()
    for dims in {plan.shard_dims for plan in bounds}:
        sent = (graph.bytes_of(tensor) for tensor in graph.handed_on[0]) if graph.folded else ()
        once[dims] = 2.0 * sum(
            communication_seconds(Collective.ALL_REDUCE, size, dims, setting.system, setting.assumptions)
            for size in sent
        )
    return {
        plan: low + plan.microbatches * plan.layers_per_stage * once[plan.shard_dims] for plan, low in bounds.items()
    }
