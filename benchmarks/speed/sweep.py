"""What a sweep costs beside its solves: a store of many tiny cells, and the executors' overhead on a real study.

    python benchmarks/speed/sweep.py store [--cells 10000]
    python benchmarks/speed/sweep.py executors [--study FILE] [--jobs 2] [--cluster ADDRESS | --cluster local:2]

``store`` sweeps cells whose solver answers at once (in this process), kills nothing, and prints seconds and the peak
memory of the client. ``executors`` prints 1 - solve seconds / (jobs x wall seconds) of the run, after the study is
expanded; on a machine that does nothing else it is what starting, sending, and writing cost. With ``local:2`` it starts
a scheduler and two workers here, and says who used the processor, beside what they use when there is nothing to do.
"""

from __future__ import annotations

import argparse
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
STUDY = HERE.parent / "studies" / "dse.yaml"
SOLVING = "solving processes"


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


class Local:
    """A scheduler and workers of one thread on this machine, started as a user starts them."""

    def __init__(self, workers: int) -> None:
        import distributed

        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        self.folder = tempfile.TemporaryDirectory()
        host = ("--host", "127.0.0.1")
        many = ("--nworkers", str(workers), "--nthreads", "1", "--local-directory", self.folder.name)
        self.scheduler = self._start("scheduler", *host, "--port", str(port), "--dashboard-address", "127.0.0.1:0")
        self.worker = self._start("worker", self.address, *host, *many)
        with distributed.Client(self.address, timeout=60, set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=60)

    def used(self) -> dict[str, float]:
        """Seconds of processor so far, by part."""
        import psutil

        below = psutil.Process(self.worker.pid).children(recursive=True)
        solving = [one for one in below if "dfopt.processes.worker" in one.cmdline()]
        parts = {
            "scheduler": [psutil.Process(self.scheduler.pid)],
            "workers": [psutil.Process(self.worker.pid), *(one for one in below if one not in solving)],
            SOLVING: solving,
        }
        return {name: sum(sum(one.cpu_times()[:2]) for one in processes) for name, processes in parts.items()}

    def end(self) -> None:
        """End them, the workers first: a solving process ends with its worker."""
        for one in (self.worker, self.scheduler):
            one.terminate()
            one.wait(60)
        self.folder.cleanup()

    def _start(self, what: str, *words: str) -> subprocess.Popen[bytes]:
        quiet = subprocess.DEVNULL
        return subprocess.Popen([sys.executable, "-m", "dask", what, *words], stdout=quiet, stderr=quiet)


def _per_second(used: Callable[[], dict[str, float]], seconds: float = 5.0) -> dict[str, float]:
    before = used()
    time.sleep(seconds)
    return {name: (after - before[name]) / seconds for name, after in used().items()}


def executors(file: str, jobs: int, cluster: str | None) -> None:
    """Print how much of the executor's time is no solve, and who used the processor."""
    from dfopt.processes.cluster import Cluster
    from dfopt.processes.executor import Processes
    from dfopt.studies.cells import expand
    from dfopt.studies.packing import Tasks
    from dfopt.studies.sweep import load_study

    local = None
    if cluster is not None and cluster.startswith("local:"):
        jobs = int(cluster.removeprefix("local:"))
        local = Local(jobs)
        cluster = local.address

    def used() -> dict[str, float]:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        others = {SOLVING: children.ru_utime + children.ru_stime} if local is None else local.used()
        return {"client": time.process_time(), **others}

    try:
        study, folder, path = load_study(file)
        executor = Processes(jobs) if cluster is None else Cluster(cluster)
        executor.prepare(jobs)
        began = time.perf_counter()
        cells = expand(study, folder, path)
        expanded = time.perf_counter() - began
        records: list[dict[str, Any]] = []
        idle = _per_second(local.used) if local is not None else {}
        before, began = used(), time.perf_counter()
        executor.run(Tasks(cells), records.append)
        wall = time.perf_counter() - began
        parts = {name: seconds - before[name] for name, seconds in used().items()}
    finally:
        if local is not None:
            local.end()
    solved = sum(record["seconds"] for record in records)
    print(f"{len(records)} cells, expanded in {expanded:.1f} s; run {wall:.1f} s x {jobs}, solves {solved:.1f} s")
    print(f"overhead {100 * (1 - solved / (jobs * wall)):.1f} % of the time")
    if cluster is None or local is not None:  # the processor of other machines cannot be seen from here
        for name, seconds in parts.items():
            print(f"| {name} | {seconds:.2f} s of processor | {idle.get(name, 0.0) * wall:.2f} s if it does nothing |")
        print(f"{100 * (1 - parts[SOLVING] / sum(parts.values())):.1f} % of the processor's time solves nothing")


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
