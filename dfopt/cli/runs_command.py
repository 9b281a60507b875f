"""``dfopt runs``: what the stores of sweeps have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dfopt.cli.common import app, echo, emit, errors
from dfopt.cli.outputs import check_output
from dfopt.errors import PlanError

# Of a table on the terminal where no columns were asked for: what tells cells apart, and what they are compared by.
_SHOWN = ("status", "step_time_s", "gap", "utilization", "plan", "bound_by", "solve_s", "note")


@app.command()
def runs(
    stores: list[str], study: str | None = None, where: str | None = None, columns: str | None = None,
    sort: str | None = None, csv: Path | None = None, parquet: Path | None = None, merge: Path | None = None,
    force: bool = False, as_json: bool = False,
) -> None:  # fmt: skip
    """List the cells in the stores of sweeps, also while a sweep writes to them.

    Arguments:
        stores (STORE): Files of record, such as those of all parts of a sweep.

    Options:
        study (STUDY): Study whose cells and columns to show; default: all cells.
        where (CONDITION): Condition on rows, such as "chip == 'h100' and tp >= 8".
        columns (A,B,C): Columns in the order to show, such as graph,tp,step_time_s.
        sort ([-]COLUMN): Column to sort by, such as step_time_s, or -utilization for the largest first.
        merge (FILE): File for the records of all stores together.

    Examples:
        dfopt runs study.runs.jsonl --sort step_time_s
        dfopt runs part1.jsonl part2.jsonl --merge all.jsonl
        dfopt runs study.runs.jsonl --format csv
    """
    with errors():
        from dfopt.cli.sweep_tables import frame_table, plain_rows
        from dfopt.documents.store import damage, read_records, write_new
        from dfopt.studies.listing import listing, narrowed
        from dfopt.studies.runs import write_frame

        check_output("--csv", csv, (".csv", ".txt"))
        check_output("--parquet", parquet, (".parquet", ".pq"))
        if merge is not None:
            write_new(merge, read_records(*stores).values())
        wanted = [name.strip() for name in columns.split(",")] if columns is not None else []
        if columns is not None and not all(wanted):
            raise PlanError(f"--columns: found {columns!r}, expected names with commas between them, such as tp,pp")
        frame = narrowed(listing(stores, study), where, wanted, sort)
        if problem := damage(stores):
            echo(f"dfopt: {problem}", err=True)
        if csv is not None:
            write_frame(frame, csv, "csv")
        if parquet is not None:
            write_frame(frame, parquet, "parquet")
        if as_json or (csv is None and parquet is None and merge is None):
            title = f"{len(frame)} record{'' if len(frame) == 1 else 's'}"
            emit(
                as_json,
                lambda: {"stores": stores, "cells": plain_rows(frame)},
                lambda: frame_table(frame if wanted else _brief(frame), title),
                max(160, 40 * len(wanted)),
            )


def _brief(frame: Any) -> Any:
    """The axes that tell rows apart, and the figures that are looked at first; no column without a value."""
    from dfopt.documents.study_columns import COLUMNS
    from dfopt.studies.selection import telling

    if not len(frame):
        return frame[[name for name in ("graph", "system", "status") if name in frame.columns]]
    axes = telling(frame[[name for name in frame.columns if name not in COLUMNS]].astype(str).to_dict("records"))
    columns = [name for name in _SHOWN if name in frame.columns and frame[name].notna().any()]
    return frame[[*axes, *columns]]
