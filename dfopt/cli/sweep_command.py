"""The command sweep: solve all cells of a study, or list them, and check its claims."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dfopt.cli.common import app, echo, emit, errors, importing, store_of
from dfopt.cli.outputs import check_folder, check_output
from dfopt.errors import PlanError

if TYPE_CHECKING:
    from dfopt.documents.study import Study
    from dfopt.studies.runs import Runs

_PLAIN_WIDTH = 160  # of tables that go to a file or a pipe: claims say why in a column of their own


@app.command()
def sweep(
    study: str, jobs: int | None = None, cluster: str | None = None, part: str | None = None,
    store: Path | None = None, out_dir: Path | None = None, csv: Path | None = None, parquet: Path | None = None,
    heat_map: list[str] | None = None, retry: bool = False, no_solve: bool = False, dry_run: bool = False,
    check: bool = False, quiet: bool = False, force: bool = False, as_json: bool = False,
) -> None:  # fmt: skip
    """Solve every cell of a study, and compare its claims with the answers. A second run goes on where one stopped.

    Arguments:
        study (STUDY): File of the study.

    Search:
        jobs (N 1..): Number of processes; default: the cores of this machine.
        cluster (ADDRESS): Scheduler of a Dask cluster, such as tcp://10.0.0.1:8786.
        part (I/N): Part of the cells to solve, such as 1/4 in a Slurm array.
        retry (--retry): Solve failed cells again.
        no_solve (--no-solve): Report the cells of the store, and solve none.
        dry_run (--dry-run): List the cells and their status, and solve none.

    Output:
        store (FILE): File of record, whose cells are not solved again; default: NAME.runs.jsonl.
        out_dir (DIR): Folder for the result of every cell, such as results.
        heat_map (FIGURE[:AXIS]): Figure to print as a heat map, such as utilization:topology.
        check (--check): Exit with status 1 unless every claim holds.

    Examples:
        dfopt sweep study.yaml --csv cells.csv
        dfopt sweep study.yaml --dry-run
        dfopt sweep study.yaml --part 1/4 --out-dir results
    """
    with errors("; the same command goes on with the cells that are not solved yet"):
        with importing():
            from dfopt.cli.sweep_progress import SweepProgress
            from dfopt.cli.sweep_tables import report
            from dfopt.studies.shard import Shard
            from dfopt.studies.sweep import collect, load_study
            from dfopt.studies.sweep import sweep as solve_all

        share = None if part is None else Shard.parse(part)
        path = store_of(study, store, "" if share is None else share.suffix)
        document = load_study(study)[0]
        maps = [_heat_map(text, document) for text in heat_map or ()]
        if dry_run:
            unused = {"--csv": csv, "--parquet": parquet, "--out-dir": out_dir, "--heat-map": maps, "--check": check}
            if others := ", ".join(option for option, given in unused.items() if given):
                raise PlanError(f"--dry-run: it only lists cells, leave out {others}, or use --no-solve instead")
            if store is not None and not os.path.exists(path):
                echo(f"dfopt: {path} does not exist yet: no cell is solved", err=True)
            _list(collect(study, *([path] if os.path.exists(path) else [])), share, as_json)
            return
        check_output("--csv", csv, (".csv", ".txt"))
        check_output("--parquet", parquet, (".parquet", ".pq"))
        kept = Path(out_dir or ".").glob("[0-9a-f]" * 16 + ".json")
        check_folder("--out-dir", out_dir, (file.name for file in kept))
        if no_solve:
            runs = collect(study, path)
        else:
            with closing(SweepProgress(quiet=quiet)) as view:
                runs = solve_all(
                    study, jobs=jobs, cluster=cluster, part=part, store=path, out_dir=out_dir, retry=retry,
                    progress=view,
                )  # fmt: skip
        files = (csv, runs.to_csv), (parquet, runs.to_parquet)
        emit(as_json, lambda: _data(runs, runs.frame(), True), lambda: report(runs, maps), _PLAIN_WIDTH, files)
        if runs.interrupted:
            echo(f"dfopt: interrupted; the same command goes on from {path}", err=True)
            raise typer.Exit(5)
        if check and not all(verdict.holds for verdict in runs.claims()):
            raise typer.Exit(1)


def _data(runs: Runs, frame: Any, claims: bool = False) -> dict[str, Any]:
    """Cells, and claims if asked for, as plain data."""
    from dfopt.cli.sweep_tables import plain_rows

    data = {"study": runs.study.name, "notes": list(runs.notes), "cells": plain_rows(frame)}
    of_claim, of_verdict = ("name", "figure", "paper"), ("ours", "expected", "holds", "cells", "why")
    if claims:
        data["claims"] = [
            {key: getattr(verdict.claim, key) for key in of_claim} | {key: getattr(verdict, key) for key in of_verdict}
            for verdict in runs.claims()
        ]
    return data


def _list(runs: Runs, share: Any, as_json: bool) -> None:
    """The cells of a study, or of a share of it: their labels, and the status of each."""
    from rich.console import Group

    from dfopt.cli.sweep_tables import frame_table

    frame = runs.frame()
    axes = [name for name in runs.study.axis_columns if frame[name].nunique(dropna=False) > 1 or name == "graph"]
    if share is not None:
        frame = frame[frame["cell"].isin(share.share(cell.key for cell in runs.cells))]
    listed = frame[[*axes, "status", "cell"]]
    title = str(runs) + ("" if share is None else f", {len(listed)} of them in this share")
    emit(as_json, lambda: _data(runs, listed), lambda: Group(frame_table(listed, title), *runs.notes), _PLAIN_WIDTH)


def _heat_map(text: str, study: Study) -> tuple[str, str]:
    """Figure and axis of a heat map, checked before the work and not after it."""
    from dfopt.studies.selection import check_column

    value, colon, axis = text.partition(":")
    if not value or (colon and not axis):
        raise PlanError(f"--heat-map: found {text!r}, expected FIGURE or FIGURE:AXIS, such as utilization:topology")
    axis = axis or "topology"
    check_column("--heat-map", value, study.figure_columns, "figure of the study's frame")
    check_column("--heat-map", axis, study.axis_columns, "axis of the study's frame")
    return value, axis
