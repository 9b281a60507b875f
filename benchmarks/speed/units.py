"""Units of work and CPU seconds of twenty searches: what a unit is worth, and whether two runs count the same.

    python benchmarks/speed/units.py [--only decode] [--busy 3]

Each question is answered twice, each time in a process of its own. The second time so many others keep the processors
busy. It fails where the two runs differ in the work that they count, in the answer or in its bound, unless the time
limit ended one. The median of units per CPU second is :data:`dfopt.bnb.UNITS_PER_S`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from versions import HERE, command

ANSWER = """
import json, sys, time
from pathlib import Path
from unittest.mock import patch
from dfopt.bnb import Clock
clocks = []
of_limit = Clock.of_limit.__func__
def counted(cls, seconds, began=None):
    clocks.append((of_limit(cls, seconds, began), time.process_time()))
    return clocks[-1][0]
with patch.object(Clock, "of_limit", classmethod(counted)):
    from dfopt.cli import run
    sys.argv = ["dfopt", *sys.argv[1:]]
    try:
        run()
    except SystemExit:
        pass
data = json.loads(Path(sys.argv[-1]).read_text()) if Path(sys.argv[-1]).exists() else {}
told = {name: data.get(name) for name in ("value", "bound", "status")}
print("COUNTED", json.dumps({**told, "units": clocks[0][0].spent, "seconds": time.process_time() - clocks[0][1]}))
"""
BUSY = "while True: pass"


def counted(question: dict[str, Any], busy: int) -> dict[str, Any]:
    """What a run says and counts beside so many busy processes."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            words = [sys.executable, "-c", ANSWER, *command(question, Path(folder) / "result.json")]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
    finally:
        for one in others:
            one.kill()
    lines = [line for line in done.stdout.splitlines() if line.startswith("COUNTED")]
    if not lines:
        raise SystemExit(f"no answer: {done.stderr}")
    return dict(json.loads(lines[-1].removeprefix("COUNTED")))


def main() -> int:
    """Answer, print, and say whether any two runs differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="questions whose name has this in it")
    parser.add_argument("--busy", type=int, default=0, help="busy processes beside the second run")
    given = parser.parse_args()
    data = yaml.safe_load((HERE / "questions.yaml").read_text())
    questions = {name: {**data["common"], **of} for name, of in data["questions"].items() if given.only in name}
    rates, differ = list[float](), 0
    print(f"{'question':38} {'CPU s':>7} {'units':>12} {'units/s':>10}")
    for name, question in questions.items():
        first, second = counted(question, 0), counted(question, given.busy)
        same = all(first[key] == second[key] for key in ("units", "value", "bound", "status"))
        differ += not same
        rates.append(first["units"] / first["seconds"])
        other = "" if same else f"  the second run: {second}"
        print(f"{name:38} {first['seconds']:7.2f} {first['units']:12,.0f} {rates[-1]:10,.0f}{other}", flush=True)
    print(f"median {statistics.median(rates):,.0f} units a CPU second; {differ} of {len(questions)} count otherwise")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
