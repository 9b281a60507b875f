"""What the fusion of a stage has to keep: partitions at most, pins, DRAM that is left."""

from __future__ import annotations

from contextlib import suppress

from dfopt.bnb import UNLIMITED, Clock, OutOfTime
from dfopt.fusion.blocks import StageTables
from dfopt.fusion.partitioning import IntraChipLimits
from dfopt.fusion.segments import best_segmentation, topological_orders
from dfopt.search.options import Options
from dfopt.setting.instance import Instance
from dfopt.terms.layer import counts_training

__all__ = ["default_p_max", "limits_of"]


def limits_of(instance: Instance, stage: StageTables, dram_left: float, options: Options) -> IntraChipLimits:
    """The limits of a stage with so many bytes of DRAM for what waits between its partitions."""
    graph, assumptions, asked = instance.graph, instance.assumptions, options.request
    p_max = asked.p_max
    if not stage.chip.fused:
        p_max = stage.kernels
    elif p_max is None and asked.formulation != "assignment":
        p_max = stage.kernels  # blocks may be as many as they like
    elif p_max is None:
        p_max = default_p_max(stage, assumptions.forward_backward, options.clock)
        p_max = max(p_max, 1 + max(asked.pin_partition.values(), default=0))
    place = {name: k for k, name in enumerate(stage.sharded.names)}
    pins = tuple((place[name], p) for name, p in asked.pin_partition.items() if name in place)
    return IntraChipLimits(
        p_max=p_max,
        exactly=assumptions.empty_partitions == "forbid",
        forward_backward=assumptions.forward_backward if graph.trains else "shared",
        pins=pins if stage.chip.fused else (),
        dram_left=dram_left,
        saved_in_dram=counts_training(graph, assumptions),
    )


def default_p_max(stage: StageTables, forward_backward: str, clock: Clock = UNLIMITED) -> int:
    """Two partitions more than the best cut of a topological order uses; of those that the clock allows."""
    n, used = stage.kernels, []
    with suppress(OutOfTime):
        for order in topological_orders(stage):
            found = best_segmentation(stage, order, n, False, forward_backward, clock)
            used += [] if found is None else [int(found[1].max()) + 1]
    return min(n, (min(used) if used else n // 2) + 2)
