r"""Time of a collective packet by packet, as the packet simulator NS-3 has it under ASTRA-sim.

Notation and volumes are those of `dfopt.physics.collectives`. ``network3d.py`` beside this file compares it with
published NS-3 times; everything said below was found from those times, which it reproduces row by row, not from the
simulator's source:

- every packet takes a whole number of clock ticks on a link, ``round((payload + header) / b)`` of 1 ns, which
  is why 1036 B at 128 B/ns take 8 ns and not 8.09;
- packets are stored and forwarded: behind a switch the next link starts when it has the whole packet;
- every packet is acknowledged by a short one. Where data flow both ways (pairs that exchange over a switch, a ring
  of two) acknowledgements take their turn on the links between the packets; on a ring of more chips, which sends one
  way round, they go back on links that carry no data, and only the last one is waited for;
- a round ends with the acknowledgement: two latencies;
- in an all-reduce the chips below a shared link fall out of step: while some wait for an acknowledgement, others
  send. A share ``overlap`` of the wait that could be hidden so is (0: in step, 1: served one chip after the other).
  Why only there is not known for certain: an all-reduce begins with its largest messages, which leave the chips
  spread for the small ones that follow; an all-gather begins with the smallest, and shows none of it.

The algorithms: recursive doubling (any n: Bruck) for the all-gather on a switch, halving for the reduce-scatter;
rings one way round; an all-to-all sends all messages at once on a switch, and on a ring passes the message for the
k-th chip on k times, n(n-1)/2 messages one after the other. Levels are used one after the other: a reduce-scatter
and an all-to-all from the innermost out, an all-gather from the outermost in, while a chip holds least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dfopt.physics.collectives_types import Collective, Topology

__all__ = ["Level", "Link", "Packets", "packet_seconds"]

_ROUNDING = 1e-9  # relative: bytes that fill packets exactly must not need one more for the rounding of a quotient


@dataclass(frozen=True)
class Packets:
    """How messages are cut into packets.

    Parameters
    ----------
    payload : float
        Most bytes of a message in one packet, above 0.
    header : float
        Bytes before the payload of each packet.
    acknowledgement : float
        Bytes of the packet that acknowledges another one; 0 takes no time on a link.
    tick : float
        Seconds of the clock that packet times are rounded to; 0 = not rounded.
    overlap : float
        `ALL_REDUCE` only: share, 0 to 1, of the wait for acknowledgements that the other chips of a shared link fill.

    Values outside these ranges raise `ValueError`.
    """

    payload: float
    header: float = 0.0
    acknowledgement: float = 0.0
    tick: float = 0.0
    overlap: float = 0.0

    def __post_init__(self) -> None:
        """Reject values that the formulas are not defined for (`not >` also catches NaN)."""
        if not 0 < self.payload < math.inf:
            raise ValueError(f"payload must be above 0 bytes and finite, got {self.payload}")
        for name in ("header", "acknowledgement", "tick"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be finite and >= 0, got {getattr(self, name)}")
        if not 0 <= self.overlap <= 1:
            raise ValueError(f"overlap must be in 0..1, got {self.overlap}")

    def seconds(self, size: float, bandwidth: float) -> float:
        """Time of one packet of `size` bytes, header included, on a link.

        Examples
        --------
        >>> Packets(1000.0, tick=1e-9).seconds(1036, 64e9)  # 16.19 ns
        1.6e-08
        """
        time = size / bandwidth
        return time if self.tick == 0 else math.floor(time / self.tick + 0.5 + _ROUNDING) * self.tick


@dataclass(frozen=True)
class Link:
    """A link on the way of a message, and how many chips send over it at the same time.

    Parameters
    ----------
    bandwidth : float
        Bytes per second, above 0.
    latency : float
        Seconds, at least 0.
    sharers : int
        Chips whose messages it carries at once, at least 1.
    """

    bandwidth: float
    latency: float = 0.0
    sharers: int = 1

    def __post_init__(self) -> None:
        """Reject values that the formulas are not defined for."""
        if not 0 < self.bandwidth < math.inf:
            raise ValueError(f"link: bandwidth must be above 0 and finite, got {self.bandwidth}")
        if not 0 <= self.latency < math.inf:
            raise ValueError(f"link: latency must be finite and >= 0, got {self.latency}")
        if self.sharers < 1:
            raise ValueError(f"link: sharers must be >= 1, got {self.sharers}")


@dataclass(frozen=True)
class Level:
    """One level of a network: `size` chips on a ring or a switch, and the links from one of them to the next.

    Parameters
    ----------
    topology : Topology
        `RING` (one way round, a link to the next chip) or `SWITCH`.
    size : int
        Chips, at least 1.
    path : tuple of Link
        What a message crosses: one link of a ring; port, switch, port of a switch: two links.
    """

    topology: Topology
    size: int
    path: tuple[Link, ...]

    def __post_init__(self) -> None:
        """Reject what has no rule here."""
        if self.topology not in (Topology.RING, Topology.SWITCH):
            raise ValueError(f"level: topology ring or switch expected, got {Topology(self.topology).value}")
        if self.size < 1:
            raise ValueError(f"level: size must be >= 1, got {self.size}")
        if not self.path or (self.topology is Topology.RING and len(self.path) != 1):
            raise ValueError(f"level: one link of a ring, one or more to and from a switch expected, got {self.path}")


def _message(
    volume: float, path: Sequence[Link], packets: Packets, *, both_ways: bool, messages: int = 1, overlap: float = 0.0
) -> float:
    """Seconds until equal messages, sent at once, are acknowledged.

    The slowest link is busy with all of them; on the others passes one packet more. `overlap` is the share of the wait
    in which other chips use that link.
    """
    count = max(1, math.ceil(volume / packets.payload * (1 - _ROUNDING)))
    rest = volume - (count - 1) * packets.payload
    busy, passing, acknowledged = [], [], []
    for link in path:
        full = packets.seconds(packets.payload + packets.header, link.bandwidth)
        last = packets.seconds(rest + packets.header, link.bandwidth)
        reply = packets.seconds(packets.acknowledgement, link.bandwidth)
        between = count * reply if both_ways else 0.0
        busy.append(messages * link.sharers * ((count - 1) * full + last + between))
        passing.append(full if count > 1 else last)
        acknowledged.append(reply)
    slowest = max(range(len(path)), key=busy.__getitem__)
    trip = 2 * sum(link.latency for link in path)
    total = trip + busy[slowest] + sum(passing) - passing[slowest] + sum(acknowledged)
    if both_ways:  # the slowest link has its replies among the packets
        total -= acknowledged[slowest]
    # What can be hidden: no more than the wait, and no more than the others have to send.
    return total - overlap * min(trip, busy[slowest] * (1 - 1 / path[slowest].sharers))


def _gather(shard: float, level: Level, packets: Packets, overlap: float) -> float:
    """All-gather of a shard from each chip of a level, or backwards the reduce-scatter to such shards."""
    n = level.size
    if level.topology is Topology.RING:
        return (n - 1) * _message(shard, level.path, packets, both_ways=n == 2, overlap=overlap)
    held = [1 << k for k in range((n - 1).bit_length())]  # shards that a chip has before each round
    return sum(
        _message(shard * min(have, n - have), level.path, packets, both_ways=True, overlap=overlap) for have in held
    )


def _exchange(held: float, level: Level, packets: Packets) -> float:
    """All-to-all in which each chip of a level has `held` bytes, the same for each chip of the level."""
    n = level.size
    part = held / n
    if level.topology is Topology.RING:
        return n * (n - 1) // 2 * _message(part, level.path, packets, both_ways=n == 2)
    return _message(part, level.path, packets, both_ways=True, messages=n - 1)


def packet_seconds(kind: Collective, volume: float, levels: Sequence[Level], packets: Packets) -> float:
    """Time of a collective, packet by packet.

    Parameters
    ----------
    kind : Collective
        All-gather, reduce-scatter, all-reduce or all-to-all.
    volume : float
        Bytes of the full logical tensor, as in `dfopt.physics.collectives`.
    levels : sequence of Level
        From the innermost out; those of one chip are left out.
    packets : Packets
        How messages are cut.

    Returns
    -------
    float
        Seconds; 0 for an empty volume or a single chip.

    Raises
    ------
    ValueError
        For a negative, infinite or NaN volume, or a kind that has no rule here.

    Examples
    --------
    >>> port = Link(32e9, 32e-9)
    >>> packets = Packets(1000, header=36, acknowledgement=40, tick=1e-9)
    >>> eight = [Level(Topology.SWITCH, 8, (port, port))]
    >>> f"{packet_seconds(Collective.ALL_REDUCE, 512, eight, packets) * 1e9:.0f} ns"
    '848 ns'
    """
    kind = Collective(kind)
    if not 0 <= volume < math.inf:
        raise ValueError(f"volume must be finite and >= 0, got {volume}")
    gathers = {Collective.ALL_GATHER: 1, Collective.REDUCE_SCATTER: 1, Collective.ALL_REDUCE: 2}
    if kind not in gathers and kind is not Collective.ALL_TO_ALL:
        known = ", ".join(k.value for k in (*gathers, Collective.ALL_TO_ALL))
        raise ValueError(f"{kind.value}: no rule packet by packet; one of {known} expected")
    used = [level for level in levels if level.size > 1]
    if volume == 0 or not used:
        return 0.0
    if kind is Collective.ALL_TO_ALL:
        held = volume / math.prod(level.size for level in used)
        return sum(_exchange(held, level, packets) for level in used)
    time, shard = 0.0, volume
    overlap = packets.overlap if kind is Collective.ALL_REDUCE else 0.0
    for level in used:
        shard /= level.size
        time += _gather(shard, level, packets, overlap)
    return gathers[kind] * time
