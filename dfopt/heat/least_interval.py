"""How soon the next microbatch can begin on a chip that has to stay within its limits on heat, however it is mapped.

With a price ``y >= 0`` for a kelvin of every cell, a watt of tile i costs ``w_i = (R' y)_i``, and all watts together
cost at most ``W = y' rise``. Watts are joules of a microbatch over its interval T, and what always flows. The joules of
compute cost no less than on the cheapest compute tile, and those of what is spread evenly what they cost there, so::

    w E / T + S <= W

with the least joules E of each kind, and the cost S of what always flows. Leakage is convex in temperature, so it is at
least what its tangent at some temperature says: ``l >= a + b (T - T_a)`` with ``T - T_a = M (d + l)`` for the mean rise
of tiles M and the other watts d. Then ``d + l >= (I - b M)^-1 (d + a)`` where that inverse has no entry below 0, which
a positive solution of the transposed system with positive prices shows (Berman and Plemmons, "Nonnegative Matrices in
the Mathematical Sciences", theorem 6.2.3). So watts that do not leak have higher prices, which hold the leakage that
they bring about. Every price proves such a bound on T; those of `dfopt.heat.most_power` are taken, for the logic die
and for all dies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np

from dfopt.documents.stack import Stack
from dfopt.heat.most_power import most_power
from dfopt.physics.identity import Same
from dfopt.setting.tables import Floats
from dfopt.technology.coupling import SLACK_K
from dfopt.technology.stack_models import heat_of, power_of

__all__ = ["Joules", "LeastInterval", "least_interval_of"]


@dataclass(frozen=True)
class Joules:
    """What a chip spends on a microbatch at least, and watts that always flow.

    Parameters
    ----------
    compute, sram : float
        Joules on any compute tiles; on SRAM tiles, where there are some.
    dram, way : float
        Joules of commands on the DRAM dies, and of the way from there to the logic die.
    logic_w, dram_w : float
        Watts all over the logic die (its clock), and on the DRAM dies (refresh, background); leakage is the stack's.
    """

    compute: float
    sram: float
    dram: float
    way: float
    logic_w: float
    dram_w: float


@dataclass(frozen=True, eq=False)
class LeastInterval:
    """The prices of a stack: its floorplan, package and limits count, not its energies.

    Examples
    --------
    Half a joule of compute for each microbatch, of 556.5 W that are the most, and 0.4 W for the judge's tolerance:

    >>> from dfopt.machines.stacks import load_stack
    >>> prices = LeastInterval(load_stack("hybrid-vault"))
    >>> round(0.5 / max(prices.by_price(Joules(0.5, 0.0, 0.0, 0.0, 0.0, 0.0))), 1)
    556.9
    """

    stack: Stack
    _known: dict[float, list[tuple[Floats, float]]] = field(default_factory=dict)

    @cached_property
    def _prices(self) -> tuple[Floats, Floats]:
        """Price of a watt of each tile, (M, I), and of all watts, (M,)."""
        stack, heat = self.stack, heat_of(self.stack)
        rise_d = np.array([stack.most_k(name) - heat.ambient_k + SLACK_K for name in heat.dies])  # as the judge has it
        rise_c = np.repeat(rise_d, len(heat.cells_k_per_w) // len(rise_d))
        limited = np.isfinite(rise_c)
        found = [most_power(stack, die) for die in (stack.logic_die.name, None)]
        prices = np.array([one.price_c for one in found if np.isfinite(one.watts)]).reshape(-1, len(rise_c))
        return prices @ heat.cells_k_per_w, prices[:, limited] @ rise_c[limited]

    def by_price(self, spent: Joules, voltage: float = 0.0) -> list[float]:
        """Seconds per microbatch that no mapping beats, by each price; infinite where what always flows is too much.

        ``voltage`` is that of the logic while it leaks, or less, as a share of the nominal one.
        """
        power = power_of(self.stack)
        found = []
        for w, whole in self._leaking(voltage):
            dram, compute = float(w @ power.dram_tiles), float(w[power.compute].min())
            sram = compute if power.sram_tiles is None else float(w @ power.sram_tiles)
            cost = (
                spent.compute * compute + spent.sram * sram + spent.dram * dram + spent.way * float(w @ power.io_heat)
            )
            left = whole - spent.logic_w * float(w @ power.logic_tiles) - spent.dram_w * dram
            found.append(cost / left if left > 0 else np.inf)
        return found

    def _leaking(self, voltage: float) -> list[tuple[Floats, float]]:
        """Prices of watts that do not leak, (I,), and what is left for them of the price of all."""
        if voltage not in self._known:
            power, heat = power_of(self.stack), heat_of(self.stack)
            near = min((self.stack.most_k(die) for die in heat.dies), default=heat.ambient_k)  # where limits bind
            self._known[voltage] = []
            for w, whole in zip(*self._prices, strict=True):
                slope = power.leakage_slope(np.full(len(w), near), voltage)
                least = power.leakage(np.full(len(w), near), voltage) - slope * (near - heat.ambient_k)
                on, feeds = power.leaky, heat.means_k_per_w[power.leaky].T * slope[power.leaky]
                fed = w + feeds @ np.linalg.solve(np.eye(len(on)) - feeds[on], w[on])
                if not (w > 0).all() or not (fed > 0).all():  # then the sum above has no end, or might have none
                    fed, least = w, power.leakage(np.full(len(w), heat.ambient_k), voltage)
                self._known[voltage].append((fed, float(whole - fed @ least)))
        return self._known[voltage]


def least_interval_of(stack: Stack) -> LeastInterval:
    """The prices of a stack, kept in memory."""
    return _known(Same(stack))


@lru_cache(maxsize=16)
def _known(key: Same[Stack]) -> LeastInterval:
    return LeastInterval(key.document)
