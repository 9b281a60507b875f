"""What lies in ``tests/golden``: figures and cases from elsewhere, and those that are data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> Any:
    """The content of a YAML or JSON file there."""
    return yaml.load((GOLDEN / name).read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


def rows(entries: list[dict[str, Any]], *keys: str) -> list[tuple[Any, ...]]:
    """Values of some keys of every entry, as parameters of a test."""
    return [tuple(entry[key] for key in keys) for entry in entries]
