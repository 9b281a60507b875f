"""A design: budgets of area, power and perimeter, and what share of each goes to which component of a technology."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Named, Part, problem
from dfopt.documents.technology import Area, Technology
from dfopt.units import Ratio, Watts

Budget = Literal["area", "power", "perimeter"]
Share = Annotated[Ratio, Field(ge=0, le=1000)] | Literal["rest"]
Shares = dict[str, Share]
SLACK = 1e-9  # shares are sums of decimals


class DesignBudgets(Part):
    """What a chip with its package may take."""

    chip_area_mm2: Area
    package_area_mm2: Area = Field(description="in mm2; DRAM stacks have what the chip leaves of it")
    power: Watts = Field(gt=0)


class DesignShares(Part):
    """Shares of each budget by component; what is not named has none. One of a budget may be ``rest``."""

    area: Shares = Field(description="of the chip")
    power: Shares
    perimeter: Shares = Field(default_factory=dict, description="of the chip's edge, 4 sqrt(area)")


class Design(Named):
    """One point among the chips that a technology allows.

    Examples
    --------
    >>> shares = DesignShares(area={"core": 0.5, "dram": "rest"}, power={"core": 0.6})
    >>> resolved(shares.area)
    {'core': 0.5, 'dram': 0.5}
    """

    SCHEMA: ClassVar[str] = "dfopt/design/1"

    technology: Technology
    budgets: DesignBudgets
    shares: DesignShares
    profile: Literal["default", "deepflow"] = Field(
        default="default", description="deepflow: derived with the habits of that program, shares above 1 among them"
    )

    def shares_of(self, budget: Budget) -> dict[str, float]:
        """The shares of one budget as numbers."""
        given: Shares = getattr(self.shares, budget)
        return resolved(given)

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        for budget, given in dict(self.shares).items():
            for where, message, remedy in _wrong(self, budget, given):
                raise problem(message, remedy, where)
        if self.profile == "default" and self.budgets.chip_area_mm2 > self.budgets.package_area_mm2:
            found = f"found {self.budgets.package_area_mm2:.6g} mm2"
            message = f"{found}, expected the {self.budgets.chip_area_mm2:.6g} mm2 of the chip or more"
            raise problem(message, "DRAM stacks have what the chip leaves: raise it", "$.budgets.package_area_mm2")
        return self


def resolved(given: Shares) -> dict[str, float]:
    """Shares as numbers: ``rest`` is what the others leave of 1."""
    numbers = {name: share for name, share in given.items() if not isinstance(share, str)}
    rest = max(1 - sum(numbers.values()), 0.0)
    return {name: numbers.get(name, rest) for name in given}


def unknown(technology: Technology) -> tuple[str, str]:
    """What is wrong with a share of a component that a technology does not have, and what can be done."""
    return f"technology {technology.name} has no such component", f"it has {', '.join(technology.components)}"


def too_much(total: float) -> str:
    """What is wrong with shares that sum to more than 1."""
    return f"found shares that sum to {total:.6g}, expected at most 1: {total - 1:.6g} too much"


def _wrong(design: Design, budget: str, given: Shares) -> Iterator[tuple[str, str, str]]:
    known = design.technology.components
    where = f"$.shares.{budget}"
    for name in given:
        if name not in known:
            yield f"{where}.{name}", *unknown(design.technology)
    resting = [name for name, share in given.items() if isinstance(share, str)]
    if len(resting) > 1:
        yield where, f"found rest for {' and '.join(resting)}, expected it once", "give all but one a number"
    total = sum(share for share in given.values() if not isinstance(share, str))
    if total > 1 + SLACK and (design.profile == "default" or resting):
        yield where, too_much(total), "lower them, or set the profile deepflow" if not resting else "lower them"
