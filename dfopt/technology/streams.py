"""DRAM as it really is: the streams that go to memory, how fast they are served, and with which commands.

How bytes lie in memory is assumed:

* A tensor is stored row-major with the features ``m`` last, heads (``outer``) first, so that one token of one head is
  contiguous. Split by features, a chip's contiguous run is its share of them; otherwise it is the rows of one tile, or
  all of the tensor where it is not cut into tiles.
* Weights, gradient accumulators and ``dram_bytes_per_chip`` are contiguous.
* ``dram_bytes`` of a kernel (lookups) come row by row, ``m`` elements each, from anywhere; a kernel of the backward or
  update pass writes half of them back.
* Consecutive addresses go round the channels in pieces of ``interleave`` bytes and fill rows one after the other, so
  that a run longer than one piece meets each channel in at least one whole piece.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dfopt.documents.stack import Stack
from dfopt.errors import Issue, SystemSpecError
from dfopt.technology.dram import LIMITS, bounds_of_streams, out_of_range


class Flow(NamedTuple):
    """A data stream of one access pattern, for one microbatch and layer.

    Attributes
    ----------
    bytes : float, B
        Total bytes.
    run : float, B
        Contiguous bytes at a time.
    write : bool
        Whether they are written.
    scattered : bool
        Whether runs are at random addresses.
    """

    bytes: float
    run: float
    write: bool
    scattered: bool = False


def contiguous_bytes(held: float, tile: float, row: float, rows: int, split: int = 1) -> float:
    """Contiguous bytes of each run when a stored tensor is read tile by tile.

    Parameters
    ----------
    held, tile : float
        Bytes of the tensor on one chip, and in one tile.
    row : float
        Bytes of one token's features, those of a chip where they are split.
    rows : int
        Tokens in a tile.
    split : int
        Chips that share the features of a token; 1 where another axis is split, or none.

    Examples
    --------
    >>> contiguous_bytes(1024.0, 256.0, 16.0, 16), contiguous_bytes(1024.0, 256.0, 4.0, 16, split=4)
    (256.0, 4.0)
    """
    if split > 1:
        return min(row, held)
    return held if tile >= held else min(rows * row, held)


def lookups(moved: float, row: float, reads_only: bool) -> tuple[Flow, Flow]:
    """Read and write streams of row-by-row lookups.

    Parameters
    ----------
    moved : float, B
        Bytes read and written together.
    row : float, B
        Bytes of one row.
    reads_only : bool
        Whether rows are only read, and not updated.
    """
    written, run = 0.0 if reads_only else moved / 2, min(row, moved)
    return Flow(moved - written, run, write=False, scattered=True), Flow(written, run, write=True, scattered=True)


@dataclass(frozen=True)
class Served:
    """Service of a partition's streams at one refresh rate, over all channels.

    Attributes
    ----------
    seconds, bandwidth : float, s and B/s
        Time, and mean bandwidth.
    binding : str
        Limit with the largest part of the time.
    """

    seconds: float
    bandwidth: float
    binding: str


@dataclass(frozen=True)
class Commands:
    """DRAM commands of one evaluation of a partition, over all channels."""

    activates: float
    reads: float
    writes: float

    @property
    def bursts_per_activate(self) -> float:
        """Column accesses for each opened row; 0 without any."""
        return (self.reads + self.writes) / self.activates if self.activates else 0.0


class _Pattern(NamedTuple):
    """What one channel sees of a flow: bursts per activate, share of reads, whether rows come at random."""

    bursts: float
    reads: float
    scattered: bool


class _Channel(NamedTuple):
    """What a pattern gets of one channel: B/s, what binds it, the share of time left by turning the bus round.

    ``why_not`` says why the formula does not hold for it; empty where it does.
    """

    bandwidth: float
    binding: str
    turnaround: float
    why_not: str


class ByPattern(NamedTuple):
    """Streams of a partition as the channels see them, by pattern number in their `DramStreams`.

    ``turning`` is the mix that turns the bus round, ``parts`` each flow's pattern and bytes.
    """

    turning: int | None
    parts: tuple[tuple[int, float], ...]
    commands: Commands


class DramStreams:
    """DRAM of a stack as a server of the data streams of partitions.

    The flows of a partition share the time, which is the sum of bytes / bandwidth over them; all channels are equal. If
    a partition reads and writes, the controller queues the direction with fewer bursts until these fill half of a
    channel's queue, and then turns the bus for them, so that the number of turns is proportional to these bursts.
    """

    def __init__(self, stack: Stack) -> None:
        self._name, self._dram = stack.name, stack.dram
        self._row_bursts = self._dram.row / self._dram.burst
        self._patterns: dict[_Pattern, int] = {}  # and their numbers, from 0
        self._channels_by_rate: dict[float, list[_Channel]] = {}  # of each refresh rate, by number

    def by_pattern(self, flows: Sequence[Flow]) -> ByPattern:
        """Streams of a partition in the form that :meth:`serve` takes."""
        if not flows:
            return ByPattern(None, (), Commands(0.0, 0.0, 0.0))
        bursts, size = [self.bursts_per_activate(flow) for flow in flows], self._dram.burst
        commands = Commands(
            activates=math.fsum([flow.bytes / burst for burst, flow in zip(bursts, flows, strict=True)]) / size,
            reads=math.fsum([flow.bytes for flow in flows if not flow.write]) / size,
            writes=math.fsum([flow.bytes for flow in flows if flow.write]) / size,
        )
        share = commands.reads / (commands.reads + commands.writes)
        # What turning the bus round costs does not depend on rows.
        turning = self._number(_Pattern(self._row_bursts, share, scattered=False))
        parts = tuple(
            (self._number(_Pattern(burst, 0.0 if flow.write else 1.0, flow.scattered)), flow.bytes)
            for burst, flow in zip(bursts, flows, strict=True)
        )
        return ByPattern(turning, parts, commands)

    def bursts_per_activate(self, flow: Flow) -> float:
        """Bursts of a stream for each opened row, from 1 to all of the row."""
        dram = self._dram
        local = flow.run
        if flow.run > dram.interleave:
            local = max(dram.interleave, flow.run / dram.channels)
        return min(max(local / dram.burst, 1.0), self._row_bursts)

    def serve(self, flows: ByPattern, refresh_rate: float) -> Served:
        """Time of the streams of one evaluation, and the limit with the largest part of it."""
        if flows.turning is None:
            return Served(0.0, self._dram.peak, "none")
        channels = self._channels(refresh_rate)
        turn, count = channels[flows.turning].turnaround, self._dram.channels
        spent: dict[str, list[float]] = defaultdict(list)
        for number, size in flows.parts:
            channel = channels[number]
            spent[channel.binding].append(size / (channel.bandwidth * count * turn))
        seconds_by_limit = {name: math.fsum(times) for name, times in spent.items()}
        seconds, longest = math.fsum(seconds_by_limit.values()), max(seconds_by_limit, key=seconds_by_limit.__getitem__)
        return Served(seconds, math.fsum(size for _, size in flows.parts) / seconds, longest)

    def out_of_range(self, flows: ByPattern, refresh_rate: float) -> list[str]:
        """Reasons why :meth:`serve` is inaccurate for some streams; empty if it is not."""
        if flows.turning is None:
            return []
        channels = self._channels(refresh_rate)
        every = (channels[number].why_not for number in (flows.turning, *(number for number, _ in flows.parts)))
        return list(dict.fromkeys(why for why in every if why))

    def _number(self, pattern: _Pattern) -> int:
        return self._patterns.setdefault(pattern, len(self._patterns))

    def _channels(self, rate: float) -> list[_Channel]:
        """What every pattern so far gets at a refresh rate; those not known yet are looked at together."""
        channels = self._channels_by_rate.setdefault(rate, [])
        missing = list(self._patterns)[len(channels) :] if len(channels) < len(self._patterns) else []
        if missing:
            dram = self._dram
            requests = dram.buffers.requests
            rows = [
                (
                    pattern.bursts, dram.banks, dram.bank_groups, pattern.scattered, pattern.reads,
                    dram.buffers.round_trip, _bursts_per_turn(pattern.reads, requests), requests,
                )
                for pattern in missing
            ]  # fmt: skip
            bounds = bounds_of_streams(rows, dram.timings, dram.burst, rate)
            if not bounds.bandwidth.min() > 0:
                message = f"at {rate:.6g} times the normal refresh rate the DRAM does nothing but refresh"
                raise SystemSpecError(self._name, [Issue("$.dram.refresh", message, "lower the rate, or tRFC")])
            # Where column commands come as fast as the bus can take their data, it is the bus that binds.
            column, port = LIMITS.index("column"), LIMITS.index("port")
            as_fast = bounds.limits[column] >= bounds.limits[port] * (1 - 1e-12)
            binding = np.where((bounds.binding == column) & as_fast, port, bounds.binding)
            names = [LIMITS[each] for each in binding.tolist()]
            why_not = (
                out_of_range(pattern.bursts, dram.banks, pattern.scattered, pattern.reads, requests, limits)
                for pattern, limits in zip(missing, bounds.limits.T.tolist(), strict=True)
            )
            channels.extend(map(_Channel, bounds.bandwidth.tolist(), names, bounds.turnaround.tolist(), why_not))
        return channels


def _bursts_per_turn(reads: float, requests: float) -> float:
    """Bursts from one turn of the bus to the next, by the share of reads and what a channel can have outstanding.

    Examples
    --------
    >>> _bursts_per_turn(0.5, 128), _bursts_per_turn(0.75, 128), _bursts_per_turn(1.0, 128)
    (128.0, 256.0, inf)
    """
    fewer = min(reads, 1 - reads)
    return requests / 2 / fewer if fewer > 0 else math.inf
