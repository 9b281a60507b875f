"""Tasks as plain data that a process on any machine can solve, each document packed once.

A task is a pure function's argument: it holds all that the solve depends on, so that any process can do it, twice if
one is lost. Many tasks share their documents; what is sent is the compressed text of each, that of all graphs of a
task together, and a process parses it once and keeps it (of the 4 x 80 cells of a study 25 KB of JSON become 3 KB).
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

from dfopt.documents.base import Document
from dfopt.errors import refuse, shown

__all__ = ["Task", "pack", "unpack"]

Task = Mapping[str, Any]
Kind = TypeVar("Kind", bound=Document)


def pack(*documents: Document) -> str:
    """The text of documents of a kind, compressed, in base 85.

    Examples
    --------
    >>> from dfopt.documents.assumptions import Assumptions, profile
    >>> unpack(Assumptions, pack(profile("default"))) == (profile("default"),)
    True
    """
    text = json.dumps([one.to_data() for one in documents], separators=(",", ":"), allow_nan=False).encode()
    # level 6: 9 takes four times as long for 1 % less
    return base64.b85encode(zlib.compress(text, 6)).decode("ascii")


def unpack(kind: type[Kind], sent: str | Mapping[str, Any], name: str = "") -> tuple[Kind, ...]:
    """The documents that were packed, parsed once per process; plain data of one is parsed as it is.

    Raises
    ------
    DocumentError
        If the data is no document of this kind.
    """
    if not isinstance(sent, str):
        return (kind.from_data(dict(sent), name),)
    found: tuple[Kind, ...] = _parsed(kind, sent, name)
    return found


@lru_cache(64)  # the graphs of a study and the system at hand
def _parsed(kind: type[Document], packed: str, name: str) -> Any:
    try:
        text, stream = base64.b85decode(packed), zlib.decompressobj()
        content = json.loads(stream.decompress(text))
        if stream.unused_data or base64.b85encode(text).decode() != packed:
            raise ValueError("more than was packed")
    except (ValueError, zlib.error):
        refuse(name, f"found {shown(packed)}, expected packed documents", "keep what a sweep wrote")
    return tuple(kind.from_data(each, name) for each in content)
