r"""Dims as ``collective_model: two_stage`` prices them: with acknowledgements, and with the headers of packets.

A round of an algorithm ends when its messages are *acknowledged*, not when their last byte arrives: it takes two
latencies a. And a message of m bytes travels in packets of at most P bytes of payload with H bytes of header each,
ceil(m/P) (P + H) bytes in all but the last, short one. ceil is not affine; taken is m/P + 1, which is an upper bound,
at most one header too many per message, and right for the small messages that this model is for. So a dim with links
of bandwidth b is replaced by one with ::

    bandwidth' = b P / (P + H)          latency' = 2 a + H / b

and the algorithms of `dfopt.physics.collectives_exact` are priced on that: one message per link and round.
"""

from __future__ import annotations

from dataclasses import replace

from dfopt.physics.collectives_types import Dim


def charged(dim: Dim) -> Dim:
    """The dim with bandwidth and latency of the ``two_stage`` model: packet headers and acknowledgement included.

    Measured factors are not changed: their latency is that of the whole collective, and their share of the bandwidth
    includes the headers, but it is at most the share that headers leave.

    Examples
    --------
    >>> from dfopt.physics.collectives_types import Topology
    >>> link = Dim("x", Topology.RING, 2, 32e9, 32e-9, packet_payload=1000.0, packet_header=36.0)
    >>> f"{charged(link).bandwidth:.4g} B/s, {charged(link).latency * 1e9:.5g} ns"
    '3.089e+10 B/s, 65.125 ns'
    """
    payload = 1.0
    header = 0.0
    if dim.packet_payload is not None:
        payload = dim.packet_payload / (dim.packet_payload + dim.packet_header)
        header = dim.packet_header / dim.bandwidth
    return replace(
        dim,
        bandwidth=dim.bandwidth * payload,
        latency=2 * dim.latency + header,
        factors=tuple(f._replace(bandwidth_share=min(1.0, f.bandwidth_share / payload)) for f in dim.factors),
    )
