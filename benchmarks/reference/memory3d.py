"""Run DRAM cases of DRAMsim3 and Ramulator 2 through our formula and our simulator, and compare.

    python benchmarks/reference/memory3d.py DIR [--json OUT] [--base DIR] [--model rule|formula|simulator]
        [--cycles N] [--jobs N]

DIR holds any of dramsim3_cases.json with dramsim3_results.csv (ids D...: one channel of HBM2, or a port of stacked
banks), dramsim3_closed_loop.csv (L...: requests in flight and an extra round trip) and ramulator_hbm3_cases.json with
ramulator_hbm3_results.csv (R...). A configuration that is not in DIR is taken from ``--base``.

Which model gives a bandwidth follows one rule for every case, `Case.why_simulate`: the formula, unless the stream has
fewer than four banks, mixes reads and writes, comes at intervals, or meets queues that hold fewer than four of its
visits or fewer than two bursts for each bank, or visits banks at random that have less than twice the rate they need,
or has fewer than eight banks with about the rate of the next limit, queues that see too few of the banks, or pages
closed while the next burst wants the same row (`dram_channel.why_simulate`); then the simulator. A closed loop
takes the formula. Every row shows both. Latency and our own command counts are always
those of the simulator. Energies are given twice: from the reported command counts (``energy_act``), and from our own
(``energy_act_predicted``), scaled to the reported clocks.

A case runs in the simulator for all the clocks that its file says, from a cold start as there; where it says none, for
``--cycles`` in the steady state, or four refresh intervals (R). Cases that are reported in a DIR without their case
file are looked up in ``--base``.

R cases are compared with Ramulator where it has a value (with one shared read buffer, as it has), else with DRAMsim3
(with its queues per bank and its times). The exit status is 1 if a case failed.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from dram_channel import SimResult, bounds, energy, simulate
from memory3d_cases import Case, Unsupported, closed_loop_case, dramsim_case, ramulator_case
from report import finished, write_rows
from rich.console import Console
from rich.table import Table

from dfopt.errors import DfoptError

BASE = Path(__file__).parents[2] / "tests" / "golden" / "memory3d"
DRAMSIM, LOOPS, RAMULATOR = "dramsim3_cases.json", "dramsim3_closed_loop.csv", "ramulator_hbm3_cases.json"
PARTS = ("activate", "read", "write", "refresh", "background", "total")
SHORT = {"activate": "act", "read": "rd", "write": "wr", "refresh": "ref", "background": "background", "total": "total"}
HOLDS = "formula where the rule takes it"
KINDS = {"error_percent": "ours", "formula_error_percent": HOLDS, "simulator_error_percent": "simulator everywhere"}
# group: limits in percent on the mean, the 95th percentile and the maximum of the absolute errors
DEMANDS = {
    "read": (2.0, 5.0, 10.0), "closed loop": (4.0, None, 15.0), "mixes": (None, None, 10.0),
    "refresh": (None, None, 1.0), "energy": (None, None, 0.5), "energy predicted": (None, None, None),
    "latency": (None, None, None),
}  # fmt: skip


def number(text: str | None) -> float | None:
    """A figure of a CSV file, or nothing where the file says nothing."""
    try:
        value = float(text) if text not in (None, "") else None
    except ValueError:
        return None
    return value if value is None or math.isfinite(value) else None


def run_length(case: Case, cycles: int) -> tuple[int, int]:
    """Clocks to simulate and of these to leave out: whole refresh intervals where there are refreshes."""
    interval = case.timing.clocks("tREFI") if case.policy.refresh else 4000
    if case.policy.structure == "shared":
        return 4 * interval + interval // 2, interval // 2
    if case.clocks > 0:
        return case.clocks, 0  # the run of the case itself, from its cold start
    return max(3, cycles // interval) * interval + interval // 2, interval // 2


def rows_of(case: Case, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All rows of one case."""
    began = time.perf_counter()
    rate = 1.0 if case.policy.refresh else 0.0
    formula = bounds(case.stream, case.timing, case.organisation, rate)
    why = case.why_simulate(formula)
    clocks, warmup = run_length(case, options.cycles)
    found = simulate(case.requests(), case.timing, case.organisation, case.policy, clocks, warmup)
    model = options.model if options.model != "rule" else "simulator" if why else "formula"
    both = {"formula": formula.bandwidth / 1e9, "simulator": found.bandwidth / 1e9}
    reported = number(case.reported.get(case.bandwidth_key))
    seconds = time.perf_counter() - began
    note = "; ".join([f"simulator: {why}" if why else "", *case.notes]).strip("; ")

    def row(quantity: str, unit: str, theirs: float | None, ours: float, groups: tuple[str, ...], **more: Any) -> Any:
        error = 100 * (ours / theirs - 1) if theirs else None
        same = {
            "case": case.id, "quantity": quantity, "unit": unit, "reported": theirs, "ours": ours,
            "ratio": ours / theirs if theirs else None, "error_percent": error,
            "ours_is": "" if error is None else "equal" if abs(error) < 1e-4 else f"{error:+.3g} %",
            "gap": None, "seconds": round(seconds, 3), "status": "ok", "note": note, "groups": list(groups),
            "model": model, "binding": formula.binding,
        }  # fmt: skip
        found = finished({**same, **more})
        return {**found, "formulation": found["model"]}

    errors = {f"{name}_error_percent": 100 * (v / reported - 1) if reported else None for name, v in both.items()}
    rule = "simulator" if why else "formula"
    rows = [row("bandwidth", "GB/s", reported, both[model], case.groups, rule=rule, **both, **errors)]
    column, unit, scale = case.latency
    latency = number(case.reported.get(column))
    # A closed loop counts its own clock: the client sees data one clock after the channel returns it.
    ours = (found.latency + (case.timing.tCK if case.policy.outstanding else 0.0)) / scale
    if latency is not None or reported is None:
        rows.append(row("latency", unit, latency, ours, ("latency",), model="simulator"))
    return rows + energy_rows(case, found, row)


