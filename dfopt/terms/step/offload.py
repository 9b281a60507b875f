"""What slower memories move while a graph trains, and what of it shows, see :mod:`dfopt.physics.offload`.

*Kinds* are stages of the mapping, by number: of a folded graph its kinds of layer. ``instance`` is a setting under one
plan. ``states`` has, by kind, what the kernels of a layer keep (:func:`dfopt.terms.step.ledger.states_of`). ``runs``
has what a pipeline stage runs for one microbatch: pairs of a kind and how many layers of it, as
:attr:`dfopt.setting.stages.PipelineStage.runs`. ``sent_s``: seconds of all messages of that stage for one microbatch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dfopt.physics.offload import Layer, passes_s
from dfopt.setting.instance import Instance, Setting
from dfopt.terms.sharded_graph import Bools
from dfopt.terms.step.hops import hides_hops
from dfopt.terms.step.ledger import State, of_layers, offloaded
from dfopt.terms.step.overlap import Passes

__all__ = [
    "Layers",
    "backward_shown_s",
    "frees_memory_k",
    "hop_beside_s",
    "layers_of",
    "moves",
    "stage_s",
]

Layers = Mapping[int, Layer]
"""Seconds of one layer for one microbatch, by kind: work, memory time and moving. Kinds left out move nothing."""


def moves(instance: Instance) -> bool:
    """Whether slower memories of a chip move any offloaded data while its layers compute.

    Weights, activations, gradients or optimizer state are *offloaded* if the plan puts them into a slower memory in
    training. Where the optimizer state alone is offloaded, the result is False, as the optimizer's step moves that
    state and not the layers. Under ``offload: calculon`` the layers move it too, and the result is True.

    Parameters
    ----------
    instance : Instance
        Graph, machine and resolved assumptions (no ``auto`` left), under one plan.
    """
    away = offloaded(instance)
    return bool(away) and (away.keys() != {"optimizer"} or instance.assumptions.offload == "calculon")


def layers_of(instance: Instance, states: Mapping[int, Sequence[State]], work: Passes, memory: Passes) -> Layers:
    """Seconds of one layer of every kind for one microbatch: work, memory time, and moving of offloaded data.

    Data is *offloaded* if the plan puts it into a slower memory in training
    (:func:`dfopt.terms.step.ledger.offloaded`). The seconds of moving are bytes over the bandwidth that this memory
    sustains, the sum over slower memories (:func:`dfopt.physics.offload.passes_s`).

    Parameters
    ----------
    instance : Instance
        Graph, machine and resolved assumptions (no ``auto`` left), under one plan.
    states : mapping of int to sequence of State
        By kind of layer, the bytes that the kernels of one layer keep.
    work : Passes
        Seconds of the work of one layer, by kind: ``forward_s`` and ``backward_s`` are read.
    memory : Passes
        Seconds in which one layer uses the fastest memory, by kind: ``forward_s`` in the partitions of
        ``work.forward_s``, ``backward_s`` in those of ``work.backward_s``.

    Returns
    -------
    mapping of int to dfopt.physics.offload.Layer
        By kind, with the keys of `states`. Each Layer has the seconds of work, of the fastest memory and of moving, one
        of each for the forward and the backward pass. Work does not include waits for moving. Lower bounds if `work`,
        `memory` and `states` are. Empty where nothing is moved (:func:`moves`).

    Raises
    ------
    IndexError
        If data is moved, and `work` or `memory` has no entry for a kind of `states`.
    """
    if not moves(instance):
        return {}
    chip, found = instance.system.chip, {}
    for number, kept in of_layers(instance, states).items():
        moving = passes_s(kept, instance.plan, chip, instance.assumptions)
        passes = work.forward_s[number], work.backward_s[number]
        found[number] = Layer(*passes, memory.forward_s[number], memory.backward_s[number], *moving)
    return found


def frees_memory_k(setting: Setting) -> Bools:
    """Kernels beside which the fastest memory is free for what is moved: of Calculon's rules those that run again.

    Bool array, shape (kernels of the graph,). False for all under other rules.
    """
    if setting.assumptions.offload != "calculon":
        return np.zeros(len(setting.graph.kernels), dtype=bool)
    return np.array([kernel.pass_ == "recompute" for kernel in setting.graph.kernels], dtype=bool)


def hop_beside_s(instance: Instance, sent_s: float) -> float:
    """Seconds of the message that hides moving beside the last layer of a chunk, in each pass of one microbatch.

    *Moving* is that of offloaded data between memories of a chip. A chunk of layers sends a message to another pipeline
    stage when its last layer is done. Formula: ``sent_s / (2 * interleave)``, with ``interleave`` chunks in each stage
    (Calculon, Isaev et al., SC'23).

    Parameters
    ----------
    instance : Instance
        Graph, machine and resolved assumptions (no ``auto`` left), under one plan.
    sent_s : float, s
        All messages of a pipeline stage for one microbatch: all its chunks, on and back.

    Returns
    -------
    float, s
        One message of one chunk in one direction. In each pass up to so many seconds of moving are hidden beside the
        last layer of the chunk. The time of the message itself counts elsewhere. 0 unless Calculon's rules count
        (``offload: calculon``), there are several pipeline stages, and these wait for messages.
    """
    assumptions, plan = instance.assumptions, instance.plan
    if assumptions.offload != "calculon" or plan.stages == 1 or hides_hops(instance):
        return 0.0
    return sent_s / (2 * plan.interleave)


def stage_s(
    instance: Instance, runs: Sequence[tuple[int, float]], seconds: Sequence[float], layers: Layers, sent_s: float
) -> float:
    """Seconds of all layers of a pipeline stage for one microbatch: work, and waits for offloaded data to be moved.

    The seconds of messages to other stages are not included.

    Parameters
    ----------
    instance : Instance
        Graph, machine and resolved assumptions (no ``auto`` left), under one plan.
    runs : sequence of (int, float)
        What the stage runs for one microbatch: kinds of layer, and how many layers of each.
    seconds : sequence of float, s
        Work of one layer for one microbatch, by kind: both passes together.
    layers : mapping of int to Layer
        Figures of one layer from :func:`layers_of`, by kind. Layers of kinds that are left out do not wait. Empty: the
        result is the sum of the work.
    sent_s : float, s
        All messages of the stage for one microbatch. Some of them may hide moving (:func:`hop_beside_s`).

    Returns
    -------
    float, s
        The sum over all layers of `runs`. Each pass of a layer takes the larger of two times: its work; and its moving
        plus its own use of the fastest memory (:meth:`dfopt.physics.offload.Layer.with_moving`). The second is less by
        :func:`hop_beside_s` for the last layer of each chunk.
    """
    found, hop_s = 0.0, hop_beside_s(instance, sent_s)
    for number, times in runs:
        if number not in layers:
            found += times * seconds[number]
            continue
        last = min(instance.plan.interleave, times) if hop_s else 0
        found += (times - last) * layers[number].with_moving(seconds[number])
        found += last * layers[number].with_moving(seconds[number], hop_s) if last else 0.0
    return found


def backward_shown_s(instance: Instance, runs: Sequence[tuple[int, int]], layers: Layers, sent_s: float) -> float:
    """Seconds that a layer waits for offloaded data in its backward pass of one microbatch, on average.

    The average is over the layers of a pipeline stage. A layer that moves data waits ``max(0, moving + memory time -
    work - hop)`` (:func:`dfopt.physics.offload.shows_s`). ``hop`` is :func:`hop_beside_s` for the last layer of each
    chunk, and 0 for all other layers.

    Parameters
    ----------
    instance : Instance
        Graph, machine and resolved assumptions (no ``auto`` left), under one plan.
    runs : sequence of (int, int)
        What the stage runs: one pair only, of a kind of layer and how many layers. With 0 layers the result is 0.
    layers : mapping of int to Layer
        Figures of one layer from :func:`layers_of`, by kind. It must have the kind of `runs`.
    sent_s : float, s
        All messages of the stage for one microbatch. Some of them may hide moving (:func:`hop_beside_s`).

    Returns
    -------
    float, s
        For one layer: the waits of all layers of the stage over their number.

    Raises
    ------
    ValueError
        If `runs` has not exactly one pair.
    KeyError
        If `layers` lacks the kind of `runs`.
    """
    hop_s, [(number, times)] = hop_beside_s(instance, sent_s), runs
    last = min(instance.plan.interleave, times) if hop_s else 0
    shown = layers[number].backward_shown_s() * (times - last) + layers[number].backward_shown_s(hop_s) * last
    return shown / max(times, 1)
