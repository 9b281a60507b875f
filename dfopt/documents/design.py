"""A design: budgets of area, power and perimeter, and what share of each goes to which component of a technology."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.documents.design_choices import DesignChoices
from dfopt.documents.design_sizes import NETWORK_ON_LOGIC, DesignSizes
from dfopt.documents.design_template import Template
from dfopt.documents.system import Source
from dfopt.documents.technology import Area, Technology
from dfopt.errors import Issue, SystemSpecError, repeated
from dfopt.units import Ratio, Watts

DesignBudgetName = Literal["area", "power", "perimeter"]
BudgetShare = Annotated[Ratio, Field(ge=0, le=1000)] | Literal["rest", "auto"]
Shares = dict[str, BudgetShare]
SLACK = 1e-9  # shares are sums of decimals
POWER = "power"  # among what is searched
RETICLE_MM2 = 26.0 * 33.0  # the field of today's scanners (ASML NXE:3600D)


class DesignBudgets(Part):
    """Budgets of a chip with its package: area (mm2), power (W), and number of dies.

    Attributes
    ----------
    chip_area_mm2 : mm2, e.g. 800
        Area of the whole chip, over all its dies.
    package_area_mm2 : mm2, e.g. 2500
        Area of the package; DRAM stacks take the area that the chip leaves free.
    power : e.g. 700 W
        Power that chip, DRAM and links may take together.
    edge_mm : mm, e.g. 114
        Length of the edge of the chip, which links need. None: that of a square, 4 sqrt(area).
    dies : dies, e.g. 2
        Number of equal dies that make up the chip. None: 1.
    reticle_mm2 : mm2, e.g. 858
        Area of the largest die that can be made. None: 26 mm x 33 mm.
    """

    chip_area_mm2: Area
    package_area_mm2: Area
    power: Watts = Field(gt=0)
    edge_mm: float | None = Field(default=None, gt=0, le=1e7)
    dies: int | None = Field(default=None, ge=1, le=64)
    reticle_mm2: Area | None = None

    @property
    def edge(self) -> float:
        """Length of the chip's edge in mm."""
        return 4 * math.sqrt(self.chip_area_mm2) if self.edge_mm is None else self.edge_mm

    @property
    def reticle(self) -> float:
        """Area of the largest die in mm2."""
        return self.reticle_mm2 or RETICLE_MM2

    @property
    def die_area_mm2(self) -> float:
        """Area of each die in mm2."""
        return self.chip_area_mm2 / (self.dies or 1)

    def within_area(self, most_mm2: float) -> Self:
        """The budgets of a chip of the same aspect ratio with at most ``most_mm2`` mm2."""
        if self.chip_area_mm2 <= most_mm2:
            return self
        edge_mm = None if self.edge_mm is None else self.edge_mm * math.sqrt(most_mm2 / self.chip_area_mm2)
        return self.model_copy(update={"chip_area_mm2": most_mm2, "edge_mm": edge_mm})


class DesignShares(Part):
    """Shares of each budget by component; unnamed components have none.

    One of a budget may be ``rest``. A component whose share of the area is ``auto`` is of every size that
    ``Design.choices`` allows; it takes the area, and where they are ``auto`` the perimeter and the power at nominal
    voltage, that this size needs.

    Attributes
    ----------
    area : share, e.g. {core: 0.5, L2: 0.2, dram: rest}
        Share of the chip area for each component, by name. ``rest`` takes the remainder. ``auto`` lets `dfopt explore`
        choose the size.
    power : share, e.g. {core: 0.6, dram: 0.2}
        Share of the power for each component, by name. ``rest`` takes the remainder. ``auto`` gives a component of
        chosen size as much as it needs.
    perimeter : share, e.g. {dram: 0.5, between_packages: 0.3}
        Share of the chip's edge for each component, by name. ``rest`` takes the remainder. ``auto`` gives a component
        of chosen size as much as it needs.
    """

    area: Shares = Field(default_factory=dict)
    power: Shares = Field(default_factory=dict)
    perimeter: Shares = Field(default_factory=dict)


