"""Run DFModel's own cases through import -> optimise -> judge and compare with what they report.

    python benchmarks/reference/dfmodel.py DIR [--overrides FILE] [--json OUT] [--allow-empty]
        [--sharding case|bytes|seconds] [--formulation auto|assignment|columns] [--save DIR]

Every ``*.json`` in DIR that is a DFModel case gives one row per reported quantity (``QUANTITIES``). A case that leaves
out what its import needs, or needs a feature that dfopt does not have, is listed as ``refused``; one that fails later
as ``error``. Every result is verified as by ``dfopt check``; ``--save`` keeps the result documents. In the
words of that command ``verified optimal`` is said of all mappings, ``verified optimal per level`` of those with the
sharding that is optimal for its problem; ``gap`` and ``per level`` are the distances of the value to the two bounds.

What a case does not say of itself comes from an overrides document, each value with its reason: by default the one in
``tests/golden/dfmodel``, ``--overrides none`` for none. Cases with and without overrides are counted apart.

``ours is`` says better or worse only where a case leaves something to choose (partitions, tile sizes, the tiles of
kernels under the cycle model); where all is ``fixed``, a difference is one of the models, or of what a case leaves
out.

The sharding is what the case records (the authors' second step starts from it; bytes alone leave ties),
else the optimum of our inter-chip problem. ``--sharding bytes`` or ``seconds`` always takes the latter.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dfopt.documents.result import Result
from dfopt.errors import DfoptError, DocumentError
from dfopt.frontends.dfmodel import DFModelCase, load_case
from dfopt.search import solve
from dfopt.search.verify import verify

_EQUAL = 1e-6  # relative: the same answer
OVERRIDES = Path(__file__).parents[2] / "tests" / "golden" / "dfmodel" / "overrides.yaml"

# reported quantity -> ours. A step of a DLRM is one evaluation on every copy; a sample of the first generation is
# the whole step, as its setups have no batch.
QUANTITIES: dict[str, Callable[[Result, DFModelCase], float]] = {
    "utilization": lambda result, case: result.utilization / case.padding,
    "ns_per_layer": lambda result, _: result.score.layer_time_s * 1e9,
    "ns_per_step": lambda result, _: result.score.layer_time_s * 1e9,
    "ns_per_sample": lambda result, _: result.step_time_s * 1e9,
    "seconds": lambda result, _: result.step_time_s,
    "seconds_per_batch": lambda result, _: result.step_time_s,
    "seconds_for_16384_tokens": lambda result, _: result.step_time_s,
    "seconds_for_16384_prompts": lambda result, _: result.step_time_s,
}


def reported(outputs: dict[str, Any]) -> dict[str, float]:
    """The quantities that a case's outputs give."""
    return {q: float(outputs[q]) for q in QUANTITIES if isinstance(outputs.get(q), int | float)}


def solve_case(case: DFModelCase, options: argparse.Namespace) -> Result:
    """Solve a case under its own assumptions, or with empty partitions allowed."""
    assumptions = case.assumptions
    if options.allow_empty:
        assumptions = assumptions.with_(empty_partitions="allow")
    if options.sharding != "case":
        assumptions = assumptions.with_(sharding_objective=options.sharding)
    given = case.options() | {"assumptions": assumptions}
    if options.sharding != "case":
        given["pin_sharding"] = {}
    return solve(case.graph, case.system, **given, formulation=options.formulation, time_limit=options.time_limit)


def rows_of(path: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All rows of one case file."""
    began = time.perf_counter()
    result: Result | None = None
    case: DFModelCase | None = None
    words: list[str] = []
    status = "ok"
    outputs: dict[str, Any] = {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        outputs = data.get("outputs") or {}
        stopped = ((data.get("solver") or {}).get("intra") or {}).get("status")
        words = [f"the authors' search: {stopped}"] if stopped else []
        case = load_case(path, options.overrides)
        words = [*case.notes, *words]
        result = solve_case(case, options)
    except DocumentError as error:
        status, words = "refused", [*map(str, error.issues), *words]
    except DfoptError as error:
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
                "ours_is": comparison(quantity, mine / value, result) if result is not None and mine and value else "",
                "overrides": len(case.overrides) if case is not None else None,
                "gap": result.gap if result is not None else None,
                "level_gap": result.level_gap if result is not None else None,
                "seconds": round(seconds, 3),
                "status": status,
                "note": "; ".join(words),
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


def comparison(quantity: str, ratio: float, result: Result) -> str:
    """What a ratio of ours to theirs means: better or worse only where the case left something to choose."""
    if abs(ratio - 1) <= _EQUAL:
        return "equal"
    chosen = result.space is not None and result.space.log10_total > 0
    if not chosen and result.assumptions.compute_model != "cycle":  # whose tiles are shared out to kernels
        return f"{100 * (ratio - 1):+.3g} %, fixed"
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
    for name in ("overrides", "gap", "per level", "seconds"):
        shown.add_column(name, justify="right", no_wrap=True)
    for name in ("form", "check", "status"):
        shown.add_column(name, no_wrap=True)
    last = None
    for row in rows:
        figures = [f"{row[k]:.10g}" if row[k] is not None else "-" for k in ("reported", "ours")]
        gaps = ["-" if row[k] is None else f"{row[k]:.1e}" if row[k] else "0" for k in ("gap", "level_gap")]
        again = row["case"] == last
        once = (f"{row['seconds']:.2f}", row["formulation"], row["check"].partition(";")[0], row["status"])
        case, overrides = ("", "") if again else (row["case"], str(row["overrides"] or ""))
        once = ("",) * 4 if again else once
        shown.add_row(case, row["quantity"], *figures, row["ours_is"], overrides, *gaps, *once)
        last = row["case"]
    return shown


def summary(rows: list[dict[str, Any]]) -> str:
    """How many cases are met in all that they report, those without overrides apart, and what was verified of them."""
    cases: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        cases.setdefault(row["case"], []).append(row)
    words = []
    for word, wanted in (("without", False), ("with", True)):
        found = [c for c in cases.values() if c[0]["status"] == "ok" and bool(c[0]["overrides"]) is wanted]
        equal = sum(all(row["ours_is"] == "equal" for row in case) for case in found)
        words.append(f"{equal} of {len(found)} cases {word} overrides")
    others = sum(case[0]["status"] != "ok" for case in cases.values())
    verdicts = Counter(case[0]["check"].partition(";")[0] for case in cases.values() if case[0]["check"])
    checked = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    met = f"equal to {_EQUAL:g}: {', '.join(words)}" + (f"; {others} refused or failed" if others else "")
    return f"{met}\nchecked: {checked}"


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
    parser.add_argument("--overrides", default=OVERRIDES, metavar="FILE", help="what cases leave out; none for nothing")
    parser.add_argument("--save", type=Path, metavar="DIR", help="write the result documents there")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds per case")
    options = parser.parse_args()
    options.overrides = None if options.overrides == "none" else options.overrides
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
    console.print(f"\n{summary(rows)}\n\n{notes(rows)}", highlight=False, markup=False)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
