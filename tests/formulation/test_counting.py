"""Counts as rows against counts of blocks: with all places given, an exact count has one value left."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharded_cases import whole_domain

from dfopt.formulation.choices import Choices
from dfopt.formulation.counting import CountRows
from dfopt.milp import Model, Termination, solve
from dfopt.terms.incidence import AnyOf, Crosses, Exactly, Has, Incidence, Inside, counts

KERNELS, BLOCKS = 3, 2
HELD = [held for held in itertools.product((True, False), repeat=KERNELS) if any(held)]
EVERY: list[Incidence] = [
    *(Exactly((0, 1, 2), held) for held in HELD), Has(1), AnyOf((0, 2)), Crosses(0, (1, 2)),
    Inside(0, (1, 2), (2.0, 3.0)),
]  # fmt: skip


@given(st.lists(st.integers(0, BLOCKS - 1), min_size=KERNELS, max_size=KERNELS), st.sampled_from(["least", "most"]))
@pytest.mark.parametrize("incidence", EVERY, ids=str)
def test_exact_counts_are_those_of_the_blocks(incidence: Incidence, place_k: list[int], side: str) -> None:
    """Beside any option of the source: all have one class."""
    member_bk = np.arange(BLOCKS)[:, None] == np.array(place_k)
    model = Model("counts")
    A_kb = model.binary("A", (KERNELS, BLOCKS))
    model.rows("places", [(A_kb.ravel(), 1.0)], member_bk.T.ravel(), member_bk.T.ravel())
    choices = Choices(model, whole_domain([1] * KERNELS), A_kb)
    count = CountRows(choices, exact=True).count(incidence, (), ())
    columns, times = count.columns.ravel(), count.times.ravel()
    counted = columns >= 0
    model.minimize([(columns[counted], times[counted] * (1.0 if side == "least" else -1.0))])
    found = solve(model)
    assert found.termination is Termination.OPTIMAL and found.x is not None
    values = np.where(counted, found.x[columns] * times, 0.0)
    assert values == pytest.approx(counts([incidence], member_bk).ravel(), abs=1e-6)
