"""Serving against measured kernels: prefill and decode steps of a table of models and machines.

    python benchmarks/reference/serving.py CSV [--phase decode|prefill] [--bound] [--routing R] [--rows] [--json FILE]

A table is known by its columns: ``model``, ``system``, ``tp``, ``ttft_ms`` and ``tpot_ms`` beside ``batch``,
``context_tokens`` and ``fits``, or beside ``batch_per_replica``, ``context_tokens``, ``attention_dp``, ``ep`` and
``memory_GiB_per_gpu``, which says what fits. Every row that fits is solved with its tensor parallelism on one node,
whose other chips run copies; attention by sequences and experts by expert are the second axis of a plan. With
``--bound`` chips fuse freely, at their peak and without overheads: then a row above what was measured is a failure
(exit status 1). Tables do not say how tokens choose experts: ``--routing`` does. ``--json`` keeps every row.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import dfopt as df
from dfopt.documents.assumptions import profile
from dfopt.documents.phase import prefill

NODES = {"a100_sxm": "a100-8", "h100_sxm": "h100-8", "h200_sxm": "h200-8", "b200_sxm": "b200-8"}
COLUMNS = {"prefill": "ttft_ms", "decode": "tpot_ms"}
MOST = 8  # chips of a node


class Step(NamedTuple):
    """A row: who serves whom, how many sequences of how many tokens on all its chips, and what was measured."""

    model: str
    system: str
    tp: int
    attention_dp: int
    ep: int
    batch: int
    tokens: int
    milliseconds: dict[str, float]

    @property
    def chips(self) -> int:
        """Those of one copy."""
        return self.tp * self.attention_dp

    @property
    def plan(self) -> dict[str, Any]:
        """What is asked of a plan; experts by expert lie over the chips that share out the heads, or the sequences."""
        if self.ep == 1 and self.attention_dp == 1:
            return {"tp": self.tp}
        schemes = {"experts": "outer"} if self.ep > 1 else {}
        schemes["mixer"] = "n" if self.attention_dp > 1 else "outer"
        return {"tp": 1, "mp": self.chips, "modules": schemes}

    def words(self) -> str:
        """The row as it is printed."""
        return " ".join(str(one) for one in self[:7])


def steps(path: Path) -> Iterator[Step]:
    """The rows of a table that are priced here, and fit by what it says."""
    with path.open() as lines:
        for row in csv.DictReader(lines):
            if row["system"] not in NODES:
                continue
            ways = (int(row["tp"]), int(row.get("attention_dp") or 1), int(row.get("ep") or 1))
            if "fits" in row:
                fits, batch = row["fits"] == "1", int(row["batch"])
            else:
                capacity = df.load_system(NODES[row["system"]]).chip.dram.capacity
                fits = capacity is None or float(row["memory_GiB_per_gpu"]) * 2**30 <= capacity
                batch = int(row["batch_per_replica"]) * ways[1]
            measured = {phase: float(row[column]) for phase, column in COLUMNS.items() if row[column]}
            name = row["model"].rpartition("/")[2].lower()
            step = Step(name, row["system"], *ways, batch, int(row["context_tokens"]), measured)
            if fits and step.chips <= MOST:
                yield step


def predicted(step: Step, phase: str, bound: bool, routing: str | None = None) -> float:
    """Milliseconds of a row.

    Raises
    ------
    dfopt.Infeasible
    """
    machine, chosen = df.load_system(NODES[step.system]), profile("default").with_(memory_reserve=0.0)
    if bound:
        machine = machine.model_copy(update={"collective_overhead": 0.0})
        chosen = chosen.with_(execution="dataflow", compute_utilization=1.0)
    copies = machine.chips // step.chips
    given: dict[str, Any] = {"phase": "decode", "context": step.tokens}
    if phase == "prefill":
        given = {"phase": prefill(step.batch, step.tokens)}
    given |= {"microbatch": step.batch, "batch": step.batch * copies}
    if routing is not None and any(kernel.experts for kernel in df.load_graph(step.model, **given).kernels):
        given["routing"] = routing
    asked = {"pp": 1, "dp": copies, **step.plan, "sensitivity": False}
    result = df.solve(df.load_graph(step.model, **given), machine, assumptions=chosen, **asked)
    return float(result.step_time_s) * 1e3


def main() -> int:
    """Compare, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path)
    parser.add_argument("--phase", choices=list(COLUMNS), default="decode")
    parser.add_argument("--bound", action="store_true")
    parser.add_argument("--routing", help="of experts, such as power_law(1.2); by default that of the graphs")
    parser.add_argument("--rows", action="store_true", help="print every row")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every row")
    asked = parser.parse_args()
    ratios, kept, refused, began = defaultdict(list), [], 0, time.perf_counter()
    for step in steps(asked.csv):
        if asked.phase not in step.milliseconds:
            continue
        try:
            ratio = predicted(step, asked.phase, asked.bound, asked.routing) / step.milliseconds[asked.phase]
        except df.Infeasible as error:
            refused += 1
            kept.append({"row": step.words(), "system": step.system, "ratio": None})
            if asked.rows:
                print(step.words(), str(error).splitlines()[-1].strip(), flush=True)
            continue
        ratios[step.system].append(ratio)
        kept.append({"row": step.words(), "system": step.system, "ratio": ratio})
        if asked.rows:
            print(step.words(), f"{ratio:.3f}", flush=True)
    every = [ratio for each in ratios.values() for ratio in each]
    print(f"{asked.phase}: predicted over measured")
    print(f"{'system':10} {'rows':>5} {'median':>7} {'MAPE':>6} {'least':>6} {'most':>6}")
    for name, each in [*ratios.items(), ("all", every)]:
        error = sum(abs(ratio - 1) for ratio in each) / len(each)
        print(f"{name:10} {len(each):5} {median(each):7.3f} {error:6.1%} {min(each):6.3f} {max(each):6.3f}")
    print(f"{refused} rows that fit by the table are infeasible here; {time.perf_counter() - began:.0f} s")
    if asked.json is not None:
        asked.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return int(asked.bound and max(every) > 1.0)


if __name__ == "__main__":
    sys.exit(main())
