"""What every partition does on one chip, as the power model wants it: FLOP, bytes and DRAM commands by kernel.

What a consumer reads crosses the on-chip network.
"""

from __future__ import annotations

from collections.abc import Sequence

from dfopt.judge import network, traffic
from dfopt.judge.case import Case, Place, totals
from dfopt.technology.power import KernelBlock
from dfopt.technology.streams import Commands


def blocks(case: Case, paid: Sequence[network.Paid], commands: dict[Place, Commands]) -> list[KernelBlock]:
    """One activity block for the power model for every partition, in the order of ``case.members``.

    Under the cycle model a partition has the compute tiles that its kernels were given; otherwise time assumes that
    they share the whole chip.

    Parameters
    ----------
    case : Case
        The mapping.
    paid : sequence of Paid
        Tensor-parallel communications, each with the kernel that pays for it.
    commands : dict
        DRAM commands of every partition, by (stage, partition).
    """
    inputs, sram = traffic.inputs(case), traffic.sram_traffic(case)
    sent = network.sent_bytes(case)
    leaving = totals((case.place(kernel), count) for kernel, count in network.bytes_by_kernel(case, paid, sent))
    blocks_ = []
    for place, numbers in case.members.items():
        here = commands[place]
        blocks_.append(
            KernelBlock(
                tiles=tuple(float(case.kernels[number].tiles) for number in numbers),
                flop=tuple(case.kernels[number].flop for number in numbers),
                sram_traffic_bytes=tuple(sram[number] for number in numbers),
                noc_bytes=tuple(inputs[number] for number in numbers),
                chip_tiles=float(case.system.chip.tiles) if case.assume.compute_model == "cycle" else 0.0,
                network_bytes=leaving.get(place, 0.0),
                activates=here.activates,
                read_bursts=here.reads,
                write_bursts=here.writes,
            )
        )
    return blocks_
