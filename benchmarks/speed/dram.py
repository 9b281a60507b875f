"""Time the DRAM models: the formula for many streams at once, and the simulators per burst.

python benchmarks/speed/dram.py
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "reference"))  # the simulators are not part of dfopt

from dram_channel import Organisation, Policy, Stream, Timing, bounds, bounds_of_many, simulate
from dram_channel.patterns import random_visits, sequential_rows

CHIP, HBM2 = Organisation(), Timing()
STREAMS = [Stream(1e6, 1 + i % 32, random=i % 3 == 0, outstanding=None if i % 2 else 64) for i in range(300)]


def best(work: Callable[[], object], times: int = 5) -> float:
    """Seconds of the fastest of a few runs."""
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def main() -> None:
    """Print a table."""
    print(f"formula, 300 streams at once   {1e3 * best(lambda: bounds_of_many(STREAMS, HBM2, CHIP)):8.3f} ms")
    print(f"formula, one stream            {1e3 * best(lambda: bounds(STREAMS[0], HBM2, CHIP)):8.3f} ms")
    for name, policy in (("queues per bank", Policy()), ("shared buffer", Policy("shared", trans_queue_size=64))):
        for u in (1, 32):

            def work(policy: Policy = policy, u: int = u) -> None:
                source = random_visits(CHIP, 1 << 15, 1) if u == 1 else sequential_rows(CHIP, 1 << 15)
                simulate(source, HBM2, CHIP, policy, cycles=20_000)

            print(f"{name}, u = {u:2d}, 20000 clocks {1e3 * best(work, 3):9.1f} ms")


if __name__ == "__main__":
    main()
