"""DRAM as it really is: the streams that each partition sends to memory, and how fast those are served.

The bytes are those of `dfopt.judge.traffic`, term by term. How they lie in memory is assumed:

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dfopt.documents.stack import Stack
from dfopt.errors import Issue, SystemSpecError
from dfopt.judge.case import Case, Fan, Place
from dfopt.judge.traffic import WeightParts
from dfopt.technology.dram.bounds import LIMITS, bounds_of_table
from dfopt.technology.stack_models import organisation_of, timing_of


class Flow(NamedTuple):
    """Bytes that a partition moves in one pattern, for one microbatch and one layer.

    ``run`` is how many of them are contiguous; ``scattered`` says that each run is somewhere else.
    """

    place: Place
    what: str
    bytes: float
    run: float
    write: bool
    scattered: bool = False


def flows(case: Case, tiling: WeightParts) -> list[Flow]:
    """Everything that moves to or from DRAM; the bytes of a partition sum to `traffic.dram_traffic`."""
    return [flow for flow in _flows(case, tiling) if flow.bytes > 0]


def _flows(case: Case, tiling: WeightParts) -> Iterator[Flow]:
    for fan in case.fans:
        if not fan.away:
            continue
        run = _run(case, fan)
        yield Flow(fan.home, "tensors", fan.chip, run, write=True)
        for place in sorted(fan.away):
            yield Flow(place, "tensors", fan.chip, run, write=False)
    for fan in case.written_between_layers:
        run = _run(case, fan)
        yield Flow(fan.home, "tensors", fan.chip, run, write=True)
        yield Flow(case.place(fan.readers[0]), "tensors", fan.chip, run, write=False)
    for one in case.kernels:
        kernel = one.kernel
        if one.weight and case.assume.weights_from_dram:
            yield Flow(one.place, "weights", one.weight, one.weight, write=False)
        own, moved = kernel.dram_bytes_per_chip, kernel.dram_bytes / case.plan.shards
        if own:
            yield Flow(one.place, "own data", own, own, write=False)
        if moved:
            row = float(kernel.m * case.graph.word_bytes)
            written = 0.0 if one.forward else moved / 2
            yield Flow(one.place, "lookups", moved - written, min(row, moved), write=False, scattered=True)
            yield Flow(one.place, "lookups", written, min(row, moved), write=True, scattered=True)
        if one.accumulator:
            yield Flow(one.place, "gradients", one.accumulator, one.accumulator, write=False)
            yield Flow(one.place, "gradients", one.accumulator, one.accumulator, write=True)
    if case.assume.weight_tiling in ("reread", "reread_all") and tiling.parts:
        for fan in (*case.fans, *case.written_between_layers):
            for number in sorted(tiling.parts.keys() & fan.readers):
                again = (tiling.parts[number] - 1) * fan.chip
                yield Flow(case.place(number), "tensors", again, _run(case, fan), write=False)
    if case.assume.weight_tiling == "reread_all":
        for fan in case.fans:
            if fan.src in tiling.parts:
                again = (tiling.parts[fan.src] - 1) * fan.chip
                yield Flow(fan.home, "tensors", again, _run(case, fan), write=True)


def _run(case: Case, fan: Fan) -> float:
    """Contiguous bytes of a stored tensor."""
    placed, degree = case.kernels[fan.src], case.plan.shards
    kernel, word = placed.kernel, case.graph.word_bytes
    if placed.sharding == "m" and degree > 1:
        return min(float(-(-kernel.m // degree) * word), fan.chip)
    if fan.tile >= fan.chip:
        return fan.chip
    rows = -(-kernel.n // case.tile_count)
    return min(float(rows * kernel.m * word), fan.chip)


@dataclass(frozen=True)
class Served:
    """What a partition's streams get at one refresh rate, over all channels: seconds, B/s, and what binds."""

    seconds: float
    bandwidth: float
    binding: str


@dataclass(frozen=True)
class Commands:
    """DRAM commands of one evaluation of a partition, over all channels, and its mean bursts per activate."""

    activates: float
    reads: float
    writes: float

    @property
    def bursts_per_activate(self) -> float:
        """Column accesses for each row that is opened; 0 without any."""
        return (self.reads + self.writes) / self.activates if self.activates else 0.0


class _Pattern(NamedTuple):
    """What one channel sees of a stream: bursts per activate, share of reads, whether rows come at random."""

    bursts: float
    reads: float
    scattered: bool


class _Channel(NamedTuple):
    """What a pattern gets of one channel: B/s, what binds it, and the share of time left by turning the bus round."""

    bandwidth: float
    binding: str
    turnaround: float


class Prepared(NamedTuple):
    """Streams as the channels see them, by the numbers of their patterns in the `Memory` that prepared them.

    ``turning`` is the mix that turns the bus round, ``parts`` each stream's pattern and bytes.
    """

    turning: int | None
    parts: tuple[tuple[int, float], ...]
    commands: Commands


