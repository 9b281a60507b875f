"""Run DFModel's own cases through import -> optimise -> judge and compare with what they report.

    python benchmarks/reference/dfmodel.py DIR [--json OUT] [--allow-empty] [--sharding case|bytes|seconds]
        [--formulation auto|assignment|columns] [--save DIR]

Every ``*.json`` in DIR that is a DFModel case gives one row per reported quantity (``utilization``,
``ns_per_layer``, ``seconds_per_batch``). A case that needs a feature dfopt does not have is listed as
``unsupported`` with the feature; one that fails is listed as ``error``. Every result is verified as by
``dfopt check``; ``--save`` keeps the result documents.

The sharding is what the case records (the authors' second step starts from it; bytes alone leave ties),
else the optimum of our inter-chip problem. ``--sharding bytes`` or ``seconds`` always takes the latter.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dfopt.documents.result import Result
from dfopt.errors import DfoptError
from dfopt.frontends.dfmodel import ImportedCase, Unsupported, load_case
from dfopt.optimizer import optimize
from dfopt.optimizer.verify import verify

_EQUAL = 1e-6  # relative: the same answer
QUANTITIES = ("utilization", "ns_per_layer", "seconds_per_batch")


def ours(result: Result, quantity: str) -> float:
    """The figure of a result that corresponds to a reported quantity."""
    if quantity == "utilization":
        return result.utilization
    if quantity == "ns_per_layer":
        return result.score.layer_time_s * 1e9
    return result.step_time_s


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
    note, status = "", "ok"
    outputs: dict[str, Any] = {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(data, dict) and isinstance(data.get("outputs"), dict):
            outputs = data["outputs"]
        case = load_case(path)
        result = solve_case(case, options)
        note = "; ".join(case.notes)
    except Unsupported as error:
        status, note = "unsupported", str(error)
    except (DfoptError, OSError, ValueError) as error:
        status, note = "error", f"{type(error).__name__}: {error}"
    except Exception as error:  # one broken case must not hide the others
        status, note = "error", f"unexpected {type(error).__name__}: {error}"
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
        mine = ours(result, quantity) if result is not None else None
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
                "note": note,
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
