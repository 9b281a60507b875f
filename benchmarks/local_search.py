"""Attack what results claim: descend from an answer over shardings pinned by hand, through the public API alone.

    python benchmarks/local_search.py [--seconds S] [--draw N [--seed K] [--given KEY=VALUE] | GRAPH:SYSTEM[:...] ...]

Keys are degrees of the plan, assumptions, or parameters of the graph. Every move pins the sharding of all kernels, with
that of one kernel, or of a run of neighbours that allow the same scheme, changed; the plan stays. A row says what the
result claims and what was found. It is a failure (exit status 1) if a mapping is below the bound that holds for every
mapping, or below an answer that calls itself optimal, by more than 1e-6. ``--draw`` takes pairs of the zoo by chance,
without those that have no answer, and says how many these were.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import yaml
from pairs import dims_of, drawn

import dfopt as df
from dfopt.documents.assumptions import Assumptions, profile
from dfopt.documents.axes import AXES
from dfopt.errors import DfoptError, PlanError
from dfopt.physics.ops import legal_schemes

SAME = 1e-6
# Where pinned shardings beat the answer of 2026-11-22 by 0.41, 3.6, 33.5 and 91.7 %, and others of every kind.
PAIRS = [
    "gpt3-175b:sn10-8-torus",
    "gpt3-1t:sn30-1024-2dtorus",
    "llama-3.1-70b:h100-256:mode=training,ends=false",
    "llama-3.2-3b:groq-lpu-v1-8:batch=1,microbatch=1",
    "gpt3-175b:sn10-8-ring",
    "gpt3-175b:sn10-8-ring:mode=training",
    "llama-3.1-70b:tpu-v4-64",
    "llama-3.1-70b:h100-8",
    "llama-3.1-8b:h100-8",
    "gpt2-small:sn10-8-ring",
    "dlrm-v2-mlperf:h100-8",
    "llama-3.2-1b:tpu-v5e-256",
]


def sharded(result: Any) -> dict[str, str]:
    """The scheme of every kernel."""
    return {kernel.name: kernel.sharding for kernel in result.mapping.kernels}


def moves(result: Any, now: dict[str, str]) -> Any:
    """Shardings in which one kernel, or a run of neighbours in the order of the file, has another scheme."""
    graph, degree = result.graph, result.plan.shards
    legal = [legal_schemes(kernel, degree, result.assumptions) for kernel in graph.kernels]
    names = [kernel.name for kernel in graph.kernels]
    for first in range(len(names)):
        for scheme in legal[first]:
            changed = dict(now)
            for k in range(first, len(names)):
                if scheme not in legal[k]:
                    break
                changed[names[k]] = scheme
                if changed != now:
                    yield dict(changed)


def attack(result: Any, seconds: float) -> tuple[float, int]:
    """The least value found by descent from the answer, and how many shardings were tried."""
    until = time.perf_counter() + seconds
    plan, now, best, tried = result.plan, sharded(result), result.value, 0
    fixed = dims_of(plan)
    seen = {tuple(now.values())}
    improved = True
    while improved and time.perf_counter() < until:
        improved = False
        for pins in moves(result, now):
            if time.perf_counter() > until:
                break
            if tuple(pins.values()) in seen:
                continue
            seen.add(tuple(pins.values()))
            tried += 1
            try:
                other = df.solve(
                    result.graph, result.system, assumptions=result.assumptions, pin_sharding=pins,
                    interleave=plan.interleave, time_limit=10.0, **fixed,
                )  # fmt: skip
            except DfoptError:  # pins that contradict each other, or do not fit
                continue
            if other.value < best * (1 - 1e-9):
                best, now, improved = other.value, sharded(other), True
                break
    return best, tried


def main() -> int:
    """Attack pairs, print a table, say whether a claim was refuted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="*", help="GRAPH:SYSTEM[:parameter=value,...]; default: a dozen of the zoo")
    parser.add_argument("--draw", type=int, metavar="N", help="so many pairs of the zoo by chance")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--given", default="", metavar="KEY=VALUE", help="what each drawn pair is asked, such as tp=8")
    parser.add_argument("--seconds", type=float, default=20.0, help="for the attack on a pair, and a drawn one's solve")
    asked = parser.parse_args()
    print(f"{'pair':52} {'status':18} {'value s':>12} {'gap %':>8} {'found s':>12} {'ahead %':>8} {'tried':>6}")
    refuted = shown = without = 0
    limit = {} if asked.draw is None else {"time_limit": asked.seconds}
    for pair in asked.pairs or (PAIRS if asked.draw is None else drawn(asked.seed, asked.given)):
        if shown == asked.draw:
            break
        graph, system, *rest = pair.split(":")
        parameters = dict(item.split("=") for item in rest[0].split(",")) if rest else {}
        typed = {key: yaml.safe_load(value) for key, value in parameters.items()}
        degrees: dict[str, Any] = {key: typed.pop(key) for key in list(typed) if key in AXES}
        rules = profile("default").with_(
            **{"memory_reserve": 0.0} | {key: typed.pop(key) for key in list(typed) if key in Assumptions.model_fields}
        )
        try:
            loaded = df.load_graph(graph, **typed)
            result = df.solve(loaded, df.load_system(system), assumptions=rules, **degrees, **limit)
        except (df.Infeasible, df.NoSolution, PlanError) as error:  # a plan: the machine may have no such degree
            if asked.draw is None and not isinstance(error, df.Infeasible):
                raise
            without += 1
            if asked.draw is None:
                print(f"{pair:52} infeasible", flush=True)
            continue
        shown += 1
        found, tried = attack(result, asked.seconds)
        wrong = found < result.bound * (1 - SAME) or (result.status == "optimal" and found < result.value * (1 - SAME))
        refuted += wrong
        print(
            f"{pair:52} {result.status:18} {result.value:12.6g} {100 * result.gap:8.3f} {found:12.6g}"
            f" {100 * (1 - found / result.value):8.3f} {tried:6d}{'  REFUTED' if wrong else ''}",
            flush=True,
        )
    print(f"{refuted} of {shown} claims refuted, {without} pairs without an answer")
    return 1 if refuted else 0


if __name__ == "__main__":
    sys.exit(main())
