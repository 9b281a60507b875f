"""The dual of resources against the exact price of every fusion of every choice of options."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_layer_search import Case, cases

from dfopt.arrays import Bools
from dfopt.errors import Infeasible
from dfopt.fusion.blocks import restrict, stage_tables
from dfopt.joint.dual import Resources, between
from dfopt.joint.factors import least_by_side, least_of_sets
from dfopt.terms.chip import chip_of
from dfopt.terms.incidence import AnyOf, Crosses, Exactly, Has, Incidence, Inside, counts

KERNELS = st.integers(0, 3)


@st.composite
def incidences(draw: st.DrawFn) -> Incidence:
    some = tuple(draw(st.lists(KERNELS, min_size=2, max_size=3, unique=True)))
    held = tuple(draw(st.lists(st.booleans(), min_size=len(some), max_size=len(some))))
    made = [Has(some[0]), AnyOf(some), Crosses(some[0], some[1:]), Inside(some[0], some[1:], (2.0,) * len(some[1:])),
            Exactly(some, held)]  # fmt: skip
    return draw(st.sampled_from(made))


@given(incidences(), st.lists(st.integers(-1, 2), min_size=4, max_size=4), st.data())
def test_no_partition_pays_less_by_side(incidence: Incidence, sides: list[int], data: st.DataObject) -> None:
    """Kernels of one side may share blocks, those of two sides never do; -1 is another stage. Some blocks count."""
    side_k, holding_k = np.array(sides), np.array([data.draw(st.booleans()) for _ in sides])
    block_k = np.array([data.draw(st.integers(0, 3)) for _ in sides]) + 4 * side_k  # apart by side
    found = least_by_side(incidence, side_k, holding_k)
    for side in range(3):
        blocks = np.unique(block_k[(side_k == side) & holding_k])
        paid = counts([incidence], block_k[None, :] == blocks[:, None]).sum() if len(blocks) else 0.0
        assert found.get(side, 0.0) <= paid


@given(st.integers(1, 4), st.data())
def test_no_cut_into_blocks_pays_less_by_what_they_hold(kernels: int, data: st.DataObject) -> None:
    sets = [frozenset(k for k in range(kernels) if number >> k & 1) for number in range(1, 1 << kernels)]
    amounts = st.lists(st.integers(0, 9).map(float), min_size=2, max_size=2).map(np.array)
    amount_of = {held: data.draw(amounts) for held in sets if data.draw(st.booleans())}
    some = sorted(data.draw(st.sets(st.integers(0, kernels - 1), min_size=1)))
    paid = []
    for block_k in itertools.product(range(len(some)), repeat=len(some)):
        blocks = [frozenset(k for k, block in zip(some, block_k, strict=True) if block == b) for b in set(block_k)]
        paid.append(sum((amount_of.get(block, np.zeros(2)) for block in blocks), np.zeros(2)))
    least = least_of_sets(amount_of, some)
    assert np.min(paid, axis=0).tolist() == ([0.0, 0.0] if least is None else least.tolist())


def resources_of(case: Case, allowed_o: Bools) -> Resources | None:
    """What the resources of a case take at least; None if nothing fits whatever the options."""
    menu, chip = case.menu, chip_of(case.menu.instance.system, case.menu.instance.assumptions, bounding=True)
    try:
        tables = stage_tables(restrict(menu.stage(allowed_o, case.tiles), case.members), chip)
    except Infeasible:
        return None
    return Resources.of_stage(menu, allowed_o, tables, case.limits, case.members)


@given(cases())
def test_no_choice_takes_less_than_the_dual_or_its_marginals(case: Case) -> None:
    menu = case.menu
    allowed_o = menu.undominated(np.ones_like(menu.shares_tiles))
    if (resources := resources_of(case, allowed_o)) is None:
        return
    dual = resources.dual()
    domain = menu.domain_of(allowed_o)
    marginals_ko = dual.elimination.marginals_ko
    legal = [charge for charge in menu.priced(case.tiles)[1].charges if charge.resource == "legal"]
    assert allowed_o[dual.option_k].all() and (menu.tables.kernel_o[dual.option_k] == np.arange(len(domain))).all()
    for places in itertools.product(*domain):
        if any(np.isinf(charge.amount[tuple(places[k] for k in charge.scope)]) for charge in legal):
            continue  # layouts that other layers do not take up, or partial sums that nothing adds up
        options = np.searchsorted(menu.tables.place_o, np.array(places) + menu.figures.first_k)
        value = case.best_of(tuple(options.tolist()))
        assert dual.seconds <= value * (1 + 1e-9)
        for k, marginal_o in enumerate(marginals_ko):
            assert marginal_o[domain[k].index(places[k])] <= value * (1 + 1e-9)


@given(cases(), st.data())
def test_no_choice_that_holds_so_little_takes_less(case: Case, data: st.DataObject) -> None:
    menu = case.menu
    allowed_o = menu.undominated(np.ones_like(menu.shares_tiles))
    if (resources := resources_of(case, allowed_o)) is None:
        return
    held_o = np.array([data.draw(st.integers(0, 9)) for _ in allowed_o], dtype=float)
    room = float(data.draw(st.integers(0, 12)))
    legal = [charge for charge in menu.priced(case.tiles)[1].charges if charge.resource == "legal"]
    dual = resources.dual_within(held_o, room)
    some = False
    for options in itertools.product(*(of[allowed_o[of]] for of in menu.tables.of_kernel)):
        places = menu.tables.place_o[[*options]] - menu.figures.first_k
        if any(np.isinf(charge.amount[tuple(places[k] for k in charge.scope)]) for charge in legal):
            continue
        if held_o[[*options]].sum() <= room:
            some = True
            assert dual.seconds <= case.best_of(tuple(map(int, options))) * (1 + 1e-9)
    if not some:  # by what is held, or by layouts as well: then nothing is claimed
        assert dual.seconds >= 0


def test_two_vectors_have_the_same_weighted_sums_under_the_best_weights() -> None:
    """One resource is larger under the first vector, the other under the second: neither alone is the best weight."""
    weight_sq = between(np.array([[6.0, 2.0]]), np.array([[1.0, 5.0]]))
    assert weight_sq.sum() == pytest.approx(1.0)
    assert (weight_sq * [[6.0, 2.0]]).sum() == pytest.approx((weight_sq * [[1.0, 5.0]]).sum())
