"""Plans that differ in what lies where, or in how products hide collectives, and in nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from dfopt.documents.placement import Placement
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.physics.window import by_window
from dfopt.setting.instance import Setting
from dfopt.setting.placements import looked_at_later, offloads
from dfopt.terms.step.overlap import in_the_way

_BESIDE_RINGS: Final[tuple[Literal["pipe_twice", "none"], ...]] = ("pipe_twice", "none")


@dataclass(frozen=True)
class Variants:
    """Variants of plans: memory placements, and ways to overlap collectives with products.

    Attributes
    ----------
    setting : Setting
        Graph, system and resolved assumptions.
    request : Request
        The request, with pins and limits.
    """

    setting: Setting
    request: Request

    @cached_property
    def placements(self) -> tuple[Placement | None, ...]:
        """Placements that each plan of :func:`dfopt.setting.plans.asked_plans` may have, its own first.

        Empty if the listed plans already include all placements, or if there is only one.
        """
        setting, request = self.setting, self.request
        if request.offload is None or not looked_at_later(setting.graph, setting.assumptions):
            return ()
        placements = tuple(offloads(setting.graph, setting.system, setting.assumptions, request))
        return placements if len(placements) > 1 else ()

    @cached_property
    def _some_ways(self) -> bool:
        return self.request.tensor_overlap == "any" and by_window(self.setting.assumptions, self.setting.graph)

    def other_ways(self, plan: Plan) -> list[Plan]:
        """Copies of a plan with the other ways to overlap collectives that may be faster than rings.

        Rings never cost more of any mapping, and a step is non-decreasing in the time of a layer, but for one thing:
        where exchanges hide as Calculon counts it, a longer backward pass may have fewer messages to other stages in
        their way (:mod:`dfopt.physics.window`).
        """
        alone = plan.shards == 1 or plan.copies == 1 or plan.interleave == 1
        if not self._some_ways or plan.tensor_overlap is not None or alone or not in_the_way(plan):
            return []
        return [plan.variant(tensor_overlap=way) for way in _BESIDE_RINGS]

    def of(self, plan: Plan) -> list[Plan]:
        """All variants of a plan: each placement with each way to overlap collectives."""
        left = self.placements or (plan.placement,)
        placed = (plan if plan.placement == each else plan.variant(placement=each) for each in left)
        return [way for variant in placed for way in (variant, *self.other_ways(variant))]
