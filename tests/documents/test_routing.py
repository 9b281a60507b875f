"""Routing: shares of tokens, experts touched against simulated tokens, and what each law is more or less than."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from dfopt.documents.routing import Routing, touched

LAWS = ("uniform", "balanced", "power_law(0.7)", "power_law(1)", "power_law(1.2)", "power_law(2.5)")


@st.composite
def models(draw: st.DrawFn) -> tuple[Routing, int, int, int]:
    """A routing, experts, experts of a token, and tokens."""
    experts = draw(st.integers(1, 60))
    chosen = draw(st.integers(1, experts))
    counts = draw(st.lists(st.integers(0, 9), min_size=experts, max_size=experts))
    counted = Routing(law="counts", counts=tuple(float(one) for one in counts))
    known = [Routing.model_validate(law) for law in LAWS]
    some = [*known, counted] if sum(count > 0 for count in counts) >= chosen else known
    return draw(st.sampled_from(some)), experts, chosen, draw(st.integers(1, 400))


@given(models())
def test_shares_are_those_of_distinct_choices(model: tuple[Routing, int, int, int]) -> None:
    routing, experts, chosen, tokens = model
    shares = routing.shares(experts, chosen, tokens)
    assert len(shares) == experts and sum(shares) == pytest.approx(chosen)
    assert all(0 <= share <= 1 + 1e-12 for share in shares)


@given(models())
def test_uniform_touches_the_most_of_what_chance_decides(model: tuple[Routing, int, int, int]) -> None:
    """And dealing tokens out in turn touches as many as there can be."""
    routing, experts, chosen, tokens = model
    found = routing.touched(experts, chosen, tokens)
    assert chosen * (1 - 1e-12) <= found <= min(experts, chosen * tokens) * (1 + 1e-12)
    most = Routing().touched(experts, chosen, tokens)
    assert (found >= most * (1 - 1e-12)) if routing.law == "balanced" else (found <= most * (1 + 1e-12))
    assert found <= routing.touched(experts, chosen, tokens + 1) * (1 + 1e-12) or routing.alpha is not None


def test_loads_beyond_all_tokens_go_to_the_others() -> None:
    found = Routing(law="counts", counts=(90.0, 6.0, 3.0, 1.0)).shares(4, 2, 7)
    assert found == pytest.approx((1.0, 0.6, 0.3, 0.1))


@pytest.mark.parametrize("law", ["uniform", "power_law(1.2)", "power_law(2.5)"])
@pytest.mark.parametrize("how", ["in turn", "one of a row"])
def test_touched_is_what_tokens_touch_however_their_choices_go_together(law: str, how: str) -> None:
    """Two ways of choosing distinct experts with given shares: along one random ladder, and by pairs that settle."""
    experts, chosen, tokens, dice = 24, 3, 40, random.Random(7)
    shares = Routing.model_validate(law).shares(experts, chosen, tokens)
    choose = _along_a_ladder if how == "in turn" else _by_pairs
    runs = [len(set().union(*(choose(shares, dice) for _ in range(tokens)))) for _ in range(150)]
    assert sum(runs) / len(runs) == pytest.approx(touched(shares, tokens), abs=0.6)  # 5 sigma of 150 runs


def _along_a_ladder(shares: tuple[float, ...], dice: random.Random) -> set[int]:
    """Systematic sampling: rungs at equal distances on shares laid end to end."""
    at, found, so_far = dice.random(), set(), 0.0
    for one, share in enumerate(shares):
        so_far += share
        if so_far > at:
            found.add(one)
            at += 1.0
    return found


def _by_pairs(shares: tuple[float, ...], dice: random.Random) -> set[int]:
    """The pivotal method: two undecided experts settle that one of them is in or out, and the other takes the rest."""
    left, found = {one: share for one, share in enumerate(shares) if share < 1.0}, set()
    found |= {one for one, share in enumerate(shares) if share >= 1.0}
    while len(left) > 1:
        a, b = dice.sample(sorted(left), 2)
        both = left[a] + left[b]
        out = both < 1.0
        stays = dice.random() < (left[a] / both if out else (1.0 - left[b]) / (2.0 - both))
        winner, loser = (a, b) if stays else (b, a)
        if out:  # one is out, the other takes all
            del left[loser]
            left[winner] = both
        else:  # one is in, the other keeps what is left
            del left[winner]
            found.add(winner)
            left[loser] = both - 1.0
            if both - 1.0 < 1e-9:
                del left[loser]
    return found | {one for one, share in left.items() if share > 0.5}


def test_a_power_law_is_the_one_that_rows_were_measured_under() -> None:
    """Loads drawn as its source draws them, dealt out as whole tokens there: more are touched, up to a rounding."""
    dice = random.Random(3)
    for experts, chosen, tokens in ((256, 8, 64), (128, 8, 256), (128, 1, 1024)):
        low, high = (one ** (1 - 1.2) for one in (1.0, 0.8 * tokens))
        found = []
        for _ in range(30):
            loads = [(low + (high - low) * dice.random()) ** (1 / (1 - 1.2)) for _ in range(experts)]
            sums = sum(loads) / (tokens * chosen)
            shares = [min(1.0, load / sums / tokens) for load in loads]
            found.append(touched(shares, tokens))
        known = Routing.model_validate("power_law(1.2)").touched(experts, chosen, tokens)
        assert known == pytest.approx(sum(found) / len(found), rel=0.05)


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ("zipf", "Input should be 'uniform'"),
        ("power_law", "missing, expected with law power_law only"),
        ("power_law(1.2.3)", "Input should be 'uniform'"),
        ("power_law(1.2,3)", "Input should be 'uniform'"),
        ("counts()", "Input should be 'uniform'"),
        ({"law": "uniform", "alpha": 1.2}, "found in a routing of law uniform"),
        ({"law": "counts"}, "missing, expected with law counts only"),
        ({"law": "counts", "counts": [3, -1]}, "found -1 tokens"),
        ("uniform + 0", "greater than or equal to 1"),
        ("uniform + two", "Input should be 'uniform'"),
        ("power_law + 2", "missing, expected with law power_law only"),
    ],
)
def test_what_is_no_routing_is_refused(given_: Any, said: str) -> None:
    with pytest.raises(ValidationError, match=said.replace("(", r"\(").replace(")", r"\)")):
        Routing.model_validate(given_)


@pytest.mark.parametrize("law", [*LAWS, "counts(3, 1)"])
def test_copies_are_said_behind_the_law_and_change_no_share(law: str) -> None:
    plain, copied = Routing.model_validate(law), Routing.model_validate(f"{law} + 32")
    assert copied == plain.model_copy(update={"redundant": 32}) == Routing.model_validate(f"{law}+32 redundant")
    assert copied.words == f"{plain.words} + 32 redundant" and "redundant" not in plain.model_dump(mode="json")
    assert law.startswith("counts") or Routing.model_validate(copied.words) == copied
    assert copied.shares(2, 1, 9) == plain.shares(2, 1, 9) and copied.touched(2, 1, 9) == plain.touched(2, 1, 9)


def test_counts_are_of_the_experts_that_there_are() -> None:
    counted = Routing.model_validate("counts(5, 0, 0.0)")
    assert counted == Routing(law="counts", counts=(5.0, 0.0, 0.0))
    with pytest.raises(PydanticCustomError, match="found 3 counts, 1 of them above 0, for 4 experts"):
        counted.shares(4, 1, 8)
    with pytest.raises(PydanticCustomError, match="found 3 counts, 1 of them above 0, for 3 experts"):
        counted.shares(3, 2, 8)
    assert counted.touched(3, 1, 8) == 1.0 and counted.words == "counts"
