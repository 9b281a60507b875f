"""Run DFModel's own cases through import -> optimise -> judge and compare with what they report.

    python benchmarks/reference/dfmodel.py DIR [--json OUT] [--allow-empty] [--sharding case|bytes|seconds]
        [--formulation auto|assignment|columns] [--setups DIR] [--save DIR]

Every ``*.json`` in DIR that is a DFModel case gives one row per reported quantity (``QUANTITIES``). A case
that needs a feature dfopt does not have is listed as ``unsupported`` with the feature; one that fails is
listed as ``error``. Every result is verified as by ``dfopt check``; ``--save`` keeps the result documents.

A case whose setup or graph was not read (``source.setup_read_verbatim`` is false) takes both from the file of
the same name in ``--setups``, or its graph from one there whose workload has the same FLOP, and the row says so; the
reported figures stay those of the case.

The sharding is what the case records (the authors' second step starts from it; bytes alone leave ties),
else the optimum of our inter-chip problem. ``--sharding bytes`` or ``seconds`` always takes the latter.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dfopt.documents.result import Result
from dfopt.errors import DfoptError
from dfopt.frontends.dfmodel import ImportedCase, Unsupported, convert, load_case
from dfopt.search import optimize
from dfopt.search.verify import verify

_EQUAL = 1e-6  # relative: the same answer
SETUPS = Path(__file__).parents[2] / "tests" / "golden" / "dfmodel"

# reported quantity -> ours. A step of a DLRM is one evaluation on every copy; a sample of the first generation is
# the whole step, as its setups have no batch.
QUANTITIES: dict[str, Callable[[Result, ImportedCase], float]] = {
    "utilization": lambda result, case: result.utilization / case.padding,
    "ns_per_layer": lambda result, _: result.score.layer_time_s * 1e9,
    "ns_per_step": lambda result, _: result.score.layer_time_s * 1e9,
    "ns_per_sample": lambda result, _: result.step_time_s * 1e9,
    "seconds": lambda result, _: result.step_time_s,
    "seconds_per_batch": lambda result, _: result.step_time_s,
    "seconds_for_16384_tokens": lambda result, _: result.step_time_s,
    "seconds_for_16384_prompts": lambda result, _: result.step_time_s,
}


def completed(path: Path, data: dict[str, Any], setups: Path) -> tuple[dict[str, Any], str]:
    """The case to import, and a word about it: as it is, or with what was read elsewhere.

    A case whose setup was not read takes that of the same name in ``setups``. Without one, and without a graph, it
    takes graph and execution of a case there with the same workload, known by its FLOP to nine digits; the machine
    stays its own, two network axes of unknown size a square.
    """
    if (data.get("source") or {}).get("setup_read_verbatim") is not False:
        return data, ""
    known = {file.name: json.loads(file.read_text(encoding="utf-8")) for file in sorted(setups.glob("*.json"))}
    read = {name: case for name, case in known.items() if (case.get("source") or {}).get("setup_read_verbatim")}
    if path.name in read:
        word = f"setup completed from {path.name} in {setups.name}: {'; '.join(read[path.name].get('notes') or [])}"
        return read[path.name], word
    flop = (data.get("outputs") or {}).get("workload_flop")
    for name, case in read.items() if flop and not data.get("graph") else ():
        theirs = (case.get("outputs") or {}).get("workload_flop")
        if theirs and case.get("graph") and abs(theirs - flop) <= 1e-9 * flop:
            execution = dict(case["setup"]["execution"])
            for key, value in (data["setup"].get("execution") or {}).items():
                execution[key] = {**execution[key], **value} if isinstance(execution.get(key), dict) else value
            system, guessed = _sized(data["setup"]["system"])
            setup = {**data["setup"], "execution": execution, "system": system}
            word = f"graph and execution from {name}, whose workload has the same FLOP{guessed}"
            return {**data, "setup": setup, "graph": case["graph"]}, word
    return data, ""


def _sized(system: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The system with two network axes of unknown size as a square, and a word about it."""
    key = next((k for k in system if k in ("r_r", "r_sw", "r_fc", "sw_sw", "fc_fc")), None)
    side = math.isqrt(int(system.get("num_chip") or 0))
    if key is None or system[key].get("x") or side * side != system.get("num_chip"):
        return system, ""
    return {**system, key: {**system[key], "x": side, "y": side}}, f"; axes of unknown size taken as {side} x {side}"


def stopped_early(data: dict[str, Any]) -> str:
    """A word about a log whose solver had not finished, so that its figure is no optimum."""
    status = str((((data.get("solver") or {}).get("intra")) or {}).get("status") or "")
    stopped = any(word in status for word in ("interrupt", "time limit")) and "within" not in status
    return f"the authors' search stopped early: {status}" if stopped else ""


def reported(outputs: dict[str, Any]) -> dict[str, float]:
    """The quantities that a case's outputs give."""
    return {q: float(outputs[q]) for q in QUANTITIES if isinstance(outputs.get(q), int | float)}


