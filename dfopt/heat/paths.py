"""Shortest paths over the arcs of a heat problem: level by level, every block at its cheapest operating point."""

from __future__ import annotations

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.heat.problem import HeatStage


class Paths:
    """Shortest paths through the arcs of one stage, for any costs.

    Parameters
    ----------
    stage : HeatStage
        Arcs; sorted once by step and by tail.

    Examples
    --------
    >>> arcs = np.array([0, 0, 1]), np.array([1, 2, 2]), np.arange(3), np.array([0, 0, 1])
    >>> paths = Paths(HeatStage(*arcs, 3, np.ones((3, 1)), np.ones((3, 1))))
    >>> cost = np.array([1.0, 5.0, 2.0])
    >>> paths.shortest(cost).tolist(), paths.through(cost).tolist()
    ([0, 2], [3.0, 5.0, 3.0])
    """

    def __init__(self, stage: HeatStage) -> None:
        self.stage = stage
        self.order = np.argsort(stage.step, kind="stable")
        steps = stage.step[self.order]
        ends = np.flatnonzero(np.diff(steps)) + 1
        self.groups = np.split(self.order, ends) if len(self.order) else []
        self.by_tail = np.argsort(stage.tail, kind="stable")
        self.first = np.searchsorted(stage.tail[self.by_tail], np.arange(stage.nodes + 1))

    def cheapest(self, cost_cl: Floats) -> tuple[Floats, Ints]:
        """Cost of every arc at its best clock level, and that level (0 for an empty partition)."""
        stage = self.stage
        level_c = np.argmin(cost_cl, axis=1)
        least_c = cost_cl[np.arange(len(cost_cl)), level_c]
        empty = stage.block < 0
        return np.where(empty, 0.0, least_c[stage.block]), np.where(empty, 0, level_c[stage.block]).astype(np.int64)

    def to_go(self, cost: Floats) -> Floats:
        """Least cost from every node to the last one."""
        cost_to_go = np.full(self.stage.nodes, np.inf)
        cost_to_go[-1] = 0.0
        for group in reversed(self.groups):
            np.minimum.at(cost_to_go, self.stage.tail[group], cost[group] + cost_to_go[self.stage.head[group]])
        return cost_to_go

    def through(self, cost: Floats) -> Floats:
        """Least cost of a path through every arc."""
        cost_from_start = np.full(self.stage.nodes, np.inf)
        cost_from_start[0] = 0.0
        for group in self.groups:
            np.minimum.at(
                cost_from_start, self.stage.head[group], cost[group] + cost_from_start[self.stage.tail[group]]
            )
        cost_through: Floats = cost_from_start[self.stage.tail] + cost + self.to_go(cost)[self.stage.head]
        return cost_through

    def shortest(self, cost: Floats, to_go: Floats | None = None) -> Ints:
        """Arcs of a least-cost path, in order.

        Raises
        ------
        ValueError
            If no path leads to the last node.
        """
        left = self.to_go(cost) if to_go is None else to_go
        at, path = 0, []
        while at != self.stage.nodes - 1:
            out = self.by_tail[self.first[at] : self.first[at + 1]]
            rest = cost[out] + left[self.stage.head[out]]
            if not len(out) or not np.isfinite(rest.min()):
                raise ValueError(f"no path leads on from node {at}")
            arc = int(out[np.argmin(rest)])
            path.append(arc)
            at = int(self.stage.head[arc])
        return np.array(path, dtype=np.int64)
