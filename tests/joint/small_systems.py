"""Small machines by hand: chips of a few figures, alone or on rings."""

from __future__ import annotations

from typing import Any

from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System


def small_chip(sram: float = 1e9, bandwidth: float = 100.0, capacity: float | None = None, **fields: Any) -> Chip:
    """Eight tiles at 1000 FLOP/s and memories of these sizes; other fields by their names."""
    memories = {"sram": Sram(capacity=sram), "dram": Dram(bandwidth=bandwidth, capacity=capacity)}
    return Chip(**{"name": "c", "tiles": 8, "peak": 1e3, **memories, **fields})


def rings(*sizes: int, rate: float = 50.0, **fields: Any) -> tuple[NetworkDim, ...]:
    """Dims x, y and z of so many chips."""
    named = zip("xyz", sizes, strict=False)
    shape = {"topology": "ring", "link_bandwidth": rate, **fields}
    return tuple(NetworkDim(name=name, size=size, **shape) for name, size in named)


def small_system(*network: NetworkDim, **chip: Any) -> System:
    """Small chips on some dims."""
    return System(name="s", chip=small_chip(**chip), network=network)
