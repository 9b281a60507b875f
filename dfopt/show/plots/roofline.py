"""The hierarchical roofline: every partition against the ceilings of compute, DRAM and network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from dfopt.documents.result import Result
from dfopt.documents.score import PartitionScore
from dfopt.documents.system import NetworkDim
from dfopt.errors import PlanError
from dfopt.physics.dtypes import rate
from dfopt.physics.pipeline import resolve
from dfopt.physics.schedule import TERMS
from dfopt.show.plots import style
from dfopt.show.plots.labels import free_labels
from dfopt.show.plots.style import BLACK, LOOKS, PALETTE, Axes, drawn, entry, short
from dfopt.units import number, show_unit

_MARKERS = {"memory": "o", "network": "D"}
_LINES = {"memory": "-", "network": "--"}
_MAPPINGS: Final = tuple(PALETTE[name] for name in ("sky", "purple", "vermillion", "yellow", "blue"))  # unlike roofs
_SHOWN: Final = 0.99  # of the time
_LABELS: Final = 8  # partitions with a label: those that take longest, and more than this share of the time
_LEAST: Final = 0.02


class Dot(NamedTuple):
    """A point of a roofline plot: a partition, or a whole mapping.

    Attributes
    ----------
    at : dict, FLOP/B
        Arithmetic intensity by kind of byte (DRAM, network).
    rate : float, FLOP/s
        Reached rate.
    time_s : float, s
        Seconds of a step.
    label, colour : str
        Text, and colour.
    """

    at: dict[str, float]
    rate: float
    time_s: float
    label: str
    colour: str


def injection_bandwidth(dim: NetworkDim) -> float:
    """Bandwidth, B/s, of a chip into a network dim, over all its links of that dim."""
    links = {"ring": 2, "line": 2, "switch": 1, "fully_connected": max(dim.size - 1, 1)}[dim.topology]
    return links * dim.link_bandwidth


def network_bandwidth(result: Result) -> float | None:
    """Bandwidth, B/s, of a chip into the fastest dim with tensor parallelism, or else into the fastest dim.

    None for a system of one chip.
    """
    dims = [result.system.dim(name) for name in result.plan.shard_dims] or list(result.system.network)
    return max((injection_bandwidth(dim) for dim in dims if dim.size > 1), default=None)


def _partitions(result: Result) -> list[tuple[PartitionScore, int]]:
    """Partitions that compute, with how often a stage runs them for a microbatch."""
    parts = [part for part in result.score.partitions if part.flop > 0 and part.time_s > 0]
    return [(part, max(stage.runs.get(part.stage, 0) for stage in result.score.stages) or 1) for part in parts]


def _dot(result: Result, parts: Sequence[tuple[PartitionScore, int]], label: str, colour: str) -> Dot:
    """One dot of the roofline for several partitions, each counted as often as it runs.

    Network bytes are those that the links could have moved in its network time, so latency counts as bytes: the
    roof then holds for every collective and topology.
    """
    flop, dram_bytes, network_s, time_s = (
        math.fsum(count * getattr(part, name) for part, count in parts)
        for name in ("flop", "dram_bytes", "network_s", "time_s")
    )
    moved = {"memory": dram_bytes, "network": network_s * (network_bandwidth(result) or 0.0)}
    return Dot({kind: flop / size for kind, size in moved.items() if size > 0}, flop / time_s, time_s, label, colour)


def _dots(result: Result) -> list[Dot]:
    """A dot of the roofline for each partition, those that take longest first."""
    parts = sorted(_partitions(result), key=lambda pair: (-pair[1] * pair[0].time_s, pair[0].stage, pair[0].partition))
    total = math.fsum(count * part.time_s for part, count in parts)
    several = len({part.stage for part, _ in parts}) > 1
    dots = []
    for part, count in parts:
        kernels = [result.graph.kernels[result.graph.index()[name]] for name in part.kernels]
        heaviest = max(kernels, key=lambda kernel: float(kernel.matrices) * kernel.m * kernel.n * kernel.k)
        place = f"{part.stage}." * several + str(part.partition)
        words = f"{place} {short([heaviest.name], 18)} {number(100 * count * part.time_s / total, 2)} %"
        dots.append(_dot(result, [(part, count)], words, LOOKS[part.bound_by].colour))
    return dots


@drawn
def roofline(*results: Result, ax: Axes | None = None) -> Axes:
    """Plot partitions, or several mappings, in the roofline of a chip: ceilings of compute, DRAM and network.

    A partition has two points at one height: a circle at its FLOP per byte of DRAM, a diamond at its FLOP per byte of
    network. Their area is its share of the work of a step, their colour the binding resource. For several results, each
    has one such pair for all its partitions together. The form follows DFModel (Ko et al.), Fig. 18. `PlanError` if no
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
    together = len(results) > 1
    if together:
        dots = [_dot(result, parts, str(place + 1), _MAPPINGS[place % len(_MAPPINGS)])
                for place, result in enumerate(results) if (parts := _partitions(result))]  # fmt: skip
    else:
        dots = _dots(first)
    total, listed = math.fsum(dot.time_s for dot in dots), len(dots)
    if not together:  # small ones at low rates would press all others into a corner
        kept = np.cumsum([dot.time_s for dot in dots]).searchsorted(_SHOWN * total) + 1
        dots = dots[: max(int(kept), 1)]
    if not any(dot.at for dot in dots):
        raise PlanError("roofline: found no partition that computes and moves bytes, expected at least one")
    ax = style.axes(ax, 9.0, 4.6)
    slopes = {"memory": chip.fastest.bandwidth}
    if any("network" in dot.at for dot in dots):
        slopes["network"] = max(network_bandwidth(result) or 0.0 for result in results)
    handles = _ceilings(ax, first, slopes, [x for dot in dots for x in dot.at.values()],
                        min(dot.rate for dot in dots) / 2.5)  # fmt: skip
    for place, dot in enumerate(dots):
        if len(dot.at) > 1 and place < _LABELS:  # the two points of a pair
            ax.plot([*dot.at.values()], [dot.rate] * 2, color=dot.colour, linewidth=0.8, zorder=2.5)
        for kind, x in dot.at.items():
            ax.scatter([x], [dot.rate], s=90 if together else 16 + 260 * dot.time_s / total, marker=_MARKERS[kind],
                       facecolor=dot.colour, edgecolor="black", linewidth=0.6, alpha=0.85, zorder=3)  # fmt: skip
    ax.set(xlabel="intensity (FLOP/byte of DRAM or of network)", ylabel="rate per chip")
    style.gridlines(ax)
    handles += [entry(f"per byte of {LOOKS[kind].label}", marker=_MARKERS[kind], color="white",
                      markeredgecolor="black") for kind in slopes]  # fmt: skip
    if together:
        handles += [entry(f"mapping {dot.label}", marker="s", color=dot.colour) for dot in dots]
        title = f"What {len(results)} mappings reach on {chip.name}"
        title += "".join(
            f"\n{n}: {each.mapping.graph}, {style.mapping_name(each)}" for n, each in enumerate(results, start=1)
        )
    else:
        colours = {dot.colour for dot in dots}
        handles += [entry(f"bound by {LOOKS[term].label}", marker="s", color=LOOKS[term].colour)
                    for term in TERMS if LOOKS[term].colour in colours]  # fmt: skip
        title = f"What each partition reaches on {chip.name}; area: its share of the time\n{style.about(first)}"
        if len(dots) < listed:
            rest = f"less than {100 * (1 - _SHOWN):.2g} % of the time"
            title += f"\n{listed - len(dots)} partitions that take {rest} are left out"
    style.head(ax, title, handles)
    labels = [(max(dot.at.values()), dot.rate, dot.label) for dot in dots[:_LABELS]
              if dot.at and (together or dot.time_s > _LEAST * total)]  # fmt: skip
    others = [(x, dot.rate) for dot in dots for x in dot.at.values()]
    free_labels(ax, labels, radius=6.0, others=others, most=2)
    return ax


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
    style.unit_ticks(ax.xaxis, lambda value: f"{value:g}")
    style.unit_ticks(ax.yaxis, lambda value: show_unit(value, "flop_rate", 3))
    handles: list[Any] = []
    for peak in rates:
        for kind, share, line in (("peak", 1.0, "-"), ("sustained", shared, ":")):
            if share is not None:
                level = share * peak
                edge = [level / max(slopes.values()), right]
                label = f"{kind} {show_unit(level, 'flop_rate', 3)}"
                handles += ax.plot(edge, [level, level], color=BLACK, linewidth=1.2, linestyle=line, label=label)
    for kind, slope in slopes.items():
        label = f"{LOOKS[kind].label} {show_unit(slope, 'bandwidth', 3)}"
        handles += ax.plot(
            [left, rates[0] / slope], [left * slope, rates[0]], color=LOOKS[kind].colour, linewidth=1.4,
            linestyle=_LINES[kind], label=label,
        )  # fmt: skip
    return handles
