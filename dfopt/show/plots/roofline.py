"""The hierarchical roofline: every partition against the ceilings of compute, DRAM and network."""

from __future__ import annotations

import math
from typing import Any

from dfopt.documents.result import Result
from dfopt.documents.score import PartitionScore
from dfopt.documents.system import NetworkDim
from dfopt.errors import PlanError
from dfopt.physics.dtypes import rate
from dfopt.physics.pipeline import resolve
from dfopt.physics.schedule import TERMS
from dfopt.show.plots.style import (
    BLACK,
    LOOKS,
    Axes,
    axes,
    drawn,
    entry,
    free_labels,
    gridlines,
    head,
    on_stack,
    unit_ticks,
)
from dfopt.units import format as show_unit

__all__ = ["roofline"]

_MARKERS = {"memory": "o", "network": "D"}
_LINES = {"memory": "-", "network": "--"}


def injection_bandwidth(dim: NetworkDim) -> float:
    """Bytes per second that a chip can send into a network dim, over all its links of that dim."""
    links = {"ring": 2, "line": 2, "switch": 1, "fully_connected": max(dim.size - 1, 1)}[dim.topology]
    return links * dim.link_bandwidth


def network_bandwidth(result: Result) -> float | None:
    """What a chip can send per second into the fastest dim that carries tensor parallelism; of all dims if none does.

    None for a system of one chip.
    """
    dims = [result.system.dim(name) for name in result.plan.shard_dims] or list(result.system.network)
    return max((injection_bandwidth(dim) for dim in dims if dim.size > 1), default=None)


def _intensities(part: PartitionScore, network_bytes_per_s: float | None) -> dict[str, float]:
    """FLOP per byte of DRAM and of network of a partition; without those that it does not use.

    Network bytes are those that the links could have moved in its network time, so latency counts as bytes: the
    roof then holds for every collective and topology.
    """
    moved = {"memory": part.dram_bytes, "network": part.network_s * (network_bytes_per_s or 0.0)}
    return {kind: part.flop / count for kind, count in moved.items() if count > 0}


@drawn
def roofline(result: Result, ax: Axes | None = None) -> Axes:
    """Draw every partition at its intensities and the rate it reaches, under the ceilings of one chip.

    A partition has two points at one height: a circle at its FLOP per byte of DRAM, a diamond at its FLOP per byte of
    network. Their area is its share of the time of a layer, their colour what binds it. The form follows DFModel (Ko et
    al.), Fig. 18. `PlanError` if no partition computes anything.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.solve(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
    >>> df.plot.roofline(result).get_ylabel()
    'rate per chip'
    """
    sends = network_bandwidth(result)
    parts = [part for part in result.score.partitions if part.flop > 0 and part.time_s > 0]
    dots = [(part, kind, x) for part in parts for kind, x in _intensities(part, sends).items()]
    if not dots:
        raise PlanError("roofline: found no partition that computes and moves bytes, expected at least one")
    ax = axes(ax, 7.2, 4.2)
    chip = result.system.chip
    assumed = resolve(result.assumptions, chip.execution, chip.compute_utilization)
    rates = sorted({rate(result.graph, kernel, chip) for kernel in result.graph.kernels}, reverse=True)
    peak = rates[0]
    shared = assumed.compute_utilization if assumed.compute_model == "fixed" else None  # else kernels have their own
    slopes = {"memory": chip.fastest.bandwidth}
    if sends and any(kind == "network" for _, kind, _ in dots):
        slopes["network"] = sends
    corners = [peak / slope for slope in slopes.values()]
    left = min([x for *_, x in dots] + corners) / 3
    right = max([x for *_, x in dots] + corners) * 3
    low = min(part.flop / part.time_s for part in parts) / 2.5
    ax.set(xscale="log", yscale="log", xlim=(left, right), ylim=(low, peak * 2))
    unit_ticks(ax.xaxis, lambda value: f"{value:g}")
    unit_ticks(ax.yaxis, lambda value: show_unit(value, "flop_rate", 3))
    handles: list[Any] = []
    ceilings = [(kind, one, share) for one in rates for kind, share in (("peak", 1.0), ("sustained", shared))]
    for kind, one, share in ceilings:  # of every type that some kernel computes in
        if share is not None:
            level, (width, style) = share * one, (1.4, "-") if kind == "peak" else (0.9, ":")
            label = f"{kind} {show_unit(level, 'flop_rate', 3)}"
            edge = [level / max(slopes.values()), right]
            handles += ax.plot(edge, [level, level], color=BLACK, linewidth=width, linestyle=style, label=label)
    for kind, slope in slopes.items():
        label = f"{LOOKS[kind].label} {show_unit(slope, 'bandwidth', 3)}"
        handles += ax.plot(
            [left, peak / slope], [left * slope, peak], color=LOOKS[kind].colour, linewidth=1.4, linestyle=_LINES[kind],
            label=label,
        )  # fmt: skip
    whole = sum(part.time_s for part in parts)
    for part, kind, x in dots:
        ax.scatter(
            [x], [part.flop / part.time_s], s=16 + 260 * part.time_s / whole, marker=_MARKERS[kind],
            facecolor=LOOKS[part.bound_by].colour, edgecolor="black", linewidth=0.6, alpha=0.85, zorder=3,
        )  # fmt: skip
    ax.set(xlabel="intensity (FLOP/byte of DRAM or of network)", ylabel="rate per chip")
    gridlines(ax)
    marks = [(_MARKERS[k], "white", "black", f"per byte of {LOOKS[k].label}") for k in slopes]
    binding = [LOOKS[term] for term in TERMS if any(part.bound_by == term for part in parts)]
    marks += [("s", look.colour, look.colour, f"bound by {look.label}") for look in binding]
    handles += [entry(label, marker=m, color=face, markeredgecolor=edge) for m, face, edge, label in marks]
    title = f"Roofline of {result.mapping.graph} on one chip of {result.mapping.system}"
    head(ax, f"{title}\narea: share of time; numbers: partitions{on_stack(result)}", handles)
    several = len({part.stage for part in parts}) > 1
    longest = sorted(dots, key=lambda dot: (-dot[0].time_s, dot[0].stage, dot[0].partition))
    names = [
        (x, part.flop / part.time_s, f"{part.stage}.{part.partition}" if several else str(part.partition))
        for part, _, x in longest
    ]
    free_labels(ax, [name for name in names if math.isfinite(name[0])], radius=6.0)
    return ax
