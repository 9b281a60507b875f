"""What is asked of many designs: a metric, limits on others, heat, and what of the mappings is fixed."""

from __future__ import annotations

import math
from typing import Final, Literal, get_args

from pydantic import Field

from dfopt.documents.base import Part
from dfopt.documents.design import Design
from dfopt.documents.request import Request
from dfopt.documents.stack import Stack
from dfopt.units import Kelvin, Seconds, Watts, show_unit

Minimized = Literal["time", "watts", "cost", "time*cost", "energy"]
Maximized = Literal["tokens_per_s", "tokens_per_j", "power_scaled"]
ObjectiveName = Literal[Minimized, Maximized]
HeatMode = Literal["throttle", "aware", "lumped"]
ComparisonName = Literal["lumped", "tp_pp_dp", "expanded"]
COMPARED: Final[tuple[ComparisonName, ...]] = get_args(ComparisonName)
BudgetName = Literal["area", "package", "power", "edge", "layers", "price", "temperature"]


_OF_CHIPS: Final[tuple[BudgetName, ...]] = ("area", "package", "power", "edge")


def turned(objective: ObjectiveName, figure: float) -> float:
    """Convert an objective to the minimized form of the search, or back: the reciprocal where more is better.

    Examples
    --------
    >>> turned("time", 0.25), turned("tokens_per_s", 0.25), turned("tokens_per_s", math.inf)
    (0.25, 4.0, 0.0)
    """
    if objective not in get_args(Maximized):
        return figure
    return 1 / figure if figure else math.inf


class DesignLimits(Part):
    """Limits that a design with its best mapping must keep.

    Attributes
    ----------
    step_time : e.g. 50 ms
        Longest time of a step that the best mapping on a design may take. None: no limit.
    power : e.g. 20 kW
        Highest power of the whole system. None: no limit.
    price : USD, e.g. 2000000
        Highest price of the whole system. None: no limit.
    area_mm2 : mm2, e.g. 600
        Largest area of a chip, in place of a larger budget of the design. None: the budget.
    temperature : e.g. 85 degC
        Highest temperature of every die, in place of the limits of the stack; with heat only. None: the stack's, or
        95 degC where heat is ``lumped``.

    Examples
    --------
    >>> DesignLimits(step_time=0.05, price=2e6, temperature="85 degC").words
    'step time at most 50 ms, price at most 2,000,000 USD, temperature at most 85 degC'
    """

    step_time: Seconds | None = Field(default=None, gt=0)
    power: Watts | None = Field(default=None, gt=0)
    price: float | None = Field(default=None, gt=0)
    area_mm2: float | None = Field(default=None, gt=0)
    temperature: Kelvin | None = Field(default=None, gt=0)

    @property
    def words(self) -> str:
        """The limits as text."""
        figures = {
            "step time": None if self.step_time is None else show_unit(self.step_time, "time"),
            "power": None if self.power is None else show_unit(self.power, "power"),
            "price": None if self.price is None else f"{self.price:,.0f} USD",
            "area of a chip": None if self.area_mm2 is None else f"{self.area_mm2:g} mm2",
            "temperature": None if self.temperature is None else f"{self.temperature - 273.15:.6g} degC",
        }
        return ", ".join(f"{name} at most {text}" for name, text in figures.items() if text is not None)


class ExplorationRequest(Part):
    """Question of an exploration: objective, limits and budgets.

    Attributes
    ----------
    objective : e.g. time
        Quantity of which the best design has least, or most. Least: ``time``: the step time in s. ``watts``: power of
        the system in W. ``cost``: price of the system in USD. ``time*cost``: their product in USD s. ``energy``: power
        of the system x step time, in J. Most: ``tokens_per_s``: tokens of a step / step time. ``tokens_per_j``: tokens
        of a step / joules of the stacks. ``power_scaled``: tokens/s x (100 W / power of a chip)^(1/3) above 100 W.
    limits : e.g. {step_time: 50 ms}
        Limits that the best design keeps with its mapping. None: no limits.
    options : e.g. {tp: 8, rank_order: tp-mp-pp-dp}
        Parts of the mapping that are fixed for every design, as in a question about one system. None: nothing is fixed.
    heat : e.g. throttle
        Treatment of heat in the exploration. ``throttle``: map without heat, then lower the clock. ``aware``: choose
        partitions, clocks and pauses for the limits. ``lumped``: lower the clock by a formula of one resistance. None:
        heat does not count.
    stack
        Stack of dies that supplies the properties which designs leave open, if heat counts. None: the designs say it
        all.
    gap : share, e.g. 0.01
        Relative gap at which the search may stop. 0 asks for a proof that the design is the best.
    time_limit : e.g. 300 s
        Time for the whole exploration. When it ends, dfopt returns the best design so far with its gap.
    seed : no unit, e.g. 0
        Seed of the random numbers of the solver.
    top : designs, e.g. 3
        Number of best designs that the answer keeps. The gap then refers to the last of them.
    sensitivity : e.g. true
        Whether dfopt also reports the effect of more of each budget and looser limits.
    compare : e.g. [lumped, tp_pp_dp]
        Other questions about the same designs, whose best designs are compared with the best one. ``lumped``: heat by a
        formula. ``tp_pp_dp`` and ``expanded``: fewer schedules.
    """

    objective: ObjectiveName = "time"
    limits: DesignLimits | None = None
    options: Request | None = None
    heat: HeatMode | None = None
    stack: Stack | None = None
    gap: float = Field(default=0.01, ge=0, le=1)
    time_limit: Seconds = Field(default=300.0, ge=0)
    seed: int = Field(default=0, ge=0)
    top: int = Field(default=1, ge=1, le=1000)
    sensitivity: bool = True
    compare: tuple[ComparisonName, ...] = ()

    def budgets_of(self, design: Design) -> tuple[BudgetName, ...]:
        """Budgets and limits that sensitivities raise; under heat a chip's own belong to its stack."""
        choices, limits = design.choices, self.limits
        return (
            *(_OF_CHIPS if self.heat is None else ()),
            *(("layers",) if choices is not None and "dram_layers" in choices.listed else ()),
            *(("price",) if limits is not None and limits.price is not None else ()),
            *(("temperature",) if self.heat is not None else ()),
        )
