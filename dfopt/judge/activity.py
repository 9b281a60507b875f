"""What every partition does on one chip, as the power model wants it: FLOP, bytes and DRAM commands by kernel.

A fan is written to SRAM once by its source and read once by every consumer, whether it stays on the chip or goes
through DRAM; weights, lookups and a kernel's own data are read once, gradient accumulators read and written. What a
consumer reads crosses the on-chip network.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from dfopt.judge import network
from dfopt.judge.case import Case, Place, totals
from dfopt.physics.states import own_traffic
from dfopt.technology.power import Block
from dfopt.technology.streams import Commands


def blocks(case: Case, paid: Sequence[network.Paid], commands: dict[Place, Commands]) -> list[Block]:
    """One block for every partition, in the order of ``case.members``.

    Under the cycle model a partition has the compute tiles that its kernels were given; otherwise time assumes that
    they share the whole chip.
    """
    wrote: dict[int, list[float]] = defaultdict(list)
    read: dict[int, list[float]] = defaultdict(list)
    for fan in case.fans:
        wrote[fan.src].append(fan.chip)
        for kernel in fan.readers:
            read[kernel].append(fan.chip)
    for end in case.ends:
        (wrote if end.write else read)[end.kernel].append(end.chip)
    sent = network.sent_bytes(case)
    leaving = totals((case.place(kernel), count) for kernel, count in network.bytes_by_kernel(case, paid, sent))
    found = []
    for place, numbers in case.members.items():
        inputs = [math.fsum(read[number]) for number in numbers]
        sram = []
        for number, taken in zip(numbers, inputs, strict=True):
            one = case.kernels[number]
            own = own_traffic(one.kernel, one.sharding, case.plan.shards)
            sram.append(math.fsum((*wrote[number], taken, one.read, 2 * one.accumulator, own)))
        here = commands[place]
        found.append(
            Block(
                tiles=tuple(float(case.kernels[number].tiles) for number in numbers),
                flop=tuple(case.kernels[number].flop for number in numbers),
                sram_bytes=tuple(sram),
                noc_bytes=tuple(inputs),
                chip_tiles=float(case.system.chip.tiles) if case.assume.compute_model == "cycle" else 0.0,
                network_bytes=leaving.get(place, 0.0),
                activates=here.activates,
                read_bursts=here.reads,
                write_bursts=here.writes,
            )
        )
    return found
