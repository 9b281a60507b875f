"""Seconds of a plan's forward and backward pass: how long gradients can be added up before the step has to wait."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from dfopt.documents.graph import Graph
from dfopt.fusion.blocks import StageTables, price_each, singles
from dfopt.fusion.partitioning import blocks_of, least_terms, rest_bound
from dfopt.fusion.priced import PricedStage
from dfopt.setting.instance import Instance
from dfopt.terms.sharded_graph import Bools, Ints
from dfopt.terms.step.offload import frees_memory_k
from dfopt.terms.step.overlap import Exchanges, Passes

__all__ = ["Known", "least_memory", "least_passes", "memory_of", "passes_for", "passes_of", "window_passes"]


class Known(NamedTuple):
    """Partitions of a plan, and the seconds of every stage of the mapping that these take."""

    stage_seconds: Sequence[float]
    partition_k: Ints


def passes_for(
    exchanges: Exchanges, graph: Graph, stages: Sequence[PricedStage], ahead_s: float, known: Known | None
) -> Passes:
    """What exchanges are hidden behind: the least of it, or of partitions that are known."""
    if exchanges.windows is not None:
        return window_passes(graph, stages, ahead_s, None if known is None else known.partition_k)
    return least_passes(stages, ahead_s) if known is None else passes_of(stages, *known)


def least_passes(stages: Iterable[PricedStage], ahead_s: float = 0.0) -> Passes:
    """What no partitions beat: as much forward pass, ``ahead_s`` at least, and as much of what holds nothing of it."""
    forward_s, backward_s = [], []
    for stage in stages:
        ahead = back = 0.0
        if (tables := stage.tables) is not None and stage.limits is not None:
            forward_k = tables.sharded.forward_k[None, :]
            ahead = float(rest_bound(tables, stage.limits, ~forward_k)[0])
            if not tables.chip.fused or stage.limits.forward_backward == "separate":  # else all may be mixed
                back = float(rest_bound(tables, stage.limits, forward_k)[0])
        forward_s.append(max(ahead, ahead_s))
        backward_s.append(back)
    return Passes(tuple(forward_s), tuple(backward_s))


def passes_of(stages: Iterable[PricedStage], stage_seconds: Sequence[float], partition_k: Ints) -> Passes:
    """The passes that partitions make, which take so many seconds in every stage."""
    backward_s = []
    for stage in stages:
        back = 0.0
        if stage.tables is not None:
            blocks = blocks_of(partition_k[stage.members])
            ahead = np.array([stage.tables.sharded.forward_k[block].any() for block in blocks])
            back = float(price_each(stage.tables, blocks).time[~ahead].sum())
        backward_s.append(back)
    forward_s = (whole - back for whole, back in zip(stage_seconds, backward_s, strict=True))
    return Passes(tuple(forward_s), tuple(backward_s))


def window_passes(graph: Graph, stages: Iterable[PricedStage], ahead_s: float, partition_k: Ints | None) -> Passes:
    """What :mod:`dfopt.physics.window` needs of the only stage of a mapping, where every kernel has its own partition.

    At least, of which ``ahead_s`` is the least of the forward pass, too; or in a given order what there is.
    """
    [tables] = [one.tables for one in stages if one.tables is not None]
    place = {name: number for number, name in enumerate(tables.sharded.names)}
    kernels = [graph.kernels[graph.index()[name]] for name in place]
    prices = price_each(tables, singles(tables))
    compute_k, memory_k = prices.compute, prices.memory
    forward_k, again_k = (np.array([one.pass_ == name for one in kernels]) for name in ("forward", "recompute"))
    often_k = np.zeros(len(kernels))
    for one in kernels:
        if one.pass_ == "recompute":
            assert one.stage_with is not None
            often_k[place[one.stage_with]] += 1
    if not again_k.any():
        before_kk = np.zeros((len(kernels), len(kernels)))
    elif partition_k is None:  # in any order they come behind what they need
        before_kk = _ancestors(tables).astype(float)
    else:
        before_kk = (partition_k[None, :] <= partition_k[:, None]).astype(float)
    before_kk = before_kk * forward_k[None, :]
    back_k = ~forward_k & ~again_k
    memory_s, compute_s = (float(each[back_k].sum() + often_k @ (before_kk @ each)) for each in (memory_k, compute_k))
    ahead, back = float(prices.time[forward_k].sum()), float(prices.time[~forward_k].sum())
    return Passes((max(ahead, ahead_s),), (back,), (memory_s,), (compute_s,), partition_k is not None)


def _ancestors(tables: StageTables) -> Bools:
    """What each kernel needs, and itself: [k, of]."""
    sharded, n = tables.sharded, tables.kernels
    found = np.eye(n + 1, dtype=bool)
    found[sharded.dst_t, sharded.src_t] = True
    for k in range(n):
        found |= found[:, [k]] & found[[k], :]
    return np.asarray(found[:n, :n])


def least_memory(stages: Iterable[PricedStage], instance: Instance) -> Passes:
    """Seconds of the fastest memory at least in what :func:`least_passes` is about."""
    forward_s, backward_s = [], []
    for stage in stages:
        ahead = back = 0.0
        if (tables := stage.tables) is not None and stage.limits is not None:
            memory_k, forward_k = least_terms(tables, stage.limits)[1], tables.sharded.forward_k
            ahead = float(memory_k[forward_k].sum())
            if not tables.chip.fused or stage.limits.forward_backward == "separate":
                back = float(memory_k[~forward_k & ~_unseen(tables, instance)].sum())
        forward_s.append(ahead)
        backward_s.append(back)
    return Passes(tuple(forward_s), tuple(backward_s))


def memory_of(stages: Iterable[PricedStage], instance: Instance, partition_k: Ints) -> Passes:
    """Seconds of the fastest memory in the passes that partitions make."""
    forward_s, backward_s = [], []
    for stage in stages:
        ahead_s = back_s = 0.0
        if (tables := stage.tables) is not None:
            blocks, unseen_k = blocks_of(partition_k[stage.members]), _unseen(tables, instance)
            memory = price_each(tables, blocks).memory
            ahead = np.array([tables.sharded.forward_k[block].any() for block in blocks])
            unseen = np.array([unseen_k[block].any() for block in blocks])
            ahead_s, back_s = float(memory[ahead].sum()), float(memory[~ahead & ~unseen].sum())
        forward_s.append(ahead_s)
        backward_s.append(back_s)
    return Passes(tuple(forward_s), tuple(backward_s))


def _unseen(tables: StageTables, instance: Instance) -> Bools:
    """Kernels that keep the fastest memory free."""
    index, free_k = instance.graph.index(), frees_memory_k(instance.setting)
    return np.array([free_k[index[name]] for name in tables.sharded.names], dtype=bool)
