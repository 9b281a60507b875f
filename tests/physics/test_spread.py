"""Experts on chips: copies and loads, and the chips of a token against every set that it may choose."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfopt.documents.routing import Routing
from dfopt.physics.spread import chips_of_a_token, most_loaded, odds_of, placed


@st.composite
def shared_out(draw: st.DrawFn, most: int = 12) -> tuple[tuple[float, ...], int]:
    """Shares of experts, and over how many chips they lie."""
    experts = draw(st.integers(1, most))
    chosen = draw(st.integers(1, experts))
    law = draw(st.sampled_from(["uniform", "power_law(1.2)", "power_law(2)"]))
    return Routing.model_validate(law).shares(experts, chosen, 50), draw(st.integers(1, 6))


@given(shared_out(40), st.integers(0, 6))
def test_copies_take_equal_parts_and_balance(known: tuple[tuple[float, ...], int], redundant: int) -> None:
    shares, chips = known
    redundant = min(redundant, len(shares) * (chips - 1))
    placement = placed(shares, chips, "balanced", redundant)
    for one in range(len(shares)):
        parts = [chip[one] for chip in placement if one in chip]
        assert sum(parts) == pytest.approx(1.0) and len(set(parts)) == 1
    assert sum(map(len, placement)) == len(shares) + redundant
    share = most_loaded(shares, placement)
    assert 1 / chips <= share * (1 + 1e-12) and share <= 1 + 1e-12


def test_copies_of_the_busiest_unload_its_chip() -> None:
    shares = Routing.model_validate("power_law(2)").shares(64, 4, 4096)
    loads = [most_loaded(shares, placed(shares, 8, "balanced", copies)) for copies in (0, 8, 32)]
    assert loads[0] > 1.1 / 8 and loads[1:] == pytest.approx([1 / 8, 1 / 8], rel=0.01)
    in_order = most_loaded(shares, placed(shares, 8))
    assert in_order > loads[0]  # the law lists the busiest side by side
    with pytest.raises(ValueError, match="place them balanced"):
        placed(shares, 8, "contiguous", 8)


@given(shared_out(7), st.integers(0, 3))
def test_chips_of_a_token_are_those_of_every_set(known: tuple[tuple[float, ...], int], redundant: int) -> None:
    shares, chips = known
    redundant = min(redundant, len(shares) * (chips - 1))
    placement = placed(shares, chips, "balanced", redundant)
    chosen, odds = round(sum(shares)), odds_of(shares)
    sets = [one for one in itertools.combinations(range(len(shares)), chosen) if _holds(one, odds)]
    weights = [math.prod(float(odds[one]) for one in each if math.isfinite(odds[one])) for each in sets]
    every = [sum(1.0 - math.prod(1.0 - chip.get(one, 0.0) for one in each) for chip in placement) for each in sets]
    expected = math.fsum(w * chips for w, chips in zip(weights, every, strict=True)) / math.fsum(weights)
    assert chips_of_a_token(shares, placement) == pytest.approx(expected, rel=1e-9)
    for one, share in enumerate(shares):  # and the sets have the shares that were asked for
        here = math.fsum(w for w, each in zip(weights, sets, strict=True) if one in each) / math.fsum(weights)
        assert here == pytest.approx(share, abs=1e-9)


def _holds(chosen: Sequence[int], odds: Sequence[float]) -> bool:
    return all(one in chosen for one, odd in enumerate(odds) if math.isinf(odd))


@pytest.mark.parametrize(
    ("experts", "chosen", "chips"), [(256, 8, 8), (256, 8, 64), (128, 4, 16), (8, 2, 8), (64, 64, 8)]
)
def test_under_uniform_routing_every_set_is_as_likely(experts: int, chosen: int, chips: int) -> None:
    shares = Routing().shares(experts, chosen, 1)
    away = math.comb(experts - experts // chips, chosen) / math.comb(experts, chosen)
    found = chips_of_a_token(shares, placed(shares, chips))
    assert found == pytest.approx(chips * (1 - away), rel=1e-12) and found <= min(chips, chosen)


def test_a_token_with_all_its_experts_on_a_chip_is_sent_there_once() -> None:
    assert chips_of_a_token((1.0, 1.0), ({0: 1.0, 1: 1.0}, {})) == 1.0
    assert chips_of_a_token((1.0, 1.0), ({0: 1.0}, {1: 1.0})) == 2.0
    assert chips_of_a_token((1.0, 1.0), ({0: 0.5, 1: 1.0}, {0: 0.5})) == pytest.approx(1.5)
