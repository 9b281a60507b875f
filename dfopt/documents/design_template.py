"""What a system of derived chips is beside the chips: how they execute, and which networks use which links."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.documents.system import Tier
from dfopt.documents.technology import LinkRole
from dfopt.units import Bandwidth, Seconds


class TemplateDim(Part):
    """A network dim whose links are those of a role, or have a bandwidth of their own (a network beyond the chip)."""

    name: str = Field(min_length=1, pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")
    topology: Literal["ring", "line", "switch", "fully_connected"]
    size: int = Field(ge=1, le=10**7)
    links: LinkRole | None = Field(default=None, description="role whose links the ports of all its dims share")
    link_bandwidth: Bandwidth | None = Field(default=None, gt=0, description="per link and direction, without a role")
    latency: Seconds | None = Field(default=None, ge=0, description="of one hop; none = that of the role, or 0")
    tier: Tier | None = Field(default=None, description="where the links of this dim run")
    in_network_reduction: bool = Field(default=False, description="of a switch: it adds and multicasts")
    link_usd_per_gb_s: float | None = Field(default=None, ge=0, description="price of a link in USD per GB/s")
    link_w_per_gb_s: float | None = Field(
        default=None, ge=0, description="power of a link in W per GB/s; none = of a role: in that of the chip"
    )
    switch_usd_per_gb_s: float | None = Field(default=None, ge=0, description="of a switch: USD per GB/s of each port")
    switch_w_per_gb_s: float | None = Field(default=None, ge=0, description="of a switch: W per GB/s of each port")

    @property
    def ports(self) -> int:
        """Links of this dim that a chip has."""
        return {"switch": 1, "ring": 2, "line": 2, "fully_connected": max(self.size - 1, 1)}[self.topology]

    @model_validator(mode="after")
    def _has_one_rate(self) -> Self:
        if (self.links is None) == (self.link_bandwidth is None):
            found = "neither" if self.links is None else "both"
            message = f"found {found} of links and link_bandwidth, expected one of them"
            raise problem(message, "links: ROLE takes the rate from the design", "$.links")
        return self


class Template(Part):
    """How derived chips make a system: what of theirs mappings use, and which networks join them.

    The share of peak that kernels sustain is ``core.utilization`` of the technology.

    Examples
    --------
    >>> node = TemplateDim(name="node", topology="switch", size=8, links="between_packages")
    >>> Template(sram="L2", network=(node,)).network[0].ports
    1
    """

    sram: str = Field(description="the SRAM level that mappings fill: what they call sram")
    execution: Literal["dataflow", "kernel_by_kernel"] = Field(
        default="dataflow", description="whether kernels may be fused on the chip, or run one after another"
    )
    tiles: int | None = Field(default=None, ge=1, le=10**7, description="compute tiles; none = a tile is a cluster")
    network: tuple[TemplateDim, ...] = Field(default=(), max_length=8)
    collective_overhead: Seconds = Field(default=0.0, ge=0, description="of software, to start collectives of any size")
