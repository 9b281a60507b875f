"""One collective for a terminal."""

from __future__ import annotations

from dfopt.physics.collective_time import CollectiveTime
from dfopt.show.grid import FactList
from dfopt.units import show_unit


def collective_facts(timing: CollectiveTime) -> FactList:
    """Terminal report of a collective: time, algorithm and bandwidths."""
    size = show_unit(timing.bytes, "bytes")
    return FactList(
        [
            (
                "collective",
                f"{timing.kind.value} of {size} per chip over {timing.chips} chips: {', '.join(timing.dims)}",
            ),
            ("time", f"{show_unit(timing.time_s, 'time')}, of which {show_unit(timing.latency_s, 'time')} at any size"),
            ("algorithm", timing.algorithm),
            ("algorithm bandwidth", f"{show_unit(timing.algorithm_bandwidth, 'bandwidth')}, the size over the time"),
            ("bus bandwidth", f"{show_unit(timing.bus_bandwidth, 'bandwidth')}, as nccl-tests has it"),
        ]
    )
