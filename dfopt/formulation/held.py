"""What chips hold of kernels under each of their options, as coefficients of the amounts that a table has.

Suffixes: k kernel, o option (all of a kernel, in its order), r held amount.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from dfopt.arrays import Floats
from dfopt.documents.graph import Kernel
from dfopt.setting.instance import Instance
from dfopt.setting.stages import PipelineStage
from dfopt.terms.layer import Layer
from dfopt.terms.rules import HELD
from dfopt.terms.step.ledger import at_once, buffers, by_layers, chips_of, lying, offloaded, states_of
from dfopt.terms.table import Table

AT_WORK: Final = ("activations", "gradients", "weights", "brought")
"""What the layer at work holds more of: states by their names, and what was brought of what lies elsewhere."""


class HeldBytes:
    """Bytes that kernels store on chips of pipeline stages, as linear functions of table amounts.

    Parameters
    ----------
    instance : Instance
        The plan.
    layer : Layer
        The instance: work of the chips in one evaluation.
    table : Table
        Its charges.
    """

    def __init__(self, instance: Instance, layer: Layer, table: Table) -> None:
        self.instance, self.layer = instance, layer
        columns_r = [table.of_options(resource) for resource in HELD]
        self.amount_kro = [np.stack([of_k[k] for of_k in columns_r]) for k in range(len(layer.kernels))]

    def by_option(self, tier: str, stage: PipelineStage, number: int) -> list[list[Floats]]:
        """Bytes of a memory on a chip of a pipeline stage under each option of a kernel.

        Parameters
        ----------
        tier
            Name of the memory.
        stage
            The pipeline stage.
        number
            Stage of the mapping that the kernels are in, which the pipeline stage runs.

        Returns
        -------
        list of list of float array, B
            Bytes that every layer stores, and additional bytes of the running layer, by :data:`AT_WORK`, of which a
            chip stores the largest over all layers; each by kernel and option. The last are lower bounds for items in
            other memories while their layer runs.
        """
        unit_sr = np.array([self._kept(tier, stage, number, (), unit) for unit in np.eye(len(HELD)).tolist()]).T
        bytes_sko: list[list[Floats]] = [[] for _ in unit_sr]
        for k, kernel in enumerate(self.layer.kernels):
            drawn_s = self._kept(tier, stage, number, [kernel], ())
            for of_state, unit_r, drawn in zip(bytes_sko, unit_sr, drawn_s, strict=True):
                of_state.append(unit_r @ self.amount_kro[k] + drawn)
        return bytes_sko

    def _kept(
        self, tier: str, stage: PipelineStage, number: int, kernels: Sequence[Kernel], sizes: Sequence[float]
    ) -> list[float]:
        """Bytes of all layers alike, and of the layer at work, by state."""
        instance = self.instance
        fastest = tier == instance.system.chip.fastest_tier
        away, of_one = offloaded(instance), replace(stage, runs=tuple(run for run in stage.runs if run[0] == number))
        alike, more = by_layers(states_of(instance.setting, kernels, sizes))
        by_state = [sum(lying(instance, stage, {number: alike}).get(tier, {}).values())]
        for name in AT_WORK[:3]:
            here = [each for each in more if each[1].name == name and fastest and each[1].item not in away]
            by_state.append(
                sum(
                    sign * at_once(instance, stage, state) * state.bytes / chips_of(instance, state)
                    for sign, state in here
                )
            )
        return [*by_state, sum(buffers(instance, of_one, {number: alike}).values()) if away and fastest else 0.0]
