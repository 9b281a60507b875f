"""What textbooks share out over chips: which axes lie on which network dims, and the scheme of every kernel.

Sources: tensor parallelism by columns and rows, inside a node (Shoeybi et al., arXiv:1909.08053, section 3), pipeline
and data parallelism outside of it (Narayanan et al., arXiv:2104.04473, section 3.2); tokens between products
(Korthikanti et al., MLSys 2023, section 4.2.2); experts over chips that share the batch (Lepikhin et al.,
arXiv:2006.16668, section 3); ZeRO (Rajbhandari et al., arXiv:1910.02054) and FSDP (Zhao et al., arXiv:2304.11277).
"""

from __future__ import annotations

import math

from dfopt.documents.axes import AXES
from dfopt.documents.dim_names import parts_of, split_part_name
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Sharding
from dfopt.documents.modules import STREAM, Modules
from dfopt.documents.request import Request
from dfopt.documents.system import System
from dfopt.frontends.megatron.shardings import megatron_shardings
from dfopt.physics import ops
from dfopt.setting.instance import Instance
from dfopt.setting.listing import Listing
from dfopt.setting.shares import Shared

__all__ = ["narrowed", "shardings", "textbook_plans"]


def textbook_plans(graph: Graph, system: System, request: Request) -> Listing:
    """Plans whose axes lie inside out, in the order of how often they communicate, with usual schemes of modules.

    Axes of which dims are asked for lie where they are.
    """
    asked = request.asked_dims
    near = 2 * next((dim.size for dim in system.network if dim.size > 1), 1)

    def share_outs(shared: Shared) -> bool:
        placed = [
            (place, stride, number, size or system.network[place].size)
            for number, axis in enumerate(AXES)
            if axis not in asked
            for name, size, stride in map(split_part_name, parts_of(shared[axis]))
            for place, dim in enumerate(system.network)
            if dim.name == name
        ]
        order = [number for _, _, number, _ in sorted(placed)]
        often = [AXES[axis].splits in ("kernels", "modules") for axis in AXES]
        together = math.prod(size for _, _, number, size in placed if often[number])
        return order == sorted(order) and (together <= near or not graph.trains)

    def modules(schemes: Modules) -> bool:
        of = {name: scheme for name, scheme in schemes.schemes.items() if name != STREAM}
        by_features = set() if graph.trains else {"m"}
        tokens = {schemes.stream, "n"}
        return (
            schemes.stream != "none"
            and of.pop("mixer", schemes.stream) == schemes.stream
            and of.pop("experts", "outer") in {"outer"} | by_features
            and set(of.values()) <= tokens | by_features
        )

    return Listing(share_outs=share_outs, modules=modules)


def narrowed(request: Request) -> Request:
    """A request for a part of the same plans: the levels of ZeRO that are usual, no microbatches that take turns."""
    levels = tuple(level for level in request.zero or () if level in (1, 3))
    turns = request.two_batch_overlap or False
    return request.model_copy(update={"zero": levels or request.zero, "two_batch_overlap": turns})


def shardings(instance: Instance, request: Request) -> dict[str, Sharding] | None:
    """A scheme for every kernel that it can take, and that pins allow; none if there is none."""
    graph, degree = instance.graph, instance.plan.shards
    legal = {kernel.name: ops.legal_schemes(kernel, degree, instance.assumptions) for kernel in graph.kernels}
    pinned = {name: scheme for name, scheme in request.pin_sharding.items() if name in legal}
    if any(scheme not in legal[name] for name, scheme in pinned.items()):
        return None
    tokens = instance.assumptions.sequence_parallelism != "none"
    schemes = {**megatron_shardings(graph, degree, sequence_parallel=tokens), **pinned}
    return {name: schemes[name] if schemes.get(name) in few else few[0] for name, few in legal.items()}
