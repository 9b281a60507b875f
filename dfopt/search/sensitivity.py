"""What one more of each resource would bring, on the plan that won."""

from __future__ import annotations

import time
from dataclasses import replace

from dfopt.documents.graph import Graph
from dfopt.documents.result import Sensitivity
from dfopt.documents.system import System
from dfopt.judge import evaluate
from dfopt.search.branching import Search
from dfopt.search.options import Options
from dfopt.search.solved import Solved
from dfopt.setting.instance import Setting


def sensitivities(graph: Graph, system: System, best: Solved, options: Options) -> tuple[Sensitivity, ...]:
    """The winning plan with 10 % more of one resource; sharding chosen anew too."""
    found = []
    for resource in ("compute", "dram_bandwidth", "link_bandwidth", "sram"):
        changed = more_of(system, resource, 1.1)
        fusing = options.assumptions.execution == "dataflow"
        budget = replace(
            options,
            p_max=best.p_max if fusing else None,
            deadline=time.perf_counter() + min(2.0, max(options.left() / 5, 0.2)),
            pin_sharding={k.name: k.sharding for k in best.mapping.kernels} if best.plan.shards > 1 else {},
            progress=None,
        )
        search = Search(Setting(graph, changed, options.assumptions), budget)
        search.run([best.plan])
        if search.best is None:
            continue
        # the winning mapping runs on the better machine too: a search cut short is never below it
        same = evaluate(best.mapping, graph, changed, options.assumptions, physical=False)
        time_s = min(search.best.score.step_time_s, same.step_time_s if same.feasible else float("inf"))
        proven = not any(record.status in ("limit", "not_reached") for record in search.records)
        found.append(
            Sensitivity(
                resource=resource,
                step_time_s=time_s,
                speedup=best.score.step_time_s / time_s,
                proven=proven,
            )
        )
    return tuple(found)


def more_of(system: System, resource: str, factor: float) -> System:
    """A system with one resource scaled: ``compute``, ``dram_bandwidth``, ``link_bandwidth`` or ``sram``."""
    chip = system.chip
    if resource == "compute":
        chip = chip.model_copy(
            update={"peak": chip.peak_flops * factor, "frequency": (chip.frequency or 0) * factor or None}
        )
    elif resource == "dram_bandwidth":
        chip = chip.model_copy(
            update={"dram": chip.dram.model_copy(update={"bandwidth": chip.dram.bandwidth * factor})}
        )
    elif resource == "sram":
        chip = chip.model_copy(update={"sram": chip.sram.model_copy(update={"capacity": chip.sram.capacity * factor})})
    elif resource == "link_bandwidth":
        network = tuple(d.model_copy(update={"link_bandwidth": d.link_bandwidth * factor}) for d in system.network)
        return system.model_copy(update={"network": network})
    else:
        raise ValueError(f"unknown resource {resource!r}")
    return system.model_copy(update={"chip": chip})
