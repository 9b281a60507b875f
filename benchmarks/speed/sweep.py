"""What a sweep costs beside its solves: a store of many tiny cells, and the executors' overhead on a real study.

    python benchmarks/speed/sweep.py store [--cells 10000]
    python benchmarks/speed/sweep.py executors [--study benchmarks/studies/dse.yaml] [--jobs 2] [--cluster ADDRESS]

``store`` sweeps cells whose solver answers at once (in this process), kills nothing, and prints seconds and the peak
memory of the client. ``executors`` prints 1 - solve seconds / (jobs x wall seconds) of the run, after the study is
expanded; on a machine that does nothing else it is what starting, sending, and writing cost.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
STUDY = HERE.parent / "studies" / "dse.yaml"


class Instant:
    """An executor whose solver is a copy of one real answer: what is left is the sweep's own work."""

    def __init__(self, answer: dict[str, Any], stop: int | None = None) -> None:
        self.answer, self.stop = answer, stop

    def prepare(self, most: int) -> None:
        """Nothing to start."""

    def run(self, tasks: Sequence[Any], take: Any) -> str:
        """Answer every task, or so many of them."""
        for number, task in enumerate(tasks):
            if number == self.stop:
                return "interrupted"
            take({**self.answer, "cell": task["cell"]})
        return ""

    def close(self) -> None:
        """Nothing to end."""


def store(cells: int) -> None:
    """Time every step of a sweep of tiny cells, interrupted half way and resumed."""
    from dfopt.documents.study import Study
    from dfopt.studies.cells import expand
    from dfopt.studies.sweep import collect, sweep

    side = round(cells**0.5)
    study = Study.from_data(
        {
            "schema": "dfopt/study/1",
            "name": "tiny",
            "graphs": [{"graph": "gpt2-small"}],
            "systems": [{"system": "sn10-8-ring"}],
            "options": {"tp": 8},
            "axes": {
                "bandwidth": [
                    {"label": n, "set": {"system.chip.dram.bandwidth": f"{100 + n} GB/s"}} for n in range(side)
                ],
                "limit": [{"label": n, "set": {"options.time_limit": f"{10 + n} s"}} for n in range(side)],
            },
        }
    )
    rows: list[tuple[str, float]] = []

    def timed(name: str, act: Any) -> Any:
        began = time.perf_counter()
        found = act()
        rows.append((name, time.perf_counter() - began))
        return found

    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    one = Study.from_data({**study.to_data(), "axes": {}})
    answer = dict(next(iter(sweep(one, jobs=1).records.values())))
    path = Path(tempfile.mkdtemp()) / "runs.jsonl"
    listed = timed("expand", lambda: expand(study))
    timed("half of a sweep", lambda: sweep(study, store=path, executor=Instant(answer, len(listed) // 2)))
    runs = timed("the rest, resumed", lambda: sweep(study, store=path, executor=Instant(answer)))
    assert runs.counts() == {str(answer["status"]): len(listed)}
    lines = path.read_bytes().count(b"\n")
    assert lines == len(listed), "a cell was written twice"
    timed("collect", lambda: collect(study, path))
    frame = timed("frame", runs.frame)
    assert len(frame) == len(listed)
    print(f"{len(listed)} cells, {path.stat().st_size / 1e6:.1f} MB")
    for name, seconds in rows:
        print(f"| {name} | {seconds:.2f} s |")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"| peak memory (at the start) | {peak:.0f} MB ({base:.0f} MB) |")


def executors(file: str, jobs: int, cluster: str | None) -> None:
    """Print how much of the executor's time is no solve."""
    from dfopt.studies.cells import expand
    from dfopt.studies.cluster import Cluster
    from dfopt.studies.executor import Processes
    from dfopt.studies.packing import Tasks
    from dfopt.studies.sweep import load_study

    study, folder, path = load_study(file)
    executor = Processes(jobs) if cluster is None else Cluster(cluster)
    executor.prepare(jobs)
    began = time.perf_counter()
    cells = expand(study, folder, path)
    expanded = time.perf_counter() - began
    records: list[dict[str, Any]] = []
    began, used = time.perf_counter(), time.process_time()
    executor.run(Tasks(cells), records.append)
    wall, used = time.perf_counter() - began, time.process_time() - used
    solved = sum(record["seconds"] for record in records)
    print(f"{len(records)} cells, expanded in {expanded:.1f} s; run {wall:.1f} s x {jobs}, solves {solved:.1f} s")
    print(f"overhead {100 * (1 - solved / (jobs * wall)):.1f} % of the time; the client used {used:.1f} s of processor")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["store", "executors"])
    parser.add_argument("--cells", type=int, default=10000)
    parser.add_argument("--study", default=str(STUDY))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cluster")
    given = parser.parse_args()
    if given.what == "store":
        store(given.cells)
    else:
        executors(given.study, given.jobs, given.cluster)
