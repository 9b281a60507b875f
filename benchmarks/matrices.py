"""The joint search against the same problem as one MILP (``--formulation assignment``): values, bounds, seconds.

    python benchmarks/matrices.py [--seconds S] [--solver NAME] [GRAPH:SYSTEM[:key=value,...] ...]

Keys are assumptions, or degrees of the plan; the search chooses what is left of it. Then both solve it: the search
with its own code, a solver the matrices of :mod:`dfopt.joint.assignment`. It fails (exit status 1) if their values
differ by more than 1e-6, if a bound of one is above the value of the other, or if one of them ends without a proof.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from typing import Any

from pairs import dims_of

import dfopt as df
from dfopt.documents.assumptions import profile
from dfopt.documents.axes import AXES

SAME = 1e-6
PAIRS = [
    f"{graph}:{system}{plan},sequence_parallelism={tokens}"
    for graph in ("gpt3-175b", "llama-3.1-8b")
    for system in ("sn10-8-ring:execution=dataflow", "h100-8:execution=library")
    for tokens in ("none", "allow")
    for plan in ("", ",tp=8")
]


def row(pair: str, seconds: float, solver: str) -> tuple[str, bool]:
    """A line of the table, and whether both agree and are proven."""
    graph, system, *rest = pair.split(":")
    changes: dict[str, Any] = dict(one.split("=") for part in rest for one in part.split(","))
    degrees = {name: int(changes.pop(name)) for name in AXES if name in changes}
    chosen = profile("default").with_(**{"sharding_objective": "joint", "memory_reserve": 0.0} | changes)
    plan = df.solve(graph, system, assumptions=chosen, time_limit=seconds, zero=0, **degrees).plan
    asked = dims_of(plan)
    took, found = [], []
    for formulation in ("auto", "assignment"):
        began = time.perf_counter()
        found.append(
            df.solve(
                graph,
                system,
                assumptions=chosen,
                time_limit=seconds,
                formulation=formulation,
                solver=solver,
                zero=0,
                **asked,
            )
        )
        took.append(time.perf_counter() - began)
    search, matrices = found
    same = abs(search.value - matrices.value) <= SAME * search.value
    solves = [one for record in matrices.plans for one in record.solves if one.problem == "joint"]  # by tile count
    solve = min(solves, key=lambda one: one.objective or math.inf)
    bound = min(one.bound for one in solves)
    bounds = max(search.bound, bound) <= min(search.value, matrices.value) * (1 + SAME)
    gap = max(0.0, 1.0 - bound / matrices.value)
    proven = search.gap == 0.0 and gap <= SAME
    cells = [
        pair, plan.label, f"{search.value:.6g}", f"{took[0]:.2f}", f"{matrices.value:.6g}", f"{gap:.2g}",
        f"{took[1]:.1f}", f"{solve.rows}", f"{solve.columns}",
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |", same and bounds and proven


def main() -> int:
    """Print the table."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("pairs", nargs="*", default=PAIRS)
    asked.add_argument("--seconds", type=float, default=120.0)
    asked.add_argument("--solver", default="highs")
    given = asked.parse_args()
    print("| case | plan | search, s per step | in seconds | MILP | gap | in seconds | rows | columns |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    good = True
    for pair in given.pairs:
        line, fine = row(pair, given.seconds, given.solver)
        good &= fine
        print(line + ("" if fine else " differs, or is not proven"), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
