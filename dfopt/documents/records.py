"""The data of a document record by record: that of a hundred thousand plans at once would take gigabytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Final

from pydantic import BaseModel

_MANY: Final = 20  # of a list; a shorter one is data like all else


def _fields(document: BaseModel) -> Iterator[tuple[str, Any, tuple[BaseModel, ...]]]:
    """Keys of the data of a document, each with its data, or with the records of a long list."""
    described = type(document).model_fields
    lists = {
        name: value
        for name, value in document
        if isinstance(value, tuple) and len(value) > _MANY and not described[name].serialization_alias
        if isinstance(value[0], BaseModel)
    }
    rest: Any = document.model_copy(update=dict.fromkeys(lists, ()))  # a document
    for key, value in rest.to_data().items():
        yield key, value, lists.get(key, ())


def canonical(data: Any) -> bytes:
    """JSON-compatible data in canonical form, independent of key order, for digests."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest(document: BaseModel) -> str:
    """Digest of a document's data, 16 hex digits, as :func:`dfopt.documents.base.digest_of`."""
    sha = hashlib.sha256()
    for number, (key, value, records) in enumerate(sorted(_fields(document), key=lambda field: field[0])):
        sha.update((b"," if number else b"{") + canonical(key) + b":")
        if not records:
            sha.update(canonical(value))
        for place, record in enumerate(records):
            sha.update((b"," if place else b"[") + canonical(record.model_dump(mode="json", by_alias=True)))
        sha.update(b"]" if records else b"")
    sha.update(b"}")
    return sha.hexdigest()[:16]


def json_text(document: Any, ascii_only: bool = False) -> Iterator[str]:
    """A document as JSON in pieces: one entry per line, and one record per line in long lists."""

    def text(data: Any, **style: Any) -> str:
        return json.dumps(data, ensure_ascii=ascii_only, allow_nan=False, **style)

    for number, (key, value, records) in enumerate(_fields(document)):
        yield (",\n " if number else "{\n ") + text(key) + ": "
        if not records:
            yield text(document.written(key, value), indent=1).replace("\n", "\n ")
        for place, record in enumerate(records):
            yield (",\n  " if place else "[\n  ") + text(record.model_dump(mode="json", by_alias=True))
        yield "\n ]" if records else ""
    yield "\n}\n"