def energy_rows(case: Case, found: SimResult, row: Callable[..., Any]) -> list[dict[str, Any]]:
    """The energy split from the reported command counts, and from our own, in pJ over the reported clocks."""
    span = number(case.reported.get("cycles"))
    if case.energy is None or not span:
        return []
    seconds = span * case.timing.tCK
    scale = seconds / found.seconds
    own = {key: getattr(found, key) * scale for key in ("n_act", "n_rd", "n_wr", "n_ref")}
    idle = min(seconds, found.idle_seconds * scale)
    given = {key: number(case.reported.get(key)) for key in own}
    rows = []
    for counts, suffix, group in ((given, "", "energy"), (own, "_predicted", "energy predicted")):
        if any(value is None for value in counts.values()):
            continue
        split = energy(case.energy, seconds=seconds, idle_seconds=idle, **counts)  # type: ignore[arg-type]
        for part in PARTS:
            theirs, ours = number(case.reported.get(f"E_{SHORT[part]}_pJ")), getattr(split, part) * 1e12
            if theirs is not None and (theirs or ours):
                name = {"activate": "act"}.get(part, part)
                model = "counts as reported" if not suffix else "simulator"
                rows.append(row(f"energy_{name}{suffix}", "pJ", theirs, ours, (group,), model=model))
    return rows


def failed(case: str, status: str, word: str) -> dict[str, Any]:
    """The row of a case that gave no figure."""
    return finished(
        {
            "case": case, "quantity": "bandwidth", "unit": "GB/s", "ours": None, "error_percent": None,
            "status": status, "note": word, "groups": [], "model": "", "binding": "",
        }
    )  # fmt: skip


# --- folders ----------------------------------------------------------------------------------------------------


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """A JSON file of a folder; empty where it is missing.

    Raises
    ------
    ValueError
        A file that is not JSON or not an object.
    """
    path = folder / name
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from error
    if not isinstance(data, dict):
        raise ValueError(f"{path}: found a list, expected an object with the key 'cases'")
    return data


def read_table(folder: Path, name: str) -> dict[str, dict[str, str]]:
    """The lines of a CSV file by their case; empty where it is missing."""
    path = folder / name
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        if "case" not in (reader.fieldnames or ()):
            raise ValueError(f"{path}: no column 'case'")
        return {line["case"].strip(): {k: v.strip() for k, v in line.items() if k and v is not None} for line in reader}


Job = tuple[str, Callable[[], Case]]


def jobs(folder: Path, base: Path) -> list[Job]:
    """Every case of a folder by its id, with the function that reads it."""
    dramsim, known = read_json(folder, DRAMSIM), read_json(base, DRAMSIM)
    config = dramsim.get("base_config") or known.get("base_config")
    if not isinstance(config, dict) or not config:
        raise ValueError(f"no base_config in {folder / DRAMSIM} or {base / DRAMSIM}; give --base")
    clocks = int(dramsim.get("cycles") or known.get("cycles") or 0)
    others, hbm3 = read_json(folder, RAMULATOR), read_json(base, RAMULATOR)
    hbm3_config = {**{k: v for k, v in hbm3.items() if k != "cases"}, **others}
    found = described(dramsim, known, read_table(folder, "dramsim3_results.csv"), config=config, clocks=clocks)
    loops = read_table(folder, LOOPS)
    found += [(name, partial(closed_loop_case, line, config, 0)) for name, line in loops.items()]
    reported = read_table(folder, "ramulator_hbm3_results.csv")
    return found + described(others, hbm3, reported, config=config, file=hbm3_config)


