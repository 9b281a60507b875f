"""Tables as CSV: their rows, and cells that are what they must be or one clear error with line and column."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Sequence
from typing import Final, NoReturn

from dfopt.documents.files import MAX_BYTES, read_text
from dfopt.errors import did_you_mean, refuse, repeated, shown

_MOST: Final = 1e15  # of a count; more is a slip, and is not exact in floating point


class TableRow(dict[str, str]):
    """Cells of a CSV row by column, stripped of blanks."""

    path: str = ""
    line: int = 0

    def refuse(self, column: str, expected: str, remedy: str) -> NoReturn:
        """Raise a `DocumentError` for a cell.

        Parameters
        ----------
        column : str
            Column of the cell.
        expected, remedy : str
            What the cell should have, and what helps.

        Raises
        ------
        DocumentError
            Always.
        """
        message = f"line {self.line}, column {column!r}: found {shown(self[column])}, expected {expected}"
        refuse(self.path, message, remedy)

    def __missing__(self, column: str) -> NoReturn:
        remedy = did_you_mean(column, self, f"it has {', '.join(self)}")
        refuse(self.path, f"line 1: found no column {column!r}", remedy)

    def number(self, column: str) -> float:
        """Finite positive number in a column."""
        try:
            value = float(self[column].replace("_", "?"))
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            self.refuse(column, "a number above 0", "write it as 12.5 or 1e-3, or take the row out")
        return value

    def count(self, column: str) -> int:
        """Positive integer in a column."""
        text = self[column]
        if not (text.isascii() and text.isdecimal() and 0 < int(text[:20]) <= _MOST):
            self.refuse(column, "a whole number of 1 or more", "write all its digits, or take the row out")
        return int(text)


def read_table(
    path: str | os.PathLike[str], needed: Sequence[str] = (), most: int = MAX_BYTES
) -> tuple[list[str], list[TableRow]]:
    """Columns and rows of a CSV file.

    Parameters
    ----------
    path
        The file.
    needed : sequence of str
        Columns that it must have.
    most : int, B
        Most bytes that are read.

    Raises
    ------
    DocumentError
        If it cannot be read or is no table: without a line of columns, with rows of other lengths.
    """
    name = os.fspath(path)
    reader = csv.reader(io.StringIO(read_text(path, most), newline=""), strict=True)
    rows: list[TableRow] = []
    try:
        columns = [column.strip() for column in next(reader, [])]
        for _, column, _ in repeated(columns):
            refuse(name, f"line 1: found column {shown(column)} twice", "give each its own name")
        if missing := [column for column in needed if column not in columns]:
            refuse(name, f"line 1: found no column {', '.join(missing)}", f"give a table with {', '.join(needed)}")
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(columns):
                what = f"line {reader.line_num}: found {len(cells)} cells, expected {len(columns)} as in line 1"
                refuse(name, what, "quote texts that hold commas, and write empty cells too")
            row = TableRow(zip(columns, map(str.strip, cells), strict=True))
            row.path, row.line = name, reader.line_num
            rows.append(row)
    except csv.Error as error:
        refuse(name, f"line {reader.line_num}: found {error}, expected rows of CSV", "check its quotes and commas")
    return columns, rows
