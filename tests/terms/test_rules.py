"""All rules together: least prices, dominated options, and what the search pays, against exact prices of blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sharded_cases import shard, whole_domain
from strategies import Dice, share
from test_two_ways import Case, cases, instance_of, options, zoo_cases

from dfopt.errors import Infeasible
from dfopt.fusion.blocks import price_blocks, stage_tables
from dfopt.terms import rules
from dfopt.terms.blocks import Blocks
from dfopt.terms.chip import chip_of
from dfopt.terms.layer import Layer
from dfopt.terms.rules import TERMS
from dfopt.terms.table import Domain, Table


def layer_of(case: Case) -> tuple[Layer, Table, Blocks]:
    """A layer, its table, and as blocks the partitions of the case and some of their neighbours."""
    world, _, partition, tiles = case
    layer = Layer(instance_of(world), tiles)
    place = np.array([partition[kernel.name] for kernel in layer.kernels])
    member = np.concatenate([place == np.unique(place)[:, None], np.eye(len(place), dtype=bool)[:8]])
    table = Table.of(layer, TERMS)
    return layer, table, Blocks(table, chip_of(world.system, world.assumptions, bounding=True), member, layer.latency_l)


def some_of(domain: Domain, dice: Dice) -> Domain:
    return tuple(tuple(option for option in options if dice([True, False])) or options[:1] for options in domain)


def vectors(domain: Domain, dice: Dice, count: int) -> np.ndarray:
    return np.array([[dice(options) for options in domain] for _ in range(count)])


@share(0.5)
@given(case=st.one_of(cases(), zoo_cases()), data=st.data())
def test_least_prices_are_below_every_exact_one(case: Case, data: st.DataObject) -> None:
    dice = Dice(data.draw)
    _, table, blocks = layer_of(case)
    domain = some_of(whole_domain(table.sizes_k), dice)
    low, exact = (
        blocks.prices(amounts) for amounts in (table.least(domain)[None], table.exact(vectors(domain, dice, 4)))
    )
    assert (low.time <= exact.time * (1 + 1e-12)).all()
    assert (low.legal | ~exact.legal).all()


@share(0.5)
@given(case=st.one_of(cases(), zoo_cases()), data=st.data())
def test_another_option_is_as_good_as_a_dominated_one_in_every_block(case: Case, data: st.DataObject) -> None:
    dice = Dice(data.draw)
    _, table, blocks = layer_of(case)
    domain = some_of(whole_domain(table.sizes_k), dice)
    whole = vectors(domain, dice, 1)
    for k in range(len(domain)):
        options = table.undominated_of(k, domain)
        if whole[0, k] in options:
            continue
        instead = np.repeat(whole, len(options), axis=0)
        instead[:, k] = options
        before, after = (blocks.prices(table.exact(some)) for some in (whole, instead))
        legal = table.totals(table.exact(instead), "legal") <= table.totals(table.exact(whole), "legal")
        better = (after.time <= before.time * (1 + 1e-12)) & (after.legal | ~before.legal)
        assert (better.all(axis=1) & legal).any()


@share(0.5)
@given(case=st.one_of(cases(), zoo_cases()), tiles=st.integers(1, 64))
def test_tiles_decide_nothing_but_what_rules_say(case: Case, tiles: int) -> None:
    world, _, _, count = case
    instance = instance_of(world)
    for term in (*TERMS, rules.LEAST_CONVERSIONS):
        if not term.by_tiles:
            some, others, without = (tuple(term.charges(Layer(instance, each))) for each in (count, tiles, 0))
            assert len(some) == len(others) == len(without)
            for one, other, third in zip(some, others, without, strict=True):
                assert one.incidence == other.incidence == third.incidence and one.scope == other.scope == third.scope
                assert np.array_equal(one.amount, other.amount) and np.array_equal(one.amount, third.amount)


def test_rules_have_names_of_their_own() -> None:
    assert len({term.name for term in TERMS}) == len(TERMS)


@share(0.5)
@given(case=st.one_of(cases(), zoo_cases()))
def test_blocks_cost_the_search_what_the_table_says(case: Case) -> None:
    world, sharding, _, tiles = case
    layer, table, blocks = layer_of(case)
    amounts = table.exact(options(case, layer))
    assume(table.totals(amounts, "legal") < np.inf)
    chip = chip_of(world.system, world.assumptions)
    try:
        tables = stage_tables(shard(layer.instance, sharding, tiles), chip)
    except Infeasible:  # a kernel alone is too large, in whatever parts
        alone = Blocks(table, chip, np.eye(len(layer.kernels), dtype=bool), layer.latency_l).prices(amounts)
        assert not alone.legal.all()
        return
    mine = price_blocks(tables, blocks.member_bk)
    theirs = Blocks(table, chip, blocks.member_bk, layer.latency_l).prices(amounts)
    if not chip.library:  # whose sets of kernels are no charge
        assert mine.legal.tolist() == theirs.legal[0].tolist()
    legal = mine.legal & theirs.legal[0]
    for one, other in ((mine.time, theirs.time), (mine.dram_bytes, theirs.dram_bytes)):
        assert one[legal] == pytest.approx(other[0, legal], rel=1e-12)
    assert mine.sram_bytes[legal] == pytest.approx(theirs.sram_bytes[0, legal], rel=1e-9)
    assert mine.seconds[:, legal] == pytest.approx(theirs.seconds[:, 0, legal], rel=1e-12)
