"""Both engines on the questions of questions.yaml: CPU seconds as ratios, and whether the answers are the same.

    python benchmarks/speed/engines.py [--repeats 3] [--only decode]

The second engine searches classes of plans as regions (``DFOPT_REGIONS=1``); what these do not cover it leaves to the
first. It fails where a question has another value, or another status, under the two.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import yaml
from versions import HERE, ROOT, Answer, asked, is_same, least

from dfopt.search.options import SWITCH


def answers(question: dict[str, Any], repeats: int) -> list[Answer]:
    """The answers of both engines, asked in turn."""
    given: list[list[Answer]] = [[], []]
    for _ in range(repeats):
        for on, of in enumerate(given):
            os.environ[SWITCH] = str(on)
            of.append(asked(ROOT, question))
    return [least(of) for of in given]


def main() -> int:
    """Compare, print, and say whether any two answers differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="questions whose name has this in it")
    given = parser.parse_args()
    data = yaml.safe_load((HERE / "questions.yaml").read_text())
    questions = {name: {**data["common"], **of} for name, of in data["questions"].items() if given.only in name}
    differ = 0
    print(f"{'question':38} {'first':>8} {'second':>8} {'ratio':>6}  value, status")
    for name, question in questions.items():
        first, second = answers(question, given.repeats)
        same = is_same(first, second)
        differ += not same
        said = f"{second.value}, {second.status}" if same else f"{first[1:]} became {second[1:]}"
        print(f"{name:38} {first.seconds:8.2f} {second.seconds:8.2f} {second.seconds / first.seconds:6.2f}  {said}")
        sys.stdout.flush()
    print(f"{differ} of {len(questions)} answered otherwise")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
