"""Is any mapping that was measured faster than the one that the search finds, under the same calibrated model?

    python benchmarks/open_mappings.py [NAME ...] [--time-limit S]

A step is searched over every execution that `dfopt solve` leaves free. Then the degrees and the microbatch of every run
of that model are fixed, and the best under them is found: whatever the run chose of the rest, it takes no less. Runs
of GPT-3 175B are those of `benchmarks/reference/data/vtrain_175b.csv`; of Llama 3.1 405B the degrees of its makers on
8192 and 16,384 GPUs (arXiv:2407.21783, table 4, rows without context parallelism: 16 M tokens a step, 8192 each) and,
on 4096, those and Megatron-Bridge's (performance summary at 067f987df0) with as many copies as there are chips. Their
pipeline is laid out otherwise; none of these runs was reported with the time of a step under these very choices.
Seconds are those of the processor.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from executions import layers_of

import dfopt as df
from dfopt.errors import DfoptError
from dfopt.workloads.executions import WAYS, load_executions

VTRAIN = Path(__file__).parent / "reference" / "data" / "vtrain_175b.csv"


@dataclass(frozen=True)
class Run:
    """Chips that share kernels, stages, and samples of one evaluation; microbatch and chunks are free where none."""

    shards: int
    stages: int
    microbatch: int | None = None


def vtrain() -> list[Run]:
    """The runs of vTrain's table, each once."""
    with VTRAIN.open(encoding="utf-8", newline="") as file:
        found = [Run(int(row["tp"]), int(row["pp"]), int(row["microbatch"])) for row in csv.DictReader(file)]
    return [*dict.fromkeys(found)]


SPACES = {  # the model, the machine and its nodes, samples of a step, and the runs
    "gpt3-175b": ("gpt3-175b", "a100-512", 64, 1536, vtrain()),
    "llama-3.1-405b": ("llama-3.1-405b", "h100-4096", 512, 2048, [Run(8, 16, 1), Run(4, 8, 1), Run(4, 16, 1)]),
    "llama-3.1-405b-8192": ("llama-3.1-405b", "h100-4096", 1024, 2048, [Run(8, 16, 1)]),
    "llama-3.1-405b-16384": ("llama-3.1-405b", "h100-4096", 2048, 2048, [Run(8, 16, 1)]),
}


def rows(name: str, limit: float) -> Iterator[str]:
    """A line for the search and for every run."""
    model, machine, nodes, batch, runs = SPACES[name]
    system = df.load_system(machine, {"network.cluster.size": nodes, "chip.memory_reserve": None})
    sizes, began = layers_of(model) | {"batch": batch}, time.process_time()
    first, *others = load_executions(model, **sizes)
    best = df.solve(first, system, variants=others, time_limit=limit, sensitivity=False)
    spent = time.process_time() - began
    yield (
        f"| {model}, {system.chips} chips of {machine} | {best.plan.label}, {best.graph.microbatch} of {batch},"
        f" {best.graph.variant} | {best.value:.2f} | {100 * best.gap:.2g} % | {spent:.0f} | |"
    )
    slower = 0
    for run in runs:
        chosen = None if run.microbatch is None else [run.microbatch]
        first, *others = load_executions(model, chosen, WAYS, **sizes)
        asked, began = {"tp": run.shards, "pp": run.stages}, time.process_time()
        try:
            found = df.solve(first, system, variants=others, time_limit=limit, sensitivity=False, **asked)
        except DfoptError as error:
            yield f"| {asked}, microbatch {run.microbatch} | {str(error)[:60]} | | | | |"
            continue
        slower += found.value >= best.value * (1 - 1e-9)
        label = f"{found.plan.label}, {found.graph.microbatch} of {batch}, {found.graph.variant or 'nothing again'}"
        spent = time.process_time() - began
        more = f"{100 * (found.value / best.value - 1):+.1f} %"
        yield f"| measured | {label} | {found.value:.2f} | {100 * found.gap:.2g} % | {spent:.0f} | {more} |"
    yield f"{slower} of {len(runs)} measured mappings are no faster"


def main() -> None:
    """Print a table, a line as soon as it is known."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SPACES)}")
    parser.add_argument("--time-limit", type=float, default=600.0, help="seconds of the clock for each")
    given = parser.parse_args()
    if unknown := set(given.names) - set(SPACES):
        parser.error(f"no space {', '.join(sorted(unknown))}; there are {', '.join(SPACES)}")
    for name in given.names or SPACES:
        for line in rows(name, given.time_limit):
            print(line, flush=True)


if __name__ == "__main__":
    main()
