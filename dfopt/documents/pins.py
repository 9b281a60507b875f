"""What a user fixes before a solve: shardings, partitions, degrees and network dims of the plan."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from dfopt.documents.base import Document
from dfopt.documents.mapping import Sharding
from dfopt.documents.on_axes import OnAxes


class Pins(Document, OnAxes):
    """Choices made by hand; whatever is left out is optimised."""

    SCHEMA: ClassVar[str] = "dfopt/pins/1"

    p_max: int | None = Field(default=None, ge=1)
    sharding: dict[str, Sharding] = Field(default_factory=dict)
    partition: dict[str, int] = Field(default_factory=dict)
