"""What ``dfopt sweep`` does: plain words in, a report on stdout, progress on stderr, an exit code."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from dfopt.errors import PlanError
from dfopt.studies.claims import Verdict
from dfopt.studies.runs import Runs, check_writable
from dfopt.studies.shard import Shard
from dfopt.studies.store import Record

__all__ = ["Progress", "run_sweep"]

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
    from dfopt.studies.sweep import collect, sweep

    stream = out if out is not None else sys.stdout
    part = "" if shard is None else f".{Shard.parse(shard).suffix}"
    path = store or f"{Path(study).stem}.runs{part}.jsonl"
    maps = [_heat_map(text) for text in heat_maps]
    for file in (csv, parquet):
        if file is not None:
            check_writable(file)
    line = Progress(quiet=quiet)
    if no_solve:
        runs = collect(study, path)
    else:
        try:
            runs = sweep(
                study, jobs=jobs, cluster=cluster, shard=shard, store=path, results=results, retry=retry, progress=line
            )
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
        self._worst = 0.0
        self._width = 0

    def __call__(self, done: int, whole: int, record: Record | None) -> None:
        """Take how many cells are done, of all, and the record that just came."""
        if record is None:
            self._began, self._start = time.perf_counter(), done
        else:
            self._lost += "figures" not in record
            self._worst = max(self._worst, (record.get("figures") or {}).get("gap") or 0.0)
        if not self._quiet:
            self._show(self._text(done, whole, time.perf_counter() - self._began))

    def _text(self, done: int, whole: int, spent: float) -> str:
        parts = [f"{done}/{whole} cells"]
        if self._lost:
            parts.append(f"{self._lost} without a mapping")
        if self._worst:
            parts.append(f"worst gap {100 * self._worst:.2g} %")
        parts.append(_time(spent))
        new = done - self._start
        if new and spent > 0:
            parts.append(f"{new / spent:.3g} cells/s" if new >= spent else f"{_time(spent / new)} per cell")
            if done < whole:
                parts.append(f"about {_time(spent / new * (whole - done))} left")
        return ", ".join(parts)

    def _show(self, text: str) -> None:
        # a line that is as wide as the terminal wraps, and cannot be rewritten
        text = text[: max(shutil.get_terminal_size().columns - 1, 20)]
        self._stream.write("\r" + text.ljust(self._width))
        self._stream.flush()
        self._width = len(text)

    def close(self) -> None:
        """Clear the line."""
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0


def _time(seconds: float) -> str:
    """Seconds in words a person reads at a glance."""
    if seconds < 120:
        return f"{seconds:.3g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
