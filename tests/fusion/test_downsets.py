"""The lattice of down-sets against naive enumeration, and the searches in it that leave most of it out."""

from __future__ import annotations

import itertools
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problem_cases import close, partitionings, searched, stages, tables_of, tight_stages
from strategies import World, share

from dfopt.bnb import ENDED
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.plan import Plan
from dfopt.documents.system import Chip, Dram, Sram, System
from dfopt.fusion.blocks import StageTables
from dfopt.fusion.downsets import Lattice, down_sets
from dfopt.fusion.lattice import ShortestPath
from dfopt.fusion.partitioning import IntraChipLimits


def closed_sets(tables: StageTables, rule: str) -> set[tuple[bool, ...]]:
    """Sets of kernels that hold all predecessors of theirs; under ``separate`` the forward pass comes first."""
    sharded, n = tables.sharded, tables.kernels
    edges = {(a, b) for a, b in zip(sharded.src_t.tolist(), sharded.dst_t.tolist(), strict=True) if a < n and b < n}
    if rule == "separate":
        edges |= {(a, b) for a in range(n) for b in range(n) if sharded.forward_k[a] and not sharded.forward_k[b]}
    sets = itertools.product([False, True], repeat=n)
    return {bits for bits in sets if all(bits[a] or not bits[b] for a, b in edges)}


@given(stages(most=6))
def test_a_lattice_holds_the_closed_sets_and_nothing_else(stage) -> None:
    tables, limits = stage
    rule = limits.forward_backward
    closed = closed_sets(tables, rule)
    lattice = down_sets(tables, rule, len(closed))
    assert lattice is not None
    rows = [tuple(row) for row in lattice.member.tolist()]
    assert len(rows) == len(closed) and set(rows) == closed
    assert (lattice.size == lattice.member.sum(axis=1)).all()
    assert (np.diff(lattice.size) >= 0).all()
    assert not lattice.member[0].any() and lattice.member[-1].all()
    assert down_sets(tables, rule, len(closed) - 1) is None
    again = down_sets(tables, rule, 10_000)
    assert again is not None
    np.testing.assert_array_equal(again.member, lattice.member)


@given(st.permutations(range(6)))
def test_kernels_may_be_listed_in_any_order(listed: list[int]) -> None:
    """No key tells sets apart, each is made once: also where the kernels are not listed in a topological order."""
    ends = [(0, 2), (2, 3), (1, 4), (4, 5)]
    tables = gemms([64] * 6, [(listed[a], listed[b]) for a, b in ends], 1e9)
    lattice = down_sets(tables, "shared", 100)
    assert lattice is not None
    rows = [tuple(row) for row in lattice.member.tolist()]
    assert len(rows) == len(set(rows)) and set(rows) == closed_sets(tables, "shared")


def test_an_enumeration_whose_clock_is_over_is_given_up() -> None:
    tables = gemms([8] * 6, [], 1e9)
    assert down_sets(tables, "shared", 100, clock=ENDED) is None
    assert down_sets(tables, "shared", 100) is not None


@given(st.integers(1, 200), st.integers(1, 5), st.data())
def test_words_tell_subsets_as_the_rows_do(kernels: int, count: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    member = rng.random((count, kernels)) < data.draw(st.sampled_from([0.1, 0.5, 0.9]))
    words = Lattice(member, member.sum(axis=1)).words
    within = ((words[:, None, :] & ~words[None, :, :]) == 0).all(axis=2)
    np.testing.assert_array_equal(within, ~(member[:, None, :] & ~member[None, :, :]).any(axis=2))


# -- the search in it -------------------------------------------------------------------------


@given(st.one_of(stages(limited=True), tight_stages()), st.sampled_from([1.0, 1.3, np.inf]))
def test_the_shortest_path_is_brute_force_whatever_is_known_before(stage, above: float) -> None:
    tables, limits = stage
    partition_k, seconds = partitionings(tables, limits)
    best = seconds.min(initial=np.inf)
    _, found = searched(tables, limits, best * above)
    assert found.complete
    assert (found.partition_k is None) == (not len(seconds))
    if found.partition_k is not None:
        assert close(found.objective, best, 1e-9)
        assert (found.partition_k == partition_k[seconds <= best * (1 + 1e-9)]).all(axis=1).any()
    if np.isfinite(best) and best > 0:
        assert searched(tables, limits, best * 0.99)[1].partition_k is None


@share(0.5)
@given(tight_stages())
def test_down_sets_out_of_reach_change_nothing(stage) -> None:
    tables, limits = stage
    search, _ = searched(tables, limits)
    with patch.object(ShortestPath, "_reach", lambda search, level, size: len(search.lattice.size)):
        whole, _ = searched(tables, limits)
    assert search.pairs <= whole.pairs
    for one, other in zip(search.blocks(), whole.blocks(), strict=True):
        np.testing.assert_array_equal(one, other)


def gemms(widths: list[int], ends: list[tuple[int, int]], sram: float, tiles: int = 100) -> StageTables:
    """GEMMs with weights of 64 words times their width."""
    kernels = tuple(Kernel(name=f"k{i}", op="gemm", m=width, k=64, n=4) for i, width in enumerate(widths))
    tensors = tuple(Tensor(src=f"k{a}", dst=f"k{b}") for a, b in ends)
    chip = Chip(name="c", tiles=tiles, peak=1e9, sram=Sram(capacity=sram), dram=Dram(bandwidth=100.0))
    chosen = Assumptions(overlap="perfect", execution="dataflow", compute_utilization=1.0, tile_rows=1)
    world = World(Graph(name="g", kernels=kernels, tensors=tensors), System(name="s", chip=chip), Plan(), chosen)
    return tables_of(world, {k.name: "none" for k in kernels})


@pytest.mark.parametrize("least", ["sram", "tiles"])
def test_the_window_is_as_wide_as_the_largest_block(least: str) -> None:
    """Twelve GEMMs in a row, of which three fit together: down-sets four or more apart are never looked at."""
    count, weight = 12, 64 * 64 * 2
    sram, tiles = (3.9 * weight, 100) if least == "sram" else (1e9, 3)
    tables = gemms([64] * count, [(i, i + 1) for i in range(count - 1)], sram, tiles)
    search, found = searched(tables, IntraChipLimits(p_max=count))
    i, j, _ = search.blocks()
    assert set(j - i) == {1, 2, 3}
    assert search.pairs == len(i) == 3 * count - 3
    assert len(np.unique(found.partition_k)) == 4


def test_the_window_is_that_of_the_heaviest_set_of_a_level() -> None:
    """Behind the heavy kernel the two light ones fit together, though behind a light one the other two do not."""
    tables = gemms([80, 10, 10], [], 85 * 64 * 2)
    search, _ = searched(tables, IntraChipLimits(p_max=3))
    member = search.lattice.member
    blocks = {(tuple(member[i]), tuple(member[j])) for i, j, _ in zip(*search.blocks(), strict=True)}
    assert ((True, False, False), (True, True, True)) in blocks
    assert ((False, True, False), (True, True, True)) not in blocks
