"""Seeded models: random ones of many structures, one that is soon solved and one that nobody finishes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dfopt.milp import Model

Rng = np.random.Generator


def knapsack(rng: Rng, n: int) -> Model:
    """Several capacities, integer prizes."""
    model, rows = Model("knapsack"), int(rng.integers(1, 4))
    x = model.binary("take", n)
    weight = rng.integers(1, 30, (rows, n)).astype(float)
    model.rows(
        "room", [(np.broadcast_to(x, (rows, n)), weight)], upper=np.floor(weight.sum(axis=1) * rng.uniform(0.2, 0.6))
    )
    model.minimize([(x, -rng.integers(1, 40, n).astype(float))], offset=float(rng.integers(-20, 20)))
    return model


def bounded_knapsack(rng: Rng, n: int) -> Model:
    """General integers, some negative, fractional prizes."""
    model = Model("bounded knapsack")
    x = model.integer("x", n, lower=-rng.integers(0, 3, n).astype(float), upper=rng.integers(1, 6, n).astype(float))
    weight = rng.integers(1, 20, n).astype(float)
    model.rows("room", [(x[None, :], weight)], upper=float(weight.sum()))
    model.minimize([(x, -rng.uniform(0.1, 2.0, n))])
    return model


def assignment(rng: Rng, n: int) -> Model:
    """Jobs to agents with capacities; may be infeasible."""
    agents, jobs = int(rng.integers(2, 5)), max(2, n // 3)
    model = Model("assignment")
    x = model.binary("x", (agents, jobs))
    need = rng.integers(5, 25, (agents, jobs)).astype(float)
    model.rows("once", [(x.T, 1.0)], lower=1.0, upper=1.0)
    model.rows("room", [(x, need)], upper=np.ceil(need.sum(axis=1) / agents * rng.uniform(0.7, 1.4)))
    model.minimize([(x, rng.integers(1, 50, (agents, jobs)).astype(float))])
    return model


def partitioning(rng: Rng, n: int) -> Model:
    """Set partitioning; sometimes without an exact cover."""
    items = max(3, n // 2)
    model = Model("partitioning")
    covers = rng.random((items, n)) < 0.3
    if rng.random() < 0.7:
        covers = np.hstack([covers, np.eye(items, dtype=bool)])
    x = model.binary("x", covers.shape[1])
    model.rows("cover", [(np.where(covers, x, -1), 1.0)], lower=1.0, upper=1.0)
    model.minimize([(x, covers.sum(axis=0) * rng.uniform(0.5, 2.0, x.size))])
    return model


def lot_sizing(rng: Rng, n: int) -> Model:
    """Set-up costs with continuous stock and equality rows."""
    periods = max(3, n // 3)
    model = Model("lots")
    on, make, stock = model.binary("on", periods), model.continuous("make", periods), model.continuous("stock", periods)
    before = np.concatenate([[-1], stock[:-1]])
    model.rows("balance", [(before, 1.0), (make, 1.0), (stock, -1.0)], *[rng.uniform(0.0, 3.0, periods)] * 2)
    model.rows("setup", [(make, 1.0), (on, -rng.uniform(3.0, 8.0))], upper=0.0)
    model.minimize(
        [(on, rng.uniform(1.0, 4.0, periods)), (make, rng.uniform(0.1, 1.0, periods)), (stock, 0.3)], offset=1.5
    )
    return model


def mixed(rng: Rng, n: int) -> Model:
    """Anything: free and ranged rows, equalities, free columns, constant rows; often infeasible."""
    model, rows = Model("mixed"), int(rng.integers(1, 7))
    k = max(1, n // 4)
    x = model.integer("x", k, -3.0, rng.integers(0, 5, k).astype(float))
    y = model.continuous("y", k, np.where(rng.random(k) < 0.3, -np.inf, -1.0), 4.0)
    cols = np.concatenate([x, y])
    a = rng.integers(-4, 5, (rows, cols.size)) * (rng.random((rows, cols.size)) < 0.6)
    level = a @ np.concatenate([rng.integers(-3, 1, k), rng.uniform(-1.0, 4.0, k)]) + rng.normal(0.0, 0.5, rows)
    width = rng.uniform(0.0, 4.0, rows)
    kind = rng.integers(0, 5, rows)
    low = np.select([kind == 0, kind == 1, kind == 2], [-np.inf, level, level], level - width)
    up = np.select([kind == 0, kind == 1, kind == 2], [level, np.inf, level], level + width)
    model.rows("r", [(np.broadcast_to(cols, a.shape), a.astype(float))], lower=np.round(low, 3), upper=np.round(up, 3))
    # columns that may go down forever cost nothing less
    price = np.concatenate([rng.normal(0.0, 1.0, k), np.abs(rng.normal(0.0, 1.0, k))])
    price[k:][np.isinf(model.arrays().col_lower[k:])] *= -1.0
    model.minimize([(cols, price)], offset=float(rng.normal()))
    return model


def facility(rng: Rng, n: int) -> Model:
    """Capacitated facility location: binaries that switch continuous flows."""
    sites, clients = int(rng.integers(2, 5)), max(2, n // 4)
    model = Model("facility")
    built, share = model.binary("built", sites), model.continuous("share", (sites, clients), 0.0, 1.0)
    demand = rng.uniform(0.5, 2.0, clients)
    model.rows("served", [(share.T, 1.0)], lower=1.0, upper=1.0)
    room = demand.sum() * rng.uniform(0.3, 0.8)
    model.rows("room", [(share, demand), (built, -room)], upper=0.0)
    model.minimize([(built, rng.uniform(1.0, 5.0, sites)), (share, rng.uniform(0.1, 2.0, (sites, clients)))])
    return model


def linear(rng: Rng, n: int) -> Model:
    """No integers at all."""
    model, rows = Model("linear"), max(2, n // 3)
    x = model.continuous("x", n, 0.0, rng.uniform(1.0, 5.0, n))
    a = rng.uniform(0.0, 2.0, (rows, n)) * (rng.random((rows, n)) < 0.5)
    model.rows("need", [(np.broadcast_to(x, a.shape), a)], lower=rng.uniform(0.0, 0.7, rows) * (a.sum(axis=1)))
    model.minimize([(x, rng.uniform(0.1, 2.0, n))], offset=-3.0)
    return model


def parity(rng: Rng, n: int) -> Model:
    """Infeasible in integers, feasible in their relaxation."""
    model = Model("parity")
    x = model.integer("x", max(2, n // 6), 0.0, 4.0)
    model.rows("odd", [(x[None, :], 2.0 * rng.integers(1, 6, x.size))], lower=7.0, upper=7.0)
    model.minimize([(x, rng.uniform(0.0, 1.0, x.size))])
    return model


def cover(n: int = 30, m: int = 20) -> Model:
    """Set covering: soon solved."""
    rng = np.random.default_rng(0)
    model = Model("cover")
    x = model.binary("x", n)
    model.rows("cover", [(rng.integers(0, n, (m, 4)), 1.0)], lower=1.0)
    model.minimize([(x, rng.integers(1, 10, n))])
    return model


def market_split(m: int = 5, n: int = 40, seed: int = 1, slack: bool = True) -> Model:
    """Return a market-split instance: tiny, and far out of reach of branch and bound."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 100, (m, n)).astype(float)
    model = Model("market")
    x = model.binary("x", n)
    terms: list[Any] = [(np.broadcast_to(x, (m, n)), a)]
    if slack:
        s = model.continuous("s", (m, 2))
        terms.append((s, [1.0, -1.0]))
        model.minimize([(s, 1.0)])
    half = np.floor(a.sum(axis=1) / 2)
    model.rows("split", terms, lower=half, upper=half)
    return model


