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
from dfopt.setting.instance import Instance
from dfopt.terms.sharded_graph import Floats
from dfopt.terms.step.hops import hides_hops
from dfopt.terms.step.ledger import State, of_layers, offloaded
from dfopt.terms.step.overlap import Passes

__all__ = ["Layers", "backward_shown_s", "hop_beside_s", "layers_of", "least_layers", "moves", "stage_s"]

Layers = Mapping[int, Layer]
"""What a layer does and moves in both passes, by kind. Beside layers of kinds that are left out nothing is moved."""


def moves(instance: Instance) -> bool:
    """Whether slower memories move anything beside the work of layers.

    An offloaded optimizer state alone is moved there only under ``offload: calculon``; else the optimizer's step moves
    it.
    """
    away = offloaded(instance)
    return bool(away) and (away.keys() != {"optimizer"} or instance.assumptions.offload == "calculon")


def layers_of(instance: Instance, states: Mapping[int, Sequence[State]], work: Passes, memory: Passes) -> Layers:
    """Figures of one layer of every kind for one microbatch: its work, its memory time, and what is moved beside it.

    Parameters
    ----------
    states : mapping
        By kind, the states of its kernels. The result has the same keys.
    work : Passes
        Seconds of both passes of a layer, by kind.
    memory : Passes
        Seconds in which the passes use the fastest memory: its ``forward_s`` and ``backward_s``.

    Returns
    -------
    mapping of int to Layer
        Lower bounds if `work` and `memory` are. Empty where nothing is moved (:func:`moves`).
    """
    if not moves(instance):
        return {}
    chip, found = instance.system.chip, {}
    for number, kept in of_layers(instance, states).items():
        moving = passes_s(kept, instance.plan, chip, instance.assumptions)
        passes = work.forward_s[number], work.backward_s[number]
        found[number] = Layer(*passes, memory.forward_s[number], memory.backward_s[number], *moving)
    return found


def hop_beside_s(instance: Instance, sent_s: float) -> float:
    """Seconds of the message that the last layer of a chunk sends in one pass, behind which memories may move data.

    Parameters
    ----------
    sent_s : float, s
        All messages of the pipeline stage for one microbatch: of both passes and all its chunks.

    Returns
    -------
    float, s
        ``sent_s`` / (2 x chunks). 0 unless Calculon's rules count (``offload: calculon``), there are several pipeline
        stages, and these wait for messages.
    """
    assumptions, plan = instance.assumptions, instance.plan
    if assumptions.offload != "calculon" or plan.stages == 1 or hides_hops(instance):
        return 0.0
    return sent_s / (2 * plan.interleave)


def stage_s(
    instance: Instance, runs: Sequence[tuple[int, float]], seconds: Sequence[float], layers: Layers, sent_s: float
) -> float:
    """Seconds of the layers of a pipeline stage for one microbatch: work and waits for what is moved, no messages.

    Parameters
    ----------
    runs : sequence of (int, float)
        Kinds, and how many layers of each.
    seconds : sequence of float, s
        Work of one layer, by kind.
    layers : mapping of int to Layer
        Of :func:`layers_of`. Empty: the sum of the work.
    sent_s : float, s
        All messages of the stage, some of which hide what is moved (:func:`hop_beside_s`).
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
    """Average seconds that a layer of a stage waits in its backward pass of one microbatch for what is moved.

    ``runs`` is one pair of a kind and its number of layers, and ``layers`` has that kind. ``sent_s``: seconds of all
    messages of the stage for one microbatch, some of which hide what is moved.
    """
    hop_s, [(number, times)] = hop_beside_s(instance, sent_s), runs
    last = min(instance.plan.interleave, times) if hop_s else 0
    shown = layers[number].backward_shown_s() * (times - last) + layers[number].backward_shown_s(hop_s) * last
    return shown / max(times, 1)


def least_layers(
    instance: Instance,
    parts: Sequence[tuple[Sequence[str], tuple[Floats, Floats, Floats, Floats]]],
    states: Mapping[int, Sequence[State]],
    work: Passes,
) -> Layers:
    """Lower bounds on the figures of :func:`layers_of`, from what kernels take at least however they are partitioned.

    Parameters
    ----------
    parts : sequence
        By kind: the pass of each of its kernels (``forward``, ``recompute``, ``backward`` or ``update``), and their
        least seconds of compute, memory, network and SRAM as four float arrays, shape (kernels of the kind,).
    work : Passes
        What :func:`dfopt.terms.step.overlap.roofline_passes` says of `parts`.
    """
    assumptions = instance.assumptions
    mixed, unseen = assumptions.forward_backward != "separate", assumptions.offload == "calculon"
    ahead, back = list[float](), list[float]()
    for names, (_, memory_k, *_) in parts:
        forward_k, again_k = (np.array([one == name for one in names], dtype=bool) for name in ("forward", "recompute"))
        ahead.append(float(memory_k[forward_k].sum()))
        back.append(0.0 if mixed else float(memory_k[~forward_k & ~(again_k & unseen)].sum()))
    return layers_of(instance, states, work, Passes(tuple(ahead), tuple(back)))
