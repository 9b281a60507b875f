"""What data-parallel copies exchange while their backward pass still computes.

See :mod:`dfopt.physics.overlap`, and :mod:`dfopt.physics.window` for Calculon's count of it. Only of a folded graph
that trains anything is hidden. *Kinds* are its kinds of layer, by number: the stages of its mapping. The *least* of a
figure is a lower bound on it under every mapping. ``instance`` is a setting under one plan.

Suffixes: k kernel, in the order of the graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.dim_names import parts_of, split_part_name
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.physics.copies import exchanged, reductions
from dfopt.physics.overlap import Reduced, hides, hides_weights, reduced_after_s
from dfopt.physics.pipeline import step_time
from dfopt.physics.tiled import usage_of
from dfopt.physics.window import Shown, Window, by_window, least_lines
from dfopt.setting.instance import Instance
from dfopt.setting.stages import PipelineStage, in_order, pipeline_stages
from dfopt.terms.sharded_graph import Floats, Ints
from dfopt.terms.step.optimizer import optimizer_seconds

__all__ = [
    "Exchanges", "Passes", "Windows", "exchange_seconds", "exchanged_by_kind", "exchanges_behind", "hides_any",
    "in_the_way", "reduced_stages",
]  # fmt: skip


class Windows(NamedTuple):
    """What Calculon's rule reads of a plan to tell how much of the data-parallel exchanges the backward pass hides.

    By this rule the exchange of the last layer is not hidden. Those of other layers hide behind backward passes, but
    not while the chip waits for memory (Isaev et al., SC23; formulas in :mod:`dfopt.physics.window`).

    Attributes
    ----------
    usage : no unit
        Share of a processor that the exchange takes, from 0 to 1.
    in_the_way : bool
        Whether messages between pipeline stages use a network dim of the exchange (:func:`in_the_way`).
    rounds : no unit
        Step time without exchanges over the time of the slowest stage for one microbatch. Pipeline fill is included.
    optional : bool
        Whether exchanges are charged in full, none hidden, where this takes less time (``gradient_overlap:
        calculon_or_none``).
    """

    usage: float
    in_the_way: bool
    rounds: float
    optional: bool


class Exchanges(NamedTuple):
    """Seconds in which data-parallel copies exchange gradients and weights of one layer, by kind of layer.

    A *kind* is a layer that the graph draws once, however often the model has it, such as a dense layer. No seconds are
    in two fields. The *gathering* of weights is the all-gather of those that copies share out (ZeRO).

    Attributes
    ----------
    reduce_s : s, one for each kind
        Without `windows`: one reduction of the gradients, on average over those of a step, which may be several
        (:func:`dfopt.physics.copies.reductions`). With `windows`: all exchanges of a step, gathering of weights too.
    weights_s : s, one for each kind
        Per step, hidden by no pass: the optimizer's step, and all gathering of weights that is not in `reduce_s` or
        `gathers_s`.
    gathers_s : s, one for each kind
        Per step: gathering of updated weights, if the first forward pass of the next step may hide it. Else 0, and
        `weights_s` or `reduce_s` has the gathering.
    windows : Windows or None
        Figures for Calculon's rule of what passes hide (:mod:`dfopt.physics.window`). None: exchanges hide layer by
        layer, those of one layer while the layers before it still compute (:mod:`dfopt.physics.overlap`).
    """

    reduce_s: tuple[float, ...]
    weights_s: tuple[float, ...]
    gathers_s: tuple[float, ...]
    windows: Windows | None = None


class Passes(NamedTuple):
    """Seconds of the forward and the backward pass of one layer for one microbatch, by kind of layer.

    They are those of known partitions (kernels that the chip runs together), or lower bounds on them under every way to
    partition the kernels. A *kind* is a layer that the graph draws once, however often the model has it.

    Attributes
    ----------
    forward_s : s, one for each kind
        All partitions that hold a kernel of the forward pass, whatever else they hold.
    backward_s : s, one for each kind
        All other partitions: those without a kernel of the forward pass.
    memory_s, compute_s : s, one for each kind
        Memory time and compute time of the backward pass, as Calculon counts them. They are sums over kernels of the
        backward pass and weight updates. For each kernel that is recomputed, they also include the time of all forward
        kernels up to it (:func:`dfopt.physics.window.running`). Lower bounds may leave out what is recomputed. Empty:
        not known. Only Calculon's rule reads them.
    exact : bool
        For Calculon's rule: whether all figures are of known partitions. False: some are lower bounds.
    """

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    memory_s: tuple[float, ...] = ()
    compute_s: tuple[float, ...] = ()
    exact: bool = False


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
        of :func:`dfopt.terms.step.hops.gradient_seconds`.
    """
    some = bool(instance.adding) or instance.assumptions.optimizer_step is not None
    return some and hides_any(instance.assumptions, instance.graph)


