"""Compute in balance: no spot is more crowded than is said, and no power map costs less or gets more out of a stack."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from strategies import share

import dfopt as df
from dfopt.documents.stack import Stack
from dfopt.exploring.together import together
from dfopt.fusion.blocks import StageTables, tiles_of
from dfopt.heat.balanced_power import cheapest_spread, crowding
from dfopt.heat.least_interval import LeastInterval, LeastJoules
from dfopt.physics.pipeline import resolve
from dfopt.setting.instance import Setting
from dfopt.technology.coupling import SLACK_K
from dfopt.technology.leaking import Feedback, leaking
from dfopt.technology.placement import placement_shares
from dfopt.technology.power import KernelBlock
from dfopt.technology.stack_models import heat_of, power_of

Array = np.ndarray[Any, Any]


def given_tiles(seconds: Array, tiles: int) -> Array:
    """Tiles of the kernels of one partition, as mappings have them."""
    tables = SimpleNamespace(sharded=SimpleNamespace(menus=(), compute_k=seconds), chip=SimpleNamespace(tiles=tiles))
    return tiles_of(cast(StageTables, tables), np.ones((1, len(seconds)), dtype=bool))[0]


@given(st.integers(0, 10**6), st.integers(2, 40), st.integers(1, 12))
def test_no_spot_is_more_crowded(seed: int, tiles: int, count: int) -> None:
    draw = np.random.default_rng(seed)
    seconds = draw.pareto(0.5, min(count, tiles)) * draw.integers(0, 2, min(count, tiles)) + 1e-9
    areas = draw.random(9) + 0.01
    placed = placement_shares(given_tiles(seconds, tiles), 0.0, areas, "contiguous", draw.permutation(9).tolist())
    density = seconds @ placed / seconds.sum() / (areas / areas.sum())
    assert density.max() <= crowding(len(seconds), tiles) * (1 + 1e-9)


@given(st.integers(0, 10**6), st.floats(1.0, 4.0))
def test_the_cheapest_spread_is_that_of_a_linear_program(seed: int, most: float) -> None:
    draw = np.random.default_rng(seed)
    price, area = draw.random(6), draw.random(6) + 0.01
    area /= area.sum()
    other = linprog(price, A_eq=np.ones((1, 6)), b_eq=[1.0], bounds=[(0.0, most * one) for one in area])
    assert cheapest_spread(price, area, most) == pytest.approx(other.fun, rel=1e-9)


STACK: Stack = df.load_stack("hybrid-vault", {"cells": 4})


@share(0.3)
@given(st.integers(0, 10**6), st.floats(0.3, 1.0))
def test_no_balanced_partitions_are_sooner_done(seed: int, voltage: float) -> None:
    """Random partitions, placed by the judge's model, at the rate at which a limit binds, refresh with the heat."""
    power, heat, draw = power_of(STACK), heat_of(STACK), np.random.default_rng(seed)
    tiles, together_, even, joules = int(draw.integers(8, 140)), 1, 0.0, np.zeros(power.count)
    for _ in range(draw.integers(1, 4)):
        seconds = draw.pareto(0.7, draw.integers(1, 7)) + 1e-6
        given_ = tuple(given_tiles(seconds, tiles).astype(float).tolist())
        nothing = (0.0,) * len(seconds)
        block = KernelBlock(given_, tuple((seconds / STACK.logic.flop).tolist()), nothing, nothing)
        joules += power.logic_dynamic(power.activity([block]))[0]
        together_, even = max(together_, len(seconds)), even + (float(seconds[0]) if len(seconds) == 1 else 0.0)
    whole = float(joules.sum())
    dram = draw.exponential(0.05) * whole
    spent = joules + dram * power.dram_tiles
    limit = np.array([STACK.most_k(die) for die in heat.dies]) + SLACK_K
    is_dram = np.array([die != STACK.logic_die.name for die in heat.dies])

    def kept(rate: float) -> bool:
        refresh = 1.0
        while True:
            at = leaking(heat, Feedback.of(power, heat), rate * spent + power.steady_power(refresh, 0.0), voltage)
            hot = heat.die_max(at.watts)
            wanted = STACK.dram.refresh_rate(float(hot[is_dram].max()))
            if at.runaway or wanted <= refresh:
                return not at.runaway and bool((hot <= limit).all())
            refresh = wanted

    low, high = 0.0, 2000 / whole
    for _ in range(30):
        rate = (low + high) / 2
        low, high = (rate, high) if kept(rate) else (low, rate)
    refresh, most = power.refresh_w(1.0), crowding(together_, tiles)
    free = LeastJoules(whole, 0.0, dram, 0.0, 0.0, power.background_w, refresh)
    known = LeastJoules(whole - even, 0.0, dram, 0.0, 0.0, power.background_w, refresh, even, most)
    anywhere, balanced = (max(LeastInterval(STACK).by_price(one, voltage)) for one in (free, known))
    assert anywhere <= balanced * (1 + 1e-12) and balanced <= 1 / low * (1 + 1e-7)


def test_even_compute_gets_what_its_hottest_cell_lets_it() -> None:
    """The bound is met: 512 W where compute is the same everywhere on this die, and 556 W where it may be anywhere."""
    stack = df.load_stack("hybrid-vault")
    even, free = LeastJoules(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, even=1.0), LeastJoules(1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    heat, power = heat_of(stack), power_of(stack)
    spread = np.zeros(power.count)
    spread[power.compute] = power.areas[power.compute] / power.areas[power.compute].sum()
    rise = heat.die_max(spread) - heat.ambient_k
    reached = min(
        (stack.most_k(die) + SLACK_K - heat.ambient_k) / one for die, one in zip(heat.dies, rise, strict=True)
    )
    prices = LeastInterval(stack)
    assert 1 / max(prices.by_price(even)) == pytest.approx(reached, rel=1e-9)
    assert reached == pytest.approx(512, rel=2e-3) and 1 / max(prices.by_price(free)) == pytest.approx(557, rel=2e-3)


@pytest.mark.parametrize(("token_blocks", "alone"), [("none", {"FFN0", "FFN1"}), ("allow", set())])
def test_kernels_that_are_said_to_be_alone_are(token_blocks: str, alone: set[str]) -> None:
    system = df.load_system("sn10-8-ring", {"chip.sram.capacity": "60 MB"})
    chosen = df.Assumptions(token_blocks=token_blocks)
    result = df.optimize(df.load_graph("gpt3-175b"), system, tp=8, assumptions=chosen)
    setting = Setting(result.graph, system, resolve(result.assumptions, system.chip.execution, 0.5))
    found, held = together(setting.under(result.mapping.plan)), [part.kernels for part in result.score.partitions]
    assert all(len(names) == 1 for names in held if set(names) & found.alone) and found.alone == alone
    most = max(len(names) for names in held)
    assert most > 1 and crowding(most, system.chip.tiles) <= found.crowding < 1.2
