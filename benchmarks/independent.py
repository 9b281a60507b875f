"""How much of what is proven is shown by other code than that of the search.

    python benchmarks/independent.py [--drawn N] [--seed S] [--seconds S] [--json FILE]

A row for each of the cases that `benchmarks/claims/times.py` checks, and for each of N answers to questions drawn by
chance: the verdict of the check, its CPU seconds, and how many plans and regions rest on the search's own code. A
region is near where some plan of its class has a bound within 10 % of the answer; those of the search count as near,
all of them. The last rows have the shares of all. Questions without an answer are passed over.
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
from dfopt.documents.certificate import Certificate
from dfopt.documents.plan import Plan
from dfopt.errors import DfoptError
from dfopt.judge.items import LayerItems

_NEAR = 0.1
"""Share of the answer up to which a bound is near."""


def cases(seconds: float) -> Iterator[tuple[str, df.Result]]:
    """Answers to the cases that are checked elsewhere."""
    for case in CHECKED:
        yield str(case), case.solved(seconds)[0]


def answers(seed: str, count: int, seconds: float) -> Iterator[tuple[str, df.Result]]:
    """So many answers to questions drawn by chance."""
    answered = 0
    for number in itertools.count():
        if answered == count:
            return
        draw = drawn(random.Random(f"{seed}/{number}"))
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                result = df.solve(draw.graph, draw.system, **keywords(draw, seconds))
        except DfoptError:
            continue
        answered += 1
        yield f"draw {seed}/{number}: {draw.graph}, {draw.system}, {draw.phase}", result


def near_regions(result: df.Result, certificate: Certificate) -> int:
    """How many regions of a certificate are of classes with a plan whose bound is within 10 % of the answer."""

    def class_of(plan: Plan, tiles: int | None) -> tuple[Any, ...]:
        return LayerItems.alike(plan, result.graph, result.assumptions), tiles

    most = result.value * (1 + _NEAR)
    bounded = [record for record in result.plans if record.bound is not None and record.bound <= most]
    near = {class_of(record.plan, record.tile_count) for record in bounded}
    return sum(
        len(of.regions)
        for of in certificate.classes
        if near & {class_of(of.plan, tiles) for tiles in (*of.tile_counts, None)}
    )


def row(name: str, result: df.Result) -> dict[str, Any]:
    """The verdict of the check of an answer, its CPU seconds, and the counts of plans and regions."""
    began = time.process_time()
    verification = df.check(result)
    seconds, rests = time.process_time() - began, verification.rests
    counts = {} if rests is None else vars(rests)
    if verification.certificate is not None:
        counts |= {"of_near": near_regions(result, verification.certificate)}
    return {"case": name, "verdict": verification.verdict, "ok": verification.ok, "cpu_s": round(seconds, 2)} | counts


def print_share(name: str, count: int, total: int) -> None:
    """Print how many of a kind of part rest on the search's own code."""
    print(f"{count} of {total} {name} ({100 * count / max(total, 1):.2g} %) rest on the search's own code")


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
    print(f"{len(rows)} answers, {sum(not each['ok'] for each in rows)} of which a check calls wrong")
    total = {key: sum(each.get(key, 0) for each in rows) for key in ("plans", "regions")}
    by_proof = {key: sum(each.get(f"of_{key}", 0) for each in rows) for key in ("plans", "regions", "near")}
    print_share("plans", total["plans"], by_proof["plans"])
    print_share("regions", total["regions"], total["regions"] + by_proof["regions"])
    print_share("near regions", total["regions"], total["regions"] + by_proof["near"])
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
