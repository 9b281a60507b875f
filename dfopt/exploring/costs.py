"""What the systems of designs cost: USD and W of one, or no more than those of any of several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from dfopt.documents.system import System
from dfopt.errors import SystemSpecError
from dfopt.exploring.space import Box, Space
from dfopt.physics.cost import SystemCost, system_cost
from dfopt.technology.as_system import system_of
from dfopt.technology.chip_price import chip_price

__all__ = ["Costs"]


@dataclass
class Costs:
    """The costs of the designs of some spaces."""

    spaces: Sequence[Space]
    _prices: dict[tuple[int, float], float | None] = field(default_factory=dict)

    def usd(self, which: int, stacks: float) -> float | None:
        """USD for a chip with so many stacks; none where the technology does not say."""
        if (which, stacks) not in self._prices:
            of = self.spaces[which].design
            price = chip_price(of.technology, of.budgets.chip_area_mm2, of.budgets.dies or 1, stacks)
            self._prices[which, stacks] = None if price is None else price.usd
        return self._prices[which, stacks]

    def of(self, box: Box, system: System | None) -> SystemCost | None:
        """Power and price of the system of a design, or no more than those of any of several; none if there is none."""
        space = self.spaces[box.which]
        chip, template = space.chip(box), space.design.template
        if system is None or chip is None or template is None or box.single:
            return None if system is None else system_cost(system)
        low, high = space.named(box.low), space.named(box.high)
        counts = [n for n in space.sizes.get("dram", ()) if low["dram"] <= n <= high["dram"]]
        least, prices = space.least(box, chip), []
        for stacks in counts or [float(least.dram.stacks)]:
            with suppress(SystemSpecError):  # a package that no wafer has room for: such a design is no system
                prices.append(self.usd(box.which, stacks))
        usd = None if None in prices else min((one for one in prices if one is not None), default=math.inf)
        utilization = space.design.technology.core.utilization
        return system_cost(system_of(space.design.name, least, template, utilization, usd))
