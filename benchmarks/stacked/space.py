"""DeepStack's whole space, proven: eight questions over every size of ``space.yaml`` and every plan.

    python benchmarks/stacked/space.py run [--only deepseek-v3,decode,4] [--jobs 2] [--heat throttle]
    python benchmarks/stacked/space.py claims

``run`` asks each question that ``results/space.jsonl`` does not have through the command line, and adds what it said:
seconds include the start of the process. ``claims`` prints them. A design with more connected layers than layers is
none, so points are pairs of the designs that there are and of the plans of the workload, drawn in every microbatch.
With ``--heat`` each chip is stacked on the package of ``hybrid-vault``, and 5 % are enough.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from asked import add_record, records_of

from dfopt.documents.exploration import Exploration

HERE: Final = Path(__file__).parent
ANSWERS: Final = HERE / "results" / "space.jsonl"
PAIRED: Final = 136 / 256  # of the pairs of layers and connected layers there are
LENGTH: Final = {"decode": ("--context", "1536"), "prefill": ("--isl", "1024")}
QUESTIONS: Final = [
    (model, phase, batch)
    for model in ("deepseek-v3", "qwen3-235b-a22b")
    for phase in ("decode", "prefill")
    for batch in ("4", "1024")
]


def run(only: str, jobs: int, limit: int, heat: str) -> None:
    """Ask what is open."""
    done = {tuple(record["key"]) for record in records_of(ANSWERS)}
    for key in [(*question, heat) if heat else question for question in QUESTIONS]:
        if key in done or not ",".join((*key, "")).startswith(only and f"{only},"):
            continue
        add_record(ANSWERS, {"key": key, **asked(key, jobs, limit)})


def asked(key: tuple[str, ...], jobs: int, limit: int) -> dict[str, Any]:
    """The answer to one question."""
    model, phase, batch, *heat = key
    stacked = ("--stack", "hybrid-vault", "--heat", *heat) if heat else ()
    with tempfile.TemporaryDirectory() as folder:
        path, began = Path(folder) / "made.json", time.perf_counter()
        command = [
            *(sys.executable, "-m", "dfopt", "explore", model, str(HERE / "space.yaml"), "--phase", phase),
            *("--batch", batch, *LENGTH[phase], "--rank-order", "tp-mp-pp-dp", "--no-sensitivity", "-q"),
            *("--gap", str(gap_of(key)), "--time-limit", str(limit), "--jobs", str(jobs), "-o", str(path), *stacked),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds, made = time.perf_counter() - began, Exploration.load(path)
    plans, score = made.effort.plans or 0, made.result.score
    tokens, physical = score.tokens_per_s, score.physical
    told = {}
    if physical is not None:
        tokens *= score.step_time_s / physical.step_time_s
        told = {"clock": physical.frequency, "logic_c": physical.logic_max_c, "dram_c": physical.dram_max_c}
    return {
        "seconds": round(seconds), "jobs": jobs, "status": made.status, "gap": round(made.gap, 4),
        "tokens_per_s": tokens, "at_most": tokens * made.value / made.bound, "designs": made.effort.designs,
        "plans": plans, "points": made.effort.designs * PAIRED * plans, "solves": made.effort.solves,
        "best": made.best, "plan": made.result.plan.label, **told,
    }  # fmt: skip


def gap_of(key: tuple[str, ...]) -> float:
    """What is asked for: with heat, whose effect no box of designs knows exactly, a little more."""
    return 0.02 if len(key) == 3 else 0.05


def claims() -> None:
    """One line for each question."""
    for one in records_of(ANSWERS):
        holds = one["gap"] <= gap_of(tuple(one["key"])) and one["seconds"] <= 1800 and one["points"] >= 1e14
        said = f"{one['points']:.2g} points, gap {100 * one['gap']:.2f} %, {one['seconds']} s with {one['jobs']} jobs"
        print(f"{', '.join(one['key']):42} {'holds' if holds else 'fails'}: {said}, {one['solves']} solves")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "claims"))
    parser.add_argument("--only", default="", metavar="KEY", help="questions whose key begins so")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--heat", default="", choices=("", "throttle"))
    parser.add_argument("--time-limit", type=int, default=1800, metavar="S")
    given = parser.parse_args()
    if given.what == "run":
        run(given.only, given.jobs, given.time_limit, given.heat)
    else:
        claims()


if __name__ == "__main__":
    main()
