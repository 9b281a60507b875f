"""One collective for a terminal."""

from __future__ import annotations

from dfopt.physics.collective_time import CollectiveTime
from dfopt.show.grid import Facts
from dfopt.units import format as show_unit

__all__ = ["collective_facts"]


def collective_facts(made: CollectiveTime) -> Facts:
    """Time, algorithm and bandwidths."""
    size = show_unit(made.bytes, "bytes")
    return Facts(
        [
            ("collective", f"{made.kind.value} of {size} per chip over {made.chips} chips: {', '.join(made.dims)}"),
            ("time", f"{show_unit(made.time_s, 'time')}, of which {show_unit(made.latency_s, 'time')} at any size"),
            ("algorithm", made.algorithm),
            ("algorithm bandwidth", f"{show_unit(made.algorithm_bandwidth, 'bandwidth')}, the size over the time"),
            ("bus bandwidth", f"{show_unit(made.bus_bandwidth, 'bandwidth')}, as nccl-tests has it"),
        ]
    )
