"""The report of a sweep: claims, figures, and every cell."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from dfopt.documents.study_columns import COLUMNS, TEXT_COLUMNS
from dfopt.show.html import Cell, Html, facts, join, mark, paragraph, section, subtitle, table, text
from dfopt.show.plots.cells import axis_columns, figure_of, named, rows_of, scatter_columns, text_of
from dfopt.show.report.figures import sweep_figures
from dfopt.show.report.inputs import Remark
from dfopt.show.report.page import LIMIT, Page, assemble, needs_matplotlib
from dfopt.show.tables import percent, seconds
from dfopt.studies.claims import Verdict
from dfopt.studies.frame import SOLVED

__all__ = ["sweep_report"]

_CELLS: Final = 14_000  # of the table of cells: about half of the limit of the file
_LAST: Final = ("note", "cell", "dfopt")  # what few readers look for
_HOLDS: Final = {True: ("yes", "good"), False: ("no", "bad"), None: ("open", "open")}


def sweep_report(
    name: str,
    runs: Any,
    *,
    about: Sequence[tuple[str, str]] = (),
    claims: Sequence[Verdict] = (),
    remarks: Sequence[Remark] = (),
    notes: Sequence[str] = (),
    value: str | None = None,
    x: str | None = None,
    y: str | None = None,
    version: str = "",
    limit: int = LIMIT,
) -> str:
    """The cells of a sweep as one HTML file.

    Parameters
    ----------
    name : str
        Of the study, or of what the cells came from.
    runs : Runs, pandas.DataFrame or list of dict
        What ``df.sweep`` returned, its frame, or rows.
    about : sequence of (str, str)
        Facts of the study.
    claims : sequence of Verdict
        Verdicts on its claims.
    remarks, notes
        As of `result_report`.
    value, x, y : str, optional
        Columns of the heat map, and of the two axes of the scatter; by default utilization, and the first of price,
        power, chips and memory in use that differs between cells, against the achieved rate.
    version : str
        Of dfopt.
    limit : int
        Bytes of the file; figures that do not fit are left out, and named.

    Raises
    ------
    PlanError
        If there are no rows, a column is not there or has no figures, Matplotlib is missing, or the tables alone pass
        the limit.

    Examples
    --------
    >>> rows = [{"chip": c, "topology": t, "status": "optimal", "utilization": 0.5} for c in "ab" for t in "xy"]
    >>> page = sweep_report("mine", rows)
    >>> "4 cells" in page, "://" in page
    (True, False)
    """
    needs_matplotlib()
    rows = [dict(row) for row in rows_of(runs)]
    for option, column in (("--value", value), ("--x", x), ("--y", y)):
        if column is not None:
            named(rows, column, option, figures=True)
    shown = value or "utilization"
    across, up = scatter_columns(rows)
    across, up = x or across, y or up
    sections: list[tuple[str, str, Any]] = []
    if claims:
        sections.append(("claims", "Claims", lambda drawn: section("claims", "Claims", _claims(claims))))
    sections += [
        ("figures", "Figures", lambda drawn: section("figures", "Figures", *drawn.values())),
        ("cells", "Cells", lambda drawn: _cells(rows)),
        ("inputs", "Inputs and sources", lambda drawn: _inputs(about, remarks, notes)),
        ("columns", "Columns", lambda drawn: _columns(rows)),
    ]
    written = f" by dfopt {version}" if version else ""
    foot = f"Written{written}. This file asks for nothing from any network."
    figures = sweep_figures(rows, shown, across, up)
    return assemble(Page(f"{name}: dfopt report", _head(name, rows, about, claims), sections, figures, foot), limit)


def _head(name: str, rows: list[dict[str, Any]], about: Sequence[tuple[str, str]], claims: Sequence[Verdict]) -> Html:
    counts = Counter(text_of(row, "status") or "unknown" for row in rows)
    solved = [row for row in rows if text_of(row, "status") in SOLVED]
    gaps = [gap for row in solved if (gap := figure_of(row, "gap")) is not None]
    boxes: list[tuple[str, object]] = [
        ("cells", f"{len(rows)} cell{'' if len(rows) == 1 else 's'}"),
        ("status", ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in counts.most_common())),
    ]
    if gaps:
        boxes.append(("worst gap to any mapping", percent(max(gaps))))
    if claims:
        held = sum(one.holds is True for one in claims)
        kind = "good" if held == len(claims) else "open" if all(one.holds is not False for one in claims) else "bad"
        boxes.append(("claims that hold", mark(f"{held} of {len(claims)}", kind)))
    spent = [one for row in rows if (one := figure_of(row, "solve_s")) is not None]
    if spent:
        boxes.append(("solved in", seconds(sum(spent))))
    return join(
        Html("<p class=note>dfopt report of a sweep</p>"),
        Html(f"<h1>{text(name)}</h1>"),
        facts(boxes, "head"),
        *(paragraph(words) for title, words in about if title == "description"),
    )


def _claims(claims: Sequence[Verdict]) -> Html:
    rows = [
        [one.claim.name, one.claim.figure or "-", _four(one.claim.paper), _four(one.ours), one.expected,
         mark(*_HOLDS[one.holds]), one.cells, one.why]
        for one in claims
    ]  # fmt: skip
    columns = ["claim", "figure", "source says", "ours", "holds if", "holds", "cells", "why"]
    return table("What the source claims, and what the cells say", columns, rows)


def _four(value: float | None) -> Cell:
    return Cell("-") if value is None else Cell(f"{value:.4g}", value)


def _cells(rows: list[dict[str, Any]]) -> Html:
    names = [str(name) for name in rows[0]]
    kinds = {name: {text_of(row, name) for row in rows} for name in names}
    axes = axis_columns(rows)
    same = [name for name in names if len(kinds[name]) == 1 and len(rows) > 1]
    empty = [name for name in names if kinds[name] == {""}]
    kept = [name for name in names if name not in same and name not in empty]
    kept = sorted(kept, key=lambda name: (name in _LAST, name not in (*axes, "status")))
    most = max(20, _CELLS // max(len(kept), 1))
    lines = [[_figure(row, name) for name in kept] for row in rows[:most]]
    note = "SI units, as the ends of the names say; shares are fractions of 1."
    if len(rows) > most:
        note += f" The first {most} of {len(rows)} cells; `dfopt sweep --no-solve --csv` writes all of them."
    alike = [(name, _figure(rows[0], name).shown) for name in same if name not in empty]
    return section(
        "cells",
        "Cells",
        _problems(rows),
        table("Every cell, with what differs between them", kept, lines, note),
        *((subtitle("The same in every cell"), facts(alike)) if alike else ()),
    )


def _figure(row: dict[str, Any], name: str) -> Cell:
    words = text_of(row, name)
    number = figure_of(row, name) if name not in TEXT_COLUMNS else None
    if number is None or not math.isfinite(number):
        return Cell(words or "-")
    shown = f"{number:.5g}" if abs(number) < 1e15 and not number.is_integer() else f"{number:.6g}"
    return Cell(f"\N{GREATER-THAN OR EQUAL TO} {shown}" if name == "bound_s" else shown, number)


def _problems(rows: list[dict[str, Any]]) -> Html | None:
    """Cells without a mapping by message: a hundred cells often share one."""
    found: dict[tuple[str, str], int] = {}
    for row in rows:
        status = text_of(row, "status")
        if status not in SOLVED:
            first = text_of(row, "note").strip().splitlines()
            key = (status or "unknown", first[0] if first else "")
            found[key] = found.get(key, 0) + 1
    if not found:
        return None
    lines = [[status.replace("_", " "), count, message] for (status, message), count in found.items()]
    return table("Cells without a mapping", ["status", "cells", "why"], lines)


def _inputs(about: Sequence[tuple[str, str]], remarks: Sequence[Remark], notes: Sequence[str]) -> Html:
    parts: list[Html | None] = [facts(about) if about else None, subtitle("Unconfirmed inputs")]
    if remarks:
        listed = [[f"{one.file}:{one.number}", mark(one.kind, "note"), one.line, one.said] for one in remarks]
        parts.append(table("Lines of zoo files that do not take their number for confirmed",
                           ["file", "word", "sets", "remark"], listed))  # fmt: skip
    return section("inputs", "Inputs and sources", *parts, *(paragraph(sentence) for sentence in notes))


def _columns(rows: list[dict[str, Any]]) -> Html:
    known = [[str(name), COLUMNS[str(name)]] for name in rows[0] if str(name) in COLUMNS]
    return section("columns", "Columns", table("What the columns of cells mean", ["column", "meaning"], known))
