"""How long every model of the library takes to be mapped: the study ``zoo.yaml`` by the clock of the processor.

    python benchmarks/zoo.py [--store FILE] [--write] [--systems NAME ...] [--graphs NAME ...]

It solves the cells one after another in this process, so that the seconds of a record are those of the processor, and
do not depend on what else runs. A second run with the same store goes on where one stopped. ``--write`` makes the page
of the guide and its picture. A cell is fine if its answer is proven, or if nothing fits and the answer says by how
much. The exit status is 1 unless that holds for 99 % of the cells, and half of them take 2 s at most.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dfopt as df
from dfopt.documents.study import Study
from dfopt.processes.worker import solve
from dfopt.show.plots.style import CYCLE, drawn
from dfopt.studies.sweep import load_study

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "dfopt" / "guide" / "zoo.md"
PICTURE = PAGE.parent / "pictures" / "zoo-seconds.svg"
SLOW = 15.0  # seconds from which on a cell is printed
MOST_MEDIAN, LEAST_DONE = 2.0, 0.99
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))

TEXT = """\
# The zoo, measured

After this page you know how long dfopt takes to map the models of its library, and which of them it cannot prove.

`python benchmarks/zoo.py --write` makes this page. It solves every cell of `benchmarks/zoo.yaml`: {models} models in
prefill and decode on {machines} machines. Prefill has 8 prompts of up to 4,096 tokens. Decode has 16 sequences with as
many cached tokens. Microbatch and all degrees of parallelism are free, and a search goes on until it has a proof. On
{day}, dfopt {version} took {minutes:.0f} CPU minutes on one core for {cells} cells.

| machine | cells | optimal | does not fit | no proof | median, CPU s | 95th percentile | worst | slowest cell |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |
{rows}

Where a model does not fit, the answer is a refusal: it says by how much the best
plan is short of memory.{left}

![Seconds to a proof](pictures/zoo-seconds.svg)

The picture has the share of cells that end within so many CPU seconds. `python benchmarks/zoo.py` sees half of them end
within {half:.2f} s, and {share:.0f} % within {slow:.0f} s. Other programs used the machine at the same time, so an idle
one is faster.

`dfopt sweep benchmarks/zoo.yaml` solves the same cells, and prints their plans and rates.
"""


class InTurn:
    """Solves the tasks of a sweep one after another in this process, and takes the time of the processor."""

    def prepare(self, most: int) -> None:
        """Nothing to start."""

    def run(self, tasks: Sequence[Any], take: Callable[[dict[str, Any]], None]) -> str:
        """See `dfopt.processes.executor.Executor`."""
        for task in tasks:
            began = time.process_time()
            record = solve(task)
            take({**record, "seconds": time.process_time() - began})
        return ""

    def close(self) -> None:
        """Nothing to free."""


def part_of(study: Study, graphs: Sequence[str], systems: Sequence[str]) -> Study:
    """The study with some of its models and machines; all where none is named."""
    chosen = {
        "graphs": [entry for entry in study.graphs if not graphs or entry.graph in graphs],
        "systems": [entry for entry in study.systems if not systems or entry.system in systems],
    }
    return study.model_copy(update=chosen)


def outcomes(frame: Any) -> Any:
    """The frame with how each cell ended: ``optimal``, ``does not fit`` or ``no proof``."""
    fits_not = (frame["status"] == "infeasible") & frame["note"].fillna("").str.contains("short by")
    ended = frame["status"].where(frame["status"] == "optimal", "no proof").mask(fits_not, "does not fit")
    return frame.assign(ended=ended)


def row(machine: str, cells: Any) -> str:
    """A line of the table."""
    counts = cells["ended"].value_counts()
    seconds = cells["solve_s"]
    words = [machine, len(cells), *(counts.get(kind, 0) for kind in ("optimal", "does not fit", "no proof"))]
    words += [f"{seconds.quantile(share):.2f}" for share in (0.5, 0.95, 1.0)]
    return f"| {' | '.join(map(str, words))} | {cells.loc[seconds.idxmax(), 'graph']} |"


@drawn
def picture(frame: Any) -> Any:
    """The share of cells that are done after so many seconds, a line for each machine."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    for (machine, cells), colour, style in zip(frame.groupby("system", sort=False), CYCLE, STYLES, strict=False):
        seconds = sorted(cells["solve_s"])
        shares = [100 * (i + 1) / len(seconds) for i in range(len(seconds))]
        ax.step(seconds, shares, where="post", color=colour, linestyle=style, label=machine)
    ax.set(xscale="log", xlabel="CPU seconds to the end of the search", ylabel="cells that are done (%)", ylim=(0, 101))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.legend(frameon=False, loc="lower right")
    return figure


def write(frame: Any) -> None:
    """The page of the guide, and its picture."""
    left = frame[frame["ended"] == "no proof"]
    named = "\n".join(f"| {cell.graph} on {cell.system} | {100 * cell.gap:.2g} % |" for cell in left.itertuples())
    text = TEXT.format(
        models=frame["graph"].str.rsplit(" ", n=1).str[0].nunique(),
        machines=frame["system"].nunique(),
        day=f"{datetime.now(UTC):%d %B %Y}".lstrip("0"),
        version=df.__version__,
        minutes=frame["solve_s"].sum() / 60,
        cells=len(frame),
        rows="\n".join([*(row(name, cells) for name, cells in frame.groupby("system", sort=False)), row("all", frame)]),
        left=f" These searches end at the time limit of the study:\n\n| cell | gap |\n| --- | ---: |\n{named}"
        if named
        else "",
        half=frame["solve_s"].median(),
        share=100 * (frame["solve_s"] < SLOW).mean(),
        slow=SLOW,
    )
    PAGE.write_text(text, encoding="utf-8")
    df.plot.save(picture(frame), PICTURE)


def main() -> int:
    """Solve, print what is slow or has no proof, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--systems", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--store", type=Path, metavar="FILE", help="file of record")
    parser.add_argument("--write", action="store_true", help="write the page of the guide")
    asked = parser.parse_args()
    study, _, _ = load_study(HERE / "zoo.yaml")
    runs = df.sweep(part_of(study, asked.graphs, asked.systems), store=asked.store, executor=InTurn())
    frame = outcomes(runs.frame())
    seconds, unproven = frame["solve_s"], frame["ended"] == "no proof"
    for cell in frame[unproven | (seconds > SLOW)].itertuples():
        print(f"{cell.solve_s:6.2f} s  {cell.graph}, {cell.system}: {cell.status}, gap {cell.gap:.2g}")
    counts = ", ".join(f"{count} {kind}" for kind, count in frame["ended"].value_counts().items())
    print(f"{len(frame)} cells: {counts}")
    print(f"seconds: median {seconds.median():.2f}, worst {seconds.max():.2f}, all {seconds.sum():.1f}")
    if asked.write:
        write(frame)
    return 0 if unproven.mean() <= 1 - LEAST_DONE and seconds.median() <= MOST_MEDIAN else 1


if __name__ == "__main__":
    sys.exit(main())
