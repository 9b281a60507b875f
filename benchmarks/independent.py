"""How much of what is proven is shown by other code than that of the search.

    python benchmarks/independent.py [--drawn N] [--seed S] [--seconds S] [--json FILE]

A row for each of the cases that `benchmarks/claims/times.py` checks, and for each of N answers to questions drawn by
chance: the verdict of the check, its CPU seconds, and how many plans and regions rest on the search's own code. The
last row has the shares of all. Questions without an answer are passed over.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from claims.times import CHECKED
from drawing import drawn, keywords

import dfopt as df
from dfopt.errors import DfoptError


def cases(seconds: float) -> Iterator[tuple[str, df.Result]]:
    """Answers to the cases that are checked elsewhere."""
    for case in CHECKED:
        yield str(case), case.solved(seconds)[0]


def answers(seed: str, count: int, seconds: float) -> Iterator[tuple[str, df.Result]]:
    """So many answers to questions drawn by chance."""
    found = 0
    for number in itertools.count():
        if found == count:
            return
        draw = drawn(random.Random(f"{seed}/{number}"))
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                result = df.solve(draw.graph, draw.system, **keywords(draw, seconds))
        except DfoptError:
            continue
        found += 1
        yield f"draw {seed}/{number}: {draw.graph}, {draw.system}, {draw.phase}", result


def row(name: str, result: df.Result) -> dict[str, Any]:
    """What a check of an answer says of itself."""
    began = time.process_time()
    found = df.check(result)
    seconds, rests = time.process_time() - began, found.rests
    counts = {} if rests is None else vars(rests)
    return {"case": name, "verdict": found.verdict, "ok": found.ok, "cpu_s": round(seconds, 2)} | counts


def main() -> None:
    """Print the rows, and the shares of all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drawn", type=int, default=60, help="answers to drawn questions (60)")
    parser.add_argument("--seed", default="1", help="of the questions")
    parser.add_argument("--seconds", type=float, default=20.0, help="limit of a solve (20)")
    parser.add_argument("--json", type=Path, help="write the rows here too")
    given = parser.parse_args()
    rows = list[dict[str, Any]]()
    for name, result in (*cases(given.seconds), *answers(given.seed, given.drawn, given.seconds)):
        rows.append(row(name, result))
        print(*(f"{key} {value}" for key, value in rows[-1].items()), sep=" | ", flush=True)
    total = {key: sum(each.get(key, 0) for each in rows) for key in ("plans", "of_plans", "regions", "of_regions")}
    regions = total["regions"] + total["of_regions"]
    plans = f"{total['plans']} of {total['of_plans']} plans ({100 * total['plans'] / max(total['of_plans'], 1):.2g} %)"
    share = f"{total['regions']} of {regions} regions ({100 * total['regions'] / max(regions, 1):.2g} %)"
    wrong = sum(not each["ok"] for each in rows)
    print(f"{len(rows)} answers, {wrong} of which a check calls wrong: {plans}, {share} rest on the search's own code")
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
