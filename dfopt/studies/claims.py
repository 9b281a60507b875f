"""Claims of a study, checked on its frame."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dfopt.documents.study import Claim, Study
from dfopt.studies.selection import numbers, selected

__all__ = ["Verdict", "judge", "verdicts"]


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    ``holds`` is none where it cannot be told: cells are pending, or have no such figure. ``cells`` says how many of
    the selected cells count, ``why`` what stands in the way, or the claim's own reason where it does not hold.
    """

    claim: Claim
    ours: float | None
    holds: bool | None
    cells: str
    why: str

    @property
    def expected(self) -> str:
        """The condition in words."""
        claim, said = self.claim, []
        if claim.within is not None and claim.paper is not None:
            said.append(f"{claim.paper:.4g} ± {100 * claim.within:.3g} %")
        if claim.at_least is not None:
            said.append(f">= {claim.at_least:.4g}")
        if claim.at_most is not None:
            said.append(f"<= {claim.at_most:.4g}")
        return ", ".join(said)


class _Open(Exception):
    """Why a claim cannot be told."""


def verdicts(study: Study, frame: Any) -> tuple[Verdict, ...]:
    """Check all claims of a study on its frame."""
    return tuple(judge(claim, frame) for claim in study.claims)


def judge(claim: Claim, frame: Any) -> Verdict:
    """Check one claim on a frame.

    Parameters
    ----------
    claim : Claim
        What is claimed.
    frame : pandas.DataFrame
        One row per cell with the columns that the claim names, and ``status``.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"chip": ["a", "a", "b"], "status": "optimal", "speed": [3.0, 5.0, 2.0]})
    >>> claim = Claim(name="a is faster", value="speed", over="chip == 'a'", against="chip == 'b'", at_least=1.5)
    >>> found = judge(claim, frame)
    >>> found.ours, found.holds, found.cells
    (2.0, True, '2 against 1')
    """
    over = selected(frame, claim.over)
    against = None if claim.against is None else selected(frame, claim.against)
    counted = [_with_values(rows, claim) for rows in (over, against) if rows is not None]
    cells = " against ".join(_count(len(kept), len(rows)) for kept, rows in zip(counted, (over, against), strict=False))
    try:
        for side, rows in zip(("over", "against"), (over, against), strict=True):
            if rows is not None:
                _check_complete(side, rows)
        ours = _figure(claim, counted[0], counted[1] if against is not None else None)
    except _Open as error:
        return Verdict(claim, None, None, cells, str(error))
    holds = _holds(claim, ours)
    lost = sum(len(rows) for rows in (over, against) if rows is not None) - sum(len(kept) for kept in counted)
    notes = [f"{lost} cell{'s' if lost > 1 else ''} without a figure left out"] if lost else []
    if not holds and claim.reason:
        notes.append(claim.reason)
    return Verdict(claim, ours, holds, cells, "; ".join(notes))


def _count(kept: int, selected_: int) -> str:
    return str(kept) if kept == selected_ else f"{kept} of {selected_}"


def _check_complete(side: str, rows: Any) -> None:
    if not len(rows):
        raise _Open(f"{side} selects no cell")
    pending = int((rows["status"] == "pending").sum())
    if pending:
        raise _Open(f"{pending} of the cells not run yet")


def _with_values(rows: Any, claim: Claim) -> Any:
    """The rows that have the figure, with it in a column of its own."""
    values = numbers(rows, claim.value).astype(float)
    return rows.assign(_value=values)[values.map(math.isfinite).astype(bool)] if len(rows) else rows.assign(_value=[])


def _figure(claim: Claim, over: Any, against: Any) -> float:
    if claim.aggregate.endswith("_of_ratios"):
        return _one_number(claim.aggregate.removesuffix("_of_ratios"), "the ratios", _ratios(claim, over, against))
    if claim.aggregate in ("argmax", "argmin"):
        _check_some("over", over)
        where = over["_value"].idxmax() if claim.aggregate == "argmax" else over["_value"].idxmin()
        return float(numbers(over.loc[[where]], str(claim.of)).iloc[0])
    top = _aggregate(claim.aggregate, "over", over)
    return top if against is None else _divide(top, _aggregate(claim.aggregate, "against", against))


def _aggregate(kind: str, side: str, rows: Any) -> float:
    _check_some(side, rows)
    return _one_number(kind, side, rows["_value"].tolist())


def _one_number(kind: str, what: str, values: Sequence[float]) -> float:
    if kind == "geometric_mean" and min(values) <= 0:
        raise _Open(f"a geometric mean needs figures above 0, found {min(values):.4g} in {what}")
    reduce: dict[str, Callable[[Sequence[float]], float]] = {
        "mean": statistics.fmean,
        "geometric_mean": statistics.geometric_mean,
        "median": statistics.median,
        "min": min,
        "max": max,
    }
    return float(reduce[kind](values))


def _ratios(claim: Claim, over: Any, against: Any) -> list[float]:
    """The quotients of groups of cells that are equal in the columns ``match``."""
    _check_some("over", over)
    _check_some("against", against)
    above, below = _means(over, claim.match), _means(against, claim.match)
    both = [key for key in above if key in below]
    if not both:
        raise _Open(f"no cells of over and against are equal in {', '.join(claim.match)}")
    return [_divide(above[key], below[key]) for key in both]


def _means(rows: Any, columns: Sequence[str]) -> dict[tuple[Any, ...], float]:
    """The mean of the figure for each combination of labels; a missing label is equal to a missing label."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for *key, value in rows[[*columns, "_value"]].itertuples(index=False):
        same = tuple(None if label != label else label for label in key)  # NaN is unlike itself
        groups.setdefault(same, []).append(float(value))
    return {key: statistics.fmean(values) for key, values in groups.items()}


def _check_some(side: str, rows: Any) -> None:
    if not len(rows):
        raise _Open(f"none of the cells of {side} has this figure")


def _divide(top: float, bottom: float) -> float:
    if bottom == 0:
        raise _Open("the figure of against is 0")
    return top / bottom


def _holds(claim: Claim, ours: float) -> bool:
    slack = 1e-9 * max(1.0, abs(ours))  # of the arithmetic, so that a limit met exactly is met
    if claim.within is not None and claim.paper is not None:
        allowed = claim.within * abs(claim.paper) + slack
        if not claim.paper - allowed <= ours <= claim.paper + allowed:
            return False
    if claim.at_least is not None and ours < claim.at_least - slack:
        return False
    return claim.at_most is None or ours <= claim.at_most + slack
