"""Twenty questions under two versions of dfopt: CPU seconds as ratios, and whether the answers are the same.

    python benchmarks/speed/versions.py BASE [--repeats 3] [--only decode]

``BASE`` is a commit. Both versions answer each question in turn, each time in a process of its own. The least CPU
seconds of each count, the start of the process included. It fails where a question takes more than 10 % longer than
under ``BASE``, or has another answer.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SLOWER = 1.10
SAME = 1e-9


class Answer(NamedTuple):
    """What a version said, and the CPU seconds that it took."""

    seconds: float
    status: str
    value: float | None


def command(question: dict[str, Any], file: Path) -> list[str]:
    """The words of a question."""
    options = {key: value for key, value in question.items() if key not in ("graph", "system")}
    words = [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    return ["solve", question["graph"], question["system"], *words, "-q", "--no-sensitivity", "-o", str(file)]


def asked(root: Path, question: dict[str, Any]) -> Answer:
    """The answer of the version in a folder."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        environment = {**os.environ, "PYTHONPATH": str(root)}
        words = [sys.executable, "-m", "dfopt", *command(question, file)]
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if not file.exists():
            return Answer(seconds, f"exit {done.returncode}: {done.stderr.strip().splitlines()[-1:]}", None)
        data = json.loads(file.read_text())
        return Answer(seconds, data["status"], data["value"])


def least(answers: list[Answer]) -> Answer:
    """The last answer, with the least seconds of all."""
    return answers[-1]._replace(seconds=min(each.seconds for each in answers))


def is_same(base: Answer, now: Answer) -> bool:
    """Whether two versions say the same: a limit may end both at other values."""
    if base.value is None or now.value is None:
        return base.status == now.status
    return base.status == now.status and abs(now.value / base.value - 1) <= SAME


def main() -> int:
    """Compare, print, and say whether anything is worse."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", help="commit that is compared with")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="questions whose name has this in it")
    given = parser.parse_args()
    data = yaml.safe_load((HERE / "questions.yaml").read_text())
    questions = {name: {**data["common"], **of} for name, of in data["questions"].items() if given.only in name}
    worse = 0
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", str(base), given.base], cwd=ROOT, check=True)
        try:
            for root in (base, ROOT):  # else one of them compiles itself at every start
                compileall.compile_dir(root / "dfopt", quiet=1)
            print(f"{'question':38} {given.base[:8]:>8} {'now':>8} {'ratio':>6}  value, status")
            for name, question in questions.items():
                answers: dict[Path, list[Answer]] = {base: [], ROOT: []}
                for _ in range(given.repeats):
                    for root, found in answers.items():
                        found.append(asked(root, question))
                before, now = least(answers[base]), least(answers[ROOT])
                ratio, same = now.seconds / before.seconds, is_same(before, now)
                worse += ratio > SLOWER or not same
                said = f"{now.value}, {now.status}" if same else f"{before[1:]} became {now[1:]}"
                print(f"{name:38} {before.seconds:8.2f} {now.seconds:8.2f} {ratio:6.2f}  {said}", flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(base)], cwd=ROOT, check=True)
    print(f"{worse} of {len(questions)} slower by more than 10 % or answered otherwise")
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main())
