"""Conditions and values evaluated on rows, by pandas. The document has checked what they may say and name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["numbers", "select", "selected"]


def selected(frame: Any, condition: str | None) -> Any:
    """The rows of a data frame in which a condition holds; all of them if there is none."""
    if condition is None:
        return frame
    # one line, as pandas wants it; the Python engine needs no numexpr and keeps text, None and numbers apart
    return frame.query(" ".join(condition.split()), engine="python")


def select(rows: Sequence[Mapping[str, Any]], condition: str) -> list[bool]:
    """Whether a condition holds, row by row.

    Examples
    --------
    >>> select([{"chip": "h100", "tp": 8}, {"chip": "tpu", "tp": 16}], "chip in ['tpu'] and tp > 8")
    [False, True]
    """
    import pandas as pd

    frame = pd.DataFrame(list(rows))
    chosen = set(selected(frame, condition).index)
    return [number in chosen for number in range(len(rows))]


def numbers(frame: Any, value: str) -> Any:
    """A column, or arithmetic of columns, as floats; not a number where a cell has none."""
    import pandas as pd

    if not len(frame):
        return pd.Series([], dtype=float)
    found = frame.eval(" ".join(value.split()), engine="python")
    return pd.to_numeric(found, errors="raise") if hasattr(found, "index") else pd.Series(found, index=frame.index)
