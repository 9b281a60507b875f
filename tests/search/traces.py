"""Traces of searches: value, bound, status, work, and the order in which regions closed, of forty committed questions.

    python tests/search/traces.py --write

writes ``tests/golden/traces.yaml`` anew. What moves a trace is named in the commit that moves it.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml
from typer.testing import CliRunner

from dfopt.bnb import Clock
from dfopt.cli import app
from dfopt.search.branching import Search
from dfopt.search.known import KnownSearch

FILE = Path(__file__).resolve().parents[1] / "golden" / "traces.yaml"
SHOWN = 3  # of the regions in order; the digest is of all
ALWAYS = "--time-limit", "600", "--no-sensitivity", "-q"


def trace(question: str) -> dict[str, Any]:
    """What a search says of a question, in the words of ``dfopt solve``, and how it came to that."""
    closed, clocks = list[str](), list[Clock]()
    give_up, note, of_limit = KnownSearch._give_up, Search._note, Clock.of_limit.__func__

    def given_up(self: KnownSearch, unit: Any, bound: float, **more: Any) -> None:
        closed.append(f"{unit[0].label} {unit[1] or ''}".strip())
        give_up(self, unit, bound, **more)

    def noted(self: Search, plan: Any, variant: Any, **fields: Any) -> None:
        closed.append(f"{plan.label} {fields['status']}")
        note(self, plan, variant, **fields)

    def counted(cls: type[Clock], *limits: Any) -> Clock:
        clocks.append(of_limit(cls, *limits))
        return clocks[-1]

    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(KnownSearch, "_give_up", given_up),
        patch.object(Search, "_note", noted),
        patch.object(Clock, "of_limit", classmethod(counted)),
    ):
        file = Path(folder) / "result.json"
        ran = CliRunner().invoke(app, ["solve", *question.split(), *ALWAYS, "-o", str(file)])
        data = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    answer = {name: data[name] for name in ("value", "bound", "status") if data}
    order = hashlib.sha256("\n".join(closed).encode()).hexdigest()[:16]
    how = {"work": round(clocks[0].spent), "closed": len(closed), "first": closed[:SHOWN], "order": order}
    return {"exit": ran.exit_code, **answer, **how}


def cases() -> dict[str, dict[str, Any]]:
    """The committed questions, by name, with their traces."""
    return dict(yaml.safe_load(FILE.read_text(encoding="utf-8")))


def main() -> None:
    """Write all traces anew."""
    written = {name: {"question": one["question"], **trace(one["question"])} for name, one in cases().items()}
    FILE.write_text(yaml.safe_dump(written, sort_keys=False, width=116), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    main()
