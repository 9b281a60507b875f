"""How CPU seconds grow with a question: over chips, layers, experts, the batch, and kernels of a layer.

    python benchmarks/speed/growth.py [--only chips] [--output FOLDER]

Every point is a process of its own, and its seconds are those of the processor. What it takes to start dfopt is taken
off before the exponent is fitted: seconds ~ size ** exponent. Writes ``growth.csv`` and ``growth.svg``. A point that
ends at the limit is marked: what it would have taken is not known.
"""

from __future__ import annotations

import argparse
import csv
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from cases import gpt  # noqa: E402
from versions import Answer, asked  # noqa: E402

import dfopt as df  # noqa: E402
from dfopt.show.plots.style import CYCLE, drawn  # noqa: E402

START = "import dfopt.cli.solve_command, dfopt.search.answering"
"""What every solve imports."""
COMMON = {"assume": "ideal", "time-limit": 600}
TRAINING = {"phase": "training", "gap": "1%"}


@dataclass(frozen=True)
class Axis:
    """Sizes of one thing that a question has, and the rest of the question: words with ``{n}`` in place of the size."""

    name: str
    sizes: tuple[int, ...]
    words: dict[str, Any]

    def question(self, size: int, folder: Path) -> dict[str, Any]:
        """The question of a size, as options of ``dfopt solve``; a graph that is drawn for it lies in a folder."""
        question = {key: str(value).replace("{n}", str(size)) for key, value in (COMMON | self.words).items()}
        if self.name == "kernels":
            question["graph"] = str(folder / f"{size}.yaml")
            gpt(layers=size // KERNELS).save(question["graph"])
        return question


KERNELS = 18
"""Kernels of a GPT layer, forward."""
AXES = (
    Axis("chips", (64, 512, 4096, 65536), {"graph": "llama-3.1-70b", "system": "h100:{n}", "batch": "{n}", **TRAINING}),
    Axis(
        "layers",
        (12, 48, 160, 512),
        {"graph": "llama-3.1-70b", "system": "h100:64", "batch": 64, "param": "layers={n}", **TRAINING},
    ),
    Axis(
        "experts",
        (8, 32, 128, 512),
        {"graph": "mixtral-8x7b", "system": "h100-8", "phase": "decode", "batch": 64, "param": "experts={n}"},
    ),
    Axis("batch", (8, 64, 1024, 32768), {"graph": "llama-3.1-8b", "system": "h100-8", "batch": "{n}", **TRAINING}),
    Axis("kernels", (18, 36, 72, 162), {"graph": "", "system": "sn10-8-ring", "phase": "forward", "tp": 8}),
)


@dataclass(frozen=True)
class Point:
    """What a question of some size took, without the start: CPU seconds."""

    axis: str
    size: int
    seconds: float
    answer: Answer


def start_s() -> float:
    """CPU seconds that every solve takes to start: the least of three."""
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", START], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(seconds)


def measured(axis: Axis, start: float) -> list[Point]:
    """The points of an axis."""
    points = []
    with tempfile.TemporaryDirectory() as folder:
        for size in axis.sizes:
            answer = asked(HERE.parents[1], axis.question(size, Path(folder)))
            points.append(Point(axis.name, size, max(answer.seconds - start, 0.01), answer))
            print(f"{axis.name:8} {size:8,} {points[-1].seconds:8.2f}  {answer.status}", flush=True)
    return points


def exponent(points: Sequence[Point]) -> float:
    """The slope of a line through the points, both axes logarithmic."""
    return float(np.polyfit(np.log([each.size for each in points]), np.log([each.seconds for each in points]), 1)[0])


@drawn
def picture(points_of: dict[str, list[Point]]) -> Any:
    """Seconds over sizes, one line for each axis."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for (name, points), colour in zip(points_of.items(), CYCLE, strict=False):
        sizes, seconds = [each.size for each in points], [each.seconds for each in points]
        ax.loglog(sizes, seconds, "o-", color=colour, label=f"{name}: exponent {exponent(points):.2f}")
        late = [each for each in points if each.answer.status.startswith("limit")]
        ax.loglog([each.size for each in late], [each.seconds for each in late], "x", color="black", ms=9)
    ax.set(xlabel="size", ylabel="CPU s, without the start", title="How a solve grows (x: ended at the limit)")
    ax.legend(frameon=False)
    return figure


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[axis.name for axis in AXES], help="one axis; all if left out")
    parser.add_argument("--output", type=Path, default=HERE.parent / "results", help="folder for what is written")
    given = parser.parse_args()
    start = start_s()
    print(f"start: {start:.2f} CPU s")
    points_of = {axis.name: measured(axis, start) for axis in AXES if given.only in (None, axis.name)}
    for name, points in points_of.items():
        print(f"{name}: seconds ~ size ** {exponent(points):.2f}")
    given.output.mkdir(parents=True, exist_ok=True)
    with (given.output / "growth.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["axis", "size", "cpu_s", "status", "step_s"])
        for point in (each for points in points_of.values() for each in points):
            writer.writerow([point.axis, point.size, f"{point.seconds:.3f}", point.answer.status, point.answer.value])
    df.plot.save(picture(points_of), given.output / "growth.svg")


if __name__ == "__main__":
    main()
