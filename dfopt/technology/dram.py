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
from numpy.typing import ArrayLike, NDArray

from dfopt.arrays import Floats
from dfopt.documents.stack_dram import DramTimings

LIMITS = ("activation", "row_to_row", "four_activate", "column", "port", "buffering")
"""What bounds a stream: tRC, tRRD, tFAW, tCCD, the bus, and Little's law."""


_KNEE = 4.0  # see above
_QUEUE_CLOCKS = 2  # one into the command queue and one back to the client, as in DRAMsim3
_FEW_BANKS = 4  # with fewer the scheduler decides whether their rows close together or in turn: up to 40 % either way
_VISITS_IN_QUEUE = 4  # the lookahead of the controller holds the visits of so many banks where bounds are reached
_SPARE = 2.0  # random visits are uneven: banks that could do so many times what the next limit allows do not bind
_ROUNDS = 4  # of the fixed point of latency and bandwidth; each leaves about a tenth of the change


@dataclass(frozen=True)
class ManyBounds:
    """Bandwidth limits of many access streams.

    ``limits`` (6, streams) is B/s under each of `LIMITS` alone, ``refresh`` and ``turnaround`` are the factors on them,
    ``bandwidth`` is the B/s that follow, and ``binding`` the smallest limit.
    """

    limits: Floats
    refresh: float
    turnaround: Floats
    bandwidth: Floats
    binding: NDArray[np.intp]


def bounds_of_streams(
    rows: Sequence[Sequence[float]], t: DramTimings, burst: float, refresh_rate: float = 1.0
) -> ManyBounds:
    """Bandwidth limits of many access streams, each alone on a DRAM channel, vectorized.

    Parameters
    ----------
    rows : (streams, 8)
        Bursts that a stream takes from a row each time it opens one; the banks and bank groups that it visits; whether
        at random (else in turn); its share of reads; seconds of its round trip outside the DRAM; bursts from one turn
        of the bus to the next, and requests in flight, both infinite where nothing limits them.
    burst : float
        Bytes of a burst.
    refresh_rate : float
        Refreshes per tREFI: 1 in normal use, 2 or 4 when hot, 0 for none.

    Examples
    --------
    Random transactions of one burst on a channel of HBM2 are bound by the four-activate window, 64 B x 4 each 16 ns:

    >>> from dfopt.documents.stack import Stack
    >>> from dfopt.documents.zoo import find
    >>> dram = Stack.load(find("stacks", "hbm2")).dram
    >>> row = [1, dram.banks, dram.bank_groups, True, 1.0, 0.0, np.inf, np.inf]
    >>> found = bounds_of_streams([row], dram.timings, dram.burst)
    >>> LIMITS[found.binding[0]], (found.bandwidth / 1e9).round(2).tolist()
    ('four_activate', [7.87])
    """
    streams = np.array(rows, dtype=float).reshape(-1, 8).T
    u, banks, groups, random, reads, _, turn, outstanding = streams
    across, within = max(t.tBL, t.tCCD_S), max(t.tBL, t.tCCD_L)
    read = t.tRCDRD + (u - 1) * within + t.tRTP + t.tRP
    wrote = t.tRCDWR + (u - 1) * within + t.CWL + t.tBL + t.tWR + t.tRP
    row = np.maximum(t.tRC or t.tRAS + t.tRP, np.where(reads < 0.5, wrote, read))
    # Visits in flight: with fewer than two, bursts follow each other in one bank group; random ones can meet in one.
    visits = np.maximum(1.0, outstanding / u)
    together = np.where(groups > 1, np.where(random > 0, groups ** (1 - visits), np.maximum(0.0, 2 - visits)), 1.0)
    column = across + together * (within - across)
    limits = np.empty((6, len(u)))
    with np.errstate(divide="ignore"):
        limits[0] = burst * u * banks / row
        limits[1] = burst * u / np.where(groups > 1, t.tRRD_S, t.tRRD_L)
        limits[2] = burst * u * 4 / np.float64(t.tFAW)
    limits[3] = burst / column
    limits[4] = burst / t.tBL
    refresh = refresh_share(t, refresh_rate)
    mixed = (reads > 0) & (reads < 1)
    read_to_write = max(t.CL + t.tBL - t.CWL, 0.0) + 2 * t.tCK if t.tRTW is None else t.tRTW
    lost = max(0.0, read_to_write + t.CWL + t.tBL + t.tWTR_L - 2 * across)
    turned = np.where(mixed, turn, 1.0) * column  # of pure streams the bus turns never: inf / inf
    turnaround = np.where(mixed, turned / (turned + lost), 1.0)
    busy = limits[:5].min(axis=0) * refresh * turnaround
    limits[5] = np.inf
    bandwidth = busy
    held = np.isfinite(outstanding)
    if held.any():
        limits[5, held] = _little(streams[:, held], row[held], busy[held], burst, t, refresh_rate)
        bandwidth = busy.copy()
        bandwidth[held] = knee(busy[held], limits[5, held])
    # what is no limit is none either when refreshes leave no time at all
    finite = np.isfinite(limits[:5])
    scaled = np.where(finite, np.where(finite, limits[:5], 0.0) * refresh * turnaround, np.inf)
    binding = np.argmin(np.vstack([scaled, limits[5:]]), axis=0)
    return ManyBounds(limits, refresh, turnaround, bandwidth, binding)


