"""Schemes for a graph that draws equal layers: those that are best where one of them stands for all."""

from __future__ import annotations

from dataclasses import replace

from dfopt.documents.mapping import Sharding
from dfopt.documents.plan import Plan
from dfopt.search.options import Options
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.setting.unrolled import unrolled

_PART = 0.25  # of the time that is left


def schemes_of_one(setting: Setting, plan: Plan, options: Options) -> dict[str, Sharding] | None:
    """Schemes of all kernels, alike in every layer, if a graph draws equal layers one after another.

    They are a start, not a proof: layers need not be alike to be fastest, and partitions may hold kernels of several.

    Parameters
    ----------
    setting, plan, options : Setting, Plan, Options
        The problem, the plan of the graph, and what is left of the time.

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C.
    """
    from dfopt.search.jointly import JointSearch  # the search that asks: one of its own, of another graph

    asked = options.request
    if (
        asked.pin_sharding
        or asked.pin_partition
        or asked.offload
        or asked.place
        or (found := unrolled(setting.graph)) is None
    ):
        return None
    one = replace(setting, graph=found.layer)
    legal, _ = asked_plans(found.layer, setting.system, asked, setting.assumptions)
    same = [other for other in legal if (other.axes, other.microbatches) == (plan.axes, plan.microbatches)]
    search = JointSearch(one, replace(options, clock=options.clock.share(_PART), progress=None))
    search.run([other for other in same if other.interleave == plan.interleave and other.modules == plan.modules][:1])
    if search.stopped:
        raise KeyboardInterrupt
    if search.best is None:
        return None
    scheme = {kernel.name: kernel.sharding for kernel in search.best.mapping.kernels}
    return {name: scheme[like] for name, like in found.kernel.items()}
