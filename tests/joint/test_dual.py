"""The dual of resources against the exact price of every fusion of every choice of options."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_layer_search import Case, cases

from dfopt.errors import Infeasible
from dfopt.fusion.blocks import restrict, stage_tables
from dfopt.joint.dual import between, least_by_side, stage_dual
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
    """Kernels of one side may share blocks, those of two sides never do; -1 is another stage."""
    side_k = np.array(sides)
    block_k = np.array([data.draw(st.integers(0, 3)) for _ in sides]) + 4 * side_k  # apart by side
    found = least_by_side(incidence, side_k)
    for side in range(3):
        blocks = np.unique(block_k[side_k == side])
        paid = counts([incidence], block_k[None, :] == blocks[:, None]).sum() if len(blocks) else 0.0
        assert found.get(side, 0.0) <= paid


@given(cases())
def test_no_choice_takes_less_than_the_dual_or_its_marginals(case: Case) -> None:
    menu = case.menu
    allowed_o = menu.undominated(np.ones_like(menu.shares_tiles))
    chip = chip_of(menu.instance.system, menu.instance.assumptions, bounding=True)
    try:
        tables = stage_tables(restrict(menu.stage(allowed_o, case.tiles), case.members), chip)
    except Infeasible:  # nothing fits whatever the options
        return
    dual, domain = stage_dual(menu, allowed_o, tables, case.limits, case.members), menu.domain_of(allowed_o)
    marginals_ko = dual.elimination.marginals_ko
    legal = [charge for charge in menu.priced(case.tiles)[1].charges if charge.resource == "legal"]
    assert all(option in left for left, option in zip(domain, dual.options_k.tolist(), strict=True))
    for places in itertools.product(*domain):
        if any(np.isinf(charge.amount[tuple(places[k] for k in charge.scope)]) for charge in legal):
            continue  # layouts that other layers do not take up, or partial sums that nothing adds up
        options = np.searchsorted(menu.tables.place_o, np.array(places) + menu.figures.first_k)
        value = case.best_of(tuple(options.tolist()))
        assert dual.seconds <= value * (1 + 1e-9)
        for k, marginal_o in enumerate(marginals_ko):
            assert marginal_o[domain[k].index(places[k])] <= value * (1 + 1e-9)


def test_two_vectors_have_the_same_weighted_sums_under_the_best_weights() -> None:
    """One resource is larger under the first vector, the other under the second: neither alone is the best weight."""
    weight_sq = between(np.array([[6.0, 2.0]]), np.array([[1.0, 5.0]]))
    assert weight_sq.sum() == pytest.approx(1.0)
    assert (weight_sq * [[6.0, 2.0]]).sum() == pytest.approx((weight_sq * [[1.0, 5.0]]).sum())
