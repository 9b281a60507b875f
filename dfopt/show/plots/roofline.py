"""The hierarchical roofline: every partition against the ceilings of compute, DRAM and network."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dfopt.documents.result import Result
from dfopt.documents.score import PartitionScore
from dfopt.documents.system import NetworkDim
from dfopt.errors import PlanError
from dfopt.show.plots.style import BLACK, LOOKS, axes, drawn, free_labels, head, on_stack, unit_ticks, with_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["injection_bandwidth", "intensities", "roofline"]

_MARKERS = {"memory": "o", "network": "D"}


def injection_bandwidth(dim: NetworkDim) -> float:
    """Bytes per second that a chip can send into a network dim, over all its links of that dim.

    Examples
    --------
    >>> injection_bandwidth(NetworkDim(name="x", topology="ring", size=8, link_bandwidth=25e9))
    50000000000.0
    """
    links = {"ring": 2, "line": 2, "switch": 1, "fully_connected": max(dim.size - 1, 1)}[dim.topology]
    return links * dim.link_bandwidth


def network_bandwidth(result: Result) -> float | None:
    """What a chip can send per second into the fastest dim that carries tensor parallelism; of all dims if none does.

    None for a system of one chip.
    """
    dims = [result.system.dim(name) for name in result.plan.shard_dims] or list(result.system.network)
    return max((injection_bandwidth(dim) for dim in dims if dim.size > 1), default=None)


def intensities(part: PartitionScore, network_bytes_per_s: float | None) -> dict[str, float]:
    """FLOP per byte of DRAM and of network of a partition; without those that it does not use.

    Network bytes are those that the links could have moved in its network time, so latency counts as bytes: the
    roof then holds for every collective and topology.

    Examples
    --------
    >>> part = PartitionScore(
    ...     stage=0, partition=0, kernels=("Q",), tiles=(8,), compute_s=2.0, memory_s=1.0, network_s=0.5, time_s=2.0,
    ...     bound_by="compute", flop=1e12, dram_bytes=1e11, sram_bytes=0.0,
    ... )
    >>> intensities(part, 5e10)
    {'memory': 10.0, 'network': 40.0}
    """
    found = {}
    if part.dram_bytes > 0:
        found["memory"] = part.flop / part.dram_bytes
    if part.network_s > 0 and network_bytes_per_s:
        found["network"] = part.flop / (part.network_s * network_bytes_per_s)
    return found


def _sustained(result: Result) -> float | None:
    """The share of peak that all kernels sustain; none where each has its own."""
    if result.assumptions.compute_model != "fixed":
        return None
    share = result.assumptions.compute_utilization
    chip = result.system.chip
    return (chip.compute_utilization if share is None else share) * chip.peak_flops


@drawn
def roofline(result: Result, ax: Axes | None = None) -> Axes:
    """Draw every partition at its intensities and the rate it reaches, under the ceilings of one chip.

    A partition has two points at one height: a circle at its FLOP per byte of DRAM, a diamond at its FLOP per byte of
    network. Their area is its share of the time of a layer, their colour what binds it. The form follows DFModel
    (Ko et al.), Fig. 18.

    Parameters
    ----------
    result : Result
        What to draw.
    ax : matplotlib.axes.Axes, optional
        Where; by default in a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    PlanError
        If no partition computes anything, or Matplotlib is missing.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.optimize(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
    >>> df.plot.roofline(result).get_ylabel()
    'rate per chip'
    """
    from matplotlib.lines import Line2D

    sends = network_bandwidth(result)
    parts = [part for part in result.score.partitions if part.flop > 0 and part.time_s > 0]
    dots = [(part, kind, x) for part in parts for kind, x in intensities(part, sends).items()]
    if not dots:
        raise PlanError("roofline: found no partition that computes and moves bytes, expected at least one")
    ax = axes(ax, 7.2, 4.2)
    chip = result.system.chip
    peak, dram = chip.peak_flops, chip.dram.bandwidth
    slopes = {"memory": dram, **({"network": sends} if sends and any(k == "network" for _, k, _ in dots) else {})}
    corners = [peak / slope for slope in slopes.values()]
    left = min([x for *_, x in dots] + corners) / 3
    right = max([x for *_, x in dots] + corners) * 3
    low = min(part.flop / part.time_s for part in parts) / 2.5
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(left, right)
    ax.set_ylim(low, peak * 2)
    unit_ticks(ax.xaxis, lambda value: f"{value:g}")
    unit_ticks(ax.yaxis, lambda value: with_unit(value, "flop_rate"))
    ax.plot([peak / max(slopes.values()), right], [peak, peak], color=BLACK, linewidth=1.4)
    sustained = _sustained(result)
    if sustained is not None:
        ax.plot([sustained / max(slopes.values()), right], [sustained] * 2, color=BLACK, linewidth=0.9, linestyle=":")
    for kind, slope in slopes.items():
        look, style = LOOKS[kind], {"memory": "-", "network": "--"}[kind]
        ax.plot([left, peak / slope], [left * slope, peak], color=look.colour, linewidth=1.4, linestyle=style)
    whole = sum(part.time_s for part in parts)
    for part, kind, x in dots:
        ax.scatter(
            [x], [part.flop / part.time_s], s=16 + 260 * part.time_s / whole, marker=_MARKERS[kind],
            facecolor=LOOKS[part.bound_by].colour, edgecolor="black", linewidth=0.6, alpha=0.85, zorder=3,
        )  # fmt: skip
    ax.set_xlabel("intensity (FLOP/byte of DRAM or of network)")
    ax.set_ylabel("rate per chip")
    ax.grid(True, which="major", color="#E6E6E6", linewidth=0.5)
    ax.set_axisbelow(True)
    several = len({part.stage for part in parts}) > 1
    binding = [name for name in ("compute", "memory", "network") if any(part.bound_by == name for part in parts)]
    handles = [
        Line2D([], [], color=BLACK, linewidth=1.4, label=f"peak {with_unit(peak, 'flop_rate')}"),
        Line2D([], [], color=LOOKS["memory"].colour, linewidth=1.4, label=f"DRAM {with_unit(dram, 'bandwidth')}"),
    ]
    if sustained is not None:
        label = f"sustained {with_unit(sustained, 'flop_rate')}"
        handles.insert(1, Line2D([], [], color=BLACK, linewidth=0.9, linestyle=":", label=label))
    if "network" in slopes:
        label = f"network {with_unit(slopes['network'], 'bandwidth')}"
        handles.append(Line2D([], [], color=LOOKS["network"].colour, linewidth=1.4, linestyle="--", label=label))
    handles += [
        Line2D(
            [], [], marker=_MARKERS[k], linestyle="", color="white", markeredgecolor="black", label=f"per byte of {n}"
        )
        for k, n in (("memory", "DRAM"), ("network", "network"))
        if k in slopes
    ]
    handles += [
        Line2D([], [], marker="s", linestyle="", color=LOOKS[k].colour, label=f"bound by {LOOKS[k].label}")
        for k in binding
    ]
    title = f"Roofline of {result.mapping.graph} on one chip of {result.mapping.system}"
    head(ax, f"{title}\narea: share of time; numbers: partitions{on_stack(result)}", handles)
    longest = sorted(dots, key=lambda dot: (-dot[0].time_s, dot[0].stage, dot[0].partition))
    names = [
        (x, part.flop / part.time_s, f"{part.stage}.{part.partition}" if several else str(part.partition))
        for part, _, x in longest
    ]
    free_labels(ax, [name for name in names if math.isfinite(name[0])], radius=6.0)
    return ax
