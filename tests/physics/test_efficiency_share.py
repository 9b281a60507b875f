"""The lookup of a share of peak against the words of the document, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import efficiency_tables

from dfopt.documents.system import EfficiencyRow
from dfopt.physics.efficiency import bandwidth_share, efficiency_share, one_bandwidth_share, vector_share

Shard = tuple[bool, float, tuple[int, int, int], str]
SHARDS = st.tuples(
    st.booleans(),
    st.sampled_from([1.0, 7.0, 8.0, 16.0, 63.0, 64.0, 300.0]),
    st.tuples(*[st.integers(1, 7)] * 3),
    st.sampled_from(["", "matmul", "attention"]),
)


def looked_up(rows: tuple[EfficiencyRow, ...], shard: Shard) -> float:
    simd, flop, (m, n, k), op = shard
    for row in rows:
        if row.unit != ("vector" if simd else "matrix"):
            continue
        if row.op is not None and op != row.op:
            continue
        if row.flop is not None and flop < row.flop:
            continue
        if row.extent is not None and (m < row.extent or n < row.extent or (k < row.extent and not simd)):
            continue
        return row.share
    raise AssertionError("no row applies")


@given(efficiency_tables(), st.lists(SHARDS, min_size=1, max_size=6))
def test_the_first_row_whose_conditions_hold(rows: tuple[EfficiencyRow, ...], shards: list[Shard]) -> None:
    found = efficiency_share(rows, *(np.array(column) for column in zip(*shards, strict=True)))
    assert found.tolist() == [looked_up(rows, shard) for shard in shards]
    assert [float(efficiency_share(rows, *shard)) for shard in shards] == found.tolist()


def test_rounding_does_not_miss_a_limit() -> None:
    rows = (EfficiencyRow(unit="matrix", flop=3e9, share=0.8), EfficiencyRow(unit="matrix", share=0.2))
    flop = np.array([np.nextafter(3e9, 0), 3e9 * (1 - 1e-9)])  # a third of 9e9 in floats; what is truly less
    assert efficiency_share(rows, False, flop, np.full((2, 3), 9)).tolist() == [0.8, 0.2]


def test_sizes_beyond_machine_integers() -> None:
    rows = (EfficiencyRow(unit="matrix", extent=1000, share=0.8), EfficiencyRow(unit="matrix", share=0.2))
    assert float(efficiency_share(rows, False, 1e40, (10**25, 10**12, 1000))) == 0.8


def test_without_a_row_there_is_no_share() -> None:
    assert np.isnan(efficiency_share((EfficiencyRow(unit="matrix", share=0.8),), True, 1.0, (1, 1, 1)))


@pytest.mark.parametrize(
    "op, other, covered",
    [
        (None, {}, False),
        (None, {"extent": 3}, False),
        (None, {"flop": 8.0, "extent": 4}, True),
        (None, {"flop": 8.0, "extent": 4, "op": "matmul"}, True),
        ("matmul", {"flop": 8.0, "extent": 4}, False),
        ("matmul", {"flop": 8.0, "extent": 4, "op": "attention"}, False),
        ("matmul", {"flop": 8.0, "extent": 4, "op": "matmul"}, True),
    ],
)
def test_a_row_covers_what_asks_for_more(op: Any, other: dict[str, Any], covered: bool) -> None:
    row = EfficiencyRow(unit="matrix", flop=8.0, extent=3, op=op, share=0.5)
    assert row.covers(EfficiencyRow(unit="matrix", share=0.1, **other)) == covered
    assert not row.covers(EfficiencyRow(unit="vector", flop=8.0, extent=3, share=0.5))


@given(efficiency_tables(), st.lists(SHARDS, min_size=1, max_size=6))
def test_rows_of_memories_say_nothing_of_compute(rows: tuple[EfficiencyRow, ...], shards: list[Shard]) -> None:
    columns = [np.array(column) for column in zip(*shards, strict=True)]
    more = (EfficiencyRow(unit="memory", share=0.7), *rows)
    assert efficiency_share(more, *columns).tolist() == efficiency_share(rows, *columns).tolist()


MEMORY_ROWS = st.lists(
    st.builds(
        EfficiencyRow,
        unit=st.just("memory"),
        bytes=st.sampled_from([None, 1e6, 1e7, 1e8]),
        memory=st.sampled_from([None, "HBM", "host"]),
        share=st.sampled_from([0.3, 0.6, 0.9]),
    ),
    max_size=6,
)


@given(MEMORY_ROWS, st.lists(st.sampled_from([1.0, 1e6, 2e6, 1e7, 5e8]), min_size=1), st.sampled_from([None, "HBM"]))
def test_the_share_of_a_memory_is_the_first_that_it_reaches(
    rows: list[EfficiencyRow], moved: list[float], memory: str | None
) -> None:
    def alone(size: float) -> float:
        for row in rows:
            if row.memory in (None, memory) and (row.bytes is None or size >= row.bytes):
                return row.share
        return 1.0

    assert bandwidth_share(rows, moved, memory).tolist() == [alone(size) for size in moved]


OTHER_ROWS = st.builds(
    EfficiencyRow, unit=st.just("vector"), flop=st.sampled_from([None, 1e6, 1e8]), share=st.sampled_from([0.1, 0.5])
) | st.builds(EfficiencyRow, unit=st.just("matrix"), op=st.just("matmul"), share=st.just(0.7))


@given(MEMORY_ROWS, st.lists(OTHER_ROWS, max_size=4), st.randoms(use_true_random=False), st.sampled_from([None, "HBM"]))
def test_a_share_that_is_looked_up_alone_is_that_of_the_arrays(
    memories: list[EfficiencyRow], others: list[EfficiencyRow], dice: Any, memory: str | None
) -> None:
    rows = [*memories, *others]
    dice.shuffle(rows)
    for size in (1.0, 1e6, 1e8, 1e8 * (1 - 1e-13), 2e8):
        assert one_bandwidth_share(rows, size, memory) == float(bandwidth_share(rows, size, memory))
        # extents that no condition on thin shards is about
        many = efficiency_share(rows, True, size, (1e15, 1e15, 1.0)) if others else np.nan
        np.testing.assert_equal(vector_share(rows, size), float(many))