def described(here: dict[str, Any], base: dict[str, Any], reported: dict[str, dict[str, str]], **how: Any) -> list[Job]:
    """The cases of a file, and those that are reported and stand in the base."""
    cases = here.get("cases") or []
    if not isinstance(cases, list):
        raise ValueError(f"$.cases: found {cases!r:.40}, expected a list of cases")
    found: list[Job] = []
    for index, each in enumerate(cases):
        name = str(each.get("id", f"$.cases[{index}]")) if isinstance(each, dict) else f"$.cases[{index}]"
        found.append((name, partial(read_case, each, reported.get(name, {}), **how)))
    # Of another configuration than this folder's, a case of the base would be another one.
    cases = [] if here else base.get("cases") or []
    there = {str(each.get("id")): each for each in cases if isinstance(each, dict)}
    for name in [name for name in reported if name not in {name for name, _ in found}]:
        found.append((name, partial(read_case, there[name], reported[name], **how) if name in there else undefined))
    return found


def undefined() -> Case:
    """Refuse a result whose case is not described."""
    raise Unsupported("reported, but no case file describes it")


def read_case(
    each: Any, line: dict[str, str], *, config: dict[str, Any], clocks: int = 0, file: dict[str, Any] | None = None
) -> Case:
    """A case of DRAMsim3, or, with the ``file`` of Ramulator, one of those."""
    if not isinstance(each, dict):
        raise ValueError(f"found {each!r:.40}, expected a mapping with id and pattern")
    if file is None:
        return dramsim_case(each, config, line, clocks)
    return ramulator_case(each, file, config, line)


def run(job: Job, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of one case, whatever happens in it."""
    name, read = job
    try:
        return rows_of(read(), options)
    except Unsupported as error:
        return [failed(name, "unsupported", str(error))]
    except KeyError as error:
        return [failed(name, "error", f"the key {error} is missing in the case or its configuration")]
    except (DfoptError, ValueError, TypeError) as error:
        return [failed(name, "error", f"{type(error).__name__}: {' '.join(str(error).split())}")]
    except Exception as error:  # one broken case must not hide the others
        return [failed(name, "error", f"unexpected {type(error).__name__}: {error}")]


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Count and errors of each group against its limits; bandwidths also of each model alone."""
    found = []
    for group, limits in DEMANDS.items():
        mine = [r for r in rows if group in r["groups"] and r["error_percent"] is not None]
        for key, name in KINDS.items():
            some = [r for r in mine if r.get(key) is not None and (name != HOLDS or r["rule"] == "formula")]
            errors = sorted(abs(r[key]) for r in some)
            if not errors:
                continue
            p95 = errors[max(0, math.ceil(0.95 * len(errors)) - 1)]
            figures = (sum(errors) / len(errors), p95, errors[-1])
            met = all(limit is None or f <= limit for f, limit in zip(figures, limits, strict=True))
            judged = key == "error_percent" and any(limit is not None for limit in limits)
            found.append(
                {
                    "group": group, "of": name,
                    "cases": len(errors), "mean": figures[0], "p95": p95, "max": figures[2],
                    "worst": max(some, key=lambda r: abs(r.get(key) or 0))["case"],
                    "limit": " / ".join("-" if limit is None else f"{limit:g}" for limit in limits) if judged else "",
                    "met": ("yes" if met else "NO") if judged else "",
                }
            )  # fmt: skip
    return found


def show(title: str, rows: list[dict[str, Any]], columns: tuple[str, ...]) -> Table:
    """Rows for a terminal."""
    shown = Table(title=title, show_edge=False)
    for name in columns:
        shown.add_column(name.replace("_percent", " %").replace("_", " "), no_wrap=True)
    for row in rows:
        values = (row.get(name) for name in columns)
        shown.add_row(*("-" if v is None else f"{v:.5g}" if isinstance(v, float) else str(v) for v in values))
    return shown


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the rows as JSON")
    parser.add_argument("--base", type=Path, default=BASE, metavar="DIR", help="configurations that DIR leaves out")
    parser.add_argument("--model", choices=("rule", "formula", "simulator"), default="rule", help="see above")
    parser.add_argument("--cycles", type=int, default=40_000, help="clocks where a case says none (default 40000)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes")
    options = parser.parse_args()
    try:
        work = jobs(options.folder, options.base)
    except (ValueError, OSError, KeyError) as error:
        print(f"{options.folder}: {error}", file=sys.stderr)
        return 3
    if not work:
        print(f"{options.folder}: none of {DRAMSIM}, {LOOPS}, {RAMULATOR} with a case found", file=sys.stderr)
        return 3
    one = partial(run, options=options)
    if min(options.jobs, len(work)) > 1:
        with ProcessPoolExecutor(min(options.jobs, len(work))) as pool:
            rows = [row for found in pool.map(one, work) for row in found]
    else:
        rows = [row for job in work for row in one(job)]
    console = Console(width=None if sys.stdout.isatty() else 320)
    columns = ("case", "quantity", "unit", "reported", "ours", "ours_is", "model", "binding", "formula", "simulator",
               "status", "note")  # fmt: skip
    console.print(show("DRAM cases: reported against ours", rows, columns))
    columns = ("group", "of", "cases", "mean", "p95", "max", "worst", "limit", "met")
    console.print(show("Absolute errors in percent; limits: mean / 95 % / max", summary(rows), columns))
    if options.json:
        write_rows(rows, options.json)
    return int(any(row["status"] == "error" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
