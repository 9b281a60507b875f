"""The least of sums against all values one by one."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfopt.proof.factors import Elimination, Factor, TooLarge


@st.composite
def sums(draw: st.DrawFn) -> tuple[list[Factor], list[int]]:
    """Costs of up to three variables each, some of which are infinite."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    factors = []
    for _ in range(draw(st.integers(0, 7))):
        count = int(rng.integers(0, min(3, len(sizes)) + 1))
        scope = tuple(sorted(rng.choice(len(sizes), count, replace=False).tolist()))
        cost = rng.integers(0, 20, [sizes[v] for v in scope]).astype(float)
        factors.append(Factor(scope, np.where(rng.random(cost.shape) < 0.1, math.inf, cost)))
    return factors, sizes


@given(sums())
def test_all_values_one_by_one(case: tuple[list[Factor], list[int]]) -> None:
    factors, sizes = case
    every = list(itertools.product(*map(range, sizes)))
    sum_of = {values: sum(float(f.cost[tuple(values[v] for v in f.scope)]) for f in factors) for values in every}
    found = Elimination(factors, sizes)
    assert found.least == min(sum_of.values()) == sum_of[found.values]
    for variable, marginal in enumerate(found.marginals):
        for value in range(sizes[variable]):
            assert marginal[value] == min(total for values, total in sum_of.items() if values[variable] == value)


def test_too_many_together() -> None:
    with pytest.raises(TooLarge, match="8 kernels together"):
        Elimination([Factor(tuple(range(8)), np.zeros([6] * 8))], [6] * 8)
