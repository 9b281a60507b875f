"""How soon the next microbatch can begin on a chip that has to stay within its limits on heat, however it is mapped.

With a price ``y >= 0`` for a kelvin of every cell, a watt of tile i costs ``w_i = (R' y)_i``, and all watts together
cost at most ``W = y' rise``. Watts are joules of a microbatch over its interval T, and what always flows. The joules of
compute cost no less than on the cheapest compute tile, and those of what is spread evenly what they cost there, so::

    w E / T + S <= W

with the least joules E of each kind, and the cost S of what always flows. Of compute that is known to be even, or not
crowded, the joules cost what they do on the cheapest tiles that can hold them (`dfopt.heat.balanced_power`).

How often DRAM is refreshed goes with its hottest cell. So either that is below the first threshold, and then below this
lower limit, or it takes the watts of the higher rate, and so on: T is no less than the least of these cases.

Leakage is convex in temperature, so it is at
least what its tangent at some temperature says: ``l >= a + b (T - T_a)`` with ``T - T_a = M (d + l)`` for the mean rise
of tiles M and the other watts d. Then ``d + l >= (I - b M)^-1 (d + a)`` where that inverse has no entry below 0, which
a positive solution of the transposed system with positive prices shows (Berman and Plemmons, "Nonnegative Matrices in
the Mathematical Sciences", theorem 6.2.3). So watts that do not leak have higher prices, which hold the leakage that
they bring about. Every price proves such a bound on T; those of `dfopt.heat.most_power` are taken, for the logic die
and for all dies, and where compute is not free to be anywhere those of `dfopt.heat.balanced_power`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from dfopt.arrays import Floats
from dfopt.documents.stack import Stack
from dfopt.heat.balanced_power import CROWDINGS, balanced_prices, cheapest_spread
from dfopt.heat.most_power import most_power
from dfopt.physics.identity import Same
from dfopt.technology.coupling import SLACK_K
from dfopt.technology.stack_models import heat_of, power_of

_SAME_K = 1e-6  # to which the judge knows temperatures, and more
_USUAL = 0.85  # the voltage at which prices are sought, as a share of the nominal one; whatever it is they are valid


@dataclass(frozen=True)
class LeastJoules:
    """Least energy of a chip for one microbatch, and its constant power.

    Parameters
    ----------
    compute, sram : float
        Joules on any compute tiles; on SRAM tiles, where there are some.
    dram, way : float
        Joules of commands on the DRAM dies, and of the way from there to the logic die.
    logic_w, dram_w : float
        Watts all over the logic die (its clock), and on the DRAM dies (background); leakage is the stack's.
    refresh_w : float
        Watts on the DRAM dies, of refresh at its normal rate.
    even : float
        More joules of compute: spread evenly over the compute tiles.
    crowding : float
        The most times its mean that ``compute`` has on any spot of the compute tiles; infinite where that is not known.
    """

    compute: float
    sram: float
    dram: float
    way: float
    logic_w: float
    dram_w: float
    refresh_w: float = 0.0
    even: float = 0.0
    crowding: float = np.inf

    @property
    def spread(self) -> bool:
        """Whether the location of compute is known in part."""
        return self.even > 0 or self.crowding < np.inf


class _Prices(NamedTuple):
    """Price of a watt on each tile, (I,), and of all watts together, by case."""

    w: Floats
    budgets: list[float]


class _LeakagePrices(NamedTuple):
    """The same of watts that do not leak, and between them what the least leakage costs."""

    w: Floats
    leaks: float
    budgets: list[float]


@dataclass(frozen=True, eq=False)
class LeastInterval:
    """Thermal lower bounds on the interval for a stack; they depend on floorplan, package and limits only.

    Examples
    --------
    Half a joule of compute for each microbatch, of 556.5 W that are the most, and 0.4 W for the judge's tolerance:

    >>> from dfopt.machines.stacks import load_stack
    >>> prices = LeastInterval(load_stack("hybrid-vault"))
    >>> round(0.5 / max(prices.by_price(LeastJoules(0.5, 0.0, 0.0, 0.0, 0.0, 0.0))), 1)
    556.9
    """

    stack: Stack
    _by_voltage: dict[tuple[float, bool], list[_LeakagePrices]] = field(default_factory=dict)
    _of_watts: dict[bool, list[_Prices]] = field(default_factory=dict)

    @cached_property
    def _cases(self) -> list[tuple[float, Floats]]:
        """Refresh rates, and the kelvin that every cell may be above the ambient where DRAM is refreshed so often."""
        stack, heat = self.stack, heat_of(self.stack)
        most_d = np.array([stack.most_k(name) + SLACK_K for name in heat.dies])  # as the judge has it
        dram_d = np.array([die != stack.logic_die.name for die in heat.dies])
        steps = sorted(stack.dram.refresh, key=lambda step: step.above) if dram_d.any() else []
        hottest, cases = float(most_d[dram_d].max(initial=-np.inf)), []
        for rate, upper in zip(
            [1.0, *(step.rate for step in steps)], [*(step.above + _SAME_K for step in steps), np.inf], strict=True
        ):
            limit_d = np.where(dram_d, np.minimum(most_d, upper), most_d) - heat.ambient_k
            cases.append((rate, np.repeat(limit_d, len(heat.cells_k_per_w) // len(limit_d))))
            if upper >= hottest:
                break
        return cases

    def _prices(self, spread: bool) -> list[_Prices]:
        """The prices of `_cells` for watts."""
        if spread not in self._of_watts:
            cells, prices = heat_of(self.stack).cells_k_per_w, list[_Prices]()
            for price in self._cells(spread):
                priced = price > 0  # where none is, there may be no limit
                prices.append(_Prices(price @ cells, [float(price[priced] @ rise[priced]) for _, rise in self._cases]))
            self._of_watts[spread] = prices
        return self._of_watts[spread]

    def _cells(self, spread: bool) -> list[Floats]:
        """Prices of a kelvin of every cell."""
        stack, rise_c = self.stack, self._cases[-1][1]
        bounds = [most_power(stack, die) for die in (stack.logic_die.name, None)]
        prices = [bound.price_c for bound in bounds if np.isfinite(bound.watts)]
        if spread:
            power, near = power_of(stack), np.full(len(stack.tiles), stack.ambient + float(rise_c.min()))
            steady_t = power.leakage(near, _USUAL) + power.steady_power(1.0, 0.0)
            prices += [balanced_prices(stack, most, steady_t, rise_c) for most in CROWDINGS]
        return [price for price in prices if price.any()]

    def by_price(self, spent: LeastJoules, voltage: float = 0.0) -> list[float]:
        """Lower bounds on the seconds per microbatch, one for each dual price; infinite if constant power is too high.

        ``voltage`` is that of the logic while it leaks, or less, as a share of the nominal one.
        """
        power = power_of(self.stack)
        share = power.areas[power.compute] / power.areas[power.compute].sum()
        seconds = []
        for w, leaks, budgets in self._leaking(voltage, spent.spread):
            on = w[power.compute]
            dram, compute = float(w @ power.dram_tiles), cheapest_spread(on, share, spent.crowding)
            sram = float(on.min()) if power.sram_tiles is None else float(w @ power.sram_tiles)
            cost = (
                spent.compute * compute
                + spent.even * float(on @ share)
                + spent.sram * sram
                + spent.dram * dram
                + spent.way * float(w @ power.io_heat)
            )
            flows = leaks + spent.logic_w * float(w @ power.logic_tiles) + spent.dram_w * dram
            left = [
                of - flows - spent.refresh_w * rate * dram for (rate, _), of in zip(self._cases, budgets, strict=True)
            ]
            seconds.append(min((cost / watts if watts > 0 else np.inf) for watts in left))
        return seconds

    def _leaking(self, voltage: float, spread: bool) -> list[_LeakagePrices]:
        """Prices of watts that do not leak, with what the least leakage costs, for each price of `_prices`."""
        if (voltage, spread) not in self._by_voltage:
            power, heat = power_of(self.stack), heat_of(self.stack)
            near = min((self.stack.most_k(die) for die in heat.dies), default=heat.ambient_k)  # where limits bind
            leaking = self._by_voltage[voltage, spread] = []
            for w, budgets in self._prices(spread):
                slope = power.leakage_slope(np.full(len(w), near), voltage)
                least = power.leakage(np.full(len(w), near), voltage) - slope * (near - heat.ambient_k)
                on, feeds = power.leaky, heat.means_k_per_w[power.leaky].T * slope[power.leaky]
                fed = w + feeds @ np.linalg.solve(np.eye(len(on)) - feeds[on], w[on])
                if not (w > 0).all() or not (fed > 0).all():  # then the sum above has no end, or might have none
                    fed, least = w, power.leakage(np.full(len(w), heat.ambient_k), voltage)
                leaking.append(_LeakagePrices(fed, float(fed @ least), budgets))
        return self._by_voltage[voltage, spread]


def least_interval_of(stack: Stack) -> LeastInterval:
    """Thermal lower bounds of a stack, cached."""
    return _prices_of_stack(Same(stack))


@lru_cache(maxsize=16)
def _prices_of_stack(key: Same[Stack]) -> LeastInterval:
    return LeastInterval(key.document)
