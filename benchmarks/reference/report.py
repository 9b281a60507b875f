"""What the runners of reference cases share: the keys of a row, and rows as JSON without bare NaN or Infinity."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["KEYS", "Row", "finished", "write_rows"]

Row = dict[str, Any]

# As ``dfmodel.py`` writes them; a runner may add keys of its own.
KEYS = (
    "case", "quantity", "reported", "ours", "ratio", "ours_is", "gap", "seconds", "status", "note", "formulation",
    "check",
)  # fmt: skip


def finished(row: Row) -> Row:
    """A row with every key, and nothing in place of what is no finite number; without ours, it is an error.

    >>> finished({"case": "a", "quantity": "time", "ours": float("nan"), "status": "ok", "note": ""})["status"]
    'error'
    """
    found = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in row.items()}
    if found["ours"] is None and row["ours"] is not None:
        note = f"ours is {row['ours']}, expected a finite number; {row['note']}".strip("; ")
        found |= {"status": "error", "note": note}
    texts = dict.fromkeys(("ours_is", "formulation", "check"), "")
    return {**dict.fromkeys(KEYS), **texts, "seconds": 0.0, **found}


def write_rows(rows: Iterable[Row], path: Path) -> None:
    """Write rows as JSON that any reader takes."""
    path.write_text(json.dumps(list(rows), indent=1, allow_nan=False) + "\n", encoding="utf-8")
