"""Ask drawn questions, and hold each answer against others that it has to agree with.

    python benchmarks/consistency.py [--seed S] [--count N] [--seconds L] [--kind KIND ...] [--only NUMBER]

A draw takes a workload, a machine and a phase, and each option that goes with them with a chance of its own
(``drawing.py``). The kinds are those of ``relations.py``: the same question at three doors, the saved file in every
command, all decisions fixed, pins by hand, more of a resource, fewer restrictions, other names, other solvers; each
draw is held against one of them in turn. It is a failure (exit status 1) if answers differ. The tables say what became
of each kind, how often every option was drawn, and how many questions were refused. ``--only`` repeats one draw, with
the command that asks it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import shlex
import sys
from collections import Counter

from drawing import OPTIONS, command, drawn
from relations import KINDS, held


def main() -> int:
    """Draw, ask, compare, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", default="0", help="any word, such as a date")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0, help="limit of each answer")
    parser.add_argument("--kind", nargs="+", choices=tuple(KINDS), default=tuple(KINDS))
    parser.add_argument("--only", type=int, help="this draw alone")
    asked = parser.parse_args()
    used, of_kind, failures = Counter[str](), {kind: Counter[str]() for kind in asked.kind}, 0
    numbers = range(asked.count) if asked.only is None else [asked.only]
    for number in numbers:
        rng = random.Random(f"{asked.seed}/{number}")
        draw, kind = drawn(rng), asked.kind[number % len(asked.kind)]
        used.update({*draw.names, "--phase"} | ({"--batch"} if "batch" in draw.parameters else set()))
        with contextlib.redirect_stderr(io.StringIO()):
            verdict = held(kind, draw, asked.seconds, rng)
        of_kind[kind][verdict.kind] += 1
        failures += verdict.kind == "different"
        if verdict.kind == "different" or asked.only is not None:
            print(f"{number}: {kind} {verdict.kind}: {verdict.why}", flush=True)
            print(f"    dfopt {shlex.join(command(draw, asked.seconds))}", flush=True)
    print(f"seed {asked.seed}")
    for kind, counts in of_kind.items():
        print(f"  {kind:11s} {', '.join(f'{count} {word}' for word, count in sorted(counts.items()))}")
    for name in dict.fromkeys(option.name for option in OPTIONS):
        print(f"  {name:22s} {100 * used[name] / len(numbers):5.1f} %")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
