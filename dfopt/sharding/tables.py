"""Inter-chip prices: every sharding scheme, layout conversion and hop, in seconds and bytes.

Suffixes: k kernel, o option (a kernel with one of its sharding schemes), t tensor (carried ones
included), l layout (RR, SR, RS).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.kernel import Tensor
from dfopt.documents.mapping import Sharding
from dfopt.errors import PlanError
from dfopt.physics import ops
from dfopt.setting.instance import Instance
from dfopt.setting.pinned import forbidden_pins
from dfopt.terms.by_kernel import fanout_groups
from dfopt.terms.conversions import LAYOUTS, gathered_late
from dfopt.terms.figures import Figures
from dfopt.terms.layer import Layer
from dfopt.terms.rules.network import inherent
from dfopt.terms.step.hops import sent_s
from dfopt.terms.table import Domain

_COSTS = np.array([[ops.conversion(has, needs) is not None for needs in LAYOUTS] for has in LAYOUTS], dtype=float)
"""Which conversions cost something, by produced and required layout."""


@dataclass(frozen=True)
class InterChipTables:
    """Costs of all sharding options and conversions, from which :func:`formulate` builds rows; in seconds and bytes.

    Tensors with one ``bill_t`` are converted together. Where they are produced, unless ``again_t``: then every
    partition pays that reads them. ``gathers``: one all-gather serves all layouts (sequence parallelism).
    """

    stages: int
    kernel_o: Ints
    scheme_o: tuple[Sharding, ...]
    compute_o: Floats
    network_o: Floats
    bytes_o: Floats
    held_o: Floats  # bytes of weights, gradients and output that a chip reads, writes and keeps
    produced_o: Ints
    src_t: Ints
    dst_t: Ints
    group_t: Ints
    bill_t: Ints
    again_t: Bools
    gathers: bool
    required_to: Ints  # layout that option o of tensor t's consumer needs, -1 where o is another kernel's
    conversion_tll: Floats  # seconds, of an all-gather that does as well where that is faster
    conversion_bytes_tll: Floats
    hop_tl: Floats  # seconds to the neighbouring stage, by layout
    ordered_t: Bools  # within one evaluation (carried tensors order nothing)
    reversed_t: Bools  # gradients flow from later stages to earlier ones
    together_kk: tuple[tuple[int, int], ...]
    partial_kk: tuple[tuple[int, int], ...]  # (k, into): k split only if `into` is split by its contraction
    alike_kk: tuple[tuple[int, int], ...]  # kernels whose outputs layers of any kind find in the same layout

    @property
    def kernels(self) -> int:
        """Number of kernels."""
        return int(self.kernel_o.max()) + 1

    @cached_property
    def of_kernel(self) -> list[Ints]:
        """Option numbers of each kernel."""
        return [np.flatnonzero(self.kernel_o == k) for k in range(self.kernels)]


def options_left(layer: Layer, pins: Mapping[str, Sharding]) -> Domain:
    """Options that pins leave to each kernel of a layer, as places among its own; a single chip has one each."""
    pinned = pins if layer.degree > 1 else {}
    pairs = zip(layer.kernels, layer.schemes_k, strict=True)
    return tuple(
        tuple(o for o, scheme in enumerate(schemes) if pinned.get(kernel.name, scheme) == scheme)
        for kernel, schemes in pairs
    )


def build(instance: Instance, pins: Mapping[str, Sharding] | None = None) -> InterChipTables:
    """Price all sharding schemes, layout conversions and pipeline messages of a plan.

    Parameters
    ----------
    instance : Instance
        A graph with ``repeat`` > 1 is folded: one layer stands for all, so there is one stage.
    pins : dict, optional
        Kernel name -> scheme chosen by the user.

    Raises
    ------
    PlanError
        If a pinned scheme is not legal for its kernel.
    """
    graph, plan, assumptions = instance.graph, instance.plan, instance.assumptions
    if reason := forbidden_pins(instance.setting, pins or {}, plan.shards):
        raise PlanError(reason)
    index, figures = graph.index(), Figures(instance)
    layer = figures.layer
    domain = options_left(layer, pins or {})
    left_o = np.flatnonzero(figures.allowed(domain))
    kernel_o = figures.kernel_o[left_o]
    scheme_o = tuple(schemes[o] for schemes, left in zip(layer.schemes_k, domain, strict=True) for o in left)
    collectives_o = np.array([kind is not None for k in range(len(graph.kernels)) for kind in inherent(layer, k)])
    bytes_o = np.where(collectives_o, [graph.output_bytes(k) for k in figures.kernel_o.tolist()], 0.0)[left_o]

    carried = graph.carried if layer.carried else ()
    tensors = (*graph.tensors, *carried)
    operand_t = [*graph.operands(), *([1] * len(carried))]
    required_to = np.full((len(tensors), len(left_o)), -1, dtype=np.int64)
    hop, share_o = np.zeros((len(tensors), 3)), figures.output_o[left_o].tolist()
    produced_o = np.concatenate(layer.produced_ko)[left_o]
    for t, tensor in enumerate(tensors):
        consumer, elements = graph.kernels[index[tensor.dst]], graph.elements_of(tensor)
        for o in np.flatnonzero(kernel_o == index[tensor.dst]).tolist():
            layout = ops.required_layout(consumer, operand_t[t], scheme_o[o], layer.rules, elements)
            required_to[t, o] = LAYOUTS.index(layout)
        for o in np.flatnonzero(kernel_o == index[tensor.src]).tolist():
            hop[t, produced_o[o]] = sent_s(instance, graph.bytes_of(tensor), share_o[o])
    return InterChipTables(
        stages=1 if graph.folded else plan.stages,
        kernel_o=kernel_o,
        scheme_o=scheme_o,
        compute_o=figures.at_rate_o[left_o],
        network_o=figures.sent_o[left_o],
        bytes_o=bytes_o,
        held_o=_held(figures)[left_o],
        produced_o=produced_o,
        **_conversions(graph, assumptions, layer, tensors),
        gathers=assumptions.splits_tokens,
        required_to=required_to,
        hop_tl=hop,
        ordered_t=np.arange(len(tensors)) < len(graph.tensors),
        **_ends(graph, tensors),
        together_kk=tuple(
            (k, index[kernel.stage_with]) for k, kernel in enumerate(graph.kernels) if kernel.stage_with is not None
        ),
        partial_kk=tuple(
            (k, index[kernel.accumulates_into])
            for k, kernel in enumerate(graph.kernels)
            if kernel.accumulates_into is not None and ops.leaves_partial_sums(kernel, "k", plan.shards, layer.rules)
        ),
        alike_kk=tuple(
            (index[first.src], index[other.src])
            for others in (graph.handed_on[1:] if carried else ())
            for first, other in zip(graph.handed_on[0], others, strict=True)
        ),
    )


def _conversions(graph: Graph, assumptions: Assumptions, layer: Layer, tensors: Sequence[Tensor]) -> dict[str, Any]:
    """What tensors convert: groups that convert once, bills of what a layout is paid for, seconds and bytes."""
    carried = len(tensors) - len(graph.tensors)
    late_t = np.append(gathered_late(graph, assumptions), np.zeros(carried, dtype=bool))
    again_t = np.zeros(len(tensors), dtype=bool)
    group_t = fanout_groups(graph, assumptions)
    group_t = np.append(group_t, np.arange(carried) + group_t.max(initial=-1) + 1)
    conversion, conversion_bytes = np.zeros((2, len(tensors), len(LAYOUTS), len(LAYOUTS)))
    for wanted in layer.wanted:
        here = (group_t == wanted.group) & (late_t == wanted.late)
        again_t[here] = wanted.tolls
        conversion[here] = layer.conversion(wanted)[0][:, [1 << place for place in range(len(LAYOUTS))]]
        conversion_bytes[here] = wanted.fan.bytes * _COSTS
    alone = assumptions.execution != "dataflow"  # readers are in partitions of their own, but for a library's few sets
    bills, bill_t = dict[tuple[object, ...], int](), np.zeros(len(tensors), dtype=np.int64)
    for t, (group, late, again) in enumerate(zip(group_t.tolist(), late_t.tolist(), again_t.tolist(), strict=True)):
        bill_t[t] = bills.setdefault((group, late, tensors[t].dst if again and alone else None), len(bills))
    prices = {"conversion_tll": conversion, "conversion_bytes_tll": conversion_bytes}
    return {"group_t": group_t, "bill_t": bill_t, "again_t": again_t, **prices}


def _ends(graph: Graph, tensors: Sequence[Tensor]) -> dict[str, Any]:
    """The kernels that tensors come from and go to, and which tensors are handed on behind the forward pass."""
    index, forward_k = graph.index(), np.array([kernel.pass_ == "forward" for kernel in graph.kernels])
    src_t = np.array([index[t.src] for t in tensors], dtype=np.int64)
    dst_t = np.array([index[t.dst] for t in tensors], dtype=np.int64)
    return {"src_t": src_t, "dst_t": dst_t, "reversed_t": ~(forward_k[src_t] | forward_k[dst_t])}


def _held(figures: Figures) -> Floats:
    """Bytes of DRAM that a kernel costs a chip under a scheme: they break ties between shardings that are as fast."""
    graph = figures.layer.graph
    made_k = np.array([graph.output_bytes(k) for k in range(len(graph.kernels))])
    made_k += graph.words.activations * np.array([ops.gradient_elements(kernel) for kernel in graph.kernels])
    return figures.weight_o + made_k[figures.kernel_o] * figures.output_o + figures.by_option("cached_bytes")
