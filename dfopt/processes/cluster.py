"""Solves tasks on a Dask cluster: the client hands out batches, takes records, and is the only one that writes.

A task of Dask is a batch of cells, about a second of work, which Dask solves again when a worker is lost. Only a few
batches per worker thread are on their way at any time, so that the client holds neither ten thousand cells nor their
answers. A lost scheduler ends the sweep; the same command goes on from the store.

What the workers run is in `dfopt.processes.remote`.
"""

from __future__ import annotations

import logging
import pickle
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from threading import Event, current_thread, main_thread
from types import FrameType
from typing import Any

from dfopt.errors import PlanError
from dfopt.interrupts import interrupt_after_imports
from dfopt.processes.batches import TaskQueue
from dfopt.processes.executor import INTERRUPTED, Take
from dfopt.processes.identity import identity
from dfopt.processes.packing import Task
from dfopt.processes.process import failed
from dfopt.processes.remote import difference, greet, solve_on_worker

_AHEAD = 2  # batches on their way per worker thread: one is solved, one waits, so that no worker waits for the client
_FEWEST = 4  # on their way with few workers or none yet: those to come find work
_LOOK = 1.0  # seconds between two looks at how many workers there are
_log = logging.getLogger("dfopt.studies")


class Cluster:
    """Executor on a Dask cluster, given by the address of its scheduler.

    The client disconnects at the end of a run or, with ``stay``, when it is closed.

    Raises
    ------
    PlanError
        If ``distributed`` is not installed, nobody answers at the address, or a worker has another dfopt.
    """

    jobs = 2  # or more: who does not ask beforehand hands out several tasks at once

    def __init__(self, address: str, patience: float = 30.0, stay: bool = False) -> None:
        try:
            import distributed
        except ImportError:
            raise PlanError('--cluster: needs Dask; python -m pip install "dask[distributed]"') from None
        self.address, self.patience, self.stay = address, patience, stay
        self._dask: Any = distributed
        self._client: Any = None

    def prepare(self, most: int) -> None:
        """Connect to the cluster and compare versions."""
        if not most or self._client is not None:
            return
        try:
            with _silence():
                self._client = self._dask.Client(self.address, timeout=self.patience, set_as_default=False)
                self._compare()
        except (OSError, _Lost) as error:  # TimeoutError is one
            raise PlanError(
                f"--cluster: no scheduler answers at {self.address} within {self.patience:.0f} s: {_first(error)}"
            ) from None
        except (ValueError, TypeError, KeyError) as error:
            raise PlanError(
                f"--cluster: found {self.address!r}, expected an address such as tcp://10.0.0.1:8786 ({error})"
            ) from None

    def run(self, tasks: Sequence[Task], take: Take) -> str:
        """Solve tasks on the cluster and call ``take`` with each record; see `dfopt.processes.executor.Executor`."""
        complete = False
        with _silence():  # until the client is closed: its thread may stumble over a Ctrl-C some time after it
            try:
                self.prepare(len(tasks))
                with _between_calls() as pressed:
                    _Session(self._client, tasks, take, pressed).run()
                complete = True
            except KeyboardInterrupt:
                return INTERRUPTED
            except _Lost as lost:
                return f"the scheduler at {self.address} is lost: {lost}"
            finally:
                if not (complete and self.stay):
                    self.close()
        return ""

    def close(self) -> None:
        """Disconnect from the cluster, which drops the tasks of this client."""
        client, self._client = self._client, None
        if client is not None:
            with _silence(), suppress(Exception):
                client.close(timeout=3)

    def _compare(self) -> None:
        """Every worker and the scheduler must have this dfopt: what comes later is checked with its first task."""
        with _connected():
            greetings = self._client.run(greet, on_error="return")
            replies = {f"the worker {name}": reply for name, reply in greetings.items()}
            try:
                self._client.run_on_scheduler(identity)
            except (ImportError, AttributeError) as error:
                replies["the scheduler"] = error
        for name, reply in replies.items():
            if isinstance(reply, OSError):  # a worker that has just gone
                continue
            wrong = f"no such dfopt there: {reply}" if isinstance(reply, Exception) else difference(reply, identity())
            if wrong:
                raise _other(name, wrong)
        if not replies:
            _log.warning("no worker at %s yet: waiting for the first", self.address)


class _Lost(Exception):
    """The connection to the scheduler is lost, or the scheduler has lost its tasks."""


def _other(who: str, wrong: str) -> PlanError:
    return PlanError(f"--cluster: {who} has another dfopt than this client: {wrong}; install the same there")


