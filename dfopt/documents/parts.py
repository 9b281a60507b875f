"""Parts of systems as documents of their own: a chip, a memory, a link, a topology, a stack of dies.

A system file names them, see :mod:`dfopt.machines`; the zoo's are in ``systems/chips`` and so on. A part says
what it is (``name``, ``description``, ``source``) and has the fields that it has inside a system.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from dfopt.documents.base import Named
from dfopt.documents.stack import Stack
from dfopt.documents.system import ChipBody, Dram, Link
from dfopt.documents.zoo import Kind

Size = Annotated[int, Field(ge=1, le=10**7)]  # of a network dim


class ChipPart(ChipBody, Named):
    """An accelerator; ``dram`` is the memory it comes with, if it comes with one."""

    SCHEMA: ClassVar[str] = "dfopt/chip/1"

    dram: Dram | None = Field(default=None, description="the memory of its package, unless a system gives another")


class MemoryPart(Dram, Named):
    """A memory technology: the whole memory of a chip, or one stack or channel of which a system takes several."""

    SCHEMA: ClassVar[str] = "dfopt/memory/1"


class LinkPart(Link, Named):
    """An interconnect technology: one link, in one direction."""

    SCHEMA: ClassVar[str] = "dfopt/link/1"


class TopologyPart(Named):
    """How chips are connected, before it is said by what links.

    ``topology`` is a named topology, or a list of one ring, line, switch or fully_connected for each size: the
    product of such dims. ``roles`` names the link that each dim takes, for systems that give links by role.
    """

    SCHEMA: ClassVar[str] = "dfopt/topology/1"

    topology: str | tuple[str, ...]
    sizes: tuple[Size, ...] = Field(min_length=1, max_length=8)
    names: tuple[str, ...] | None = Field(default=None, description="of the dims; none = the topology's own")
    taper: tuple[float, ...] = Field(default=(), description="of a fat_tree: oversubscription of levels but the first")
    roles: tuple[str, ...] | None = Field(default=None, description="which link each dim takes, such as scale_up")


PARTS: Final[dict[Kind, type[ChipPart | MemoryPart | LinkPart | TopologyPart | Stack]]] = {
    "chips": ChipPart,
    "memories": MemoryPart,
    "links": LinkPart,
    "topologies": TopologyPart,
    "stacks": Stack,
}
