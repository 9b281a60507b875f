"""What one more of each resource would bring, on the plan that won."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dfopt.bnb import UNITS_PER_S
from dfopt.documents.plan_records import Sensitivity
from dfopt.documents.system import System
from dfopt.judge import evaluate
from dfopt.search.branching import Search
from dfopt.search.options import Options
from dfopt.search.solved import Solved, judged
from dfopt.setting.instance import Setting

RESOURCES: Final = "compute", "dram_bandwidth", "link_bandwidth", "sram", "sram_bandwidth"
MOST_S: Final = 2.0  # for one of them


def sensitivities(setting: Setting, best: Solved, options: Options) -> tuple[Sensitivity, ...]:
    """The winning plan and sharding with 10 % more of one resource; partitions chosen anew."""
    graph, system, assumptions = setting.graph, setting.system, setting.assumptions
    found = []
    resources = RESOURCES if system.chip.sram.bandwidth is not None else RESOURCES[:-1]
    for number, resource in enumerate(resources):
        changed = more_of(system, resource, 1.1)
        budget = replace(
            options.asking(
                p_max=None if assumptions.execution == "kernel_by_kernel" else best.p_max,
                pin_sharding={k.name: k.sharding for k in best.mapping.kernels} if best.plan.shards > 1 else {},
                top=1,
            ),
            clock=options.clock.share(1 / (len(resources) - number), MOST_S * UNITS_PER_S),
            progress=None,
        )
        search = Search(Setting(graph, changed, assumptions), budget)
        search.run([best.plan])
        # the winning mapping runs on the better machine too: a search cut short is never below it
        same = evaluate(best.mapping, graph, changed, assumptions, physical=False)
        metric = options.request.objective.metric
        values = [each.value for each in search.found[:1]] + [judged(same, metric)] * same.feasible
        left = not search.found or any(record.status in ("limit", "not_reached") for record in search.records)
        if value := min(values, default=0.0):
            found.append(Sensitivity(resource=resource, value=value, speedup=best.value / value, proven=not left))
    return tuple(found)


def more_of(system: System, resource: str, factor: float) -> System:
    """A system with one resource scaled: ``compute``, ``dram_bandwidth``, ``link_bandwidth`` or ``sram``.

    Where the bandwidth of SRAM is limited also ``sram_bandwidth``.
    """
    chip, sram = system.chip, system.chip.sram
    if resource == "compute":
        chip = chip.faster(factor)
    elif resource == "dram_bandwidth":
        chip = chip.with_memories(lambda one: one.model_copy(update={"bandwidth": one.bandwidth * factor}))
    elif resource == "sram":
        chip = chip.model_copy(update={"sram": sram.model_copy(update={"capacity": sram.capacity * factor})})
    elif resource == "sram_bandwidth" and sram.bandwidth is not None:
        chip = chip.model_copy(update={"sram": sram.model_copy(update={"bandwidth": sram.bandwidth * factor})})
    elif resource == "link_bandwidth":
        network = tuple(d.model_copy(update={"link_bandwidth": d.link_bandwidth * factor}) for d in system.network)
        return system.model_copy(update={"network": network})
    else:
        raise ValueError(f"unknown resource {resource!r}")
    return system.model_copy(update={"chip": chip})
