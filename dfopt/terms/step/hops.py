"""What pipeline stages send: tensors to their neighbours, gradients to the other data-parallel copies.

*On* is to the next pipeline stage, as activations go; *back* is to the one before, as their gradients go. Arrays by
pipeline stage have the distinct stages of a plan, in the order of :attr:`dfopt.setting.instance.Instance.pipeline`.
These arguments mean the same in every function:

* ``instance``: a setting under one plan;
* ``sharded``: what its kernels do on one chip under their sharding schemes;
* ``stage_k``, int array, shape (kernels,): the stage of the mapping of each kernel. Of a folded graph that is the kind
  of layer, else the pipeline stage.

Suffixes: k kernel, t tensor.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.physics.collectives import Collective
from dfopt.physics.pipeline import messages
from dfopt.setting.instance import Instance
from dfopt.terms.sharded_graph import ShardedGraph
from dfopt.terms.step.overlap import exchanged_by_kind


def hides_hops(instance: Instance) -> bool:
    """Whether pipeline stages compute while they send to their neighbours (assumption ``point_to_point_overlap``).

    True: for one microbatch, a stage takes the longer of the seconds of its work and of its messages. False: it takes
    their sum (:func:`dfopt.physics.pipeline.with_point_to_point`).

    Parameters
    ----------
    instance : Instance
        Graph, machine and resolved assumptions (no ``auto`` left), under one plan.
    """
    return instance.assumptions.hides_hops_in(instance.plan.interleave)


def sent_once(instance: Instance) -> bool:
    """Whether messages between stages of a folded graph are charged once per step (``point_to_point: per_step``).

    In a *folded* graph the drawn layers stand for all layers of the model. True: the number of microbatches does not
    count, as in DFModel. :func:`per_step_hops` then has the seconds, and :func:`hop_seconds` has none. A graph that is
    not folded is charged for every microbatch all the same. This function reads the assumption alone: it does not ask
    whether the graph is folded.

    Parameters
    ----------
    instance : Instance
        Graph, machine and resolved assumptions (no ``auto`` left), under one plan.
    """
    return instance.assumptions.point_to_point == "per_step"


def both_ways_at_once(instance: Instance) -> bool:
    """Whether every chunk of layers of a folded graph is charged messages to two neighbours for every microbatch.

    In a *folded* graph the drawn layers stand for all layers of the model. A *chunk* is a run of consecutive layers in
    one pipeline stage, which has several if it is interleaved. True under ``point_to_point: per_microbatch``: the first
    and the last chunk of the pipeline are charged as if they had two neighbours. False under ``per_neighbour``, where a
    chunk is charged only for neighbours that it has, and under ``per_step``. The answer means nothing for graphs that
    are not folded.

    Parameters
    ----------
    instance : Instance
        Graph, machine and resolved assumptions (no ``auto`` left), under one plan.
    """
    return instance.assumptions.point_to_point == "per_microbatch"


def hop_seconds(instance: Instance, sharded: ShardedGraph, stage_k: Ints, *, least: bool = True) -> Floats:
    """Seconds in which each distinct pipeline stage sends to its neighbours for one microbatch, all chunks together.

    Messages to the next stage (activations) and to the one before (their gradients) are added up. An interleaved stage
    has several *chunks* (runs of consecutive layers), and each of them sends. :func:`sent_s` has the seconds of one
    message.

    Parameters
    ----------
    instance : Instance
        Graph, machine and resolved assumptions (no ``auto`` left), under one plan.
    sharded : ShardedGraph
        Kernels of the graph under their sharding schemes, on one chip.
    stage_k : int array, shape (kernels,)
        Pipeline stage of each kernel. Not read for a *folded* graph, whose drawn layers stand for all layers of the
        model: all its stages send the tensors that layers hand on.
    least : bool
        Whether the shares in `sharded` are the least of several schemes. The result is then a lower bound under all of
        these. False: shares and result are exact.

    Returns
    -------
    float array, s, shape (distinct pipeline stages,)
        In the order of :attr:`dfopt.setting.instance.Instance.pipeline`. 0 if the pipeline has one stage, and for a
        folded graph that is charged once per step (``point_to_point: per_step``).
    """

    def hop(held: float, share: float) -> float:
        return sent_s(instance, held / share, share, least=least)

    return over_hops(instance, sharded, stage_k, hop)


def sent_s(instance: Instance, tensor_bytes: float, share: float, *, least: bool = False) -> float:
    """Seconds in which a chip sends its share of one tensor to a neighbouring pipeline stage, once.

    With ``point_to_point_parts: None``, or if chips hold different parts, this is ``message(B * share)``. Here ``B`` is
    the bytes of the whole tensor, and ``message`` and the names of collectives stand for seconds of a communication of
    so many bytes. Where ``n`` tensor-parallel chips all hold the tensor whole, each may send a part, and the next stage
    gathers the parts (Narayanan et al., SC'21, section 4.1, scatter/gather optimization). Under ``scattered`` that
    takes ``message(B / n) + all_gather(B)``, and the faster of both ways counts. Under ``calculon`` parts are always
    sent, in ``max(0, message(B / n) + 2 (reduce_scatter + all_gather - all_reduce)(B))``, plus ``all_gather(B) / 2``
    inside the maximum if kernels are recomputed.

    Parameters
    ----------
    instance : Instance
        Graph, machine and resolved assumptions (no ``auto`` left), under one plan.
    tensor_bytes : float
        Bytes of the whole tensor.
    share : float
        Part of it that each chip holds, at most 1. 1: every chip holds all of it.
    least : bool
        Whether `share` is the least of several schemes, some of which may hold the tensor whole. The result is then the
        faster of both ways, a lower bound under every scheme. False: the scheme has this share.

    Returns
    -------
    float
        Seconds of one message in one direction, with the all-gather on the next stage where parts are sent.
    """
    plan, assumptions = instance.plan, instance.assumptions
    as_it_lies = instance.communication_s(Collective.POINT_TO_POINT, tensor_bytes * share, plan.stage_dims)
    if assumptions.point_to_point_parts is None or plan.shards == 1 or (share < 1 and not least):
        return as_it_lies
    part = instance.communication_s(Collective.POINT_TO_POINT, tensor_bytes / plan.shards, plan.stage_dims)
    if assumptions.point_to_point_parts == "calculon":
        split = (Collective.REDUCE_SCATTER, Collective.ALL_GATHER, Collective.ALL_REDUCE)
        scatter, gather, reduce = (instance.communication_s(kind, tensor_bytes, plan.shard_dims) for kind in split)
        again = any(kernel.pass_ == "recompute" for kernel in instance.graph.kernels)
        # twice for a tensor of either pass; of what is computed again one all-gather for both of them
        edge = max(part + 2 * (scatter + gather - reduce) + gather / 2 * again, 0.0)  # no message takes back time
        return min(as_it_lies, edge) if least else edge
    return min(as_it_lies, part + instance.communication_s(Collective.ALL_GATHER, tensor_bytes, plan.shard_dims))


def over_hops(instance: Instance, sharded: ShardedGraph, stage_k: Ints, hop: Callable[[float, float], float]) -> Floats:
    """Cost of all that each distinct pipeline stage sends to its neighbours for one microbatch: a sum over tensors.

    In a *folded* graph the drawn layers stand for all layers of the model. It sends the tensors that layers hand on,
    once for each chunk (run of consecutive layers of a stage; several if it is interleaved), as if each chunk had two
    neighbours. Of several kinds of layer the one with the highest cost counts. Under ``point_to_point: per_neighbour``
    tensors of forward kernels, which go to the next stage, and all others (gradients), which go to the one before,
    count apart, each for the chunks that have that neighbour, and it may be another kind each way. Another graph sends
    every tensor between kernels of different stages over each stage boundary in between, once for all readers behind it
    (under ``fanout: shared``).

    Parameters
    ----------
    instance : Instance
        Graph, machine and resolved assumptions (no ``auto`` left), under one plan.
    sharded : ShardedGraph
        Kernels of the graph under their sharding schemes, on one chip.
    stage_k : int array, shape (kernels,)
        Pipeline stage of each kernel. Not read for a folded graph.
    hop : callable
        ``hop(held, share)`` returns the cost of sending one tensor once, in any unit. ``held``: bytes of the tensor
        that one chip holds. ``share``: ``held`` as a part of the bytes of the whole tensor, at most 1.

    Returns
    -------
    float array, shape (distinct pipeline stages,)
        In the unit of `hop`, in the order of :attr:`dfopt.setting.instance.Instance.pipeline`. 0 if the pipeline has
        one stage, and for a folded graph that is charged once per step (``point_to_point: per_step``).
    """
    graph, plan, assumptions = instance.graph, instance.plan, instance.assumptions
    if plan.stages == 1:
        return np.zeros(1)
    if graph.folded:
        alike = len(instance.pipeline)
        if sent_once(instance):
            return np.zeros(alike)
        index, sent = graph.index(), [(0.0, 0.0)]  # by kind of layer, to the next stage and to the one before
        for tensors in graph.handed_on:
            on_back = [0.0, 0.0]
            for tensor in tensors:
                k = index[tensor.src]
                share = float(sharded.output_k[k])
                on_back[not sharded.forward_k[k]] += hop(graph.bytes_of(tensor) * share, share)
            sent.append((on_back[0], on_back[1]))
        if both_ways_at_once(instance):  # the last layer of a stage may be of any kind
            return np.full(alike, plan.interleave * max(map(sum, sent)))
        on, back = map(max, zip(*sent, strict=True))
        often = (messages(plan, assumptions, stage.number, all_alike=alike == 1) for stage in instance.pipeline)
        return np.array([ahead * on + behind * back for ahead, behind in often])
    spent = np.zeros(plan.stages)
    paid: set[tuple[int, int, bool]] = set()
    forward = sharded.forward_k
    for t in range(len(sharded.src_t)):
        a, b = int(sharded.src_t[t]), int(sharded.dst_t[t])
        back = bool(not forward[a] and not forward[b])
        for boundary in range(min(stage_k[a], stage_k[b]), max(stage_k[a], stage_k[b])):
            key = (int(sharded.group_t[t]), int(boundary), back)
            if key not in paid:
                paid.add(key)
                share = float(sharded.output_k[a])
                spent[boundary + 1 if back else boundary] += hop(float(sharded.b_t[t]), share)
    return spent


def per_step_hops(instance: Instance) -> float:
    """Seconds per step of messages between pipeline stages, where they are charged once (``point_to_point: per_step``).

    As in DFModel, they are the seconds of one message of ``layers * bytes``: the number of layers of the model, times
    the bytes of the whole tensors that one layer hands on for one microbatch.

    Parameters
    ----------
    instance : Instance
        Graph, machine and resolved assumptions (no ``auto`` left), under one plan.

    Returns
    -------
    float
        Seconds. 0 under other assumptions, if the pipeline has one stage, and for a graph that does not train or is not
        *folded*: a folded one has drawn layers that stand for all layers of the model.
    """
    graph, plan = instance.graph, instance.plan
    if not sent_once(instance) or plan.stages == 1 or not graph.folded or not graph.trains:
        return 0.0
    volume = graph.repeat * sum(graph.bytes_of(t) for t in graph.handed_on[0])
    return instance.communication_s(Collective.POINT_TO_POINT, volume, plan.stage_dims)


def added_by_kind(instance: Instance, gradient_k: Floats, weight_k: Floats, kind_k: Ints, share: float = 1.0) -> Floats:
    """Seconds per step in which one layer of every kind exchanges gradients and weights and runs the optimizer.

    None of them are hidden behind compute: call it where no pass may hide any, see
    :func:`dfopt.terms.step.overlap.hides_any`.

    Parameters
    ----------
    instance : Instance
        Graph, machine and resolved assumptions (no ``auto`` left), under one plan.
    gradient_k, weight_k : float arrays, B, shape (kernels,)
        Weight gradient of each kernel, as copies add it up, and its weights; both on one chip.
    kind_k : int array, shape (kernels,)
        Number of the kind of layer of each kernel, or of its pipeline stage, from 0.
    share : float
        Share of the kernels that count: that of an average stage, where kernels are drawn once.

    Returns
    -------
    float array, s, shape (kinds,)
    """
    return exchanged_by_kind(instance, gradient_k, weight_k, kind_k, share)[1]
