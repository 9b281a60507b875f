"""What chips hold of kernels under each of their schemes, for limits on memories in a MILP.

Suffixes: k kernel, o option, t tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from dfopt.documents.graph import Kernel
from dfopt.joint.menu import Menu
from dfopt.milp import Model
from dfopt.setting.instance import Instance
from dfopt.setting.ledger import (
    AMOUNTS,
    at_once,
    buffers,
    by_layers,
    chips_of,
    limited,
    lying,
    offloaded,
    states_of,
    weight_factors,
)
from dfopt.setting.stages import PipelineStage
from dfopt.setting.tables import Floats, Ints

_SLACK: Final = 1e-9  # of a capacity
AT_WORK: Final = ("activations", "gradients", "weights", "brought")
"""What the layer at work holds more of: states by their names, and what was brought of what lies elsewhere."""


class Holding(NamedTuple):
    """Bytes of a memory that every option takes of a chip in some pipeline stage, and all that there are."""

    bytes_o: Floats
    capacity: float


def limit(model: Model, columns: Ints, holdings: Sequence[Holding]) -> None:
    """Rows that keep what options, of which these are the columns, take of memories within them."""
    for number, (bytes_o, capacity) in enumerate(holdings):
        unit = max(float(bytes_o.max()), 1e-30)
        model.rows(f"holds_{number}", [(columns[None, :], bytes_o[None, :] / unit)], upper=capacity / unit)


def held_by_option(instance: Instance, menu: Menu, tier: str, stage: PipelineStage, number: int) -> Floats:
    """Bytes that each option of a kernel has a chip of a pipeline stage hold in a memory, shape (5, options).

    Those of all layers alike, and what the layer at work has more, activations, gradients and weights: of these a chip
    holds the most of any layer. ``number``: of the stage of the mapping, runs of which the pipeline stage holds. The
    last are of what lies elsewhere, at least, while that is the layer at work.
    """
    setting, graph, tables = instance.setting, instance.graph, menu.tables
    fastest = tier == instance.system.chip.fastest_tier
    away, alone = offloaded(instance), [run for run in stage.runs if run[0] == number]
    of_one = replace(stage, runs=tuple(alone))

    def kept(kernels: Sequence[Kernel] = (), sizes: Sequence[float] = ()) -> list[float]:
        alike, more = by_layers(states_of(setting, kernels, sizes))
        found = [sum(lying(instance, stage, {number: alike}).get(tier, {}).values())]
        for name in AT_WORK[:3]:
            here = [each for each in more if each[1].name == name and fastest and each[1].item not in away]
            counted = [(sign * at_once(instance, stage, one), one) for sign, one in here]
            found.append(sum(count * one.bytes / chips_of(instance, one) for count, one in counted))
        return [*found, sum(buffers(instance, of_one, {number: alike}).values()) if away and fastest else 0.0]

    drawn_k = np.array([kept([kernel]) for kernel in graph.kernels])
    units = np.array([kept((), unit) for unit in np.eye(len(AMOUNTS)).tolist()])
    weights = weight_factors(setting, graph.kernels)[:, tables.kernel_o] * menu.by_option("weight_k")
    amounts = *weights, menu.saved_o, menu.by_option("cached_k"), menu.by_option("working_k")
    found: Floats = (np.stack(amounts, axis=1) @ units + drawn_k[tables.kernel_o]).T
    return found


def holding(instance: Instance, menu: Menu) -> list[Holding]:
    """Limits for each memory that has one and each pipeline stage, where kernels have their stage of the mapping.

    One for every kind of layer that may be the one at work.
    """
    place_o = np.array([instance.graph.kind_of(kernel) for kernel in instance.graph.kernels])[menu.tables.kernel_o]
    found = []
    for tier, capacity in limited(instance).items():
        for stage in instance.pipeline if np.isfinite(capacity) else ():
            numbers = [number for number, _ in stage.runs]
            held_o = {number: held_by_option(instance, menu, tier, stage, number) for number in numbers}
            alike_o = np.sum([held_o[number][0] * (place_o == number) for number in numbers], axis=0)
            for number in numbers:
                bytes_o = alike_o + held_o[number][1:].sum(axis=0) * (place_o == number)
                found.append(Holding(bytes_o, capacity * (1 + _SLACK)))
    return found
