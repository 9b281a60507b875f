"""Where in the memories of a chip lies what stays: the part of a plan that says so.

What a placement tells apart are *items*, each of which lies in one memory as a whole, with all that it moves:

===============  =======================================================================================================
item             what lies there, and what passes through that memory
===============  =======================================================================================================
``weights``      weights of all kernels but those of routed experts, and the reading of them
``experts``      weights of routed experts, and the reading of them
``caches``       what is kept for sequences (KV caches, recurrent states), what is read of it and written to it
``tables``       tables and matrices, and all other traffic that kernels list for themselves: lookups, their own data
``activations``  what the forward pass of a graph that trains keeps for its backward pass
``gradients``    gradients of weights, which every microbatch adds to
``optimizer``    the state of the optimizer, main weights among it
===============  =======================================================================================================

Tensors always pass through the fastest memory, and wait there between partitions. A graph that trains computes from
there only: of weights, activations and gradients that lie elsewhere the fastest memory has two layers at a time, and
what these need is moved beside the work of other layers (:mod:`dfopt.physics.offload`). Its caches and tables lie in
the fastest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal, get_args

from dfopt.documents.base import Part
from dfopt.errors import Issue, did_you_mean

if TYPE_CHECKING:
    from dfopt.documents.graph import Graph, Kernel
    from dfopt.documents.system import Chip

Item = Literal["weights", "experts", "caches", "tables", "activations", "gradients", "optimizer"]
ITEMS: Final[tuple[Item, ...]] = get_args(Item)
SERVED: Final[tuple[Item, ...]] = ("weights", "experts", "caches", "tables")
"""Of a graph that does not train."""
TRAINED: Final[tuple[Item, ...]] = ("weights", "experts", "activations", "gradients", "optimizer")
"""Of one that trains, in the memory that they are asked to lie in; all else lies in the fastest."""


class Placement(Part):
    """Memory of each placement item, by its name on the chip; None: the fastest.

    Attributes
    ----------
    weights : e.g. HBM
        Name of the memory that stores the weights of all kernels except routed experts. None: the fastest memory.
    experts : e.g. DDR
        Name of the memory that stores the weights of routed experts. None: the fastest memory.
    caches : e.g. DDR
        Name of the memory that stores KV caches and recurrent states of sequences. None: the fastest memory.
    tables : e.g. DDR
        Name of the memory that stores embedding tables and other resident data of kernels. None: the fastest memory.
    activations : e.g. DDR
        Name of the memory that stores the activations which training keeps for the backward pass. None: the fastest
        memory.
    gradients : e.g. DDR
        Name of the memory that stores the gradients of weights. None: the fastest memory.
    optimizer : e.g. DDR
        Name of the memory that stores the state of the optimizer, main weights included. None: the fastest memory.

    Examples
    --------
    >>> Placement(experts="DDR", caches="DDR").label
    'experts, caches in DDR'
    """

    weights: str | None = None
    experts: str | None = None
    caches: str | None = None
    tables: str | None = None
    activations: str | None = None
    gradients: str | None = None
    optimizer: str | None = None

    def of(self, item: Item | None) -> str | None:
        """Memory of an item; None for the fastest one, which also has all data that is no item."""
        memory: str | None = None if item is None else getattr(self, item)
        return memory

    @property
    def elsewhere(self) -> dict[Item, str]:
        """Items with a stated memory, and that memory."""
        return {item: name for item in ITEMS if (name := self.of(item)) is not None}

    @property
    def label(self) -> str:
        """Items by memory in one line."""
        by: dict[str, list[str]] = {}
        for item, name in self.elsewhere.items():
            by.setdefault(name, []).append(item)
        return "; ".join(f"{', '.join(items)} in {name}" for name, items in by.items())

    def issues(self, graph: Graph, chip: Chip) -> Iterator[Issue]:
        """Problems of this placement for a graph on a chip."""
        for item, name in self.elsewhere.items():
            where = f"$.plan.placement.{item}"
            if name not in chip.tiers:
                meant = did_you_mean(name, chip.tiers, f"its memories: {', '.join(chip.tiers)}")
                yield Issue(where, f"the chip has no memory {name!r}", meant)
            elif name != chip.fastest_tier and (reason := _obstacle(item, graph)):
                message = f"found {name} for {item} of {graph.name}, which {reason}"
                yield Issue(where, message, f"leave it out, so that it lies in {chip.fastest_tier}")


def _obstacle(item: Item, graph: Graph) -> str:
    """What keeps an item of a graph in the fastest memory."""
    if not graph.trains:
        return "" if item in SERVED else "does not train and has none"
    if item not in TRAINED:
        return "trains, and reads them in the fastest memory only"
    return "" if item == "optimizer" or graph.folded else "has no layers that repeat, beside which others are moved"


def item_of_weight(kernel: Kernel) -> Item:
    """Placement item of a kernel's weights."""
    return "experts" if kernel.module == "experts" else "weights"


def items_of(graph: Graph) -> tuple[Item, ...]:
    """Placement items for which a graph has data."""
    items: set[Item] = {item_of_weight(kernel) for kernel in graph.kernels if kernel.op == "gemm"}
    if any(kernel.states for kernel in graph.kernels):
        items.add("caches")
    if any(kernel.resident_bytes for kernel in graph.kernels):
        items.add("tables")
    if graph.trains:
        items |= {"activations", "gradients", "optimizer"}
    return tuple(item for item in ITEMS if item in items)
