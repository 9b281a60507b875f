"""Memories that are too small: what the answer says of them, and the largest batch that fits."""

from __future__ import annotations

import dataclasses
import pickle
import re
from functools import partial
from typing import Any

import pytest
from small_systems import rings, small_system
from strategies import layered, with_dram
from typer.testing import CliRunner

import dfopt as df
from dfopt.cli import app
from dfopt.divisors import divisors
from dfopt.documents.assumptions import Assumptions, profile
from dfopt.documents.graph import Communication, Graph, Kernel
from dfopt.documents.request import Request
from dfopt.documents.result import Result
from dfopt.documents.system import System
from dfopt.errors import Infeasible, NoSolution, PlanError
from dfopt.machines.compose import compose
from dfopt.search import solve
from dfopt.search.largest import largest_batch
from dfopt.search.shortage import LeastHeld
from dfopt.workloads import WORKLOADS, load_graph

JOINT = Assumptions(
    sharding_objective="joint", sequence_parallelism="allow", execution="kernel_by_kernel", memory_reserve=0
)


def h100s(nodes: int, gigabytes: float | None = None) -> System:
    network = {"topology": "dgx_2", "sizes": [8, nodes], "links": ["nvlink-4-450", "infiniband-ndr"]}
    dram = {"chip.dram.capacity": "80 GiB" if gigabytes is None else f"{gigabytes} GB"}
    return compose(chip="h100-sxm", network=network, overrides=dram)


def machine(*sizes: int, dram: float) -> System:
    return small_system(*rings(*sizes, rate=100.0), capacity=dram)


def refused(graph: str, system: System, batch: int = 32, **asked: Any) -> Infeasible:
    drawn = load_graph(graph, mode="training", ends=False, batch=batch, causal=True, recompute="attention")
    with pytest.raises(Infeasible) as error:
        solve(drawn, system, assumptions=JOINT.with_(masked_scores="skipped"), **{"zero": 0, **asked})
    return error.value


def test_405b_on_16384_chips_lacks_recomputation_or_sharded_states() -> None:
    """The degrees of arXiv 2407.21783, table 4, where states are sharded over the copies."""
    dims = {"tp_dims": ("node",), "pp_dims": ("cluster[16]",), "dp_dims": ("cluster[128@16]",)}
    error = refused("llama-3.1-405b", h100s(2048), batch=2048, tp=8, pp=16, dp=128, **dims)
    least = error.least
    assert isinstance(least, LeastHeld) and pickle.loads(pickle.dumps(error)).least == least
    hidden, narrow, ffn, tokens, word = 16384, 1024, 53248, 8192, 2
    parameters = 8 * (2 * hidden * hidden + 2 * hidden * narrow + 3 * hidden * ffn) / 8  # 8 layers on 8 chips
    # of each of 16 microbatches a layer keeps what both norms read and give, queries, keys, values, context, gate, up
    # and the product of those two
    features = 6 * hidden + 2 * narrow + 3 * ffn
    assert (least.states["weights"], least.states["gradients"]) == (parameters * word, parameters * 4)
    assert least.states["optimizer state"] == 12 * parameters
    assert least.again == least.states["saved activations"] == 16 * 8 * tokens * features * word / 8
    assert least.alike == {name: least.states[name] for name in ("weights", "gradients", "optimizer state")}
    assert least.bytes > least.capacity == pytest.approx(80 * 2**30, rel=1e-11)  # with the slack of sums
    assert "129.1 GB per chip" in str(error)
    assert "short by" in str(error) and "not enough" not in str(error)
    assert (
        "  states that copies share out (--zero; 128 copies each hold whole: weights 6.375 GB, gradients 12.75 GB"
        in str(error)
    )
    assert "  saved activations that are computed again (--recompute): at most" in str(error)


def test_what_helps_is_told_from_what_does_not() -> None:
    """Without copies there is none to share states with, without a backward pass nothing is saved for it."""
    error = refused("llama-3.2-1b", h100s(2, 0.9), tp=16)
    assert isinstance(error.least, LeastHeld) and error.least.plan.copies == 1 and not error.least.others
    assert str(error).splitlines()[-3:-1] == [
        "what would help:",
        "  saved activations that are computed again (--recompute): at most"
        f" {error.least.again / 1e9:.4g} GB less, not enough",
    ]
    error = refused("llama-3.2-1b", h100s(2, 0.1), tp=8, dp=2)
    assert error.least is not None and error.least.plan.dp == 2  # type: ignore[attr-defined]
    assert str(error).splitlines()[-2] == "  not even all of these together are enough"
    assert str(error).count(", not enough") == 2


