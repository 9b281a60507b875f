"""What a sweep returns: the cells of a study with their records, as a frame, verdicts on claims, and heat maps."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dfopt.documents.files import replaced
from dfopt.documents.heat import status_name
from dfopt.documents.html import facts_html, table_html
from dfopt.documents.store import Record
from dfopt.documents.study import Study
from dfopt.errors import PlanError
from dfopt.studies.cells import Cell
from dfopt.studies.claims import Verdict, verdicts
from dfopt.studies.frame import frame
from dfopt.studies.selection import check_column, telling


@dataclass(frozen=True, repr=False)
class Runs:
    """Cells of a study in order, with the records of those that were run.

    ``interrupted`` says whether the sweep ended before its last cell; ``notes`` has remarks on the store.
    """

    study: Study
    cells: tuple[Cell, ...]
    records: Mapping[str, Record]
    interrupted: bool = False
    notes: tuple[str, ...] = ()

    def frame(self) -> Any:
        """A :class:`pandas.DataFrame` with one row per cell; `dfopt.documents.study_columns` documents its columns."""
        return frame(self.study, self.cells, self.records)

    def claims(self) -> tuple[Verdict, ...]:
        """Verdicts on all claims of the study."""
        return verdicts(self.study, self.frame())

    def heat_map(self, value: str = "utilization", columns: str = "topology", rows: Sequence[str] = ()) -> Any:
        """Pivot table of one figure: one axis as columns, others as rows, with the mean of coinciding cells.

        Parameters
        ----------
        value : str
            Name of the figure, a column of the frame.
        columns : str
            Axis of the study whose values are columns.
        rows : sequence of str
            Axes whose values are rows; by default those that tell the cells apart, without any that the others tell.

        Raises
        ------
        PlanError
            If a name is no column of that kind.
        """
        check_column("heat map: value", value, self.study.figure_columns, "figure of the study's frame")
        for option, name in [("columns", columns), *(("rows", name) for name in rows)]:
            check_column(f"heat map: {option}", name, self.study.axis_columns, "axis of the study's frame")
        table = self.frame()
        labels = table[list(self.study.axis_columns)].astype(str).to_dict("records")
        down = list(rows) or telling(labels, [columns])
        return table.pivot_table(
            index=down or "graph", columns=columns, values=value, aggfunc="mean", sort=False, dropna=False
        )

    def counts(self) -> dict[str, int]:
        """Number of cells by status, the most frequent first."""
        pending = {"status": "pending"}
        statuses = (str(self.records.get(cell.key, pending)["status"]) for cell in self.cells)
        return dict(Counter(statuses).most_common())

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the data frame as CSV."""
        write_frame(self.frame(), path, "csv")

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write the data frame as Parquet; this needs ``python -m pip install pyarrow``."""
        write_frame(self.frame(), path, "parquet")

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {status_name(status)}" for status, count in self.counts().items())
        plural = "" if len(self.cells) == 1 else "s"
        return f"Runs({self.study.name}: {len(self.cells)} cell{plural}, {counts})"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        counts = ((status_name(status), str(count)) for status, count in self.counts().items())
        facts = [("study", self.study.name), ("cells", str(len(self.cells))), *counts]
        words = {True: "yes", False: "no", None: "open"}
        rows = [
            [
                verdict.claim.name,
                "-" if verdict.ours is None else f"{verdict.ours:.4g}",
                verdict.expected,
                words[verdict.holds],
                verdict.why,
            ]
            for verdict in self.claims()
        ]
        claims = table_html("Claims", ("claim", "ours", "holds if", "holds", "why"), rows, 50) if rows else ""
        return facts_html(facts) + claims


def _inert(cell: Any) -> Any:
    """A text that a spreadsheet takes for a formula, behind an apostrophe; numbers as they are."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def inert(frame: Any) -> Any:
    """Data frame whose texts cannot be mistaken for formulas by a spreadsheet."""
    texts = frame.select_dtypes(exclude="number").columns
    return frame.assign(**frame[texts].map(_inert)).rename(columns=_inert)


def write_frame(frame: Any, path: str | os.PathLike[str], kind: Literal["csv", "parquet"]) -> None:
    """Write a data frame to a file, atomically.

    Parameters
    ----------
    frame, path
        The data frame of pandas, and the file to write.
    kind : {"csv", "parquet"}
        Format of the file. In CSV no cell begins a formula of a spreadsheet.

    Raises
    ------
    PlanError
        If pandas finds no library that writes Parquet.
    """
    try:
        frame = frame.copy(deep=False)
        frame.attrs["writer"] = "dfopt"  # in Parquet; CSV has no place for it
        if kind == "csv":
            frame = inert(frame)
        with replaced(path) as part:
            (frame.to_csv if kind == "csv" else frame.to_parquet)(part, index=False)
    except ImportError:
        raise PlanError(
            f"{path}: pandas has no library that writes Parquet; python -m pip install pyarrow, or write CSV"
        ) from None
