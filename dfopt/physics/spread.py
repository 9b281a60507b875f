"""Experts on chips: which chip holds which, how loaded the most loaded one is, to how many a token is sent.

An expert may have copies on several chips; each then takes an equal part of its tokens: one of them is drawn for every
token. A placement says, chip by chip, which experts it holds and what part of each one's tokens it takes.

To how many chips a token is sent depends on how its choices go together, of which shares say nothing. Taken is the most
random way of choosing k distinct experts that has these shares (maximum entropy, or conditional Poisson sampling): a
set of k is as likely as the product of its experts' odds. Under uniform shares every set is as likely as any other.
Odds are found from shares by the iteration of Chen, Dempster and Liu, "Weighted finite population sampling to
maximize entropy", Biometrika 81(3), 1994 (unconfirmed, from memory), which multiplies each by what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from dfopt.arrays import Floats
from dfopt.documents.experts import Experts
from dfopt.documents.routing import Routing, touched

ExpertPlacement = tuple[Mapping[int, float], ...]
"""Of every chip the experts that it holds, each with the part of its tokens that it takes."""

_CLOSE = 1e-12
_ROUNDS = 10_000


def placed(
    shares: Sequence[float], chips: int, how: Literal["contiguous", "balanced"] = "contiguous", redundant: int = 0
) -> ExpertPlacement:
    """Place experts on chips, about equally many on each.

    ``contiguous``: in order, without copies. ``balanced``: with a number of additional copies. Each is a copy of the
    expert whose copies have the highest load, among the experts that are not yet on every chip; this minimizes the load
    of the most loaded copy. Copies are then placed in descending order of load, each on the least loaded chip that has
    room and no copy of the same expert; every chip has room for the same number. If some copy finds no such chip, all
    are placed anew, each on the chip with the fewest experts.

    EPLB makes and packs copies in the same way, except that it may put two copies of an expert on one chip:
    ``replicate_experts`` and ``balanced_packing`` of ``eplb.py`` in deepseek-ai/EPLB at 5791971, over all chips at
    once.

    Parameters
    ----------
    shares : sequence of float
        By expert, the load: the probability that a token chooses it.
    chips : int
        Chips that share the experts.
    how : {"contiguous", "balanced"}
        Order in which experts are placed.
    redundant : int
        Number of additional copies, only for ``balanced``.

    Returns
    -------
    tuple of dict
        By chip, the experts that it has, each with the share of the expert's tokens that this copy serves.

    Raises
    ------
    ValueError
        If there are copies under ``contiguous``, or more than all chips can hold.

    Examples
    --------
    >>> shares = (0.9, 0.4, 0.4, 0.3)
    >>> [round(most_loaded(shares, placed(shares, 2, how)), 6) for how in ("contiguous", "balanced")]
    [0.65, 0.6]
    >>> placed(shares, 2, "balanced", redundant=2)
    ({0: 0.5, 2: 1.0, 1: 0.5}, {0: 0.5, 3: 1.0, 1: 0.5})
    """
    experts = len(shares)
    if how == "contiguous":
        if redundant:
            raise ValueError(f"found {redundant} redundant experts in order: place them balanced")
        cuts = [chip * experts // chips for chip in range(chips + 1)]
        return tuple(dict.fromkeys(range(*cut), 1.0) for cut in pairwise(cuts))
    if redundant > experts * (chips - 1):
        raise ValueError(f"found {redundant} redundant experts, {experts * (chips - 1)} fill all {chips} chips")
    copies = [1] * experts
    for _ in range(redundant):
        copies[max(range(experts), key=lambda expert: (copies[expert] < chips, shares[expert] / copies[expert]))] += 1
    slots = sorted(((share / copies[expert], expert) for expert, share in enumerate(shares)), reverse=True)
    packed = _packed(slots, copies, chips, fewest=False) or _packed(slots, copies, chips, fewest=True)
    assert packed is not None, "dealt out by number, chips differ by one at most, so every copy finds room"
    return packed


def _packed(
    slots: Sequence[tuple[float, int]], copies: Sequence[int], chips: int, *, fewest: bool
) -> ExpertPlacement | None:
    """Copies of experts, the most loaded first, to the least loaded chips; none if some copy finds no room."""
    placement: list[dict[int, float]] = [{} for _ in range(chips)]
    loads, room = [0.0] * chips, -(-sum(copies) // chips)

    def order(chip: int) -> tuple[int, float]:
        return (len(placement[chip]) if fewest else 0, loads[chip])

    for load, expert in slots:
        for _ in range(copies[expert]):
            free = [chip for chip in range(chips) if len(placement[chip]) < room and expert not in placement[chip]]
            if not free:
                return None
            chip = min(free, key=order)
            placement[chip][expert] = 1.0 / copies[expert]
            loads[chip] += load
    return tuple(placement)


def most_loaded(shares: Sequence[float], placement: ExpertPlacement) -> float:
    """Expected share of all routed tokens on the most loaded chip."""
    return max(sum(shares[expert] * part for expert, part in chip.items()) for chip in placement) / sum(shares)


def chips_of_a_token(shares: Sequence[float], placement: ExpertPlacement) -> float:
    """Expected number of distinct chips that a token is sent to.

    A token with several experts on a chip is sent there once.

    Examples
    --------
    Two of four experts on two chips: one of the six pairs is on the first chip, one on the second.

    >>> shares = (0.5,) * 4
    >>> round(chips_of_a_token(shares, placed(shares, 2)), 12)
    1.666666666667
    """
    odds = odds_of(tuple(shares))
    some, chosen = np.isfinite(odds), round(sum(shares))
    away = np.ones((len(placement), len(shares)))  # by chip: probability that a choice of an expert is none of it
    for number, chip in enumerate(placement):
        for expert, part in chip.items():
            away[number, expert] -= part
    left = chosen - int(np.sum(~some))
    none = _symmetric_sums(odds[some] * away[:, some], left)[:, left] / _symmetric_sums(odds[some], left)[left]
    return float(sum((1.0 - none * np.prod(away[:, ~some], axis=1)).tolist()))


@lru_cache(maxsize=64)
def odds_of(shares: tuple[float, ...]) -> Floats:
    """Odds of experts under which k distinct experts per token have these inclusion probabilities; infinite for 1.

    Examples
    --------
    >>> [round(float(one), 6) for one in odds_of((0.5, 0.5, 0.5, 0.5))]
    [1.0, 1.0, 1.0, 1.0]
    """
    wanted = np.array(shares)
    always = wanted >= 1.0 - _CLOSE
    odds = np.where(always, np.inf, wanted / np.where(always, 1.0, 1.0 - wanted))
    some = ~always & (wanted > 0)
    chosen, rest = round(sum(shares)) - int(always.sum()), wanted[some]
    estimate = odds[some]
    for _ in range(_ROUNDS):
        have = _inclusions(estimate, chosen) if chosen else rest
        if not chosen or np.abs(have - rest).max() <= _CLOSE * chosen:
            odds[some] = estimate
            return odds
        estimate = estimate * rest / have
        estimate /= np.exp(np.mean(np.log(estimate)))
    raise ArithmeticError(f"no odds found for shares of {min(shares):g} to {max(shares):g}")


class ExpertLoad(NamedTuple):
    """Load of the most loaded chip under expert parallelism, and the distance that tokens travel.

    Attributes
    ----------
    held : int
        Largest number of experts on a chip, copies included.
    touched : float
        Largest number of a chip's experts that at least one token chooses; at least 1.
    load : float
        Share of all tokens' choices that falls on the most loaded chip.
    chips, groups : float
        Expected number of distinct chips that a token is sent to, and of distinct groups of neighbouring chips.
    """

    held: int
    touched: float
    load: float
    chips: float
    groups: float


@lru_cache(maxsize=512)
def spread(experts: Experts, chips: int, first: int, tokens: int) -> ExpertLoad:
    """Load of experts, with their copies, spread over chips about evenly; shared experts are on every chip.

    Parameters
    ----------
    experts : Experts
        Experts of one layer.
    chips, first : int
        Chips that share them, and neighbours in a group.
    tokens : int
        Tokens of one evaluation, over all chips.

    Examples
    --------
    >>> some = Experts(count=8, chosen=2, touched=8.0)
    >>> one = spread(some, chips=4, first=2, tokens=1000)
    >>> one.held, one.load, round(one.chips, 6), round(one.groups, 6)
    (2, 0.25, 1.857143, 1.571429)

    The busiest of eight is sent a third of all tokens, which with two copies more go to either chip:

    >>> skewed = Routing(law="counts", counts=(7, 2, 2, 2, 2, 2, 2, 2))
    >>> plain = Experts(count=8, chosen=1, touched=8.0, routing=skewed)
    >>> copied = plain.model_copy(update={"routing": skewed.model_copy(update={"redundant": 2})})
    >>> [(one.held, round(one.load, 6)) for one in (spread(e, 2, 2, 1000) for e in (plain, copied))]
    [(4, 0.619048), (5, 0.5)]
    """
    always, routing = experts.always or 0, experts.routing or Routing()
    count, chosen = experts.count - always, experts.chosen - always
    shares = routing.shares(count, chosen, tokens)
    where, load, *reached = _balanced(tuple(shares), chips, first, routing.redundant or 0)
    read = max(touched([shares[expert] * part for expert, part in chip.items()], tokens) for chip in where)
    if routing.law == "balanced":
        read = min(float(max(map(len, where))), chosen * tokens * load)
    held = max(map(len, where))
    return ExpertLoad(held + always, min(max(read, 1.0), float(held)) + always, load, *reached)


@lru_cache(maxsize=64)
def _balanced(
    shares: tuple[float, ...], chips: int, first: int, redundant: int
) -> tuple[ExpertPlacement, float, float, float]:
    """Where experts lie, the load of the most loaded chip, and how many chips and groups of chips a token is sent to.

    Under most routings shares are the same for any number of tokens.
    """
    where = placed(shares, chips, "balanced", redundant)
    together = tuple(_together(where[at : at + first]) for at in range(0, chips, first))
    reached = chips_of_a_token(shares, where), chips_of_a_token(shares, together)
    return where, most_loaded(shares, where), *reached


def _together(chips: ExpertPlacement) -> dict[int, float]:
    """What a group of chips holds: of an expert with copies on several of them it takes all their parts."""
    parts: dict[int, float] = {}
    for chip in chips:
        for expert, part in chip.items():
            parts[expert] = min(parts.get(expert, 0.0) + part, 1.0)
    return parts


def _inclusions(odds: Floats, chosen: int) -> Floats:
    """Probability that each is among the chosen, where a set is as likely as the product of its odds."""
    before = [_symmetric_sums(odds[:0], chosen - 1)]
    after = [_symmetric_sums(odds[:0], chosen - 1)]
    for ratio in odds[:-1]:
        before.append(_with(before[-1], ratio))
    for ratio in odds[:0:-1]:
        after.append(_with(after[-1], ratio))
    others = np.einsum("ij,ij->i", np.stack(before), np.stack(after[::-1])[:, ::-1])
    weights: Floats = odds * others
    return weights * float(chosen / weights.sum())  # every set has as many


def _symmetric_sums(odds: Floats, most: int) -> Floats:
    """Elementary symmetric sums of the odds along the last axis, of none to ``most`` of them."""
    polynomial = np.zeros((*odds.shape[:-1], most + 1))
    polynomial[..., 0] = 1.0
    for place in range(odds.shape[-1]):
        polynomial = _with(polynomial, odds[..., place])
    return polynomial


def _with(polynomial: Floats, ratio: Floats) -> Floats:
    grown = polynomial.copy()
    grown[..., 1:] += ratio[..., None] * polynomial[..., :-1]
    return grown
