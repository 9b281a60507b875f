"""A design with all that follows from it, each worked out when it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dfopt.documents.design import Design
from dfopt.documents.system import System
from dfopt.technology.as_system import derived_system
from dfopt.technology.chip_price import ChipPrice, price_of
from dfopt.technology.derive import Derived, derive_design

__all__ = ["DerivedDesign"]


@dataclass(frozen=True)
class DerivedDesign:
    """A design and what it makes.

    Raises `SystemSpecError` where that cannot be, when it is asked for: of a design without a template there are
    components, but no system.
    """

    design: Design

    @cached_property
    def components(self) -> Derived:
        """The chip, component by component: sizes, rates, powers, what binds them and what they leave."""
        return derive_design(self.design)

    @cached_property
    def price(self) -> ChipPrice | None:
        """What a chip costs; none where the technology has no wafer."""
        return price_of(self.design, self.components)

    @cached_property
    def system(self) -> System:
        """The chips, joined as the template says."""
        return derived_system(self.design, self.components)

    def __repr__(self) -> str:
        return f"DerivedDesign({self.design.name}: technology {self.design.technology.name})"
