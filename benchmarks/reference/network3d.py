"""Price the collectives that others simulated with NS-3, packet by packet, and compare.

    python benchmarks/reference/network3d.py CSV [--json OUT] [--fit]

CSV has a row for each collective: ``topology`` (switch or torus), ``collective`` (all_gather, all_reduce or
all_to_all), ``case``, ``dim1``, ``dim2``, ``bytes``, ``ns3_ns`` (what NS-3 says), ``deepstack_ns`` (another model, only
for comparison) and the system: ``inferred_L1_link_GBs``, ``inferred_L1_hop_ns``, and the same of ``L2``. Columns may be
missing. A row without ``ns3_ns`` is priced all the same; one without a system takes that of another row of its case,
or is an ``error``. Exit code 0, 1 if a row is an error, 3 if CSV is no such file.

Systems: a switch over dim1 chips, and, with dim2 > 1, one over dim2 such switches, whose link (L2) the dim1 chips
share; a torus of dim1 x dim2 chips with L1 links. A hop is one link, so chip-switch-chip is two.

``bytes`` is, as the authors fed it to their model, the shard of a chip (all_gather), the whole tensor (all_reduce) or
the part for one chip (all_to_all; on a torus for one of the first ring). Where it is a power of two it is just that.
Otherwise it has 36 B of header in it for each 988 B; what is left is the power of two that NS-3 was given, which holds
for every size of the data.

``--fit`` prints the constants of NS3 below as this CSV gives them, each from the rows in which nothing else acts.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packets import Level, Link, Packets, packet_seconds
from report import finished, write_rows
from rich.console import Console
from rich.table import Table

from dfopt.physics.collectives_types import Collective, Topology

# How the simulated network cuts messages. Fitted: `--fit` with tests/golden/network3d/network_ns3.csv prints these
# values, or ranges in which these lie (packet times are whole ns, so that a few bytes more or less change nothing).
NS3 = Packets(
    payload=1000.0,  # fitted; also what the slopes of large messages give
    header=36.0,  # fitted to a range; 36 B is also what the authors' sizes count per packet
    acknowledgement=40.0,  # fitted to a range; its middle
    tick=1e-9,  # not fitted: NS-3 counts whole nanoseconds, as the published times do
    overlap=0.42,  # fitted
)
LIMIT, WORST = 0.05, 0.15  # of a panel: mean and largest relative error
_COUNTED, _WITH = 988, 36  # bytes of a packet that the authors' sizes count, without and with the header: see above
_PANELS = [(topology, kind) for topology in ("switch", "torus") for kind in ("all_gather", "all_reduce", "all_to_all")]
_SYSTEM = ("inferred_L1_link_GBs", "inferred_L1_hop_ns", "inferred_L2_link_GBs", "inferred_L2_hop_ns")


class BadRow(ValueError):
    """A row that cannot be priced; the message says why."""


@dataclass(frozen=True)
class Point:
    """One row, ready to price: bytes of the full tensor, times in ns as in the file."""

    topology: str
    kind: Collective
    volume: float
    levels: tuple[Level, ...]
    ns3: float | None
    deepstack: float | None

    def ours(self, packets: Packets = NS3) -> float:
        """Our time in ns."""
        return packet_seconds(self.kind, self.volume, self.levels, packets) * 1e9

    def error(self, packets: Packets = NS3) -> float:
        """Our relative error against NS-3, which must be there."""
        assert self.ns3 is not None
        return self.ours(packets) / self.ns3 - 1


def number(row: dict[str, Any], key: str) -> float | None:
    """A positive number of a row; None where it is missing."""
    text = str(row.get(key) or "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise BadRow(f"{key}: found {text!r}, expected a number above 0")
    return value


def count(row: dict[str, Any], key: str) -> int:
    """A number of chips; of dims after the first 1 where it is missing."""
    value = number(row, key)
    if value is None and key == "dim1":
        raise BadRow("dim1: missing, expected the number of chips")
    if value is not None and value != int(value):
        raise BadRow(f"{key}: found {row[key]!r}, expected a whole number")
    return 1 if value is None else int(value)


def payload(size: int) -> int:
    """The message in a size of the data: a power of two is one, another has headers in it.

    >>> payload(512), payload(548), payload(1096), payload(4276)
    (512, 512, 1024, 4096)
    """
    return size if size & (size - 1) == 0 else size - _WITH * math.ceil(size / (_COUNTED + _WITH))


def levels_of(topology: str, sizes: tuple[int, int], rates: tuple[float | None, ...]) -> tuple[Level, ...]:
    """The network of a row; rates are GB/s and ns of L1 and L2."""
    if rates[0] is None or rates[1] is None:
        raise BadRow(f"{_SYSTEM[0]}, {_SYSTEM[1]}: not in the row and in no other row of its case")
    port = Link(rates[0] * 1e9, rates[1] * 1e-9)
    if topology == "torus":
        return tuple(Level(Topology.RING, n, (port,)) for n in sizes)
    inner = Level(Topology.SWITCH, sizes[0], (port, port))
    if sizes[1] == 1:
        return (inner,)
    if rates[2] is None or rates[3] is None:
        raise BadRow(f"{_SYSTEM[2]}, {_SYSTEM[3]}: a second level needs them; not in the row or another of its case")
    up = Link(rates[2] * 1e9, rates[3] * 1e-9, sharers=sizes[0])
    return (inner, Level(Topology.SWITCH, sizes[1], (port, up, up, port)))


def point(row: dict[str, Any], systems: dict[str, tuple[float | None, ...]]) -> Point:
    """What a row says."""
    topology, name = str(row.get("topology") or ""), str(row.get("collective") or "")
    if (topology, name) not in _PANELS:
        raise BadRow(f"topology {topology!r}, collective {name!r}: expected one of {', '.join(map('/'.join, _PANELS))}")
    ns3, deepstack = number(row, "ns3_ns"), number(row, "deepstack_ns")
    more = [key for key in row if re.fullmatch(r"dim([3-9]|\d\d+)", str(key)) and count(row, key) > 1]
    if more:
        raise BadRow(f"{more[0]}: found {row[more[0]]!r}, expected two dims at most")
    size = number(row, "bytes")
    if size is None or size != int(size):
        raise BadRow(f"bytes: found {row.get('bytes')!r}, expected a whole number above 0")
    d1, d2 = sizes = count(row, "dim1"), count(row, "dim2")
    message, kind = payload(int(size)), Collective(name)
    if kind is Collective.ALL_GATHER:
        message *= d1 * d2
    elif kind is Collective.ALL_TO_ALL:  # held by a chip: a part for each chip, on a torus for each of the first ring
        message *= (d1 if topology == "torus" else d1 * d2) * d1 * d2
    own = tuple(number(row, key) for key in _SYSTEM)
    rates = tuple(a if a is not None else b for a, b in zip(own, systems.get(str(row.get("case")), own), strict=True))
    network = levels_of(topology, sizes, rates)
    return Point(topology, kind, float(message), network, ns3, deepstack)


def systems_of(rows: Iterable[dict[str, Any]]) -> dict[str, tuple[float | None, ...]]:
    """What the rows of each case say about its system, for those that do not."""
    found: dict[str, list[float | None]] = {}
    for row in rows:
        known = found.setdefault(str(row.get("case")), [None] * len(_SYSTEM))
        for i, key in enumerate(_SYSTEM):
            try:
                known[i] = known[i] or number(row, key)
            except BadRow:
                continue  # its own row says so
    return {case: tuple(values) for case, values in found.items()}


def named(rows: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows, named case/topology/collective/bytes/dim1xdim2, with a number where that comes again."""
    seen: dict[str, int] = {}
    for row in rows:
        parts = [str(row.get(key) or "?") for key in ("case", "topology", "collective", "bytes")]
        name = "/".join([*parts, f"{row.get('dim1') or 1}x{row.get('dim2') or 1}"])
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name}#{seen[name]}", row


