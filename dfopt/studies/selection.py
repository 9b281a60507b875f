"""Conditions and values evaluated on rows, by pandas, and the labels that tell rows apart.

The document has checked what conditions and values may say and name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dfopt.errors import PlanError, did_you_mean

_PARTS = ("chip", "memory", "stack", "link", "topology")  # of a system that a study composes


def selected(frame: Any, condition: str | None) -> Any:
    """Rows of a data frame that satisfy a condition; all rows without one."""
    if condition is None:
        return frame
    # one line, as pandas wants it; the Python engine needs no numexpr and keeps text, None and numbers apart
    return frame.query(" ".join(condition.split()), engine="python")


def check_column(option: str, name: str, names: Sequence[str], what: str = "column of the frame") -> None:
    """Check that a column name is known.

    Parameters
    ----------
    option, name : str
        The argument that gave the name, and the name.
    names
        Names of all columns.
    what : str
        What they are columns of, for messages.

    Raises
    ------
    PlanError
        If the name is none of them.
    """
    if name not in names:
        remedy = did_you_mean(name, names, f"one of {', '.join(names)}")
        raise PlanError(f"{option}: found {name!r}, no {what}; {remedy}")


def numbers(frame: Any, value: str) -> Any:
    """A column, or an arithmetic expression of columns, as floats; NaN where a cell has no value."""
    import pandas as pd

    if not len(frame):
        return pd.Series([], dtype=float)
    values = frame.eval(" ".join(value.split()), engine="python")
    return pd.to_numeric(values, errors="raise") if hasattr(values, "index") else pd.Series(values, index=frame.index)


def telling(rows: Sequence[Mapping[str, Any]], given: Sequence[str] = ()) -> list[str]:
    """The fewest label columns that, with the ``given`` ones, distinguish all distinguishable rows.

    Of two columns that always change together only the first is kept. Of a system and its parts these are the parts, if
    parts are combined with each other, else the system.

    All rows have the same columns; those of ``given`` tell rows apart already.

    Examples
    --------
    >>> rows = [{"chip": c, "link": f"of {c}", "batch": b} for c in ("h100", "tpu") for b in (1, 2)]
    >>> telling(rows), telling(rows, given=["link"])
    (['chip', 'batch'], ['batch'])
    """

    def count(names: Iterable[str]) -> int:
        listed = list(names)
        return len({tuple(row[name] for name in listed) for row in rows})

    def fewest(names: list[str]) -> list[str]:
        for name in names[::-1]:
            rest = [other for other in names if other != name]
            if count([*given, *rest]) == count([*given, *names]):
                names = rest
        return names

    telling_alone = [name for name in (rows[0] if rows else ()) if name not in given and count([name]) > 1]
    parts = [name for name in (*telling_alone, *given) if name in _PARTS]
    combined = math.prod(count([name]) for name in parts) < 2 * count(parts)
    kept = [name for name in telling_alone if (name != "system" if combined else name not in _PARTS)]
    return fewest(kept if count([*given, *kept]) == count([*given, *telling_alone]) else telling_alone)
