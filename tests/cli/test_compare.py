"""``dfopt compare``: results side by side, and what differs."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_tools import GRAPH, SYSTEM, answered, assert_refused, call, own_folder, run, write

_inside = pytest.fixture(autouse=True)(own_folder)

SOLVE = ("solve", "--no-sensitivity", "-q", "-o")


def test_two_results_side_by_side(tmp_path: Path) -> None:
    graph, system = write(tmp_path, "g.yaml", GRAPH), write(tmp_path, "s.yaml", SYSTEM)
    run(*SOLVE, "one.json", graph, system)
    run(*SOLVE, "two.json", graph, system, "--set", "overlap=none", "--tp", 4)
    answer = run("compare", "one.json", "two.json", "-o", "c.html")
    first, *rest = answer.out.splitlines()
    assert first == "different overlap: not given against none; tp: not given against 4" and answer.err == ""
    for words in ("against the first", "slower", "assumptions.overlap", "Parts of the step"):
        assert any(words in line for line in rest), words
    page = Path("c.html").read_text()
    assert "assumptions.overlap" in page and "://" not in page
    assert set(answered("compare", "one.json", "two.json")) == {"one.json", "two.json"}
    assert_refused(call("compare", "one.json"), 2, "expected two or more different results")
    run("compare", "one.json", graph, code=3)


def test_kernels_that_are_alike_share_a_row() -> None:
    for degree in (1, 8):
        run(*SOLVE, f"{degree}.json", "gpt2-small", "h100-8", "--tp", degree, "--microbatch", 1)
    lines = run("compare", "1.json", "8.json").out.splitlines()
    rows = [line.split(" sharded by")[0] for line in lines if " sharded by" in line]
    assert rows == ["Q, K, V, MHA_GEMM_1, ... 2 more, MHA_GEMM_2", "PROJ_GEMM", "FFN0, GeLU", "FFN1"]


def test_what_was_asked_comes_first() -> None:
    for length in (512, 1024):
        run(*SOLVE, f"{length}.json", "gpt2-small", "h100-8", "--param", f"seq={length}", "--batch", 8, "--tp", 8)
    said = run("compare", "512.json", "1024.json").out
    assert said.splitlines()[0] == "different seq: 512 against 1024"
    assert "8 sequences x 512 tokens" in said and "8 sequences x 1,024 tokens" in said and "of other work" in said


def test_the_stack_is_asked_too() -> None:
    asked = ("gpt3-175b", "sn10-8-ring", "--tp", 4)
    run(*SOLVE, "plain.json", *asked)
    run(*SOLVE, "hot.json", *asked, "--stack", "microbump-8")
    said = run("compare", "plain.json", "hot.json").out
    assert said.splitlines()[0] == "different stack: not given against microbump-8"
    rows = {line.split("  ")[0]: line.split() for line in said.splitlines()}
    assert rows["stack"][-2:] == ["none", "microbump-8"]
    assert "slower" in rows["against the first"] and rows["step time"][-2:] == ["820.3", "s"]
    assert rows["without heat"][-2:] == ["762.9", "s"]
