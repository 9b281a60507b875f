"""Regions under way, and the order in which they come to the top."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol

from dfopt.bnb.answers import Bound, RegionT

Priority = tuple[float, ...]


@dataclass(eq=False)
class Node(Generic[RegionT]):
    """An open region with its current bound and the relaxations that have answered.

    Attributes
    ----------
    number
        Its place in the proof log.
    bound
        The highest known bound, with the witness of the last relaxation that gave one.
    answered
        Number of relaxations that have had their say.
    deferrals
        Number of times that a relaxation stopped on it before its bound was final.
    read
        Number of refinements of the unfinished relaxation's answer when it was last read.
    """

    region: RegionT
    number: int
    bound: Bound
    answered: int = 0
    deferrals: int = 0
    read: int = 0


class NodeSelection(Protocol):
    """Order in which open nodes are taken up."""

    def priority(self, node: Node[RegionT]) -> Priority:
        """Sort key of a node: the least comes first, and of equal keys the one that waits longest."""
        ...


class BestFirst:
    """Best-first selection: the least bound first; of equal bounds the one that more relaxations have confirmed.

    Nodes whose relaxation stopped early wait until all others are done.
    """

    def priority(self, node: Node[RegionT]) -> Priority:
        """The sort key (deferrals, bound, relaxations that have answered with a minus sign)."""
        return node.deferrals, node.bound.value, -node.answered


@dataclass
class OpenNodes(Generic[RegionT]):
    """Priority queue of open nodes; a node stays until its replacement is put in, so an interrupt loses none."""

    selection: NodeSelection
    _heap: list[tuple[Priority, int, int, Node[RegionT]]] = field(default_factory=list)
    _lows: list[tuple[float, int, Node[RegionT]]] = field(default_factory=list)
    _stamps: dict[int, int] = field(default_factory=dict)  # by number of a node: its valid entry
    _since: dict[int, int] = field(default_factory=dict)  # and since when it waits
    _count: Iterator[int] = field(default_factory=itertools.count)

    def __len__(self) -> int:
        return len(self._stamps)

    def put(self, node: Node[RegionT], *, same_turn: bool = False) -> None:
        """Add a node or re-sort it by its new bound: behind nodes of equal priority, unless ``same_turn`` is set."""
        stamp = next(self._count)
        since = self._since.get(node.number, stamp) if same_turn else stamp
        heapq.heappush(self._heap, (self.selection.priority(node), since, stamp, node))
        heapq.heappush(self._lows, (node.bound.value, stamp, node))
        self._stamps[node.number], self._since[node.number] = stamp, since

    def remove(self, node: Node[RegionT]) -> None:
        """Remove a node from the queue."""
        del self._stamps[node.number], self._since[node.number]

    def first(self) -> Node[RegionT]:
        """The node that comes next, without removing it."""
        while self._stamps.get(self._heap[0][3].number) != self._heap[0][2]:
            heapq.heappop(self._heap)
        return self._heap[0][3]

    def least(self) -> float:
        """The least bound of all open nodes; infinite if there are none."""
        while self._lows and self._stamps.get(self._lows[0][2].number) != self._lows[0][1]:
            heapq.heappop(self._lows)
        return self._lows[0][0] if self._lows else math.inf

    def in_order(self) -> list[Node[RegionT]]:
        """All open nodes in the order in which they would come."""
        valid = (entry for entry in self._heap if self._stamps.get(entry[3].number) == entry[2])
        return [entry[3] for entry in sorted(valid, key=lambda entry: entry[:3])]
