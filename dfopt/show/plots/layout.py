"""Where the nodes of a drawn graph go: a layered layout of our own, or Graphviz where ``dot`` is installed.

The layered layout is Sugiyama, Tagawa and Toda's (IEEE Trans. SMC 11(2), 1981): levels by longest path, edges of
several levels cut by points of their own, the order within levels by barycentres in sweeps down and up.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dfopt.errors import PlanError

__all__ = ["Layout", "Point", "by_dot", "layered"]

Point = tuple[float, float]
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


def layered(widths: Sequence[float], edges: Sequence[tuple[int, int]], row: float = 0.55) -> Layout:
    """Levels from top to bottom.

    Parameters
    ----------
    widths : sequence of float
        Of every node, in inches.
    edges : sequence of (int, int)
        Of an acyclic graph, by positions of nodes.
    row : float
        Inches from level to level.

    Examples
    --------
    >>> layered([1.0, 1.0, 1.0], [(0, 1), (0, 2)], row=0.5).centres[0]  # above, in the middle between the two
    (1.175, 0.75)
    """
    count = len(widths)
    level = _levels(count, edges)
    size = list(widths)
    chains: list[list[int]] = []
    links: list[tuple[int, int]] = []
    for src, dst in edges:
        chain = [src]
        for between in range(level[src] + 1, level[dst]):
            chain.append(len(size))
            size.append(_THIN)
            level.append(between)
        chain.append(dst)
        chains.append(chain)
        links += list(pairwise(chain))
    rows: list[list[int]] = [[] for _ in range(max(level, default=-1) + 1)]
    for node, at in enumerate(level):
        rows[at].append(node)
    above: list[list[int]] = [[] for _ in size]
    below: list[list[int]] = [[] for _ in size]
    for src, dst in links:
        above[dst].append(src)
        below[src].append(dst)
    _untangle(rows, above, below)
    x = _across(rows, above, below, size)
    deep = len(rows)
    y = [(deep - at - 0.5) * row for at in level]
    left = min((x[n] - size[n] / 2 for n in range(len(size))), default=0.0)
    right = max((x[n] + size[n] / 2 for n in range(len(size))), default=0.0)
    spots = [(x[n] - left, y[n]) for n in range(len(size))]
    ways = tuple(tuple(point for n in chain for point in _through(spots[n], n >= count, row)) for chain in chains)
    return Layout(tuple(spots[:count]), ways, right - left, deep * row)


def _through(spot: Point, between: bool, row: float) -> tuple[Point, ...]:
    """An edge goes straight down past the boxes of a level."""
    x, y = spot
    return ((x, y + 0.28 * row), (x, y - 0.28 * row)) if between else (spot,)


def _levels(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The longest way from a source to each node."""
    level = [0] * count
    waits = [0] * count
    out: list[list[int]] = [[] for _ in range(count)]
    for src, dst in edges:
        out[src].append(dst)
        waits[dst] += 1
    ready = [node for node in range(count) if not waits[node]]
    while ready:
        node = ready.pop()
        for dst in out[node]:
            level[dst] = max(level[dst], level[node] + 1)
            waits[dst] -= 1
            if not waits[dst]:
                ready.append(dst)
    return level


