"""What the systems of designs cost: USD and W of one, or no more than those of any of several."""

from __future__ import annotations

import math
from contextlib import suppress

from dfopt.documents.system import System
from dfopt.errors import SystemSpecError
from dfopt.exploring.space import Box, DesignSpace
from dfopt.physics.cost import SystemCost, system_cost
from dfopt.technology.as_system import system_of
from dfopt.technology.chip_price import chip_price


def cost_of(space: DesignSpace, box: Box, system: System | None) -> SystemCost | None:
    """Power and price of the system of a design; for a box of several, lower bounds. None without a system.

    Parameters
    ----------
    space, box : DesignSpace, Box
        Designs of one document.
    system : System, optional
        The system of the design, or of the best corner of the box.
    """
    chip, design = space.chip(box), space.design
    if system is None or chip is None or design.template is None or box.single:
        return None if system is None else system_cost(system)
    low, high = space.named(box.low), space.named(box.high)
    counts = [n for n in space.sizes.get("dram", ()) if low["dram"] <= n <= high["dram"]]
    least, prices = space.least(box, chip), list[float | None]()
    for stacks in counts or [float(least.dram.stacks)]:
        with suppress(SystemSpecError):  # a package that no wafer has room for: such a design is no system
            price = chip_price(design.technology, design.budgets.chip_area_mm2, design.budgets.dies or 1, stacks)
            prices.append(None if price is None else price.usd)
    usd = None if None in prices else min((price for price in prices if price is not None), default=math.inf)
    return system_cost(system_of(design.name, least, design.template, design.technology.core.utilization, usd))
