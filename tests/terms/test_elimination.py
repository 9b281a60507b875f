"""The least of sums of factors, and its min-marginals, against looking at all vectors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfopt.terms.elimination import Factor, eliminated


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Factor], tuple[int, ...]]:
    """Up to five kernels with up to three options, and factors of up to three of them; some amounts are infinite."""
    sizes = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=5)))
    factors: list[Factor] = []
    for _ in range(draw(st.integers(0, 6))):
        scope = tuple(sorted(draw(st.sets(st.integers(0, len(sizes) - 1), max_size=3))))
        shape = [sizes[k] for k in scope]
        cells = st.one_of(st.integers(-3, 9).map(float), st.just(np.inf))
        amounts = draw(st.lists(cells, min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
        factors.append((scope, np.array(amounts).reshape(shape)))
    return factors, sizes


def total(factors: list[Factor], vector: tuple[int, ...]) -> float:
    return sum(float(amount[tuple(vector[k] for k in scope)]) for scope, amount in factors)


def every(sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [*itertools.product(*map(range, sizes))]


@given(problems())
def test_the_least_is_that_of_all_vectors(problem: tuple[list[Factor], tuple[int, ...]]) -> None:
    factors, sizes = problem
    found, least = eliminated(factors, sizes), min(total(factors, vector) for vector in every(sizes))
    assert found.exact
    assert found.least == pytest.approx(least, rel=1e-12) or found.least == least
    if np.isfinite(least):
        assert total(factors, tuple(found.options_k.tolist())) == pytest.approx(least, rel=1e-12, abs=1e-12)


@given(problems())
def test_marginals_are_the_least_with_each_option(problem: tuple[list[Factor], tuple[int, ...]]) -> None:
    factors, sizes = problem
    found = eliminated(factors, sizes)
    if np.isinf(found.least):
        assert all(np.isinf(marginal_o).all() for marginal_o in found.marginals_ko)
        return
    for k, marginal_o in enumerate(found.marginals_ko):
        for option, marginal in enumerate(marginal_o.tolist()):
            least = min(total(factors, vector) for vector in every(sizes) if vector[k] == option)
            touched = any(k in scope and sizes[k] > 1 for scope, _ in factors)
            assert marginal == least or marginal == pytest.approx(least, rel=1e-9, abs=1e-9) or not touched


@given(problems(), st.integers(1, 8))
def test_small_tables_give_a_bound(problem: tuple[list[Factor], tuple[int, ...]], most: int) -> None:
    factors, sizes = problem
    found = eliminated(factors, sizes, most)
    for vector in every(sizes):
        value = total(factors, vector)
        assert found.least <= value + 1e-9
        for k, marginal_o in enumerate(found.marginals_ko):
            assert marginal_o[vector[k]] <= value + 1e-9
