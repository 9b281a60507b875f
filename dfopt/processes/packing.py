"""Tasks as plain data that a process on any machine can solve, each document packed once.

A task is a pure function's argument: it holds all that the solve depends on, so that any process can do it, twice if
one is lost. Many tasks share their documents; what is sent is the compressed text of each, that of all graphs of a
task together, and a process parses it once and keeps it (of the 4 x 80 cells of a study 25 KB of JSON become 3 KB).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from dfopt.documents.base import Document, DocumentT
from dfopt.documents.packed import packed, unpacked
from dfopt.errors import refuse, shown

Task = Mapping[str, Any]


def pack(*documents: Document) -> str:
    """Serialize documents of one kind to compressed base-85 text.

    Examples
    --------
    >>> from dfopt.documents.assumptions import Assumptions, profile
    >>> unpack(Assumptions, pack(profile("default"))) == (profile("default"),)
    True
    """
    return packed([document.to_data() for document in documents])


def unpack(kind: type[DocumentT], sent: str | Mapping[str, Any], name: str = "") -> tuple[DocumentT, ...]:
    """Parse packed documents, once per process; plain data of a single document is accepted too.

    Parameters
    ----------
    kind
        Class of the documents.
    sent : str or mapping
        Packed documents, or plain data of a single one.
    name : str
        Name of the documents in errors.

    Raises
    ------
    DocumentError
        If the data is no document of this kind.
    """
    if not isinstance(sent, str):
        return (kind.from_data(dict(sent), name),)
    documents: tuple[DocumentT, ...] = _parsed(kind, sent, name)
    return documents


@lru_cache(64)  # the graphs of a study and the system at hand
def _parsed(kind: type[Document], sent: str, name: str) -> Any:
    try:
        content = unpacked(sent)
    except ValueError:
        refuse(name, f"found {shown(sent)}, expected packed documents", "keep what a sweep wrote")
    return tuple(kind.from_data(each, name) for each in content)
