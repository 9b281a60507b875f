"""The largest batch that fits, against every batch tried one by one."""

from __future__ import annotations

import dataclasses
from functools import partial

import pytest
from strategies import with_dram
from typer.testing import CliRunner

import dfopt as df
from dfopt.cli import app
from dfopt.documents.assumptions import profile
from dfopt.documents.graph import Graph
from dfopt.documents.request import Request
from dfopt.documents.system import System
from dfopt.errors import Infeasible, NoSolution, PlanError
from dfopt.search.largest import largest_batch
from dfopt.setting.shares import divisors
from dfopt.workloads import WORKLOADS

SIZES = {"hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "ffn": 96, "vocab": 200, "seq": 32, "layers": 4}


def draw(batch: int, microbatch: int) -> Graph:
    return WORKLOADS["decoder"](**SIZES, phase="decode", context=511, batch=batch, microbatch=microbatch)


def four(capacity: float) -> System:
    """Four of the eight chips of a node."""
    system = with_dram(df.load_system("h100-8", {"chip.memory_reserve": None}), capacity)
    return system.model_copy(update={"network": (system.network[0].model_copy(update={"size": 4}),)})


def one_by_one(system: System, most: int, **asked: int) -> int:
    """The largest batch up to one that is out of the question, each tried with all microbatches.

    A batch fits if it has any mapping, so the search may stop at the first; that there is none is proven as ever.
    """
    found = 0
    for batch in range(1, most + 1):
        first, *others = (draw(batch, size) for size in divisors(batch))
        try:
            df.optimize(first, system, variants=others, sensitivity=False, gap=1.0, **asked)
        except (Infeasible, PlanError):
            continue
        found = batch
    return found


@pytest.mark.parametrize(
    ("capacity", "asked"),
    [
        (400e3, {}),  # 288 kB of layers, 51 kB of ends, 262 kB for each sequence
        (900e3, {"dp": 2}),
        (700e3, {"tp": 1}),
        (600e3, {"tp": 2, "pp": 2}),
    ],
)
def test_no_batch_that_fits_is_larger(capacity: float, asked: dict[str, int]) -> None:
    system = four(capacity)
    found = largest_batch(draw, system, Request(**asked), profile("default"))
    assert found.batch == one_by_one(system, found.room.batch + 4, **asked)
    assert found.batch <= found.room.batch
    assert sum(found.room.states.values()) <= capacity < found.room.capacity * (1 + 1e-9)
    assert str(found).startswith(f"batch {found.batch}: the largest ")


def test_what_stops_it_is_what_a_chip_has_no_room_for() -> None:
    found = largest_batch(draw, four(400e3), Request(tp=4), profile("default"))
    more = dataclasses.replace(found, batch=found.batch + 1)
    assert found.batch == found.room.batch and "the largest found, at most" in str(dataclasses.replace(more, batch=1))
    with pytest.raises(Infeasible, match="caches of sequences"):
        df.optimize(draw(more.batch, more.batch), four(400e3), tp=4)


def test_without_caches_there_is_no_largest() -> None:
    graphs = partial(WORKLOADS["decoder"], **SIZES)
    with pytest.raises(PlanError, match="nothing that the graph keeps grows"):
        largest_batch(lambda n, m: graphs(batch=n, microbatch=m), four(1e9), Request(), profile("default"))


def test_nothing_fits() -> None:
    with pytest.raises(Infeasible, match="DRAM"):
        largest_batch(draw, four(1e3), Request(), profile("default"))


WORDS = (
    *("solve", "llama-3.1-8b", "h100-8", "--phase", "decode", "--context", "100000", "--tp", "8"),
    *("--no-sensitivity", "--batch"),
)


def test_the_command_line_goes_on_with_it() -> None:
    done = CliRunner().invoke(app, [*WORDS, "max", "--detail", "plan"])
    assert done.exit_code == 0, done.output
    assert "batch 43: the largest that fits (TP8(nvlink) PP1 DP1: weights " in done.stderr
    assert "of 73.12 GB (of 85.52 GB, 14.5 % is reserved))" in done.stderr
    assert "1 microbatch of 43" in done.stdout
    wrong = CliRunner().invoke(app, [*WORDS, "most"])
    assert wrong.exit_code == 2 and "expected a number from 1 on, or max, found 'most'" in wrong.stderr


def test_what_holds_the_batch_is_told_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_late(*_: object, **__: object) -> None:
        raise NoSolution(1e-3, 60.0)

    monkeypatch.setattr("dfopt.search.answering.search", too_late)  # the one that follows
    done = CliRunner().invoke(app, [*WORDS, "max", "--detail", "plan"])
    assert done.exit_code == 0, done.output
    assert "among all plans no solution found in 60 s" in done.stderr
    assert "1 microbatch of 43" in done.stdout
