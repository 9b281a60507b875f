"""Sweeps on the terminal: what became of the cells, claims, heat maps, frames."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from dfopt.documents.heat import status_name
from dfopt.documents.study_columns import ASKED
from dfopt.show.grid import ColumnKind, Grid, Shown
from dfopt.studies.claims import Verdict
from dfopt.studies.frame import SOLVED
from dfopt.studies.runs import Runs
from dfopt.studies.selection import telling
from dfopt.units import number

_HOLDS = {True: Text("yes", "green"), False: Text("no", "red"), None: Text("open", "yellow")}
_SHOWN = (
    "physical_step_time_s",
    "step_time_s",
    "tokens_per_s",
    "tokens_per_s_per_chip",
    "tokens_per_s_per_sequence",
    "gap",
    "status",
)
_MOST = 60  # cells of a table
_SHADES = ("grey93 on grey15", "grey93 on grey30", "black on grey50", "black on grey70", "black on grey89")


def report(runs: Runs, heat_maps: Sequence[tuple[str, str]] = ()) -> RenderableType:
    """Terminal report of a sweep: counts, cells without a mapping, heat maps of (figure, column), and claims."""
    parts: list[RenderableType] = [Text(str(runs), style="bold")]
    parts += [Text(note, style="yellow") for note in runs.notes]
    parts += _problems(runs)
    for value, columns in heat_maps:
        parts += ["", heat_table(runs.heat_map(value, columns), value)]
    if runs.study.claims:
        parts += ["", claims_table(runs.claims())]
    parts += ["", _cells(runs)]
    return Group(*parts)


def _cells(runs: Runs) -> Grid:
    """What tells the cells apart, and their figures."""
    frame = runs.frame()
    labels = frame[[*dict.fromkeys((*runs.study.axis_columns, *ASKED))]].astype(str).to_dict("records")
    axes = telling(labels) or ["graph"]
    figures = [name for name in _SHOWN if frame[name].notna().any()]
    shown = frame[[*axes, *figures]].head(_MOST)
    more = "" if len(frame) <= _MOST else f", the first {_MOST} of {len(frame)}; --csv writes all"
    return frame_table(shown.assign(status=shown["status"].map(status_name)), f"Cells{more}")


def claims_table(verdicts: Sequence[Verdict]) -> Grid:
    """Table of all claims: value of the source, value of the cells, and whether they agree."""
    columns: dict[str, ColumnKind] = {
        "claim": "text", "figure": "text", "paper": "figure", "ours": "figure", "holds if": "word", "holds": "word",
        "cells": "figure", "why": "text",
    }  # fmt: skip
    rows = []
    for verdict in verdicts:
        claim, ours = verdict.claim, _cell(verdict.ours)
        row: list[Shown] = [claim.name, claim.figure, _cell(claim.paper), ours, verdict.expected, _HOLDS[verdict.holds]]
        rows.append([*row, str(verdict.cells), verdict.why])
    return Grid("Claims", columns, rows)


def heat_table(pivot: Any, title: str) -> Grid:
    """Pivot table with shaded cells, darkest for the smallest value; a dash for missing ones."""
    columns: dict[str, ColumnKind] = {str(name): "word" for name in pivot.index.names}
    columns |= {str(label): "figure" for label in pivot.columns}
    figures = [float(x) for x in pivot.to_numpy(dtype=float, na_value=math.nan).ravel() if x == x]
    low, high = (min(figures), max(figures)) if figures else (0.0, 0.0)
    rows: list[list[Shown]] = []
    for key, line in pivot.iterrows():
        labels = key if isinstance(key, tuple) else (key,)
        row: list[Shown] = ["-" if label != label or label is None else str(label) for label in labels]
        rows.append([*row, *(_shaded(value, low, high) for value in line)])
    return Grid(title, columns, rows)


def frame_table(frame: Any, title: str) -> Grid:
    """Data frame as a table for the terminal."""
    columns: dict[str, ColumnKind] = {
        str(name): "figure" if frame[name].dtype.kind in "iuf" else "text" for name in frame.columns
    }
    return Grid(title, columns, [[_cell(value) for value in row.values()] for row in plain_rows(frame)])


def plain_rows(frame: Any) -> list[dict[str, Any]]:
    """Rows of a data frame as plain data, with None for missing values."""
    rows: list[dict[str, Any]] = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return rows


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return number(value) if isinstance(value, float) else str(value)


def _shaded(value: Any, low: float, high: float) -> Text:
    if value is None or value != value:
        return Text("-")
    place = (value - low) / (high - low) if high > low else 1.0
    return Text(number(value), style=_SHADES[min(int(place * len(_SHADES)), len(_SHADES) - 1)])


def _problems(runs: Runs) -> list[RenderableType]:
    """Cells without a mapping, by message: a hundred cells often share one."""
    by_message: dict[tuple[str, str], list[str]] = {}
    for cell in runs.cells:
        record = runs.records.get(cell.key)
        if record is None or record["status"] in SOLVED:
            continue
        first = str(record.get("message", "")).strip().splitlines()
        by_message.setdefault((record["status"], first[0] if first else ""), []).append(cell.label)
    lines: list[RenderableType] = []
    for (status, message), labels in by_message.items():
        more = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
        lines.append(Text(f"{status_name(status)}: {labels[0]}{more}: {message}", style="yellow"))
    return lines
