"""HPL: FLOP and bytes against loops over columns and steps, merging, DFModel's kernels, and wrong parameters."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from workload_checks import refused, solved

from dfopt.documents.graph import Graph, Kernel
from dfopt.machines.compose import load_system
from dfopt.physics.ops import flop
from dfopt.workloads import WORKLOADS, load_graph

build = WORKLOADS["hpl"]


def of(graph: Graph, kind: str) -> list[Kernel]:
    return [kernel for kernel in graph.kernels if kernel.name.split("_")[0] == kind]


def sent(kernels: list[Kernel], kind: str, over: str) -> float:
    return sum(c.bytes for k in kernels for c in k.communications if (c.kind, c.over) == (kind, over))


def by_loops(n: int, b: int, word: int) -> dict[str, float]:
    """What the kernels' totals must be, counted column by column and element by element."""
    found = dict.fromkeys(("panel", "row", "update", "panel_dram", "row_dram", "update_dram", "panels", "rows"), 0)
    for top in range(0, n, b):
        s, r = n - top, n - top - b
        for column in range(b):
            below, right = s - column - 1, b - column - 1
            found["panel"] += below + 2 * below * right  # divisions by the pivot, then the rank-1 update
        for row in range(b):
            found["row"] += 2 * row * r  # this row less the rows above it, times multipliers
        found["update"] += 2 * r * r * b
        found["panel_dram"] += 2 * s * b * word
        found["row_dram"] += 2 * r * b * word
        found["update_dram"] += (2 * r * r + 2 * r * b) * word
        found["panels"] += b * b * word
        found["rows"] += r * b * word
    return found


@st.composite
def sizes(draw: Any) -> dict[str, int]:
    block, steps = draw(st.integers(2, 40)), draw(st.integers(1, 30))
    return {
        "n": block * steps,
        "block": block,
        "drawn": draw(st.integers(1, steps)),
        "word_bytes": draw(st.integers(1, 8)),
    }


@given(sizes())
def test_totals_are_those_of_the_loops_however_steps_are_merged(p: dict[str, int]) -> None:
    graph, wanted = build(**p), by_loops(p["n"], p["block"], p["word_bytes"])
    panels, rows, updates = (of(graph, kind) for kind in ("Panel", "Row", "Update"))
    for kernels, name in ((panels, "panel"), (rows, "row"), (updates, "update")):
        assert sum(flop(kernel) for kernel in kernels) == wanted[name]
        assert sum(kernel.dram_bytes for kernel in kernels) == wanted[f"{name}_dram"]
    assert sent(panels, "all_reduce", "tp_first") == wanted["panels"]
    assert sent(rows, "all_to_all", "tp_first") == wanted["rows"]
    assert sent(updates, "broadcast", "tp_first") == sent(updates, "broadcast", "tp_rest") == wanted["rows"]
    assert len(panels) == p["drawn"]
    assert len(rows) == len(updates) <= p["drawn"]
    assert sum(kernel.resident_bytes for kernel in graph.kernels) == p["n"] ** 2 * p["word_bytes"]


@given(sizes())
def test_flop_are_the_count_of_hpl(p: dict[str, int]) -> None:
    # LU takes 2/3 n^3 - n^2/2 - n/6 FLOP whatever the block; with 2 n^2 for the solves that is 2/3 n^3 + 3/2 n^2 - n/6.
    n = p["n"]
    assert 6 * sum(int(flop(kernel)) for kernel in build(**p).kernels) == 4 * n**3 + 9 * n**2 - n


@given(sizes())
def test_the_graph_is_a_chain_in_the_order_of_the_steps(p: dict[str, int]) -> None:
    graph = build(**p)
    names = [kernel.name for kernel in graph.kernels]
    assert [(t.src, t.dst) for t in graph.tensors] == list(pairwise(names))
    assert all(kernel.distributed for kernel in graph.kernels)
    wanted = []
    for number in range(1, p["drawn"] + 1):
        last = number == p["drawn"] and p["drawn"] == p["n"] // p["block"]
        wanted += [f"{kind}_{number}" for kind in (("Panel",) if last else ("Panel", "Row", "Update"))]
    assert names == [*wanted, "Solve"]


def test_a_step_per_group_is_the_default_of_a_small_matrix() -> None:
    assert build(n=64, block=8) == build(n=64, block=8, drawn=8)
    assert len(of(build(n=6400, block=8), "Panel")) == 32


# --- DFModel's encoding -------------------------------------------------------------------------------------


def test_kernels_of_dfmodel() -> None:
    graph = load_graph("hpl-eos")
    # Total of HPL/Compare_w_existing/GPU/Eos of github.com/fengqian-ayce/DFModel at 04f93d5
    assert sum(int(flop(kernel)) for kernel in graph.kernels) == 12292539998535680
    shapes = [(k.name, k.m, k.k, k.n) for k in graph.kernels]
    assert shapes[0] == ("Iteration_1", 262144, 262144, 4096)
    assert shapes[1] == ("Iteration_2", 258048, 258048, 4096)
    assert shapes[-1] == ("Iteration_64", 4096, 4096, 4096)
    # The setup file states 8589935000 and 8455717000 B, rounded to seven digits.
    for kernel, volume in zip(graph.kernels, (8589934592, 8455716864), strict=False):
        assert [(c.kind, c.bytes) for c in kernel.communications] == [("broadcast", volume), ("point_to_point", volume)]
    assert [graph.bytes_of(t) for t in graph.tensors][:2] == [8589934592, 8455716864]
    assert len(graph.tensors) == 63


def test_the_first_steps_only() -> None:
    graph = load_graph("hpl-1m-dfmodel")
    # workload total in the log of HPL/DSE/system/nonoverlap/sn30/2d_torus_ddr_pcie, same repository and commit
    assert sum(flop(kernel) for kernel in graph.kernels) == 2.542307278418084e17
    whole = build(encoding="dfmodel", n=1048576, block=2048, word_bytes=2)
    assert whole.kernels[:64] == graph.kernels
    assert len(whole.kernels) == 512


# --- solving, and wrong parameters --------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["exact", "dfmodel"])
def test_it_solves(encoding: str) -> None:
    graph, system = build(n=8000, block=1000, encoding=encoding), load_system("sn10-8-torus")
    result = solved(graph, system, tp=8)
    assert result.score.collectives["broadcast.forward"] > 0


@pytest.mark.parametrize(
    ("change", "where", "says"),
    [
        ({"block": 7}, "$.block", "found panels of 7 columns in a matrix of 64 rows, expected a divisor"),
        ({"block": 100}, "$.block", "found panels of 100 columns"),
        ({"drawn": 9}, "$.drawn", "found 9 to draw of 8 steps, expected at most 8"),
        ({"first": 3}, "$.first", "found only part of the steps"),
        ({"encoding": "dfmodel", "drawn": 2}, "$.drawn", "DFModel's encoding draws step by step"),
        ({"encoding": "dfmodel", "first": 9}, "$.first", "found 9 to draw of 8 steps, expected at most 8"),
        ({"encoding": "dfmodel", "n": 50000, "block": 2}, "$.block", "found 25000 to draw"),
        ({"n": 10**8, "block": 1000, "drawn": 1}, "$.drawn", "more FLOP than a kernel can state"),
    ],
)
def test_bad_parameters_give_one_error(change: dict[str, Any], where: str, says: str) -> None:
    refused(build, {"n": 64, "block": 8} | change, where, says)
