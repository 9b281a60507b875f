"""States: bytes that stay in a memory of a chip, as a table. What a new feature keeps is a new entry.

The optimiser and the judge read the table, and each keeps its own books by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from dfopt.arrays import ROUNDING
from dfopt.documents.graph import Kernel
from dfopt.documents.mapping import Sharding
from dfopt.documents.placement import Item
from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.system import Chip

Amount = Literal[
    "weights", "experts", "gradients", "other gradients", "layer gradients", "parameters", "saved", "waiting",
    "working", "cached", "tables", "table gradients", "table parameters", "table optimizer", "whole gradients",
]  # fmt: skip
OPTIMIZER_BYTES: Final = "optimizer_bytes_per_parameter"
"""Assumption with the bytes of optimizer state per parameter."""
Lifetime = Literal["step", "microbatch", "sequences", "partition", "layer", "others", "exchange"]
Held = dict[str, dict[str, float]]
"""Bytes that one chip holds, by tier and name of the state."""


@dataclass(frozen=True)
class Kind:
    """A kind of memory state, one row of the table of states; rows of one name add up.

    Attributes
    ----------
    of
        Amount that the state is computed from: bytes of one evaluation of some kernels, on one chip, or a number of
        parameters. Layers have ``parameters``, and tables such as embeddings ``table parameters``.
    part
        Line of the memory breakdown that it belongs to: a field of
        :class:`~dfopt.documents.breakdown.MemoryBreakdown` without ``_b``.
    label, lever
        For messages: the common name of the state, and remedies that reduce it.
    lifetime
        ``step``: one for every layer of a stage. ``microbatch``: also one for every microbatch that waits for its
        backward pass. ``sequences``: also one for every microbatch of a step. ``partition``, ``layer``: the largest of
        any layer, or of the kernels that run once, while one partition or the whole layer runs. ``others``: of all
        layers except that one. ``exchange``: of the layers that are exchanged at a time (``layers_exchanged``), each
        counted like the largest.
    per_parameter
        Assumption with the bytes per parameter; ``of`` is then a number of parameters. A graph that states the data
        types of its optimizer has those instead of :data:`OPTIMIZER_BYTES`.
    trained
        Whether it exists only in training.
    item
        Item of a placement that it belongs to: all entries of an item have one name. None: it is in the fastest memory.
    shared_from
        Lowest ZeRO level at which data-parallel replicas partition the state.
    exists_from
        Lowest ZeRO level at which the state exists.
    """

    name: str
    of: Amount
    part: str
    label: str
    lever: str = ""
    lifetime: Lifetime = "step"
    per_parameter: str | None = None
    trained: bool = False
    item: Item | None = None
    shared_from: int | None = None
    exists_from: int = 0


KINDS: Final = tuple(Kind(**entry) for entry in load_strict(Path(__file__).with_suffix(".yaml"))["kinds"])
LABELS: Final = {kind.name: kind.label for kind in KINDS}
"""Names of states, in the order in which people read them."""
STATE_OF: Final = {kind.item: kind.name for kind in KINDS if kind.item is not None}
"""Names of states, by item of a placement."""


def capacities(chip: Chip, reserve: float | None = None) -> dict[str, float]:
    """Usable bytes of every memory of a chip that has a limit, by memory, less the reserved share.

    They are slightly larger than stated, so that an exact fit holds for any order of summation.
    """
    share = (1 - (reserve or 0.0)) * (1 + ROUNDING)
    return {name: memory.capacity * share for name, memory in chip.tiers.items() if memory.capacity is not None}


def usable(capacity: float, reserve: float | None) -> str:
    """A usable capacity as text, with the capacity that it is a part of.

    Examples
    --------
    >>> usable(72e9, 0.1), usable(80e9, None)
    ('72 GB (of 80 GB, 10 % is reserved)', '80 GB')
    """
    note = f" (of {capacity / (1 - reserve) / 1e9:.4g} GB, {100 * reserve:.3g} % is reserved)" if reserve else ""
    return f"{capacity / 1e9:.4g} GB{note}"


def head_share(outer: int, heads: int, scheme: Sharding, degree: int) -> float:
    """Share of the heads of a cache on the chip that has most of them.

    ``outer / heads`` matrices belong to one head. Chips take whole heads if no chip then has more than ``outer /
    degree`` matrices, and otherwise consecutive matrices. Under any scheme other than ``outer``, every chip has all
    heads.

    Parameters
    ----------
    outer, heads : int
        Matrices of the kernel, and heads of the cache that they read.
    scheme
        Sharding scheme of the kernel.
    degree : int
        Chips that share the kernel.

    Examples
    --------
    Of 32 query heads on 16 chips two have the same one of 8 K/V heads; on 3 chips some have 11, of 4 of them. Of 28 on
    8 chips two have the same one of 4 K/V heads: 4 of its query heads, and 3.

    >>> head_share(32, 8, "outer", 4), head_share(32, 8, "outer", 16), head_share(32, 8, "outer", 3)
    (0.25, 0.125, 0.5)
    >>> head_share(28, 4, "outer", 8)
    0.25
    """
    if scheme == "even":
        return 1.0 / degree
    if scheme != "outer" or degree == 1:
        return 1.0
    each, group = -(-outer // degree), outer // heads
    if heads * -(-group // each) <= degree:
        return 1.0 / heads
    chips = range(-(-outer // each))
    most = max((min((chip + 1) * each, outer) - 1) // group - chip * each // group + 1 for chip in chips)
    return most / heads


def cached_bytes(kernel: Kernel, scheme: Sharding, degree: int) -> float:
    """Bytes that one of ``degree`` chips stores of the kernel's caches, for the sequences of one evaluation.

    Parameters
    ----------
    kernel, scheme
        The kernel and its sharding scheme.
    degree : int
        Chips that share the kernel.
    """
    return sum(
        state.held_bytes * head_share(kernel.outer, state.heads, scheme, degree) for state in kernel.states or ()
    )


def cache_traffic(kernel: Kernel, scheme: Sharding, degree: int) -> tuple[float, float]:
    """DRAM bytes of a kernel's caches on one of ``degree`` chips in one evaluation: (read, written).

    Parameters
    ----------
    kernel, scheme
        The kernel and its sharding scheme.
    degree : int
        Chips that share the kernel.
    """
    shares = [(state, head_share(kernel.outer, state.heads, scheme, degree)) for state in kernel.states or ()]
    return sum(state.read_bytes * share for state, share in shares), sum(
        state.written_bytes * share for state, share in shares
    )


def own_traffic(kernel: Kernel, scheme: Sharding, degree: int) -> float:
    """DRAM bytes that one of ``degree`` chips moves for what the kernel states: own data, lookups and caches.

    Parameters
    ----------
    kernel, scheme
        The kernel and its sharding scheme.
    degree : int
        Chips that share the kernel.
    """
    return data_traffic(kernel, degree) + sum(cache_traffic(kernel, scheme, degree))


def data_traffic(kernel: Kernel, degree: int) -> float:
    """DRAM bytes that one of ``degree`` chips moves for a kernel's own data and lookups, without caches."""
    return kernel.dram_bytes_per_chip + kernel.dram_bytes / degree
