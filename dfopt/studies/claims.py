"""Claims of a study, checked on its frame."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dfopt.documents.study import Study
from dfopt.documents.study_entries import Claim
from dfopt.studies.selection import numbers, selected


@dataclass(frozen=True)
class Verdict:
    """Outcome of checking one claim of a study.

    ``holds`` is None if it is unknown: cells are pending, or lack the figure. ``cells`` is the number of selected cells
    that count; ``why`` the obstacle, or the claim's own reason if it does not hold.
    """

    claim: Claim
    ours: float | None
    holds: bool | None
    cells: str
    why: str

    @property
    def expected(self) -> str:
        """The condition of the claim in words."""
        claim, conditions = self.claim, []
        if claim.within is not None and claim.paper is not None:
            conditions.append(f"{claim.paper:.4g} ± {100 * claim.within:.3g} %")
        if claim.at_least is not None:
            conditions.append(f">= {claim.at_least:.4g}")
        if claim.at_most is not None:
            conditions.append(f"<= {claim.at_most:.4g}")
        return ", ".join(conditions)


class _Open(Exception):
    """Why a claim cannot be told."""


def verdicts(study: Study, frame: Any) -> tuple[Verdict, ...]:
    """Check all claims of a study on its data frame."""
    return tuple(judge(claim, frame) for claim in study.claims)


def judge(claim: Claim, frame: Any) -> Verdict:
    """Check one claim on a data frame.

    Parameters
    ----------
    claim : Claim
        The claim.
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
    conditions = {"over": claim.over} | ({} if claim.against is None else {"against": claim.against})
    rows = {side: selected(frame, condition) for side, condition in conditions.items()}
    figures = {side: numbers(chosen, claim.value).astype(float) for side, chosen in rows.items()}
    figures = {side: values[values.abs() < math.inf] for side, values in figures.items()}  # not a number is not less
    lost = {side: len(rows[side]) - len(values) for side, values in figures.items()}
    cells = " against ".join(f"{len(values)} of {len(rows[side])}" if lost[side] else str(len(values))
                             for side, values in figures.items())  # fmt: skip
    try:
        for side, chosen in rows.items():
            if not len(chosen):
                raise _Open(f"{side} selects no cell")
            if pending := int((chosen["status"] == "pending").sum()):
                raise _Open(f"{pending} of the cells not run yet")
        for side, values in figures.items():
            if not len(values):
                raise _Open(f"none of the cells of {side} has this figure")
        ours = _figure(claim, rows, figures)
    except _Open as error:
        return Verdict(claim, None, None, cells, str(error))
    holds, out = _holds(claim, ours), sum(lost.values())
    notes = [f"{out} cell{'s' if out > 1 else ''} without a figure left out"] if out else []
    if not holds and claim.reason:
        notes.append(claim.reason)
    return Verdict(claim, ours, holds, cells, "; ".join(notes))


def _figure(claim: Claim, rows: Mapping[str, Any], figures: Mapping[str, Any]) -> float:
    """What the aggregate of a claim is; ``rows`` of the frame and ``figures`` of those that have one, by side."""
    if claim.aggregate.endswith("_of_ratios"):
        match = list(claim.match)  # the means of cells that are equal in these, where a missing label is equal to one
        means = [
            rows[side].loc[values.index, match].assign(_value=values).groupby(match, sort=False, dropna=False).mean()
            for side, values in figures.items()
        ]
        both = means[0].reset_index().merge(means[1].reset_index(), on=match)
        if not len(both):
            raise _Open(f"no cells of over and against are equal in {', '.join(match)}")
        ratios = _divided(both["_value_x"], both["_value_y"])
        return _reduced(claim.aggregate.removesuffix("_of_ratios"), "the ratios", ratios)
    if claim.aggregate in ("argmax", "argmin"):
        where = figures["over"].agg("idx" + claim.aggregate.removeprefix("arg"))
        return float(numbers(rows["over"].loc[[where]], str(claim.of)).iloc[0])
    first, *others = (_reduced(claim.aggregate, side, values) for side, values in figures.items())
    return float(_divided(first, others[0])) if others else first


def _reduced(kind: str, what: str, figures: Any) -> float:
    if kind != "geometric_mean":
        return float(figures.agg(kind))
    if figures.min() <= 0:
        raise _Open(f"a geometric mean needs figures above 0, found {figures.min():.4g} in {what}")
    return statistics.geometric_mean(figures)


def _divided(top: Any, bottom: Any) -> Any:
    if np.any(bottom == 0):
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
