"""Time every case of the registry, step by step, and write the table of benchmarks/speed/README.md.

    python benchmarks/speed/table.py [CASE ...] [--json OUT] [--write]

Each case runs in a process of its own, so that its peak memory is its own. ``--write`` puts the table
into benchmarks/speed/README.md between its two markers.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from cases import BY_NAME, CASES, Case, shard

HERE = Path(__file__).resolve().parent
README = HERE / "README.md"
MARKERS = "<!-- speed table -->", "<!-- end of speed table -->"
ASSIGNMENT_LIMIT = 30.0  # seconds that form (a) gets
ASSIGNMENT_KERNELS = 60  # beyond, it has no chance


def measure(case: Case) -> dict[str, Any]:
    """Seconds of each step of one case, its sizes, gap under the chosen sharding and peak memory."""
    from dfopt.documents.assumptions import profile
    from dfopt.errors import NoSolution
    from dfopt.fusion import intrachip
    from dfopt.fusion.blocks import stage_tables
    from dfopt.fusion.classes import interchangeable
    from dfopt.fusion.columns import Columns
    from dfopt.fusion.downsets import down_sets
    from dfopt.fusion.lattice import ShortestPath
    from dfopt.fusion.one_block import OneBlock
    from dfopt.fusion.partitioning import IntraChipLimits, objective
    from dfopt.judge import evaluate
    from dfopt.physics.pipeline import resolve
    from dfopt.search import solve
    from dfopt.setting.instance import Setting
    from dfopt.sharding import interchip
    from dfopt.terms.chip import chip_of

    graph, system = case.graph(), case.system()
    chosen = profile("default").with_(**case.assumptions)
    row: dict[str, Any] = {"case": case.name, "kernels": len(graph.kernels)}
    begin = time.perf_counter()
    plan = {"tp": case.tp, "pp": 1, "zero": 0, "p_max": case.p_max}
    result = solve(graph, system, assumptions=chosen, time_limit=case.time_limit, **plan)
    row["solve"] = time.perf_counter() - begin
    solves = [s for plan in result.plans for s in plan.solves if s.problem == "intrachip"]
    row["gap"] = result.level_gap  # of a listed lattice the joint search is the only solve
    row |= {"note": solves[-1].note, "formulation": solves[-1].formulation} if solves else {}
    row["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    begin = time.perf_counter()
    evaluate(result.mapping, graph, system, result.assumptions)
    row["judge"] = time.perf_counter() - begin

    # the steps once more, one by one, under the sharding and tile count of the best plan
    assume = resolve(chosen, system.chip.execution, system.chip.compute_utilization)
    instance = Setting(graph, system, assume).under(result.plan)
    begin = time.perf_counter()
    tables = interchip.build(instance, {})
    row["tables"] = time.perf_counter() - begin
    sharding = {kernel.name: kernel.sharding for kernel in result.mapping.kernels}
    del tables
    begin = time.perf_counter()
    sharded = shard(instance, sharding)
    if sharded.tile_count != result.mapping.tile_count:
        sharded = shard(instance, sharding, result.mapping.tile_count)
    stage = stage_tables(sharded, chip_of(system, assume))
    row["tables"] += time.perf_counter() - begin
    rule = assume.forward_backward if graph.trains else "shared"
    begin = time.perf_counter()
    lattice = down_sets(stage, rule, 20_000)
    row["enumerate"] = time.perf_counter() - begin
    limits = IntraChipLimits(p_max=case.p_max or stage.kernels, forward_backward=rule)
    start = intrachip.greedy(stage, limits)
    known = objective(stage, start) if start is not None else np.inf
    if lattice is not None:
        row["down_sets"] = len(lattice.size)
        begin = time.perf_counter()
        search = ShortestPath(stage, limits, lattice, known)
        search.run()
        row |= {"price": time.perf_counter() - begin, "blocks": len(search.blocks()[0])}
        begin = time.perf_counter()
        Columns(search)
        row["formulate"] = time.perf_counter() - begin
    else:
        row |= {"blocks": solves[-1].columns} if solves else {}
        begin = time.perf_counter()
        OneBlock(stage, limits, interchangeable(stage))
        row["formulate"] = time.perf_counter() - begin
    if stage.kernels <= ASSIGNMENT_KERNELS:
        begin = time.perf_counter()
        try:
            other = solve(
                graph, system, assumptions=chosen, time_limit=ASSIGNMENT_LIMIT, formulation="assignment", **plan
            )
            row |= {"assignment_gap": other.level_gap, "assignment_ratio": other.step_time_s / result.step_time_s}
        except NoSolution:
            row["assignment_gap"] = None
        row["assignment"] = time.perf_counter() - begin
    return row


def exponents(rows: list[dict[str, Any]]) -> list[str]:
    """Fitted growth of the time to solve with the number of kernels, per family of sizes."""
    found = []
    for family, start, what in (("GPT-3 layers drawn out", "gpt-", "-layers"), ("series-parallel", "sp-", "")):
        sizes = [r for r in rows if r["case"].startswith(start) and r["case"].endswith(what) and r["gap"] <= 0.01]
        if family.startswith("GPT"):
            sizes += [r for r in rows if r["case"] == "gpt-forward"]
        if len(sizes) >= 3:
            n = np.log([r["kernels"] for r in sizes])
            slope = np.polyfit(n, np.log([r["solve"] for r in sizes]), 1)[0]
            least, most = min(r["kernels"] for r in sizes), max(r["kernels"] for r in sizes)
            found.append(f"{family}, {least} to {most} kernels: time grows as n^{slope:.2f}.")
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""

    def seconds(row: dict[str, Any], key: str) -> str:
        return f"{row[key]:.3f}" if key in row else ""

    head = (
        "| case | kernels | down-sets | blocks | tables | enumerate | price | formulate | judge |"
        " solve (b), all | gap | (a) | gap of (a) | peak MB |"
    )
    lines = [head, "| --- |" + " ---: |" * 13]
    for row in rows:
        gap_a = row.get("assignment_gap")
        cells = [
            row["case"],
            f"{row['kernels']:,}",
            f"{row['down_sets']:,}" if "down_sets" in row else "> 20,000",
            f"{row['blocks']:,}" if row.get("blocks") else "",  # pieces are no blocks
            *(seconds(row, key) for key in ("tables", "enumerate", "price", "formulate", "judge")),
            f"{row['solve']:.2f}",
            f"{100 * row['gap']:.2g} %",
            f"{row['assignment']:.1f}" if "assignment" in row else "",
            "" if "assignment" not in row else "no solution" if gap_a is None else f"{100 * gap_a:.2g} %",
            f"{row['peak_mb']:.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *exponents(rows)])


def write(text: str) -> None:
    """Put the table between the markers of benchmarks/speed/README.md."""
    whole = README.read_text(encoding="utf-8")
    before, _, rest = whole.partition(MARKERS[0])
    _, _, after = rest.partition(MARKERS[1])
    README.write_text(f"{before}{MARKERS[0]}\n{text}\n{MARKERS[1]}{after}", encoding="utf-8")


def main() -> None:
    """Run the cases that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(BY_NAME))
    parser.add_argument("--json", type=Path, metavar="OUT", help="rows as JSON; cases not named keep those it has")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [name for name in options.cases if name not in BY_NAME]
    if unknown:
        parser.error(f"no case is called {unknown[0]!r}; there are {', '.join(BY_NAME)}")
    if options.one:
        print(json.dumps(measure(BY_NAME[options.cases[0]])))
        return
    kept = {}
    if options.cases and options.json is not None and options.json.exists():
        kept = {row["case"]: row for row in json.loads(options.json.read_text(encoding="utf-8"))}
    rows = []
    for case in CASES:
        if options.cases and case.name not in options.cases:
            rows += [kept[case.name]] if case.name in kept else []
            continue
        answer = subprocess.run(
            [sys.executable, __file__, case.name, "--one"], capture_output=True, text=True, cwd=HERE, check=False
        )
        if answer.returncode:
            print(f"{case.name}: {answer.stderr.strip().splitlines()[-1]}", file=sys.stderr)
            continue
        rows.append(json.loads(answer.stdout))
        row = rows[-1]
        print(
            f"{row['case']}: {row['solve']:.2f} s, gap {100 * row['gap']:.3g} %, {row.get('note', 'one search')}",
            file=sys.stderr,
        )
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    text = table(rows)
    print(text)
    if options.write:
        write(text)


if __name__ == "__main__":
    main()
