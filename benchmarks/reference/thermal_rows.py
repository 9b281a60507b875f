"""The rows of a thermal run: the files that are read for it, what is compared, and the limits."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from report import Row, finished
from thermal_cases import Broken, Case, case_of

from dfopt.errors import DfoptError, shown

__all__ = ["LIMITS", "Figures", "Run", "one_line"]

# kelvin, per group; None is reported only
LIMITS: dict[str, float | None] = {
    "hotspot layers": 0.05,
    "hotspot tiles": 0.05,
    "hotspot grids": 0.05,
    "hotspot column": 0.05,
    "hotspot plates": None,
    "column, analytic": 1e-6,
    "htc layers": 0.05,
    "htc tiles": 0.05,
    "transient": 0.1,
}

Figures = dict[tuple[str, ...], dict[str, float]]  # (case, layer or place) -> quantity -> value


def one_line(error: Exception) -> str:
    """An error as one line."""
    known = isinstance(error, DfoptError | Broken)
    text = " ".join(str(error).split())
    return text if known else f"unexpected {type(error).__name__}: {text}"


@dataclass
class Run:
    """All that is collected on the way."""

    folder: Path
    base: Path
    rows: list[Row] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    known: dict[Path, Any] = field(default_factory=dict)  # files that were read

    def fail(self, line: str) -> None:
        """One line about something broken."""
        self.failed.append(line)
        print(line, file=sys.stderr)

    # Files ---------------------------------------------------------------------------------------------------------

    def read_json(self, path: Path) -> Any:
        """A JSON file; None if absent or broken, the latter with one line."""
        if path not in self.known:
            self.known[path] = None
            try:
                if path.exists():
                    self.known[path] = json.loads(path.read_text(encoding="utf-8-sig"))
            except (OSError, ValueError) as error:
                self.fail(f"{path}: not readable as JSON: {error}")
        return self.known[path]

    def cases(self, name: str, folder: Path) -> dict[str, Case | str]:
        """The cases of a file by id, or what is wrong with one."""
        path, key = folder / name, folder / f"{name}#cases"
        if key in self.known:
            return dict(self.known[key])
        found: dict[str, Case | str] = {}
        data = self.read_json(path)
        listed = data.get("cases") if isinstance(data, dict) else None
        if data is not None and not isinstance(listed, list):
            self.fail(f"{path}: $.cases: found {shown(listed)}, expected a list of cases")
        for index, each in enumerate(listed if isinstance(listed, list) else ()):
            where = f"$.cases[{index}]"
            name = str(each.get("id", where)) if isinstance(each, dict) else where
            if name in found:
                found[f"{name}#{index}"] = f"{where}.id: found {shown(name)} a second time"
                continue
            try:
                found[name] = case_of(each, where, data.get("grid"))
            except Exception as error:  # one broken case must not hide the others
                found[name] = one_line(error)
        self.known[key] = found
        return dict(found)

    def read_csv(self, name: str, place: tuple[str, ...], quantities: Mapping[str, str]) -> Figures:
        """Reported figures of a CSV file: by the columns ``place``, quantity -> value of its column."""
        path = self.folder / name
        if path in self.known:
            found: Figures = self.known[path]
            return found
        found = self.known.setdefault(path, {})
        try:
            if path.exists():
                with path.open(encoding="utf-8-sig", newline="") as file:
                    for number, line in enumerate(csv.DictReader(file), 2):
                        self._line(f"{path}: line {number}", line, place, quantities, found)
        except (OSError, ValueError, csv.Error, Broken) as error:
            self.fail(f"{error}" if isinstance(error, Broken) else f"{path}: {error}")
        return found

    def _line(
        self, where: str, line: dict[str, Any], place: tuple[str, ...], quantities: Mapping[str, str], found: Figures
    ) -> None:
        """The figures of one line; one that is no number is left out and told."""
        missing = [key for key in place if line.get(key) is None]
        if missing:
            raise Broken(f"{where}: no column {missing[0]!r}")
        here = found.setdefault(tuple(str(line[key]).strip() for key in place), {})
        for quantity, column in quantities.items():
            text = str(line.get(column) or "").strip()
            try:
                value = float(text) if text else None
            except ValueError as error:
                self.fail(f"{where}, {column}: {error}")
                continue
            if value is not None and not math.isfinite(value):
                self.fail(f"{where}, {column}: found {text}, expected a finite number")
            elif value is not None:
                here[quantity] = value

    # Rows ----------------------------------------------------------------------------------------------------------

    def add(
        self, group: str, case: str, quantity: str, ours: float | None, reported: float | None,
        seconds: float = 0.0, status: str = "ok", note: str = "", check: str = "", formulation: str = "",
    ) -> None:  # fmt: skip
        """One row."""
        limit = LIMITS.get(group)
        error = None if ours is None or reported is None else ours - reported
        met = None if error is None or limit is None else abs(error) <= limit
        word = "" if error is None else f"{error:+.4f} K" + ("" if met is not False else f", limit {limit:g} K")
        row = {
            "case": case, "quantity": quantity, "reported": reported, "ours": ours,
            "ratio": ours / reported if ours is not None and reported else None, "ours_is": word,
            "gap": None, "seconds": round(seconds, 3), "status": status, "note": note,
            "formulation": formulation, "check": check,
            "group": group, "error_K": error, "limit_K": limit, "met": met,
        }  # fmt: skip
        self.rows.append(finished(row))
        if self.rows[-1]["status"] != status:
            self.fail(f"{case}: error: {self.rows[-1]['note']}")

    def error(self, group: str, case: str, error: Exception) -> None:
        """The row and the line of a case that raised."""
        self.add(group, case, "T_max", None, None, status="error", note=one_line(error))
        self.fail(f"{case}: error: {one_line(error)}")
