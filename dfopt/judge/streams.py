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
from dfopt.physics.dram.bounds import LIMITS, bounds_of_many
from dfopt.physics.dram.types import Organisation, Stream, Timing
from dfopt.physics.stack_models import organisation_of, timing_of


@dataclass(frozen=True)
class Flow:
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
        home, run = case.place(fan.src), _run(case, fan)
        away = {case.place(reader.kernel) for reader in fan.consumers} - {home}
        if away:
            yield Flow(home, "tensors", fan.chip, run, write=True)
        for place in sorted(away):
            yield Flow(place, "tensors", fan.chip, run, write=False)
    for fan in case.written_between_layers:
        run = _run(case, fan)
        yield Flow(case.place(fan.src), "tensors", fan.chip, run, write=True)
        yield Flow(case.place(fan.consumers[0].kernel), "tensors", fan.chip, run, write=False)
    for one in case.kernels:
        kernel = one.kernel
        if case.assume.weights_from_dram:
            yield Flow(one.place, "weights", one.weight, one.weight, write=False)
        own = kernel.dram_bytes_per_chip
        yield Flow(one.place, "own data", own, own, write=False)
        moved, row = kernel.dram_bytes / case.plan.tp, float(kernel.m * case.graph.word_bytes)
        written = 0.0 if one.forward else moved / 2
        yield Flow(one.place, "lookups", moved - written, min(row, moved), write=False, scattered=True)
        yield Flow(one.place, "lookups", written, min(row, moved), write=True, scattered=True)
        for write in (False, True):
            yield Flow(one.place, "gradients", one.accumulator, one.accumulator, write=write)
    if case.assume.weight_tiling in ("reread", "reread_all") and tiling.parts:
        for fan in (*case.fans, *case.written_between_layers):
            for number in sorted({reader.kernel for reader in fan.consumers} & tiling.parts.keys()):
                again = (tiling.parts[number] - 1) * fan.chip
                yield Flow(case.place(number), "tensors", again, _run(case, fan), write=False)
    if case.assume.weight_tiling == "reread_all":
        for fan in case.fans:
            if fan.src in tiling.parts:
                again = (tiling.parts[fan.src] - 1) * fan.chip
                yield Flow(case.place(fan.src), "tensors", again, _run(case, fan), write=True)


def _run(case: Case, fan: Fan) -> float:
    """Contiguous bytes of a stored tensor."""
    placed, degree = case.kernels[fan.src], case.plan.tp
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
    """Streams as the channels see them: the mix that turns the bus round, and each pattern with its bytes."""

    turning: _Pattern | None
    parts: tuple[tuple[_Pattern, float], ...]


class Memory:
    """The DRAM of a stack, asked for the streams of partitions.

    A partition's streams share the time: it is the sum over them of bytes / bandwidth, all channels alike. Where a
    partition reads and writes, the bus turns round after as many bursts as a channel can have outstanding (a
    controller serves what waits in one direction, then in the other).
    """

    def __init__(self, stack: Stack) -> None:
        self._name, self._dram = stack.name, stack.dram
        self._timing: Timing = timing_of(stack)
        self._organisation: Organisation = organisation_of(stack)
        self._patterns: set[_Pattern] = set()
        self._known: dict[tuple[_Pattern, float], _Channel] = {}

    def prepared(self, streams: Sequence[Flow]) -> Prepared:
        """The streams of a partition, ready to be served; all that are prepared are looked at together."""
        if not streams:
            return Prepared(None, ())
        whole = math.fsum(flow.bytes for flow in streams)
        reads = math.fsum(flow.bytes for flow in streams if not flow.write) / whole
        # What turning the bus round costs does not depend on rows.
        turning = _Pattern(float(self._organisation.bursts_per_row), reads, scattered=False)
        parts = tuple(
            (_Pattern(self.bursts_per_activate(flow), 0.0 if flow.write else 1.0, flow.scattered), flow.bytes)
            for flow in streams
        )
        self._patterns.update((turning, *(pattern for pattern, _ in parts)))
        return Prepared(turning, parts)

    def bursts_per_activate(self, flow: Flow) -> float:
        """Bursts that a stream takes from a row each time it is opened, between 1 and all of the row."""
        dram = self._dram
        local = flow.run
        if flow.run > dram.interleave:
            local = max(dram.interleave, flow.run / dram.channels)
        return min(max(local / dram.burst, 1.0), float(self._organisation.bursts_per_row))

    def commands(self, streams: Sequence[Flow]) -> Commands:
        """Activates and bursts of one evaluation."""
        burst = self._dram.burst
        return Commands(
            activates=math.fsum(flow.bytes / (burst * self.bursts_per_activate(flow)) for flow in streams),
            reads=math.fsum(flow.bytes / burst for flow in streams if not flow.write),
            writes=math.fsum(flow.bytes / burst for flow in streams if flow.write),
        )

    def serve(self, streams: Sequence[Flow], refresh_rate: float) -> Served:
        """Time of one evaluation's streams, and the limit that most of it is spent under."""
        return self.serve_prepared(self.prepared(streams), refresh_rate)

    def serve_prepared(self, streams: Prepared, refresh_rate: float) -> Served:
        """`serve` for streams that are asked for again and again."""
        if streams.turning is None:
            return Served(0.0, self._dram.peak, "none")
        turn = self._channel(streams.turning, refresh_rate).turnaround
        spent: dict[str, list[float]] = defaultdict(list)
        for pattern, count in streams.parts:
            channel = self._channel(pattern, refresh_rate)
            spent[channel.binding].append(count / (channel.bandwidth * self._dram.channels * turn))
        seconds = math.fsum(time for times in spent.values() for time in times)
        longest = max(spent, key=lambda name: math.fsum(spent[name]))
        return Served(seconds, math.fsum(count for _, count in streams.parts) / seconds, longest)

    def _channel(self, pattern: _Pattern, rate: float) -> _Channel:
        if (pattern, rate) not in self._known:
            self._patterns.add(pattern)
            missing = [each for each in self._patterns if (each, rate) not in self._known]
            found = bounds_of_many([self._stream(each) for each in missing], self._timing, self._organisation, rate)
            for i, each in enumerate(missing):
                limits = dict(zip(LIMITS, found.limits[:, i].tolist(), strict=True))
                binding = LIMITS[int(found.binding[i])]
                # Where column commands come as fast as the bus can take their data, it is the bus that binds.
                if binding == "column" and limits["column"] >= limits["port"] * (1 - 1e-12):
                    binding = "port"
                if not found.bandwidth[i] > 0:
                    message = f"at {rate:.6g} times the normal refresh rate the DRAM does nothing but refresh"
                    raise SystemSpecError(self._name, [Issue("$.dram.refresh", message, "lower the rate, or tRFC")])
                self._known[each, rate] = _Channel(float(found.bandwidth[i]), binding, float(found.turnaround[i]))
        return self._known[pattern, rate]

    def _stream(self, pattern: _Pattern) -> Stream:
        buffers, organisation = self._dram.buffers, self._organisation
        return Stream(
            bytes=self._dram.burst,
            bursts_per_activation=pattern.bursts,
            banks=organisation.banks,
            groups=organisation.bank_groups,
            random=pattern.scattered,
            read_share=pattern.reads,
            bursts_per_turnaround=float(buffers.requests),
            outstanding=buffers.requests,
            extra_latency=buffers.round_trip,
        )
