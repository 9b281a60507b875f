"""Parts of systems as documents of their own: a chip, a memory, a link, a topology, a stack of dies.

A system file names them, see :mod:`dfopt.machines`; the zoo's are in ``systems/chips`` and so on. A part says
what it is (``name``, ``description``, ``source``) and has the fields that it has inside a system.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from dfopt.documents.base import Named, Part
from dfopt.documents.stack import Stack
from dfopt.documents.system import ChipBody, Dram, Link
from dfopt.documents.zoo import ZooKind

Size = Annotated[int, Field(ge=1, le=10**7)]  # of a network dim


class ChipPart(ChipBody, Named):
    """Part file of a chip, with ``dram`` if it comes with memory.

    Attributes
    ----------
    dram : e.g. {bandwidth: 3.35 TB/s, capacity: 80 GB}
        Off-chip memory in the package of the chip, which a system may replace. None: a system must give a memory.
    """

    SCHEMA: ClassVar[str] = "dfopt/chip/1"

    dram: Dram | None = None


class MemoryPart(Dram, Named):
    """Part file of a memory: all memory of a chip, or one stack or channel of several."""

    SCHEMA: ClassVar[str] = "dfopt/memory/1"


class LinkPart(Link, Named):
    """Part file of an interconnect: one link, in one direction."""

    SCHEMA: ClassVar[str] = "dfopt/link/1"


class TopologyForm(Part):
    """Network dims with topology and size, without links.

    ``topology`` is a named topology, or a list of one ring, line, switch or fully_connected for each size: the
    product of such dims. ``roles`` names the link that each dim takes, for systems that give links by role.

    Attributes
    ----------
    topology : e.g. torus
        Name of a topology, or a list with the wiring of each network dim (ring, line, switch or fully_connected).
    sizes : chips, e.g. [4, 2]
        Number of chips along each network dim.
    names : e.g. [x, y]
        Names of the network dims, to which plans refer. None: the names that the topology gives.
    taper : no unit, e.g. [2.0]
        Oversubscription of each level of a fat tree above the first. An empty list means 1.
    roles : e.g. [scale_up, scale_out]
        Role of the link that each network dim takes, for systems that give their links by role. None: systems give
        links in order.
    """

    topology: str | tuple[str, ...]
    sizes: tuple[Size, ...] = Field(min_length=1, max_length=8)
    names: tuple[str, ...] | None = None
    taper: tuple[float, ...] = ()
    roles: tuple[str, ...] | None = None


class TopologyPart(TopologyForm, Named):
    """Part file of a topology, to be combined with links."""

    SCHEMA: ClassVar[str] = "dfopt/topology/1"


PARTS: Final[dict[ZooKind, type[ChipPart | MemoryPart | LinkPart | TopologyPart | Stack]]] = {
    "chips": ChipPart,
    "memories": MemoryPart,
    "links": LinkPart,
    "topologies": TopologyPart,
    "stacks": Stack,
}
