"""Sweeps on a Dask cluster: real processes on loopback, which are killed while they solve."""

from __future__ import annotations

import json
import pickle
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from design_cases import GPT2, SIZES, chosen
from hypothesis import given
from hypothesis import strategies as st
from in_turn import InTurn
from study_cases import degrees, figures, limits, study, swept_apart

from dfopt.errors import PlanError
from dfopt.exploring.explore import explore
from dfopt.studies.sweep import collect, sweep

pytest.importorskip("distributed")
from dask_cluster import LoopbackCluster, cluster_in, free_port
from distributed.scheduler import KilledWorker

from dfopt.processes import remote
from dfopt.processes.cluster import Cluster, _between_calls, _Session
from dfopt.processes.identity import identity
from dfopt.processes.remote import solve_on_worker


def grid(count: int) -> Any:
    """Twice as many cells of a tenth of a second."""
    return study(axes=limits(count))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackCluster]:
    with cluster_in(tmp_path_factory.mktemp("dask") / "cluster", 2) as one:
        yield one


@pytest.fixture
def cluster(shared: LoopbackCluster) -> LoopbackCluster:
    """A scheduler and two workers; those that the test before has killed are on their way."""
    shared.heal(2)
    return shared


@pytest.fixture(scope="module")
def alone() -> Any:
    """The frame of the grid of nine, solved on this machine."""
    return figures(sweep(grid(9), executor=InTurn()).frame())


def counted(store: Path) -> Counter[str]:
    return Counter(json.loads(line)["cell"] for line in store.read_text().splitlines())


def when(store: Path, lines: int, act: Any) -> threading.Thread:
    """Do something as soon as the store has so many lines."""

    def watch() -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if store.exists() and store.read_bytes().count(b"\n") >= lines:
                act()
                return
            time.sleep(0.01)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def test_the_same_frame_as_on_this_machine(cluster: LoopbackCluster, tmp_path: Path) -> None:
    whole = study(axes=degrees(1, 3, 8))
    here = sweep(whole, jobs=2, store=tmp_path / "here.jsonl", out_dir=tmp_path / "here")
    told: list[int] = []
    there = sweep(
        whole, cluster=cluster.address, store=tmp_path / "there.jsonl", out_dir=tmp_path / "there",
        progress=lambda done, of, record: told.append(done),
    )  # fmt: skip
    assert told == list(range(7)) and not there.interrupted
    assert figures(there.frame()).equals(figures(here.frame()))
    results, elsewhere = ({path.name for path in (tmp_path / name).iterdir()} for name in ("here", "there"))
    assert results == elsewhere != set()
    assert set(counted(tmp_path / "there.jsonl").values()) == {1}


def explored(**asked: Any) -> Any:
    """An exploration of designs in two technologies, and what it says but for seconds."""
    few = {**SIZES, "choices__capacity__L2__most": "12 MiB"}
    made = chosen(**few).technology
    cheap = made.core.model_copy(update={"power": made.core.power * 0.9})
    both = [made.model_copy(update={"name": "t0"}), made.model_copy(update={"name": "t1", "core": cheap})]
    found = explore(GPT2, chosen(**few), technologies=both, gap=0.0, sensitivity=False, **asked)
    data = found.to_data()
    del data["seal"], data["effort"]["seconds"], data["result"]
    return data


@pytest.fixture(scope="module")
def explored_here() -> Any:
    """What the exploration says that no cluster is asked about."""
    return explored()


def test_an_exploration_says_the_same_on_a_cluster(cluster: LoopbackCluster, explored_here: Any) -> None:
    assert explored(cluster=cluster.address) == explored_here


