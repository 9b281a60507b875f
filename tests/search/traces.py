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

from dfopt.bnb import Clock, Outcome
from dfopt.cli import app
from dfopt.regions.region import Branch, Region
from dfopt.search.workload_search import WorkloadSearch

FILE = Path(__file__).resolve().parents[1] / "golden" / "traces.yaml"
SHOWN = 3  # of the regions in order; the digest is of all
ALWAYS = "--time-limit", "600", "--no-sensitivity", "-q"


def trace(question: str) -> dict[str, Any]:
    """What a search says of a question, in the words of ``dfopt solve``, and how it came to that."""
    closed, clocks = list[str](), list[Clock]()
    leave, of_limit = WorkloadSearch.leave, Clock.of_limit.__func__

    def left(self: WorkloadSearch, outcome: Outcome[Branch, Any], *given: Any) -> Any:
        closed.extend(_named(leaf.region) for leaf in outcome.leaves)
        return leave(self, outcome, *given)

    def counted(cls: type[Clock], *limits: Any) -> Clock:
        clocks.append(of_limit(cls, *limits))
        return clocks[-1]

    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(WorkloadSearch, "leave", left),
        patch.object(Clock, "of_limit", classmethod(counted)),
    ):
        file = Path(folder) / "result.json"
        ran = CliRunner().invoke(app, ["solve", *question.split(), *ALWAYS, "-o", str(file)])
        data = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    answer = {name: data[name] for name in ("value", "bound", "status") if data}
    order = hashlib.sha256("\n".join(closed).encode()).hexdigest()[:16]
    how = {"work": round(clocks[0].spent), "closed": len(closed), "first": closed[:SHOWN], "order": order}
    return {"exit": ran.exit_code, **answer, **how}


def _named(part: Branch) -> str:
    """What a region holds: its first plan, how many there are, its tiles and vectors of options."""
    if not isinstance(part, Region):
        return type(part).__name__
    of = part.of
    return f"{of.plans[part.plans[0]].label} of {len(part.plans)}, {of.tiles} tiles, {part.vectors} vectors"


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
