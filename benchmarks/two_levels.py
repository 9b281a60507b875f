"""What two levels lose: sharding and fusion one after the other against both found together, other rules alike.

    python benchmarks/two_levels.py [--seconds S] [--draw N [--seed K] | GRAPH:SYSTEM[:key=value,...] ...]

Keys are degrees of the plan, assumptions, or parameters of the graph. Every pair is solved without sequence parallelism
by ``sharding_objective: seconds`` and by ``joint``, then by both where tokens may be split. *Loss* is how much longer
the mapping of two levels takes. It fails (exit status 1) if the joint search is behind two levels, or a bound of one is
above the answer of the other, by more than 1e-6. ``--draw`` takes pairs of the zoo by chance, without those to which
neither has an answer, and says how many these were.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import yaml
from pairs import drawn

import dfopt as df
from dfopt.documents.assumptions import Assumptions, profile
from dfopt.documents.axes import AXES

SAME = 1e-6
PAIRS = [
    "gpt3-175b:sn10-8-torus",
    "gpt3-175b:sn10-8-ring",
    "gpt3-175b:sn10-8-ring:mode=training",
    "gpt3-175b:sn10-8-ring:overlap=none,tp=8",
    "gpt3-175b:h100-8:tp=8",
    "gpt3-1t:sn30-1024-2dtorus",
    "llama-3.1-70b:h100-8",
    "llama-3.1-70b:tpu-v4-64",
    "llama-3.1-8b:h100-8",
    "llama-3.1-8b:sn10-8-ring",
    "llama-3.1-8b:h100-8:tp=8",
    "llama-3.2-3b:groq-lpu-v1-8:batch=1,microbatch=1",
    "mistral-7b:h100-8:tp=8",
    "gemma-2-9b:sn10-8-ring:tp=8",
    "gpt2-small:sn10-8-ring",
    "gpt2-small:sn10-8-ring:mode=training,tp=8",
]
Answer = tuple[Any, float]


def solved(pair: str, seconds: float, **assumed: str) -> Answer:
    """The answer to a pair (None where nothing fits or nothing was found), and the CPU seconds that it took."""
    graph, system, *rest = pair.split(":")
    words = dict(one.split("=") for part in rest for one in part.split(","))
    given: dict[str, Any] = {key: yaml.safe_load(value) for key, value in words.items()}
    asked: dict[str, Any] = {key: given.pop(key) for key in list(given) if key in AXES}
    rules = {key: given.pop(key) for key in list(given) if key in Assumptions.model_fields}
    began = time.process_time()
    try:
        result = df.solve(
            df.load_graph(graph, **given), df.load_system(system), time_limit=seconds, zero=0,
            assumptions=profile("default").with_(**({"memory_reserve": 0.0} | rules | assumed)), **asked,
        )  # fmt: skip
    except (df.Infeasible, df.NoSolution):
        result = None
    return result, time.process_time() - began


def cells(answer: Answer) -> list[str]:
    """Value, gap and status, and seconds of one answer."""
    result, took = answer
    if result is None:
        return ["none found", "", f"{took:.2f}"]
    return [f"{result.value:.6g}", f"{100 * result.gap:.2g} %, {result.status}", f"{took:.2f}"]


def loss(levels: Any, joint: Any) -> tuple[str, bool]:
    """What two levels lose, and whether the answers contradict each other."""
    if levels is None or joint is None:
        return "", joint is None and levels is not None
    ahead = levels.value / joint.value - 1
    crossed = max(levels.bound, joint.bound) > min(levels.value, joint.value) * (1 + SAME)
    text = f"{100 * ahead:.2f} %"
    return text if joint.gap == 0 else f"{text} (gap {100 * joint.gap:.2g} %)", ahead < -SAME or crossed


def named(pair: str) -> str:
    """How a pair is called in the table."""
    return pair.replace(":", ", ", 1).replace(":", ": ").replace(",", ", ").replace(",  ", ", ")


def row(pair: str, seconds: float) -> tuple[str, bool, bool]:
    """A line of the table, whether the answers contradict each other, and whether there is any."""
    columns, wrong, answered = [named(pair)], False, False
    for tokens in ("none", "allow"):
        levels, joint = (
            solved(pair, seconds, sharding_objective=objective, sequence_parallelism=tokens)
            for objective in ("seconds", "joint")
        )
        lost, crossed = loss(levels[0], joint[0])
        wrong |= crossed
        answered |= levels[0] is not None or joint[0] is not None
        if tokens == "none":
            columns += cells(levels) + cells(joint)
        columns.append(lost)
    return "| " + " | ".join(columns) + " |", wrong, answered


def main(words: list[str] | None = None) -> int:
    """Print the table, say whether answers contradict each other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="*", help="GRAPH:SYSTEM[:key=value,...]; default: some of the zoo")
    parser.add_argument("--draw", type=int, metavar="N", help="so many pairs of the zoo by chance")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--seconds", type=float, default=30.0, help="for each solve")
    asked = parser.parse_args(words)
    solved("llama-68m:sn10-8-ring:tp=8", asked.seconds)  # imports of solvers are no part of the first row
    print(
        "| pair | two levels, s | gap, status | CPU s | together, s | gap, status | CPU s | loss | loss, tokens split |"
    )
    print("| --- | ---: | --- | ---: | ---: | --- | ---: | ---: | ---: |")
    bad = shown = without = 0
    for pair in asked.pairs or (PAIRS if asked.draw is None else drawn(asked.seed)):
        if shown == asked.draw:
            break
        line, wrong, answered = row(pair, asked.seconds)
        if asked.draw is not None and not answered:
            without += 1
            continue
        bad += wrong
        shown += 1
        print(line + (" contradicts" if wrong else ""), flush=True)
    if asked.draw is not None:
        print(f"{shown} pairs, {bad} contradict; {without} more without an answer")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
