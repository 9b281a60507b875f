"""Answers as CSV: a row for each result, cell or name, and a column for each figure."""

from __future__ import annotations

import sys
from typing import Any

from dfopt.documents.base import Document
from dfopt.documents.exploration import Exploration
from dfopt.documents.result import Result


def rows_of(data: Any) -> list[dict[str, Any]]:
    """Rows of an answer for CSV: nested figures get dotted names, and lists of parts are left out.

    Examples
    --------
    >>> rows_of(["a"]), rows_of({"cells": [{"x": 1}]}), rows_of({"a": {"b": 1.5}, "c": [{"d": 2}]})
    ([{'name': 'a'}], [{'x': 1}], [{'a.b': 1.5}])
    """
    if isinstance(data, Exploration):
        data = data.result
    if isinstance(data, Result):
        return [dict(data.summary())]
    data = data.to_data() if isinstance(data, Document) else data
    if isinstance(data, dict) and isinstance(data.get("cells"), list):
        data = data["cells"]
    if isinstance(data, list):
        return [dict(_flat(each, "")) if isinstance(each, dict) else {"name": each} for each in data]
    return [dict(_flat(data, ""))]


def _flat(data: dict[str, Any], before: str) -> Any:
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        elif not isinstance(value, list):
            yield f"{before}{key}", value


def write_rows(data: Any) -> None:
    """Print an answer as CSV; texts that could be formulas start with an apostrophe."""
    import pandas as pd

    from dfopt.studies.runs import inert

    inert(pd.DataFrame(rows_of(data))).to_csv(sys.stdout, index=False)
