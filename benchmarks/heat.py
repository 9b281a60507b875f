"""Heat-aware against heat-blind mappings: workloads on stacks whose cooling makes heat bind, as a table.

    python benchmarks/heat.py [--time-limit 60] [--gap 1e-3] [--json FILE] [--only NAME]

Every line is one plan on one stack. ``ignore`` runs only in theory; ``throttle`` is its mapping at the highest uniform
level that keeps the limits; ``aware`` has partitions, levels and pauses chosen together. The cooling is
weaker than the presets' (the override is printed): with their sinks hybrid-vault keeps all its limits and heat does not
bind, while microbump-8 is too hot in every case anyway.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field
from typing import Any

import dfopt as df
from dfopt.documents.heat import HeatReport
from dfopt.errors import DfoptError


@dataclass(frozen=True)
class Study:
    """A workload with its plan on a machine, and the stack under it."""

    graph: str
    system: str
    stack: str
    overrides: dict[str, Any]
    plan: dict[str, int] = field(default_factory=dict)
    workload: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """For people and for ``--only``."""
        mode = f" {self.workload['mode']}" if "mode" in self.workload else ""
        return f"{self.graph}{mode} on {self.system}, {self.stack}"


WORKLOADS = (  # graph, its parameters, machine, plan; K/W of the sink on hybrid-vault and on microbump-8
    ("gpt3-175b", {}, "sn10-8-ring", {"tp": 1, "pp": 8}, 0.25, 0.1),
    ("gpt3-175b", {}, "sn30-8", {"tp": 1, "pp": 8}, 0.2, 0.1),
    ("hpl-1m-dfmodel", {}, "sn30-1024-2dtorus", {"tp": 1024, "pp": 1}, 0.25, 0.1),
    ("gpt2-small", {}, "h100-8", {"tp": 1, "pp": 1}, 0.12, 0.08),
    ("dlrm-793b", {}, "sn30-1024-2dtorus", {"tp": 8, "pp": 1}, 0.6, 0.4),
    ("gpt2-small", {"mode": "training"}, "sn10-8-ring", {"tp": 1, "pp": 1}, 0.25, 0.1),
)
STUDIES = [
    Study(graph, system, stack, {"package.r_convec_k_per_w": sink}, plan, workload)
    for graph, workload, system, plan, vault, bump in WORKLOADS
    for stack, sink in (("hybrid-vault", vault), ("microbump-8", bump))
]


def run(study: Study, time_limit: float, gap: float) -> tuple[HeatReport, float]:
    """The three answers of one case, and the seconds they took."""
    stack = df.load_stack(study.stack, study.overrides)
    graph = df.load_graph(study.graph, **study.workload)
    result = df.solve(graph, df.load_system(study.system), stack=stack, time_limit=time_limit, **study.plan)
    began = time.perf_counter()
    return df.heat(result, gap=gap, time_limit=time_limit), time.perf_counter() - began


def line(study: Study, report: HeatReport, seconds: float) -> str:
    """One row of the table."""
    ignore, throttle = report.answers[0], report.answers[1]
    aware, proof, price = report.answer("aware"), report.proof, report.price
    cells = [
        f"{study.name} {study.overrides}",
        report.plan,
        f"{ignore.step_time_s:.4g}",
        f"{ignore.logic_max_c:.0f}",
        f"{throttle.step_time_s:.4g} ({throttle.lowest_frequency:.2f})",
    ]
    if aware is None or proof is None or price is None:
        return " | ".join([*cells, report.note])
    true = "no time" if price.one_kelvin_more_s is None else f"{1e3 * price.one_kelvin_more_s:.4g}"
    dram = "-" if aware.dram_max_c is None else f"{aware.dram_max_c:.2f}"
    cells += [
        f"{aware.step_time_s:.4g} ({aware.lowest_frequency:.2f}, pause {1e3 * aware.pause_s:.3g} ms)",
        f"{100 * ((report.speedup or 1.0) - 1):+.2f} %",
        f"{aware.logic_max_c:.2f}/{dram}",
        f"{1e3 * (price.lp_logic_s_per_k + price.lp_dram_s_per_k):.4g} / {true}",
        f"{100 * proof.gap:.2g} %",
        f"{seconds:.0f} s",
    ]
    return " | ".join(cells)


def main() -> int:
    """Run all cases, print the table; 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds per case")
    parser.add_argument("--gap", type=float, default=1e-3, help="relative gap at which a solve may stop")
    parser.add_argument("--json", help="write the reports to this file")
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    asked = parser.parse_args()
    print(
        "case | plan | ignore s | its degC | throttle s (frequency) | aware s | gain | logic/DRAM degC"
        " | ms per K (LP / true) | gap | time"
    )
    reports, failed = [], False
    for study in STUDIES:
        if asked.only not in study.name:
            continue
        try:
            report, seconds = run(study, asked.time_limit, asked.gap)
        except DfoptError as error:
            print(f"{study.name} {study.overrides} | {error}", flush=True)
            failed = True
            continue
        reports.append({"case": study.name, "overrides": study.overrides, **report.to_data()})
        print(line(study, report, seconds), flush=True)
    if asked.json:
        with open(asked.json, "w", encoding="utf-8") as file:
            json.dump(reports, file, indent=1)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
