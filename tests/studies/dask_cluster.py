"""A Dask cluster on loopback for the tests: a scheduler and workers as processes of their own, which may be killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WAIT = 60.0


class LoopbackCluster:
    """Processes of ``distributed``; `end` kills those that are left."""

    def __init__(self, folder: Path, workers: int = 3) -> None:
        self.folder = folder
        self.port = free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.workers: list[subprocess.Popen[bytes]] = []
        self._started = 0
        self.scheduler = self.start_scheduler()
        for _ in range(workers):
            self.start_worker()

    def start_scheduler(self) -> subprocess.Popen[bytes]:
        self.scheduler = self._start(
            "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard"
        )
        return self.scheduler

    def start_worker(self) -> subprocess.Popen[bytes]:
        words = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(self.folder))
        worker = self._start("distributed.cli.dask_worker", self.address, "--host", "127.0.0.1", *words)
        self.workers.append(worker)
        return worker

    def kill_scheduler(self) -> None:
        self.scheduler.kill()
        self.scheduler.wait()

    def kill_worker(self, number: int = 0) -> None:
        worker = self.workers.pop(number)
        worker.send_signal(signal.SIGKILL)
        worker.wait()

    def heal(self, workers: int) -> None:
        """Start what was killed, without waiting until it has come."""
        if self.scheduler.poll() is not None:
            while self.workers:  # they end without a scheduler, but not at once
                self.kill_worker()
            self.start_scheduler()
        while len(self.workers) < workers:
            self.start_worker()

    def end(self) -> None:
        for one in (*self.workers, self.scheduler):
            one.kill()
            one.wait()

    def words(self) -> str:
        """What all of them wrote, for the message of a test that fails."""
        return "\n".join(f"== {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self.folder.glob("*.log")))

    def _start(self, module: str, *words: str) -> subprocess.Popen[bytes]:
        self._started += 1
        code = f"import sys; from {module} import main; sys.exit(main())"
        with (self.folder / f"{self._started:02d}-{module.split('_')[-1]}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-c", code, *words],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "20s"},
            )


@contextmanager
def cluster_in(folder: Path, workers: int = 3) -> Iterator[LoopbackCluster]:
    """A cluster whose workers have come."""
    folder.mkdir()
    one = LoopbackCluster(folder, workers)
    try:
        one_is_up(one, workers)
        yield one
    except BaseException:
        print(one.words())
        raise
    finally:
        one.end()


def one_is_up(one: LoopbackCluster, workers: int) -> None:
    import distributed

    until = time.monotonic() + WAIT
    while True:
        try:
            with distributed.Client(one.address, timeout=5, set_as_default=False) as client:
                client.wait_for_workers(workers, timeout=until - time.monotonic())
            return
        except OSError:
            assert time.monotonic() < until, one.words()
            time.sleep(0.2)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