def solve_case(case: ImportedCase, options: argparse.Namespace) -> Result:
    """Solve a case under its own assumptions, or with empty partitions allowed."""
    assumptions = case.assumptions
    if options.allow_empty:
        assumptions = assumptions.with_(empty_partitions="allow")
    if options.sharding != "case":
        assumptions = assumptions.with_(sharding_objective=options.sharding)
    return optimize(
        case.graph,
        case.system,
        assumptions=assumptions,
        tp_dims=case.tp_dims,
        pp_dims=case.pp_dims,
        dp_dims=case.dp_dims,
        p_max=case.p_max,
        pin_sharding=case.sharding if options.sharding == "case" else {},
        pin_partition=case.partition,
        formulation=options.formulation,
        time_limit=options.time_limit,
    )


def rows_of(path: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All rows of one case file."""
    began = time.perf_counter()
    result: Result | None = None
    case: ImportedCase | None = None
    words: list[str] = []
    status = "ok"
    outputs: dict[str, Any] = {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        word = ""
        if isinstance(data, dict):
            outputs = data["outputs"] if isinstance(data.get("outputs"), dict) else {}
            words.append(stopped_early(data))
            data, word = completed(path, data, options.setups)
        case = convert(data, path.stem) if word else load_case(path)
        words.insert(0, word)
        words += case.notes
        result = solve_case(case, options)
    except Unsupported as error:
        status, words = "unsupported", [str(error), *words]
    except (DfoptError, OSError, ValueError) as error:
        status, words = "error", [f"{type(error).__name__}: {error}", *words]
    except Exception as error:  # one broken case must not hide the others
        status, words = "error", [f"unexpected {type(error).__name__}: {error}", *words]
    seconds = time.perf_counter() - began
    checked = ""
    if result is not None:
        verdict = verify(result)
        checked = verdict.verdict if verdict.ok else "; ".join(verdict.problems)
        if options.save is not None:
            result.dump(options.save / f"{path.stem}.json")
    figures: dict[str, float | None] = dict(reported(outputs)) or {"utilization": None}
    found = []
    for quantity, value in figures.items():
        mine = QUANTITIES[quantity](result, case) if result is not None and case is not None else None
        found.append(
            {
                "case": path.stem,
                "quantity": quantity,
                "reported": value,
                "ours": mine,
                "ratio": mine / value if mine is not None and value else None,
                "ours_is": comparison(quantity, mine / value) if mine is not None and value else "",
                "gap": result.gap if result is not None else None,
                "seconds": round(seconds, 3),
                "status": status,
                "note": "; ".join(word for word in words if word),
                "formulation": _formulation(result),
                "check": checked,
            }
        )
    return found


def _formulation(result: Result | None) -> str:
    if result is None:
        return ""
    solves = [s for plan in result.plans for s in plan.solves if s.problem == "intrachip"]
    return solves[-1].formulation if solves else ""


def comparison(quantity: str, ratio: float) -> str:
    """What a ratio of ours to theirs means."""
    if abs(ratio - 1) <= _EQUAL:
        return "equal"
    better = ratio > 1 if quantity == "utilization" else ratio < 1
    return f"{100 * abs(ratio - 1):.3g} % {'better' if better else 'worse'}"


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows for a terminal."""
    shown = Table(title="DFModel cases: reported against ours", show_edge=False)
    for name in ("case", "quantity"):
        shown.add_column(name, no_wrap=True)
    for name in ("reported", "ours"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("ours is", no_wrap=True)
    for name in ("gap", "seconds"):
        shown.add_column(name, justify="right", no_wrap=True)
    for name in ("form", "check", "status"):
        shown.add_column(name, no_wrap=True)
    last = None
    for row in rows:
        figures = [f"{row[k]:.10g}" if row[k] is not None else "-" for k in ("reported", "ours")]
        gap = f"{row['gap']:.1e}" if row["gap"] else "0" if row["gap"] == 0 else "-"
        again = row["case"] == last
        once = ("", "", "", "") if again else (f"{row['seconds']:.2f}", row["formulation"], row["check"], row["status"])
        shown.add_row("" if again else row["case"], row["quantity"], *figures, row["ours_is"], gap, *once)
        last = row["case"]
    return shown


def notes(rows: list[dict[str, Any]]) -> str:
    """The notes of the cases, one line each."""
    return "\n".join(f"{case}: {note}" for case, note in {r["case"]: r["note"] for r in rows}.items() if note)


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the rows as JSON")
    parser.add_argument("--allow-empty", action="store_true", help="allow fewer partitions than num_config")
    parser.add_argument("--sharding", choices=("case", "bytes", "seconds"), default="case", help="see above")
    parser.add_argument("--formulation", choices=("auto", "assignment", "columns"), default="auto")
    parser.add_argument("--setups", type=Path, default=SETUPS, metavar="DIR", help="setups that cases leave out")
    parser.add_argument("--save", type=Path, metavar="DIR", help="write the result documents there")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds per case")
    options = parser.parse_args()
    if options.save is not None:
        options.save.mkdir(parents=True, exist_ok=True)
    files = sorted(options.folder.glob("*.json")) if options.folder.is_dir() else []
    files = [path for path in files if path.name != "index.json"]
    if not files:
        print(f"{options.folder}: no case files (*.json) found; give a folder of DFModel cases", file=sys.stderr)
        return 3
    rows: list[dict[str, Any]] = []
    for path in files:
        rows += rows_of(path, options)
        print(f"{path.stem}: {rows[-1]['status']} ({rows[-1]['seconds']:.2f} s)", file=sys.stderr)
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table(rows))
    console.print("\n" + notes(rows), highlight=False, markup=False)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