def _untangle(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    """Order every level by the mean place of its neighbours, in sweeps down and up."""
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        fixed, near = (0, above) if down else (len(rows) - 1, below)
        for at in range(len(rows)) if down else reversed(range(len(rows))):
            if at == fixed:
                continue
            place = {node: i for i, node in enumerate(rows[at - 1 if down else at + 1])}
            own = {node: i for i, node in enumerate(rows[at])}
            means = {n: sum(place[o] for o in near[n]) / len(near[n]) if near[n] else own[n] for n in rows[at]}
            rows[at].sort(key=lambda n, m=means, o=own: (m[n], o[n]))  # type: ignore[misc]


def _across(rows: list[list[int]], above: list[list[int]], below: list[list[int]], size: list[float]) -> list[float]:
    """Places from left to right: near the neighbours, without overlap, in the order of each level."""
    x = [0.0] * len(size)
    for line in rows:
        end = 0.0
        for node in line:
            x[node] = end + size[node] / 2
            end += size[node] + 0.35
    for sweep in range(2 * _SWEEPS):
        for line in rows if sweep % 2 == 0 else reversed(rows):
            wish = []
            for node in line:
                near = [x[o] for o in (*above[node], *below[node])]
                wish.append(sum(near) / len(near) if near else x[node])
            for node, place in zip(line, _spread(wish, [size[node] for node in line]), strict=True):
                x[node] = place
    return x


def _spread(wish: list[float], size: list[float]) -> list[float]:
    """The places nearest to those wished for, in order and apart: the mean of packing from the left and the right."""

    def packed(places: list[float], widths: list[float]) -> list[float]:
        found: list[float] = []
        for place, width in zip(places, widths, strict=True):
            before = widths[len(found) - 1]
            apart = 0.12 if _THIN in (before, width) else 0.35
            least = found[-1] + (before + width) / 2 + apart if found else place
            found.append(max(place, least))
        return found

    left = packed(wish, size)
    right = [-place for place in packed([-place for place in wish[::-1]], size[::-1])][::-1]
    return [(a + b) / 2 for a, b in zip(left, right, strict=True)]


def by_dot(widths: Sequence[float], edges: Sequence[tuple[int, int]], height: float = 0.27) -> Layout:
    """The layout of Graphviz' ``dot``, with ways from edge to edge of boxes of this height in inches.

    Raises
    ------
    PlanError
        If ``dot`` is not installed, or fails.
    """
    program = shutil.which("dot")
    if program is None:
        raise PlanError("dataflow: found no program 'dot', expected Graphviz; install it, or take layout='layered'")
    # Without limits on the network simplex (https://graphviz.org/docs/attrs/nslimit/) a deep graph of 246 kernels takes
    # more than a minute, with them 5 s. Its own arrow heads would end the curves before the boxes.
    limits = "nslimit=2; nslimit1=2; mclimit=0.5;"
    lines = ["digraph g {", "ranksep=0.35;", limits, "node [shape=box, fixedsize=true];", "edge [dir=none];"]
    lines += [f'n{i} [label="", width={width:.4f}, height={height}];' for i, width in enumerate(widths)]
    lines += [f"n{src} -> n{dst};" for src, dst in edges]
    try:
        done = subprocess.run(
            [program, "-Tplain"], input="\n".join([*lines, "}"]), capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", "") or error).strip().splitlines()
        raise PlanError(f"dataflow: 'dot' failed: {said[0] if said else error}; take layout='layered'") from None
    return _plain(done.stdout, len(widths), edges)


def _plain(text: str, count: int, edges: Sequence[tuple[int, int]]) -> Layout:
    """Graphviz' plain format: https://graphviz.org/docs/outputs/plain/."""
    centres: dict[int, Point] = {}
    ways: dict[tuple[int, int], list[tuple[Point, ...]]] = {}
    width = height = 0.0
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["graph"]:
            width, height = float(words[2]), float(words[3])
        elif words[:1] == ["node"]:
            centres[int(words[1][1:])] = (float(words[2]), float(words[3]))
        elif words[:1] == ["edge"]:
            numbers = [float(word) for word in words[4 : 4 + 2 * int(words[3])]]
            ends = int(words[1][1:]), int(words[2][1:])
            ways.setdefault(ends, []).append(tuple(zip(numbers[::2], numbers[1::2], strict=True)))
    if len(centres) != count or sum(map(len, ways.values())) != len(edges):
        raise PlanError("dataflow: 'dot' answered with another graph; take layout='layered'")
    return Layout(
        tuple(centres[i] for i in range(count)), tuple(ways[ends].pop(0) for ends in edges), width, height, curved=True
    )
