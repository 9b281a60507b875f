"""What chips hold of kernels under each of their schemes, for limits on memories in a MILP.

Suffixes: k kernel, o option, t tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dfopt.documents.graph import Kernel
from dfopt.documents.placement import item_of_weight
from dfopt.joint.menu import Menu
from dfopt.physics.states import capacities
from dfopt.setting.instance import Instance
from dfopt.setting.ledger import held, states_of
from dfopt.setting.stages import PipelineStage
from dfopt.setting.tables import Floats


class Holding(NamedTuple):
    """Bytes of a memory that every option takes of a chip in some pipeline stage, and all that there are."""

    bytes_o: Floats
    capacity: float


def held_by_option(instance: Instance, menu: Menu, tier: str, stage: PipelineStage, number: int) -> Floats:
    """Bytes that each option of a kernel has a chip of a pipeline stage hold in a memory.

    ``number``: of the stage of the mapping, runs of which the pipeline stage holds.
    """
    setting, graph, tables = instance.setting, instance.graph, menu.tables
    forward_k = menu.sharded[0].forward_k
    weight_o = menu.by_option("weight_k") * (forward_k[tables.kernel_o] | (not setting.only_forward))
    word_k = np.array([graph.words.of_weight(kernel) for kernel in graph.kernels])
    routed_o = np.array([item_of_weight(kernel) == "experts" for kernel in graph.kernels])[tables.kernel_o]

    def kept(kernels: Sequence[Kernel] = (), *amounts: float) -> float:
        states = {number: states_of(setting, kernels, *(amounts or (0.0,)))}
        return sum(held(instance, stage, states).get(tier, {}).values())

    drawn_k = np.array([kept([kernel]) for kernel in graph.kernels])
    units = [kept((), *unit) for unit in np.eye(5).tolist()]
    parameters_o, cached_o = weight_o / word_k[tables.kernel_o], menu.by_option("cached_k")
    amounts_o = weight_o * ~routed_o, parameters_o, menu.saved_o, cached_o, weight_o * routed_o
    found: Floats = np.stack(amounts_o, axis=1) @ units + drawn_k[tables.kernel_o]
    return found


def holding(instance: Instance, menu: Menu) -> list[Holding]:
    """A limit for each memory that has one and each pipeline stage, where kernels have their stage of the mapping."""
    place_o = np.array([instance.graph.kind_of(kernel) for kernel in instance.graph.kernels])[menu.tables.kernel_o]
    found = []
    for tier, capacity in capacities(instance.system.chip).items():
        for stage in instance.pipeline if np.isfinite(capacity) else ():
            bytes_o = np.zeros(len(place_o))
            for number, _ in stage.runs:
                mine = place_o == number
                bytes_o[mine] = held_by_option(instance, menu, tier, stage, number)[mine]
            found.append(Holding(bytes_o, capacity))
    return found
