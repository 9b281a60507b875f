"""Designs of ``space.yaml`` drawn by chance, each solved alone: the best is that of the exploration of all of them.

    python benchmarks/stacked/exact.py [--seed 1] [--model qwen3-235b-a22b]

Values of every axis are drawn, 300 designs in all with those that have more connected layers than layers, which are
none. `dfopt.solve` answers each under all plans to a gap of 0; `dfopt.explore` looks at boxes of them.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from pathlib import Path
from typing import Any, Final

import dfopt as df
from dfopt.documents.design import Design
from dfopt.errors import DfoptError
from dfopt.library import as_design

COUNTS: Final = {"dram_layers": 5, "connected_layers": 3, "buffer": 5, "buffer_port": 2, "network_die": 2}
ASKED: Final[dict[str, Any]] = {"phase": "decode", "batch": 4, "context": 1536, "rank_order": "tp-mp-pp-dp"}


def drawn(seed: int) -> Design:
    """The design with values of every axis, and rates, by chance."""
    space, chance = as_design(Path(__file__).parent / "space.yaml"), random.Random(seed)
    data = space.to_data()
    given: dict[str, Any] = data["choices"]
    assert space.choices is not None
    rates = {str(role): f"{chance.choice(steps.values) / 1e9} GB/s" for role, steps in space.choices.rate.items()}
    kept = {name: sorted(chance.sample(given[name], count), key=given[name].index) for name, count in COUNTS.items()}
    return Design.from_data({**data, "sizes": {**data["sizes"], "rate": rates}, "choices": kept}, "drawn")


def alone(design: Design, model: str) -> dict[tuple[Any, ...], float]:
    """Seconds of a step of every design, each solved by itself."""
    data, found = design.to_data(), dict[tuple[Any, ...], float]()
    choices = data.pop("choices")
    for sizes in itertools.product(*(choices[name] for name in COUNTS)):
        try:
            one = Design.from_data({**data, "sizes": {**data["sizes"], **dict(zip(COUNTS, sizes, strict=True))}}, "one")
            found[sizes] = df.solve(model, one, gap=0.0, time_limit=600, **ASKED).step_time_s
        except DfoptError:  # no such design, or too small
            continue
        print(len(found), sizes, found[sizes], flush=True)
    return found


def main() -> int:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", default="qwen3-235b-a22b")
    given = parser.parse_args()
    design = drawn(given.seed)
    began = time.perf_counter()
    made = df.explore(given.model, design, gap=0.0, time_limit=3600, sensitivity=False, **ASKED)
    print(f"explored: {made.value!r} s, {made.status}, {made.best}, in {time.perf_counter() - began:.0f} s", flush=True)
    best = min(alone(design, given.model).values())
    same = abs(made.value / best - 1) <= 1e-9 and not made.gap
    print(f"seed {given.seed}: {made.value!r} explored, {best!r} of all alone: {'equal' if same else 'DIFFERENT'}")
    return not same


if __name__ == "__main__":
    sys.exit(main())
