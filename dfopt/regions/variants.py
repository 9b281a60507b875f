"""Plans that differ in what lies where, or in how products hide collectives, and in nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from dfopt.documents.placement import Placement
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.physics.window import by_window
from dfopt.setting.instance import Setting
from dfopt.setting.offloads import looked_at_later, offloads
from dfopt.terms.step.overlap import in_the_way

__all__ = ["other_ways", "placements_left", "with_variants"]

_BESIDE_RINGS: Final[tuple[Literal["pipe_twice", "none"], ...]] = ("pipe_twice", "none")


def placements_left(setting: Setting, request: Request) -> tuple[Placement | None, ...]:
    """Placements that each plan of :func:`dfopt.setting.plans.asked_plans` may have, its own first.

    Empty where the plans that are listed have all of them already, or there is no choice.
    """
    if request.offload is None or not looked_at_later(setting.graph, setting.assumptions):
        return ()
    found = tuple(offloads(setting.graph, setting.system, setting.assumptions, request))
    return found if len(found) > 1 else ()


def other_ways(setting: Setting, request: Request, plan: Plan) -> list[Plan]:
    """Plans that hide collectives in another way than in rings, and may be faster for it.

    Rings never cost more of any mapping, and a step is non-decreasing in the time of a layer, but for one thing: where
    exchanges hide as Calculon counts it, a longer backward pass may have fewer messages to other stages in their way
    (:mod:`dfopt.physics.window`).
    """
    some = request.tensor_overlap == "any" and by_window(setting.assumptions, setting.graph)
    alone = plan.shards == 1 or plan.copies == 1 or plan.interleave == 1
    if not some or plan.tensor_overlap is not None or alone or not in_the_way(plan):
        return []
    return [plan.model_copy(update={"tensor_overlap": way}) for way in _BESIDE_RINGS]


def with_variants(setting: Setting, request: Request, plan: Plan) -> Iterator[Plan]:
    """A plan with each placement that is left, and with every way to hide collectives that may be the best."""
    for placement in placements_left(setting, request) or (plan.placement,):
        placed = plan if plan.placement == placement else plan.model_copy(update={"placement": placement})
        yield placed
        yield from other_ways(setting, request, placed)