def test_an_exploration_whose_scheduler_is_lost_goes_on_here(
    cluster: LoopbackCluster, explored_here: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[int] = []

    def lost(self: Cluster, tasks: Any, take: Any) -> str:
        asked.append(len(tasks))
        return f"the scheduler at {self.address} is lost"

    monkeypatch.setattr(Cluster, "run", lost)
    assert explored(cluster=cluster.address) == explored_here
    assert len(asked) == 1 and "is lost; the search goes on here" in caplog.text


def test_a_worker_that_is_killed_costs_nothing(cluster: LoopbackCluster, alone: Any, tmp_path: Path) -> None:
    whole, store = grid(9), tmp_path / "runs.jsonl"
    killer = when(store, 4, cluster.kill_worker)
    runs = sweep(whole, cluster=cluster.address, store=store)
    killer.join()
    assert len(cluster.workers) == 1
    assert runs.counts() == {"optimal": 18} and not runs.interrupted
    assert len(counted(store)) == 18 and set(counted(store).values()) == {1}
    assert figures(runs.frame()).equals(alone)


def test_a_scheduler_that_is_gone_ends_the_sweep_and_the_same_command_resumes(
    cluster: LoopbackCluster, tmp_path: Path
) -> None:
    whole, store = grid(12), tmp_path / "runs.jsonl"
    killer = when(store, 3, cluster.kill_scheduler)
    runs = sweep(whole, store=store, cluster=cluster.address)
    killer.join()
    assert runs.interrupted
    assert any(f"the scheduler at {cluster.address} is lost" in note for note in runs.notes)
    done = runs.counts()
    assert done["optimal"] >= 3 and done["optimal"] + done["pending"] == 24
    cluster.heal(1)
    again = sweep(whole, store=store, cluster=cluster.address)
    assert again.counts() == {"optimal": 24}
    assert set(counted(store).values()) == {1}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_client_that_is_killed_goes_on_where_it_stopped(
    cluster: LoopbackCluster, tmp_path: Path, how: signal.Signals
) -> None:
    path, store = tmp_path / "study.yaml", tmp_path / "runs.jsonl"
    grid(10).dump(path)
    child = swept_apart(path, store, "--cluster", cluster.address)
    when(store, 2, lambda: child.send_signal(how)).join()
    _, err = child.communicate(timeout=20)
    assert "Traceback" not in err
    if how == signal.SIGINT:
        assert child.returncode == 5, err
        assert f"the same command goes on from {store}" in err
    before = store.read_bytes()
    assert 2 <= before.count(b"\n") < 20
    runs = sweep(path, store=store, cluster=cluster.address)
    assert runs.counts() == {"optimal": 20}
    assert store.read_bytes().startswith(before)
    assert set(counted(store).values()) == {1}


def test_what_the_loop_of_dask_says_of_a_ctrl_c_is_not_heard(
    cluster: LoopbackCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Ctrl-C that comes before a call has its task: Dask's loop finds nothing to cancel, and logs a traceback."""

    def interrupted(session: _Session) -> None:
        def cancel() -> None:
            raise NameError("future")

        session.client.loop.add_callback(cancel)
        raise KeyboardInterrupt

    monkeypatch.setattr(_Session, "run", interrupted)
    assert sweep(study(), cluster=cluster.address).interrupted
    assert not [record for record in caplog.records if record.exc_info]


def test_another_dfopt_on_the_workers_is_refused(cluster: LoopbackCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    other = {**identity(), "program": "0" * 12}
    monkeypatch.setattr("dfopt.processes.cluster.identity", lambda: other)
    with pytest.raises(PlanError, match=r"worker tcp://.* has another dfopt than this client: program here"):
        sweep(study(), cluster=cluster.address)
    assert "program here" in solve_on_worker(b"", {"program": "other"})["refused"]


def test_a_worker_that_comes_late_with_another_dfopt_is_refused(
    cluster: LoopbackCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "_compare", lambda self: None)  # as if it came after
    monkeypatch.setattr("dfopt.processes.cluster.identity", lambda: {**identity(), "program": "0" * 12})
    with pytest.raises(PlanError, match="a worker has another dfopt than this client: program here"):
        sweep(study(), cluster=cluster.address)


class NoCluster:
    """A client of Dask whose tasks are drawn: some cells kill every worker, and batches may come back in part."""

    status = "running"

    def __init__(self, deadly: set[str], drawn: random.Random) -> None:
        self.deadly, self.drawn, self.keys = deadly, drawn, count()

    def nthreads(self) -> dict[str, int]:
        return {"one": self.drawn.randint(0, 3)}

    def submit(self, run: Any, batch: bytes, expected: Any, *, pure: bool) -> Any:
        cells = [task["cell"] for task in pickle.loads(batch)]
        key = f"{next(self.keys)}"
        one = NoFuture(key)
        if self.deadly & set(cells):
            one.error = KilledWorker(key, SimpleNamespace(address="tcp://10.0.0.1:1"), 3)
        else:
            solved = cells[: self.drawn.randint(1, len(cells))]
            one.answer = {"records": [{"cell": cell, "status": "optimal", "seconds": 1e-3} for cell in solved]}
        return one


class NoFuture:
    """What `NoCluster` answers."""

    def __init__(self, key: str) -> None:
        self.key, self.answer, self.error = key, {}, None

    @property
    def status(self) -> str:
        return "finished" if self.error is None else "error"

    def add_done_callback(self, act: Any) -> None:
        act(self)

    def cancelled(self) -> bool:
        return False

    def exception(self, timeout: float) -> Any:
        return self.error

    def result(self, timeout: float) -> Any:
        return self.answer


@given(st.integers(0, 60), st.integers(0, 2**32))
def test_a_cell_that_kills_every_worker_fails_alone(many: int, seed: int) -> None:
    cells, drawn = [f"{number:016x}" for number in range(many)], random.Random(seed)
    deadly = {cell for cell in cells if drawn.random() < 0.1}
    taken: list[dict[str, Any]] = []
    _Session(NoCluster(deadly, drawn), [{"cell": cell} for cell in cells], taken.append).run()
    assert sorted(record["cell"] for record in taken) == cells
    assert {record["cell"] for record in taken if record["status"] == "failed"} == deadly
    assert all("every worker that had this cell died" in record["message"] for record in taken if "message" in record)


def test_a_batch_of_slow_cells_gives_back_what_it_cannot_start_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SimpleNamespace(answer=lambda task, limit: {"cell": task["cell"]})
    monkeypatch.setattr("dfopt.processes.remote._pool", [slow])
    clock = iter([0.0, 1.5, 3.0, 4.5])  # a second and a half per cell
    monkeypatch.setattr("dfopt.processes.remote.time", SimpleNamespace(monotonic=lambda: next(clock)))
    batch = [{"cell": name, "options": {"time_limit": 60.0}} for name in ("a", "b", "c", "d")]
    answer = solve_on_worker(pickle.dumps(batch), identity())
    assert [record["cell"] for record in answer["records"]] == ["a", "b"]
    assert remote._pool == [slow]  # for the next batch


@pytest.fixture
def interrupt() -> Iterator[None]:
    """A process that Ctrl-C interrupts, as one in a terminal, whatever started the tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupt")
def test_a_first_ctrl_c_waits_for_the_call_that_it_comes_in_and_a_second_does_not() -> None:
    with suppress(OSError), _between_calls() as pressed:
        session = _Session(NoCluster(set(), random.Random(0)), [{"cell": 0}], print, pressed)
        signal.raise_signal(signal.SIGINT)
        assert pressed.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            session.run()
        raise OSError
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("interrupt")
@pytest.mark.parametrize("where", ["ignored", "thread"])
def test_where_ctrl_c_is_heard_elsewhere_nothing_changes(where: str) -> None:
    mine = signal.SIG_IGN if where == "ignored" else signal.default_int_handler
    signal.signal(signal.SIGINT, mine)
    heard: list[object] = []

    def session() -> None:
        with _between_calls() as pressed:
            heard.extend([signal.getsignal(signal.SIGINT), pressed.is_set()])

    if where == "ignored":
        session()
    else:
        thread = threading.Thread(target=session)
        thread.start()
        thread.join()
    assert heard == [mine, False] and signal.getsignal(signal.SIGINT) is mine


def test_where_there_is_no_cluster(tmp_path: Path) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    with pytest.raises(PlanError, match=f"--cluster: no scheduler answers at {address} within 1 s"):
        sweep(study(), store=tmp_path / "runs.jsonl", executor=Cluster(address, patience=1))
    with pytest.raises(PlanError, match="expected an address such as"):
        sweep(study(), cluster="no such://thing")
    with pytest.raises(PlanError, match="leave one out"):
        sweep(study(), cluster=address, jobs=2)


def test_without_dask_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(PlanError, match=r'python -m pip install "dask\[distributed\]"'):
        Cluster("tcp://127.0.0.1:1")


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(3))
def test_long_with_everything_killed_at_random(tmp_path: Path, seed: int) -> None:
    """Workers die and come every second, the scheduler twice, the client once."""
    drawn = random.Random(seed)
    whole, store = grid(60), tmp_path / "runs.jsonl"
    whole.dump(tmp_path / "study.yaml")
    with cluster_in(tmp_path / "cluster", 3) as mine:
        over = threading.Event()

        def havoc() -> None:
            turn = 0
            while not over.wait(drawn.uniform(0.5, 2.0)):
                turn += 1
                mine.kill_worker(drawn.randrange(len(mine.workers)))
                if turn in (3, 7):
                    mine.kill_scheduler()
                    mine.start_scheduler()
                while len([one for one in mine.workers if one.poll() is None]) < 3:
                    mine.start_worker()

        thread = threading.Thread(target=havoc, daemon=True)
        child = swept_apart(tmp_path / "study.yaml", store, "--cluster", mine.address)
        when(store, 10, child.kill).join()
        child.communicate()
        thread.start()
        try:
            for _ in range(6):  # two of them lose the scheduler
                runs = sweep(tmp_path / "study.yaml", store=store, cluster=mine.address, retry=True)
                if runs.counts() == {"optimal": 120}:
                    break
        finally:
            over.set()
            thread.join()
    assert runs.counts() == {"optimal": 120} and not runs.interrupted
    assert figures(collect(whole, store).frame()).equals(figures(sweep(whole, jobs=2).frame()))
