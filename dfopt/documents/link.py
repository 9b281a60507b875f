"""One link of a network: what joins two chips, or a chip and a switch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dfopt.documents.base import Part
from dfopt.units import Bandwidth, Bytes, Seconds

Tier = Literal["package", "node", "rack", "cluster"]
# What fields of a link are called in a dim of a network; the others have the same name there.
IN_A_DIM = {"bandwidth": "link_bandwidth", "usd_per_gb_s": "link_usd_per_gb_s", "w_per_gb_s": "link_w_per_gb_s"}


class Link(Part):
    """A full-duplex link, such as one NVLink connection or one Ethernet port."""

    bandwidth: Bandwidth = Field(gt=0, description="per link and direction")
    latency: Seconds = Field(default=0.0, ge=0, description="of one hop; through a switch: chip to chip")
    tier: Tier | None = Field(default=None, description="where the link runs")
    packet_payload: Bytes | None = Field(
        default=None, gt=0, description="most bytes of a message in one packet, for collective_model: two_stage"
    )
    packet_header: Bytes | None = Field(default=None, ge=0, description="bytes that each packet carries beside them")
    usd_per_gb_s: float | None = Field(default=None, ge=0, description="price of the link in USD per GB/s")
    w_per_gb_s: float | None = Field(default=None, ge=0, description="power of the link in W per GB/s")
    switch_usd_per_gb_s: float | None = Field(default=None, ge=0, description="of a switch: USD per GB/s of each port")
    switch_w_per_gb_s: float | None = Field(default=None, ge=0, description="of a switch: W per GB/s of each port")
