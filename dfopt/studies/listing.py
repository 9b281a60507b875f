"""What stores have, as a frame: with the study's file all its columns, without it what the records themselves say."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic_core import PydanticCustomError

from dfopt.documents.store import Record, read_records
from dfopt.documents.study_columns import AXIS_COLUMNS, COLUMNS
from dfopt.documents.study_expressions import check_expression
from dfopt.errors import PlanError
from dfopt.studies.frame import INTEGERS, of_record
from dfopt.studies.selection import check_column, selected
from dfopt.studies.sweep import collect


def listing(stores: Sequence[str | os.PathLike[str]], study: str | None = None) -> Any:
    """Data frame of the records of several stores, one row each, without duplicates.

    With a study's file: only its cells, in its order, with all columns of its frame. Without one the columns are
    those that follow from the records alone: no prices, and nothing about the chips.

    Raises
    ------
    DocumentError
        If a file is no store, or the study is invalid.
    """
    if study is None:
        return records_frame(read_records(*stores).values())
    table = collect(study, *stores).frame()
    return table[table["status"] != "pending"].reset_index(drop=True)


def records_frame(records: Iterable[Record]) -> Any:
    """Data frame of records: axis labels, study, and figures of the solve.

    Columns are those of `dfopt.documents.study_columns`, and ``study``. Records of an earlier dfopt have no labels.

    Examples
    --------
    >>> record = {"cell": "c0ffee", "status": "infeasible", "study": "mine", "axes": {"graph": "gpt", "degree": 8}}
    >>> records_frame([record])[["study", "graph", "degree", "status"]].to_dict("records")
    [{'study': 'mine', 'graph': 'gpt', 'degree': 8, 'status': 'infeasible'}]
    """
    import pandas as pd

    parts = [(record.get("study"), record.get("axes") or {}, of_record(record)) for record in records]
    rows = [{"study": study, **figures, **labels} for study, labels, figures in parts]
    axes = {name: None for _, labels, _ in parts for name in labels}
    named = dict.fromkeys(name for row in rows for name in row)
    order = dict.fromkeys(["study", *AXIS_COLUMNS, *axes, *(name for name in named if name not in COLUMNS)])
    if not any("gap" in row for row in rows):  # no figures yet: a condition on them holds nowhere, and is no mistake
        named |= dict.fromkeys((*AXIS_COLUMNS, *COLUMNS))
    columns = [name for name in dict.fromkeys((*order, *COLUMNS)) if name in named or name == "study"]
    table = pd.DataFrame(rows, columns=columns)
    for name in INTEGERS & set(columns) - set(axes):  # whole numbers stay so where some cells have none
        table[name] = table[name].astype("Int64")
    return table


def narrowed(frame: Any, where: str | None = None, columns: Sequence[str] = (), sort: str | None = None) -> Any:
    """A data frame with some rows and columns, sorted.

    Parameters
    ----------
    frame : pandas.DataFrame
        Cells of a sweep.
    where : str, optional
        A condition as in a study's claims; only rows that meet it are kept.
    columns : sequence of str
        Columns to keep; empty: all.
    sort : str, optional
        Column by which rows are sorted, the smallest first; of ``-COLUMN`` the largest. Rows without a value come last.

    Raises
    ------
    PlanError
        If a column does not exist, or the condition is none.
    """
    names = [str(name) for name in frame.columns]
    if where is not None:
        try:
            check_expression(where, "condition", names)
        except PydanticCustomError as error:
            context = error.context or {}
            raise PlanError(f"--where: {context['message']} ({context['remedy']})") from None
        try:
            frame = selected(frame, where)
        except (TypeError, ValueError) as error:  # text compared with a number
            raise PlanError(f"--where: {where!r} cannot be told: {error}") from None
    if sort is not None:
        by = sort.removeprefix("-")
        check_column("--sort", by, names)
        frame = frame.sort_values(by, ascending=by == sort, kind="stable", na_position="last")
    for name in columns:
        check_column("--columns", name, names)
    return (frame[list(columns)] if columns else frame).reset_index(drop=True)
