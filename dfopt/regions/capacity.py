"""Capacity as a Lagrangean row: what stages take at least where the options that are fastest do not fit a memory.

For a pipeline stage of a plan that runs n_k layers of kind k, T_k seconds for the options z and with H_k(z) bytes for
what a layer holds, and a price p of a byte,

    sum_k n_k T_k(z)  >=  sum_k min over z of (n_k T_k(z) + p H_k(z))  -  p * room

if the stage fits. The least is that of the dual of each kind, by elimination. What one elimination says, V_k at prices
q_kh of what a layer holds, is a *cut* for every plan of the class: a stage that holds c_kh bytes for each h takes at
least sum_k n_k V_k less its room times the largest n_k q_kh / c_kh, as sum_kh c_kh h <= room.

Suffixes: m memory of a chip, r distinct pipeline stage of a plan, i plan, k kind of layer or kernel, h what a layer
holds, o option, v one of several choices of options.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dfopt.arrays import Floats
from dfopt.regions.classes import PlanClass
from dfopt.regions.dual import Dual

_PRICES = 8
"""Prices of a byte that are tried for a plan: lines meet at the best one after a few."""
_GROWTH = 8.0
"""How many times more a byte costs while what is held is still too much."""
_CLOSE = 1e-4
"""Share of a price by which the next one has to differ to be worth an elimination."""


@dataclass(frozen=True, eq=False)
class Cut:
    """A Lagrangean cut: bounds on the seconds of layers, with prices on what they store.

    Attributes
    ----------
    price_kh : float array, shape (kinds, HELD), s per unit
        Prices of the bytes that a layer stores.
    dual_k : tuple of Dual
        Duals of a layer with these prices, by kind.
    """

    price_kh: Floats
    dual_k: tuple[Dual, ...]

    @property
    def value_k(self) -> Floats:
        """Least seconds of a layer including prices, by kind: float array, shape (kinds,)."""
        return np.array([dual.seconds for dual in self.dual_k])


def stages_by_cut(of: PlanClass, room_mr: Floats, price_kh: Floats, value_kv: Floats) -> Floats:
    """Lower bounds on the layer seconds of every stage that fits, from one cut.

    Parameters
    ----------
    of : PlanClass
        The plans.
    room_mr : float array, B, shape (memories, stages)
        Upper bound on the bytes of every memory that are left for layers. It may be infinite.
    price_kh : float array, shape (kinds, HELD), s per unit
        Prices of the bytes that a layer stores.
    value_kv : float array, s, shape (kinds, values)
        Seconds of a layer with these prices at least, for several choices of options.

    Returns
    -------
    float array, s, shape (stages, values)
        Minus infinity if a cut gives no bound for a stage.
    """
    runs_rk, held_mrkh = of.table_of_plans.average_rk, of.holding.of_layers
    asked_rkh = (runs_rk > 0)[:, :, None] & (price_kh > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        share_mrkh = np.where(asked_rkh, runs_rk[:, :, None] * price_kh / held_mrkh, 0.0)
        price_mr = share_mrkh.max(axis=(2, 3), initial=0.0)
        less_mr = np.where(price_mr > 0, price_mr * room_mr, 0.0)
    less_r = np.where(np.isfinite(less_mr), less_mr, np.inf).min(axis=0)
    value_rv = np.zeros((len(runs_rk), value_kv.shape[1]))
    for runs_r, each_v in zip(runs_rk.T, value_kv, strict=True):
        value_rv += np.multiply(runs_r[:, None], each_v, where=runs_r[:, None] > 0, out=np.zeros_like(value_rv))
    return np.where(np.isinf(less_r)[:, None], -np.inf, value_rv - np.where(np.isinf(less_r), 0.0, less_r)[:, None])


@dataclass(frozen=True, eq=False)
class _Line:
    """The bound of a stage at a price of a byte, with its slope: bytes that are too many."""

    price: float
    value: float
    slope: float
    cut: Cut


def best_price(
    of: PlanClass, solve: Sequence[Callable[[Floats], Dual]], free: Cut, fullest: tuple[int, int], room: float
) -> list[Cut]:
    """Cuts at increasing prices of a byte of one stage, up to about the best price; none if the fastest options fit.

    Parameters
    ----------
    of : PlanClass
        The plans.
    solve : sequence of callable
        By kind, the dual with further seconds for every option of the menu.
    free : Cut
        The duals without prices.
    fullest : (int, int)
        A memory, and the place of the stage among those of all plans.
    room : float, B
        Upper bound on the bytes that are left for layers.

    Returns
    -------
    list of Cut
        All cuts that were computed, the one with the highest bound of the stage last.
    """
    runs_k, held_kh = of.table_of_plans.average_rk[fullest[1]], of.holding.of_layers[fullest]
    mine_ko = (of.kind_o == np.arange(of.kinds)[:, None]) & (runs_k > 0)[:, None]
    held_ko = np.where(mine_ko, held_kh @ of.held_ho, 0.0)  # bytes of the stage by each option

    def line(price: float) -> _Line:
        price_kh, duals = np.zeros_like(held_kh), list(free.dual_k)
        for kind in np.flatnonzero(runs_k > 0).tolist() if price > 0 else ():
            price_kh[kind] = price * held_kh[kind] / runs_k[kind]
            duals[kind] = solve[kind](price * held_ko[kind] / runs_k[kind])
        seconds = sum(float(times) * dual.seconds for times, dual in zip(runs_k, duals, strict=True) if times)
        held = sum(float(held_o[dual.option_k].sum()) for held_o, dual in zip(held_ko, duals, strict=True))
        return _Line(price, seconds - price * room, held - room, Cut(price_kh, tuple(duals)))

    below, above, lines = line(0.0), None, list[_Line]()
    if below.slope <= 0 or not np.isfinite(below.value):
        return []
    price = below.value / below.slope
    for _ in range(_PRICES):
        lines.append(line(price))
        if not np.isfinite(lines[-1].value):
            break
        if lines[-1].slope > 0:
            below = lines[-1]
        else:
            above = lines[-1]
        if above is None:
            price *= _GROWTH
            continue
        price = _meeting(below, above)
        if not below.price * (1 + _CLOSE) < price < above.price * (1 - _CLOSE):
            break
    return [each.cut for each in sorted(lines, key=lambda each: each.value)]


def _meeting(below: _Line, above: _Line) -> float:
    """Price at which two lines have the same value."""
    rest = above.value - below.value + below.slope * below.price - above.slope * above.price
    return rest / (below.slope - above.slope)