def exchange_seconds(instance: Instance, volume_k: Floats, weight_k: Floats, kind_k: Ints) -> Exchanges | None:
    """Seconds of the data-parallel exchanges of one layer, by kind of layer, or None if no pass may hide any of them.

    Parameters
    ----------
    instance : Instance
        Graph, machine and resolved assumptions (no ``auto`` left), under one plan.
    volume_k : float array, shape (kernels,)
        Bytes of each kernel's weight gradient on one chip, in the type in which copies add it up. 0: no gradient.
    weight_k : float array, shape (kernels,)
        Bytes of each kernel's weights on one chip. The time of the optimizer's step follows from them.
    kind_k : int array, shape (kernels,)
        Number of the kind of layer of each kernel, from 0. A kind is a layer that the graph draws once, however often
        the model has it.

    Returns
    -------
    Exchanges or None
        None if :func:`exchanges_behind` is false. The caller then charges all seconds of
        :func:`dfopt.terms.step.hops.gradient_seconds` to the step. They are 0 if the plan exchanges nothing and the
        optimizer takes no time.
    """
    if not exchanges_behind(instance):
        return None
    each = exchanged_by_kind(instance, volume_k, weight_k, kind_k)
    reduce_s, weights_s, gathers_s = (tuple(one.tolist()) for one in each)
    return Exchanges(reduce_s, weights_s, gathers_s, _windows(instance))


def exchanged_by_kind(
    instance: Instance, volume_k: Floats, weight_k: Floats, kind_k: Ints
) -> tuple[Floats, Floats, Floats]:
    """Seconds of the exchanges of data-parallel copies of one layer, as arrays by kind of layer.

    A kind is a layer that the graph draws once, however often the model has it. Call this function only if passes may
    hide exchanges (:func:`exchanges_behind`): it does not check that.

    Parameters
    ----------
    instance : Instance
        Graph, machine and resolved assumptions (no ``auto`` left), under one plan.
    volume_k, weight_k : float arrays, shape (kernels,)
        Bytes of each kernel's weight gradient, as copies add it up, and of its weights; both on one chip.
    kind_k : int array, shape (kernels,)
        Number of the kind of layer of each kernel, from 0.

    Returns
    -------
    (float array, float array, float array), s, shape (kinds,) each
        The fields ``reduce_s``, ``weights_s`` and ``gathers_s`` of :class:`Exchanges`. First, one reduction of the
        gradients of a layer; under Calculon's rule all its exchanges of a step instead. Second, seconds per step that
        no pass hides: the optimizer's step, and the all-gather of weights that is in no other array. Third, the
        all-gather of weights per step where a forward pass may hide it, else 0. No seconds are in two of the arrays.
    """
    windows, kinds = by_window(instance.assumptions, instance.graph), instance.mapped_stages
    plan, word_k, price = instance.plan, instance.setting.weight_word_k, instance.communication_s
    step_k = optimizer_seconds(instance, np.arange(len(kind_k)), weight_k)
    reduce_s, weights_s = np.zeros(kinds), np.bincount(kind_k, step_k, kinds).astype(float)
    gathers_s = np.zeros(kinds)
    brought_s = gathers_s if hides_weights(instance.assumptions, instance.graph, plan) else weights_s
    for dims, share_k in instance.adding:
        for kind in range(kinds):
            mine = np.where(kind_k == kind, share_k * volume_k, 0.0)
            if windows:
                reduce_s[kind] += exchanged(plan, dims, float(mine.sum()), float(mine @ word_k), price)
                continue
            reduce_s[kind] += exchanged(plan, dims, float(mine.sum()), 0.0, price) / reductions(plan)
            brought_s[kind] += exchanged(plan, dims, 0.0, float(mine @ word_k), price)
    return reduce_s, weights_s, gathers_s


def _windows(instance: Instance) -> Windows | None:
    assumptions, plan = instance.assumptions, instance.plan
    if not by_window(assumptions, instance.graph):
        return None
    return Windows(
        usage=usage_of(instance.system, plan.copy_dims),
        in_the_way=in_the_way(plan),
        rounds=step_time(plan, assumptions, 1.0).total,
        optional=assumptions.gradient_overlap == "calculon_or_none",
    )


def in_the_way(plan: Plan) -> bool:
    """Whether messages between pipeline stages and exchanges of data-parallel copies use the same network dim.

    Parts of a dim, such as ``x[2]``, count as the dim.

    Examples
    --------
    >>> parts, apart = Plan(dp_dims=("x[2]",), pp_dims=("x[4@2]",)), Plan(dp_dims=("x",), pp_dims=("y",))
    >>> in_the_way(parts), in_the_way(apart)
    (True, False)
    """
    sent, handed = ({split_part_name(one)[0] for one in parts_of(dims)} for dims in (plan.copy_dims, plan.stage_dims))
    return bool(sent & handed)


