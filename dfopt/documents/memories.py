"""Memories of a chip: its SRAM, and off the chip one, or several as tiers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pydantic import Field

from dfopt.documents.base import Part
from dfopt.errors import repeated
from dfopt.units import Bandwidth, Bytes, Ratio, show_unit


class Sram(Part):
    """On-chip memory for weights and for the buffers between fused kernels.

    Attributes
    ----------
    capacity : e.g. 320 MB
        Capacity of the on-chip memory of one chip.
    bandwidth : e.g. 40 TB/s
        Bandwidth of the on-chip memory of one chip for reads and writes together. None: no limit.
    """

    capacity: Bytes = Field(gt=0)
    bandwidth: Bandwidth | None = Field(default=None, gt=0)

    @property
    def words(self) -> str:
        """Capacity, and bandwidth if limited, as text."""
        rate = [] if self.bandwidth is None else [show_unit(self.bandwidth, "bandwidth")]
        return ", ".join([show_unit(self.capacity, "bytes"), *rate])


class Dram(Part):
    """Off-chip memory of one chip; without ``capacity`` it has no limit.

    Prices and powers here, of `NetworkDim` and of `Link` are per GB/s = 1e9 B/s of bandwidth, as their names say.

    Attributes
    ----------
    bandwidth : e.g. 3.35 TB/s
        Bandwidth of the off-chip memory of one chip, for reads and writes together.
    capacity : e.g. 80 GB
        Capacity of the off-chip memory of one chip. None: no limit.
    usd_per_gb_s : USD per GB/s, e.g. 0.5
        Price of the memory per GB/s (1e9 B/s) of its bandwidth. Write 0 if the price of the chip includes it. None:
        unknown.
    w_per_gb_s : W per GB/s, e.g. 0.03
        Power of the memory per GB/s (1e9 B/s) of its bandwidth. Write 0 if the power of the chip includes it. None:
        unknown.
    """

    bandwidth: Bandwidth = Field(gt=0)
    capacity: Bytes | None = Field(default=None, gt=0)
    usd_per_gb_s: float | None = Field(default=None, ge=0)
    w_per_gb_s: float | None = Field(default=None, ge=0)

    @property
    def words(self) -> str:
        """Bandwidth and capacity as text."""
        capacity = [] if self.capacity is None else [show_unit(self.capacity, "bytes")]
        return ", ".join([show_unit(self.bandwidth, "bandwidth"), *capacity])


class Memory(Dram):
    """One of several named memories of a chip.

    Attributes
    ----------
    name : e.g. HBM
        Name of this memory, to which placements of data refer.
    """

    name: str = Field(min_length=1, pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$")


class MemoryReserve(Part):
    """Share of every memory that the model cannot use: framework, communication buffers, fragmentation.

    Attributes
    ----------
    serving : e.g. 10 %
        Share of each memory that a model cannot use when it serves, because of the framework, communication buffers and
        fragmentation.
    training : e.g. 5 %
        Share of each memory that a model cannot use when it trains, because of the framework, communication buffers and
        fragmentation.
    """

    serving: Ratio = Field(default=0.0, ge=0, lt=1)
    training: Ratio = Field(default=0.0, ge=0, lt=1)


def check_order(memories: Sequence[Memory]) -> None:
    """Raise `ValueError` unless memory names are distinct and the fastest memory is first."""
    for at, name, first in repeated(memory.name for memory in memories):
        raise ValueError(f"memories[{at}] is called {name!r} like memories[{first}]; give each a name of its own")
    for at, (memory, other) in enumerate(itertools.pairwise(memories), 1):
        if other.bandwidth > memory.bandwidth:
            rates = [show_unit(each.bandwidth, "bandwidth") for each in (other, memory)]
            raise ValueError(f"memories[{at}] has {rates[0]}, memories[{at - 1}] {rates[1]}; list them fastest first")
