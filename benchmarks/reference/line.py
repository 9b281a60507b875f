"""What a runner of tables says of one of them."""

from __future__ import annotations

from typing import NamedTuple


class Line(NamedTuple):
    """What one table shows: a figure in words, its limit, and whether that is met (none: there is no limit)."""

    table: str
    seen: str
    limit: str
    met: bool | None
