"""What one more of each resource would bring, on the plan that won."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from typing import Final

from dfopt.bnb import UNITS_PER_S
from dfopt.documents.plan_records import Sensitivity
from dfopt.documents.system import System
from dfopt.errors import Infeasible, NoSolution
from dfopt.judge import evaluate
from dfopt.setting.instance import Instance, Setting
from dfopt.solving.candidate import prepare, with_starts
from dfopt.solving.options import Options
from dfopt.solving.solved import Solved, finish, judged

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
        values, proven = _fused(Setting(graph, changed, assumptions).under(best.plan), budget)
        # the winning mapping runs on the better machine too: a search cut short is never below it
        same = evaluate(best.mapping, graph, changed, assumptions, physical=False)
        metric = options.request.objective.metric
        proven &= bool(values)
        values += [judged(same, metric)] * same.feasible
        if value := min(values, default=0.0):
            found.append(Sensitivity(resource=resource, value=value, speedup=best.value / value, proven=proven))
    return tuple(found)


def _fused(instance: Instance, options: Options) -> tuple[list[float], bool]:
    """Values of the best fusions of a plan in each number of tiles, and whether nothing is left open.

    Raises
    ------
    KeyboardInterrupt
        If a solve was interrupted.
    """
    values, proven = list[float](), True
    try:
        for ready in prepare(instance, options):
            if values and options.clock.over:
                return values, False
            with suppress(Infeasible):
                outcome = finish(with_starts(ready, options.clock), options, min(values, default=math.inf))
                proven &= ready.sharding_proven
                if isinstance(outcome, Solved):
                    values.append(outcome.value)
                    proven &= not outcome.limited
                if ready.interrupted or (isinstance(outcome, Solved) and outcome.interrupted):
                    raise KeyboardInterrupt
    except Infeasible:
        pass
    except NoSolution:
        proven = False
    return values, proven


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