class Design(Source):
    """A chip design: a technology, budgets, and shares or sizes of components.

    Attributes
    ----------
    technology
        Technology of which the chip is made.
    budgets : e.g. {chip_area_mm2: 800, package_area_mm2: 2500, power: 700 W}
        Area, power and edge that the chip with its package may take.
    shares : e.g. {area: {core: 0.5, dram: rest}, power: {core: 0.6}}
        Share of each budget that every component gets. A component without a share gets nothing. A design
        with ``sizes`` has no shares.
    sizes : e.g. {dram_layers: 8, buffer: 256 KiB, buffer_port: 256 B}
        Size of each component, for a technology with DRAM ``layers`` on the chip. None: ``shares`` divides the budgets.
    profile : e.g. default
        Rules by which the chip is derived. ``default``: those of dfopt. ``deepflow``: those of the DeepFlow program,
        which allow shares above 1.
    template : e.g. {sram: L2}
        Everything that a system of such chips needs in addition, such as its network. None: the design makes a chip
        only.
    choices : e.g. {stacks: {most: 6}}
        Sizes of the components whose share of the area is ``auto``. None: as many as fit, in even steps.

    Examples
    --------
    >>> shares = DesignShares(area={"core": 0.5, "dram": "rest"}, power={"core": 0.6})
    >>> resolved(shares.area)
    {'core': 0.5, 'dram': 0.5}
    """

    SCHEMA: ClassVar[str] = "dfopt/design/1"
    EXAMPLE: ClassVar = ("shares",)

    technology: Technology
    budgets: DesignBudgets
    shares: DesignShares = DesignShares()
    sizes: DesignSizes | None = None
    profile: Literal["default", "deepflow"] = "default"
    template: Template | None = None
    choices: DesignChoices | None = None

    @property
    def chosen(self) -> tuple[str, ...]:
        """Components whose sizes are free."""
        return tuple(name for name, share in self.shares.area.items() if share == "auto")

    @property
    def searched(self) -> tuple[str, ...]:
        """Free variables of the search: sizes of components, then ``power`` if its budget is free."""
        if self.choices is None:
            return self.chosen
        listed = (*self.choices.listed, *self.choices.rate) if self.sizes is not None else ()
        return (*self.chosen, *listed, *((POWER,) if self.choices.power else ()))

    def shares_of(self, budget: DesignBudgetName) -> dict[str, float]:
        """Shares of one budget by component, as numbers.

        Raises `SystemSpecError` where shares are ``auto``: then this is many designs, not one.
        """
        given: Shares = getattr(self.shares, budget)
        open_ = [name for name, share in given.items() if share == "auto"]
        if open_:
            message = f"found auto for {' and '.join(open_)}, expected numbers or rest"
            remedy = "give numbers, or have them chosen for a workload: dfopt explore GRAPH DESIGN"
            raise SystemSpecError(self.name, [Issue(f"$.shares.{budget}", message, remedy)])
        return resolved(given)

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        for where, message, remedy in (
            *_wrong_sizes(self),
            *_wrong_choices(self),
            *_wrong_template(self),
            *_wrong_dies(self),
        ):
            raise problem(message, remedy, where)
        square = 4 * math.sqrt(self.budgets.chip_area_mm2)
        if self.budgets.edge < square * (1 - SLACK):
            message = f"found {self.budgets.edge:.6g} mm, expected the {square:.6g} mm of a square chip or more"
            raise problem(message, "no rectangle of this area has less: raise it, or leave it out", "$.budgets.edge_mm")
        for budget, given in dict(self.shares).items():
            for where, message, remedy in _wrong(self, budget, given):
                raise problem(message, remedy, where)
        if self.profile == "default" and self.budgets.chip_area_mm2 > self.budgets.package_area_mm2:
            actual = f"found {self.budgets.package_area_mm2:.6g} mm2"
            message = f"{actual}, expected the {self.budgets.chip_area_mm2:.6g} mm2 of the chip or more"
            raise problem(message, "DRAM stacks have what the chip leaves: raise it", "$.budgets.package_area_mm2")
        return self


def resolved(given: Shares) -> dict[str, float]:
    """Shares as numbers; ``rest`` is what the others leave of 1."""
    numbers = {name: share for name, share in given.items() if not isinstance(share, str)}
    rest = max(1 - sum(numbers.values()), 0.0)
    return {name: numbers.get(name, rest) for name in given}


def unknown(technology: Technology) -> tuple[str, str]:
    """Problem and remedy for a share of a component that the technology lacks."""
    return f"technology {technology.name} has no such component", f"it has {', '.join(technology.components)}"


def too_much(total: float) -> str:
    """Error message for shares that add up to ``total``, which is more than 1."""
    return f"found shares that sum to {total:.6g}, expected at most 1: {total - 1:.6g} too much"


def no_links_between(dies: int, technology: Technology) -> tuple[str, str]:
    """Problem and remedy for several dies without links between them."""
    message = f"found {dies}, expected 1: technology {technology.name} has no links between_dies"
    return message, "add them to its links: a die takes what another one holds"


def _wrong(design: Design, budget: str, given: Shares) -> Iterator[tuple[str, str, str]]:
    components = design.technology.components
    where = f"$.shares.{budget}"
    for name in given:
        if name not in components:
            yield f"{where}.{name}", *unknown(design.technology)
    resting = [name for name, share in given.items() if share == "rest"]
    if len(resting) > 1:
        yield where, f"found rest for {' and '.join(resting)}, expected it once", "give all but one a number"
    for name, share in given.items():
        if share == "auto" and (name == "core" or name not in design.chosen):
            why = "cores take what the others leave" if name == "core" else f"$.shares.area.{name} is not auto"
            yield f"{where}.{name}", f"found auto, expected a number or rest: {why}", "give it one"
    total = sum(share for share in given.values() if not isinstance(share, str))
    if total > 1 + SLACK and (design.profile == "default" or resting):
        yield where, too_much(total), "lower them, or set the profile deepflow" if not resting else "lower them"


