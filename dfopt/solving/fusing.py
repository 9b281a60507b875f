"""What the fusion of a stage has to keep: partitions at most, pins, DRAM that is left."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from dfopt.bnb import UNLIMITED, Clock, OutOfTime
from dfopt.documents.request import Request
from dfopt.fusion.blocks import StageTables
from dfopt.fusion.partitioning import IntraChipLimits
from dfopt.fusion.segments import best_segmentation, topological_orders
from dfopt.setting.instance import Instance
from dfopt.terms.layer import counts_training


def limits_of(
    instance: Instance,
    stage: StageTables,
    number: int,
    asked: Request,
    dram_left: float = np.inf,
    clock: Clock = UNLIMITED,
) -> IntraChipLimits:
    """Limits on the partitions of a stage, from the request and the DRAM left for waiting tensors.

    Parameters
    ----------
    instance : Instance
        Setting and plan.
    stage : StageTables
        The kernels of the stage, with prices if the default limit of a MILP is requested.
    number : int
        Number of the stage, or of the kind of layer that it stands for.
    asked : Request
        The request.
    dram_left : float, B
        DRAM for tensors that wait between partitions.
    clock : Clock
        Within which the default of a MILP is looked for.
    """
    graph, assumptions = instance.graph, instance.assumptions
    exactly, p_max = assumptions.empty_partitions == "forbid", asked.p_max
    if not stage.chip.fused:
        p_max = stage.kernels
    elif p_max is None and asked.formulation != "assignment":
        p_max = stage.kernels  # blocks may be as many as they like
    elif p_max is None:
        p_max = default_p_max(stage, assumptions.forward_backward, clock)
        p_max = max(p_max, 1 + max(asked.pin_partition.values(), default=0))
    if graph.folded and number >= graph.layers.counted and exactly:  # what was asked for is of layers
        p_max = min(p_max, stage.kernels)
    place = {name: k for k, name in enumerate(stage.sharded.names)}
    pins = tuple((place[name], p) for name, p in asked.pin_partition.items() if name in place)
    return IntraChipLimits(
        p_max=p_max,
        exactly=exactly,
        forward_backward=assumptions.forward_backward if graph.trains else "shared",
        pins=pins if stage.chip.fused else (),
        dram_left=dram_left,
        saved_in_dram=counts_training(graph, assumptions),
    )


def default_p_max(stage: StageTables, forward_backward: str, clock: Clock = UNLIMITED) -> int:
    """Default limit on the partitions of a stage: two more than the best cut of a topological order has.

    Parameters
    ----------
    stage
        Kernels of the stage, priced.
    forward_backward
        Whether partitions may hold kernels of both passes.
    clock
        Limits how many orders are cut.
    """
    n, used = stage.kernels, []
    with suppress(OutOfTime):
        for order in topological_orders(stage):
            cut = best_segmentation(stage, order, n, False, forward_backward, clock)
            used += [] if cut is None else [int(cut[1].max()) + 1]
    return min(n, (min(used) if used else n // 2) + 2)
