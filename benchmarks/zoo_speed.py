"""How long every model of the zoo takes to be mapped onto eight GPUs, sixteen RDUs and sixteen TPUs.

    python benchmarks/zoo_speed.py [--graphs NAME ...] [--systems NAME ...] [--phases NAME ...] [--json FILE]

A cell is a model, a phase of serving and a system: loaded, searched over all plans and all microbatches that divide the
batch, and proven. Models are graphs with phases of serving; those that keep nothing of their tokens have no decode. A
cell is fine if its answer is proven, or if nothing fits and the answer says by how much; it fails (exit status 1) if
there is a gap, no answer or another error. Bars: the whole grid in 8 minutes, half of the cells in 0.5 s, none above
15 s.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import dfopt as df
from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.zoo import find, zoo
from dfopt.workloads import WORKLOADS, load_variants

SYSTEMS = ("a100-8", "h100-8", "h200-8", "b200-8", "sn40l-16", "tpu-v5p-16")
PHASES = {"prefill": 8, "decode": 16}  # and their batches
TOKENS = 4096  # of a prompt, or behind it, if the model has so many positions
MOST_CELL, MOST_MEDIAN, MOST_GRID = 15.0, 0.5, 480.0


class Cell(NamedTuple):
    """A model in a phase on a system: how it ended, in how many seconds of the processor, and what is to be said."""

    graph: str
    phase: str
    system: str
    outcome: str
    seconds: float
    said: str = ""


def models(asked: list[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every model in every phase that it has, with what to load it with."""
    for name in asked or zoo("graphs"):
        recipe = load_strict(find("graphs", name))
        if "phase" not in WORKLOADS[recipe["workload"]].parameters.model_fields:
            continue
        for phase, batch in PHASES.items():
            tokens = min(TOKENS, recipe["parameters"]["seq"])
            length = {"seq": tokens} if phase == "prefill" else {"context": tokens}
            yield name, phase, {"phase": phase, "batch": batch, **length}


def drawn(name: str, asked: dict[str, Any]) -> list[df.Graph]:
    """The graphs of all microbatches, each in all ways to compute."""
    sizes = [size for size in range(asked["batch"], 0, -1) if asked["batch"] % size == 0]
    return [graph for size in sizes for graph in load_variants(name, microbatch=size, **asked)]


def cell(name: str, phase: str, asked: dict[str, Any], system: str, limit: float) -> Cell | None:
    """Solve one; none if the model has no such phase."""
    began = time.process_time()
    try:
        first, *others = drawn(name, asked)
    except df.DocumentError as error:
        if "nothing is kept" in str(error):
            return None
        return Cell(name, phase, system, "error", time.process_time() - began, str(error))
    try:
        machine = df.load_system(system, {"chip.memory_reserve": None})
        found = df.solve(first, machine, variants=others, time_limit=limit, sensitivity=False)
        outcome = "proven" if found.gap == 0 else f"gap {100 * found.gap:.3g} %"
        said = f"{found.plan.label}, {found.graph.microbatch} of {found.graph.batch}, {found.step_time:.4g} s"
    except df.Infeasible as error:
        fits_not = "short by" in str(error)
        outcome, said = "too small" if fits_not else "error", str(error).splitlines()[-1]
    except df.DfoptError as error:
        outcome, said = "error", str(error)
    return Cell(name, phase, system, outcome, time.process_time() - began, said)


def main() -> int:
    """Print cells that are slow or fail, and what all of them took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--systems", nargs="+", default=SYSTEMS, metavar="NAME")
    parser.add_argument("--phases", nargs="+", default=PHASES, metavar="NAME")
    parser.add_argument("--seconds", type=float, default=60.0, help="limit of a cell")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every cell")
    parser.add_argument("--all", action="store_true", help="print every cell")
    given = parser.parse_args()
    cells: list[Cell] = []
    for name, phase, asked in models(given.graphs):
        for system in given.systems if phase in given.phases else ():
            one = cell(name, phase, asked, system, given.seconds)
            if one is None:
                break
            cells.append(one)
            fine = one.outcome in ("proven", "too small")
            if given.all or not fine or one.seconds > MOST_CELL:
                print(f"{one.seconds:6.2f} s  {name} {phase} {system}: {one.outcome}; {one.said}", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps([one._asdict() for one in cells], indent=1), encoding="utf-8")
    times = sorted(one.seconds for one in cells)
    counts = {kind: sum(one.outcome == kind for one in cells) for kind in ("proven", "too small")}
    failed = len(cells) - sum(counts.values())
    print(f"{len(cells)} cells: {counts['proven']} proven, {counts['too small']} do not fit, {failed} failed")
    print(f"seconds: median {median(times):.2f}, worst {times[-1]:.2f}, all {sum(times):.1f}")
    slowest = sorted(cells, key=lambda one: -one.seconds)[:5]
    print("slowest:", "; ".join(f"{one.graph} {one.phase} {one.system} {one.seconds:.2f}" for one in slowest))
    fast = times[-1] <= MOST_CELL and median(times) <= MOST_MEDIAN and sum(times) <= MOST_GRID
    return 0 if fast and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
