"""Weights of resources under which no block takes less than their weighted sum."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Final

import numpy as np

from dfopt.arrays import Floats
from dfopt.judge.items import LayerItems

__all__ = ["Weights"]

_MUCH: Final = 1e30
"""So much of a resource that what every block takes anyhow is no part of its seconds."""


class Weights:
    """Weights of the resources that take time: of seconds of each, as if it were alone.

    Parameters
    ----------
    items : LayerItems
        What blocks pay.
    """

    def __init__(self, items: LayerItems) -> None:
        self._items = items

    def seconds(self, sum_r: Floats) -> float:
        """Seconds that blocks take at least which pay so much together, in seconds of each resource."""
        return float((self.greedy(sum_r[None])[0] * sum_r).sum())

    def greedy(self, sum_cr: Floats) -> Floats:
        """The weights of resources under which the sums of every component come to the most: by the largest first.

        The seconds of a block are positively homogeneous, convex, and add up for sums whose resources are in the same
        order: the largest of w . x for weights w that this finds for the orders of all resources.
        """
        weight_cr = np.zeros_like(sum_cr)
        for sum_r, weight_r in zip(sum_cr, weight_cr, strict=True):
            before, taken = 0.0, 0
            for r in np.argsort(-sum_r, kind="stable").tolist():
                taken |= 1 << r
                weight_r[r] = self._of_set(taken) - before
                before = self._of_set(taken)
        return weight_cr

    def lowered(self, weight_cr: Floats) -> Floats:
        """Any weights, those of a component made smaller together until no block takes less than its weighted sum.

        That is so where no set of resources has a larger weight than the seconds of a block that takes a second of
        each: see :meth:`greedy`.
        """
        number_s = np.arange(1, 1 << weight_cr.shape[1])
        member_sr = number_s[:, None] >> np.arange(weight_cr.shape[1]) & 1
        most_s = np.array([self._of_set(resources) for resources in number_s.tolist()])
        ratio_c: Floats = (weight_cr @ member_sr.T / most_s).max(axis=1, initial=1.0)
        return np.asarray(weight_cr / ratio_c[:, None])

    def _of_set(self, resources: int) -> float:
        """Seconds of a block that takes a second of each of some resources: these are bits."""
        if resources not in self._sets:
            sums_r = np.zeros(len(self._items.resources))
            for number, (r, rate) in enumerate(self.time.items()):
                sums_r[r] = _MUCH / rate if resources >> number & 1 else 0.0
            self._sets[resources] = float(self._beyond(sums_r[None])[0] / _MUCH)
        return self._sets[resources]

    @cached_property
    def _sets(self) -> dict[int, float]:
        return {0: 0.0}

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
