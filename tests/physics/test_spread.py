"""Experts on chips: copies and loads, and the chips of a token against every set that it may choose.

With copies every choice of one is enumerated too, or tokens are drawn one by one.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfopt.documents.experts import Experts
from dfopt.documents.routing import Routing
from dfopt.physics.spread import ExpertPlacement, chips_of_a_token, most_loaded, odds_of, placed, spread


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
    assert max(map(len, placement)) == -(-(len(shares) + redundant) // chips)
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


def test_chips_hold_as_many_even_where_the_least_loaded_are_full() -> None:
    """In order of loads 12, 12 and 6 are on one chip, four of 6.1 on the other, where the other 6 finds no room."""
    shares = tuple(load / 60.4 for load in (12, 12, 12, 6.1, 6.1, 6.1, 6.1))
    placement = placed(shares, 2, "balanced", redundant=1)
    assert list(map(len, placement)) == [4, 4]
    assert len({one for chip in placement for one, part in chip.items() if part == 0.5}) == 1


@given(shared_out(5), st.integers(0, 4))
def test_no_copies_leave_the_most_loaded_one_less(known: tuple[tuple[float, ...], int], redundant: int) -> None:
    """Against every number of copies of every expert, at most one on a chip."""
    shares, chips = known
    redundant = min(redundant, len(shares) * (chips - 1))
    numbers = itertools.product(range(1, chips + 1), repeat=len(shares))
    best = min(
        max(share / copies for share, copies in zip(shares, each, strict=True))
        for each in numbers
        if sum(each) == len(shares) + redundant
    )
    placement = placed(shares, chips, "balanced", redundant)
    assert max(shares[one] * part for chip in placement for one, part in chip.items()) == pytest.approx(best)


def test_more_copies_than_chips_hold_apart_are_refused() -> None:
    assert placed((0.5, 0.5), 2, "balanced", redundant=2) == ({1: 0.5, 0: 0.5},) * 2
    with pytest.raises(ValueError, match="found 3 redundant experts, 2 fill all 2 chips"):
        placed((0.5, 0.5), 2, "balanced", redundant=3)


def choices_of(shares: tuple[float, ...]) -> tuple[list[tuple[int, ...]], list[float]]:
    """Every set of experts that a token may choose, and how likely each is beside the others."""
    odds = odds_of(shares)
    always = {one for one, odd in enumerate(odds) if math.isinf(odd)}
    sets = [each for each in itertools.combinations(range(len(shares)), round(sum(shares))) if always <= set(each)]
    return sets, [math.prod(float(odds[one]) for one in each if one not in always) for each in sets]


def average(weights: Sequence[float], values: Sequence[float]) -> float:
    return math.fsum(w * value for w, value in zip(weights, values, strict=True)) / math.fsum(weights)


def told(routing: str, experts: int, chosen: int) -> Experts:
    return Experts(count=experts, chosen=chosen, touched=experts, routing=Routing.model_validate(routing))


@given(st.integers(2, 6), st.integers(1, 4), st.sampled_from([(2, 2), (4, 2), (3, 3), (6, 2), (6, 3)]), st.data())
def test_copies_in_a_group_are_one_place(
    count: int, redundant: int, axis: tuple[int, int], data: st.DataObject
) -> None:
    """Groups that a token goes to, against every set of experts and every choice of a copy."""
    chips, first = axis
    chosen = data.draw(st.integers(1, min(count, 3)))
    redundant = max(min(redundant, count * (chips - 1)), chips - count, 1)
    law = data.draw(st.sampled_from(["uniform", "power_law(1.2)", "power_law(2)"]))
    found = spread(told(f"{law} + {redundant}", count, chosen), chips, first, 50)
    shares = Routing.model_validate(law).shares(count, chosen, 50)
    where = placed(shares, chips, "balanced", redundant)
    weights, chips_seen, groups_seen = [], [], []
    for each, weight in zip(*choices_of(shares), strict=True):
        places = [[chip for chip in range(chips) if one in where[chip]] for one in each]
        for taken in itertools.product(*places):
            parts = math.prod(where[chip][one] for chip, one in zip(taken, each, strict=True))
            weights.append(parts * weight)
            chips_seen.append(len(set(taken)))
            groups_seen.append(len({chip // first for chip in taken}))
    for expected, seen in ((found.chips, chips_seen), (found.groups, groups_seen)):
        assert expected == pytest.approx(average(weights, seen), rel=1e-9)


def tokens_drawn(
    where: ExpertPlacement, shares: tuple[float, ...], tokens: int, dice: random.Random
) -> list[dict[int, int]]:
    """Of every chip the tokens of its experts, where each token takes a copy of each of its experts at random."""
    sets, weights = choices_of(shares)
    found: list[dict[int, int]] = [{} for _ in where]
    for each in dice.choices(sets, weights, k=tokens):
        for one in each:
            chip = dice.choice([place for place, held in enumerate(where) if one in held])
            found[chip][one] = found[chip].get(one, 0) + 1
    return found


@pytest.mark.parametrize(("law", "redundant"), [("uniform", 3), ("power_law(1.2)", 4), ("counts(9,1,1,1,1,1,1,1)", 1)])
def test_what_the_most_loaded_chip_does_is_what_drawn_tokens_ask_of_it(law: str, redundant: int) -> None:
    dice, count, chosen, chips, tokens, runs = random.Random(11), 8, 2, 4, 12, 1500
    found = spread(told(f"{law} + {redundant}", count, chosen), chips, 2, tokens)
    shares = Routing.model_validate(law).shares(count, chosen, tokens)
    where = placed(shares, chips, "balanced", redundant)
    drawn = [tokens_drawn(where, shares, tokens, dice) for _ in range(runs)]
    loads = [sum(sum(run[chip].values()) for run in drawn) / runs for chip in range(chips)]
    touched = [sum(len(run[chip]) for run in drawn) / runs for chip in range(chips)]
    assert max(loads) == pytest.approx(found.load * chosen * tokens, rel=0.03)
    assert max(touched) == pytest.approx(found.touched, rel=0.03)
    assert found.held == max(map(len, where)) == -(-(count + redundant) // chips)


def test_redundant_experts_of_a_large_model() -> None:
    """256 experts of which a token has 8, over 32 chips, with a copy more for each chip: nine instead of eight there.

    So DeepSeek-V3 is deployed for prompts: DeepSeek-V3 Technical Report, arXiv:2412.19437, section 3.4.1.
    """
    plain, copied = (spread(told(law, 256, 8), 32, 8, 4096) for law in ("power_law(1.2)", "power_law(1.2) + 32"))
    assert (plain.held, copied.held) == (8, 9)
    assert copied.load < plain.load and copied.load == pytest.approx(1 / 32, rel=0.05)


@given(shared_out(7), st.integers(0, 3))
def test_chips_of_a_token_are_those_of_every_set(known: tuple[tuple[float, ...], int], redundant: int) -> None:
    shares, chips = known
    redundant = min(redundant, len(shares) * (chips - 1))
    placement = placed(shares, chips, "balanced", redundant)
    sets, weights = choices_of(shares)
    every = [sum(1.0 - math.prod(1.0 - chip.get(one, 0.0) for one in each) for chip in placement) for each in sets]
    assert chips_of_a_token(shares, placement) == pytest.approx(average(weights, every), rel=1e-9)
    for one, share in enumerate(shares):  # and the sets have the shares that were asked for
        assert average(weights, [float(one in each) for each in sets]) == pytest.approx(share, abs=1e-9)


@pytest.mark.parametrize(
    ("experts", "chosen", "chips"), [(256, 8, 8), (256, 8, 64), (128, 4, 16), (8, 2, 8), (64, 64, 8)]
)
def test_under_uniform_routing_every_set_is_as_likely(experts: int, chosen: int, chips: int) -> None:
    shares = Routing().shares(experts, chosen, 1)
    away = math.comb(experts - experts // chips, chosen) / math.comb(experts, chosen)
    found = chips_of_a_token(shares, placed(shares, chips))
    assert found == pytest.approx(chips * (1 - away), rel=1e-12) and found <= min(chips, chosen)
