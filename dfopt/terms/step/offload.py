"""What slower memories move while a graph trains, see :mod:`dfopt.physics.offload`."""

from __future__ import annotations

import numpy as np

from dfopt.arrays import Bools
from dfopt.setting.instance import Instance, Setting
from dfopt.terms.step.ledger import offloaded


def moves(instance: Instance) -> bool:
    """Whether slower memories of a chip move any offloaded data while its layers compute.

    Weights, activations, gradients or optimizer state are *offloaded* if the plan puts them into a slower memory in
    training. Where the optimizer state alone is offloaded, the result is False, as the optimizer's step moves that
    state and not the layers. Under ``offload: calculon`` the layers move it too, and the result is True.

    Parameters
    ----------
    instance : Instance
        Graph, machine and resolved assumptions (no ``auto`` left), under one plan.
    """
    away = offloaded(instance)
    return bool(away) and (away.keys() != {"optimizer"} or instance.assumptions.offload == "calculon")


def frees_memory_k(setting: Setting) -> Bools:
    """Mask of the kernels during which the fastest memory is free for offload transfers (Calculon's rule).

    Bool array, shape (kernels of the graph,). False for all under other rules.
    """
    if setting.assumptions.offload != "calculon":
        return np.zeros(len(setting.graph.kernels), dtype=bool)
    return np.array([kernel.pass_ == "recompute" for kernel in setting.graph.kernels], dtype=bool)