def comparison(error: float) -> str:
    """What a relative error means, in words."""
    if abs(error) <= 1e-6:
        return "equal"
    return f"{100 * abs(error):.3g} % {'above' if error > 0 else 'below'}"


def compare(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row of results for each row of the file; times in ns, as there."""
    systems, found = systems_of(rows), []
    for name, row in named(rows):
        began = time.perf_counter()
        known, ours, status, note = None, None, "ok", ""
        try:
            known = point(row, systems)
            ours = known.ours()
            note = "" if known.ns3 else "no NS-3 time"
        except (ValueError, OverflowError) as refusal:  # BadRow, and what the model itself refuses
            status, note = "error", str(refusal)
        ratio = ours / known.ns3 if ours is not None and known and known.ns3 else None
        found.append(
            finished(
                {
                    "case": name,
                    "panel": "/".join(str(row.get(key) or "?") for key in ("topology", "collective")),
                    "quantity": "time",
                    "unit": "ns",
                    "reported": known.ns3 if known else None,
                    "ours": ours,
                    "ratio": ratio,
                    "ours_is": comparison(ratio - 1) if ratio is not None else "",
                    "deepstack": known.deepstack if known else None,
                    "seconds": round(time.perf_counter() - began, 6),
                    "status": status,
                    "note": note,
                    "formulation": "packets",
                }
            )
        )
    return found


def errors(rows: list[dict[str, Any]], key: str = "ours") -> list[float]:
    """Relative errors of the rows that have both figures."""
    return [abs(r[key] / r["reported"] - 1) for r in rows if r["reported"] and r[key] is not None]


def table(rows: list[dict[str, Any]]) -> Table:
    """The panels for a terminal; the limit is on mean and largest error."""
    shown = Table(title="Collectives of NS-3: error per row, %", show_edge=False)
    for name in ("panel", "rows", "mean", "median", "max", "DeepStack mean", "max", "limit mean/max", "met"):
        shown.add_column(name, justify="left" if name == "panel" else "right", no_wrap=True)
    panels: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["ratio"] is not None:
            panels.setdefault(row["panel"], []).append(row)
            panels.setdefault("~all", []).append(row)
    for name, members in sorted(panels.items()):
        own, theirs = errors(members), errors(members, "deepstack")
        mean, worst = statistics.mean(own), max(own)
        figures = [mean, statistics.median(own), worst, *([statistics.mean(theirs), max(theirs)] if theirs else [])]
        cells = [f"{100 * x:.2f}" for x in figures] + ["-"] * (5 - len(figures))
        met = "yes" if mean <= LIMIT and worst <= WORST else "no"
        shown.add_row(name.strip("~"), str(len(members)), *cells, f"{100 * LIMIT:.0f} / {100 * WORST:.0f}", met)
    return shown


def best(
    points: list[Point], values: Iterable[Any], change: Callable[[Any], Packets], slack: float = 1e-9
) -> tuple[list[Any], float]:
    """The values with the least mean error, and that error; several where they make no difference."""
    found = [(statistics.mean(abs(p.error(change(value))) for p in points), value) for value in values]
    least = min(found)[0]
    return [value for error, value in found if error <= least + slack], least


def fit(points: list[Point]) -> str:
    """The constants that the points give, one line each."""
    rings = [p for p in points if p.topology == "torus" and min(level.size for level in p.levels) > 2]
    shared = [p for p in points if p.kind is Collective.ALL_REDUCE and len(p.levels) == 2 and p.topology == "switch"]
    # Large messages: in small ones acknowledgements come when all is sent, and are in nobody's way.
    pairs = [p for p in points if p not in rings and (p.ns3 or 0.0) > 20 * replace(p, volume=1e-9).ours()]
    if not (rings and pairs and shared):
        raise BadRow(
            "--fit needs rows on rings of more than two chips, of exchanges in pairs, and all-reduces on two levels"
        )
    lines = []
    grid = [(float(p), float(h)) for p in range(960, 1041, 4) for h in range(0, 81)]
    both, error = best(rings, grid, lambda v: replace(NS3, payload=v[0], header=v[1]))
    for place, name in enumerate(("payload", "header")):
        lines.append(_line(name, [v[place] for v in both], getattr(NS3, name), error, rings, "larger rings"))
    alone, error = best(pairs, map(float, range(0, 81)), lambda v: replace(NS3, acknowledgement=v))
    lines.append(_line("acknowledgement", alone, NS3.acknowledgement, error, pairs, "large, both ways on a link"))
    share, error = best(shared, [i / 100 for i in range(101)], lambda v: replace(NS3, overlap=v))
    lines.append(_line("overlap", share, NS3.overlap, error, shared, "all-reduce over shared links"))
    return "\n".join(lines)


def _line(name: str, values: list[float], used: float, error: float, rows: list[Point], what: str) -> str:
    span = f"{min(values):g}" if len(set(values)) == 1 else f"{min(values):g} to {max(values):g}"
    word = "in it" if min(values) <= used <= max(values) else "NOT in it"
    rest = f"mean error {100 * error:.3f} % of {len(rows)} rows, {what}"
    return f"{name:16} fitted {span:10} used {used:g} ({word}); {rest}"


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, metavar="CSV")
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the rows as JSON")
    parser.add_argument("--fit", action="store_true", help="print the constants that the rows give")
    options = parser.parse_args()
    try:
        with options.file.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        print(f"{options.file}: {error}; give a CSV file of collectives", file=sys.stderr)
        return 3
    if not rows or not {"topology", "collective", "bytes"} <= set(rows[0]):
        print(f"{options.file}: expected rows with topology, collective and bytes, found {len(rows)}", file=sys.stderr)
        return 3
    results = compare(rows)
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table(results))
    failed = [r for r in results if r["status"] == "error"]
    alone = sum(r["ratio"] is None for r in results) - len(failed)
    console.print(f"\n{len(results)} rows, {alone} without an NS-3 time", highlight=False)
    for r in failed:
        print(f"{r['case']}: error: {r['note']}", file=sys.stderr)
    if options.json:
        write_rows(results, options.json)
    if options.fit:
        systems = systems_of(rows)
        good = [row for (_, row), r in zip(named(rows), results, strict=True) if r["status"] == "ok"]
        try:
            print(fit([p for row in good if (p := point(row, systems)).ns3]))
        except BadRow as error:
            print(f"{options.file}: {error}", file=sys.stderr)
            return 3
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
