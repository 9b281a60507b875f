"""The bandwidth of a stream of bursts from the timing of its DRAM: the smallest of a few bounds, nothing fitted.

A stream takes u bursts of S bytes from a row each time it opens one, from B banks in G bank groups::

    t_row      = max(tRC, tRCD + (u-1) tCCD_L + tRTP + tRP)         reads: a row from one activate to the next
               = max(tRC, tRCD + (u-1) tCCD_L + CWL + tBL + tWR + tRP)   writes
    activation = S u B / t_row           row_to_row = S u / tRRD        four_activate = 4 S u / tFAW
    column     = S / max(tBL, tCCD)      port       = S / tBL

The first five times are those that JEDEC (JESD235, JESD238) sets between two commands, so these are true bounds. An
all-bank refresh each tREFI takes tRFC, and the bus idles while a row is closed before it and opened after it::

    refresh    = 1 - (tRFC + tRP + tRCD + CL) / tREFI

A client with W requests in flight (Little's law: bandwidth x round trip = bytes in flight) gets ``W S / (L + extra)``.
The latency L of an unloaded channel has CL + tBL and two clocks of queues; an activate, of which a visit of u bursts
pays one (so W < u requests in flight share it); a precharge unless a refresh has closed the bank since; and half a row
time for each other visit in flight in the same bank. A refresh holds up a round trip that meets it, and no other. Both
limits together: ``(a**-4 + b**-4)**(-1/4)``; the fourth power is a convention for such a knee.

Mixes: each turn of the bus from reads to writes and back costs tRTW + CWL + tBL + tWTR less two bursts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dfopt.technology.dram.types import BandwidthBounds, Organisation, Stream, Timing, refuse

__all__ = ["LIMITS", "ManyBounds", "bounds", "bounds_of_many", "bounds_of_table"]

LIMITS = ("activation", "row_to_row", "four_activate", "column", "port", "buffering")

Floats = NDArray[np.float64]

_KNEE = 4.0  # see above
_QUEUE_CLOCKS = 2  # one into the command queue and one back to the client, as in DRAMsim3
_ROUNDS = 4  # of the fixed point of latency and bandwidth; each leaves about a tenth of the change


@dataclass(frozen=True)
class ManyBounds:
    """`BandwidthBounds` of many streams: ``limits`` is (6, streams) in the order of `LIMITS`, the rest (streams,)."""

    limits: Floats
    refresh: Floats
    turnaround: Floats
    bandwidth: Floats
    binding: NDArray[np.intp]


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
        factors={"refresh": float(many.refresh[0]), "turnaround": float(many.turnaround[0])},
        bandwidth=float(many.bandwidth[0]),
        binding=LIMITS[many.binding[0]],
        peak=organisation.peak(timing),
    )


def row_seconds(u: Floats, write: NDArray[np.bool_] | bool, timing: Timing) -> Floats:
    """Seconds from one activate of a bank to the next, with u bursts in between."""
    bursts = (u - 1) * timing.column(1)
    read = timing.tRCD_read + bursts + timing.tRTP_L + timing.tRP
    wrote = timing.tRCD_write + bursts + timing.CWL + timing.tBL + timing.tWR + timing.tRP
    longest: Floats = np.maximum(timing.tRC, np.where(write, wrote, read))
    return longest


def refresh_factor(timing: Timing, refresh_rate: float) -> float:
    """Share of the time in which a busy channel moves data, not refreshing and not reopening its rows."""
    lost = timing.tRFC + timing.tRP + timing.tRCD_read + timing.CL
    return max(0.0, 1 - refresh_rate * lost / timing.tREFI)


def bounds_of_many(
    streams: Sequence[Stream], timing: Timing, organisation: Organisation, refresh_rate: float = 1.0
) -> ManyBounds:
    """What limits each of many streams, each alone on the channel, in a few numpy operations.

    Examples
    --------
    >>> many = bounds_of_many([Stream(1e6, u) for u in (1, 4, 32)], Timing(), Organisation())
    >>> (many.bandwidth / 1e9).round(2).tolist(), [LIMITS[b] for b in many.binding]
    ([7.87, 29.52, 29.52], ['four_activate', 'column', 'column'])
    """
    rows = [
        (
            s.bursts_per_activation, s.banks, s.groups, s.random, s.read_share, s.extra_latency,
            np.inf if s.bursts_per_turnaround is None else s.bursts_per_turnaround,
            np.inf if s.outstanding is None else s.outstanding,
        )
        for s in streams
    ]  # fmt: skip
    return bounds_of_table(rows, timing, organisation, refresh_rate)


def bounds_of_table(
    rows: Sequence[Sequence[float]], timing: Timing, organisation: Organisation, refresh_rate: float = 1.0
) -> ManyBounds:
    """`bounds_of_many` for streams that are known to be in range, as rows of numbers.

    Parameters
    ----------
    rows : (streams, 8)
        What `Stream` has: bursts_per_activation, banks, groups, random, read_share, extra_latency in seconds,
        bursts_per_turnaround, outstanding; the last two infinite for None.

    Examples
    --------
    >>> row = [1, 16, 4, False, 1.0, 0.0, np.inf, np.inf]
    >>> round(float(bounds_of_table([row], Timing(), Organisation()).bandwidth[0]) / 1e9, 2)
    7.87
    """
    if not 0 <= refresh_rate < float("inf"):
        refuse("refresh_rate", "value", refresh_rate, "a finite number >= 0")
    u, banks, groups, random, reads, extra, turn, outstanding = np.array(rows, dtype=float).reshape(-1, 8).T
    if np.any(banks > organisation.banks) or np.any(groups > organisation.bank_groups):
        index = int(np.argmax((banks > organisation.banks) | (groups > organisation.bank_groups)))
        found = f"{banks[index]:g} banks in {groups[index]:g} groups"
        refuse("stream", "banks", found, f"at most {organisation.banks} in {organisation.bank_groups}")
    size = float(organisation.burst_bytes)
    row = row_seconds(u, reads < 0.5, timing)
    # Visits in flight: with fewer than two, bursts follow each other in one bank group; random ones can meet in one.
    visits = np.maximum(1.0, outstanding / u)
    together = np.where(groups > 1, np.where(random > 0, groups ** (1 - visits), np.maximum(0.0, 2 - visits)), 1.0)
    across, within = timing.column(2), timing.column(1)
    column = across + together * (within - across)
    rrd = np.where(groups > 1, timing.tRRD_S, timing.tRRD_L)
    limits = np.empty((6, len(u)))
    with np.errstate(divide="ignore"):
        limits[0] = size * u * banks / row
        limits[1] = size * u / rrd
        limits[2] = size * u * 4 / np.float64(timing.tFAW)
    limits[3] = size / column
    limits[4] = size / timing.tBL
    refresh = np.full(len(u), refresh_factor(timing, refresh_rate))
    mixed = (reads > 0) & (reads < 1)
    lost = np.maximum(0.0, timing.tRTW + timing.CWL + timing.tBL + timing.tWTR_L - 2 * across)
    turned = np.where(mixed, turn, 1.0) * column  # of pure streams the bus turns never: inf / inf
    turnaround = np.where(mixed, turned / (turned + lost), 1.0)
    busy = limits[:5].min(axis=0) * refresh * turnaround
    limits[5] = np.inf
    bandwidth = busy
    held = np.isfinite(outstanding)
    if held.any():
        limits[5, held] = _little(
            u[held], banks[held], outstanding[held], extra[held], row[held], busy[held], size, timing, refresh_rate
        )
        bandwidth = busy.copy()
        with np.errstate(divide="ignore"):  # nothing to combine is a bandwidth of 0
            bandwidth[held] = (busy[held] ** -_KNEE + limits[5, held] ** -_KNEE) ** (-1 / _KNEE)
    # what is no limit is none either when refreshes leave no time at all
    finite = np.isfinite(limits[:5])
    scaled = np.where(finite, np.where(finite, limits[:5], 0.0) * refresh * turnaround, np.inf)
    binding = np.argmin(np.vstack([scaled, limits[5:]]), axis=0)
    return ManyBounds(limits, refresh, turnaround, bandwidth, binding)


def _little(
    u: Floats, banks: Floats, outstanding: Floats, extra: Floats, row: Floats, busy: Floats,
    size: float, timing: Timing, refresh_rate: float,
) -> Floats:  # fmt: skip
    """B/s of clients with a number of requests in flight; a fixed point, as latency depends on the bandwidth."""
    hit = timing.CL + timing.tBL + _QUEUE_CLOCKS * timing.tCK
    pause = timing.tRFC + timing.tRP
    interval = timing.tREFI / refresh_rate if refresh_rate else np.inf
    share = np.minimum(1.0, outstanding / u)
    flow = np.minimum(busy, outstanding * size / (hit + extra))
    for step in range(_ROUNDS):
        latency = hit + share * (timing.tRCD_read + timing.tRP)
        if refresh_rate:
            # Of the visits between two refreshes, the first to each bank finds it closed: no precharge.
            visits = np.maximum(1.0, flow / size / u * interval)
            first = banks * (1 - (1 - 1 / banks) ** visits) / visits
            latency = latency - share * first * timing.tRP
        trip = latency + extra
        others = np.maximum(0.0, outstanding / u * latency / trip - 1)
        trip = trip + others / banks * row / 2
        # A round trip waits for what is left of a refresh that it meets; short trips all meet it, long ones seldom.
        lost = np.where(trip < pause, pause - trip / 2, pause**2 / (2 * trip)) / interval
        flow = outstanding * size / trip * np.maximum(0.0, 1 - lost)
        if step < _ROUNDS - 1:
            flow = np.minimum(flow, busy)
    return flow