def refresh_share(t: DramTimings, refresh_rate: float = 1.0) -> float:
    """Share of time left by refreshes, including the precharge before and the activate after each."""
    return max(0.0, 1 - refresh_rate * (t.tRFC + t.tRP + t.tRCDRD + t.CL) / t.tREFI)


def knee(busy: ArrayLike, held: ArrayLike) -> Floats:
    """Bandwidth under two limits together, B/s: their power mean with the negative exponent ``-_KNEE``, below both.

    ``busy``, ``held``: bandwidth, B/s, that the busy time of banks or bus, and that requests in flight, allow.
    """
    with np.errstate(divide="ignore"):  # nothing to combine is a bandwidth of 0
        together: Floats = (np.asarray(busy) ** -_KNEE + np.asarray(held) ** -_KNEE) ** (-1 / _KNEE)
    return together


def out_of_range(
    bursts: float, banks: float, random: bool, reads: float, entries: float, limits: Sequence[float]
) -> str:
    """Reason why :func:`bounds_of_streams` is inaccurate for a stream (against DRAMsim3 and Ramulator), or empty.

    Parameters
    ----------
    bursts, banks, random, reads
        As of :func:`bounds_of_streams`, for one stream.
    entries
        Bursts that the controller sees at a time.
    limits
        `ManyBounds.limits` of the stream.

    Examples
    --------
    >>> out_of_range(32, 16, False, 1.0, 128, [4.0, 1.0, 1.0]), out_of_range(32, 2, False, 1.0, 128, [4.0, 1.0, 1.0])
    ('', '2 banks, fewer than 4')
    """
    if banks < _FEW_BANKS:
        return f"{banks:g} bank{'' if banks == 1 else 's'}, fewer than {_FEW_BANKS}"
    if 0 < reads < 1:
        return "a mix of reads and writes, whose turns the controller chooses"
    if entries < _VISITS_IN_QUEUE * bursts:
        return f"queues of {entries:g} bursts hold fewer than {_VISITS_IN_QUEUE} visits"
    busy = 1 - (1 - 1 / banks) ** (entries / bursts)  # visits that meet in one bank leave others idle
    if random and limits[0] / min(limits[1:]) * busy < _SPARE:
        return "random visits that meet in the same banks, with little to spare"
    return ""


def _little(streams: Floats, row: Floats, busy: Floats, burst: float, t: DramTimings, refresh_rate: float) -> Floats:
    """B/s of streams with a number of requests in flight; a fixed point, as latency depends on the bandwidth."""
    u, banks, *_, extra, _, outstanding = streams
    hit = t.CL + t.tBL + _QUEUE_CLOCKS * t.tCK
    pause = t.tRFC + t.tRP
    interval = t.tREFI / refresh_rate if refresh_rate else np.inf
    share = np.minimum(1.0, outstanding / u)
    flow: Floats = np.minimum(busy, outstanding * burst / (hit + extra))
    for step in range(_ROUNDS):
        latency = hit + share * (t.tRCDRD + t.tRP)
        if refresh_rate:
            # Of the visits between two refreshes, the first to each bank finds it closed: no precharge.
            visits = np.maximum(1.0, flow / burst / u * interval)
            first = banks * (1 - (1 - 1 / banks) ** visits) / visits
            latency = latency - share * first * t.tRP
        trip = latency + extra
        others = np.maximum(0.0, outstanding / u * latency / trip - 1)
        trip = trip + others / banks * row / 2
        # A round trip waits for what is left of a refresh that it meets; short trips all meet it, long ones seldom.
        lost = np.where(trip < pause, pause - trip / 2, pause**2 / (2 * trip)) / interval
        flow = outstanding * burst / trip * np.maximum(0.0, 1 - lost)
        if step < _ROUNDS - 1:
            flow = np.minimum(flow, busy)
    return flow
