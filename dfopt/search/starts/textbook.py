"""What textbooks share out over chips: which axes lie on which network dims, and the scheme of every kernel.

Sources: tensor parallelism by columns and rows, inside a node (Shoeybi et al., arXiv:1909.08053, section 3), pipeline
and data parallelism outside of it (Narayanan et al., arXiv:2104.04473, section 3.2); tokens between products
(Korthikanti et al., MLSys 2023, section 4.2.2); experts over chips that share the batch (Lepikhin et al.,
arXiv:2006.16668, section 3); ZeRO (Rajbhandari et al., arXiv:1910.02054) and FSDP (Zhao et al., arXiv:2304.11277).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

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
from dfopt.setting.listing import PlanListing
from dfopt.setting.shares import AxisDims

VARIATIONS = ("tokens", "layer norms whole", "norms whole", "ends whole", "heads whole", "first norm whole", "features")
"""Ways to shard a layer, the usual one first; of the others each helps where some collective takes long."""


def textbook_plans(graph: Graph, system: System, request: Request) -> PlanListing:
    """Plans with the usual layout: axes that communicate most on the innermost network dims, usual module schemes.

    Axes with requested dims use these dims.

    Parameters
    ----------
    graph, system
        The workload and the machine.
    request
        What is asked for, with the degrees and dims of axes that it fixes.
    """
    asked = request.asked_dims
    near = 2 * next((dim.size for dim in system.network if dim.size > 1), 1)

    def share_outs(shared: AxisDims) -> bool:
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

    return PlanListing(share_outs=share_outs, modules=modules)


def narrowed(request: Request) -> Request:
    """A request restricted to usual ZeRO levels and without two-batch overlap."""
    levels = tuple(level for level in request.zero or () if level in (1, 3))
    turns = request.two_batch_overlap or False
    return request.model_copy(update={"zero": levels or request.zero, "two_batch_overlap": turns})


def shardings(instance: Instance, request: Request, variation: str) -> dict[str, Sharding] | None:
    """The textbook scheme of every kernel, among those that it can take and pins allow; None if there is none.

    Parameters
    ----------
    instance, request
        Graph, machine and plan, and the pins of the request.
    variation : str
        Name of the textbook layout.
    """
    graph, degree = instance.graph, instance.plan.shards
    legal = {kernel.name: ops.legal_schemes(kernel, degree, instance.assumptions) for kernel in graph.kernels}
    pinned = {name: scheme for name, scheme in request.pin_sharding.items() if name in legal}
    if any(scheme not in legal[name] for name, scheme in pinned.items()):
        return None
    tokens = variation != "features" and instance.assumptions.sequence_parallelism != "none"
    schemes = dict(megatron_shardings(graph, degree, sequence_parallel=tokens))
    if degree > 1:
        schemes |= dict(_changes(graph, schemes, variation))
    schemes |= pinned
    return {name: schemes[name] if schemes.get(name) in few else few[0] for name, few in legal.items()}


def _changes(graph: Graph, schemes: dict[str, Sharding], variation: str) -> Iterator[tuple[str, Sharding]]:
    """What a variation changes about the usual schemes."""
    if variation in ("tokens", "features"):
        return
    repeated = [kernel.name for kernel in graph.kernels if graph.kind_of(kernel) < graph.layers.counted]
    norms = [kernel.name for kernel in graph.kernels if kernel.role == "norm" and kernel.pass_ == "forward"]
    of_layers = [name for name in norms if name in repeated]
    few = {"first norm whole": of_layers[:1], "layer norms whole": of_layers[1:], "norms whole": of_layers}
    for name in [*few.get(variation, []), *(name for name in norms if name not in repeated)]:
        yield name, "none"
    reads, alone = {tensor.dst for tensor in graph.tensors}, [k for k in graph.kernels if k.name not in repeated]
    first = {k.name for k in alone if k.pass_ == "forward" and k.op == "elementwise" and k.role is None} - reads
    for kernel in alone:  # rows of a table: each chip has some of their features
        if kernel.name in first or (kernel.stage_with in first and kernel.op == "elementwise"):
            yield kernel.name, "m"
    if variation == "heads whole":  # gradients of what attention reads, by their features
        heads = {
            k.name for k in graph.kernels if k.pass_ == "forward" and k.op == "gemm" and schemes[k.name] == "outer"
        }
        for kernel in graph.kernels:
            if kernel.stage_with in heads and kernel.pass_ != "recompute" and kernel.op in ("gemm", "weight_update"):
                yield kernel.name, "m"
