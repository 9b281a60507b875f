"""Tasks as plain data that a process on any machine can solve, each document packed once.

A task is a pure function's argument: it holds all that the solve depends on, so that any process can do it, twice if
one is lost. Many tasks share their documents; what is sent is the compressed text of each, and a process parses a
document once and keeps it (of the 4 x 80 cells of a study 25 KB of JSON per cell become 3 KB).
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

from dfopt.documents.base import Document

__all__ = ["Task", "pack", "unpack"]

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