class Memory:
    """The DRAM of a stack, asked for the streams of partitions.

    A partition's streams share the time: it is the sum over them of bytes / bandwidth, all channels alike. Where a
    partition reads and writes, the bus turns round after as many bursts as a channel can have outstanding (a
    controller serves what waits in one direction, then in the other).
    """

    def __init__(self, stack: Stack) -> None:
        self._name, self._dram = stack.name, stack.dram
        self._timing, self._organisation = timing_of(stack), organisation_of(stack)
        self._peak, self._row_bursts = stack.dram.peak, float(self._organisation.bursts_per_row)
        self._patterns: dict[_Pattern, int] = {}  # and their numbers, from 0
        self._known: dict[float, list[_Channel]] = {}  # of each refresh rate, by number

    def prepared(self, streams: Sequence[Flow]) -> Prepared:
        """The streams of a partition, ready to be served; all that are prepared are looked at together."""
        if not streams:
            return Prepared(None, (), Commands(0.0, 0.0, 0.0))
        bursts = [self.bursts_per_activate(flow) for flow in streams]
        commands = self._commands(streams, bursts)
        share = commands.reads / (commands.reads + commands.writes)
        # What turning the bus round costs does not depend on rows.
        turning = self._number(_Pattern(self._row_bursts, share, scattered=False))
        parts = tuple(
            (self._number(_Pattern(burst, 0.0 if flow.write else 1.0, flow.scattered)), flow.bytes)
            for burst, flow in zip(bursts, streams, strict=True)
        )
        return Prepared(turning, parts, commands)

    def bursts_per_activate(self, flow: Flow) -> float:
        """Bursts that a stream takes from a row each time it is opened, between 1 and all of the row."""
        dram = self._dram
        local = flow.run
        if flow.run > dram.interleave:
            local = max(dram.interleave, flow.run / dram.channels)
        return min(max(local / dram.burst, 1.0), self._row_bursts)

    def commands(self, streams: Sequence[Flow]) -> Commands:
        """Activates and bursts of one evaluation."""
        return self._commands(streams, [self.bursts_per_activate(flow) for flow in streams])

    def _commands(self, streams: Sequence[Flow], bursts: Sequence[float]) -> Commands:
        size = self._dram.burst
        return Commands(
            activates=math.fsum([flow.bytes / burst for burst, flow in zip(bursts, streams, strict=True)]) / size,
            reads=math.fsum([flow.bytes for flow in streams if not flow.write]) / size,
            writes=math.fsum([flow.bytes for flow in streams if flow.write]) / size,
        )

    def serve(self, streams: Sequence[Flow], refresh_rate: float) -> Served:
        """Time of one evaluation's streams, and the limit that most of it is spent under."""
        return self.serve_prepared(self.prepared(streams), refresh_rate)

    def serve_prepared(self, streams: Prepared, refresh_rate: float) -> Served:
        """`serve` for streams that are asked for again and again."""
        if streams.turning is None:
            return Served(0.0, self._peak, "none")
        channels = self._channels(refresh_rate)
        turn, count = channels[streams.turning].turnaround, self._dram.channels
        spent: dict[str, list[float]] = defaultdict(list)
        for number, size in streams.parts:
            channel = channels[number]
            spent[channel.binding].append(size / (channel.bandwidth * count * turn))
        sums = {name: math.fsum(times) for name, times in spent.items()}
        seconds, longest = math.fsum(sums.values()), max(sums, key=sums.__getitem__)
        return Served(seconds, math.fsum(size for _, size in streams.parts) / seconds, longest)

    def _number(self, pattern: _Pattern) -> int:
        return self._patterns.setdefault(pattern, len(self._patterns))

    def _channels(self, rate: float) -> list[_Channel]:
        """What every pattern so far gets at a refresh rate; those not known yet are looked at together."""
        known = self._known.setdefault(rate, [])
        missing = list(self._patterns)[len(known) :] if len(known) < len(self._patterns) else []
        if missing:
            dram, organisation = self._dram, self._organisation
            alike = (dram.buffers.round_trip, dram.buffers.requests, dram.buffers.requests)
            banks = (organisation.banks, organisation.bank_groups)
            rows = [(one.bursts, *banks, one.scattered, one.reads, *alike) for one in missing]
            found = bounds_of_table(rows, self._timing, organisation, rate)
            bandwidth, turnaround = found.bandwidth.tolist(), found.turnaround.tolist()
            if not min(bandwidth) > 0:
                message = f"at {rate:.6g} times the normal refresh rate the DRAM does nothing but refresh"
                raise SystemSpecError(self._name, [Issue("$.dram.refresh", message, "lower the rate, or tRFC")])
            # Where column commands come as fast as the bus can take their data, it is the bus that binds.
            limits = dict(zip(LIMITS, found.limits.tolist(), strict=True))
            as_fast = [one >= bus * (1 - 1e-12) for one, bus in zip(limits["column"], limits["port"], strict=True)]
            names = [LIMITS[each] for each in found.binding.tolist()]
            names = ["port" if name == "column" and fast else name for name, fast in zip(names, as_fast, strict=True)]
            known.extend(map(_Channel, bandwidth, names, turnaround))
        return known
