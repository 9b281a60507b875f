"""Seconds of both passes of layers: what blocks add to them, and how layers wait for what slower memories move.

Suffixes: k kernel of the graph or kind of layer, r pipeline stage of a plan, b block, v vector of options.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.physics.window import by_window
from dfopt.setting.instance import Setting
from dfopt.terms.blocks import BlockPrices
from dfopt.terms.step.offload import frees_memory_k

_COMPUTE, _MEMORY = 0, 1
"""Places of two resources in :attr:`BlockPrices.seconds`."""


class PassSeconds(NamedTuple):
    """Seconds of the passes of one layer of every kind for one microbatch, exact or as lower bounds.

    Float arrays, s, shape (kinds, stages, vectors), or one stage or vector for all.

    Attributes
    ----------
    ahead_krv, back_krv
        Partitions with a kernel of the forward pass, and all others.
    ahead_memory_krv, back_memory_krv
        Parts of these in which the fastest memory is busy, as offload transfers have to wait for it.
    memory_krv, compute_krv
        Memory time and compute time of the backward pass, as Calculon counts them (:mod:`dfopt.physics.window`).
    """

    ahead_krv: Floats
    back_krv: Floats
    ahead_memory_krv: Floats
    back_memory_krv: Floats
    memory_krv: Floats
    compute_krv: Floats


def with_moving(
    total: Floats,
    work: tuple[Floats, Floats],
    memory: tuple[Floats, Floats],
    moving: tuple[Floats, Floats],
    hop: Floats | float = 0.0,
) -> Floats:
    """Seconds of both passes of layers, each at least as long as its offload transfers.

    Parameters
    ----------
    total : s
        Work of both passes, for which a larger bound than their sum may be known.
    work, memory, moving : s
        For the forward and the backward pass: work, the part of it in which the fastest memory is busy, and offload
        transfers.
    hop : s
        Seconds of a message that each pass sends in addition to its work.
    """
    first, second = (np.where(moved > 0, moved + busy - hop, 0.0) for moved, busy in zip(moving, memory, strict=True))
    ahead, back = work
    return np.asarray(np.maximum(np.maximum(total, first + back), np.maximum(ahead + second, first + second)))


@dataclass(frozen=True, eq=False)
class PassRule:
    """How blocks contribute to each field of :class:`PassSeconds`.

    Attributes
    ----------
    setting : Setting
        Graph, system and resolved assumptions.
    hides : bool
        Whether passes may hide exchanges of copies.
    moves : bool
        Whether slower memories move anything beside passes.
    """

    setting: Setting
    hides: bool
    moves: bool

    @property
    def waits_count(self) -> bool:
        """Whether less work in a pass may lengthen a step, because exchanges then wait for offload transfers."""
        return self.hides and self.moves

    def seconds(self, member_bk: Bools, priced: BlockPrices, order: Sequence[int]) -> tuple[Floats | None, ...]:
        """Contribution of every block to each field, s, shape (vectors, blocks); None for unused fields.

        Parameters
        ----------
        member_bk : bool array, shape (blocks, kernels of the graph)
            Kernels of every block.
        priced : BlockPrices
            Their prices. What does not fit the chip takes forever.
        order : sequence of int
            Blocks in their order, where there is only one. Only Calculon's rule reads it.
        """
        ahead_b = (member_bk & self._forward_k).any(axis=1)
        seen_b = ~(member_bk & frees_memory_k(self.setting)).any(axis=1)
        time, memory = priced.time, priced.seconds[_MEMORY]
        fields: list[Floats | None] = [time * ahead_b, time * ~ahead_b, None, None, None, None]
        if self.moves:
            fields[2:4] = memory * (ahead_b & seen_b), memory * (~ahead_b & seen_b)
        if self.hides and by_window(self.setting.assumptions, self.setting.graph):
            often_b = self._often(member_bk, order)
            fields[4:] = memory * often_b, priced.seconds[_COMPUTE] * often_b
        return tuple(None if each is None else np.where(priced.legal, each, np.inf) for each in fields)

    @cached_property
    def _forward_k(self) -> Bools:
        return np.array([kernel.pass_ == "forward" for kernel in self.setting.graph.kernels], dtype=bool)

    def _often(self, member_bk: Bools, order: Sequence[int]) -> Floats:
        """How often Calculon counts each block in memory and compute time of the backward pass; blocks of one kernel.

        Of what runs again it has running totals (:func:`dfopt.physics.window.running`): a forward kernel counts once
        for every kernel at or behind it that runs again.
        """
        graph = self.setting.graph
        index, of_block_b = graph.index(), np.asarray(member_bk.argmax(axis=1), dtype=np.int64)
        kernels: Ints = of_block_b[np.array(order, dtype=np.int64)]
        again = [index[graph.kernels[k].stage_with or ""] for k in kernels if graph.kernels[k].pass_ == "recompute"]
        often_k = np.zeros(len(graph.kernels))
        for place, k in enumerate(kernels.tolist()):
            behind = set(kernels[place:].tolist())
            late = graph.kernels[k].pass_ != "recompute"
            often_k[k] = sum(at in behind for at in again) if self._forward_k[k] else float(late)
        return np.asarray(often_k[of_block_b])
