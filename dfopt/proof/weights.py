"""Weights of resources under which no block takes less than their weighted sum."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Final

import numpy as np

from dfopt.arrays import Floats
from dfopt.judge.items import LayerItems

_MUCH: Final = 1e30
"""So much of a resource that what every block takes anyhow is no part of its seconds."""


class Weights:
    """Weights of resources whose weighted sum never exceeds the seconds of a block.

    Parameters
    ----------
    items : LayerItems
        Cost items of blocks.
    """

    def __init__(self, items: LayerItems) -> None:
        self._items = items

    def seconds(self, sum_cr: Floats) -> Floats:
        """Lower bound on seconds by component, from seconds of each resource alone: shape (components, resources)."""
        return np.asarray((self.greedy(sum_cr) * sum_cr).sum(axis=1))

    def greedy(self, sum_cr: Floats) -> Floats:
        """The weights that maximize the weighted sums of each component, by the greedy rule (Edmonds, 1970).

        The seconds of a block are positively homogeneous, convex, and add up for sums whose resources are in the same
        order: the largest of w . x for weights w that this finds for the orders of all resources.
        """
        order_cr = np.argsort(-sum_cr, axis=1, kind="stable")
        taken_cr = np.cumsum(1 << order_cr, axis=1)
        weight_cr = np.zeros_like(sum_cr)
        np.put_along_axis(weight_cr, order_cr, np.diff(self._of_set[taken_cr], axis=1, prepend=0.0), axis=1)
        return weight_cr

    def lowered(self, weight_cr: Floats) -> Floats:
        """Any weights, scaled down by component until no block takes less than its weighted sum.

        That is so where no set of resources has a larger weight than the seconds of a block that takes a second of
        each: see :meth:`greedy`.
        """
        member_rs = np.arange(1, 1 << weight_cr.shape[1]) >> np.arange(weight_cr.shape[1])[:, None] & 1
        ratio_c: Floats = (weight_cr @ member_rs / self._of_set[1:]).max(axis=1, initial=1.0)
        return np.asarray(weight_cr / ratio_c[:, None])

    @cached_property
    def _of_set(self) -> Floats:
        """Seconds of a block that takes a second of each of some resources: these are bits of the place."""
        number_s = np.arange(1 << len(self.time))
        sums_sr = np.zeros((len(number_s), len(self._items.resources)))
        for bit, (r, rate) in enumerate(self.time.items()):
            sums_sr[:, r] = (number_s >> bit & 1) * (_MUCH / rate)
        return self._beyond(sums_sr) / _MUCH

    @cached_property
    def time(self) -> dict[int, float]:
        """Resources that take time, each with the seconds of one unit of it."""
        seconds_r = self._beyond(_MUCH * np.eye(len(self._items.resources))) / _MUCH
        return {r: float(s) for r, s in enumerate(seconds_r) if 0 < s < math.inf}

    def _beyond(self, sums_br: Floats) -> Floats:
        """Seconds of blocks of several kernels beyond those of a block that pays nothing."""
        time = self._items.time.at_most_bandwidth
        nothing = time.seconds(np.zeros((1, len(self._items.resources))), np.array([2]))
        return time.seconds(sums_br, np.full(len(sums_br), 2)) - nothing