KINDS: tuple[Callable[[Rng, int], Model], ...] = (
    knapsack, bounded_knapsack, assignment, partitioning, lot_sizing, mixed, facility, linear, parity, mixed,
)  # fmt: skip


def random_model(seed: int) -> Model:
    """Return model number ``seed``; kinds take turns, sizes go from 4 to 30 columns or so."""
    rng = np.random.default_rng(seed)
    return KINDS[seed % len(KINDS)](rng, int(rng.integers(4, 31)))


@st.composite
def small_milp(draw: st.DrawFn) -> tuple[Model, int, int]:
    """Return a model of n integers in 0..2 and one continuous column, with small integer data."""
    n, rows = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    number = st.integers(-4, 4)
    a = np.array(draw(st.lists(st.lists(number, min_size=n + 1, max_size=n + 1), min_size=rows, max_size=rows)))
    cost = draw(st.lists(number, min_size=n, max_size=n))
    model = Model("random")
    x, y = model.integer("x", n, 0, 2), model.continuous("y", 1, 0.0, 3.0)
    cols = np.broadcast_to(np.concatenate([x, y]), a.shape)
    model.rows("r", [(cols, a)], upper=np.array(draw(st.lists(st.integers(-5, 8), min_size=rows, max_size=rows))))
    model.minimize([(x, cost), (y, draw(number))], offset=draw(st.integers(-50, 50)))
    return model, n, rows
