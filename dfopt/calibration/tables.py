"""Tables of measured kernels and collectives: the shares that they fix before steps are fitted."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dfopt.documents.communication import CollectiveKind
from dfopt.documents.efficiency import EfficiencyRow
from dfopt.documents.factors import CollectiveFactor
from dfopt.documents.system import System
from dfopt.errors import refuse
from dfopt.physics.efficiency import one_bandwidth_share

__all__ = ["BETWEEN", "gemm_rows", "node_factors"]

LIMITS: Final = (4e12, 1e12, 512e9, 128e9, 16e9, 1e9, 0.0)  # FLOP: those of the tables of Calculon, and three above
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


def _rows(path: str | Path, needed: tuple[str, ...], system: str) -> Iterator[dict[str, str]]:
    with Path(path).open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        if missing := [name for name in needed if name not in (reader.fieldnames or ())]:
            refuse(str(path), f"found no column {', '.join(missing)}", f"give a table with {', '.join(needed)}")
        for row in reader:
            if row["system"].startswith(system):
                yield row


def gemm_rows(path: str | Path, label: str, system: System) -> tuple[list[EfficiencyRow], int]:
    """Rows of unit ``matrix`` from measured GEMMs, and how many products there were.

    ``system``, ``m``, ``n``, ``k``, ``latency_ms``, in a type of two bytes. A product takes its compute time and the
    time of its bytes, one after the other, as under ``overlap: none``, and the latter at the share of bandwidth that
    the system has for so many; where compute is longer at full rates, its share of the peak is what is left for it. Of
    each class by FLOP the median. In truth both pass at once, so that less may be left than the peak takes: 1 then.

    Raises
    ------
    DocumentError
        For a table without a column, or without a product of the system called ``label``; for one above the peak.
    """
    peak, dram = system.chip.peak_flops, system.chip.dram
    if dram is None:
        refuse(system.name, "found several memories", "give a system whose chip has dram")
    memory = [row for row in system.chip.efficiency or () if row.unit == "memory"]
    shares: dict[float, list[float]] = {limit: [] for limit in LIMITS}
    whole: dict[float, list[float]] = {limit: [] for limit in LIMITS}  # as if its bytes took no time
    count = 0
    for row in _rows(path, ("system", "m", "n", "k", "latency_ms"), label):
        m, n, k = (int(row[axis]) for axis in ("m", "n", "k"))
        compute, moved = 2.0 * m * n * k / peak, 2.0 * (m * k + k * n + m * n)
        if compute >= moved / dram.bandwidth:
            count += 1
            limit = next(one for one in LIMITS if compute * peak >= one)
            rate = dram.bandwidth * one_bandwidth_share(memory, moved)
            left = float(row["latency_ms"]) * 1e-3 - moved / rate
            shares[limit].append(compute / max(left, 1e-300))
            whole[limit].append(compute / (float(row["latency_ms"]) * 1e-3))
    found: list[EfficiencyRow] = []
    for limit in LIMITS:
        if not shares[limit]:
            continue
        if (most := median(whole[limit])) > 1:
            refuse(str(path), f"found a share of {most:g} of the peak of {system.chip.name}", "check its peak")
        share = min(1.0, float(f"{median(shares[limit]):.4g}"))
        found.append(EfficiencyRow(unit="matrix", share=share, flop=limit or None))
    if not found:
        refuse(str(path), f"found no product of a system {label!r} that is bound by compute", "give GEMMs of this chip")
    if found[-1].conditions:  # none that small: the system's own row for the rest, at most the share found last
        own = [row for row in system.chip.efficiency or () if row.unit == "matrix" and not row.conditions]
        if not own:
            refuse(str(path), f"found no small product of a system {label!r}", "give small GEMMs too")
        found.append(own[0].model_copy(update={"share": min(own[0].share, found[-1].share)}))
    return found, count


def node_factors(
    path: str | Path, label: str, system: System
) -> tuple[float, dict[CollectiveKind, CollectiveFactor], int]:
    """What collectives in a node sustain: the share of its links of the best, of each kind, and how many there were.

    ``system``, ``op_name``, ``num_gpus``, ``message_bytes`` (of an all-to-all what each chip sends, of all others the
    whole tensor) and ``latency_ms``. The time over the system's overhead is affine in the bytes, least squares of
    relative errors over messages of `LARGE` bytes or more and all numbers of chips. The fixed part is taken to be the
    same for any of them: on an A100 it is 18 to 32 us from two to eight chips, whatever the collective.

    Raises
    ------
    DocumentError
        For a table without a column, or without a collective of the system called ``label``.
    """
    node = system.network[0]
    needed = ("system", "op_name", "num_gpus", "message_bytes", "latency_ms")
    terms: dict[CollectiveKind, list[tuple[float, float, float]]] = {}  # bytes that pass a link, and seconds
    for row in _rows(path, needed, label):
        chips, sent = int(row["num_gpus"]), float(row["message_bytes"])
        kind = _KINDS.get(row["op_name"])
        if kind is None or sent < LARGE or not 1 < chips <= node.size:
            continue
        passes = 2 if kind == "all_reduce" else 1
        moved = passes * (chips - 1) / chips * sent / node.link_bandwidth
        terms.setdefault(kind, []).append((moved, float(row["latency_ms"]) * 1e-3, system.collective_overhead))
    if not terms:
        refuse(str(path), f"found no collective of a system {label!r}, of {LARGE} bytes or more", "give such rows")
    found = {kind: _affine(np.array(rows)) for kind, rows in terms.items()}
    best = float(f"{max(share for share, _ in found.values()):.4g}")
    if not 0 < best <= 1:
        refuse(str(path), f"found {best:g} of the bandwidth of dim {node.name}", "check its link_bandwidth")
    factors = {
        kind: CollectiveFactor(
            bandwidth_share=min(1.0, float(f"{share / best:.4g}")),
            latency=float(f"{fixed:.3g}"),
            step_latency=0.0,
        )
        for kind, (share, fixed) in found.items()
    }
    return best, factors, sum(len(rows) for rows in terms.values())


def _affine(rows: NDArray[np.float64]) -> tuple[float, float]:
    """Share of the links and fixed seconds beside the overhead, from seconds of bytes at full rate, and of all."""
    moved, seconds, overhead = rows.T
    left = (seconds - overhead) / seconds
    (slope, fixed), *_ = np.linalg.lstsq(np.stack([moved, np.ones_like(moved)], axis=1) / seconds[:, None], left)
    if fixed < 0:
        fixed, slope = 0.0, float((moved / seconds) @ left / ((moved / seconds) @ (moved / seconds)))
    return 1 / float(slope), float(fixed)
