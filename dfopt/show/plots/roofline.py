"""The hierarchical roofline: every partition against the ceilings of compute, DRAM and network."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from dfopt.documents.result import Result
from dfopt.documents.score import PartitionScore
from dfopt.documents.system import NetworkDim
from dfopt.errors import PlanError
from dfopt.physics.dtypes import rate
from dfopt.physics.pipeline import resolve
from dfopt.physics.schedule import TERMS
from dfopt.show.plots.style import (
    BLACK,
    CYCLE,
    LOOKS,
    Axes,
    about,
    axes,
    drawn,
    entry,
    free_labels,
    gridlines,
    head,
    short,
    unit_ticks,
)
from dfopt.units import format as show_unit
from dfopt.units import number

__all__ = ["roofline"]

_MARKERS = {"memory": "o", "network": "D"}
_LINES = {"memory": "-", "network": "--"}
_SHOWN: Final = 0.99  # of the time
_LABELS: Final = 8  # partitions with a label: those that take longest


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
def roofline(*results: Result, ax: Axes | None = None) -> Axes:
    """Draw what partitions, or several mappings, reach under the ceilings of compute, DRAM and network of a chip.

    A partition has two points at one height: a circle at its FLOP per byte of DRAM, a diamond at its FLOP per byte of
    network. Their area is its share of the time of a layer, their colour what binds it. Of several results each has
    such a pair for all its partitions together. The form follows DFModel (Ko et al.), Fig. 18. `PlanError` if no
    partition computes anything, or results are of different chips.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.solve(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
    >>> df.plot.roofline(result).get_ylabel()
    'rate per chip'
    """
    if not results:
        raise PlanError("roofline: found no result, expected one or more")
    first, chip = results[0], results[0].system.chip
    if other := next((result.system.chip.name for result in results if result.system.chip != chip), None):
        raise PlanError(f"roofline: found results on {chip.name} and {other}, expected one chip with its ceilings")
    parts = [
        (result, part) for result in results for part in result.score.partitions if part.flop > 0 and part.time_s > 0
    ]
    if len(results) > 1:
        parts = [(result, _together(result)) for result in results]
    parts.sort(key=lambda pair: (-pair[1].time_s, pair[1].stage, pair[1].partition))
    total, listed = sum(part.time_s for _, part in parts), len(parts)
    if len(results) == 1:  # small ones at low rates would press all others into a corner
        kept = np.cumsum([part.time_s for _, part in parts]).searchsorted(_SHOWN * total) + 1
        parts = parts[: max(int(kept), 1)]
    dots = {id(part): _intensities(part, network_bandwidth(result)) for result, part in parts}
    if not any(dots.values()):
        raise PlanError("roofline: found no partition that computes and moves bytes, expected at least one")
    ax = axes(ax, 9.0, 4.6)
    sends = max((network_bandwidth(result) or 0.0 for result in results), default=0.0)
    used = {kind for at in dots.values() for kind in at}
    slopes = {"memory": chip.fastest.bandwidth} | ({"network": sends} if "network" in used else {})
    handles = _ceilings(ax, first, slopes, [x for at in dots.values() for x in at.values()],
                        min(part.flop / part.time_s for _, part in parts) / 2.5)  # fmt: skip
    for place, (result, part) in enumerate(parts):
        at, rate_ = dots[id(part)], part.flop / part.time_s
        colour = CYCLE[results.index(result) % len(CYCLE)] if len(results) > 1 else LOOKS[part.bound_by].colour
        size = 90 if len(results) > 1 else 16 + 260 * part.time_s / total
        if len(at) > 1 and (len(results) > 1 or place < _LABELS):  # the two points of a pair
            ax.plot([*at.values()], [rate_] * 2, color=colour, linewidth=0.8, zorder=2.5)
        for kind, x in at.items():
            ax.scatter([x], [rate_], s=size, marker=_MARKERS[kind], facecolor=colour, edgecolor="black", linewidth=0.6,
                       alpha=0.85, zorder=3)  # fmt: skip
    ax.set(xlabel="intensity (FLOP/byte of DRAM or of network)", ylabel="rate per chip")
    gridlines(ax)
    handles += [entry(f"per byte of {LOOKS[kind].label}", marker=_MARKERS[kind], color="white",
                      markeredgecolor="black") for kind in slopes]  # fmt: skip
    if len(results) > 1:
        handles += [
            entry(f"mapping {place + 1}", marker="s", color=CYCLE[place % len(CYCLE)]) for place in range(len(results))
        ]
        title = f"What {len(results)} mappings reach on a {chip.name}"
        title += "".join(f"\n{n}: {each.mapping.graph}, {each.plan.label}" for n, each in enumerate(results, start=1))
    else:
        binding = [LOOKS[term] for term in TERMS if any(part.bound_by == term for _, part in parts)]
        handles += [entry(f"bound by {look.label}", marker="s", color=look.colour) for look in binding]
        title = f"What each partition reaches on a {chip.name}; area: its share of the time"
        title += f"\n{about(first)}"
        if len(parts) < listed:
            rest = f"less than {100 * (1 - _SHOWN):.2g} % of the time"
            title += f"\n{listed - len(parts)} partitions that take {rest} are left out"
    head(ax, title, handles)
    other_points = [(x, part.flop / part.time_s) for _, part in parts for x in dots[id(part)].values()]
    labels = [
        (max(dots[id(part)].values()), part.flop / part.time_s,
         str(results.index(result) + 1) if len(results) > 1 else _label(first, part, total))
        for result, part in parts[:_LABELS] if dots[id(part)]
    ]  # fmt: skip
    free_labels(ax, labels, radius=6.0, others=other_points, most=2)
    return ax


def _label(result: Result, part: PartitionScore, total: float) -> str:
    """The number of a partition, the kernel of its most work, and its share of the time."""
    kernels = [result.graph.kernels[result.graph.index()[name]] for name in part.kernels]
    heaviest = max(kernels, key=lambda kernel: float(kernel.matrices) * kernel.m * kernel.n * kernel.k)
    return f"{part.partition} {short([heaviest.name], 18)} {number(100 * part.time_s / total, 2)} %"


def _together(result: Result) -> PartitionScore:
    """All partitions of a result as if they were one."""
    parts = result.score.partitions
    longest = max(parts, key=lambda part: part.time_s)
    summed = {
        name: sum(getattr(part, name) for part in parts)
        for name in ("flop", "dram_bytes", "compute_s", "memory_s", "network_s", "time_s")
    }
    return longest.model_copy(update=summed)


def _ceilings(
    ax: Axes, result: Result, slopes: dict[str, float], intensities: list[float], low: float
) -> list[Any]:  # fmt: skip
    """Set the scales of the axes and draw the ceilings of a chip, of every type that some kernel computes in."""
    chip = result.system.chip
    assumed = resolve(result.assumptions, chip.execution, chip.compute_utilization)
    rates = sorted({rate(result.graph, kernel, chip) for kernel in result.graph.kernels}, reverse=True)
    shared = assumed.compute_utilization if assumed.compute_model == "fixed" else None  # else kernels have their own
    corners = [rates[0] / slope for slope in slopes.values()]
    left, right = min([*intensities, *corners]) / 3, max([*intensities, *corners]) * 3
    ax.set(xscale="log", yscale="log", xlim=(left, right), ylim=(low, rates[0] * 2))
    unit_ticks(ax.xaxis, lambda value: f"{value:g}")
    unit_ticks(ax.yaxis, lambda value: show_unit(value, "flop_rate", 3))
    handles: list[Any] = []
    for peak in rates:
        for kind, share, style in (("peak", 1.0, "-"), ("sustained", shared, ":")):
            if share is not None:
                level = share * peak
                edge = [level / max(slopes.values()), right]
                label = f"{kind} {show_unit(level, 'flop_rate', 3)}"
                handles += ax.plot(edge, [level, level], color=BLACK, linewidth=1.2, linestyle=style, label=label)
    for kind, slope in slopes.items():
        label = f"{LOOKS[kind].label} {show_unit(slope, 'bandwidth', 3)}"
        handles += ax.plot(
            [left, rates[0] / slope], [left * slope, rates[0]], color=LOOKS[kind].colour, linewidth=1.4,
            linestyle=_LINES[kind], label=label,
        )  # fmt: skip
    return handles
