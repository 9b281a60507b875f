"""Ends of a graph: what its kernels take from DRAM and leave there, which no other kernel made or takes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dfopt.documents.base import Part
from dfopt.units import Bytes

__all__ = ["Input", "Output"]


class Input(Part):
    """What a kernel reads from DRAM because no kernel of the graph produces it."""

    dst: str
    bytes: Bytes | None = Field(default=None, gt=0, description="of the whole operand; by the kernel's shape")
    operand: Literal[1, 2] | None = Field(default=None, description="as of a tensor; the first that no tensor brings")


class Output(Part):
    """What a kernel writes to DRAM because no kernel of the graph consumes it."""

    src: str
    bytes: Bytes | None = Field(default=None, gt=0, description="of what is written; the kernel's whole output")
