"""The assignment-matrix program of whole models against the search: values, bounds, sizes and seconds.

    python benchmarks/formulation.py [--system b300-8] [--seconds 60] [--out FILE] [--only MODEL]
        [--phases prefill,decode,training] [--assume plain,calibrated]

For every model of the zoo and each phase the search answers first. Then the plan that it chose is solved once more as
one MILP, which chooses schemes and partitions. A case is

- *equal* where the MILP proves the value of the search to 1e-6,
- *better* where it proves a better one than a search that ended with a gap,
- *bounded* where it ends with a gap, its bound below the answer of the search,
- *large* where it is refused for its size, and *infeasible* where nothing fits that machine.

Anything else is a failure, and makes the exit status 1. Finished cases are kept in the file and not run again.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from pathlib import Path
from typing import Any

import dfopt as df
from dfopt.bnb import Clock
from dfopt.documents.zoo import zoo
from dfopt.errors import DfoptError
from dfopt.search.graph_search import GraphSearch
from dfopt.search.state import SearchState
from dfopt.search.workload_search import WorkloadSearch
from dfopt.setting.instance import Setting
from dfopt.solving.options import Options

SAME = 1e-6
PHASES: dict[str, dict[str, Any]] = {
    "forward": {"batch": 8},
    "prefill": {"batch": 8, "isl": 1024, "microbatch": 8},
    "decode": {"batch": 32, "context": 2048, "microbatch": 32},
    "training": {"batch": 32, "isl": 1024, "microbatch": 4, "recompute": "none"},
}
TRAINED = ("gpt2-small", "llama-3.2-1b", "llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v2-lite", "bert-large")
ASSUMED = {"plain": "default", "calibrated": "calibrated"}


def cases(phases: list[str], assumed: list[str]) -> list[tuple[str, str, str]]:
    """Models, phases and assumptions."""
    found = []
    for model in zoo("graphs"):
        for phase in phases:
            if phase != "training" or model in TRAINED:
                found += [(model, phase, name) for name in assumed]
    return found


def answer(model: str, phase: str, assumed: str, system: str, seconds: float) -> dict[str, Any]:
    """One case: what the search says, and what the MILP does."""
    parameters, began = {"phase": phase, **PHASES[phase]}, cpu()
    options = df.Request.of(time_limit=seconds, tp=8, **({"zero": 0} if phase == "training" else {}))
    result = df.solve(question(model, parameters, system, assumptions=ASSUMED[assumed], options=options))
    found: dict[str, Any] = {"plan": result.plan.label, "search": result.value, "search_gap": result.gap}
    found["search_s"], began = cpu() - began, cpu()
    asked = result.request.model_copy(update={"formulation": "assignment", "time_limit": seconds})
    within = Options(asked, Clock.of_limit(seconds)).asking(formulation="assignment", gap=0.0, solver="highs", seed=0)
    setting = Setting(result.graph, result.system, result.assumptions)
    graph = GraphSearch(setting, SearchState(within), [result.plan])
    WorkloadSearch([graph]).run()
    records = [one for plan in graph.records for one in plan.solves if one.formulation == "assignment"]
    found["milp"] = min((each.value for each in graph.state.solutions), default=None)
    found["bound"] = min(one.bound for one in graph.records if one.bound is not None)
    found["milp_s"], found["rows"] = cpu() - began, max((record.rows or 0 for record in records), default=0)
    return found


def question(model: str, parameters: dict[str, Any], system: str, **fields: Any) -> df.Question:
    """A question about a model in a phase; about one that has no phases as it is."""
    try:
        df.load_graph(model, **parameters)
    except DfoptError:
        parameters = {}
    return df.Question(graph=model, parameters=parameters, system=system, **fields)


def cpu() -> float:
    """Seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def verdict(row: dict[str, Any]) -> str:
    """What a case shows."""
    if "error" in row:
        kinds = {"nonzeros": "large", "Infeasible": "infeasible"}
        return next((said for word, said in kinds.items() if word in row["error"]), "refused")
    if row["bound"] > row["search"] * (1 + SAME) or row["milp"] is None:
        return "wrong" if row["bound"] > row["search"] * (1 + SAME) else "bounded"
    proven = row["bound"] >= row["milp"] * (1 - SAME)
    if row["milp"] < row["search"] * (1 - SAME):
        return "wrong" if row["search_gap"] == 0 else "better" if proven else "bounded"
    return "equal" if proven and row["milp"] <= row["search"] * (1 + SAME) else "bounded"


def main() -> int:
    """Run the cases, print and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", default="b300-8")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--only", default="")
    parser.add_argument("--phases", default="prefill,decode,training")
    parser.add_argument("--assume", default="plain")
    given = parser.parse_args()
    known = {}
    if given.out is not None and given.out.exists():
        known = {tuple(row["case"]): row for row in map(json.loads, given.out.read_text().splitlines())}
    counted: dict[str, int] = {}
    for case in cases(given.phases.split(","), given.assume.split(",")):
        if given.only not in case[0]:
            continue
        row = known.get(case)
        if row is None:
            row = {"case": case}
            try:
                row |= answer(*case, given.system, given.seconds)
            except (DfoptError, RuntimeError, AssertionError) as error:
                row["error"] = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
            if given.out is not None:
                with given.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
        said = verdict(row)
        counted[said] = counted.get(said, 0) + 1
        print(said, *case, {key: value for key, value in row.items() if key != "case"}, flush=True)
    print(counted)
    return 1 if counted.get("wrong", 0) or counted.get("refused", 0) else 0


if __name__ == "__main__":
    sys.exit(main())
