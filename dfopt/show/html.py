"""Pieces of an HTML page: tables that sort, lists of facts, marks. Every text is escaped here and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dfopt.documents.html import escape

_SHORT: Final = 36  # letters that a cell has on one line
_WIDE: Final = 100  # letters from which a cell is set in long lines, not in many
_TALL: Final = 40  # rows of a table that scrolls in a box of its own
_PRINTED: Final = 13  # columns that a sheet of paper takes; report.css leaves out the others


@dataclass(frozen=True)
class Html:
    """Markup that is safe to insert into a page as it is; `text` escapes everything else."""

    code: str

    def __str__(self) -> str:
        return self.code


class TableCell(NamedTuple):
    """Text of a table cell, and the number to sort by; without one it sorts by its text."""

    shown: str | Html
    value: float | None = None


def text(value: object) -> str:
    """Any value as escaped markup; `Html` stays as it is."""
    return value.code if isinstance(value, Html) else escape(str(value), quote=True)


def join(*parts: Html | None) -> Html:
    """Concatenate pieces of HTML; None is skipped."""
    return Html("\n".join(part.code for part in parts if part is not None))


def mark(words: str, kind: str) -> Html:
    """A highlighted badge with some words; ``kind`` is good, bad, open or note."""
    return Html(f'<span class="mark {escape(kind, quote=True)}">{escape(words)}</span>')


def paragraph(*parts: object, kind: str = "") -> Html:
    """An HTML paragraph of texts and markup, with ``kind`` as its class."""
    attribute = f' class="{escape(kind, quote=True)}"' if kind else ""
    return Html(f"<p{attribute}>{''.join(map(text, parts))}</p>")


def facts(rows: Iterable[tuple[str, object]], kind: str = "facts") -> Html:
    """Labels and values as an HTML description list, with ``kind`` as its class."""
    lines = "".join(f"<div><dt>{escape(name)}</dt><dd>{text(value)}</dd></div>" for name, value in rows)
    return Html(f'<dl class="{escape(kind, quote=True)}">{lines}</dl>')


def subtitle(title: str) -> Html:
    """An HTML heading within a section."""
    return Html(f"<h3>{escape(title)}</h3>")


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], note: str = "") -> Html:
    """An HTML table that scrolls in its box and sorts by its headers.

    A cell is a text, `Html` or `TableCell`; columns whose cells all have a number or nothing are set to the right.

    Parameters
    ----------
    title, columns
        Title of the table, and its headers.
    rows
        By row a cell for each column.
    note : str
        A sentence below the table, such as how many rows are left out.

    Examples
    --------
    >>> made = table("Two", ["name", "s"], [["a", TableCell("1 ms", 1e-3)], ["<b>", TableCell("2 s", 2.0)]]).code
    >>> '<td class="n" data-v="0.001">1 ms</td>' in made, "<b>" in made
    (True, False)
    """
    lines = [[cell if isinstance(cell, TableCell) else _plain(cell) for cell in row] for row in rows]
    right = [
        any(row[i].value is not None for row in lines)
        and all(row[i].value is not None or row[i].shown in ("", "-") for row in lines)
        for i in range(len(columns))
    ]
    head = "".join(
        f'<th scope="col"{kind}>{escape(name)}</th>'
        for name, kind in zip(columns, (' class="n"' if numeric else "" for numeric in right), strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row, right))}</tr>\n" for row in lines)
    size = (" tall" if len(lines) > _TALL else "") + (" wide" if len(columns) > _PRINTED else "")
    below = f'<p class="note">{escape(note)}</p>' if note else ""
    if len(columns) > _PRINTED:
        below += f'<p class="note cut">On paper: the first {_PRINTED} of {len(columns)} columns.</p>'
    label = escape(title, quote=True)
    return Html(
        f'<div class="box{size}" role="region" tabindex="0" aria-label="{label}"><table class="sorts">'
        f"<caption>{escape(title)}</caption><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>{below}"
    )


def _plain(value: object) -> TableCell:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return TableCell("-" if value is None else value if isinstance(value, Html) else str(value))
    return TableCell(f"{value:.6g}" if isinstance(value, float) else str(value), float(value))


def _cell(cell: TableCell, right: bool) -> str:
    number = ""
    if cell.value is not None and math.isfinite(cell.value):
        number = f' data-v="{cell.value:.8g}"'
    # short texts stay on one line, and the box scrolls; long ones are set in lines
    letters = 0 if isinstance(cell.shown, Html) else len(cell.shown)
    lines = "l w" if letters > _WIDE else "l" if letters > _SHORT else ""
    kind = ' class="n"' if right else f' class="{lines}"' if lines else ""
    inner = f"<div>{text(cell.shown)}</div>" if letters > _WIDE else text(cell.shown)
    return f"<td{kind}{number}>{inner}</td>"
