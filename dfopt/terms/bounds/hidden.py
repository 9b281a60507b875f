"""What shows at least of the exchanges of data-parallel copies: :mod:`dfopt.terms.step.overlap` as arrays.

Exchanges hide behind the backward pass, where ``gradient_overlap`` says so. Functions return, for every pipeline stage,
the seconds of a step that show beside the time of the slowest stage.

Suffixes: r pipeline stage of a plan (the stages of many plans below one another), k kind of layer, p place in the order
in which a stage runs its layers: a row of equal layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dfopt.terms.sharded_graph import Floats, Ints

__all__ = ["Stages", "behind_layers", "in_windows"]


@dataclass(frozen=True, eq=False)
class Stages:
    """Lower bounds on seconds of pipeline stages of many plans: work, and exchanges of data-parallel copies.

    Rows are the distinct stages of all plans. Columns are kinds of layer (distinct layers of the model), with the
    figures of one layer of that kind. Copies exchange gradients and weights. *Calculon's rule* is
    :mod:`dfopt.physics.window`, under ``gradient_overlap: calculon`` and ``calculon_or_none``; under ``backward``
    exchanges of a layer run while the backward pass computes the layers behind it.

    Attributes
    ----------
    stage_r : s, shape (stages,)
        Time of all layers of the stage for one microbatch, and of the messages that it waits for.
    reduce_rk : s, shape (stages, kinds)
        Time of one reduction of the gradients of a layer. A step has one, or one for each microbatch with ZeRO level 2
        or 3. Under Calculon's rule: time of all exchanges of a step, of gradients and weights.
    weights_rk : s, shape (stages, kinds)
        Time per step that no pass hides: the optimizer's step, and gathering of weights that is in neither
        `gathers_rk` nor `reduce_rk`.
    gathers_rk : s, shape (stages, kinds)
        Time per step to gather updated weights, if the first forward pass may hide it; else 0.
    forward_rk, backward_rk : s, shape (stages, kinds)
        Time of on-chip partitions with a kernel of the forward pass, and of all others; for one microbatch.
    """

    stage_r: Floats
    reduce_rk: Floats
    weights_rk: Floats
    gathers_rk: Floats
    forward_rk: Floats
    backward_rk: Floats


def behind_layers(
    of: Stages, kind_rp: Ints, times_rp: Ints, hops_r: Floats, reductions_r: Floats, slowest_r: Floats
) -> Floats:
    """Lower bound on the seconds per step that exchanges add beside the slowest stage, if hidden layer by layer.

    Data-parallel copies of each pipeline stage exchange gradients and weights while its passes run. The rule is that of
    :class:`dfopt.physics.overlap.Reduced`: ``weights_s + n * (max(stage_s + last_s, ends_s) - slowest_s)``, with these
    figures of the stage:

    - ``weights_s``: seconds per step that no pass hides, the sum of ``of.weights_rk`` over its layers. They include the
      optimizer's step.
    - ``n``: reductions of gradients in a step (`reductions_r`).
    - ``stage_s``: seconds of its work for one microbatch (``of.stage_r``). ``slowest_s``: `slowest_r`.
    - ``last_s``: seconds of the exchanges of its first layer, which the backward pass reaches last.
    - ``ends_s``: seconds from the start of the stage's work for one microbatch until the last exchange of one reduction
      ends. It is the sum of `hops_r`, the forward pass and the backward pass. In the forward pass weights of the layers
      are gathered one after another, and a layer starts when its own are there. In the backward pass gradients of the
      layers are reduced one after another, each not before its layer is done.

    Parameters
    ----------
    of : Stages
        Least seconds of the stages, axis r.
    kind_rp, times_rp : int arrays, shape (stages, places)
        Layers of a stage in the order in which it runs them: at each place so many (`times_rp`) of one kind
        (`kind_rp`). A place behind the last layer has 0.
    hops_r : float array, s, shape (stages,)
        Seconds that a stage waits for one microbatch beside the work of its layers, such as for messages. They count in
        ``ends_s``.
    reductions_r : float array, no unit, shape (stages,)
        How often in a step copies add up gradients.
    slowest_r : float array, s, shape (stages,)
        Seconds of the slowest stage of the same plan for one microbatch.

    Returns
    -------
    float array, s, shape (stages,)
        Seconds per step, with those of the optimizer's step. Negative where a stage finishes all of this before the
        slowest stage finishes its work: such a stage adds nothing.
    """
    backward_rp, reduce_rp, forward_rp, gathers_rp = (
        np.take_along_axis(each, kind_rp, axis=1)
        for each in (of.backward_rk, of.reduce_rk, of.forward_rk, of.gathers_rk)
    )
    ahead_r = _after(gathers_rp, forward_rp, times_rp)
    ends_r = ahead_r + _after(backward_rp[:, ::-1], reduce_rp[:, ::-1], times_rp[:, ::-1]) + hops_r
    weights_r = (times_rp * np.take_along_axis(of.weights_rk, kind_rp, axis=1)).sum(axis=1)
    last_r = np.where(times_rp[:, 0] > 0, reduce_rp[:, 0] + gathers_rp[:, 0], 0.0)
    until_r = weights_r + reductions_r * np.maximum(of.stage_r + last_r, ends_r)
    found: Floats = until_r - reductions_r * slowest_r
    return found


def _after(first_rp: Floats, then_rp: Floats, times_rp: Ints) -> Floats:
    """:func:`dfopt.physics.overlap.reduced_after_s` of many stages: of every layer one thing, and then the other."""
    passed_r = finished_r = np.zeros(len(times_rp))
    for p in range(times_rp.shape[1]):
        times_r, mine_r, after_r = times_rp[:, p], first_rp[:, p], then_rp[:, p]
        begun_r = np.maximum(finished_r, passed_r + mine_r) + times_r * after_r
        passed_r = passed_r + times_r * mine_r
        finished_r = np.where(times_r > 0, np.maximum(begun_r, passed_r + after_r), finished_r)
    return finished_r


def in_windows(
    of: Stages,
    memory_r: Floats,
    compute_r: Floats,
    usage_r: Floats,
    size_r: Floats,
    stages_r: Floats,
    chunks_r: Floats,
    rounds_r: Floats,
    hop_r: Floats,
    alone_r: Floats,
    optional: bool,
) -> Floats:
    """Lower bound on the seconds per step that exchanges of data-parallel copies of each stage add, by Calculon's rule.

    The rule (:mod:`dfopt.physics.window`) hides exchanges of all layers but the last behind the backward pass. All
    layers are of one kind. Arrays have the shape (stages,).

    The result is the optimizer's step plus the largest of up to four linear functions ``a + b * stage_s``. ``stage_s``
    is the time of the stage for one microbatch (``of.stage_r``). ``a``, in s, and ``b``, at most 0, follow from the
    other arguments (:func:`dfopt.physics.window.least_lines`). Each function adds up some of three parts:

    1. the exchange of the last layer, which nothing hides;
    2. the least by which exchanges of the last chunk exceed the backward pass that may hide them;
    3. the same of all other chunks.

    The four functions have the parts 1; 1 and 2; 1 and 3; and all three. Those with part 3 count only if a stage has
    several chunks. A function with ``rounds_r + b < 0`` is left out: with it the time of the step would fall as
    ``stage_s`` grows, so a lower bound on ``stage_s`` would give none on the step. The others remain a bound.

    Parameters
    ----------
    of : Stages
        Least seconds of the stages, axis r, with one kind of layer.
    memory_r, compute_r : s
        Least memory time and compute time of the backward pass of one layer for one microbatch.
    usage_r : no unit
        Share of a processor that an exchange takes, from 0 to 1.
    size_r : layers
        Number of layers of the stage.
    stages_r, chunks_r : no unit
        Number of pipeline stages of the plan, and of chunks of layers in each stage (interleaved 1F1B).
    rounds_r : no unit
        Step time without exchanges over the time of the slowest stage for one microbatch. Pipeline fill is included.
    hop_r : s
        Messages of one chunk of layers for one microbatch, on and back together.
    alone_r : bool
        Whether the plan has one data-parallel copy. Then exchanges of chips of the second axis are charged in full,
        none hidden.
    optional : bool
        Whether exchanges are charged in full, none hidden, where this takes less time (``gradient_overlap:
        calculon_or_none``).

    Returns
    -------
    float array, s, shape (stages,)
        Seconds per step, with those of the optimizer. 0 for a stage without layers.
    """
    exchange_r, once_r, forward_r = of.reduce_rk[:, 0], of.weights_rk[:, 0], of.forward_rk[:, 0]
    each_r, some_r = np.maximum(size_r / chunks_r, 1.0), np.maximum(size_r, 1.0)
    lost_r, slowed_r, others_r = forward_r + memory_r, compute_r * usage_r, chunks_r - 1
    open_r = stages_r * (hop_r / 2 - each_r * lost_r)
    over_r = others_r * (each_r * exchange_r + stages_r * each_r * slowed_r - open_r), -others_r * stages_r * each_r
    last = (each_r - 1) * exchange_r + slowed_r
    last += np.where(each_r > 1, (each_r - 1) * lost_r + memory_r + hop_r / 4, 0.0)
    last_r = last, 1 - each_r
    shows_r = np.full(len(size_r), -np.inf)
    for over, behind in ((0, 0), (0, 1), (1, 0), (1, 1)):
        at_r = exchange_r + over * over_r[0] + behind * last_r[0]
        slope_r = (over * over_r[1] + behind * last_r[1]) / some_r
        line_r = size_r * once_r + at_r - slope_r * chunks_r * hop_r + slope_r * of.stage_r
        counts_r = (rounds_r + slope_r >= 0) & ((chunks_r > 1) | (over == 0))  # see dfopt.physics.window.Shown
        shows_r = np.maximum(shows_r, np.where(counts_r, line_r, -np.inf))
    after_r = size_r * (exchange_r + once_r)
    if optional:
        shows_r = np.minimum(shows_r, after_r)
    found: Floats = np.where(alone_r, after_r, np.where(size_r > 0, shows_r, 0.0))
    return found
