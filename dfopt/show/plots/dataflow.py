"""The graph of a workload, with the partitions that its kernels are fused into and the tensors that are cut."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Final

import networkx as nx

from dfopt.documents.graph import Graph
from dfopt.documents.result import Result
from dfopt.errors import PlanError
from dfopt.show.plots.style import PALETTE, Axes, axes, drawn, entry, head, inches, letters, on, short
from dfopt.units import show_unit

_LETTER: Final = 0.062  # inches that a letter of 6.5 points takes, at most
_TALL: Final = 0.27
_ROW: Final = 0.36  # inches from box to box
_KERNELS: Final = 20  # above which a box is a partition
_PASSES: Final = {"forward": PALETTE["sky"], "backward": PALETTE["orange"], "recompute": PALETTE["yellow"],
                  "update": PALETTE["purple"]}  # fmt: skip
_NONE: Final = (-1, -1)  # stage and partition of a kernel that nobody has mapped
_HEAD: Final = 0.09  # inches of an arrow's head, and between the arrows that come and those that go


@dataclass(frozen=True)
class Diagram:
    """Boxes and arrows of a dataflow plot.

    Attributes
    ----------
    labels, colours : tuple of str
        Text and colour of each box.
    edges : tuple of (int, int)
        Boxes that each arrow joins.
    cut : tuple of bool
        Whether an arrow passes through DRAM.
    sizes : tuple of float, B
        Bytes of each arrow.
    note : str
        Remark on what is left out.
    """

    labels: tuple[str, ...]
    colours: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]
    cut: tuple[bool, ...]
    sizes: tuple[float, ...]
    note: str = ""


def sketch(what: Result | Graph, limit: int = 150) -> Diagram:
    """Boxes and arrows of a result or graph, at most ``limit``: of larger ones whole partitions or first kernels."""
    graph, placed = (what.graph, what.mapping.kernels) if isinstance(what, Result) else (what, ())
    index, count = graph.index(), len(graph.kernels)
    pairs: dict[tuple[int, int], float] = {}
    for tensor in graph.tensors:
        ends = index[tensor.src], index[tensor.dst]
        pairs[ends] = pairs.get(ends, 0.0) + graph.bytes_of(tensor)
    parts = {kernel.name: (kernel.stage, kernel.partition) for kernel in placed}
    place = [parts.get(kernel.name, _NONE) for kernel in graph.kernels]
    passes = [kernel.pass_ for kernel in graph.kernels]
    group = {key: i for i, key in enumerate(sorted(set(parts.values())))}
    several = len({stage for stage, _ in group}) > 1
    words = {key: f"{key[0]}.{key[1]}" if several else str(key[1]) for key in group}
    colours = [_PASSES.get(pass_, "white") if group else "white" for pass_ in passes]
    if group and len(group) <= limit and count > min(limit, _KERNELS):
        inside: dict[tuple[int, int], list[int]] = {key: [] for key in group}
        for old, key in enumerate(place):
            inside[key].append(old)
        labels = [
            f"{words[key]}  {short([graph.kernels[old].name for old in olds], letters(44))}"
            for key, olds in inside.items()
        ]
        cuts: dict[tuple[int, int], float] = {}
        for (src, dst), size in pairs.items():
            if (ends := (group[place[src]], group[place[dst]]))[0] != ends[1]:
                cuts[ends] = cuts.get(ends, 0.0) + size
        shades = tuple(colours[olds[0]] for olds in inside.values())
        note = f"{count} kernels: each box is a partition"
        return Diagram(tuple(labels), shades, tuple(cuts), (True,) * len(cuts), tuple(cuts.values()), note)
    drawn_: nx.DiGraph[int] = nx.DiGraph()
    drawn_.add_nodes_from(range(count))
    drawn_.add_edges_from(pairs)
    # the first ones in an order that respects the arrows, in graph order where it does not say
    kept = list(range(count) if count <= limit else islice(nx.lexicographical_topological_sort(drawn_), limit))
    new = {old: i for i, old in enumerate(kept)}
    edges = {ends: size for ends, size in pairs.items() if ends[0] in new and ends[1] in new}
    return Diagram(
        tuple(f"{words.get(place[old], '')} {short([graph.kernels[old].name], letters(44))}".strip() for old in kept),
        tuple(colours[old] for old in kept),
        tuple((new[src], new[dst]) for src, dst in edges),
        tuple(place[src] != place[dst] for src, dst in edges),
        tuple(edges.values()),
        f"the first {len(kept)} of {count} kernels" if len(kept) < count else "",
    )


@drawn
def dataflow(what: Result | Graph, ax: Axes | None = None, limit: int = 150) -> Axes:
    """Plot the kernels of a graph and the tensors between them; for a result also partitions and cuts.

    The number in front of a kernel is its partition, the colour of its box its pass. Tensors inside a partition are
    thin; those cut, which pass through DRAM, are dashed, the thicker the more bytes they have.

    Of a result with more than 20 kernels each partition is one box; of a graph with more kernels than ``limit`` the
    first are drawn, and a note says so.

    Parameters
    ----------
    what
        A result, or a graph.
    ax : Axes, optional
        Axes to draw in; by default those of a new figure.
    limit : int
        Most boxes, at least 2.

    Raises
    ------
    PlanError
        If ``limit`` is below 2.

    Examples
    --------
    >>> import dfopt as df
    >>> len(df.plot.dataflow(df.load_graph("gpt2-small")).texts)
    18
    """
    from matplotlib.colors import to_rgba
    from matplotlib.patches import FancyBboxPatch, PathPatch, Polygon
    from matplotlib.path import Path

    if limit < 2:
        raise PlanError(f"dataflow: limit: found {limit}, expected 2 or more boxes")
    drawing = sketch(what, limit)
    widths = [_LETTER * len(label) + 0.16 for label in drawing.labels]
    wide, tall = max(widths, default=0.0), _ROW * len(widths)
    longest = max([abs(dst - src) for src, dst in drawing.edges] or [1])
    reach = min(max(inches(7.0) - 0.3 - wide, 0.5), 0.5 * longest + 0.2)
    ax = axes(ax, max(inches(5.0), wide + reach + 0.3), tall + 0.3)
    largest = max([size for size, cut in zip(drawing.sizes, drawing.cut, strict=True) if cut], default=1.0) or 1.0
    for (src, dst), cut, size in zip(drawing.edges, drawing.cut, drawing.sizes, strict=True):
        start, end = tall - _ROW * (src + 0.5) - _HEAD / 2, tall - _ROW * (dst + 0.5) + _HEAD / 2
        far = wide + (0.2 + (reach - 0.2) * abs(dst - src) / longest) / 0.75  # a curve goes 3/4 of the way there
        tip = wide + 0.8 * _HEAD
        colour = "black" if cut else "#7F7F7F"
        curve = Path([(wide, start), (far, start), (far, end), (tip, end)], [Path.MOVETO, *[Path.CURVE4] * 3])
        ax.add_patch(PathPatch(
            curve, fill=False, linewidth=0.8 + 1.4 * size / largest if cut else 0.7, capstyle="butt",
            linestyle=(0, (3, 1.5)) if cut else "-", gid=f"tensor-{src}-{dst}", color=colour, zorder=1,
        ))  # fmt: skip
        # the head is a patch of its own: dashes would break its outline
        corners = [(wide, end), (wide + _HEAD, end + 0.38 * _HEAD), (wide + _HEAD, end - 0.38 * _HEAD)]
        ax.add_patch(Polygon(corners, linewidth=0, gid=f"head-{src}-{dst}", color=colour, zorder=1))
    for row, (label, colour, width) in enumerate(zip(drawing.labels, drawing.colours, widths, strict=True)):
        y = tall - _ROW * (row + 0.5)
        ax.add_patch(FancyBboxPatch(
            (wide - width, y - _TALL / 2), width, _TALL, boxstyle="round,pad=0,rounding_size=0.06",
            facecolor=colour, edgecolor="black", linewidth=0.7, zorder=2,
        ))  # fmt: skip
        ax.text(wide - width / 2, y, label, ha="center", va="center", fontsize=6.5, zorder=3,
                color=on(to_rgba(colour)), parse_math=False)  # fmt: skip
    ax.set(xlim=(-0.1, wide + reach + 0.1), ylim=(-0.1, tall + 0.1))
    ax.set_aspect("equal", anchor="NW")  # a narrow graph starts below its title, not in the middle of the figure
    ax.set_axis_off()
    _head(ax, what, drawing, largest)
    return ax


def _head(ax: Axes, what: Result | Graph, drawing: Diagram, largest: float) -> None:
    handles = []
    if isinstance(what, Result):
        parts = len({(kernel.stage, kernel.partition) for kernel in what.mapping.kernels})
        cuts = sum(drawing.cut)
        text = f"{what.mapping.graph}: {parts} partition{'s' * (parts != 1)}, {cuts} cut{'s' * (cuts != 1)}"
        inside = entry("tensor in a partition (SRAM)", color="#7F7F7F", linewidth=0.7, linestyle="-")
        cut = entry(f"cut tensor (DRAM), at most {show_unit(largest, 'bytes', 3)}", color="black", linewidth=1.8,
                    linestyle=(0, (3, 1.5)))  # fmt: skip
        handles = [
            *[inside] * (cuts < len(drawing.cut)), *[cut] * (cuts > 0),
            *(entry(name.replace("recompute", "computed again"), marker="s", color=colour, markeredgecolor="black")
              for name, colour in _PASSES.items() if colour in drawing.colours),
        ]  # fmt: skip
    else:
        text = f"{what.name}: {len(what.kernels)} kernels, {len(what.tensors)} tensors"
    head(ax, f"{text}\n{drawing.note}" if drawing.note else text, handles)
