"""What the chips that share kernels communicate: the schemes' own collectives, and conversions of layouts.

A conversion is charged where its tensor is produced, once for all readers. With sequence parallelism a saved tensor
stays as it lies, and every partition of the backward pass that reads it pays a *toll* to gather it again (Korthikanti
et al., "Reducing activation recomputation in large transformer models", 2022, section 4.2.2).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Sharding
from dfopt.physics import ops
from dfopt.physics.collectives import Collective
from dfopt.physics.network import bytes_sent
from dfopt.setting.by_kernel import fanout_groups
from dfopt.setting.instance import Instance

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

LAYOUTS: tuple[ops.Layout, ...] = ("RR", "SR", "RS")
"""Layouts of a matrix over the chips that share kernels: whole, split by features, split by tokens."""


def gathered_late(graph: Graph, assumptions: Assumptions) -> Bools:
    """Tensors that are converted for the backward pass by themselves: sequence parallelism saves them as they lie."""
    way, passes = assumptions.backward_gathers, {kernel.name: kernel.pass_ for kernel in graph.kernels}
    if not assumptions.splits_tokens or way == "kept":
        return np.zeros(len(graph.tensors), dtype=bool)
    found = [passes[t.src] == "forward" != passes[t.dst] for t in graph.tensors]
    if way == "kept_calculon":  # where what reads them in the forward pass feeds what is computed again
        again = {t.src for t in graph.tensors if passes[t.dst] == "recompute"}
        groups = fanout_groups(graph, assumptions).tolist()
        feeding = {
            g for g, t in zip(groups, graph.tensors, strict=True) if t.dst in again and passes[t.dst] == "forward"
        }
        found = [late and group in feeding for late, group in zip(found, groups, strict=True)]
    return np.array(found, dtype=bool)


def readers_pay(assumptions: Assumptions) -> bool:
    """Whether every partition pays that reads what is gathered late; else it is one conversion, of its source."""
    return assumptions.backward_gathers is None


class Readers(NamedTuple):
    """Kernels that a tensor is converted for together, by the layout that they want; ``late``: in the backward pass."""

    src: int
    whole: float
    late: bool
    wanting: dict[ops.Layout, list[int]]

    def hides(self, assumptions: Assumptions) -> tuple[int, ...]:
        """Kernels behind which a conversion for all of them may be hidden: none if each pays for itself."""
        if self.late and readers_pay(assumptions):
            return ()
        return tuple(dict.fromkeys(chain(*self.wanting.values())))


def readers(instance: Instance, schemes: Sequence[Sharding]) -> list[Readers]:
    """The readers of every fan-out group, those who pay themselves apart, and of every carried tensor."""
    graph, assumptions = instance.graph, instance.assumptions
    index, rules = graph.index(), assumptions.sharding_rules
    groups, late_t = fanout_groups(graph, assumptions).tolist(), gathered_late(graph, assumptions).tolist()
    moved = list(zip(groups, late_t, graph.tensors, ops.operands(graph), strict=True))
    if assumptions.layer_boundary == "dram":  # each carried tensor is a group of its own
        moved += [(-1 - number, False, tensor, 1) for number, tensor in enumerate(graph.carried)]
    found: dict[tuple[int, bool], Readers] = {}
    for group, later, tensor, operand in moved:
        dst, whole = index[tensor.dst], graph.bytes_of(tensor)
        layout = ops.required_layout(graph.kernels[dst], operand, schemes[dst], rules, graph.elements_of(tensor))
        one = found.setdefault((group, later), Readers(index[tensor.src], whole, later, {}))
        one.wanting.setdefault(layout, []).append(dst)
    return list(found.values())


def conversions(
    instance: Instance, one: Readers, produced: ops.Layout, wanted: Collection[ops.Layout]
) -> list[Collective]:
    """Collectives that bring a tensor into some layouts for its readers: one for each.

    With sequence parallelism one all-gather serves all readers, who cut what they want from it: where one of them wants
    all of it, or where nothing else is faster.
    """
    kinds = [kind for layout in wanted if (kind := ops.conversion(produced, layout)) is not None]
    if not instance.assumptions.splits_tokens or not kinds:
        return kinds

    def seconds(kind: Collective) -> float:
        return instance.between_shards_s(kind, one.whole, one.src, one.late, one.hides(instance.assumptions))

    gather = Collective.ALL_GATHER
    return [gather] if gather in kinds or seconds(gather) < sum(map(seconds, kinds)) else kinds


class Shared(NamedTuple):
    """A collective of the chips that share kernels, on what a kernel makes, which pays: `Instance.between_shards_s`."""

    kernel: int
    kind: Collective
    whole: float
    late: bool
    behind: tuple[int, ...]


def shard_communications(instance: Instance, schemes: Sequence[Sharding]) -> Iterator[Shared]:
    """What the chips that share kernels communicate.

    A scheme's own collective, and once for all tensors of a group the conversions of their layout; tolls are beside.
    """
    graph, shards = instance.graph, instance.plan.shards
    if shards == 1:
        return
    rules = instance.assumptions.sharding_rules
    for position, (kernel, scheme) in enumerate(zip(graph.kernels, schemes, strict=True)):
        inherent = ops.inherent(kernel, scheme, shards, rules)
        if inherent is not None:
            yield Shared(position, inherent, graph.output_bytes(position), False, (position,))
    for one in readers(instance, schemes):
        if not one.late or not readers_pay(instance.assumptions):
            for kind in conversions(instance, one, ops.PRODUCED[schemes[one.src]], one.wanting):
                yield Shared(one.src, kind, one.whole, one.late, one.hides(instance.assumptions))


def overhead_of_kernels(assumptions: Assumptions) -> float:
    """Seconds of starting a partition, where each kernel has one of its own; elsewhere a toll of all kernels."""
    return assumptions.kernel_overhead or 0.0 if assumptions.execution == "kernel_by_kernel" else 0.0


def tolls(instance: Instance, schemes: Sequence[Sharding]) -> tuple[Floats, Floats, Bools]:
    """Seconds, bytes sent and payers of the tolls: what backward partitions pay to read saved tensors.

    Readers that want all of a tensor pay what an all-gather takes more than what the others' layout takes.
    """
    plan, count = instance.plan, len(schemes)
    found: list[tuple[float, float, list[int]]] = []
    some = plan.shards > 1 and readers_pay(instance.assumptions)
    some = some and bool(gathered_late(instance.graph, instance.assumptions).any())
    for one in readers(instance, schemes) if some else ():
        produced = ops.PRODUCED[schemes[one.src]]
        if not one.late or produced == "RR":
            continue
        paid_s = paid_bytes = 0.0
        whole = one.wanting.get("RR", [])
        split = {layout: kernels for layout, kernels in one.wanting.items() if layout not in ("RR", produced)}
        everyone = [*chain(*split.values()), *whole]
        steps: list[tuple[list[ops.Layout], list[int]]] = [(list(split), everyone), (["RR"], whole)]
        for wanted, kernels in steps:
            if wanted and kernels:
                kinds = conversions(instance, one, produced, wanted)
                seconds = sum(instance.between_shards_s(kind, one.whole, one.src, True) for kind in kinds)
                sent = sum(bytes_sent(kind, one.whole, plan.shards) for kind in kinds)
                found.append((seconds - paid_s, sent - paid_bytes, kernels))
                paid_s, paid_bytes = seconds, sent
    if instance.assumptions.kernel_overhead and not overhead_of_kernels(instance.assumptions):
        found.append((instance.assumptions.kernel_overhead, 0.0, list(range(count))))
    payers_xk = np.zeros((len(found), count), dtype=bool)
    for x, (_, _, kernels) in enumerate(found):
        payers_xk[x, kernels] = True
    return np.array([s for s, _, _ in found]), np.array([b for _, b, _ in found]), payers_xk
