"""Ends of a graph: what its kernels take from DRAM and leave there, which no other kernel made or takes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dfopt.documents.base import Part
from dfopt.units import Bytes

__all__ = ["Input", "Output"]


class Input(Part):
    """What a kernel reads from DRAM because no kernel of the graph produces it.

    Attributes
    ----------
    dst : e.g. Q
        Name of the kernel that reads this input.
    bytes : e.g. 50 MB
        Size of the whole operand before any sharding. None: the size that follows from the shape of the kernel.
    operand : e.g. 2
        Input of a matmul or weight_update that this data feeds. ``1``: the k x n side. ``2``: the m x k side. None: the
        first side that no tensor feeds.
    """

    dst: str
    bytes: Bytes | None = Field(default=None, gt=0)
    operand: Literal[1, 2] | None = None


class Output(Part):
    """What a kernel writes to DRAM because no kernel of the graph consumes it.

    Attributes
    ----------
    src : e.g. FFN1
        Name of the kernel that writes this output.
    bytes : e.g. 50 MB
        Amount of data that the kernel writes before any sharding. None: its whole output.
    """

    src: str
    bytes: Bytes | None = Field(default=None, gt=0)
