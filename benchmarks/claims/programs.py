"""Claims that other runners and the tests show: they run as processes of their own."""

from __future__ import annotations

from collections.abc import Iterator

from claims.rows import HERE, Asked, Ran, Row, run, shown


def _row(claim: str, words: list[str], limit: str, **environment: str) -> Row:
    done: Ran = run(words, **environment)
    before = "".join(f"{key}={value} " for key, value in environment.items())
    return Row(claim, before + shown(words), f"{done.last} ({done.seconds:.0f} s)", limit, done.code == 0)


def brute(asked: Asked) -> Iterator[Row]:
    """Random worlds against brute force over all mappings; search, MILP and CBC against each other."""
    profile = {"HYPOTHESIS_PROFILE": "nightly", "NIGHTLY_EXAMPLES": str(asked.examples)}
    tests = ["-m", "pytest", "-q"]
    yield _row("equal to brute force", [*tests, "tests/joint/test_joint_search.py"], "no failure, 1e-9", **profile)
    yield _row("joint MILP", [*tests, "-m", "nightly", "tests/joint"], "no failure, 1e-6", **profile)


def matrices(asked: Asked) -> Iterator[Row]:
    """Single plans by the search and as one MILP."""
    words = [str(HERE / "matrices.py"), "--seconds", "120"]
    yield _row("joint MILP", words, "equal to 1e-6, both proven in 120 s each")


def two_levels(asked: Asked) -> Iterator[Row]:
    """Pairs of the zoo, some chosen and 60 drawn: the joint search is never behind two levels."""
    for pairs, seconds in (
        ([], asked.seconds),
        (["--draw", str(asked.most or 60)], asked.seconds / 4),
    ):  # four solves each
        words = [str(HERE / "two_levels.py"), *pairs, "--seconds", f"{seconds:g}"]
        yield _row("never worse", words, "none behind, 1e-6")


def local_search(asked: Asked) -> Iterator[Row]:
    """Pairs of the zoo, some chosen, 60 drawn, and 20 with TP 8: no mapping found by hand is below a bound."""
    most = asked.most or 60
    for pairs in [], ["--draw", str(most)], ["--draw", str(min(most, 20)), "--seed", "1", "--given", "tp=8"]:
        words = [str(HERE / "local_search.py"), *pairs, "--seconds", f"{asked.attack:g}"]
        yield _row("never beaten", words, "0 claims refuted, 1e-6")


def tests(asked: Asked) -> Iterator[Row]:
    """Saved activations, measured prefill and forgeries, by their tests."""
    for claim, path in (
        ("saved activations", "tests/workloads/test_decoder_training.py"),
        ("attention", "tests/search/test_measured_prefill.py"),
        ("forgeries", "tests/search/test_forgeries.py"),
    ):
        yield _row(claim, ["-m", "pytest", "-q", path], "no failure")


def nothing_lost(asked: Asked) -> Iterator[Row]:
    """The runners of other people's cases, in the subfolders of ``--reference``."""
    runners = {"dfmodel": "dfmodel/cases", "thermal": "thermal", "memory3d": "memory3d",
               "network3d": "deepstack/network_ns3.csv"}  # fmt: skip
    for name, place in runners.items():
        if asked.reference is None:
            yield Row("nothing lost", name, "no data: give --reference DIR", "exit code 0", None)
            continue
        words = [str(HERE / "reference" / f"{name}.py"), str(asked.reference / place)]
        yield _row("nothing lost", words, "exit code 0")
