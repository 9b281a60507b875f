"""The report of a sweep: claims, figures, and every cell."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from dfopt.documents.heat import status_name
from dfopt.documents.study_columns import COLUMNS, TEXT_COLUMNS
from dfopt.show import plots
from dfopt.show.html import Html, TableCell, facts, mark, paragraph, subtitle, table
from dfopt.show.plots.cells import axis_columns, figure_of, label_of, named, rows_of, scatter_columns, text_of, varying
from dfopt.show.report.page import LIMIT, PageFigure, PagePart, assemble, draw, heading, needs_matplotlib
from dfopt.show.report.sources import Remark, inputs_section
from dfopt.show.tables import percent, seconds
from dfopt.studies.claims import Verdict
from dfopt.studies.frame import SOLVED

_CELLS: Final = 14_000  # of the table of cells: about half of the limit of the file
_MAPS: Final = 8  # workloads that are drawn
_LAST: Final = ("note", "cell", "dfopt")  # what few readers look for
_FRONTS: Final = "Every cell{} by {} and {}, with the fronts that no cell beats in both."
_HOLDS: Final = {True: ("yes", "good"), False: ("no", "bad"), None: ("open", "open")}


def sweep_report(  # noqa: PLR0913 - a public function with options
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
    by: str | None = None,
    version: str = "",
    limit: int = LIMIT,
) -> str:
    """Self-contained HTML page of the cells of a sweep.

    Parameters
    ----------
    name : str
        Name of the study, or of the source of the cells.
    runs : Runs, pandas.DataFrame or list of dict
        Result of ``df.sweep``, its frame, or rows.
    about, claims, remarks, notes, limit
        Facts of the study, verdicts on its claims, and as of `result_report`.
    value, x, y : str, optional
        Columns of the heat map, and of the two axes of the scatter; by default utilization, and the first of price,
        power, chips and memory in use that differs between cells, against the achieved rate.
    by : str, optional
        Column whose values have separate fronts in the scatter plot; by default there is one front for each workload.

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
    across, up = scatter_columns(rows)
    sections = [
        PagePart("claims", "Claims", [_claims(claims)]) if claims else None,
        PagePart("figures", "Figures", _figures(rows, value or "utilization", x or across, y or up, by)),
        _cells(rows), inputs_section(about, remarks, notes), _columns(rows),
    ]  # fmt: skip
    return assemble(f"{name}: dfopt report", _head(name, rows, about, claims), sections, version, limit)


def _figures(rows: list[dict[str, Any]], value: str, x: str, y: str, by: str | None) -> list[PageFigure]:
    """For every workload of a sweep a heat map of one figure, and two figures against each other."""
    graphs = list(dict.fromkeys(text_of(row, "graph") for row in rows)) if "graph" in varying(rows) else []
    others = varying(rows, ["graph"])
    if len(graphs) > 1 and len(others) == 1:  # a line for each graph: one map has them all
        words = f"Heat map of {label_of(value)[0]} by graph and {others[0]}; hatched where a cell has no mapping."
        every = [draw("map", words, plots.heat_map, rows, value, x=others[0], y="graph", paper=True)]
        return [
            *every,
            draw("pareto", _FRONTS.format("", label_of(x)[0], label_of(y)[0]), plots.pareto, rows, x, y, by),
        ]
    parts = {name: [row for row in rows if text_of(row, "graph") == name] for name in graphs[:_MAPS]} or {"": rows}
    figures = []
    for number, (name, members) in enumerate(parts.items()):
        of = f" of {name}" if name else ""
        words = f"Heat map of {label_of(value)[0]}{of}; hatched where a cell has no mapping."
        figures.append(draw(f"map-{number}", words, plots.heat_map, members, value, title=name or None, paper=True))
        words = _FRONTS.format(of, label_of(x)[0], label_of(y)[0])
        figures.append(draw(f"pareto-{number}", words, plots.pareto, members, x, y, by))
    if len(graphs) > _MAPS:
        why = f"the first {_MAPS} of {len(graphs)} workloads are; `dfopt plot` draws the others"
        figures.append(PageFigure("more", "Figures of all workloads.", why=why))
    return figures


def _head(name: str, rows: list[dict[str, Any]], about: Sequence[tuple[str, str]], claims: Sequence[Verdict]) -> Html:
    counts = Counter(text_of(row, "status") or "unknown" for row in rows)
    solved = [row for row in rows if text_of(row, "status") in SOLVED]
    gaps = [gap for row in solved if (gap := figure_of(row, "gap")) is not None]
    boxes: list[tuple[str, object]] = [
        ("cells", f"{len(rows)} cell{'' if len(rows) == 1 else 's'}"),
        ("status", ", ".join(f"{count} {status_name(status)}" for status, count in counts.most_common())),
    ]
    if gaps:
        boxes.append(("worst gap to any mapping", percent(max(gaps))))
    if claims:
        held, failed = (sum(verdict.holds is holds for verdict in claims) for holds in (True, False))
        kind = "good" if held == len(claims) else "bad" if failed else "open"
        boxes.append(("claims that hold", mark(f"{held} of {len(claims)}", kind)))
    spent = [solve_s for row in rows if (solve_s := figure_of(row, "solve_s")) is not None]
    if spent:
        boxes.append(("solved in", seconds(sum(spent))))
    described = [paragraph(words) for title, words in about if title == "description"]
    return heading("a sweep", name, boxes, *described)


def _claims(claims: Sequence[Verdict]) -> Html:
    rows = [
        [verdict.claim.name, verdict.claim.figure or "-", _four(verdict.claim.paper), _four(verdict.ours),
         verdict.expected, mark(*_HOLDS[verdict.holds]), verdict.cells, verdict.why]
        for verdict in claims
    ]  # fmt: skip
    columns = ["claim", "figure", "source says", "ours", "holds if", "holds", "cells", "why"]
    return table("What the source claims, and what the cells say", columns, rows)


def _four(value: float | None) -> TableCell:
    return TableCell("-") if value is None else TableCell(f"{value:.4g}", value)


def _cells(rows: list[dict[str, Any]]) -> PagePart:
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
    return PagePart("cells", "Cells", [
        _problems(rows), table("Every cell, with what differs between them", kept, lines, note),
        *((subtitle("The same in every cell"), facts(alike)) if alike else ()),
    ])  # fmt: skip


def _figure(row: dict[str, Any], name: str) -> TableCell:
    words = text_of(row, name)
    number = figure_of(row, name) if name not in TEXT_COLUMNS else None
    if number is None or not math.isfinite(number):
        return TableCell(words or "-")
    shown = f"{number:.5g}" if abs(number) < 1e15 and not number.is_integer() else f"{number:.6g}"
    return TableCell(f"\N{GREATER-THAN OR EQUAL TO} {shown}" if name == "bound_s" else shown, number)


def _problems(rows: list[dict[str, Any]]) -> Html | None:
    """Cells without a mapping by message: a hundred cells often share one."""
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        status = text_of(row, "status")
        if status not in SOLVED:
            counts[status or "unknown", text_of(row, "note").strip().partition("\n")[0]] += 1
    lines = [[status_name(status), count, message] for (status, message), count in counts.items()]
    return table("Cells without a mapping", ["status", "cells", "why"], lines) if lines else None


def _columns(rows: list[dict[str, Any]]) -> PagePart:
    meanings = [[str(name), COLUMNS[str(name)]] for name in rows[0] if str(name) in COLUMNS]
    return PagePart("columns", "Columns", [table("What the columns of cells mean", ["column", "meaning"], meanings)])
