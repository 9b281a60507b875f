"""Shares that are looked up one by one are those of the arrays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dfopt.documents.system import EfficiencyRow
from dfopt.physics.efficiency import bandwidth_share, efficiency_share, one_bandwidth_share, vector_share

SIZES = [1.0, 1e6, 1e9, 1e9 * (1 - 1e-13), 2e9]
ROWS = st.lists(
    st.builds(
        EfficiencyRow,
        unit=st.just("vector"),
        flop=st.sampled_from([None, 1e6, 1e9]),
        share=st.sampled_from([0.1, 0.5, 0.9]),
    )
    | st.builds(
        EfficiencyRow,
        unit=st.just("memory"),
        bytes=st.sampled_from([None, 1e6, 1e9]),
        memory=st.sampled_from([None, "dram", "hbm"]),
        share=st.sampled_from([0.1, 0.5, 0.9]),
    )
    | st.builds(EfficiencyRow, unit=st.just("matrix"), op=st.just("matmul"), share=st.just(0.7)),
    max_size=5,
)


@given(ROWS, st.sampled_from(SIZES), st.sampled_from([None, "dram", "hbm"]))
def test_one_is_as_many(rows: list[EfficiencyRow], size: float, memory: str | None) -> None:
    assert one_bandwidth_share(rows, size, memory) == float(bandwidth_share(rows, size, memory))
    if all(row.unit == "memory" for row in rows):
        return
    # extents that no condition on thin shards is about
    one, many = vector_share(rows, size), float(efficiency_share(rows, True, size, (1e15, 1e15, 1.0)))
    assert one == many or (one != one and many != many)
