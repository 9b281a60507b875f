"""How CPU seconds grow with a question: over chips, layers, experts, the batch, and kernels of a layer.

    python benchmarks/speed/growth.py [--axis chips ...] [--draw]

Every point is a process of its own, and its seconds are those of the processor. What it takes to start dfopt is taken
off before the exponent is fitted: seconds ~ size ** exponent. A point that ends at the limit is marked: what it would
have taken is not known. Writes ``results/growth.csv``, where axes that are not measured keep their rows, and from it
the page of the guide with its picture; ``--draw`` measures nothing.
"""

from __future__ import annotations

import argparse
import csv
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from cases import gpt  # noqa: E402
from versions import asked  # noqa: E402

import dfopt as df  # noqa: E402
from dfopt.show.plots.style import CYCLE, drawn  # noqa: E402

START = "import dfopt.cli.solve_command, dfopt.search.answering"
"""What every solve imports."""
COMMON = {"assume": "ideal", "time-limit": 300}
TRAINING = {"phase": "training", "gap": "1%"}
TABLE = HERE.parent / "results" / "growth.csv"
GUIDE = HERE.parents[1] / "dfopt" / "guide"
PAGE = """# Larger questions

After this page you know how the time of a solve grows with the size of your question.

`python benchmarks/speed/growth.py` makes this page. Each row changes one size of a question, and all else stays. The
time is that of the processor, without the start of dfopt. The exponent is the slope of a line through the points, both
axes logarithmic. With an exponent of 0.2, a question that is 32 times as large takes twice as long.
{when}, on {machine}:

| size | question | values | CPU s | exponent |
| --- | --- | --- | --- | ---: |
{rows}

![CPU seconds over size](pictures/growth.svg)

More chips and more layers add plans. Most plans give a chip the same work, so dfopt works that out once for many of
them. More experts and larger batches add no kernels to a layer. More kernels in a layer cost most:
each has schemes of its own, and each set of neighbours may be a partition.{late}
"""


