"""Cells as tasks, made when they are asked for; see `dfopt.processes.packing`."""

from __future__ import annotations

from collections.abc import Sequence

from dfopt.documents.base import Document
from dfopt.processes.packing import Task, pack
from dfopt.studies.cells import Cell

__all__ = ["Tasks"]


class Tasks(Sequence[Task]):
    """The tasks of cells, made when they are asked for: ten thousand of them need no memory.

    With ``keep`` the answers have the whole result document, not only its figures. ``folder``: where paths start.
    """

    def __init__(self, cells: Sequence[Cell], keep: bool = False, folder: str = ".") -> None:
        self.cells, self.keep, self.folder = cells, keep, folder
        self._packed: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self.cells)

    def __getitem__(self, at: int) -> Task:  # type: ignore[override]  # nobody takes a slice
        cell = self.cells[at]
        return {
            "cell": cell.key,
            "graph": self._once(cell.graph),
            "variants": [self._once(graph) for graph in cell.graphs[1:]],
            "system": self._once(cell.system),
            "assumptions": self._once(cell.assumptions),
            "options": cell.options.model_dump(),
            "seed": cell.seed,
            "keep": self.keep,
            **({} if cell.largest is None else {"largest": cell.largest.named().to_data(), "folder": self.folder}),
        }

    def _once(self, document: Document) -> str:
        if id(document) not in self._packed:  # the cells keep it alive, so its id stays its own
            self._packed[id(document)] = pack(document)
        return self._packed[id(document)]
