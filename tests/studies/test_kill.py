"""Sweeps that are killed at random, again and again, end with the same store as one that is left alone."""

from __future__ import annotations

import json
import multiprocessing
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from dfopt.documents.store import Store, read_records
from dfopt.errors import DocumentError

pytestmark = pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
COUNT = 1000


def expected() -> dict[str, Any]:
    return {f"{i:016x}": {"square": i * i, "root": i**0.5} for i in range(COUNT)}


def write(path: Path, pause: float, said: Any) -> None:
    """A sweep whose solver is arithmetic: what is tested is what a kill leaves on the disk."""
    try:
        with Store(path) as store:
            for i in range(COUNT):
                key = f"{i:016x}"
                if key not in store.records:
                    figures = {"square": i * i, "root": i**0.5}
                    store.append({"cell": key, "status": "optimal", "figures": figures, "word": "ä" * (i % 50)})
                    time.sleep(pause * (i % 10 == 0))
    except DocumentError as error:
        said.put(str(error))
        said.close()
        said.join_thread()
        raise SystemExit(1) from None


def child(path: Path, pause: float = 0.005) -> tuple[Any, Any]:
    """A writer in another process, and the queue of its words. A fork needs no second for its imports."""
    context = multiprocessing.get_context("fork")
    said = context.Queue()
    process = context.Process(target=write, args=(path, pause, said))
    process.start()
    return process, said


def killed_often(path: Path, times: int, seed: int) -> None:
    """Kill so often, each time somewhere in the writing; also leave what a kill of the machine leaves."""
    drawn = random.Random(seed)
    for turn in range(times):
        one, _ = child(path)
        before = path.stat().st_size if path.exists() else -1
        until = time.monotonic() + 60
        while one.is_alive() and (not path.exists() or path.stat().st_size <= max(before, 0)):
            assert time.monotonic() < until
            time.sleep(0.001)
        time.sleep(drawn.uniform(0, 0.01))
        one.kill()
        one.join()
        assert one.exitcode in (0, -signal.SIGKILL)
        data = path.read_bytes()
        if turn % 3 == 1:  # a write that the kill cut
            path.write_bytes(data[: -drawn.randrange(1, 40)])
        if turn % 5 == 2 and len(data) > 100:  # a bit that flipped somewhere
            spot = drawn.randrange(len(data))
            path.write_bytes(data[:spot] + bytes([data[spot] ^ 1 << drawn.randrange(8)]) + data[spot + 1 :])


def check(path: Path) -> None:
    last, _ = child(path, 0.0)
    last.join(120)
    assert last.exitcode == 0
    assert {key: record["figures"] for key, record in read_records(path).items()} == expected()
    cells = [json.loads(line)["cell"] for line in path.read_text().splitlines()]
    assert len(cells) == COUNT == len(set(cells)), "a cell was done twice"


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_five_times(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "runs.jsonl"
    killed_often(path, 5, seed)
    check(path)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4))
def test_killed_fifty_times(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "runs.jsonl"
    killed_often(path, 50, seed)
    check(path)


def test_two_writers_at_once(tmp_path: Path) -> None:
    """Four processes want the same store: one gets it, the others say so, and the store is whole."""
    path = tmp_path / "runs.jsonl"
    with Store(path):
        for one, said in [child(path) for _ in range(2)]:
            one.join(60)
            assert one.exitcode == 1 and "another run writes to it" in said.get(timeout=10)
    many = [child(path, 0.002) for _ in range(4)]
    for one, _ in many:
        one.join(120)
    assert {one.exitcode for one, _ in many} <= {0, 1}
    assert any(one.exitcode == 0 for one, _ in many)
    assert all("another run writes to it" in said.get(timeout=10) for one, said in many if one.exitcode)
    check(path)
    assert not path.with_name("runs.jsonl.damaged").exists()
