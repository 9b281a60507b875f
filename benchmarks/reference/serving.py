"""Serving of dense decoders against measured kernels: prefill and decode steps of a table of models and machines.

    python benchmarks/reference/serving.py CSV [--phase decode|prefill] [--bound] [--rows]

The table has the columns ``model``, ``system``, ``tp``, ``batch``, ``context_tokens``, ``fits``, ``ttft_ms`` and
``tpot_ms``. Every row that fits is solved with its tensor parallelism on one node, whose other chips run copies. With
``--bound`` chips fuse freely, at their peak and without overheads: then a row above what was measured is a failure
(exit status 1).
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

import dfopt as df
from dfopt.documents.assumptions import profile
from dfopt.documents.phase import prefill

NODES = {"a100_sxm": "a100-8", "h100_sxm": "h100-8", "h200_sxm": "h200-8", "b200_sxm": "b200-8"}
ROW = ("model", "system", "tp", "batch", "context_tokens")
COLUMNS = {"prefill": "ttft_ms", "decode": "tpot_ms"}


def predicted(row: dict[str, str], phase: str, bound: bool) -> float:
    """Milliseconds of a row.

    Raises
    ------
    dfopt.Infeasible
    """
    tp, batch, length = int(row["tp"]), int(row["batch"]), int(row["context_tokens"])
    machine, chosen = df.load_system(NODES[row["system"]]), profile("default")
    if bound:
        machine = machine.model_copy(update={"collective_overhead": 0.0})
        chosen = chosen.with_(execution="dataflow", compute_utilization=1.0)
    copies = machine.chips // tp
    given = {"phase": "decode", "context": length} if phase == "decode" else {"phase": prefill(batch, length)}
    graph = df.load_graph(row["model"].lower(), microbatch=batch, batch=batch * copies, **given)
    result = df.optimize(graph, machine, assumptions=chosen, tp=tp, pp=1, dp=copies, sensitivity=False)
    return float(result.step_time_s) * 1e3


def main() -> int:
    """Compare, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path)
    parser.add_argument("--phase", choices=list(COLUMNS), default="decode")
    parser.add_argument("--bound", action="store_true")
    parser.add_argument("--rows", action="store_true", help="print every row")
    asked = parser.parse_args()
    ratios, refused, began = defaultdict(list), 0, time.perf_counter()
    with asked.csv.open() as lines:
        table = [row for row in csv.DictReader(lines) if row["system"] in NODES and int(row["tp"]) <= 8]
    for row in table:
        measured = row[COLUMNS[asked.phase]]
        if row["fits"] != "1" or not measured:
            continue
        try:
            ratio = predicted(row, asked.phase, asked.bound) / float(measured)
        except df.Infeasible as error:
            refused += 1
            if asked.rows:
                print(*(row[name] for name in ROW), str(error).splitlines()[-1].strip(), flush=True)
            continue
        ratios[row["system"]].append(ratio)
        if asked.rows:
            print(
                *(row[name] for name in ("model", "system", "tp", "batch", "context_tokens")),
                f"{ratio:.3f}",
                flush=True,
            )
    every = [ratio for each in ratios.values() for ratio in each]
    print(f"{asked.phase}: predicted over measured")
    print(f"{'system':10} {'rows':>5} {'median':>7} {'MAPE':>6} {'least':>6} {'most':>6}")
    for name, each in [*ratios.items(), ("all", every)]:
        error = sum(abs(ratio - 1) for ratio in each) / len(each)
        print(f"{name:10} {len(each):5} {median(each):7.3f} {error:6.1%} {min(each):6.3f} {max(each):6.3f}")
    print(f"{refused} rows that fit by the table are infeasible here; {time.perf_counter() - began:.0f} s")
    return int(asked.bound and max(every) > 1.0)


if __name__ == "__main__":
    sys.exit(main())
