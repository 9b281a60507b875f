"""Cells as tasks that a process on any machine can solve: plain data, each document packed once.

A task is a pure function's argument: it holds all that the cell depends on, so that any process can solve it, twice
if one is lost. Cells of a study share their documents; what is sent is the compressed text of each, and a process
parses a document once and keeps it (of the 4 x 80 cells of a study 25 KB of JSON per cell become 3 KB).
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from dfopt.documents.base import Document

if TYPE_CHECKING:  # a process that only solves needs no zoo and no workloads
    from dfopt.studies.cells import Cell

__all__ = ["Task", "Tasks", "pack", "unpack"]

Task = Mapping[str, Any]
Kind = TypeVar("Kind", bound=Document)


def pack(document: Document) -> str:
    """The text of a document, compressed, in base 85.

    Examples
    --------
    >>> from dfopt.documents.assumptions import Assumptions, profile
    >>> unpack(Assumptions, pack(profile("default"))) == profile("default")
    True
    """
    text = json.dumps(document.to_data(), separators=(",", ":"), allow_nan=False).encode()
    # level 6: 9 takes four times as long for 1 % less
    return base64.b85encode(zlib.compress(text, 6)).decode("ascii")


def unpack(kind: type[Kind], sent: str | Mapping[str, Any], name: str = "") -> Kind:
    """The document that was packed, parsed once per process; plain data is parsed as it is.

    Raises
    ------
    DocumentError
        If the data is no document of this kind.
    """
    if not isinstance(sent, str):
        return kind.from_data(dict(sent), name)
    found: Kind = _parsed(kind, sent, name)
    return found


@lru_cache(64)  # the graphs of a study and the system at hand
def _parsed(kind: type[Document], packed: str, name: str) -> Any:
    return kind.from_data(json.loads(zlib.decompress(base64.b85decode(packed))), name)


class Tasks(Sequence[Task]):
    """The tasks of cells, made when they are asked for: ten thousand of them need no memory.

    With ``keep`` the answers have the whole result document, not only its figures.
    """

    def __init__(self, cells: Sequence[Cell], keep: bool = False) -> None:
        self.cells, self.keep = cells, keep
        self._packed: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self.cells)

    def __getitem__(self, at: int) -> Task:  # type: ignore[override]  # nobody takes a slice
        cell = self.cells[at]
        return {
            "cell": cell.key,
            "graph": self._once(cell.graph),
            "system": self._once(cell.system),
            "assumptions": self._once(cell.assumptions),
            "options": cell.options.model_dump(),
            "seed": cell.seed,
            "keep": self.keep,
        }

    def _once(self, document: Document) -> str:
        if id(document) not in self._packed:  # the cells keep it alive, so its id stays its own
            self._packed[id(document)] = pack(document)
        return self._packed[id(document)]