@dataclass(frozen=True)
class Axis:
    """Sizes of one thing that a question has, and the rest of the question: words with ``{n}`` in place of the size."""

    name: str
    sizes: tuple[int, ...]
    says: str
    words: dict[str, Any]

    def question(self, size: int, folder: Path) -> dict[str, Any]:
        """The question of a size, as options of ``dfopt solve``; a graph that is drawn for it lies in a folder."""
        question = {key: str(value).replace("{n}", str(size)) for key, value in (COMMON | self.words).items()}
        if self.name == "kernels":
            question["graph"] = str(folder / f"{size}.yaml")
            gpt(layers=size // KERNELS).dump(question["graph"])
        return question


KERNELS = 18
"""Kernels of a GPT layer, forward."""
AXES = (
    Axis(
        "chips", (64, 512, 4096, 65536), "Llama 3.1 70B, training, batch = H100 chips, gap 1 %",
        {"graph": "llama-3.1-70b", "system": "h100:{n}", "batch": "{n}", **TRAINING},
    ),
    Axis(
        "layers", (12, 48, 160, 512), "Llama 3.1 70B, training on 512 H100, gap 1 %",
        {"graph": "llama-3.1-70b", "system": "h100:512", "batch": 512, "param": "layers={n}", **TRAINING},
    ),
    Axis(
        "experts", (8, 32, 128, 512), "Mixtral 8x7B, decode on 128 H100",
        {"graph": "mixtral-8x7b", "system": "h100:128", "phase": "decode", "batch": 64, "param": "experts={n}"},
    ),
    Axis(
        "batch", (8, 64, 1024, 32768), "Llama 3.1 8B, training on 8 H100, gap 1 %",
        {"graph": "llama-3.1-8b", "system": "h100-8", "batch": "{n}", **TRAINING},
    ),
    Axis(
        "kernels", (18, 36, 72, 144), "GPT layers drawn one after another, forward on 8 SN10, TP 8",
        {"graph": "", "system": "sn10-8-ring", "tp": 8},
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Point:
    """What a question of some size took, without the start."""

    axis: str
    size: int
    cpu_s: float
    status: str
    step_s: float
    machine: str
    day: str


def start_s() -> float:
    """CPU seconds that every solve takes to start: the least of three."""
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", START], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(seconds)


def measured(axis: Axis, machine: str) -> list[Point]:
    """The points of an axis."""
    points, start, day = list[Point](), start_s(), date.today().isoformat()
    with tempfile.TemporaryDirectory() as folder:
        for size in axis.sizes:
            answer = asked(HERE.parents[1], axis.question(size, Path(folder)))
            seconds = round(max(answer.seconds - start, 0.01), 3)
            points.append(Point(axis.name, size, seconds, answer.status, answer.value or np.nan, machine, day))
            print(f"{axis.name:8} {size:8,} {seconds:8.2f}  {answer.status}", flush=True)
    return points


def exponent(points: Sequence[Point]) -> float:
    """The slope of a line through the points that ended by themselves with a mapping, both axes logarithmic."""
    done = [each for each in points if each.status in ("optimal", "gap_reached")]
    sizes, seconds = np.log([each.size for each in done]), np.log([each.cpu_s for each in done])
    return float(np.polyfit(sizes, seconds, 1)[0]) if len(done) > 1 else np.nan


def known() -> dict[str, list[Point]]:
    """The points of all axes that were measured before."""
    if not TABLE.exists():
        return {}
    with TABLE.open(newline="") as file:
        rows = [
            Point(**row | {"size": int(row["size"]), "cpu_s": float(row["cpu_s"]), "step_s": float(row["step_s"])})
            for row in csv.DictReader(file)
        ]
    return {axis.name: found for axis in AXES if (found := [row for row in rows if row.axis == axis.name])}


@drawn
def picture(points_of: dict[str, list[Point]]) -> Any:
    """Seconds over sizes, one line for each axis."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for (name, points), colour in zip(points_of.items(), CYCLE, strict=False):
        sizes, seconds = [each.size for each in points], [each.cpu_s for each in points]
        ax.loglog(sizes, seconds, "o-", color=colour, label=f"{name}: exponent {exponent(points):.2f}")
        late = [each for each in points if each.status.startswith("limit")]
        ax.loglog([each.size for each in late], [each.cpu_s for each in late], "x", color="black", ms=9)
    ax.set(xlabel="size", ylabel="CPU s, without the start")
    ax.legend(frameon=False)
    return figure


def page(points_of: dict[str, list[Point]]) -> str:
    """The page of the guide."""
    rows, says = [], {axis.name: axis.says for axis in AXES}
    for name, points in points_of.items():
        sizes, seconds = (", ".join(f"{value:,.4g}" if value < 10 else f"{value:,.0f}" for value in values)
                          for values in ([each.size for each in points], [each.cpu_s for each in points]))  # fmt: skip
        rows.append(f"| {name} | {says[name]} | {sizes} | {seconds} | {exponent(points):.2f} |")
    every = [each for points in points_of.values() for each in points]
    late = any(each.status.startswith("limit") for each in every)
    said = "\n\nA cross marks a search that ended at its time limit." if late else ""
    day = date.fromisoformat(max(each.day for each in every))
    when = f"On {day.day} {day:%B %Y}"
    return PAGE.format(when=when, machine=every[0].machine, rows="\n".join(rows), late=said).rstrip() + "\n"


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--axis", nargs="*", choices=[axis.name for axis in AXES], help="axes; all if left out")
    parser.add_argument("--machine", default="one core", help="what it runs on, in the words of the page")
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    given = parser.parse_args()
    points_of = known()
    for axis in AXES:
        if not given.draw and (given.axis is None or axis.name in given.axis):
            points_of[axis.name] = measured(axis, given.machine)
            print(f"{axis.name}: seconds ~ size ** {exponent(points_of[axis.name]):.2f}")
            with TABLE.open("w", newline="") as file:
                writer = csv.DictWriter(file, [field.name for field in fields(Point)], lineterminator="\n")
                writer.writeheader()
                writer.writerows(asdict(each) for one in AXES for each in points_of.get(one.name, ()))
    (GUIDE / "growth.md").write_text(page(points_of), encoding="utf-8")
    df.plot.save(picture(points_of), GUIDE / "pictures" / "growth.svg")


if __name__ == "__main__":
    main()
