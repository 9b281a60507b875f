"""Which sizes components of a design may have, where that is to be searched."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.documents.technology import LinkRole
from dfopt.units import Bandwidth, Bytes, Watts

MOST_STEPS = 10_000
MOST_STACKS = 1000


class _Steps(Part):
    """``least``, and every ``step`` above it, up to ``most``."""

    least: float
    most: float
    step: float

    @property
    def values(self) -> tuple[float, ...]:
        """All sizes, the smallest first."""
        count = int((self.most - self.least) / self.step * (1 + 1e-12) + 1e-9) + 1
        return tuple(self.least + position * self.step for position in range(count))

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.most < self.least:
            raise problem(f"found {self.most:g}, expected least ({self.least:g}) or more", "raise it", "$.most")
        if (self.most - self.least) / self.step > MOST_STEPS:
            found = f"found {(self.most - self.least) / self.step:.3g} steps, expected at most {MOST_STEPS}"
            raise problem(found, "raise it", "$.step")
        return self


class StackSteps(_Steps):
    """Numbers of stacks."""

    least: Annotated[int, Field(ge=1, le=MOST_STACKS)] = 1
    most: Annotated[int, Field(ge=1, le=MOST_STACKS)]
    step: Annotated[int, Field(ge=1, le=MOST_STACKS)] = 1


class CapacitySteps(_Steps):
    """Capacities, each rounded up to whole banks."""

    least: Annotated[Bytes, Field(gt=0)]
    most: Annotated[Bytes, Field(gt=0)]
    step: Annotated[Bytes, Field(gt=0)]


class RateSteps(_Steps):
    """Rates in each direction of all links of a role together, each rounded up to whole links."""

    least: Annotated[Bandwidth, Field(gt=0)]
    most: Annotated[Bandwidth, Field(gt=0)]
    step: Annotated[Bandwidth, Field(gt=0)]


class PowerSteps(_Steps):
    """Budgets of power, in place of the one that the design has."""

    least: Annotated[Watts, Field(gt=0)]
    most: Annotated[Watts, Field(gt=0)]
    step: Annotated[Watts, Field(gt=0)]


class DesignChoices(Part):
    """Sizes that are searched; of a component that is not named here, as many as fit, in even steps.

    Examples
    --------
    >>> StackSteps(most=5, step=2).values, RateSteps(least=1e11, most=3e11, step=1e11).values
    ((1, 3, 5), (100000000000.0, 200000000000.0, 300000000000.0))
    """

    stacks: StackSteps | None = Field(default=None, description="of dram")
    capacity: dict[str, CapacitySteps] = Field(default_factory=dict, description="of SRAM levels")
    rate: dict[LinkRole, RateSteps] = Field(default_factory=dict, description="of links by role")

    power: PowerSteps | None = Field(default=None, description="budgets of power")

    @property
    def components(self) -> tuple[str, ...]:
        """The components that have choices here."""
        return (*(("dram",) if self.stacks else ()), *self.capacity, *self.rate)

    def of(self, component: str) -> _Steps | None:
        """The sizes of one component, if they are given."""
        if component == "dram":
            return self.stacks
        return self.capacity.get(component) or {str(role): steps for role, steps in self.rate.items()}.get(component)
