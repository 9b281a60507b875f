"""What one more of each resource would bring, on the plan that won."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dfopt.bnb import UNITS_PER_S, Candidate
from dfopt.documents.plan_records import Sensitivity
from dfopt.documents.system import System
from dfopt.judge import evaluate
from dfopt.regions.judged import JudgedMapping
from dfopt.regions.lattices import KnownArcs
from dfopt.regions.problem import parameters_of, problem_in, searched
from dfopt.regions.space import MappingSpace
from dfopt.setting.instance import Setting
from dfopt.solving.options import Options
from dfopt.solving.solved import Solved

RESOURCES: Final = "compute", "dram_bandwidth", "link_bandwidth", "sram", "sram_bandwidth"
MOST_S: Final = 2.0  # for one of them
MORE: Final = 1.1  # times a resource: small beside what designs differ by, and large beside a proven gap


def sensitivities(
    setting: Setting, best: Solved, options: Options, known_arcs: KnownArcs | None = None
) -> tuple[Sensitivity, ...]:
    """Speedup from 10 % more of each resource, under the best plan and sharding, with partitions optimized anew.

    Parameters
    ----------
    setting, best : Setting, Solved
        The workload and the machine, and the best mapping.
    options : Options
        The request under way, with its clock.
    known_arcs : dict, optional
        Lattices that are known already.

    Raises
    ------
    KeyboardInterrupt
        If an interrupt came meanwhile.
    """
    graph, system, assumptions = setting.graph, setting.system, setting.assumptions
    sensitivity, known_arcs = [], {} if known_arcs is None else known_arcs
    resources = RESOURCES if system.chip.sram.bandwidth is not None else RESOURCES[:-1]
    pinned = {kernel.name: kernel.sharding for kernel in best.mapping.kernels} if best.plan.shards > 1 else {}
    asked = options.asking(pin_sharding=pinned, top=1)
    if asked.request.formulation == "assignment":  # a program takes its default from prices, which change
        asked = asked.asking(p_max=best.p_max)
    for number, resource in enumerate(resources):
        changed = more_of(system, resource, MORE)
        clock = options.clock.share(1 / (len(resources) - number), MOST_S * UNITS_PER_S)
        budget = replace(asked, clock=clock, progress=None)
        space = MappingSpace.of_plans(Setting(graph, changed, assumptions), budget.request, [best.plan], known_arcs)
        # the winning mapping runs on the better machine too: a search cut short is never below it
        same = evaluate(best.mapping, graph, changed, assumptions, physical=False)
        own = Candidate(same.step_time_s, JudgedMapping(None, None))
        kept = [own] if same.feasible else []
        outcome = searched(problem_in([space], budget), parameters_of(budget.request), clock, kept)
        if outcome.ending == "interrupted":
            raise KeyboardInterrupt
        if outcome.kept:
            proven = outcome.ending in ("optimal", "gap_reached")
            speedup = best.value / outcome.best
            sensitivity.append(Sensitivity(resource=resource, value=outcome.best, speedup=speedup, proven=proven))
    return tuple(sensitivity)


def more_of(system: System, resource: str, factor: float) -> System:
    """A system with one resource scaled.

    Parameters
    ----------
    system
        The system.
    resource : str
        ``compute``, ``dram_bandwidth``, ``link_bandwidth`` or ``sram``; ``sram_bandwidth`` where that is limited.
    factor : float
        How much more of it the new system has.
    """
    chip, sram = system.chip, system.chip.sram
    if resource == "compute":
        chip = chip.faster(factor)
    elif resource == "dram_bandwidth":
        chip = chip.with_memories(lambda memory: memory.model_copy(update={"bandwidth": memory.bandwidth * factor}))
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
