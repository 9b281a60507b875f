"""The formula of `dfopt.technology.dram` for streams of bursts that were checked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dfopt.technology.dram import LIMITS, ManyBounds, bounds_of_streams
from dram_channel.types import BandwidthBounds, Organisation, Stream, Timing, refuse

__all__ = ["bounds", "bounds_of_many"]


def bounds(stream: Stream, timing: Timing, organisation: Organisation, refresh_rate: float = 1.0) -> BandwidthBounds:
    """What limits one stream on one channel.

    Parameters
    ----------
    refresh_rate : float
        Refreshes per tREFI: 1 in normal use, 2 or 4 when hot, 0 for none.

    Raises
    ------
    SystemSpecError
        More banks than the channel has, or a negative refresh_rate.

    Examples
    --------
    Random transactions of one burst on an HBM2 channel are bound by the four-activate window, 4 x 64 B each 30 ns:

    >>> one = bounds(Stream(bytes=1e6, bursts_per_activation=1, random=True), Timing(), Organisation())
    >>> one.binding, round(one.limits["four_activate"] / 1e9, 2), round(one.bandwidth / 1e9, 2)
    ('four_activate', 8.53, 7.87)
    """
    many = bounds_of_many([stream], timing, organisation, refresh_rate)
    return BandwidthBounds(
        limits=dict(zip(LIMITS, many.limits[:, 0].tolist(), strict=True)),
        factors={"refresh": many.refresh, "turnaround": float(many.turnaround[0])},
        bandwidth=float(many.bandwidth[0]),
        binding=LIMITS[many.binding[0]],
        peak=organisation.peak(timing),
    )


def bounds_of_many(
    streams: Sequence[Stream], timing: Timing, organisation: Organisation, refresh_rate: float = 1.0
) -> ManyBounds:
    """What limits each of many streams, each alone on the channel.

    Examples
    --------
    >>> many = bounds_of_many([Stream(1e6, u) for u in (1, 4, 32)], Timing(), Organisation())
    >>> (many.bandwidth / 1e9).round(2).tolist(), [LIMITS[b] for b in many.binding]
    ([7.87, 29.52, 29.52], ['four_activate', 'column', 'column'])
    """
    if not 0 <= refresh_rate < float("inf"):
        refuse("refresh_rate", "value", refresh_rate, "a finite number >= 0")
    for stream in streams:
        if stream.banks > organisation.banks or stream.groups > organisation.bank_groups:
            found = f"{stream.banks:g} banks in {stream.groups:g} groups"
            refuse("stream", "banks", found, f"at most {organisation.banks} in {organisation.bank_groups}")
    rows = [
        (
            s.bursts_per_activation, s.banks, s.groups, s.random, s.read_share, s.extra_latency,
            np.inf if s.bursts_per_turnaround is None else s.bursts_per_turnaround,
            np.inf if s.outstanding is None else s.outstanding,
        )
        for s in streams
    ]  # fmt: skip
    return bounds_of_streams(rows, timing, float(organisation.burst_bytes), refresh_rate)
