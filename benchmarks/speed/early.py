"""How soon the default command has a mapping of questions that people ask, and how good it is after 10 and 60 s.

    python benchmarks/speed/early.py [NUMBER ...] [--limits 10 60]

Each run is a process of its own, of which the seconds of the processor count from its start. Bars: a first mapping
within 5 of them; within 5 % of the best that is known after 10 s, and 2 % after 60; a gigabyte at most. Exit status 1
if one is missed. The best known values (without a memory reserve, calibrated) are proven optimal, 30 November 2026,
but that of question 5: a better one is to replace it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Final, NamedTuple

FIRST_S, MOST_MB = 5.0, 1000.0
WITHIN: Final = {10.0: 0.05, 60.0: 0.02}
"""By limit in seconds, how far a value may be above the best that is known."""
_TRAIN: Final = "--param mode=training --param ends=true --param causal=true"
_PLAIN: Final = "--memory-reserve 0 --no-sensitivity --json -q"
_SIZE: Final = "h100-256 --set network.cluster.size"


class Question(NamedTuple):
    """Arguments of ``dfopt solve``, and the best step time that is known of them, in seconds."""

    asked: str
    best: float


QUESTIONS: Final = (
    Question(f"llama-3.1-70b {_SIZE}=8 {_TRAIN} --param seq=8192 --batch 512", 62.696),
    Question(f"llama-3.1-70b {_SIZE}=4 {_TRAIN} --param seq=8192 --batch 512", 126.066),
    Question(f"llama-3.1-8b {_SIZE}=8 {_TRAIN} --param seq=8192 --batch 256", 3.67793),
    Question(f"llama-3.1-8b h100-256 {_TRAIN} --param seq=8192 --batch 1024", 3.54377),
    Question(f"qwen3-235b-a22b {_SIZE}=8 {_TRAIN} --param seq=4096 --batch 512", 15.6639),
    Question("gpt3-175b a100-512 --param mode=training --batch 1536", 32.3636),
    Question("deepseek-v3 h200-32 --phase decode --batch 256 --context 4096", 0.0111343),
    Question("dlrm-793b h100-256", 0.00639336),
)


def child(words: list[str]) -> None:
    """One solve; the last line of stderr says when its first mapping came, and what it took."""
    from dfopt.cli import run
    from dfopt.show.progress import ProgressLine

    first: list[float] = []

    def noted(_: ProgressLine, report: object) -> None:
        if not first and getattr(report, "incumbent", float("inf")) < float("inf"):
            first.append(time.process_time())

    ProgressLine.__call__ = noted  # type: ignore[method-assign]
    sys.argv = ["dfopt", "solve", *words]
    try:
        run()
    finally:
        used = resource.getrusage(resource.RUSAGE_SELF)
        said = {"first": (first or [None])[0], "cpu": time.process_time(), "mb": used.ru_maxrss / 1024}
        print(json.dumps(said), file=sys.stderr)


def main() -> int:
    """Print a row for every question and limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", nargs="*", type=int, metavar="NUMBER", help="from 1 on; all if left out")
    parser.add_argument("--limits", nargs="+", type=float, default=[*WITHIN], metavar="SECONDS")
    given = parser.parse_args()
    print("question  limit  first, CPU s   CPU s     MB      step, s  above best gap")
    missed = False
    for number in given.numbers or range(1, len(QUESTIONS) + 1):
        question = QUESTIONS[number - 1]
        for limit in given.limits:
            words = [*question.asked.split(), *f"--time-limit {limit:g} {_PLAIN}".split()]
            done = subprocess.run([sys.executable, __file__, "--child", *words], capture_output=True, text=True)
            last = done.stderr.splitlines()[-1]
            none = {"first": None, "cpu": float("nan"), "mb": 0.0}  # no mapping: the command ends the process
            told = json.loads(last) if last.startswith("{") else none
            result = json.loads(done.stdout) if done.returncode == 0 else {"value": float("inf"), "gap": float("inf")}
            above = result["value"] / question.best - 1
            first = told["first"] or float("inf")
            missed |= first > FIRST_S or told["mb"] > MOST_MB or above > WITHIN.get(limit, 0.05)
            print(
                f"{number:>8} {limit:>6g} {first:>13.2f} {told['cpu']:>7.1f} {told['mb']:>6.0f}"
                f" {result['value']:>12.6g} {100 * above:>9.1f} % {100 * result['gap']:.2g} %",
                flush=True,
            )
    return int(missed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2:])
    else:
        sys.exit(main())
