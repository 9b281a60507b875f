"""Sizes of the components of a chip whose DRAM is bonded onto it, in place of shares of budgets."""

from __future__ import annotations

from typing import Final, Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.documents.technology import LinkRole
from dfopt.units import Bandwidth, Bytes

NetworkDie = Literal["logic", "dram"]
NETWORK_ON_LOGIC: Final = "network_on_logic"  # among what is searched: 1, or 0 where it is on a DRAM die


class DesignSizes(Part):
    """Sizes of the components of a stacked chip; compute units take the rest of the logic die.

    Attributes
    ----------
    dram_layers : layers, e.g. 8
        Number of DRAM dies on the logic die.
    connected_layers : layers, e.g. 6
        Number of these that move data at once. None: all.
    buffer : e.g. 256 KiB
        Capacity of the buffer of one unit of compute.
    buffer_port : e.g. 256 B
        Data that the buffer of one unit moves in a cycle.
    network_die : e.g. logic
        Die that carries the circuits of the network. ``logic``: the logic die, where they take area from the units.
        ``dram``: a DRAM die, where they take capacity from one layer.
    rate : e.g. {in_package: 256 GB/s, between_packages: 100 GB/s}
        Rate of a chip in one direction over all its links of a role: ``in_package``, ``between_packages``,
        ``between_nodes`` or ``between_dies``.

    Examples
    --------
    >>> DesignSizes(dram_layers=8, buffer=256 * 2**10, buffer_port=256).connected
    8
    """

    dram_layers: int = Field(ge=1, le=64)
    connected_layers: int | None = Field(default=None, ge=1, le=64)
    buffer: Bytes = Field(gt=0)
    buffer_port: Bytes = Field(gt=0)
    network_die: NetworkDie = "logic"
    rate: dict[LinkRole, Bandwidth] = Field(default_factory=dict)

    @property
    def connected(self) -> int:
        """Number of DRAM layers that transfer data at the same time."""
        return self.dram_layers if self.connected_layers is None else self.connected_layers

    @model_validator(mode="after")
    def _some_connected(self) -> Self:
        if self.connected > self.dram_layers:
            message = f"found {self.connected}, expected at most the {self.dram_layers} of dram_layers"
            raise problem(message, "lower it, or leave it out: then all are connected", "$.connected_layers")
        return self
