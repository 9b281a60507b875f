"""Cells as tasks, made when they are asked for; see `dfopt.processes.packing`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dfopt.documents.base import Document
from dfopt.documents.zoo import resolve_near
from dfopt.processes.packing import Task, pack
from dfopt.studies.cells import Cell


class Tasks(Sequence[Task]):
    """Lazy sequence of the tasks of cells, so that ten thousand of them need no memory.

    With ``keep`` the answers have the whole result document, not only its figures. ``folder``: where paths start.
    """

    def __init__(self, cells: Sequence[Cell], keep: bool = False, folder: Path | None = None) -> None:
        self.cells, self.keep, self.folder = cells, keep, (folder or Path()).absolute()
        self._packed: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self.cells)

    def __getitem__(self, at: int) -> Task:  # type: ignore[override]  # nobody takes a slice
        cell, ends = self.cells[at], {"time_limit": self.cells[at].options.time_limit}
        return {"cell": cell.key, "asked": self.asked(cell), "keep": self.keep, "options": ends}

    def asked(self, cell: Cell) -> dict[str, Any]:
        """Everything that the solve of a cell depends on, as plain data."""
        if (question := cell.largest) is None:
            workload: dict[str, Any] = {"graphs": self._once(cell.graphs)}
        else:
            path = resolve_near("graphs", self.folder, str(question.graph))
            workload = {"graph": str(path), "parameters": question.parameters}
        documents = {"system": self._once([cell.system]), "assumptions": self._once([cell.assumptions])}
        return {**workload, **documents, "options": cell.options.stated(), "seed": cell.seed}

    def _once(self, documents: Sequence[Document]) -> str:
        if (key := id(documents[0])) not in self._packed:  # the cells keep it alive, so its id stays its own
            self._packed[key] = pack(*documents)
        return self._packed[key]