def reduced_stages(
    graph: Graph, plan: Plan, exchanges: Exchanges, passes: Passes, hops: Sequence[float] = ()
) -> tuple[Reduced, ...] | tuple[Shown, ...]:
    """One object for each distinct pipeline stage that says how many seconds its data-parallel exchanges add to a step.

    *Exchanges* are those of gradients and weights between data-parallel copies. The method ``shows_s(stage_s,
    slowest_s)`` of an object returns the seconds per step that they add. Its arguments are the seconds of the stage
    itself and of the slowest stage, for one microbatch. The step gets longer by the largest result over all stages, or
    not at all if that is negative.

    Parameters
    ----------
    graph, plan : Graph, Plan
        The whole model, folded (its drawn layers stand for all layers), and how these lie in pipeline stages.
    exchanges, passes : Exchanges, Passes
        Seconds of one layer, by kind. If they are lower bounds, so are the seconds of the result.
    hops : sequence of float, s, shape (distinct stages,), optional
        Seconds that each stage waits for one microbatch beside the work of its layers, such as for messages. Empty: 0.

    Returns
    -------
    tuple of Reduced, or of Shown
        One for each stage of :func:`dfopt.setting.stages.pipeline_stages`, in its order. With Calculon's rule, which
        ``exchanges.windows`` turns on, these are :class:`dfopt.physics.window.Shown`. Else exchanges hide layer by
        layer, and these are :class:`dfopt.physics.overlap.Reduced`.

    Raises
    ------
    ValueError
        With Calculon's rule, if layers are of several kinds.
    """
    if exchanges.windows is not None:
        stages = pipeline_stages(graph, plan)
        return _shown(stages, plan, exchanges, exchanges.windows, passes, hops or [0.0] * len(stages))
    found = []
    for position, stage in enumerate(pipeline_stages(graph, plan)):
        order = [(kind, times) for kind, times in in_order(graph, plan, stage.number) if times]
        back = ((passes.backward_s[kind], exchanges.reduce_s[kind], times) for kind, times in reversed(order))
        ahead = ((exchanges.gathers_s[kind], passes.forward_s[kind], times) for kind, times in order)
        ends_s = reduced_after_s(ahead) + reduced_after_s(back)
        first = order[0][0] if order else None
        found.append(
            Reduced(
                last_s=0.0 if first is None else exchanges.reduce_s[first] + exchanges.gathers_s[first],
                ends_s=ends_s + (hops[position] if hops else 0.0),
                weights_s=sum(times * exchanges.weights_s[kind] for kind, times in order),
                times=reductions(plan),
            )
        )
    return tuple(found)


def _shown(
    stages: Sequence[PipelineStage],
    plan: Plan,
    exchanges: Exchanges,
    windows: Windows,
    passes: Passes,
    hops: Sequence[float],
) -> tuple[Shown, ...]:
    """What Calculon's count shows of every stage: all layers are of one kind."""
    (exchange_s,), (once_s,) = exchanges.reduce_s, exchanges.weights_s
    figures = exchange_s, passes.backward_s[0], passes.memory_s[0], passes.compute_s[0]
    sizes = [sum(times for _, times in stage.runs) for stage in stages]
    layer = Window(*figures, 0.0, windows.in_the_way, windows.usage)
    mine = [replace(layer, hop_s=hop_s / 2 / plan.interleave) for hop_s in hops]
    if plan.copies == 1:  # chips of the second axis may add up gradients: Calculon has none to hide
        return tuple(Shown(((size * (exchange_s + once_s), 0.0),), windows.rounds) for size in sizes)
    if passes.exact:
        each = zip(mine, sizes, strict=True)
        counts = plan.stages, plan.interleave
        shows_s = max(one.exposed_s(*counts, size, plan.microbatches) if size else 0.0 for one, size in each)
        shows_s = min(shows_s, max(sizes) * exchange_s) if windows.optional else shows_s
        return (Shown(((shows_s + max(sizes) * once_s, 0.0),), windows.rounds),) * len(stages)
    found = []
    for one, size, hop_s in zip(mine, sizes, hops, strict=True):
        lines = least_lines(one, passes.forward_s[0], plan.stages, plan.interleave, size)
        after_s = size * (exchange_s + once_s) if windows.optional else math.inf
        found.append(Shown.of_layers(lines, size, hop_s, size * once_s, windows.rounds, after_s))
    return tuple(found)
