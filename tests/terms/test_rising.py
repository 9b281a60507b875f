"""Seconds of DRAM that never fall with bytes, against those of many numbers of more bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dfopt.documents.efficiency import EfficiencyRow
from dfopt.terms.chip import ChipModel

SHARES = st.sampled_from([0.1, 0.3, 0.6, 1.0])


@given(st.dictionaries(st.integers(1, 40), SHARES, max_size=4), SHARES, st.permutations(range(4)))
def test_the_least_seconds_of_as_many_bytes_or_more(shares: dict[int, float], rest: float, order: list[int]) -> None:
    """Rows come in any order, of which the first that fits counts."""
    listed = [EfficiencyRow(unit="memory", bytes=float(at), share=share) for at, share in shares.items()]
    rows = [listed[place] for place in order if place < len(listed)]
    chip = ChipModel(
        dram_bandwidth=2.0, sram=1.0, tiles=1, overlap="perfect", cuts_weights=True,
        fused=True, library=False, memory_rows=(*rows, EfficiencyRow(unit="memory", share=rest)),
    )  # fmt: skip
    moved = np.arange(0.0, 1000.0, 0.5)  # above the last limit seconds rise
    found = chip.rising.dram_seconds(moved)
    expected = np.minimum.accumulate(chip.dram_seconds(moved)[::-1])[::-1]
    np.testing.assert_allclose(found, expected, rtol=1e-11)
