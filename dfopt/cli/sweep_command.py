"""What ``dfopt sweep`` does: plain words in, a report on stdout, progress on stderr, an exit code."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from dfopt.errors import PlanError
from dfopt.studies.claims import Verdict
from dfopt.studies.runs import Runs, check_writable
from dfopt.studies.store import Record

__all__ = ["Progress", "run_sweep"]

_PLAIN_WIDTH = 160  # of tables that go to a file or a pipe: claims say why in a column of their own


def run_sweep(
    study: str,
    *,
    jobs: int | None = None,
    store: str | None = None,
    results: str | None = None,
    csv: str | None = None,
    parquet: str | None = None,
    heat_maps: Sequence[str] = (),
    retry: bool = False,
    no_solve: bool = False,
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
    store : str, optional
        The file of record; ``NAME.runs.jsonl`` in the working directory by default, after the study's file.
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
        Exit code: 0 done; 1 a claim does not hold or cannot be told (with ``check``); 5 interrupted by Ctrl-C.

    Raises
    ------
    DfoptError
        If the study, the store or an option is not what it must be.
    """
    from dfopt.studies.sweep import collect, sweep

    stream = out if out is not None else sys.stdout
    path = store or f"{Path(study).stem}.runs.jsonl"
    maps = [_heat_map(text) for text in heat_maps]
    for file in (csv, parquet):
        if file is not None:
            check_writable(file)
    line = Progress(quiet=quiet)
    if no_solve:
        runs = collect(study, path)
    else:
        try:
            runs = sweep(study, jobs=jobs, store=path, results=results, retry=retry, progress=line)
        finally:
            line.close()
    if csv is not None:
        runs.to_csv(csv)
    if parquet is not None:
        runs.to_parquet(parquet)
    if as_json:
        json.dump(as_data(runs), stream, indent=1, allow_nan=False)
        stream.write("\n")
    else:
        from dfopt.show.tables import print_to
        from dfopt.studies.report import report

        print_to(stream, report(runs, maps), _PLAIN_WIDTH)
    if runs.interrupted:
        print(f"dfopt: interrupted; the same command goes on from {path}", file=sys.stderr)
        return 5
    return int(check and not all(one.holds for one in runs.claims()))


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


def _heat_map(text: str) -> tuple[str, str]:
    value, colon, columns = text.partition(":")
    if not value or (colon and not columns):
        raise PlanError(f"--heat-map: found {text!r}, expected FIGURE or FIGURE:AXIS, such as utilization:topology")
    return value, columns or "topology"


class Progress:
    """One line on stderr, rewritten as cells end; nothing where stderr is no terminal.

    Examples
    --------
    >>> import io
    >>> Progress(stream=io.StringIO())(0, 8, None)  # no terminal: it says nothing
    """

    def __init__(self, stream: TextIO | None = None, quiet: bool = False) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._quiet = quiet or not self._stream.isatty()
        self._began = time.perf_counter()
        self._start = 0
        self._lost = 0
        self._width = 0

    def __call__(self, done: int, whole: int, record: Record | None) -> None:
        """Take how many cells are done, of all, and the record that just came."""
        if record is None:
            self._start = done
        else:
            self._lost += "figures" not in record
        if self._quiet:
            return
        spent = time.perf_counter() - self._began
        text = f"{done}/{whole} cells, {spent:.0f} s"
        if self._lost:
            text += f", {self._lost} without a mapping"
        if done > self._start and done < whole:
            text += f", about {spent / (done - self._start) * (whole - done):.0f} s left"
        self._stream.write("\r" + text.ljust(self._width))
        self._stream.flush()
        self._width = len(text)

    def close(self) -> None:
        """Clear the line."""
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0