@pytest.mark.parametrize("execution", ["kernel_by_kernel", "library"])
def test_what_is_named_is_enough_where_no_other_memory_is_short(execution: str) -> None:
    chosen, graph = JOINT.with_(execution=execution), load_graph("llama-3.2-1b")

    def on(gigabytes: float) -> Result:
        return solve(graph, h100s(1, gigabytes), assumptions=chosen, tp=8, time_limit=5)

    with pytest.raises(Infeasible) as refusal:
        on(0.01)
    least = refusal.value.least
    assert isinstance(least, LeastHeld) and "what would help" not in str(refusal.value)
    assert set(least.states) == {"weights", "activations between partitions"}
    assert on(least.bytes * 1.000001 / 1e9).score.stages[0].dram_bytes == pytest.approx(least.bytes)
    with pytest.raises(Infeasible, match=r"activations alive between partitions need at least .* short by"):
        on(least.bytes * 0.999999 / 1e9)


def test_the_fullest_stage_and_what_copies_share() -> None:
    """A table of 480 B on all 6 chips of a stage, of which copies fetch rows, and 2 layers of 200 B on 2 chips."""
    rows = Communication(kind="all_to_all", bytes=8, over="all")
    table = Kernel(name="embed", op="elementwise", m=4, n=4, layer="first", resident_bytes=480, communications=(rows,))
    layer = Kernel(name="layer", op="gemm", m=10, k=10, n=10)
    graph = layered(4, (table, layer), batch=6)
    with pytest.raises(Infeasible) as refusal:
        solve(graph, machine(2, 2, 3, dram=250.0), assumptions=JOINT, tp=2, pp=2, dp=3, tp_dims=("x",))
    least = refusal.value.least
    assert isinstance(least, LeastHeld) and least.stage == "the first stage (2 layers)"
    assert (least.states["weights"], least.states["tables and matrices"]) == (200.0, 80.0)
    assert least.alike == {"weights": 200.0}


def test_the_least_is_no_more_than_any_plan_that_is_listed_needs() -> None:
    """Of a plan the fullest stage is named, here the last, and of all sizes and ways that with the least."""
    layer = Kernel(name="layer", op="gemm", m=10, k=10, n=10)
    table = Kernel(name="head", op="elementwise", m=4, n=4, layer="last", resident_bytes=480)
    graph = layered(4, (layer, table), batch=6)
    with pytest.raises(Infeasible) as refusal:
        solve(graph, machine(2, dram=150.0), assumptions=JOINT, pp=2)
    least = refusal.value.least
    assert isinstance(least, LeastHeld) and (least.stage, least.bytes) == ("the last stage (1 layer)", 680.0)
    assert f"the last stage (1 layer) needs at least {680 / 1e9:.4g} GB" in str(refusal.value.report)
    ways = [load_graph("llama-3.1-405b", mode="training", batch=32, recompute=way) for way in ("none", "full")]
    alone = [refused_least(way) for way in ways]
    assert alone[1].bytes < alone[0].bytes
    assert refused_least(*ways) == alone[1] == refused_least(*reversed(ways))


def refused_least(graph: Graph, *others: Graph) -> LeastHeld:
    """The least that a chip of eight holds of a workload that is too large in every way."""
    with pytest.raises(Infeasible) as refusal:
        solve(graph, h100s(1), assumptions=JOINT, variants=others, tp=8)
    least = refusal.value.least
    assert isinstance(least, LeastHeld)
    shorts = [float(short) for short in re.findall(r"short by ([\d.]+) GB", str(refusal.value.report))]
    assert (least.bytes - least.capacity) / 1e9 <= min(shorts) * 1.01
    return least


@pytest.mark.parametrize(
    ("model", "batch", "said"),
    [
        ("deepseek-v2-lite", 4096, "room for at most"),
        ("llama-3.1-405b", 16, "nearest: about 10 such chips for one sequence, or 101.7 GB on each of these"),
    ],
)
def test_what_is_nearest_is_told(model: str, batch: int, said: str) -> None:
    """405B: 100.9 GB of weights, half a GB of table and 0.26 GB for a sequence on each of eight chips."""
    graph = load_graph(model, phase="decode", context=4096, batch=batch, microbatch=16)
    with pytest.raises(Infeasible) as error:
        solve(graph, "h100-8", assumptions=JOINT, tp=8)
    assert said in str(error.value)
    least = error.value.least
    assert isinstance(least, LeastHeld) and least.sequences == batch
    if "room" in said:
        room = int(str(error.value).partition("at most ")[2].partition(" of the 4096")[0])
        fits = load_graph(model, phase="decode", context=4096, batch=room // 16 * 16, microbatch=16)
        assert solve(fits, "h100-8", assumptions=JOINT, tp=8, sensitivity=False).status == "optimal"
        with pytest.raises(Infeasible):
            solve(fits.model_copy(update={"batch": room // 16 * 16 + 16}), "h100-8", assumptions=JOINT, tp=8)


# -- the largest batch that fits, against every batch tried one by one -------------------------


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
