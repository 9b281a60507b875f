"""The graph of a workload, with the partitions that its kernels are fused into and the tensors that are cut."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal

import networkx as nx

from dfopt.documents.graph import Graph
from dfopt.documents.result import Result
from dfopt.errors import PlanError
from dfopt.show.plots.layout import Layout, Point, by_dot, layered
from dfopt.show.plots.style import CYCLE, Axes, axes, drawn, entry, head, on

__all__ = ["dataflow"]

_LETTER: Final = 0.062  # inches that a letter of 6.5 points takes, at most
_TALL: Final = 0.27
_NONE: Final = (-1, -1)  # stage and partition of a kernel that nobody has mapped
_HEAD: Final = 0.09  # inches of an arrow's head


@dataclass(frozen=True)
class Sketch:
    """What is drawn: boxes with their text and the number of their colour, arrows and whether they are cut."""

    labels: tuple[str, ...]
    groups: tuple[int | None, ...]
    edges: tuple[tuple[int, int], ...]
    cut: tuple[bool, ...]
    note: str = ""


def sketch(what: Result | Graph, limit: int = 150) -> Sketch:
    """At most ``limit`` boxes, and arrows; of what is larger, partitions as a whole, or the first kernels."""
    graph, placed = (what.graph, what.mapping.kernels) if isinstance(what, Result) else (what, ())
    index, count = graph.index(), len(graph.kernels)
    pairs = dict.fromkeys((index[tensor.src], index[tensor.dst]) for tensor in graph.tensors)
    known = {kernel.name: (kernel.stage, kernel.partition) for kernel in placed}
    place = [known.get(kernel.name, _NONE) for kernel in graph.kernels]
    group = {key: i for i, key in enumerate(sorted(set(known.values())))}
    several = len({stage for stage, _ in group}) > 1
    words = {key: f"{key[0]}.{key[1]}" if several else str(key[1]) for key in group}
    if group and len(group) <= limit < count:
        sizes = [place.count(key) for key in group]
        labels = [f"{words[key]}: {n} kernel{'' if n == 1 else 's'}" for key, n in zip(group, sizes, strict=True)]
        cut = dict.fromkeys((group[place[s]], group[place[d]]) for s, d in pairs if place[s] != place[d])
        note = f"{count} kernels: each box is a partition"
        return Sketch(tuple(labels), tuple(group.values()), tuple(cut), (True,) * len(cut), note)
    whole: nx.DiGraph[int] = nx.DiGraph()
    whole.add_nodes_from(range(count))
    whole.add_edges_from(pairs)
    # the first ones in an order that respects the arrows, in graph order where it does not say
    kept = list(range(count) if count <= limit else islice(nx.lexicographical_topological_sort(whole), limit))
    new = {old: i for i, old in enumerate(kept)}
    inside = [(src, dst) for src, dst in pairs if src in new and dst in new]
    return Sketch(
        tuple(f"{words.get(place[old], '')} {graph.kernels[old].name}".strip() for old in kept),
        tuple(group.get(place[old]) for old in kept),
        tuple((new[src], new[dst]) for src, dst in inside),
        tuple(place[src] != place[dst] for src, dst in inside),
        f"the first {len(kept)} of {count} kernels" if len(kept) < count else "",
    )


@drawn
def dataflow(
    what: Result | Graph, ax: Axes | None = None, layout: Literal["auto", "dot", "layered"] = "auto", limit: int = 150
) -> Axes:
    """Draw the kernels of a graph and the tensors between them; of a result with its partitions and what they cut.

    The number in front of a kernel and the colour of its box are its partition. Tensors inside a partition are thin;
    those cut, which pass through DRAM, are thick and dashed.

    ``layout`` is ``dot`` for Graphviz, ``layered`` for our own, or ``auto`` for Graphviz where it is installed. Of a
    graph with more kernels than ``limit`` each partition is one box, or else only the first kernels are drawn, and a
    note says so. `PlanError` if ``layout`` or ``limit`` cannot be.

    Examples
    --------
    >>> import dfopt as df
    >>> len(df.plot.dataflow(df.load_graph("gpt2-small"), layout="layered").texts)
    18
    """
    from matplotlib.colors import to_rgba
    from matplotlib.patches import FancyBboxPatch, PathPatch, Polygon
    from matplotlib.path import Path

    if layout not in ("auto", "dot", "layered"):
        raise PlanError(f"dataflow: layout: found {layout!r}, expected one of auto, dot, layered")
    if limit < 2:
        raise PlanError(f"dataflow: limit: found {limit}, expected 2 or more boxes")
    made = sketch(what, limit)
    widths = [_LETTER * len(label) + 0.16 for label in made.labels]
    use_dot = layout == "dot" or (layout == "auto" and shutil.which("dot") is not None)
    spots: Layout = by_dot(widths, made.edges, _TALL) if use_dot else layered(widths, made.edges)
    ax = axes(ax, max(5.0, spots.width + 0.4), max(1.2, spots.height + 0.3))
    thick = 1.8 if sum(made.cut) <= 40 else 1.1
    for (src, dst), way, cut in zip(made.edges, spots.ways, made.cut, strict=True):
        points = list(way)
        if not spots.curved:  # from edge to edge of the boxes
            points[0] = (points[0][0], points[0][1] - _TALL / 2)
            points[-1] = (points[-1][0], points[-1][1] + _TALL / 2)
        points[-1], corners = _arrow_head(points[-2], points[-1])
        codes = [Path.MOVETO, *[Path.CURVE4 if spots.curved else Path.LINETO] * (len(points) - 1)]
        colour = "black" if cut else "#7F7F7F"
        ax.add_patch(
            PathPatch(
                Path(points, codes), fill=False, edgecolor=colour, linewidth=thick if cut else 0.7,
                linestyle=(0, (3, 1.5)) if cut else "-", zorder=1, joinstyle="round", capstyle="butt",
                gid=f"tensor-{src}-{dst}",
            )
        )  # fmt: skip
        # the head is a patch of its own: dashes would break its outline
        ax.add_patch(Polygon(corners, facecolor=colour, edgecolor="none", zorder=1.5, gid=f"head-{src}-{dst}"))
    for label, group, (x, y), wide in zip(made.labels, made.groups, spots.centres, widths, strict=True):
        colour = "white" if group is None else CYCLE[group % len(CYCLE)]
        ax.add_patch(
            FancyBboxPatch(
                (x - wide / 2, y - _TALL / 2), wide, _TALL, boxstyle="round,pad=0,rounding_size=0.06",
                facecolor=colour, edgecolor="black", linewidth=0.7, zorder=2,
            )
        )  # fmt: skip
        ax.text(
            x, y, label, ha="center", va="center", fontsize=6.5, zorder=3, color=on(to_rgba(colour)), parse_math=False
        )
    ax.set(xlim=(-0.1, max(spots.width, 1e-3) + 0.1), ylim=(-0.1, spots.height + 0.1))
    ax.set_aspect("equal", anchor="NW")  # a narrow graph starts below its title, not in the middle of the figure
    ax.set_axis_off()
    _head(ax, what, made, thick)
    return ax


def _arrow_head(before: Point, tip: Point) -> tuple[Point, list[Point]]:
    """Where the line ends inside the head, and the corners of the head."""
    length = math.dist(before, tip) or 1.0
    x, y = (_HEAD * (there - here) / length for here, there in zip(before, tip, strict=True))
    end = (tip[0] - x, tip[1] - y)
    return end, [tip, (end[0] - 0.38 * y, end[1] + 0.38 * x), (end[0] + 0.38 * y, end[1] - 0.38 * x)]


def _head(ax: Axes, what: Result | Graph, made: Sketch, thick: float) -> None:
    handles = []
    if isinstance(what, Result):
        parts = len({(kernel.stage, kernel.partition) for kernel in what.mapping.kernels})
        text = f"{what.mapping.graph}: {parts} partition{'' if parts == 1 else 's'}, {sum(made.cut)} cuts"
        handles = [
            entry("tensor in a partition (SRAM)", color="#7F7F7F", linewidth=0.7, linestyle="-"),
            entry("cut tensor (DRAM)", color="black", linewidth=thick, linestyle=(0, (3, 1.5))),
        ]
    else:
        text = f"{what.name}: {len(what.kernels)} kernels, {len(what.tensors)} tensors"
    head(ax, f"{text}\n{made.note}" if made.note else text, handles)
