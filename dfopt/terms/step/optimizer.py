"""What the optimizer's step takes of each kernel's parameters, see :mod:`dfopt.physics.beside`.

Suffix: o any list of kernels, in which one may come several times, such as once for each of its sharding schemes.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.documents.graph import Kernel
from dfopt.documents.placement import item_of_weight
from dfopt.documents.plan import Plan
from dfopt.documents.saved import optimizer_bytes, reduced_bytes, updates_weights
from dfopt.physics.beside import optimizer_s
from dfopt.setting.instance import Instance
from dfopt.terms.layer import counts_training


def optimizer_seconds(instance: Instance, kernel_o: Ints, weight_o: Floats) -> Floats:
    """Seconds per step in which the optimizer updates the parameters of each kernel, of one layer on one chip.

    The step is elementwise: FLOP per parameter (11 of Adam), and traffic of optimizer state, gradient and weight, which
    overlap as in a kernel (:func:`dfopt.physics.beside.optimizer_s`, with its sources).

    Parameters
    ----------
    instance : Instance
        Graph, machine and resolved assumptions (no ``auto`` left), under one plan.
    kernel_o : int array, shape (entries,)
        Place of each kernel in ``instance.graph.kernels``. A kernel may come several times, such as once for each of
        its sharding schemes.
    weight_o : float array, shape (entries,)
        Bytes of the kernel's weights on one chip under its sharding scheme, before copies share anything out (ZeRO).

    Returns
    -------
    float array, s, shape (entries,)
        Seconds for the share of the parameters that one chip updates under ZeRO. Non-decreasing in `weight_o`. A
        kernel's resident tables (such as embeddings, which memory holds whole and the kernel reads in part) count too,
        unless the graph states the bytes of their optimizer state: then they take no time here. 0 where the optimizer
        takes no time (``optimizer_step`` is None), where gradients are not kept (``gradients: dfmodel``, or the graph
        does not train), and for backward kernels that read weights which forward kernels hold.
    """
    seconds, assumptions, graph = np.zeros(len(kernel_o)), instance.assumptions, instance.graph
    if assumptions.optimizer_step is None or not counts_training(graph, assumptions):
        return seconds
    once, seconds_of = instance.setting.only_forward, dict[tuple[int, float], float]()
    share_of = cache(lambda copied: instance.plan.share_held(1, copied))  # a plan takes notes of what is asked
    for o, (k, weight) in enumerate(zip(kernel_o.tolist(), weight_o.tolist(), strict=True)):
        kernel = graph.kernels[k]
        if (kernel.pass_ != "forward" and once) or not (weight or kernel.resident_bytes):
            continue
        if (k, weight) not in seconds_of:
            word, share = graph.words.of_weight(kernel), share_of(kernel.copied or 0.0)
            routed = item_of_weight(kernel) == "experts"
            step = _step(instance, weight / word * share, word, routed)
            seconds_of[k, weight] = step + _of_table(instance, kernel)
        seconds[o] = seconds_of[k, weight]
    return seconds


def _step(instance: Instance, parameters: float, word: float, routed: bool = False) -> float:
    setting = instance.setting

    def seconds(plan: Plan) -> float:
        graph, assumptions, chip = setting.graph, setting.assumptions, setting.system.chip
        state = optimizer_bytes(graph, assumptions.optimizer_bytes_per_parameter)
        moved = word * (1 + updates_weights(graph))  # read too
        return optimizer_s(parameters, reduced_bytes(graph), moved, chip, assumptions, plan, routed, state)

    # thousands of plans have a few sizes
    question = setting.reads["optimizer step", parameters, word, routed]
    return question.answer(instance.plan, seconds)  # type: ignore[no-any-return]


def _of_table(instance: Instance, kernel: Kernel) -> float:
    """Seconds per step for the tables of a kernel; 0 if their optimizer state is stated for itself."""
    if kernel.pass_ != "forward" or not kernel.resident_bytes or kernel.resident_optimizer_bytes is not None:
        return 0.0
    plan, word = instance.plan, instance.graph.words.ends
    parts = math.prod(getattr(plan, name) for name in kernel.spread_over)
    share = 1.0 if "copies" in kernel.spread_over else plan.share_held(1, kernel.copied or 0.0)
    return _step(instance, kernel.resident_bytes / word / parts * share, word)
