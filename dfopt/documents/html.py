"""Small HTML tables of documents for notebooks: no colours of their own, so that every theme suits them."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from dfopt.errors import visible

SUMMARY: Final[list[Callable[[Any], list[tuple[str, str]]]]] = []  # lines of an answer, as those say who print them
MOST = 20  # rows of a table in a notebook; all of them are in the document


def escape(text: str, quote: bool = True) -> str:
    """Text with markup characters escaped, and invisible characters made visible."""
    return html.escape(visible(text), quote)


def facts_html(rows: Iterable[tuple[str, str]]) -> str:
    """HTML table of labels and values."""
    left = 'style="text-align:left"'
    lines = (
        f'<tr><th scope="row" {left}>{escape(name)}</th><td {left}>{escape(text)}</td></tr>' for name, text in rows
    )
    return f"<table>{''.join(lines)}</table>"


def table_html(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], most: int = MOST) -> str:
    """HTML table with a title; after ``most`` rows it only counts the rest.

    Parameters
    ----------
    title, columns
        Title of the table, or "", and its headers.
    rows
        By row a text for each column.
    most : int
        Most rows that are written.
    """
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    lines = [f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows[:most]]
    if len(rows) > most:
        lines.append(f'<tr><td colspan="{len(columns)}">... {len(rows) - most} more</td></tr>')
    caption = f'<caption style="text-align:left">{escape(title)}</caption>' if title else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
