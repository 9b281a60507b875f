"""Part of a technology, such as the logic, the memory or the links, for technologies to be made of."""

from __future__ import annotations

from typing import ClassVar, Final

from pydantic import Field

from dfopt.documents.base import Named
from dfopt.documents.technology import ChipLinks, CoreUnit, DramStacks, LinkRole, SramLevel
from dfopt.documents.wafer import Packaging, Wafer

SECTIONS: Final = ("core", "sram", "dram", "links", "wafer", "package")


class TechnologyPart(Named):
    """Some sections of a technology, each as it stands there.

    Examples
    --------
    >>> TechnologyPart(name="prices", wafer=Wafer(usd=9346, defects_per_cm2=0.09)).sections
    ('wafer',)
    """

    SCHEMA: ClassVar[str] = "dfopt/technology-part/1"

    core: CoreUnit | None = None
    sram: tuple[SramLevel, ...] | None = Field(default=None, max_length=8, description="from the cores outwards")
    dram: DramStacks | None = None
    links: dict[LinkRole, ChipLinks] | None = None
    wafer: Wafer | None = None
    package: Packaging | None = None

    @property
    def sections(self) -> tuple[str, ...]:
        """What it has."""
        return tuple(name for name in SECTIONS if getattr(self, name) is not None)
