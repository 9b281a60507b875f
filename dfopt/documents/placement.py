"""Where in the memories of a chip lies what stays: the part of a plan that says so.

What a placement tells apart are *items*, each of which lies in one memory as a whole, with all that it moves:

===========  ===========================================================================================================
item         what lies there, and what passes through that memory
===========  ===========================================================================================================
``weights``  weights of all kernels but those of routed experts, and the reading of them
``experts``  weights of routed experts, and the reading of them
``caches``   what is kept for sequences (KV caches, recurrent states), what is read of it and written to it
``tables``   tables and matrices, with all other traffic that kernels list for themselves: lookups, data of their own
===========  ===========================================================================================================

Tensors always pass through the fastest memory, and wait there between partitions. What a graph that trains keeps lies
there too: the traffic of an optimizer is not modelled, so nothing could say what it costs elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal, get_args

from pydantic import Field

from dfopt.documents.base import Part
from dfopt.errors import Issue, did_you_mean

if TYPE_CHECKING:
    from dfopt.documents.graph import Graph, Kernel
    from dfopt.documents.system import Chip

__all__ = ["ITEMS", "Item", "Placement", "item_of_weight", "items_of"]

Item = Literal["weights", "experts", "caches", "tables"]
ITEMS: Final[tuple[Item, ...]] = get_args(Item)


class Placement(Part):
    """The memory of each item, by the name that the chip gives it; none: the fastest.

    Examples
    --------
    >>> Placement(experts="DDR", caches="DDR").label
    'experts, caches in DDR'
    """

    weights: str | None = Field(default=None, description="of all kernels but routed experts")
    experts: str | None = Field(default=None, description="weights of routed experts")
    caches: str | None = Field(default=None, description="what is kept for sequences")
    tables: str | None = Field(default=None, description="tables and matrices, and what kernels move on their own")

    def of(self, item: Item | None) -> str | None:
        """The memory of an item; none for the fastest, where all lies that is no item."""
        found: str | None = None if item is None else getattr(self, item)
        return found

    @property
    def elsewhere(self) -> dict[Item, str]:
        """The items that say where they lie."""
        return {item: name for item in ITEMS if (name := self.of(item)) is not None}

    @property
    def label(self) -> str:
        """Items by memory, in a line."""
        by: dict[str, list[str]] = {}
        for item, name in self.elsewhere.items():
            by.setdefault(name, []).append(item)
        return "; ".join(f"{', '.join(items)} in {name}" for name, items in by.items())

    def issues(self, graph: Graph, chip: Chip) -> Iterator[Issue]:
        """What keeps a graph on a chip from lying so."""
        for item, name in self.elsewhere.items():
            where = f"$.plan.placement.{item}"
            if name not in chip.tiers:
                meant = did_you_mean(name, chip.tiers, f"its memories: {', '.join(chip.tiers)}")
                yield Issue(where, f"the chip has no memory {name!r}", meant)
            elif graph.trains and name != chip.fastest_tier:
                message = f"found {name} for {item} of a graph that trains, where all lies in {chip.fastest_tier}"
                yield Issue(where, message, "leave it out, or take the graph without training")


def item_of_weight(kernel: Kernel) -> Item:
    """The item that the weights of a kernel belong to."""
    return "experts" if kernel.module == "experts" else "weights"


def items_of(graph: Graph) -> tuple[Item, ...]:
    """The items of which a graph has any bytes."""
    found: set[Item] = {item_of_weight(kernel) for kernel in graph.kernels if kernel.op == "gemm"}
    if any(kernel.states for kernel in graph.kernels):
        found.add("caches")
    if any(kernel.resident_bytes for kernel in graph.kernels):
        found.add("tables")
    return tuple(item for item in ITEMS if item in found)
