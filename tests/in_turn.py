"""Sweeps in this process, where processes are not what is tested: each spends 1.2 s on its imports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from dfopt.processes.executor import Take
from dfopt.processes.packing import Task
from dfopt.processes.worker import solve
from dfopt.studies import sweep


class InTurn:
    """Solves the cells of a sweep one after another."""

    jobs = 1

    def prepare(self, most: int) -> None: ...

    def run(self, tasks: Sequence[Task], take: Take) -> str:
        for number in range(len(tasks)):
            take(solve(tasks[number]))
        return ""

    def close(self) -> None: ...


@contextmanager
def in_turn() -> Iterator[None]:
    """A sweep that asks for processes of this machine has its cells solved here."""
    others = sweep.executor_of
    with patch.object(sweep, "executor_of", lambda jobs, cluster: others(jobs, cluster) if cluster else InTurn()):
        yield
