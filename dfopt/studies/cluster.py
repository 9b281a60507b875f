"""Solves cells on a Dask cluster: the client hands out batches, takes records, and is the only one that writes.

A task of Dask is a batch of cells, about a second of work, under a key made of theirs: Dask solves it again when a
worker is lost, and hands the same answer to whoever asks twice. Only a few batches per worker thread are on their way
at any time, so that the client holds neither ten thousand cells nor their answers. When the scheduler is lost, the
client connects to the next one at the same address and hands out again what it has no record of.

What the workers run is in `dfopt.studies.remote`.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any

from dfopt.errors import PlanError
from dfopt.studies.batches import Batches
from dfopt.studies.executor import INTERRUPTED, Take
from dfopt.studies.identity import identity
from dfopt.studies.packing import Task
from dfopt.studies.process import failed
from dfopt.studies.remote import difference, greet, solve_on_worker

__all__ = ["Cluster"]

_AHEAD = 2  # batches on their way per worker thread: one is solved, one waits, so that no worker waits for the client
_FEWEST = 4  # on their way with few workers or none yet: those to come find work
_LOOK = 1.0  # seconds between two looks at how many workers there are
_log = logging.getLogger("dfopt.studies")


class Cluster:
    """A Dask cluster, by the address of its scheduler.

    Parameters
    ----------
    address : str
        Such as ``tcp://10.0.0.1:8786``.
    patience : float
        Seconds to wait for the scheduler, at the start and whenever it is lost.

    Raises
    ------
    PlanError
        If ``distributed`` is not installed, nobody answers at the address, or a worker has another dfopt.
    """

    def __init__(self, address: str, patience: float = 60.0) -> None:
        try:
            import distributed
        except ImportError:
            raise PlanError('--cluster: needs Dask; pip install "dfopt[cluster]"') from None
        self.address, self.patience = address, patience
        self._dask: Any = distributed
        self._client: Any = None
        self._answered = False

    def prepare(self, most: int) -> None:
        """Connect, and compare versions."""
        if most:
            self._connect(self.patience)

    def run(self, tasks: Sequence[Task], take: Take) -> str:
        """See `dfopt.studies.executor.Executor`."""
        todo = dict.fromkeys(range(len(tasks)))  # numbers of the tasks without a record, in order
        try:
            with _silence():
                while todo:
                    if self._client is None:
                        self._connect(self.patience)
                    try:
                        _Session(self._client, tasks, todo, take).run()
                    except _Lost as lost:
                        _log.warning("the scheduler at %s is lost (%s): connecting again", self.address, lost)
                        self.close()
        except KeyboardInterrupt:
            return INTERRUPTED
        except _NoScheduler as error:
            return str(error)
        finally:
            self.close()
        return ""

    def close(self) -> None:
        """Leave the cluster, which forgets the tasks of this client."""
        client, self._client = self._client, None
        if client is not None:
            with _silence(), suppress(Exception):
                client.close(timeout=3)

    def _connect(self, patience: float) -> None:
        until, told = time.monotonic() + patience, False
        while self._client is None:
            left = until - time.monotonic()
            try:
                with _silence():
                    client = self._dask.Client(self.address, timeout=max(min(left, 5.0), 0.5), set_as_default=False)
            except (OSError, TimeoutError) as error:
                if (left := until - time.monotonic()) > 0:
                    if not told:
                        _log.warning("no scheduler answers at %s: trying for %.0f s more", self.address, left)
                    told = True
                    time.sleep(0.2)
                    continue
                first = str(error).splitlines()[0] if str(error) else type(error).__name__
                said = f"no scheduler answers at {self.address} within {patience:.0f} s: {first}"
                raise (_NoScheduler(said) if self._answered else PlanError(f"--cluster: {said}")) from None
            except (ValueError, TypeError, KeyError) as error:
                raise PlanError(
                    f"--cluster: found {self.address!r}, expected an address such as tcp://10.0.0.1:8786 ({error})"
                ) from None
            self._client = client
        try:
            self._compare()
        except PlanError:
            self.close()
            raise
        except Exception as error:  # lost again before it said who it is
            self.close()
            if until - time.monotonic() > 0:
                time.sleep(0.2)
                self._connect(until - time.monotonic())
                return
            raise _NoScheduler(f"the scheduler at {self.address} breaks off: {type(error).__name__}: {error}") from None
        self._answered = True

    def _compare(self) -> None:
        """Every worker and the scheduler must have this dfopt: what comes later is checked with its first task."""
        found = {f"the worker {name}": said for name, said in self._client.run(greet, on_error="return").items()}
        try:
            self._client.run_on_scheduler(identity)
        except (ImportError, AttributeError) as error:
            found["the scheduler"] = error
        for name, said in found.items():
            if isinstance(said, OSError | TimeoutError):  # a worker that has just gone
                continue
            wrong = f"no such dfopt there: {said}" if isinstance(said, Exception) else difference(said, identity())
            if wrong:
                raise PlanError(
                    f"--cluster: {name} has another dfopt than this client: {wrong}; install the same there"
                )
        if not found:
            _log.warning("no worker at %s yet: waiting for the first", self.address)


class _Lost(Exception):
    """The connection to the scheduler, or what it knew of the tasks."""


class _NoScheduler(Exception):
    """Nobody answers any more."""


class _Session:
    """What happens between connecting and losing the scheduler: batches out, records in."""

    def __init__(self, client: Any, tasks: Sequence[Task], todo: dict[int, None], take: Take) -> None:
        self.client, self.tasks, self.todo, self.take = client, tasks, todo, take
        self._batches = Batches(todo)
        self._out: dict[str, tuple[list[int], Any]] = {}
        self._ended: SimpleQueue[Any] = SimpleQueue()
        self._threads = 0
        self._looked = float("-inf")

    def run(self) -> None:
        """Take a record for every task of ``todo``, and remove it there."""
        self._fill()
        while self._out:
            try:
                future = self._ended.get(timeout=0.5)
            except Empty:
                if self.client.status != "running":
                    raise _Lost(f"the client is {self.client.status}") from None
                self._fill()
                continue
            numbers, _ = self._out.pop(future.key, (None, None))
            if numbers is None:
                continue
            records = self._records(numbers, future)
            future.release()
            for number, record in zip(numbers, records, strict=False):  # the workers have the next batch meanwhile
                self.take(record)
                del self.todo[number]
            self._fill()

    def _fill(self) -> None:
        if time.monotonic() - self._looked > _LOOK:
            self._looked = time.monotonic()
            with self._connected():
                self._threads = sum(self.client.nthreads().values())
        while len(self._out) < max(_FEWEST, _AHEAD * self._threads) and (numbers := self._batches.next(self._threads)):
            batch = [self.tasks[number] for number in numbers]
            # what is kept with the record is another answer of the same cell
            names = [*(task["cell"] for task in batch), identity()["program"], str(bool(batch[0].get("keep")))]
            key = f"dfopt-{hashlib.sha256(' '.join(names).encode()).hexdigest()}"
            with self._connected():
                # as bytes, which Dask hands through; pickle writes what the tasks share once
                future = self.client.submit(solve_on_worker, pickle.dumps(batch), identity(), key=key, pure=False)
            self._out[future.key] = (numbers, future)
            future.add_done_callback(self._ended.put)

    def _records(self, numbers: list[int], future: Any) -> list[dict[str, Any]]:
        """The records of the first of these tasks; the others wait again."""
        from distributed.scheduler import KilledWorker

        began = time.perf_counter()
        if future.cancelled() or future.status == "lost":
            raise _Lost("its tasks are cancelled")
        with self._connected():
            error = future.exception(timeout=60) if future.status == "error" else None
            if error is None:
                answer: dict[str, Any] = future.result(timeout=60)
        if isinstance(error, KilledWorker):
            if len(numbers) > 1:
                self._batches.put_back_alone(numbers)
                return []
            died = f"every worker that had this cell died: {error}".split("\n")[0]
            return [failed(self.tasks[numbers[0]], began, died)]
        if error is not None:
            raise PlanError(
                f"--cluster: a worker cannot solve cells: {type(error).__name__}: {error}; install the same dfopt there"
            )
        if refused := answer.get("refused"):
            raise PlanError(
                f"--cluster: a worker has another dfopt than this client: {refused}; install the same there"
            )
        records: list[dict[str, Any]] = answer["records"]
        self._batches.put_back(numbers[len(records) :])
        self._batches.learn(sum(record["seconds"] for record in records), len(records))
        return records

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Turn whatever Dask says when its scheduler goes away into one word."""
        from concurrent.futures import CancelledError

        try:
            yield
        except (OSError, TimeoutError, CancelledError, RuntimeError) as error:
            raise _Lost(f"{type(error).__name__}: {error}".splitlines()[0]) from None


@contextmanager
def _silence() -> Iterator[None]:
    """Dask logs every attempt to connect as an error, with a traceback; the one message that matters is ours."""
    known = [logger for logger in logging.root.manager.loggerDict.values() if isinstance(logger, logging.Logger)]
    # each of them, because Dask gives some of its loggers levels of their own
    levels = [(one, one.level) for one in known if one.name.partition(".")[0] == "distributed"]
    for logger, _ in levels:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in levels:
            logger.setLevel(level)
