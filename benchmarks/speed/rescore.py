"""Time the judge on stacks of dies: ``OMP_NUM_THREADS=1 python benchmarks/speed/rescore.py [--only TEXT]``.

Every workload is mapped once; the mapping is then scored by the plain judge and on every stack preset. Times are
medians of CPU milliseconds, all caches warm (the threads of a BLAS that waits count too);
"physics" is the score with the stack, the plain judge
included. The target is 20 ms. "rounds" are the temperature iterations of all levels together.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from cases import gpt, machine, moe
from rich.console import Console
from rich.table import Table

import dfopt as df
from dfopt.documents.zoo import zoo as listed
from dfopt.errors import DfoptError
from dfopt.workloads.unroll import unroll

TARGET_MS = 20.0


@dataclass(frozen=True)
class Workload:
    """A graph on a machine under one plan."""

    name: str
    graph: Callable[[], df.Graph]
    system: Callable[[], df.System]
    plan: dict[str, int] = field(default_factory=dict)


def zoo(graph: str, system: str, plan: dict[str, int], **parameters: Any) -> Workload:
    """A workload of the zoo."""
    words = " ".join([graph, *map(str, parameters.values())])
    return Workload(words, partial(df.load_graph, graph, **parameters), partial(df.load_system, system), plan)


def twelve_layers() -> df.Graph:
    """All layers of a small model as kernels of their own, so that every pipeline stage is another one."""
    return unroll(df.load_graph("gpt2-small"), 12)


BIG = "sn30-1024-2dtorus"
WORKLOADS = [
    zoo("gpt3-175b", "sn10-8-ring", {"tp": 1, "pp": 8}),
    zoo("gpt3-175b", "sn30-8", {"tp": 8, "pp": 1}, mode="training"),
    zoo("llama-3.1-8b", "h100-8", {"tp": 8, "pp": 1}),
    zoo("dlrm-793b", BIG, {"tp": 8, "pp": 1}),
    zoo("hpl-1m-dfmodel", BIG, {"tp": 1024, "pp": 1}),
    zoo("fft-1t", BIG, {"tp": 1024, "pp": 1}),
    Workload("gpt2-small, 12 layers drawn, 4 stages", twelve_layers, machine, {"tp": 1, "pp": 4}),
    Workload("moe, 64 experts", partial(moe, 64), partial(machine, "100 MB"), {"tp": 8, "pp": 1}),
    Workload("gpt, 96 layers drawn", partial(gpt, layers=96), partial(machine, "100 MB"), {"tp": 8, "pp": 1}),
]


def median_ms(call: Callable[[], object], runs: int) -> float:
    """Median CPU milliseconds; the first call warms the caches and does not count."""
    call()
    found = []
    for _ in range(runs):
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return 1e3 * statistics.median(found)


def main() -> int:
    """Print the table; 1 if a case misses the target or has no mapping."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="workloads whose name holds this text")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds to map each workload")
    options = parser.parse_args()
    table = Table(title="CPU ms of a score", show_edge=False)
    for column in ("workload", "kernels", "partitions", "stack", "plain", "physics", "levels", "rounds", "in the end"):
        table.add_column(column, justify="left" if column in ("workload", "stack", "in the end") else "right")
    stacks = [df.load_stack(name) for name in listed("stacks")]
    slowest, failed = 0.0, False
    for work in WORKLOADS:
        if options.only not in work.name:
            continue
        graph, system = work.graph(), work.system()
        try:
            result = df.solve(graph, system, time_limit=options.time_limit, **work.plan)
        except DfoptError as error:  # too large for the time it got: the others still say something
            print(f"{work.name}: {error}", flush=True)
            failed = True
            continue
        judge = partial(df.score, result.mapping, result.graph, system, result.assumptions)
        plain = median_ms(judge, options.runs)
        for stack in stacks:
            found = judge(stack=stack).physical
            assert found is not None
            spent = median_ms(partial(judge, stack=stack), options.runs)
            slowest = max(slowest, spent)
            tried = 1 + [level.frequency for level in stack.levels].index(found.frequency)
            limits = ", ".join(found.limits_broken) or "keeps its limits"
            counts = (len(graph.kernels), len(found.partitions))
            times = (f"{plain:.2f}", f"{spent:.2f}")
            row = (*map(str, counts), stack.name, *times, f"{tried} of {len(stack.levels)}", str(found.iterations))
            table.add_row(work.name, *row, limits)
        table.add_section()
    Console(width=None if sys.stdout.isatty() else 150).print(table)
    print(f"slowest: {slowest:.2f} ms, target {TARGET_MS:g} ms")
    return int(failed or slowest >= TARGET_MS)


if __name__ == "__main__":
    sys.exit(main())
