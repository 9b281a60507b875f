"""What a runner of tables says of one of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple


class Line(NamedTuple):
    """What one table shows: a figure in words, its limit, and whether that is met (none: there is no limit)."""

    table: str
    seen: str
    limit: str
    met: bool | None


def told(lines: Sequence[Line], as_json: bool) -> int:
    """Print them; the exit code, 1 if a limit is missed."""
    if as_json:
        print(json.dumps([line._asdict() for line in lines], indent=1))
    else:
        for line in lines:
            verdict = {None: "", True: "met", False: "MISSED"}[line.met]
            print(f"{line.table}: {line.seen}" + (f" (limit: {line.limit}; {verdict})" if line.limit else ""))
    return int(any(line.met is False for line in lines))
