"""A design with all that follows from it, each worked out when it is asked for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property

from dfopt.documents.design import Design
from dfopt.documents.stack import Stack
from dfopt.documents.system import System
from dfopt.machines.stacks import load_stack, memory_of
from dfopt.technology.as_stack import derived_stack
from dfopt.technology.as_system import derived_system
from dfopt.technology.chip_price import ChipPrice, price_of
from dfopt.technology.derive import Derived, derive_design

_BESIDE, _LAYERED = "hbm3", "hybrid-vault"
"""Stacks of the zoo whose package, cooling and DRAM timings a derived chip has where no other is named."""


@dataclass(frozen=True)
class DerivedDesign:
    """A design with everything that is derived from it on demand.

    A property raises `SystemSpecError` if it cannot be derived: a design without a template has components, but no
    system. ``on``: stack, or its name or path, for the properties that the design does not state; by default ``hbm3``,
    or ``hybrid-vault`` if the design has DRAM layers.
    """

    design: Design
    on: Stack | str | os.PathLike[str] | None = None

    @cached_property
    def components(self) -> Derived:
        """The derived chip: size, rate, power and binding budget of each component."""
        return derive_design(self.design)

    @cached_property
    def price(self) -> ChipPrice | None:
        """Price of the chip; None without wafer data."""
        return price_of(self.design, self.components)

    @cached_property
    def system(self) -> System:
        """System of the chips by the template; chips without DRAM beside them have that of their DRAM dies."""
        stacked = not self.components.dram.rate > 0 and bool(self._on.dram_dies)
        return derived_system(self.design, self.components, memory_of(self._on) if stacked else None)

    @cached_property
    def stack(self) -> Stack:
        """The chip as a die stack, see `dfopt.technology.as_stack`."""
        return derived_stack(self.design, self.components, self._on)

    @property
    def on_name(self) -> str:
        """Name of the stack that supplies package and limits."""
        return self._on.name

    @cached_property
    def _on(self) -> Stack:
        if isinstance(self.on, Stack):
            return self.on
        return load_stack(self.on or (_BESIDE if self.design.sizes is None else _LAYERED))

    def __repr__(self) -> str:
        return f"DerivedDesign({self.design.name}: technology {self.design.technology.name})"
