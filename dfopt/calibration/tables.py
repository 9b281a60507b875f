"""Tables of measured kernels and collectives: the shares that they fix before steps are fitted."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final

from dfopt.documents.efficiency import EfficiencyRow
from dfopt.documents.system import System
from dfopt.errors import refuse

__all__ = ["gemm_rows", "node_efficiency"]

LIMITS: Final = (4e12, 1e12, 512e9, 128e9, 16e9, 1e9, 0.0)  # FLOP: those of the tables of Calculon, and three above
LARGEST: Final = 128e9  # FLOP from which a share above 1 can only mean a peak that is not the chip's
LARGE: Final = 64 * 2**20  # bytes: a collective that latency no longer matters to


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
    time of its bytes, one after the other, as under ``overlap: none``; where the former is longer at full rates, its
    share of the peak is what is left for it. Of each class by FLOP the median. In truth both pass at once, so that
    less may be left than the peak takes; of classes below `LARGEST` the share is 1 then.

    Raises
    ------
    DocumentError
        For a table without a column, or without a product of the system called ``label``; for one above the peak.
    """
    peak, dram = system.chip.peak_flops, system.chip.dram
    if dram is None:
        refuse(system.name, "found several memories", "give a system whose chip has dram")
    shares: dict[float, list[float]] = {limit: [] for limit in LIMITS}
    count = 0
    for row in _rows(path, ("system", "m", "n", "k", "latency_ms"), label):
        m, n, k = (int(row[axis]) for axis in ("m", "n", "k"))
        compute, moved = 2.0 * m * n * k / peak, 2.0 * (m * k + k * n + m * n)
        if compute >= moved / dram.bandwidth:
            count += 1
            limit = next(one for one in LIMITS if compute * peak >= one)
            left = float(row["latency_ms"]) * 1e-3 - moved / dram.bandwidth
            shares[limit].append(compute / max(left, 1e-300))
    found: list[EfficiencyRow] = []
    for limit in LIMITS:
        if not shares[limit]:
            continue
        share = float(f"{median(shares[limit]):.4g}")
        if share > 1 and limit < LARGEST and found:  # its bytes pass while it computes: no time is left for its FLOP
            share = 1.0
        if not 0 < share <= 1:
            refuse(str(path), f"found a share of {share:g} of the peak of {system.chip.name}", "check its peak")
        found.append(EfficiencyRow(unit="matrix", share=share, flop=limit or None))
    if not found:
        refuse(str(path), f"found no product of a system {label!r} that is bound by compute", "give GEMMs of this chip")
    if found[-1].conditions:  # none that small: the system's own row for the rest, at most the share found last
        own = [row for row in system.chip.efficiency or () if row.unit == "matrix" and not row.conditions]
        if not own:
            refuse(str(path), f"found no small product of a system {label!r}", "give small GEMMs too")
        found.append(own[0].model_copy(update={"share": min(own[0].share, found[-1].share)}))
    return found, count


def node_efficiency(path: str | Path, label: str, system: System) -> tuple[float, int]:
    """Share of a node's links that large all-reduces of all its chips sustain, and how many there were.

    ``system``, ``op_name``, ``num_gpus``, ``message_bytes``, ``busbw_GBps``: the median bus bandwidth over that of the
    links, of messages of `LARGE` bytes or more.
    """
    node = system.network[0]
    needed = ("system", "op_name", "num_gpus", "message_bytes", "busbw_GBps")
    rates = [
        float(row["busbw_GBps"]) * 1e9
        for row in _rows(path, needed, label)
        if row["op_name"] == "all_reduce" and int(row["num_gpus"]) == node.size and int(row["message_bytes"]) >= LARGE
    ]
    if not rates:
        message = f"found no all_reduce of {node.size} chips of a system {label!r}, of {LARGE} bytes or more"
        refuse(str(path), message, "give such rows")
    share = float(f"{median(rates) / node.link_bandwidth:.4g}")
    if not 0 < share <= 1:
        refuse(str(path), f"found {share:g} of the bandwidth of dim {node.name}", "check its link_bandwidth")
    return share, len(rates)
