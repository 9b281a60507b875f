"""Documents of claims, which say so when they were edited."""

from __future__ import annotations

from typing import Self

from dfopt.documents.base import Document

__all__ = ["Sealed"]


class Sealed(Document):
    """A document of claims whose ``seal`` is the digest of all the rest: one that was edited says so."""

    def sealed(self) -> Self:
        """A copy of the document with a seal that fits its contents."""
        return self.model_copy(update={"seal": self.unsealed_digest()})

    def unsealed_digest(self) -> str:
        """Digest of everything but the seal."""
        return self.model_copy(update={"seal": ""}).digest()
