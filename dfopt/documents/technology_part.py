"""Part of a technology, such as the logic, the memory or the links, for technologies to be made of."""

from __future__ import annotations

from typing import ClassVar, Final

from pydantic import Field

from dfopt.documents.base import Named
from dfopt.documents.dram_layers import DramLayers
from dfopt.documents.technology import ChipLinks, CoreUnit, DramStacks, LinkRole, SramLevel
from dfopt.documents.wafer import Packaging, Wafer

SECTIONS: Final = ("core", "sram", "dram", "layers", "links", "wafer", "package")


class TechnologyPart(Named):
    """Some sections of a technology, each as it stands there.

    Attributes
    ----------
    core
        Unit of compute, such as a tensor core, of which a chip has as many as fit. None: the part has no such section.
    sram : e.g. [{name: L2, bit_area_mm2: 0.00000005, energy: 0.1 pJ/bit, static_w_per_bit: 0.000000001, bank: 64 kB}]
        Levels of on-chip memory, from the cores outwards. None: the part has no such section.
    dram
        Stacks of DRAM of the chip, and their controllers on the chip. None: the part has no such section.
    layers
        DRAM dies that are bonded onto the logic die, layer by layer. None: the part has no such section.
    links
        Links between dies, inside a package, between packages and between nodes, by their role. Roles are
        ``in_package``, ``between_packages``, ``between_nodes`` and ``between_dies``. None: the part has no such
        section.
    wafer : e.g. {usd: 9346, defects_per_cm2: 0.09}
        Wafer from which dies are cut. None: the part has no such section.
    package : e.g. {usd_per_mm2: 0.005, area_factor: 4}
        Package on which dies and DRAM stacks stand. None: the part has no such section.

    Examples
    --------
    >>> TechnologyPart(name="prices", wafer=Wafer(usd=9346, defects_per_cm2=0.09)).sections
    ('wafer',)
    """

    SCHEMA: ClassVar[str] = "dfopt/technology-part/1"

    core: CoreUnit | None = None
    sram: tuple[SramLevel, ...] | None = Field(default=None, max_length=8)
    dram: DramStacks | None = None
    layers: DramLayers | None = None
    links: dict[LinkRole, ChipLinks] | None = None
    wafer: Wafer | None = None
    package: Packaging | None = None

    @property
    def sections(self) -> tuple[str, ...]:
        """Names of the sections that the part has."""
        return tuple(name for name in SECTIONS if getattr(self, name) is not None)
