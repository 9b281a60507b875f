"""``dfopt compare``: results side by side, and what differs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_tools import GRAPH, SYSTEM, call, write


def test_two_results_side_by_side(tmp_path: Path) -> None:
    graph, system = write(tmp_path, "g.yaml", GRAPH), write(tmp_path, "s.yaml", SYSTEM)
    one, two, page = tmp_path / "one.json", tmp_path / "two.json", tmp_path / "c.html"
    solve = ("solve", graph, system, "--no-sensitivity", "-q", "-o")
    assert call(*solve, one).code == 0
    assert call(*solve, two, "--set", "overlap=none", "--tp", 4).code == 0
    answer = call("compare", one, two, "-o", page)
    assert (answer.code, answer.err) == (0, "")
    assert "against the first" in answer.out and "slower" in answer.out
    first = answer.out.splitlines()[0]
    assert first == "different overlap: not given against none; tp: not given against 4"
    assert "assumptions.overlap" in answer.out
    assert (
        "Parts of the step" in answer.out
        and "assumptions.overlap" in page.read_text()
        and "://" not in page.read_text()
    )
    assert set(json.loads(call("compare", one, two, "--json").out)) == {str(one), str(two)}
    alone = call("compare", one)
    assert (alone.code, alone.out) == (2, "") and "expected two or more different results" in alone.err
    assert call("compare", one, graph).code == 3


def test_kernels_that_are_alike_share_a_row(tmp_path: Path) -> None:
    files = [tmp_path / "one.json", tmp_path / "eight.json"]
    for file, degree in zip(files, (1, 8), strict=True):
        assert (
            call(
                "solve", "gpt2-small", "h100-8", "--tp", degree, "--microbatch", 1, "-q", "--no-sensitivity", "-o", file
            ).code
            == 0
        )
    rows = [line.split(" sharded by")[0] for line in call("compare", *files).out.splitlines() if " sharded by" in line]
    assert rows == ["Q, K, V, MHA_GEMM_1, ... 2 more, MHA_GEMM_2", "PROJ_GEMM", "FFN0, GeLU", "FFN1"]


def test_what_was_asked_comes_first(tmp_path: Path) -> None:
    files = [tmp_path / "short.json", tmp_path / "long.json"]
    for file, length in zip(files, (512, 1024), strict=True):
        asked = ("--param", f"seq={length}", "--batch", 8, "--tp", 8, "--no-sensitivity", "-q", "-o")
        assert call("solve", "gpt2-small", "h100-8", *asked, file).code == 0
    said = call("compare", *files).out
    assert said.splitlines()[0] == "different seq: 512 against 1024"
    assert "8 sequences x 512 tokens" in said and "8 sequences x 1,024 tokens" in said and "of other work" in said


def test_the_stack_is_asked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = ["plain.json", "hot.json"]
    for file, more in zip(files, ((), ("--stack", "microbump-8")), strict=True):
        solve = ("solve", "gpt3-175b", "sn10-8-ring", "--tp", 4, "--no-sensitivity", "-q", "-o", file, *more)
        assert call(*solve).code == 0
    said = call("compare", *files).out
    assert said.splitlines()[0] == "different stack: not given against microbump-8"
    rows = {line.split("  ")[0]: line.split() for line in said.splitlines()}
    assert rows["stack"][-2:] == ["none", "microbump-8"]
    assert "slower" in rows["against the first"] and rows["step time"][-2:] == ["820.3", "s"]
    assert rows["without heat"][-2:] == ["762.9", "s"]
