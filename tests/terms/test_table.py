"""What follows from a table of charges, against loops over blocks and options that know none of its arrays."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharded_cases import whole_domain
from strategies import share
from table_sums import sums_of

from dfopt.terms.charges import Charge, merged
from dfopt.terms.incidence import AnyOf, Crosses, Exactly, Has, Incidence, Inside, Open, counts
from dfopt.terms.table import Domain, Table

KERNELS = 4


def often(incidence: Incidence, block: frozenset[int]) -> float:
    """How often a block pays, said in sets."""
    if isinstance(incidence, Has):
        return float(incidence.kernel in block)
    if isinstance(incidence, AnyOf):
        return float(bool(block & {*incidence.kernels}))
    if isinstance(incidence, Crosses):
        readers = {*incidence.readers}
        return float(not readers <= block if incidence.source in block else bool(readers & block))
    if isinstance(incidence, Open):
        return float(incidence.source in block and not {*incidence.readers} <= block)
    if isinstance(incidence, Inside):
        deep = [depth for k, depth in zip(incidence.readers, incidence.depths, strict=True) if k in block]
        return max(deep, default=0.0) if incidence.source in block else 0.0
    assert isinstance(incidence, Exactly)
    return float(
        block & {*incidence.kernels} == {k for k, in_ in zip(incidence.kernels, incidence.held, strict=True) if in_}
    )


@st.composite
def incidences(draw: st.DrawFn) -> Incidence:
    source, *readers = draw(st.permutations(range(KERNELS)))
    few = tuple(readers[: draw(st.integers(1, len(readers)))])
    depths = tuple(draw(st.sampled_from([1.0, 2.0, 3.5])) for _ in few)
    held = tuple(draw(st.booleans()) for _ in few)
    return draw(
        st.sampled_from(
            [Has(source), AnyOf(few), Crosses(source, few), Inside(source, few, depths), Exactly(few, held)]
        )
    )


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Charge], Table]:
    """Charges as they were made, and their table."""
    sizes = tuple(draw(st.integers(1, 3)) for _ in range(KERNELS))
    charges = []
    for _ in range(draw(st.integers(1, 6))):
        scope = tuple(sorted(draw(st.sets(st.integers(0, KERNELS - 1), max_size=3))))
        shape = [sizes[k] for k in scope]
        amount = [draw(st.sampled_from([0.0, 1.0, 2.0, 5.0])) for _ in range(int(np.prod(shape, dtype=int)))]
        resource = draw(st.sampled_from(["a", "b"]))
        charges.append(Charge(resource, draw(incidences()), scope, np.array(amount).reshape(shape)))
    return charges, Table(sizes, merged(charges, draw(st.sampled_from([1, 9, 1000]))))


def paid(charges: list[Charge], options: tuple[int, ...], block: frozenset[int], resource: str) -> float:
    return sum(
        often(charge.incidence, block) * float(charge.amount[tuple(options[k] for k in charge.scope)])
        for charge in charges
        if charge.resource == resource
    )


BLOCKS = [frozenset(block) for size in range(KERNELS + 1) for block in itertools.combinations(range(KERNELS), size)]
MEMBER = np.array([[k in block for k in range(KERNELS)] for block in BLOCKS])


@share(0.5)
@given(some=st.lists(incidences(), max_size=5))
def test_blocks_pay_as_often_as_their_kernels_say(some: list[Incidence]) -> None:
    expected = [[often(incidence, block) for incidence in some] for block in BLOCKS]
    assert counts(some, MEMBER).tolist() == expected


@share(0.5)
@given(made=tables())
def test_sums_are_incidence_times_amount(made: tuple[list[Charge], Table]) -> None:
    charges, table = made
    vectors = table.vectors(whole_domain(table.sizes_k))
    amounts = table.exact(vectors)
    for resource in ("a", "b"):
        sums = sums_of(table, amounts, MEMBER, resource)
        for v, options in enumerate(vectors.tolist()):
            expected = [paid(charges, tuple(options), block, resource) for block in BLOCKS]
            assert sums[v].tolist() == pytest.approx(expected, rel=1e-12)


def part_of(table: Table, data: st.DataObject) -> Domain:
    """Some options of every kernel."""
    whole = whole_domain(table.sizes_k)
    return tuple(tuple(sorted(data.draw(st.sets(st.sampled_from(options), min_size=1)))) for options in whole)


@share(0.5)
@given(made=tables(), data=st.data())
def test_least_sums_are_below_every_exact_one_and_attained_by_one_option(
    made: tuple[list[Charge], Table], data: st.DataObject
) -> None:
    _, table = made
    domain = part_of(table, data)
    least = table.least(domain)
    exact = table.exact(table.vectors(domain))
    assert (least <= exact).all() and (least == exact.min(axis=0)).all()
    for resource in ("a", "b"):
        low, sums = (sums_of(table, amounts, MEMBER, resource) for amounts in (least[None], exact))
        assert (low <= sums * (1 + 1e-12)).all()
        if len(exact) == 1:
            assert low.tolist() == sums.tolist()
    for k in range(KERNELS):
        by_option = table.least_by_option(domain, least, k)
        for option, row in zip(domain[k], by_option, strict=True):
            alone = tuple((option,) if other == k else options for other, options in enumerate(domain))
            assert row.tolist() == table.least(alone).tolist()


@share(0.5)
@given(made=tables(), data=st.data())
def test_dominance_loses_no_optimum(made: tuple[list[Charge], Table], data: st.DataObject) -> None:
    """Of a function that grows with the sums of all blocks, whatever it is: here a few, and a limit."""
    _, table = made
    domain = part_of(table, data)
    left = domain
    for k in data.draw(st.permutations(range(KERNELS))):
        left = (*left[:k], tuple(table.undominated_of(k, left)), *left[k + 1 :])
    assert all({*options} <= {*before} for options, before in zip(left, domain, strict=True))
    weights = data.draw(st.lists(st.sampled_from([0.0, 1.0, 3.0]), min_size=len(BLOCKS), max_size=len(BLOCKS)))
    limit = data.draw(st.sampled_from([2.0, 6.0, np.inf]))

    def best(options: Domain) -> float:
        amounts = table.exact(table.vectors(options))
        a, b = (sums_of(table, amounts, MEMBER, resource) for resource in ("a", "b"))
        values = np.maximum(a, b) @ np.array(weights) + (a.max(axis=1) * b.sum(axis=1))
        return float(np.where(b.max(axis=1) <= limit, values, np.inf).min())

    assert best(left) == pytest.approx(best(domain), rel=1e-12)


def test_a_charge_too_large_to_merge_stays_apart() -> None:
    wide = [Charge("a", Has(0), (k,), np.arange(3.0)) for k in (0, 1)]
    assert [charge.scope for charge in merged(wide, most=8)] == [(0,), (1,)]
    assert [charge.scope for charge in merged(wide, most=9)] == [(0, 1)]
