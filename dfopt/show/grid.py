"""Tables that fit: at any width, on a terminal or in a pipe, no figure is cut and no header split.

A table that is too wide for its window wraps its texts, between words first. One that is still too wide is written
row by row, as names and values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from dfopt.errors import visible
from dfopt.show.html import TableCell

ColumnKind = Literal["figure", "word", "text"]
Shown = str | Text | TableCell
_FIXED: Final = "\N{NO-BREAK SPACE}"  # a blank at which no line ends
_UNIT: Final = re.compile(r"(?<=\d) (?=[A-Za-z%])|(?<=\(m) (?=K\))")  # between a figure and what it counts
_PIECE: Final = re.compile(
    rf"[^{_FIXED}_/,-]*[{_FIXED}_/,-]+|[^{_FIXED}_/,-]+"
)  # of a word that is too long for a line
_NARROW: Final = 16  # characters that a column of texts has at least, if they are as long
_TALL: Final = 6  # lines of a cell, at most


def _wrapped(text: str, width: int) -> list[str]:
    """A text in lines: broken between words, inside one only if it is longer than a line.

    Examples
    --------
    >>> _wrapped("FFN1_bwd_weight_update takes 12 ms", 14)
    ['FFN1_bwd_', 'weight_update', 'takes 12 ms']
    """
    if cell_len(text) <= width:
        return [text]
    lines = [""]
    for word in _UNIT.sub(_FIXED, text).split(" "):
        for position, piece in enumerate(_PIECE.findall(word) if cell_len(word) > width else [word]):
            blank = " " if position == 0 and lines[-1] else ""
            if cell_len(lines[-1] + blank + piece) <= width:
                lines[-1] += blank + piece
                continue
            lines += [piece[start : start + width] for start in range(0, len(piece), width)]
    return [line.replace(_FIXED, " ").rstrip() for line in lines if line] or [""]


def _lines(text: str, width: int, style: str = "", indent: int = 0) -> Iterator[Text]:
    for line in _wrapped(text, max(width - indent, 1)):
        yield Text(" " * indent + line, style)


def _joined(cells: Iterable[str | Text], widths: Sequence[int], kinds: Sequence[ColumnKind], gap: int) -> Text:
    """Cells beside each other, figures on the right of their columns."""
    line = Text()
    for cell, width, kind in zip(cells, widths, kinds, strict=True):
        pad = " " * (width - cell_len(str(cell)))
        line.append(" " * gap if line else "")
        line.append_text(Text.assemble(*((pad, cell) if kind == "figure" else (cell, pad))))
    line.rstrip()
    return line


def _plain(cell: Shown) -> str | Text:
    return cell if isinstance(cell, Text) else visible(str(cell.shown if isinstance(cell, TableCell) else cell))


class Grid:
    """A table for the terminal, with an optional title, named columns, and rows of texts or `TableCell`.

    Of the columns a ``figure`` is on the right and whole, a ``word`` on the left and whole; a ``text`` may be wrapped.

    Examples
    --------
    >>> import sys
    >>> columns = {"kernels": "text", "time": "figure", "bound by": "word"}
    >>> grid = Grid("Partitions", columns, [("LayerNorm_1, Q, K, V", "2.424", "compute")])
    >>> print_to(sys.stdout, grid, 33)
    Partitions
    kernels            time  bound by
    ─────────────────────────────────
    LayerNorm_1, Q,   2.424  compute
    K, V
    >>> print_to(sys.stdout, grid, 24)
    Partitions
    LayerNorm_1, Q, K, V
      time 2.424,
      bound by compute
    """

    def __init__(self, title: str, columns: Mapping[str, ColumnKind], rows: Iterable[Sequence[Shown]]) -> None:
        self.title, self.names, self.kinds = visible(title), tuple(map(visible, columns)), tuple(columns.values())
        self.rows = [tuple(row) for row in rows]  # as a page shows them too
        self.lines = [tuple(map(_plain, row)) for row in self.rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        if self.title:
            yield from _lines(self.title, width, "bold")
        gaps = len(self.names) - 1
        for gap in (2, 1):
            if (widths := self._widths(width - gap * gaps)) is not None:
                yield from self._table(widths, gap)
                return
        for row in self.lines:
            yield from self._record(row, width)

    def _widths(self, room: int) -> list[int] | None:
        """Characters for each column, or nothing where they do not fit."""
        columns = [[name, *(str(row[place]) for row in self.lines)] for place, name in enumerate(self.names)]
        widths = [max(map(cell_len, cells)) for cells in columns]
        least = [
            max(cell_len(cells[0]), min(width, _NARROW)) if kind == "text" else width
            for kind, width, cells in zip(self.kinds, widths, columns, strict=True)
        ]
        if sum(least) > room:
            return None
        while sum(widths) > room:  # the widest gives way
            widest = max((i for i, width in enumerate(widths) if width > least[i]), key=widths.__getitem__)
            widths[widest] -= 1
        tallest = max(len(_wrapped(cell, w)) for w, cells in zip(widths, columns, strict=True) for cell in cells)
        return widths if tallest <= _TALL else None

    def _table(self, widths: list[int], gap: int) -> Iterator[Text]:
        head = _joined(self.names, widths, self.kinds, gap)
        head.stylize("bold")
        yield from (head, Text("─" * (sum(widths) + gap * (len(widths) - 1))))
        for row in self.lines:
            cells = [_wrapped(str(cell), width) for cell, width in zip(row, widths, strict=True)]
            styles = [cell.style if isinstance(cell, Text) else "" for cell in row]
            for line in range(max(map(len, cells))):
                texts = (Text(cell[line] if line < len(cell) else "", style)
                         for cell, style in zip(cells, styles, strict=True))  # fmt: skip
                yield _joined(texts, widths, self.kinds, gap)

    def _record(self, row: Sequence[str | Text], width: int) -> Iterator[Text]:
        """A row by itself: its first cell, texts on lines of their own, the others as many to a line as fit."""
        (name, kind, head), *others = zip(self.names, self.kinds, map(str, row), strict=True)
        yield from _lines(head if kind != "figure" else f"{name} {head}", width, "bold")
        short: list[str] = []
        for name, kind, cell in others:
            if kind == "text" and cell:
                yield from _lines(f"{name} {cell}", width, indent=2)
            elif cell not in ("", "-"):
                short.append(f"{name} {cell}".replace(" ", _FIXED))
        yield from _lines(", ".join(short), width, indent=2)


class FactList:
    """Labels and texts for the terminal in two columns; one below the other if the labels leave no room.

    Examples
    --------
    >>> import sys
    >>> print_to(sys.stdout, FactList([("plan", "TP4(x) PP1"), ("step time", "766 s")]))
    plan       TP4(x) PP1
    step time  766 s
    """

    def __init__(self, rows: Iterable[tuple[str, str]]) -> None:
        self.rows = [(visible(name), visible(value)) for name, value in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        names = max((cell_len(name) for name, _ in self.rows), default=0)
        side_by_side = names + 2 <= options.max_width // 2
        for name, value in self.rows:
            if not side_by_side:
                yield from _lines(name, options.max_width, "bold")
                yield from _lines(value, options.max_width, indent=2)
                continue
            for number, line in enumerate(_wrapped(value, options.max_width - names - 2)):
                head = "" if number else name
                yield Text.assemble((head, "bold"), " " * (names + 2 - cell_len(head)), line)


def columns_of(stream: Any) -> int:
    """Number of columns of a terminal; 0 if unknown."""
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 0


class _Visible:
    """A renderable whose control characters are made visible, see `visible`."""

    def __init__(self, renderable: RenderableType) -> None:
        self.renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for text, style, control in console.render(self.renderable, options):
            yield Segment(text if control else visible(text), style, control)


def print_to(stream: Any, renderable: RenderableType, plain_width: int = 140) -> None:
    """Print a renderable without cutting or padding lines.

    Text is printed as it is: names and descriptions may hold brackets, which are no markup.

    Parameters
    ----------
    stream
        Text stream, such as ``sys.stdout``.
    renderable
        Text, or what rich can print.
    plain_width : int
        Columns of a stream that is no terminal, unless ``COLUMNS`` is set.
    """
    if isinstance(renderable, str):
        stream.write(visible(renderable) + "\n")
        return
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() else 0
    terminal = stream.isatty()
    if terminal and not width:
        width = columns_of(stream)
    size = {"width": width or plain_width, "height": 25}  # both, or rich takes 80 columns for a dumb terminal
    console = Console(file=stream, **size, highlight=False, markup=False, emoji=False)  # type: ignore[arg-type]
    if terminal:
        console.print(_Visible(renderable), crop=False)
        return
    with console.capture() as captured:
        console.print(_Visible(renderable), crop=False)
    stream.write("\n".join(line.rstrip() for line in captured.get().split("\n")))
