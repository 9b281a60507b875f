"""End drawn solves by a limit or a signal, and look at what is left.

    python benchmarks/endings.py limits [--seed S] [--count N] [--limits L ...] [--busy K]
    python benchmarks/endings.py signals [--seed S] [--count N]

``limits``: CPU seconds of the process with all it started are at most 1.1 L + 1, its memory is at most 1.5 GB, and the
exit code says whether there is an answer; beside ``--busy`` loops that keep cores busy, if asked for. ``signals``:
Ctrl-C or SIGTERM at random moments after the first mapping; a mapping must be printed and saved, and verified by
``dfopt check``. Every failure is told with its command; exit status 1 if there is any.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from drawing import command, drawn
from speed.early import QUESTIONS

import dfopt as df

MOST_MB: Final = 1500.0
CODES: Final = {0: True, 2: False, 3: False, 4: False, 5: False}
"""Exit code of a solve, and whether it then has an answer."""
FIRST_S: Final = 60.0  # for the first mapping, on a busy machine
SPREAD_S: Final = 6.0


class Ended(NamedTuple):
    """A process that has ended."""

    code: int
    out: str
    err: str
    cpu_s: float
    wall_s: float
    mb: float


def ended(words: list[str]) -> Ended:
    """Run ``dfopt`` to its end, in a process whose only child it is."""
    program = (
        "import json,resource,subprocess,sys,time;b=time.time();"
        "p=subprocess.run([sys.executable,'-m','dfopt',*sys.argv[1:]],capture_output=True,text=True);"
        "u=resource.getrusage(resource.RUSAGE_CHILDREN);"
        "print(json.dumps([p.returncode,p.stdout,p.stderr,u.ru_utime+u.ru_stime,time.time()-b,u.ru_maxrss/1024]))"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    return Ended(*json.loads(done.stdout))


def limit(seed: str, number: int, seconds: float, folder: Path) -> tuple[str, str]:
    """What is wrong with a solve that a limit ends, or nothing; and its command."""
    rng = random.Random(f"{seed}/{number}")
    if rng.random() < 0.5:
        words = ["solve", *rng.choice(QUESTIONS).asked.split(), "--time-limit", f"{seconds:g}"]
    else:
        words = command(drawn(rng), seconds)
    file = folder / f"{number}.json"
    words += ["-q", "-o", str(file)]
    words += ["--no-sensitivity"] * (rng.random() < 0.5)
    done = ended(words)
    wrong = []
    if done.cpu_s > 1.1 * seconds + 1:
        wrong.append(f"{done.cpu_s:.1f} CPU s")
    if done.mb > MOST_MB:
        wrong.append(f"{done.mb:.0f} MB")
    if done.code not in CODES or CODES[done.code] != file.exists() or "Traceback" in done.err:
        wrong.append(f"exit code {done.code}: {done.err.strip()[-200:]}")
    took = f"{done.cpu_s:6.1f} CPU s {done.wall_s:6.1f} s {done.mb:5.0f} MB"
    print(f"{number:4d} {seconds:5g} {took}, exit code {done.code}", flush=True)
    return ", ".join(wrong), shlex.join(words)


def interrupted(seed: str, number: int, folder: Path) -> tuple[str, str]:
    """What is wrong with a solve that a signal ends after its first mapping, or nothing; and its command."""
    rng = random.Random(f"{seed}/{number}")
    file, sent = folder / f"{number}.json", rng.choice((signal.SIGINT, signal.SIGTERM))
    words = [
        "solve",
        *QUESTIONS[number % len(QUESTIONS)].asked.split(),
        "--time-limit",
        f"{FIRST_S:g}",
        "-o",
        str(file),
    ]
    asked = [sys.executable, "-m", "dfopt", *words]
    # a shell has the signals ignored by what it starts in the background
    default = partial(signal.signal, sent, signal.SIG_DFL)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(asked, text=True, preexec_fn=default, **pipes) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if " s  best " in line:
                break
        time.sleep(rng.uniform(0, SPREAD_S))
        began = time.perf_counter()
        running.send_signal(sent)
        out, err = running.communicate(timeout=120)
        took = time.perf_counter() - began
    wrong = []
    if running.returncode or not out or not file.exists() or "Traceback" in err:
        wrong.append(f"exit code {running.returncode}: {err.strip()[-200:]}")
    else:
        result = df.Result.load(file)
        if result.status not in ("interrupted_with_solution", "optimal", "optimal_per_level"):
            wrong.append(f"status {result.status}")
        checked = ended(["check", str(file), "--time-limit", "40"])
        if checked.code:
            wrong.append(f"check: {checked.out[-300:]}{checked.err[-300:]}")
    print(f"{number:4d} {sent.name:7s} {took:5.1f} s until the end, exit code {running.returncode}", flush=True)
    return ", ".join(wrong), shlex.join(words)


def main() -> int:
    """End solves, print a row for each, say what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("limits", "signals"))
    parser.add_argument("--seed", default="0", help="any word, such as a date")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--limits", type=float, nargs="+", default=(2.0, 5.0, 20.0), metavar="L")
    parser.add_argument("--busy", type=int, default=0, metavar="K", help="loops that run meanwhile")
    asked = parser.parse_args()
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(asked.busy)]
    failures = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            for number in range(asked.count):
                seconds = asked.limits[number % len(asked.limits)]
                if asked.what == "limits":
                    wrong, words = limit(asked.seed, number, seconds, Path(folder))
                else:
                    wrong, words = interrupted(asked.seed, number, Path(folder))
                if wrong:
                    failures.append(f"{number}: {wrong}\n    dfopt {words}")
                    print(failures[-1], flush=True)
    finally:
        for loop in loops:
            loop.kill()
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"seed {asked.seed}: {len(failures)} of {asked.count} failed; at most {peak:.0f} MB")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
