"""Where the nodes of a drawn graph go: in levels, or in one column.

The layered layout is Sugiyama, Tagawa and Toda's (IEEE Trans. SMC 11(2), 1981): levels by longest path, edges of
several levels cut by points of their own, the order within levels by barycentres in sweeps down and up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import networkx as nx
import numpy as np
from numpy.typing import NDArray

__all__ = ["Layout", "Point", "layered", "stacked"]

Point = tuple[float, float]
Floats = NDArray[np.float64]
_ROW = 0.55  # inches from level to level
_SWEEPS = 12
_THIN = 0.06  # inches that an edge takes on its way past a level


@dataclass(frozen=True)
class Layout:
    """Centres of nodes and the way of each edge, in inches, y upwards; ``curved``: ways are cubic Bezier curves."""

    centres: tuple[Point, ...]
    ways: tuple[tuple[Point, ...], ...]
    width: float
    height: float
    curved: bool = False


def stacked(widths: Sequence[float], edges: Sequence[tuple[int, int]], room: float) -> Layout:
    """One column in the order of the nodes, with arcs at its right side, the longer the wider, up to ``room`` inches.

    Examples
    --------
    >>> stacked([1.0, 1.0, 1.0], [(0, 1), (0, 2)], 3.0).centres
    ((0.5, 0.86), (0.5, 0.5), (0.5, 0.14))
    """
    wide, count = max(widths, default=0.0), len(widths)
    centres = tuple((wide / 2, round(0.14 + 0.36 * (count - 1 - node), 9)) for node in range(count))
    longest = max([abs(dst - src) for src, dst in edges] or [1])
    ways = []
    for src, dst in edges:
        reach = abs(dst - src) / longest  # an arc goes three quarters of the way to its control points
        bulge = 0.15 + reach * (min(max(room - wide, 0.4), 0.5 * longest) - 0.15)
        ends = [(centres[node][0] + widths[node] / 2, centres[node][1]) for node in (src, dst)]
        right = max(x for x, _ in ends) + bulge / 0.75
        ways.append((ends[0], (right, ends[0][1]), (right, ends[1][1]), ends[1]))
    return Layout(centres, tuple(ways), max(room, wide + 0.5), 0.36 * (count - 1) + 0.28, curved=True)


def layered(widths: Sequence[float], edges: Sequence[tuple[int, int]]) -> Layout:
    """Levels from top to bottom of an acyclic graph whose nodes are as wide as ``widths``, in inches."""
    count = len(widths)
    whole: nx.DiGraph[int] = nx.DiGraph(edges)
    whole.add_nodes_from(range(count))
    at = {node: level for level, nodes in enumerate(nx.topological_generations(whole)) for node in nodes}
    size = list(widths)
    chains: list[list[int]] = []
    links: nx.DiGraph[int] = nx.DiGraph()
    links.add_nodes_from(range(count))
    for src, dst in edges:
        between = range(len(size), len(size) + at[dst] - at[src] - 1)
        size += [_THIN] * len(between)
        at.update(zip(between, range(at[src] + 1, at[dst]), strict=True))
        chains.append([src, *between, dst])
        nx.add_path(links, chains[-1])
    rows: list[list[int]] = [[] for _ in range(max(at.values(), default=-1) + 1)]
    for node in range(len(size)):
        rows[at[node]].append(node)
    _untangle(rows, links)
    wide = np.array(size)
    x = _across(rows, links, wide)
    left, right = ((x - wide / 2).min(), (x + wide / 2).max()) if count else (0.0, 0.0)
    spots = [(float(x[node] - left), (len(rows) - at[node] - 0.5) * _ROW) for node in range(len(size))]
    # an edge goes straight down past the boxes of a level
    past = [[(x, y + 0.28 * _ROW), (x, y - 0.28 * _ROW)] if i >= count else [(x, y)] for i, (x, y) in enumerate(spots)]
    ways = tuple(tuple(point for node in chain for point in past[node]) for chain in chains)
    return Layout(tuple(spots[:count]), ways, float(right - left), len(rows) * _ROW)


def _untangle(rows: list[list[int]], links: nx.DiGraph[int]) -> None:
    """Order every level by the mean place of its neighbours, in sweeps down and up."""
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        near = links.pred if down else links.succ
        for at in range(1, len(rows)) if down else reversed(range(len(rows) - 1)):
            place = {node: i for i, node in enumerate(rows[at - 1 if down else at + 1])}
            means = {n: fmean(place[o] for o in near[n]) if near[n] else i for i, n in enumerate(rows[at])}
            rows[at].sort(key=means.__getitem__)


def _across(rows: list[list[int]], links: nx.DiGraph[int], size: Floats) -> Floats:
    """Places from left to right: near the neighbours, without overlap, in the order of each level."""
    near = [[*links.pred[node], *links.succ[node]] for node in range(len(size))]
    x = np.zeros(len(size))
    for line in rows:
        x[line] = np.cumsum(size[line] + 0.35) - size[line] / 2 - 0.35
    for sweep in range(2 * _SWEEPS):
        for line in rows if sweep % 2 == 0 else reversed(rows):
            x[line] = _spread(np.array([x[near[n]].mean() if near[n] else x[n] for n in line]), size[line])
    return x


def _spread(wish: Floats, size: Floats) -> Floats:
    """The places nearest to those wished for, in order and apart: the mean of packing from the left and the right."""
    thin = size == _THIN
    apart = (size[1:] + size[:-1]) / 2 + np.where(thin[1:] | thin[:-1], 0.12, 0.35)
    packed = np.concatenate([[0.0], np.cumsum(apart)])
    free = wish - packed
    return packed + (np.maximum.accumulate(free) + np.minimum.accumulate(free[::-1])[::-1]) / 2
