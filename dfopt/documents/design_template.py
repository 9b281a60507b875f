"""What a system of derived chips is beside the chips: how they execute, and which networks use which links."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.documents.system import Tier
from dfopt.documents.technology import LinkRole
from dfopt.units import Bandwidth, Seconds


class TemplateDim(Part):
    """Network dim of a derived system, with the links of a chip role or a bandwidth of its own.

    Attributes
    ----------
    name : e.g. node
        Name of this network dimension, to which plans refer.
    topology : e.g. switch
        Wiring of the chips along this dimension. ``ring``: each chip has two neighbours in a closed ring. ``line``: an
        open ring. ``switch``: every chip has one port to a switch. ``fully_connected``: every chip has a link to every
        other one.
    size : chips, e.g. 8
        Number of chips along this dimension.
    links : e.g. between_packages
        Role of the chip's links that this dimension uses. Dims of the same role share them. ``in_package``: links
        inside a package. ``between_packages``: links between packages. ``between_nodes``: links between nodes.
        ``between_dies``: links that join the dies of one chip, which no dim may use. None: ``link_bandwidth`` gives
        the rate.
    link_bandwidth : e.g. 50 GB/s
        Bandwidth of one link in one direction, for a network without links of the chip. None: ``links`` names a role.
    latency : e.g. 700 ns
        Latency of one hop between chips. None: that of the role, or 0.
    tier : e.g. node
        Place where the links of this dimension run. ``package``: inside a package. ``node``: inside a node. ``rack``:
        inside a rack. ``cluster``: between racks. None: unknown.
    in_network_reduction : e.g. true
        Whether the switch itself adds and multicasts data, so that each chip sends a sum only once.
    link_usd_per_gb_s : USD per GB/s, e.g. 0.2
        Price of one link per GB/s (1e9 B/s) of its bandwidth. None: unknown.
    link_w_per_gb_s : W per GB/s, e.g. 0.05
        Power of one link per GB/s (1e9 B/s) of its bandwidth. None: the power of the chip includes it where a role
        gives the links, otherwise unknown.
    switch_usd_per_gb_s : USD per GB/s, e.g. 1.5
        Price of a switch per GB/s (1e9 B/s) of each of its ports. None: unknown.
    switch_w_per_gb_s : W per GB/s, e.g. 0.1
        Power of a switch per GB/s (1e9 B/s) of each of its ports. None: unknown.
    """

    name: str = Field(min_length=1, pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")
    topology: Literal["ring", "line", "switch", "fully_connected"]
    size: int = Field(ge=1, le=10**7)
    links: LinkRole | None = None
    link_bandwidth: Bandwidth | None = Field(default=None, gt=0)
    latency: Seconds | None = Field(default=None, ge=0)
    tier: Tier | None = None
    in_network_reduction: bool = False
    link_usd_per_gb_s: float | None = Field(default=None, ge=0)
    link_w_per_gb_s: float | None = Field(default=None, ge=0)
    switch_usd_per_gb_s: float | None = Field(default=None, ge=0)
    switch_w_per_gb_s: float | None = Field(default=None, ge=0)

    @property
    def ports(self) -> int:
        """Number of links that a chip has in this dim."""
        return {"switch": 1, "ring": 2, "line": 2, "fully_connected": max(self.size - 1, 1)}[self.topology]

    @model_validator(mode="after")
    def _has_one_rate(self) -> Self:
        if (self.links is None) == (self.link_bandwidth is None):
            which = "neither" if self.links is None else "both"
            message = f"found {which} of links and link_bandwidth, expected one of them"
            raise problem(message, "links: ROLE takes the rate from the design", "$.links")
        return self


class Template(Part):
    """How derived chips form a system: the SRAM that mappings use, and the networks.

    The share of peak that kernels sustain is ``core.utilization`` of the technology.

    Attributes
    ----------
    sram : e.g. L2
        Name of the SRAM level that mappings fill as the chip's SRAM.
    execution : e.g. dataflow
        How the chip runs the kernels of a graph. ``dataflow``: several kernels may be fused into one on-chip partition.
        ``kernel_by_kernel``: one kernel runs after another.
    tiles : tiles, e.g. 64
        Number of compute tiles that dfopt can assign to kernels. None: one tile for each cluster.
    network : e.g. [{name: node, topology: switch, size: 8, links: between_packages}]
        Network dimensions of the system, innermost first.
    collective_overhead : e.g. 5 us
        Time that software takes to start a collective of any size.

    Examples
    --------
    >>> node = TemplateDim(name="node", topology="switch", size=8, links="between_packages")
    >>> Template(sram="L2", network=(node,)).network[0].ports
    1
    """

    sram: str
    execution: Literal["dataflow", "kernel_by_kernel"] = "dataflow"
    tiles: int | None = Field(default=None, ge=1, le=10**7)
    network: tuple[TemplateDim, ...] = Field(default=(), max_length=8)
    collective_overhead: Seconds = Field(default=0.0, ge=0)
