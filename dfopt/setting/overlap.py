"""What pipeline stages exchange while their backward pass still computes, see :mod:`dfopt.physics.overlap`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.physics.copies import exchanged, reductions
from dfopt.physics.overlap import Reduced, exposed_s, hides, reduced_after_s
from dfopt.physics.pipeline import partition_time, step_time
from dfopt.setting.instance import Instance
from dfopt.setting.optimizer import optimizer_seconds
from dfopt.setting.stages import in_order, pipeline_stages
from dfopt.setting.tables import Bools, Floats, Ints

__all__ = ["Exchanges", "Passes", "exchange_seconds", "least_s", "reduced_stages", "roofline_passes"]


class Exchanges(NamedTuple):
    """Seconds by kind of layer: gradients added up once; the optimizer's step and weights brought together."""

    reduce_s: tuple[float, ...]
    weights_s: tuple[float, ...]


class Passes(NamedTuple):
    """Seconds of one evaluation by kind of layer: with something of the forward pass, and without."""

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]


def exchange_seconds(instance: Instance, volume_k: Floats, weight_k: Floats, kind_k: Ints) -> Exchanges | None:
    """What copies exchange of so many bytes of each kernel's gradient, kind by kind; nothing if nothing is hidden.

    The optimizer's step over so many bytes of weights is between the two exchanges, where nothing hides it either.
    """
    some = bool(instance.adding) or instance.assumptions.optimizer_step is not None
    if not hides(instance.assumptions, instance.graph) or not some:
        return None
    plan, word_k, price = instance.plan, instance.setting.weight_word_k, instance.communication_s
    step_k = optimizer_seconds(instance, np.arange(len(kind_k)), weight_k)
    reduce_s, weights_s = np.zeros(instance.mapped_stages), np.bincount(kind_k, step_k, instance.mapped_stages)
    for dims, share_k in instance.adding:
        for kind in range(instance.mapped_stages):
            mine = np.where(kind_k == kind, share_k * volume_k, 0.0)
            reduce_s[kind] += exchanged(plan, dims, float(mine.sum()), 0.0, price) / reductions(plan)
            weights_s[kind] += exchanged(plan, dims, 0.0, float(mine @ word_k), price)
    return Exchanges(tuple(reduce_s.tolist()), tuple(weights_s.tolist()))


def roofline_passes(
    parts: Iterable[tuple[Bools, tuple[Floats, Floats, Floats, Floats]]], assumptions: Assumptions
) -> Passes:
    """The least of each pass from what kernels of every kind take at least, however they are partitioned.

    ``parts``: which kernels are of the forward pass; seconds of compute, memory, network and SRAM of each.
    """
    mixed = assumptions.forward_backward != "separate"  # then all partitions may hold something of the forward pass
    forward_s, backward_s = list[float](), list[float]()
    for forward_k, seconds in parts:
        for side_k, found in ((forward_k, forward_s), (~forward_k, backward_s)):
            compute, memory, network, sram = (float(each_k[side_k].sum()) for each_k in seconds)
            found.append(partition_time(compute, memory, network, assumptions.overlap, sram))
    return Passes(tuple(forward_s), (0.0,) * len(backward_s) if mixed else tuple(backward_s))


def reduced_stages(
    graph: Graph, plan: Plan, exchanges: Exchanges, passes: Passes, hops: Sequence[float] = ()
) -> tuple[Reduced, ...]:
    """What every distinct pipeline stage of a folded graph exchanges, and when it is through at least.

    Parameters
    ----------
    graph, plan : Graph, Plan
        The whole model, and how its layers lie in stages; stages that are alike have the order of the first of them.
    exchanges, passes : Exchanges, Passes
        Of every kind; at least.
    hops : sequence of float, optional
        Seconds of each stage beside the work of its layers.
    """
    found = []
    for position, stage in enumerate(pipeline_stages(graph, plan)):
        order = [(kind, times) for kind, times in in_order(graph, plan, stage.number) if times]
        back = ((passes.backward_s[kind], exchanges.reduce_s[kind], times) for kind, times in reversed(order))
        ends_s = sum(times * passes.forward_s[kind] for kind, times in order) + reduced_after_s(back)
        found.append(
            Reduced(
                last_s=exchanges.reduce_s[order[0][0]] if order else 0.0,
                ends_s=ends_s + (hops[position] if hops else 0.0),
                weights_s=sum(times * exchanges.weights_s[kind] for kind, times in order),
                times=reductions(plan),
            )
        )
    return tuple(found)


def least_s(
    instance: Instance, plan: Plan, stages: Sequence[float], exchanges: Exchanges | None, passes: Passes
) -> float:
    """Seconds of a step under a plan, from the least of every pipeline stage and of what they exchange."""
    reduced = reduced_stages(instance.setting.model, plan, exchanges, passes) if exchanges else ()
    exposed = exposed_s(stages, reduced) if reduced else 0.0
    return step_time(plan, instance.assumptions, max(stages), gradient_reduction_s=exposed).total
