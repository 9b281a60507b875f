"""What slower memories move while a graph trains, and what of it shows, see :mod:`dfopt.physics.offload`."""

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
"""What is moved beside the passes of a layer, by stage of the mapping; of those without nothing is."""


def moves(instance: Instance) -> bool:
    """Whether anything is moved beside the work of layers."""
    away = offloaded(instance)
    return bool(away) and (away.keys() != {"optimizer"} or instance.assumptions.offload == "calculon")


def layers_of(instance: Instance, states: Mapping[int, Sequence[State]], work: Passes, memory: Passes) -> Layers:
    """Both passes of a layer of every kind: seconds of work and of memory, exact or at least, and what is moved beside.

    ``states``: what the kernels of each stage of the mapping keep.
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
    """Seconds of the message to the next stage, of those that a stage sends, beside the last layer of a chunk."""
    assumptions, plan = instance.assumptions, instance.plan
    if assumptions.offload != "calculon" or plan.stages == 1 or hides_hops(instance):
        return 0.0
    return sent_s / (2 * plan.interleave)


def stage_s(
    instance: Instance, runs: Sequence[tuple[int, float]], seconds: Sequence[float], layers: Layers, sent_s: float
) -> float:
    """Seconds of the layers of a pipeline stage for one microbatch, with what is moved beside them.

    ``seconds``: of the work of each stage of the mapping; ``sent_s``: of all messages of the pipeline stage.
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
    """Seconds that the layers of a pipeline stage, all of one kind, wait in their backward pass, on average."""
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
    """The least of every figure, from what kernels take at least: see :func:`dfopt.terms.step.overlap.roofline_passes`.

    ``work``: what that says of them.
    """
    assumptions = instance.assumptions
    mixed, unseen = assumptions.forward_backward != "separate", assumptions.offload == "calculon"
    ahead, back = list[float](), list[float]()
    for names, (_, memory_k, *_) in parts:
        forward_k, again_k = (np.array([one == name for one in names], dtype=bool) for name in ("forward", "recompute"))
        ahead.append(float(memory_k[forward_k].sum()))
        back.append(0.0 if mixed else float(memory_k[~forward_k & ~(again_k & unseen)].sum()))
    return layers_of(instance, states, work, Passes(tuple(ahead), tuple(back)))
