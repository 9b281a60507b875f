"""Rows of the assignment-matrix program against arrays: of blocks, legal and as fast, and of counts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from block_cases import IN_TOKEN_BLOCKS
from hypothesis import assume, event, given
from hypothesis import strategies as st
from sharded_cases import whole_domain
from strategies import Dice, World, falls, share, with_sram, worlds
from table_sums import sums_of

from dfopt.arrays import Bools, Floats, Ints
from dfopt.formulation.block_rows import ChargeRows
from dfopt.formulation.choices import Choices
from dfopt.formulation.counting import CountRows
from dfopt.milp import Model, Termination, solve
from dfopt.setting.instance import Setting
from dfopt.terms.blocks import Blocks
from dfopt.terms.chip import chip_of
from dfopt.terms.incidence import AnyOf, Crosses, Exactly, Has, Incidence, Inside, counts
from dfopt.terms.layer import Layer
from dfopt.terms.rules import TERMS
from dfopt.terms.table import Table
from dfopt.terms.token_blocks import shares_of, token_rows

Case = tuple[Layer, Ints, Bools]
"""A layer, an option of each kernel, and which kernels each block holds, shape (blocks, kernels)."""


@st.composite
def cases(draw: st.DrawFn, **drawn: object) -> Case:
    world: World = draw(worlds(most=5, tile_rows=[None, 1, 2], **drawn))
    instance = Setting(world.graph, world.system, world.assumptions, world.model).under(world.plan).shared
    layer, dice = Layer(instance, draw(st.integers(1, 3))), Dice(draw)
    option_k = np.array([dice(range(len(schemes))) for schemes in layer.schemes_k])
    block_k = np.array([dice(range(3)) for _ in layer.kernels])
    return layer, option_k, np.unique(block_k)[:, None] == block_k


def fixed(case: Case, shared: bool) -> tuple[float, bool]:
    """Seconds of all blocks in the program, and whether it has an answer; ``shared``: one column for a block."""
    layer, option_k, member_bk = case
    model, (blocks, kernels) = Model("fixed"), member_bk.shape
    if shared:
        A_kb = np.where(member_bk.T, model.binary("A", (blocks,)), -1)
        model.rows("taken", [(A_kb, 1.0)], 1, 1)
    else:
        A_kb = model.binary("A", (kernels, blocks))
        model.rows("taken", [(A_kb.ravel(), 1.0)], member_bk.T.ravel(), member_bk.T.ravel())
    choices = Choices(model, whole_domain(list(map(len, layer.schemes_k))), A_kb)
    taken = [columns[option] for columns, option in zip(choices.s_ko, option_k, strict=True)]
    model.rows("option", [(np.array(taken), 1.0)], 1, 1)
    chip, table = chip_of(layer.instance.system, layer.assumptions), Table.of(layer, TERMS)
    unit_s = max(1e-9, float(prices(case).time.max()))
    time_b = ChargeRows(choices, table, chip, layer.latency_l, unit_s, token_rows=token_rows(layer)).times()
    model.minimize([(time_b, 1.0)])
    found = solve(model)
    assert found.termination in (Termination.OPTIMAL, Termination.INFEASIBLE)
    return found.objective * unit_s, found.termination is Termination.OPTIMAL


def prices(case: Case):
    layer, option_k, member_bk = case
    chip, table = chip_of(layer.instance.system, layer.assumptions), Table.of(layer, TERMS)
    return Blocks(table, chip, member_bk, layer.latency_l, token_rows(layer)).prices(table.exact(option_k[None]))


def check(case: Case, shared: bool) -> None:
    """What the program knows no rows of, the count of kernels and which may be together, is left out."""
    layer, option_k, member_bk = case
    chip = chip_of(layer.instance.system, layer.assumptions)
    table = Table.of(layer, TERMS)
    assume(chip.fused or (member_bk.sum(axis=1) == 1).all())
    assume((member_bk.sum(axis=1) <= chip.tiles).all())
    exact = prices(case)
    together = np.isfinite(table.totals(table.exact(option_k[None]), "legal")[0])
    seconds, feasible = fixed(case, shared)
    assert feasible == bool(exact.legal.all() and together)
    if feasible and falls(layer.instance.system):  # a limit that is just met may be missed
        assert seconds <= float(exact.time.sum()) * (1 + 1e-7)
    elif feasible:
        assert seconds == pytest.approx(float(exact.time.sum()), rel=1e-7)


@share(0.5)
@given(cases(compute_model=["fixed", "efficiency", "cycle"]), st.booleans())
def test_rows_price_as_arrays_do(case: Case, shared: bool) -> None:
    check(case, shared)


@share(0.2)
@given(cases(compute_model="efficiency", memory=True), st.booleans())
def test_rows_know_shares_of_bandwidth(case: Case, shared: bool) -> None:
    check(case, shared)


@st.composite
def in_token_blocks(draw: st.DrawFn) -> Case:
    """Blocks of kernels that hardly fit the SRAM, of which some take their tokens in blocks."""
    case = draw(cases(**IN_TOKEN_BLOCKS))
    layer, option_k, member_bk = case
    table, rows = Table.of(layer, TERMS), token_rows(layer)
    assert rows is not None
    amounts = table.exact(option_k[None])

    def sums_b(name: str) -> Floats:
        return np.asarray(sums_of(table, amounts, member_bk, name)[0])

    blocks = min(draw(st.sampled_from([rows.most, 4, 3, 2, 1])), rows.most)
    held_b = sums_b("buffer_bytes") + sums_b("stationary_bytes")
    cut_b = sums_b("beside_token_bytes") + sums_b("token_bytes") * shares_of(rows, np.array(blocks))
    need = float(np.where(sums_b("all_tokens") > 0, held_b, np.minimum(held_b, cut_b)).max())
    system = with_sram(layer.instance.system, max(need * draw(st.sampled_from([0.6, 0.998, 1.002, 1.1])), 1.0))
    setting = Setting(layer.instance.graph, system, layer.assumptions, layer.instance.setting.model)
    return Layer(setting.under(layer.instance.plan).shared, layer.tiles), option_k, member_bk


@share(1)
@given(in_token_blocks(), st.booleans())
def test_rows_price_blocks_of_tokens(case: Case, shared: bool) -> None:
    taken = prices(case).block_count
    event(f"blocks of tokens: {bool((taken > 1).any())}")
    check(case, shared)


# -- counts as rows against counts of blocks: with all places given there is one value left ----


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
