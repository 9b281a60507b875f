"""What shows of the exchanges of copies in each pipeline stage by itself: an oracle for arrays of many plans."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from exposed_by_hand import Reduced, Shown, least_lines, reduced_after_s

from dfopt.physics.copies import reductions
from dfopt.physics.pipeline import step_time
from dfopt.physics.tiled import usage_of
from dfopt.physics.window import Window, by_window
from dfopt.setting.instance import Instance
from dfopt.setting.stages import in_order
from dfopt.terms.step.overlap import in_the_way


class Layers(NamedTuple):
    """Seconds of a layer of each kind: exchanges, then passes, at least."""

    reduce_s: tuple[float, ...]
    weights_s: tuple[float, ...]
    gathers_s: tuple[float, ...]
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    memory_s: tuple[float, ...]
    compute_s: tuple[float, ...]


def shown_of_stages(instance: Instance, of: Layers, hops: Sequence[float]) -> list[Reduced | Shown]:
    """What shows of every stage; ``hops``: seconds that each waits for messages."""
    if by_window(instance.assumptions, instance.graph):
        return [_in_windows(instance, of, position, hop_s) for position, hop_s in enumerate(hops)]
    return [_behind_layers(instance, of, position, hop_s) for position, hop_s in enumerate(hops)]


def _behind_layers(instance: Instance, of: Layers, position: int, hop_s: float) -> Reduced:
    stage, model, plan = instance.pipeline[position], instance.setting.model, instance.plan
    order = [(kind, times) for kind, times in in_order(model, plan, stage.number) if times]
    ahead = ((of.gathers_s[kind], of.forward_s[kind], times) for kind, times in order)
    back = ((of.backward_s[kind], of.reduce_s[kind], times) for kind, times in reversed(order))
    return Reduced(
        last_s=of.reduce_s[order[0][0]] + of.gathers_s[order[0][0]] if order else 0.0,
        ends_s=reduced_after_s(ahead) + reduced_after_s(back) + hop_s,
        weights_s=sum(times * of.weights_s[kind] for kind, times in order),
        times=reductions(plan),
    )


def _in_windows(instance: Instance, of: Layers, position: int, hop_s: float) -> Shown:
    """By Calculon's count: all layers are of one kind."""
    plan, assumptions = instance.plan, instance.assumptions
    size = sum(times for _, times in instance.pipeline[position].runs)
    rounds, once_s = step_time(plan, assumptions, 1.0).total, size * of.weights_s[0]
    after_s = size * of.reduce_s[0] + once_s
    if plan.copies == 1:
        return Shown(((after_s, 0.0),), rounds)
    figures = of.reduce_s[0], of.backward_s[0], of.memory_s[0], of.compute_s[0], hop_s / 2 / plan.interleave
    layer = Window(*figures, in_the_way(plan), usage_of(instance.system, plan.copy_dims))
    lines = least_lines(layer, of.forward_s[0], plan.stages, plan.interleave, size)
    optional = assumptions.gradient_overlap == "calculon_or_none"
    return Shown.of_layers(lines, size, hop_s, once_s, rounds, after_s if optional else math.inf)
