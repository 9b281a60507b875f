"""The map of the code names files that are there, and all rooms, in the order that imports keep."""

from __future__ import annotations

import re
from pathlib import Path

from test_layers import BESIDE, FLOORS

ROOT = Path(__file__).resolve().parents[2]
MAP = (ROOT / "dfopt" / "guide" / "architecture.md").read_text(encoding="utf-8")
PACKAGES = {path.parent.name for path in (ROOT / "dfopt").glob("*/__init__.py")} - {"guide"}


def rooms(section: str) -> list[str]:
    """Names of rooms in the first column of the tables of a section, in order."""
    text = MAP.partition(f"## {section}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`(\w+)/`", cell)]


def test_every_file_that_the_map_names_is_there() -> None:
    names = re.findall(r"`((?:dfopt|tests|benchmarks)/[\w/]*\.(?:py|yaml)|(?:dfopt|systems)/[\w/]*/)`", MAP)
    assert len(names) > 50
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_the_map_has_every_room_once() -> None:
    assert sorted(rooms("Rooms")) == sorted(PACKAGES)


def test_rooms_stand_in_the_order_of_their_imports() -> None:
    height = {name: number for number, floor in enumerate(FLOORS) for name in floor}
    ordered = [name for name in rooms("Rooms") if name not in BESIDE]
    assert [height[name] for name in ordered] == sorted(height[name] for name in ordered)
