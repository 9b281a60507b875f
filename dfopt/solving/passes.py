"""Seconds of both passes of a layer, whatever its partitions are."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dfopt.fusion.blocks import StageTables
from dfopt.fusion.partitioning import IntraChipLimits, least_terms, rest_bound
from dfopt.setting.instance import Instance
from dfopt.terms.bounds.passes import PassSeconds
from dfopt.terms.step.offload import frees_memory_k


def least_of_stages(stages: Iterable[tuple[StageTables, IntraChipLimits]], instance: Instance) -> PassSeconds:
    """Lower bounds on the seconds of both passes of every kind of layer, from its kernels one by one.

    Parameters
    ----------
    stages : iterable
        Every kind of layer, priced, with the limits on its partitions.
    instance : Instance
        Setting and plan.

    Returns
    -------
    PassSeconds
        Seconds of one vector of options, without memory and compute time as Calculon counts them.
    """
    index, free_k, rows = instance.graph.index(), frees_memory_k(instance.setting), []
    for tables, limits in stages:
        forward_k, memory_k = tables.sharded.forward_k, least_terms(tables, limits)[1]
        ahead = float(rest_bound(tables, limits, ~forward_k[None, :])[0])
        ahead_memory = float(memory_k[forward_k].sum())
        back = back_memory = 0.0
        if not tables.chip.fused or limits.forward_backward == "separate":  # else all may be mixed
            seen_k = np.array([not free_k[index[name]] for name in tables.sharded.names], dtype=bool)
            back = float(rest_bound(tables, limits, forward_k[None, :])[0])
            back_memory = float(memory_k[~forward_k & seen_k].sum())
        rows.append((ahead, back, ahead_memory, back_memory, 0.0, 0.0))
    return PassSeconds(*(np.array(of_kinds)[:, None, None] for of_kinds in zip(*rows, strict=True)))
