"""Tables of measured kernels and collectives: the shares that they fix before steps are fitted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final, Literal

import numpy as np

from dfopt.arrays import Floats
from dfopt.calibration.numbers import number_of
from dfopt.documents.communication import CollectiveKind
from dfopt.documents.efficiency import EfficiencyRow
from dfopt.documents.network import CollectiveFactor
from dfopt.documents.system import System
from dfopt.documents.table import TableRow, read_table
from dfopt.errors import refuse
from dfopt.physics.efficiency import one_bandwidth_share

Regime = Literal["sustained", "burst"]

LIMITS: Final = (4e12, 1e12, 512e9, 128e9, 16e9, 1e9, 0.0)  # FLOP: those of the tables of Calculon, and three above
BYTES: Final = (100e6, 10e6, 1e6, 0.0)  # those of Calculon's tables of memories
_TABLE_OF_COLUMN: Final = (
    ("way", "attention"),
    ("parameters", "optimizer"),
    ("bytes", "memory"),
)  # what a table is of, by a column
PASSES: Final = (2, 5)  # products of attention at once, forward and backward: Dao, arXiv:2307.08691, algorithm 2
_REGIMES: Final[dict[Regime, tuple[str, ...]]] = {"sustained": ("sustained", "beside"), "burst": ("burst",)}
LARGE: Final = 2 * 2**20  # bytes: below, NCCL takes other protocols
_KINDS: Final[dict[str, CollectiveKind]] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
BETWEEN: Final[dict[CollectiveKind, CollectiveFactor]] = {
    kind: CollectiveFactor(step_latency=9.6e-6) for kind in ("all_reduce", "all_gather", "reduce_scatter")
}
"""Of links between nodes, which no table has: large messages go around a ring of nodes, each of whose steps takes
9.6 us in the model by which NCCL chooses (github.com/NVIDIA/nccl at 01afd20, src/graph/tuning.cc: ring, simple)."""


def _rows(path: str | Path, needed: tuple[str, ...], system: str, regime: Regime = "sustained") -> Iterator[TableRow]:
    """Rows of a system; of a table that says how a chip was kept busy, those that were so."""
    for row in read_table(path, needed)[1]:
        if row["system"].startswith(system) and row.get("regime", regime) in (regime, *_REGIMES[regime]):
            yield row


def kernel_rows(
    paths: Sequence[str | Path], label: str, system: System, regime: Regime = "sustained"
) -> tuple[System, list[tuple[Path, int, Regime | None]], set[str]]:
    """System with efficiency rows from kernel tables, what each table provided, and the numbers that they fix.

    Of a table: how many kernels were taken, and the regime of those if it says any.

    A table is known by its columns: ``way`` (attention), ``parameters`` (an optimizer's step), ``bytes`` (kernels bound
    by memory), or else it is one of GEMMs, which are read last, as their time for FLOP depends on the share of
    bandwidth.

    Parameters
    ----------
    paths : sequence of path
        CSV tables of measured kernels.
    label : str
        Name of the system in the tables, or how it begins.
    system : System
        The system to extend.
    regime : str
        Rows to use of tables that state one: ``sustained`` or ``burst``.

    Raises
    ------
    DocumentError
        As of the readers, and for two tables of one kind.
    """
    kinds: dict[str, Path] = {}
    stated: dict[Path, Regime | None] = {}
    for path in map(Path, paths):
        columns, _ = read_table(path)
        stated[path] = regime if "regime" in columns else None
        name = next((name for column, name in _TABLE_OF_COLUMN if column in columns), "matrix")
        if name in kinds:
            refuse(str(path), f"found a second table of {name}, after {kinds[name]}", "give one of each kind")
        kinds[name] = path
    counts: dict[Path, int] = {}
    for name, read in _READERS.items():
        if name in kinds:
            rows, counts[kinds[name]] = read(kinds[name], label, system, regime)
            system = with_rows(system, name, rows)
    return system, [(path, counts[path], stated_regime) for path, stated_regime in stated.items()], set(kinds)


def with_rows(system: System, name: str, rows: Sequence[EfficiencyRow]) -> System:
    """The system with new efficiency rows for one number.

    Parameters
    ----------
    system : System
        System whose chip has the efficiency table.
    name : str
        Number whose rows are replaced.
    rows : sequence of EfficiencyRow
        The new rows.
    """
    others = [row for row in system.chip.efficiency or () if number_of(row) != name]
    place = next((at for at, row in enumerate(others) if row.unit == "vector"), len(others))
    merged = [*others[:place], *rows, *others[place:]] if name != "memory" else [*others, *rows]
    return system.model_copy(update={"chip": system.chip.model_copy(update={"efficiency": in_order(merged)})})


def in_order(rows: Sequence[EfficiencyRow]) -> tuple[EfficiencyRow, ...]:
    """Efficiency rows with those for a single op first, as general rows would hide them."""
    return tuple(sorted(rows, key=lambda row: row.op is None))


def _by_bytes(system: System) -> list[EfficiencyRow]:
    """The rows that a system has of the bandwidth of partitions."""
    return [row for row in system.chip.efficiency or () if number_of(row) == "memory"]


def gemm_rows(
    path: str | Path, label: str, system: System, regime: Regime = "sustained"
) -> tuple[list[EfficiencyRow], int]:
    """Efficiency rows of unit ``matrix`` from measured GEMMs, and the number of measurements.

    ``system``, ``m``, ``n``, ``k``, ``latency_ms``, in a type of two bytes: where there is ``gemm_dtype``, of bfloat16.
    A product takes its compute time plus the time of its bytes, as under ``overlap: none``, the latter at the system's
    share of bandwidth for this many bytes. If compute takes longer than the bytes at full rates, its share of the peak
    follows from the rest of the time; a class by FLOP has the median. In reality both overlap, so that the rest may be
    less than compute takes at peak; the share is then 1.

    Parameters
    ----------
    path, label, regime
        See :func:`kernel_rows`.
    system : System
        The system, whose memory rows are already set.

    Raises
    ------
    DocumentError
        For a table without a column, or without a product of the system called ``label``; for one above the peak.
    """
    peak, dram = system.chip.peak_flops, system.chip.dram
    if dram is None:
        refuse(system.name, "found several memories", "give a system whose chip has dram")
    memory = _by_bytes(system)
    shares: dict[float, list[float]] = {limit: [] for limit in LIMITS}
    shares_of_peak: dict[float, list[float]] = {limit: [] for limit in LIMITS}  # as if its bytes took no time
    count = 0
    for row in _rows(path, ("system", "m", "n", "k", "latency_ms"), label, regime):
        if row.get("gemm_dtype", "bfloat16") != "bfloat16":
            continue
        m, n, k = (row.count(axis) for axis in ("m", "n", "k"))
        taken = row.number("latency_ms") * 1e-3
        compute, moved = 2.0 * m * n * k / peak, 2.0 * (m * k + k * n + m * n)
        if compute >= moved / dram.bandwidth:
            count += 1
            limit = next(least for least in LIMITS if compute * peak >= least)
            rate = dram.bandwidth * one_bandwidth_share(memory, moved)
            left = taken - moved / rate
            shares[limit].append(compute / max(left, 1e-300))
            shares_of_peak[limit].append(compute / taken)
    classes: list[EfficiencyRow] = []
    for limit in LIMITS:
        if not shares[limit]:
            continue
        if (most := median(shares_of_peak[limit])) > 1:
            refuse(str(path), f"found a share of {most:g} of the peak of {system.chip.name}", "check its peak")
        share = min(1.0, float(f"{median(shares[limit]):.4g}"))
        classes.append(EfficiencyRow(unit="matrix", share=share, flop=limit or None))
    if not classes:
        refuse(str(path), f"found no product of a system {label!r} that is bound by compute", "give GEMMs of this chip")
    if classes[-1].conditions:  # none that small: the system's own row for the rest, at most the share found last
        own = [row for row in system.chip.efficiency or () if row.unit == "matrix" and not row.conditions]
        if not own:
            refuse(str(path), f"found no small product of a system {label!r}", "give small GEMMs too")
        classes.append(own[0].model_copy(update={"share": min(own[0].share, classes[-1].share)}))
    return classes, count


def attention_rows(
    path: str | Path, label: str, system: System, regime: Regime = "sustained"
) -> tuple[list[EfficiencyRow], int]:
    """Efficiency rows of ``op: attention`` from measured fused attention, and the number of shapes.

    ``system``, ``batch``, ``heads``, ``kv_heads``, ``seq``, ``head_dim``, ``causal``, ``way``, ``latency_ms``. Of each
    shape the FLOP of both ways over the time of both: a step does both, and the share of the backward way is 0.7 to 0.9
    of the other. FLOP are those that a mask leaves. Classes are by FLOP of one of the products, as the model has them;
    of each the median, and shapes that are smaller than any have the share of the smallest class.

    Parameters
    ----------
    path, label, system, regime
        See :func:`kernel_rows`.

    Raises
    ------
    DocumentError
        For a table without a column, or without a shape of the system that has both ways; for one above the peak.
    """
    shape = ("batch", "heads", "kv_heads", "seq", "head_dim")
    seconds: dict[tuple[int, ...], dict[str, float]] = defaultdict(dict)
    for row in _rows(path, ("system", *shape, "causal", "way", "latency_ms"), label, regime):
        sizes = tuple(row.count(name) for name in shape)
        seconds[*sizes, row["causal"] == "True"][row["way"]] = row.number("latency_ms") * 1e-3
    samples: list[tuple[float, float]] = []
    for (batch, heads, _, seq, dim, causal), ways in seconds.items():
        if {"forward", "backward"} <= set(ways):
            flop = 2.0 * batch * heads * seq**2 * dim / (2 if causal else 1)
            taken = ways["forward"] + ways["backward"]
            samples.append((flop, sum(PASSES) * flop / system.chip.peak_flops / taken))
    if not samples:
        refuse(str(path), f"found no attention of a system {label!r}, forward and backward", "give such rows")
    classes = _medians(samples, LIMITS, str(path), system)
    rows = [EfficiencyRow(unit="matrix", op="attention", share=share, flop=limit) for limit, share in classes]
    return [*rows[:-1], rows[-1].model_copy(update={"flop": None})], len(samples)


def memory_rows(
    path: str | Path, label: str, system: System, regime: Regime = "sustained"
) -> tuple[list[EfficiencyRow], int]:
    """Efficiency rows of unit ``memory`` from measured memory-bound kernels, and the number of measurements.

    ``system``, ``bytes`` (the least that a kernel moves), ``latency_ms``. Of each class by bytes the median, never more
    than of larger ones; classes that have no kernel keep the system's own share, at most that.

    Parameters
    ----------
    path, label, system, regime
        See :func:`kernel_rows`.

    Raises
    ------
    DocumentError
        For a table without a column, or without a kernel of the system; for one above the bandwidth.
    """
    dram = system.chip.dram
    if dram is None:
        refuse(system.name, "found several memories", "give a system whose chip has dram")
    table = _rows(path, ("system", "bytes", "latency_ms"), label, regime)
    samples = [
        (row.number("bytes"), row.number("bytes") / (row.number("latency_ms") * 1e-3) / dram.bandwidth) for row in table
    ]
    if not samples:
        refuse(str(path), f"found no kernel of a system {label!r}", "give kernels of this chip")
    classes = dict(_medians(samples, BYTES, str(path), system))
    own = _by_bytes(system)
    rows, most = list[EfficiencyRow](), 1.0
    for limit in BYTES:
        most = min(most, classes.get(limit, one_bandwidth_share(own, limit)))
        rows.append(EfficiencyRow(unit="memory", bytes=limit or None, share=most))
    return rows, len(samples)


def optimizer_rows(
    path: str | Path, label: str, system: System, regime: Regime = "sustained"
) -> tuple[list[EfficiencyRow], int]:
    """Efficiency row of ``op: optimizer`` from measured fused optimizer steps, and the number of measurements.

    Columns: ``system``, ``parameters``, ``bytes`` (the least for this number of parameters), ``latency_ms``. The share
    is the median over steps that move at least as many bytes as the largest class of memory-bound kernels, since a step
    covers all parameters of a chip.

    Parameters
    ----------
    path, label, system, regime
        See :func:`kernel_rows`.

    Raises
    ------
    DocumentError
        As :func:`memory_rows`.
    """
    rows, count = memory_rows(path, label, system, regime)
    return [EfficiencyRow(unit="memory", op="optimizer", share=rows[0].share)], count


def _medians(
    samples: Sequence[tuple[float, float]], limits: Sequence[float], path: str, system: System
) -> list[tuple[float, float]]:
    """Median share of each class of sizes that has one, with its least size, largest first."""
    classes: dict[float, list[float]] = {limit: [] for limit in limits}
    for size, share in samples:
        classes[next(limit for limit in limits if size >= limit)].append(share)
    medians = [(limit, float(f"{median(shares):.4g}")) for limit, shares in classes.items() if shares]
    if (most := max(share for _, share in medians)) > 1:
        refuse(path, f"found a share of {most:g} of a rate of {system.chip.name}", "check its rates")
    return medians


_TableReader = Callable[[str | Path, str, System, Regime], tuple[list[EfficiencyRow], int]]
_READERS: Final[dict[str, _TableReader]] = {
    "memory": memory_rows,
    "optimizer": optimizer_rows,
    "attention": attention_rows,
    "matrix": gemm_rows,
}


def node_factors(
    path: str | Path, label: str, system: System
) -> tuple[float, dict[CollectiveKind, CollectiveFactor], int]:
    """Sustained shares of links from measured collectives in a node: the best, by kind, and the number of measurements.

    ``system``, ``op_name``, ``num_gpus``, ``message_bytes`` (of an all-to-all what each chip sends, of all others the
    whole tensor) and ``latency_ms``. The time over the system's overhead is affine in the bytes, least squares of
    relative errors over messages of `LARGE` bytes or more and all numbers of chips. The fixed part is assumed equal for
    all numbers of chips: on an A100 it is 18 to 32 us for two to eight chips and any collective.

    Parameters
    ----------
    path, label, system
        See :func:`kernel_rows`.

    Raises
    ------
    DocumentError
        For a table without a column, or without a collective of the system called ``label``.
    """
    node = system.network[0]
    needed = ("system", "op_name", "num_gpus", "message_bytes", "latency_ms")
    terms: dict[CollectiveKind, list[tuple[float, float, float]]] = {}  # bytes that pass a link, and seconds
    for row in _rows(path, needed, label):
        chips, sent = row.count("num_gpus"), row.number("message_bytes")
        kind = _KINDS.get(row["op_name"])
        if kind is None or sent < LARGE or not 1 < chips <= node.size:
            continue
        passes = 2 if kind == "all_reduce" else 1
        moved = passes * (chips - 1) / chips * sent / node.link_bandwidth
        terms.setdefault(kind, []).append((moved, row.number("latency_ms") * 1e-3, system.collective_overhead))
    if not terms:
        refuse(str(path), f"found no collective of a system {label!r}, of {LARGE} bytes or more", "give such rows")
    affine = {kind: _affine(np.array(rows)) for kind, rows in terms.items()}
    best = float(f"{max(share for share, _ in affine.values()):.4g}")
    if not 0 < best <= 1:
        refuse(str(path), f"found {best:g} of the bandwidth of dim {node.name}", "check its link_bandwidth")
    factors = {
        kind: CollectiveFactor(
            bandwidth_share=min(1.0, float(f"{share / best:.4g}")), latency=float(f"{fixed:.3g}"), step_latency=0.0
        )
        for kind, (share, fixed) in affine.items()
    }
    return best, factors, sum(len(rows) for rows in terms.values())


def _affine(rows: Floats) -> tuple[float, float]:
    """Share of the links and fixed seconds beside the overhead, from seconds of bytes at full rate, and of all."""
    moved, seconds, overhead = rows.T
    left = (seconds - overhead) / seconds
    (slope, fixed), *_ = np.linalg.lstsq(np.stack([moved, np.ones_like(moved)], axis=1) / seconds[:, None], left)
    if fixed < 0:
        fixed, slope = 0.0, float((moved / seconds) @ left / ((moved / seconds) @ (moved / seconds)))
    return 1 / float(slope), float(fixed)
