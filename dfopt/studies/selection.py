"""Conditions and values evaluated on rows, by pandas. The document has checked what they may say and name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Labels", "numbers", "selected"]


def selected(frame: Any, condition: str | None) -> Any:
    """The rows of a data frame in which a condition holds; all of them if there is none."""
    if condition is None:
        return frame
    # one line, as pandas wants it; the Python engine needs no numexpr and keeps text, None and numbers apart
    return frame.query(" ".join(condition.split()), engine="python")


class Labels:
    """Rows of labels on which many conditions are asked; each of them is looked at once.

    Parameters
    ----------
    rows : sequence of mappings
        Label by column.

    Examples
    --------
    >>> Labels([{"chip": "h100", "tp": 8}, {"chip": "tpu", "tp": 16}]).select("chip in ['tpu'] and tp > 8")
    [False, True]
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = rows
        self._frame: Any = None
        self._known: dict[str, list[bool]] = {}

    def select(self, condition: str) -> list[bool]:
        """Whether a condition holds, row by row."""
        if condition not in self._known:
            if self._frame is None:
                import pandas as pd

                self._frame = pd.DataFrame(list(self._rows))
            chosen = set(selected(self._frame, condition).index)
            self._known[condition] = [number in chosen for number in range(len(self._rows))]
        return self._known[condition]


def numbers(frame: Any, value: str) -> Any:
    """A column, or arithmetic of columns, as floats; not a number where a cell has none."""
    import pandas as pd

    if not len(frame):
        return pd.Series([], dtype=float)
    found = frame.eval(" ".join(value.split()), engine="python")
    return pd.to_numeric(found, errors="raise") if hasattr(found, "index") else pd.Series(found, index=frame.index)