class _Session:
    """The batches of one sweep: out to the workers, records back."""

    def __init__(self, client: Any, tasks: Sequence[Task], take: Take, pressed: Event | None = None) -> None:
        self.client, self.tasks, self.take = client, tasks, take
        self._pressed = pressed or Event()  # by Ctrl-C
        self._batches = TaskQueue(range(len(tasks)))
        self._out: dict[str, tuple[list[int], Any]] = {}
        self._ended: SimpleQueue[Any] = SimpleQueue()
        self._threads = 0
        self._looked = float("-inf")

    def run(self) -> None:
        """Take a record for every task."""
        self._fill()
        while self._out:
            if self._pressed.is_set():
                raise KeyboardInterrupt
            try:
                future = self._ended.get(timeout=0.5)
            except Empty:
                if self.client.status != "running":
                    raise _Lost(f"the client is {self.client.status}") from None
                self._fill()
                continue
            numbers, _ = self._out.pop(future.key)
            for record in self._records(numbers, future):  # the workers have the next batch meanwhile
                self.take(record)
            self._fill()

    def _fill(self) -> None:
        with _connected():
            if time.monotonic() - self._looked > _LOOK:
                self._looked = time.monotonic()
                self._threads = sum(self.client.nthreads().values())
            most = max(_FEWEST, _AHEAD * self._threads)
            while len(self._out) < most and (numbers := self._batches.next(self._threads)):
                # as bytes, which Dask hands through; pickle writes what the tasks share once
                batch = pickle.dumps([self.tasks[number] for number in numbers])
                future = self.client.submit(solve_on_worker, batch, identity(), pure=False)
                self._out[future.key] = (numbers, future)
                future.add_done_callback(self._ended.put)

    def _records(self, numbers: list[int], future: Any) -> list[dict[str, Any]]:
        """The records of the first tasks of a batch, those that were solved; the other tasks are put back."""
        from distributed.scheduler import KilledWorker

        began = time.perf_counter()
        if future.cancelled() or future.status == "lost":
            raise _Lost("its tasks are cancelled")
        with _connected():
            error = future.exception(timeout=60) if future.status == "error" else None
            if error is None:
                answer: dict[str, Any] = future.result(timeout=60)
        if isinstance(error, KilledWorker):
            if len(numbers) > 1:
                self._batches.put_back_alone(numbers)
                return []
            died = f"every worker that had this cell died: {_first(error)}"
            return [failed(self.tasks[numbers[0]], began, died)]
        if error is not None:
            raise PlanError(
                f"--cluster: a worker cannot solve cells: {type(error).__name__}: {error}; install the same dfopt there"
            )
        if refused := answer.get("refused"):
            raise _other("a worker", refused)
        records: list[dict[str, Any]] = answer["records"]
        self._batches.put_back(numbers[len(records) :])
        self._batches.learn(sum(record["seconds"] for record in records), len(records))
        return records


@contextmanager
def _between_calls() -> Iterator[Event]:
    """Note Ctrl-C, to act on it between two calls of Dask: within one it comes back as whatever error Dask makes of it.

    A second Ctrl-C does not wait. Where it is ignored, or signals go to another thread, nothing changes.
    """
    pressed = Event()
    before = signal.getsignal(signal.SIGINT)
    ours = (signal.default_int_handler, interrupt_after_imports)
    if before not in ours or current_thread() is not main_thread():
        yield pressed
        return

    def note(number: int, frame: FrameType | None) -> None:
        if pressed.is_set():
            signal.default_int_handler(number, frame)
        pressed.set()

    signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _connected() -> Iterator[None]:
    """Raise `_Lost` for any error by which Dask shows that its scheduler has gone."""
    from concurrent.futures import CancelledError

    try:
        yield
    except (OSError, CancelledError, RuntimeError) as error:
        raise _Lost(f"{type(error).__name__}: {_first(error)}") from None


def _first(error: BaseException) -> str:
    """The first line of what an error says."""
    return (str(error) or type(error).__name__).splitlines()[0]


@contextmanager
def _silence() -> Iterator[None]:
    """Dask and its loop log every attempt to connect, and every task that Ctrl-C took before it was one, as an error
    with a traceback; the one message that matters is ours.
    """
    loggers = [logger for logger in logging.root.manager.loggerDict.values() if isinstance(logger, logging.Logger)]
    # each of them, because Dask gives some of its loggers levels of their own
    of_dask = [logger for logger in loggers if logger.name.partition(".")[0] in ("distributed", "tornado")]
    levels = [(logger, logger.level) for logger in of_dask]
    for logger, _ in levels:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in levels:
            logger.setLevel(level)
