"""A document as a key of a cache: equal only to itself, since comparing by content costs more than what it saves."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Same(Generic[T]):
    """Dictionary key that compares a document by identity and keeps it alive.

    It holds the document, so that no other one can take its place in memory while the key is alive.

    Examples
    --------
    >>> one, equal = [1], [1]
    >>> Same(one) == Same(one), Same(one) == Same(equal)
    (True, False)
    """

    __slots__ = ("document",)

    def __init__(self, document: T) -> None:
        self.document = document

    def __hash__(self) -> int:
        return id(self.document)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.document is self.document
