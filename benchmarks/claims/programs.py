"""Claims that other runners and the tests show: they run as processes of their own."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from claims.rows import HERE, Asked, Ran, Row, run, shown, without_data


class Kept(NamedTuple):
    """What a runner of other people's cases prints: the place of these, rows without an error, and those compared."""

    place: str
    rows: int
    compared: int

    def of(self, found: list[dict[str, Any]]) -> tuple[str, bool]:
        """What was found, in words, and whether none is lost; a folder may have got more cases."""
        good = [row for row in found if row["status"] == "ok"]
        compared = sum(row["reported"] is not None and row["ours"] is not None for row in good)
        seen = f"{len(good)} of {len(found)} rows without an error, {compared} beside a reported value"
        return seen, len(good) == len(found) >= self.rows and compared >= self.compared


RUNNERS = {  # as of 2026-11-23
    "dfmodel": Kept("dfmodel/cases", 95, 95),
    "thermal": Kept("thermal", 9739, 9739),
    "memory3d": Kept("memory3d", 774, 774),
    "network3d": Kept("deepstack/network_ns3.csv", 277, 261),
}


def tested(claim: str, words: list[str], limit: str, **environment: str) -> Row:
    """A row of a program that says by its exit code whether a claim is met."""
    done: Ran = run(words, **environment)
    before = "".join(f"{key}={value} " for key, value in environment.items())
    return Row(claim, before + shown(words), f"{done.last} ({done.seconds:.0f} s)", limit, done.code == 0)


def brute(asked: Asked) -> Iterator[Row]:
    """Random worlds against brute force over all mappings; search, MILP and CBC against each other."""
    profile = {"HYPOTHESIS_PROFILE": "nightly", "NIGHTLY_EXAMPLES": str(asked.examples)}
    tests = ["-m", "pytest"]
    yield tested("equal to brute force", [*tests, "tests/joint/test_joint_search.py"], "no failure, 1e-9", **profile)
    yield tested("joint MILP", [*tests, "-m", "nightly", "tests/joint"], "no failure, 1e-6", **profile)


def matrices(asked: Asked) -> Iterator[Row]:
    """The best plan of every model, by the search and as one MILP."""
    words = [str(HERE / "formulation.py"), "--seconds", "60"]
    yield tested("joint MILP", words, "none wrong or refused: equal to 1e-6, or a better one or a gap is proven")


def two_levels(asked: Asked) -> Iterator[Row]:
    """Pairs of the zoo, some chosen and 60 drawn: the joint search is never behind two levels."""
    for pairs, seconds in (
        ([], asked.seconds),
        (["--draw", str(asked.most or 60)], asked.seconds / 4),
    ):  # four solves each
        words = [str(HERE / "two_levels.py"), *pairs, "--seconds", f"{seconds:g}"]
        yield tested("never worse", words, "none behind, 1e-6")


def local_search(asked: Asked) -> Iterator[Row]:
    """Pairs of the zoo, some chosen, 60 drawn, and 20 with TP 8: no mapping found by hand is below a bound."""
    most = asked.most or 60
    for pairs in [], ["--draw", str(most)], ["--draw", str(min(most, 20)), "--seed", "1", "--given", "tp=8"]:
        words = [str(HERE / "local_search.py"), *pairs, "--seconds", f"{asked.attack:g}"]
        yield tested("never beaten", words, "0 claims refuted, 1e-6")


def tests(asked: Asked) -> Iterator[Row]:
    """Saved activations, measured prefill and forgeries, by their tests."""
    for claim, path in (
        ("saved activations", "tests/workloads/test_decoder.py"),
        ("attention", "tests/search/test_measured_prefill.py"),
        ("forgeries", "tests/search/test_forgeries.py"),
    ):
        yield tested(claim, ["-m", "pytest", path], "no failure")


def nothing_lost(asked: Asked) -> Iterator[Row]:
    """The runners of other people's cases, in the subfolders of ``--reference``."""
    for name, kept in RUNNERS.items():
        limit = f"exit code 0, {kept.rows} rows without an error, {kept.compared} beside a reported value"
        if asked.reference is None:
            yield without_data("nothing lost", name, limit)
            continue
        words = [str(HERE / "reference" / f"{name}.py"), str(asked.reference / kept.place)]
        with tempfile.TemporaryDirectory() as folder:
            listed = Path(folder) / "rows.json"
            done = run([*words, "--json", str(listed)])
            seen, met = kept.of(json.loads(listed.read_text(encoding="utf-8")) if listed.is_file() else [])
        seen = f"{seen} ({done.seconds:.0f} s)" if done.code == 0 else f"exit code {done.code}: {done.last}"
        yield Row("nothing lost", shown(words), seen, limit, met and done.code == 0)
