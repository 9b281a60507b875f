"""Solve thermal reference cases of die stacks and compare with what HotSpot and 3D-ICE printed for them.

    python benchmarks/reference/thermal.py DIR [--json OUT] [--base DIR]

DIR may hold any of these, and each may hold any of its cases:

    hotspot_cases.json               hotspot_results.csv hotspot_blocks.csv hotspot_summary.csv
                                     hotspot_grid_refinement.csv package_plate_fv.csv hotspot_solver_checks.csv
    threedice_cases.json             threedice_results.csv threedice_blocks.csv threedice_summary.csv
    threedice_transient_cases.json   threedice_transient.csv

One row per layer or tile and quantity (T_max, T_mean; Celsius). A case without reported figures is solved all the
same; its rows have none. The stack of a transient, and a case that is reported but not described, are looked up in DIR,
then in ``--base``; reported figures of a case that is in neither are ``unsupported``. ``package_plate_fv.csv`` is no
independent tool (plates meshed in another way) and is reported without a limit.

Exit code 0, 1 if a case or a file raised an error, 3 if DIR holds none of these files.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from report import Row, write_rows
from rich.console import Console
from rich.table import Table
from thermal_rows import LIMITS, Run
from thermal_solve import TRANSIENT, column, hotspot_extras, steady, transient

BASE = Path(__file__).resolve().parents[3] / "shared" / "reference" / "thermal"
FILES = ("hotspot_cases.json", "threedice_cases.json", TRANSIENT)
FIGURES = (
    "hotspot_solver_checks.csv", "hotspot_results.csv", "hotspot_blocks.csv", "hotspot_summary.csv",
    "hotspot_grid_refinement.csv", "package_plate_fv.csv", "threedice_results.csv", "threedice_blocks.csv",
    "threedice_summary.csv", "threedice_transient.csv",
)  # fmt: skip


def table(rows: list[Row]) -> Table:
    """Each group in one line."""
    found = Table(title="Thermal reference: reported against ours", show_edge=False)
    for name in ("group", "cases", "rows", "compared", "max error K", "at", "limit K", "met", "errors"):
        found.add_column(name, justify="left" if name in ("group", "at", "met") else "right", no_wrap=True)
    for group, limit in LIMITS.items():
        mine = [row for row in rows if row["group"] == group]
        if not mine:
            continue
        compared = [row for row in mine if row["error_K"] is not None]
        worst = max(compared, key=lambda row: abs(row["error_K"]), default=None)
        errors = sum(row["status"] == "error" for row in mine)
        met = "-" if limit is None or worst is None else "yes" if all(row["met"] for row in compared) else "NO"
        where = f"{worst['case']} {worst['quantity']}" if worst else "-"
        error = f"{abs(worst['error_K']):.3g}" if worst else "-"
        cases = len({row["case"].split("/")[0] for row in mine})
        found.add_row(group, str(cases), str(len(mine)), str(len(compared)), error, where,
                      "-" if limit is None else f"{limit:g}", met, str(errors))  # fmt: skip
    return found


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the rows as JSON")
    parser.add_argument("--base", type=Path, default=BASE, metavar="DIR", help="where cases are that DIR leaves out")
    options = parser.parse_args()
    if not any((options.folder / name).is_file() for name in (*FILES, *FIGURES)):
        print(f"{options.folder}: no case file found, expected one of {', '.join(FILES)}", file=sys.stderr)
        return 3
    run = Run(options.folder, options.base)
    steady(run, "hotspot", "hotspot", hotspot_extras)
    steady(run, "htc", "threedice")
    transient(run)
    column(run)
    broken = [row for row in run.rows if "above" in row["check"]]
    if broken:
        run.fail(f"{broken[0]['case']}: {broken[0]['check']}")
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table(run.rows))
    if options.json:
        write_rows(run.rows, options.json)
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
