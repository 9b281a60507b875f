"""What a user fixes before a solve: shardings, partitions and the plan's degrees."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from dfopt.documents.base import Document
from dfopt.documents.mapping import Sharding


class Pins(Document):
    """Choices made by hand; whatever is left out is optimised."""

    SCHEMA: ClassVar[str] = "dfopt/pins/1"

    tp_dims: tuple[str, ...] | None = None
    pp_dims: tuple[str, ...] | None = None
    dp_dims: tuple[str, ...] | None = None
    p_max: int | None = Field(default=None, ge=1)
    sharding: dict[str, Sharding] = Field(default_factory=dict)
    partition: dict[str, int] = Field(default_factory=dict)
