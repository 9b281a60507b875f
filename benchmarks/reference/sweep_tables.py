"""Sweeps of a language model that the authors of DeepFlow stored, row by row.

A row is a step of two layers of LSTM cells (hidden 19968, batch 4096, 20 tokens, 800 000 words) on 64 chips, under one
strategy: ``RC`` splits products by rows over ``kp1`` chips and by columns over ``kp2``, ``CR`` splits what they sum
over among ``kp1``; ``dp`` copies share the samples. A point is a chip (seven logic nodes, five memories) and its links.
Memory that is too small does not stop the program, and is not looked at here.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from crossflow.chip import Chip, Kind
from crossflow.language_model import Model, Ring, step_time
from crossflow_tables import bases
from line import Line

import dfopt as df
from dfopt.documents.mapping import Sharding
from dfopt.frontends.deepflow import read_design
from dfopt.technology.derive import Derived, derive_design

Row = dict[str, str]
MODEL = Model(batch=4096, steps=20, hidden=19968, vocabulary=800_000, layers=2)
CHIPS = 64
BASE, FIRST = "V100", "14"
"""The configuration of the sweeps, and the node that it is of."""
BINARY = {"MB": 2**20, "GB": 2**30, "TB": 2**40}
SAMPLES = MODEL.batch // CHIPS
L2 = 6528 * 2**10
"""Bytes, instead of the 6.0 to 6.3 MiB of a row: the loss of a token over 800 000 words takes 6.4 MB in dfopt."""
GAP = 0.02
FREE = df.profile("default").model_copy(update={"weight_tiling": "free"})
FORWARD = ("X_Proj", "H_Proj", "Logits")
"""The products whose split a row prescribes; how all else is split is dfopt's choice."""


@dataclass(frozen=True, slots=True)
class Point:
    """A chip and its links: FLOP/s, bytes/s of DRAM, L2 and of a link to a neighbour, that programs reach."""

    rate: float
    dram: float
    l2: float
    link: float


CORNERS = (
    Point(106e12, 993e9, 1e12, 52e9), Point(106e12, 993e9, 1e12, 1.5e12),
    Point(2.4e15, 993e9, 42e12, 52e9), Point(2.4e15, 993e9, 42e12, 1.5e12),
)  # fmt: skip
"""The chips of 14 and 1 nm, with the slowest links and with fast ones."""


def bytes_of(printed: str) -> float:
    number, unit = printed.removesuffix("/s").split()
    return float(number) * BINARY[unit]


def rows(file: Path) -> list[Row]:
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def derived_at(config: dict[str, Any], row: Row) -> Derived:
    """The chip that dfopt derives under the profile ``deepflow`` for the logic node of a row."""
    node = row["point"] if "flop" in row["sweep"] else FIRST
    design = read_design(config, BASE)[0]
    return derive_design(design.model_copy(update={"technology": df.load_technology(f"deepflow-{node}nm")}))


def chip_of(config: dict[str, Any], row: Row) -> Chip:
    """The chip of a row, as printed; what is not printed is that of the node."""
    derived, parts = derived_at(config, row), config["tech_param"]
    peak = float(row["throughput_tflops"]) * 1e12 * parts["core"]["util"]
    keys = {"l0_bw": "SRAM-R", "l1_bw": "SRAM-L1", "l2_bw": "SRAM-L2", "dram_bw": "DRAM"}
    registers, l1, l2, dram = (bytes_of(row[name]) * parts[part]["util"] for name, part in keys.items())
    sizes = bytes_of(row["l1_size"]) / derived.core.clusters, bytes_of(row["l2_size"])
    made = Chip.of(derived, Kind.of(config))
    room = (made.room[0], sizes[0] / made.precision, sizes[1] / made.precision)
    return replace(made, rate=peak, rates=(registers, l1, l2, dram), room=room)


def link_of(row: Row) -> float:
    """Bytes/s to a neighbour: in a package where all chips are in one, between packages else."""
    return max(float(row["inter_node_GBps"]), float(row["intra_node_GBps"])) * BINARY["GB"]


def chips(file: Path) -> Iterator[Line]:
    """Chips of the points, derived from the technologies of the seven nodes."""
    config, seen = bases(file)[BASE], {(row["sweep"], row["point"]): row for row in rows(file)}
    other = Counter[str]()
    for row in seen.values():
        derived = derived_at(config, row)
        ours = {
            "peak": (f"{derived.core.peak / 1e12:.5f}", row["throughput_tflops"]),
            "DRAM": (f"{derived.dram.bandwidth / BINARY['GB']:.1f} GB/s", row["dram_bw"]),
            "L2": (f"{derived.sram['L2'].size / BINARY['MB']:.10f} MB", row["l2_size"]),
        }
        if off := [name for name, (mine, printed) in ours.items() if mine != printed]:
            other[f"{row['sweep']} in {' and '.join(off)}"] += 1
    equal = f"peak, DRAM rate and L2 size of {len(seen) - other.total()} of {len(seen)} points equal as printed"
    rest = "; ".join(f"{count} of {name}" for name, count in other.items())
    yield Line("stored sweeps, chips derived", f"{equal}; others: {rest}", "", None)


