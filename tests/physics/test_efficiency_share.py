"""The lookup of a share of peak against the words of the document, row by row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import efficiency_tables

from dfopt.documents.system import EfficiencyRow
from dfopt.physics.efficiency import efficiency_share

Shard = tuple[bool, float, tuple[int, int, int]]
SHARDS = st.tuples(
    st.booleans(),
    st.sampled_from([1.0, 7.0, 8.0, 16.0, 63.0, 64.0, 300.0]),
    st.tuples(*[st.integers(1, 7)] * 3),
)


def looked_up(rows: tuple[EfficiencyRow, ...], shard: Shard) -> float:
    simd, flop, (m, n, k) = shard
    for row in rows:
        if row.unit != ("vector" if simd else "matrix"):
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


@pytest.mark.parametrize("other, covered", [({}, False), ({"extent": 3}, False), ({"flop": 8.0, "extent": 4}, True)])
def test_a_row_covers_what_asks_for_more(other: dict[str, float], covered: bool) -> None:
    row = EfficiencyRow(unit="matrix", flop=8.0, extent=3, share=0.5)
    assert row.covers(EfficiencyRow(unit="matrix", share=0.1, **other)) == covered
    assert not row.covers(EfficiencyRow(unit="vector", flop=8.0, extent=3, share=0.5))
