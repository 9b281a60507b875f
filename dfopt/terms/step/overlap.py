"""What data-parallel copies exchange while their backward pass still computes.

See :mod:`dfopt.physics.overlap`, and :mod:`dfopt.physics.window` for Calculon's count of it. Only of a folded graph
that trains anything is hidden. *Kinds* are its kinds of layer, by number: the stages of its mapping. The *least* of a
figure is a lower bound on it under every mapping. ``instance`` is a setting under one plan.

Suffixes: k kernel, in the order of the graph.
"""

from __future__ import annotations

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.dim_names import parts_of, split_part_name
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.physics.copies import exchanged, reductions
from dfopt.physics.overlap import hides, hides_weights
from dfopt.physics.window import by_window
from dfopt.setting.instance import Instance
from dfopt.terms.step.optimizer import optimizer_seconds


def hides_any(assumptions: Assumptions, graph: Graph) -> bool:
    """Whether the backward pass may hide exchanges of data-parallel copies (``gradient_overlap``), by either rule.

    True under ``backward`` (layer by layer), ``calculon`` and ``calculon_or_none``, for a graph that trains and is
    folded: its drawn layers stand for all layers of a model.
    """
    return hides(assumptions, graph) or by_window(assumptions, graph)


def exchanges_behind(instance: Instance) -> bool:
    """Whether a training step has to work out what passes hide of the exchanges of its data-parallel copies.

    Parameters
    ----------
    instance : Instance
        Graph, machine and resolved assumptions (no ``auto`` left), under one plan.

    Returns
    -------
    bool
        True if the assumptions let passes hide exchanges (:func:`hides_any`), and the plan exchanges gradients or the
        optimizer's step takes time (``optimizer_step``). False: nothing is hidden, and the step is charged all seconds
        of :func:`dfopt.terms.step.hops.added_by_kind`.
    """
    some = bool(instance.adding) or instance.assumptions.optimizer_step is not None
    return some and hides_any(instance.assumptions, instance.graph)


def exchanged_by_kind(
    instance: Instance, volume_k: Floats, weight_k: Floats, kind_k: Ints, share: float = 1.0
) -> tuple[Floats, Floats, Floats]:
    """Seconds of the exchanges of data-parallel copies of one layer, as arrays by kind of layer.

    A kind is a layer that the graph draws once, however often the model has it.

    Parameters
    ----------
    instance : Instance
        Graph, machine and resolved assumptions (no ``auto`` left), under one plan.
    volume_k, weight_k : float arrays, shape (kernels,)
        Bytes of each kernel's weight gradient, as copies add it up, and of its weights; both on one chip.
    kind_k : int array, shape (kernels,)
        Number of the kind of layer of each kernel, from 0.
    share : float
        Share of the kernels that count: that of an average stage, where kernels are drawn once.

    Returns
    -------
    (float array, float array, float array), s, shape (kinds,) each
        First, one reduction of the gradients of a layer, on average over those of a step; under Calculon's rule all its
        exchanges of a step instead. Second, seconds per step that no pass hides: the optimizer's step, the all-gather
        of weights that is in no other array, and all exchanges where passes hide none. Third, the all-gather of weights
        per step where a forward pass may hide it, else 0. No seconds are in two of the arrays.
    """
    windows, behind = (of(instance.assumptions, instance.graph) for of in (by_window, hides))
    plan, word_k, price = instance.plan, instance.setting.weight_word_k, instance.communication_s
    kinds = int(kind_k.max()) + 1
    step_k = share * optimizer_seconds(instance, np.arange(len(kind_k)), weight_k)
    reduce_s, weights_s = np.zeros(kinds), np.bincount(kind_k, step_k, kinds).astype(float)
    gathers_s = np.zeros(kinds)
    brought_s = gathers_s if hides_weights(instance.assumptions, instance.graph, plan) else weights_s
    for dims, share_k in instance.adding:
        for kind in range(kinds):
            kind_volume_k = np.where(kind_k == kind, share * share_k * volume_k, 0.0)
            if not behind:
                of_all = reduce_s if windows else weights_s
                of_all[kind] += exchanged(plan, dims, float(kind_volume_k.sum()), float(kind_volume_k @ word_k), price)
                continue
            reduce_s[kind] += exchanged(plan, dims, float(kind_volume_k.sum()), 0.0, price) / reductions(plan)
            brought_s[kind] += exchanged(plan, dims, 0.0, float(kind_volume_k @ word_k), price)
    return reduce_s, weights_s, gathers_s


def in_the_way(plan: Plan) -> bool:
    """Whether messages between pipeline stages and exchanges of data-parallel copies use the same network dim.

    Parts of a dim, such as ``x[2]``, count as the dim.

    Examples
    --------
    >>> parts, apart = Plan(dp_dims=("x[2]",), pp_dims=("x[4@2]",)), Plan(dp_dims=("x",), pp_dims=("y",))
    >>> in_the_way(parts), in_the_way(apart)
    (True, False)
    """
    sent, handed = ({split_part_name(dim)[0] for dim in parts_of(dims)} for dims in (plan.copy_dims, plan.stage_dims))
    return bool(sent & handed)