def data_parallel(file: Path) -> Iterator[Line]:
    """Data-parallel rows by the program's model as of a year later."""
    config, ratios = bases(file)[BASE], []
    latency = config["tech_param"]["network"]["inter_node"]["latency"]
    for row in rows(file):
        if row["strategy"] == "CR" and int(row["dp"]) == CHIPS:  # the same as RC-1-1
            ring = Ring(CHIPS, link_of(row), latency)
            ratios.append(step_time(chip_of(config, row), MODEL, ring) / float(row["time_s"]))
    yield Line("stored sweeps, data parallel, by the program's model of 2021", _told(ratios), "", None)


def system(point: Point, split: int) -> df.System:
    """64 chips, so many of which split every product: both groups through switches, which a ring does not beat."""
    sizes = {"kernel": split, "data": CHIPS // split}
    dims = [
        df.NetworkDim(name=name, topology="switch", size=size, link_bandwidth=point.link)
        for name, size in sizes.items()
        if size > 1
    ]
    chip = df.Chip(
        name="row", execution="kernel_by_kernel", tiles=80, peak=point.rate, compute_utilization=1.0,
        sram=df.Sram(capacity=L2, bandwidth=point.l2), dram=df.Dram(bandwidth=point.dram, capacity=None),
    )  # fmt: skip
    return df.System(name="row", chip=chip, network=tuple(dims))


@cache
def graph_of(split: int) -> df.Graph:
    return df.load_graph("lstm-deepflow", hidden=MODEL.hidden, batch=MODEL.batch, microbatch=SAMPLES * split)


@cache
def mappings(split: int, scheme: Sharding) -> list[df.Result]:
    """The best steps at four points, slow and fast in chip and links, whose forward products are split so.

    A product reads its matrix once, as in the studies: the inputs of a token fit the L2.
    """
    pins = {} if scheme == "none" else dict.fromkeys(FORWARD, scheme)
    plan = {"tp": split, "dp": CHIPS // split, "gap": GAP, "pin_sharding": pins}
    return [df.solve(graph_of(split), system(point, split), assumptions=FREE, **plan) for point in CORNERS]


@cache
def best(point: Point, split: int, scheme: Sharding) -> float:
    """Seconds of the best of these at a point, as dfopt's judge has them."""
    there = system(point, split)
    judged = [df.score(made, made.graph, there, FREE) for made in mappings(split, scheme)]
    return min(score.step_time_s for score in judged if not score.violations)


def taken(row: Row) -> tuple[int, Sharding] | str:
    """How a row splits its forward products in dfopt's words, or why it does not."""
    rows_, columns = int(row["kp1"]), int(row["kp2"])
    if row["strategy"] == "CR":
        return (rows_, "k>n" if rows_ > 1 else "none")
    if rows_ > 1:
        return "rows of products are split: dfopt splits those with weights by outputs, or by what is summed over"
    if columns > 2:
        return "inputs of a product for a token do not fit the L2, so that the program reads them several times"
    return (columns, "m" if columns > 1 else "none")


def mapped(file: Path) -> Iterator[Line]:
    """Rows whose strategy dfopt has, beside its best step under that strategy."""
    config, left = bases(file)[BASE], Counter[str]()
    ratios: dict[str, list[float]] = {}
    theirs: dict[tuple[str, str], dict[str, float]] = {}
    ours: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows(file):
        how = taken(row)
        if isinstance(how, str):
            left[how] += 1
            continue
        chip = chip_of(config, row)
        point = Point(chip.rate, chip.rates[3], chip.rates[2], link_of(row))
        seconds, kind = best(point, *how), "-".join([row["strategy"], *(row[n] for n in ("kp1", "kp2", "dp"))])
        ratios.setdefault(kind, []).append(seconds / float(row["time_s"]))
        at = row["sweep"], row["point"]
        theirs.setdefault(at, {})[kind] = float(row["time_s"])
        ours.setdefault(at, {})[kind] = seconds
    every = [ratio for of_kind in ratios.values() for ratio in of_kind]
    yield Line("stored sweeps, dfopt's mappings with the row's strategy", _told(every), "", None)
    for kind, of_kind in ratios.items():
        yield Line(f"stored sweeps, {kind}", _told(of_kind), "", None)
    for why, count in left.items():
        yield Line("stored sweeps, not taken", f"{count} rows: {why}", "", None)
    for whose, times in (("theirs", theirs), ("ours", ours)):
        gains = sorted(of[f"CR-1-1-{CHIPS}"] / min(of.values()) for of in times.values())
        seen = f"{gains[0]:.2f} to {gains[-1]:.2f} times, {median(gains):.2f} in the median of {len(gains)} points"
        yield Line(f"stored sweeps, best row taken over the data-parallel one, {whose}", seen, "", None)


def _told(ratios: list[float]) -> str:
    worst = max(ratios, key=lambda ratio: max(ratio, 1 / ratio))
    return f"{len(ratios)} rows, ours over theirs {median(ratios):.3f} in the median, worst {worst:.3f}"