def _wrong_choices(design: Design) -> Iterator[tuple[str, str, str]]:
    levels = {level.name for level in design.technology.sram}
    if design.choices and design.choices.power and POWER in design.technology.components:
        message = f"found budgets of power to choose, and a component {POWER!r} whose sizes could be meant"
        yield "$.choices.power", message, "rename the SRAM level"
    if design.searched and design.profile != "default":
        yield "$.profile", "found deepflow beside shares that are auto, expected default", "leave it out"
    listed = design.choices.listed if design.choices and design.sizes is None else ()
    for name in listed:
        where = "network_die" if name == NETWORK_ON_LOGIC else name
        yield f"$.choices.{where}", "found sizes of DRAM layers beside shares, expected none", "give the design sizes"
    sized = design.choices.rate if design.choices and design.sizes is not None else ()
    for name in design.choices.components if design.choices else ():
        if name not in design.chosen and name not in sized:
            message = f"found sizes of {name}, expected those of components whose share of the area is auto"
            yield "$.choices", message, f"set $.shares.area.{name} to auto"
    for name in design.choices.capacity if design.choices else ():
        if name not in levels:
            yield f"$.choices.capacity.{name}", *unknown(design.technology)


def _wrong_dies(design: Design) -> Iterator[tuple[str, str, str]]:
    budgets = design.budgets
    if (budgets.dies or 1) > 1 and "between_dies" not in design.technology.links:
        yield "$.budgets.dies", *no_links_between(budgets.dies or 1, design.technology)
        return
    most = budgets.reticle
    if design.profile == "default" and budgets.die_area_mm2 > most * (1 + SLACK):
        dies = budgets.dies or 1
        actual = f"found {budgets.chip_area_mm2:.6g} mm2 on {dies} {'dies' if dies > 1 else 'die'}"
        message = f"{actual}, expected at most the {most:.6g} mm2 of a reticle for each"
        need = math.ceil(budgets.chip_area_mm2 / most * (1 - SLACK))
        yield "$.budgets.chip_area_mm2", message, f"lower it, or set $.budgets.dies to {need} or more"
    for budget, shares in dict(design.shares).items():
        share = shares.get("between_dies")
        where = f"$.shares.{budget}.between_dies"
        if budget == "perimeter" and share is not None:
            yield where, f"found {share}, expected none: these links have the seams between dies", "leave it out"
        elif share == "auto":
            yield where, "found auto, expected a number or rest: these links are not chosen", "give it one"
        elif budget != "perimeter" and not share and (budgets.dies or 1) > 1:
            message = f"found {share or 'none'}, expected a share for the links between {budgets.dies} dies"
            yield where, message, "without any no die has what another one holds"
    if (budgets.dies or 1) > 1 and design.profile == "deepflow":
        yield "$.budgets.dies", f"found {budgets.dies}, expected 1: the profile deepflow knows no dies", "leave it out"


def _wrong_sizes(design: Design) -> Iterator[tuple[str, str, str]]:
    """Where shares and sizes do not go with each other, or sizes not with the technology."""
    technology, sizes, shared = design.technology, design.sizes, bool(design.shares.area or design.shares.power)
    if (sizes is None) == (not shared):
        given = "neither shares nor sizes" if sizes is None else "both shares and sizes"
        yield "$.sizes", f"found {given}, expected one of them", "shares divide the budgets; sizes are those of parts"
    if (technology.layers is None) != (sizes is None):
        has = "stacks of DRAM beside the chip" if technology.layers is None else "layers of DRAM on the chip"
        needs = "shares" if technology.layers is None else "sizes"
        yield "$.technology", f"found {technology.name} with {has}, expected {needs}", "take the one that goes with it"
    if sizes is None:
        return
    if technology.core.buffer is None:
        yield "$.technology.core.buffer", "found none, expected the buffer that sizes choose", "describe its area"
    for role in sizes.rate:
        if role not in technology.links:
            yield f"$.sizes.rate.{role}", *unknown(technology)


def _wrong_template(design: Design) -> Iterator[tuple[str, str, str]]:
    if design.template is None:
        return
    levels = design.technology.memories
    if design.template.sram not in levels:
        message = f"found {design.template.sram!r}, expected an SRAM level of technology {design.technology.name}"
        yield "$.template.sram", message, f"it has {', '.join(levels) or 'none'}"
    for position, dim in enumerate(design.template.network):
        if dim.links == "between_dies":
            message = "found between_dies, expected links between chips"
            yield f"$.template.network[{position}].links", message, "those join the dies of one chip: name another role"
        if dim.links is not None and dim.links not in design.technology.links:
            yield f"$.template.network[{position}].links", *unknown(design.technology)
    for position, name, first in repeated(dim.name for dim in design.template.network):
        message = f"network dim {name!r} is named twice, first as $.template.network[{first}]"
        yield f"$.template.network[{position}].name", message, "plans name dims, so each needs a name of its own"
