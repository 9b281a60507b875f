"""What ``dfopt sweep`` does: plain words in, a report on stdout, progress on stderr, an exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from dfopt.cli.sweep_progress import SweepProgress
from dfopt.documents.files import check_writable
from dfopt.documents.study import Study
from dfopt.errors import PlanError, did_you_mean
from dfopt.studies.claims import Verdict
from dfopt.studies.runs import Runs
from dfopt.studies.shard import Shard

__all__ = ["run_sweep"]

_PLAIN_WIDTH = 160  # of tables that go to a file or a pipe: claims say why in a column of their own


def run_sweep(
    study: str,
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    shard: str | None = None,
    store: str | None = None,
    results: str | None = None,
    csv: str | None = None,
    parquet: str | None = None,
    heat_maps: Sequence[str] = (),
    retry: bool = False,
    no_solve: bool = False,
    dry_run: bool = False,
    check: bool = False,
    as_json: bool = False,
    quiet: bool = False,
    out: TextIO | None = None,
) -> int:
    """Sweep a study and report.

    Parameters
    ----------
    study : str
        The study's file.
    jobs : int, optional
        Processes at once; the cores of this machine by default.
    cluster : str, optional
        Address of the scheduler of a Dask cluster that solves instead.
    shard : str, optional
        ``i/n``: only this share of the cells.
    store : str, optional
        The file of record; ``NAME.runs.jsonl`` in the working directory by default, after the study's file, and
        ``NAME.runs.1-of-4.jsonl`` for a share.
    results : str, optional
        Folder for the whole result of every cell.
    csv, parquet : str, optional
        Files for the frame.
    heat_maps : sequence of str
        Each a figure of the frame, or ``FIGURE:AXIS`` to choose what runs across (the topology by default).
    retry : bool
        Solve failed cells again.
    no_solve : bool
        Report only what the store has.
    dry_run : bool
        List the cells, and what the store has of them if there is one; solve and write nothing.
    check : bool
        Exit with 1 unless every claim holds.
    as_json : bool
        Print cells and claims as JSON, nothing else.
    quiet : bool
        No progress.
    out : text stream, optional
        Standard output by default.

    Returns
    -------
    int
        Exit code: 0 done; 1 a claim does not hold or cannot be told (with ``check``); 5 ended early, by Ctrl-C or
        because the cluster is lost.

    Raises
    ------
    DfoptError
        If the study, the store or an option is not what it must be.
    """
    from dfopt.studies.sweep import collect, load_study, sweep

    stream = out if out is not None else sys.stdout
    part = "" if shard is None else f".{Shard.parse(shard).suffix}"
    path = store or f"{Path(study).stem}.runs{part}.jsonl"
    document = load_study(study)[0]
    maps = [_heat_map(text, document) for text in heat_maps]
    if dry_run:
        beside = {"--csv": csv, "--parquet": parquet, "--results": results, "--heat-map": maps, "--check": check}
        if others := [option for option, given in beside.items() if given]:
            raise PlanError(f"--dry-run: it only lists cells, leave out {', '.join(others)}, or use --no-solve instead")
        runs = collect(study, *([path] if store is not None or Path(path).exists() else []))
        return _list(runs, Shard.parse(shard) if shard is not None else None, as_json, stream)
    for file in (csv, parquet):
        if file is not None:
            check_writable(file)
    view = SweepProgress(quiet=quiet)
    if no_solve:
        runs = collect(study, path)
    else:
        try:
            runs = sweep(
                study, jobs=jobs, cluster=cluster, shard=shard, store=path, results=results, retry=retry, progress=view
            )
        finally:
            view.close()
    try:
        if csv is not None:
            runs.to_csv(csv)
        if parquet is not None:
            runs.to_parquet(parquet)
    finally:  # what was found is told, whatever becomes of the files
        _tell(runs, maps, as_json, stream)
    if runs.interrupted:
        print(f"dfopt: interrupted; the same command goes on from {path}", file=sys.stderr)
        return 5
    return int(check and not all(one.holds for one in runs.claims()))


def _tell(runs: Runs, maps: Sequence[tuple[str, str]], as_json: bool, stream: TextIO) -> None:
    if as_json:
        json.dump(as_data(runs), stream, indent=1, allow_nan=False)
        stream.write("\n")
    else:
        from dfopt.cli.sweep_tables import report
        from dfopt.show.grid import print_to

        print_to(stream, report(runs, maps), _PLAIN_WIDTH)


def as_data(runs: Runs) -> dict[str, Any]:
    """Cells and claims as plain data; a figure that a cell does not have is none."""
    frame = runs.frame()
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return {
        "study": runs.study.name,
        "notes": list(runs.notes),
        "cells": rows,
        "claims": [_claim(one) for one in runs.claims()],
    }


def _claim(one: Verdict) -> dict[str, Any]:
    return {
        "name": one.claim.name,
        "figure": one.claim.figure,
        "paper": one.claim.paper,
        "ours": one.ours,
        "expected": one.expected,
        "holds": one.holds,
        "cells": one.cells,
        "why": one.why,
    }


def _list(runs: Runs, share: Shard | None, as_json: bool, stream: TextIO) -> int:
    """The cells of a study, or of a share of it: their labels, and the status of each."""
    frame = runs.frame()
    axes = [name for name in runs.study.axis_columns if frame[name].nunique(dropna=False) > 1 or name == "graph"]
    if share is not None:
        frame = frame[frame["cell"].isin(share.share(cell.key for cell in runs.cells))]
    listed = frame[[*axes, "status", "cell"]]
    if as_json:
        rows = listed.astype(object).where(listed.notna(), None).to_dict("records")
        json.dump({"study": runs.study.name, "notes": list(runs.notes), "cells": rows}, stream, indent=1)
        stream.write("\n")
        return 0
    from dfopt.cli.sweep_tables import frame_table
    from dfopt.show.grid import print_to

    of_share = "" if share is None else f", {len(listed)} of them in this share"
    print_to(stream, frame_table(listed, f"{runs}{of_share}"), _PLAIN_WIDTH)
    for note in runs.notes:
        print(note, file=stream)
    return 0


def _heat_map(text: str, study: Study) -> tuple[str, str]:
    """Figure and axis of a heat map, checked before the work and not after it."""
    value, colon, axis = text.partition(":")
    if not value or (colon and not axis):
        raise PlanError(f"--heat-map: found {text!r}, expected FIGURE or FIGURE:AXIS, such as utilization:topology")
    axis = axis or "topology"
    for found, what, known in ((value, "figure", study.figure_columns), (axis, "axis", study.axis_columns)):
        if found not in known:
            remedy = did_you_mean(found, known, f"one of {', '.join(known)}")
            raise PlanError(f"--heat-map: found {found!r}, no {what} of the study's frame; {remedy}")
    return value, axis
