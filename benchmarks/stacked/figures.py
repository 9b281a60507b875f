"""Answer the questions behind figures of DeepStack, and hold the answers against theirs.

    python benchmarks/stacked/figures.py run 16 [--only decode,4] [--time-limit 60]
    python benchmarks/stacked/figures.py claims 16

``run`` asks what ``results/`` does not have yet, and adds each answer there: tokens/s, what they are at most, the
design, and the plan. ``claims`` compares the answers with ``published/``. ``asked.py`` has the questions, and
``claimed.py`` what is claimed.
"""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

from asked import FIGURES, HERE, add_record, answered, answers, file_of
from claimed import CLAIMS


def run(figure: str, only: str, time_limit: float, again: float) -> None:
    """Answer the questions of a figure that are open, or whose answer has a larger gap than ``again``."""
    for row in FIGURES[figure]():
        if only and not ",".join((*row.key, "")).startswith(f"{only},"):
            continue
        known = answers(figure)
        if not (open_ := [key for key in row.keys if key not in known or _gap(known[key]) > again]):
            continue
        for record in answered(row.only(open_) if row.each else row, time_limit):
            add_record(HERE / "results" / f"{file_of(figure)}.jsonl", record)


def _gap(record: dict[str, Any]) -> float:
    return math.inf if "why" in record else float(record.get("gap", 0.0))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "claims"))
    parser.add_argument("figure", choices=tuple(FIGURES))
    parser.add_argument("--only", default="", metavar="KEY", help="rows whose key begins so, such as decode,4")
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="S", help="seconds for each answer")
    parser.add_argument("--again", type=float, default=math.inf, metavar="GAP", help="also ask where a gap is larger")
    given = parser.parse_args()
    if given.what == "run":
        run(given.figure, given.only, given.time_limit, given.again)
    else:
        for claim in CLAIMS[given.figure]():
            print(claim)


if __name__ == "__main__":
    sys.exit(main())
