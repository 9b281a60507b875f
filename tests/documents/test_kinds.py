"""The table of kinds of documents, whose classes are imported when they are asked for."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module

import dfopt.documents
from dfopt.documents.base import Document
from dfopt.documents.kinds import KINDS


def subclasses(kind: type[Document]) -> Iterator[type[Document]]:
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


def test_every_document_with_a_schema_is_a_kind() -> None:
    for module in pkgutil.iter_modules(dfopt.documents.__path__, "dfopt.documents."):
        import_module(module.name)
    saved = {each for each in subclasses(Document) if each.SCHEMA and each.__module__.startswith("dfopt.documents.")}
    assert saved == set(KINDS.values())


def test_a_kind_is_called_as_in_its_schema() -> None:
    for kind, document in KINDS.items():
        package, name, version = document.SCHEMA.split("/")
        assert (package, name) == ("dfopt", kind)
        assert version.isdecimal()
