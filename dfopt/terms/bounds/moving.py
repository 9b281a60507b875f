"""What slower memories move while layers compute, for many plans: :mod:`dfopt.terms.step.offload` as arrays.

Suffixes: g group of plans that differ in layers of stages only, k kind of layer, h what a layer holds, v vector of
options.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.documents.placement import Placement
from dfopt.physics.offload import moved_passes
from dfopt.terms.bounds.holding import Holding
from dfopt.terms.bounds.plan_arrays import drawn_stages
from dfopt.terms.step.offload import moves


@dataclass(frozen=True, eq=False)
class Moving:
    """Seconds of offload transfers of slower memories during each pass, for many plans.

    Attributes
    ----------
    holding : Holding
        The plans, and what their stages hold.
    """

    holding: Holding

    @cached_property
    def any(self) -> bool:
        """Whether offload transfers delay layers under some plan."""
        return bool(self._placed)

    def seconds(self, held_hkgv: Floats) -> tuple[Floats, Floats]:
        """Seconds of offload transfers in the forward and the backward pass: two float arrays (groups, kinds, vectors).

        ``held_hkgv``: what one layer of every kind holds for one microbatch, in the order of
        :data:`dfopt.terms.rules.HELD`, with one group for all or each of them. With least figures these are lower
        bounds. 0 where kernels are drawn once and spread over several stages: it is open which kernels a stage runs.
        """
        table = self.holding.table
        shape = len(table.instances), held_hkgv.shape[1], held_hkgv.shape[3]
        ahead_gkv, back_gkv = np.zeros(shape), np.zeros(shape)
        kept = self.holding.of_layer_elsewhere(held_hkgv)
        chip, assumptions = table.setting.system.chip, table.assumptions
        for placement, groups in self._placed.items():
            plan = table.instances[groups[0]].plan
            assert plan.placement == placement
            of_groups = {item: bytes_gkv[groups] for item, bytes_gkv in kept.items()}
            ahead_gkv[groups], back_gkv[groups] = moved_passes(of_groups, plan, chip, assumptions)
        return ahead_gkv, back_gkv

    @cached_property
    def _placed(self) -> dict[Placement | None, Ints]:
        """Groups under which something is moved, by their placement."""
        groups_of: dict[Placement | None, list[int]] = {}
        for g, instance in enumerate(self.holding.table.instances):
            if moves(instance) and drawn_stages(instance) == 1:
                groups_of.setdefault(instance.plan.placement, []).append(g)
        return {placement: np.array(groups, dtype=np.int64) for placement, groups in groups_of.items()}
