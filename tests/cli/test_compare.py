"""``dfopt compare``: results side by side, and what differs."""

from __future__ import annotations

import json
from pathlib import Path

from cli_tools import GRAPH, SYSTEM, call, write


def test_two_results_side_by_side(tmp_path: Path) -> None:
    graph, system = write(tmp_path, "g.yaml", GRAPH), write(tmp_path, "s.yaml", SYSTEM)
    one, two, page = tmp_path / "one.json", tmp_path / "two.json", tmp_path / "c.html"
    solve = ("solve", graph, system, "--no-sensitivity", "-q", "-o")
    assert call(*solve, one).code == 0
    assert call(*solve, two, "--set", "overlap=none", "--tp", 4).code == 0
    answer = call("compare", one, two, "-o", page)
    assert (answer.code, answer.err) == (0, "")
    assert "against the first" in answer.out and "1.0000 x" in answer.out
    assert "assumed overlap" in answer.out and "What differs" in answer.out
    assert "assumed overlap" in page.read_text() and "://" not in page.read_text()
    assert set(json.loads(call("compare", one, two, "--json").out)) == {str(one), str(two)}
    alone = call("compare", one)
    assert (alone.code, alone.out) == (2, "") and "expected two or more different results" in alone.err
    assert call("compare", one, graph).code == 3


def test_kernels_that_are_alike_share_a_row(tmp_path: Path) -> None:
    files = [tmp_path / "one.json", tmp_path / "eight.json"]
    for file, degree in zip(files, (1, 8), strict=True):
        assert call("solve", "gpt2-small", "h100-8", "--tp", degree, "-q", "--no-sensitivity", "-o", file).code == 0
    rows = [line.split(" sharded by")[0] for line in call("compare", *files).out.splitlines() if " sharded by" in line]
    assert rows == ["Q, K, V, MHA_GEMM_1, ... 2 more, MHA_GEMM_2", "PROJ_GEMM", "FFN0, GeLU", "FFN1"]
