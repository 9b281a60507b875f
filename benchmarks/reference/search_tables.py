"""The search of DeepFlow's authors beside one with a proof; ``crossflow/traced.py`` says what is searched."""

from __future__ import annotations

import csv
import random
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from crossflow.certificate import best_design
from crossflow.descent import STEPS, descent, start
from crossflow.traced import Traced, shares_of
from crossflow_tables import bases
from line import Line

BASE = "exp_config"
"""The configuration of the search, by its name in the file of bases."""
WITHIN = 0.003
"""Relative: shares are printed with three digits."""
HALF_DIGIT = 0.0005
TRIES = 500
"""Designs whose shares round to those of a row, among which one is to have the row's time."""
GAP = 0.001
MOST_GAP, MOST_SECONDS = 0.002, 10.0
PATIENCE = 10
"""Times those seconds, which are the processor's, that the search may take on the clock of a machine others use too."""
SEARCHES, STARTS = 2, 10
"""Random starts of the search that the proof is about, and of gradient descent (10 in the paper)."""
FAR = 0.1
"""Relative, of a start that led nowhere."""


def problem_of(file: Path) -> Traced:
    """The problem, from the configuration beside a trace."""
    return Traced.of(bases(file)[BASE])


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def traced(file: Path) -> Iterator[Line]:
    """Designs of the trace, each with its time; and a descent that starts from the first of them."""
    problem, printed = problem_of(file), rows(file)
    apart = [abs(problem.seconds(shares_of(row)) / float(row["time_s"]) - 1) for row in printed]
    off = [row for row, difference in zip(printed, apart, strict=True) if difference > WITHIN]
    rounded = sum(rounds_to(problem, row) for row in off)
    seen = f"{len(printed) - len(off)} of {len(printed)} within {WITHIN:.1%}, worst {max(apart):.1%}"
    if off:
        seen += f"; {rounded} of the other {len(off)} with shares that round to the printed ones"
    yield Line("designs of the authors' search", seen, f"all within {WITHIN:.1%}, or by rounding", rounded == len(off))
    shares = {
        budget: {name: share for name, share in of.items() if share} for budget, of in shares_of(printed[0]).items()
    }
    followed = 0
    for row, (_, seconds) in zip(printed, descent(problem, shares, held=True), strict=False):
        if abs(seconds / float(row["time_s"]) - 1) > WITHIN:
            break
        followed += 1
    seen = f"its first {followed} of {len(printed)} designs within {WITHIN:.1%}"
    yield Line("the authors' search again, from its first design", seen, "", None)


def rounds_to(problem: Traced, row: dict[str, str]) -> bool:
    """Whether there is a design with the row's time, whose shares round to the row's."""
    draw, expected, printed = random.Random(0), float(row["time_s"]), shares_of(row)
    for _ in range(TRIES):
        tried = {
            budget: {name: max(0.0, share + draw.uniform(-HALF_DIGIT, HALF_DIGIT)) for name, share in shares.items()}
            for budget, shares in printed.items()
        }
        if abs(problem.seconds(tried) / expected - 1) <= WITHIN:
            return True
    return False


def searched(file: Path) -> Iterator[Line]:
    """The best design with its proof, and gradient descent from random starts beside it."""
    problem = problem_of(file)
    theirs = min(float(row["time_s"]) for row in rows(file))
    began = time.process_time()
    found = best_design(problem, GAP, PATIENCE * MOST_SECONDS, SEARCHES)
    took = time.process_time() - began
    seen = f"{found.best:.5f} s (theirs {theirs:.5f} s), none below {found.bound:.5f} s: gap {found.gap:.2%}; "
    seen += f"{problem.evaluated} evaluations, {found.regions} boxes, {took:.1f} s of the processor"
    whole = found.best < theirs and found.gap <= MOST_GAP and took < MOST_SECONDS
    limit = f"less than theirs, gap {MOST_GAP:.1%}, {MOST_SECONDS:g} s"
    yield Line("best design of the authors' problem", seen, limit, whole)
    for held, name in ((False, "equation 6"), (True, "equation 6, DRAM held")):
        yield from descents(problem, found.bound, name, held)


def descents(problem: Traced, bound: float, name: str, held: bool) -> Iterator[Line]:
    """Gradient descent from random starts, one line each."""
    bests, problem.evaluated, all_began = [], 0, time.process_time()
    for seed in range(STARTS):
        before, began = problem.evaluated, time.process_time()
        seconds = [at for _, at in islice(descent(problem, start(seed), held=held), STEPS)]
        bests.append(min(seconds))
        seen = f"{seconds[0]:.5f} to {bests[-1]:.5f} s at step {seconds.index(bests[-1])}, "
        seen += f"{bests[-1] / bound - 1:.2%} above the bound; "
        seen += f"{problem.evaluated - before} evaluations, {time.process_time() - began:.1f} s"
        yield Line(f"gradient descent, {name}, start {seed}", seen, "", None)
    far = sum(best > (1 + FAR) * min(bests) for best in bests)
    seen = (
        f"best {min(bests):.5f} s, {min(bests) / bound - 1:.2%} above the bound; {far} of {STARTS} more than {FAR:.0%} "
    )
    seen += f"above that; {problem.evaluated} evaluations, {time.process_time() - all_began:.1f} s"
    yield Line(f"gradient descent, {name}, all starts", seen, "", None)
