"""Budgets over partitions: the best of all partitionings that keep them, by brute force with the judge's prices."""

from __future__ import annotations

import math
import zlib

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from oracles import fusions
from strategies import World, share, worlds

import dfopt as df
from dfopt.documents.assumptions import profile
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.result import Result
from dfopt.errors import Infeasible, NoSolution, PlanError
from dfopt.search.budgets import Budget, PricedBlock
from dfopt.search.within import optimize_within

APART = profile("default").with_(sharding_objective="seconds", execution="dataflow")
ALONE = APART.with_(execution="kernel_by_kernel")


def drawn_value(seed: int, kernels: tuple[str, ...]) -> float:
    """An arbitrary whole number of every set of kernels, the same each time."""
    return float(zlib.crc32(f"{seed} {sorted(kernels)}".encode()) % 8)


def solved(world: World) -> Result:
    plan, apart = world.plan, world.assumptions.with_(sharding_objective="seconds")
    dims = {"tp_dims": plan.tp_dims, "pp_dims": plan.pp_dims, "dp_dims": plan.dp_dims}
    return df.optimize(world.graph, world.system, assumptions=apart, **dims)


@share(0.5)
@given(
    worlds(
        most=4, least=2, max_pp=1, dims=1, pieces=False, execution="dataflow", empty_partitions="allow",
    ),
    st.integers(0, 99),
    st.data(),
)  # fmt: skip
def test_the_best_mapping_within_budgets(world: World, seed: int, data: st.DataObject) -> None:
    """Values are arbitrary, nothing additive about them: the least time of all partitionings that keep the range.

    Where the search starts with few blocks, it has to come back for more.
    """
    try:
        result = solved(world)
    except (Infeasible, NoSolution, PlanError):
        reject()
    if result.assumptions.forward_backward == "halves" and world.graph.trains:
        reject()  # there p_max decides what a partition may hold
    world = World(world.graph, world.system, result.plan, result.assumptions)
    sharding = {kernel.name: kernel.sharding for kernel in result.mapping.kernels}
    stage = {kernel.name: 0 for kernel in world.graph.kernels}
    every = [
        (
            sum(part.time_s for part in one.score.partitions),
            sum(drawn_value(seed, part.kernels) for part in one.score.partitions),
        )
        for one in fusions(world, sharding, stage, len(stage))
    ]
    side = data.draw(st.sampled_from(sorted({0.0, *(value for _, value in every)})))
    low, high = data.draw(st.sampled_from([(-math.inf, side), (side, math.inf), (side, side)]))
    budget = Budget("drawn", lambda block: drawn_value(seed, block.kernels), low, high)
    fits = [seconds for seconds, value in every if low <= value <= high]
    if not fits:
        with pytest.raises(Infeasible, match=r"budget.*drawn"):
            optimize_within(result, budget)
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dfopt.search.budgets._ROUNDS", data.draw(st.sampled_from([(1.0,), (1.1, 1.5, 3.0)])))
        found = optimize_within(result, budget)
    assert sum(part.time_s for part in found.score.partitions) == pytest.approx(min(fits), rel=1e-6)
    assert low <= found.totals["drawn"] <= high and (found.status, found.gap) == ("optimal_per_level", 0.0)
    assert found.note == "sharding_objective: seconds keeps the sharding of the result"
    assert found.totals["drawn"] == sum(drawn_value(seed, part.kernels) for part in found.score.partitions)
    judged = df.evaluate(found.mapping, world.graph, world.system, result.assumptions)
    assert judged.feasible and judged.step_time_s == found.score.step_time_s


def test_a_slow_block_may_be_better_than_many_fast_ones() -> None:
    """Five cuts of 4.5 % each keep the row, and so does one of 12 %, whose blocks the first round leaves out."""
    cuts = {f"k{i}": (2.25, 1) for i in range(5)} | {"k5": (6.0, 5)}  # by source: MB, worth
    kernels = [Kernel(name=f"k{i}", op="elementwise", m=1000, n=4000, dram_bytes=1e8 * (i == 0)) for i in range(7)]
    tensors = tuple(Tensor(src=f"k{i}", dst=f"k{i + 1}", bytes=1e6 * cuts[f"k{i}"][0]) for i in range(6))
    graph = Graph(name="chain", inputs=(), outputs=(), batch=8, kernels=tuple(kernels), tensors=tensors)
    whole = df.optimize(graph, df.load_system("sn10-8-ring"), tp=1, pp=1, assumptions=APART)

    def worth(block: PricedBlock) -> float:
        return sum(cuts[t.src][1] for t in tensors if t.src in block.kernels and t.dst not in block.kernels)

    found = optimize_within(whole, Budget("worth", worth, at_least=5))
    assert found.totals == {"worth": 5} and found.gap == 0.0
    assert found.score.step_time_s == pytest.approx(1.12 * whole.step_time_s, rel=1e-3)


@pytest.fixture(scope="module")
def result() -> Result:
    return df.optimize(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8, assumptions=APART)


def test_a_budget_on_dram_traffic(result: Result) -> None:
    """Blocks that the plain search had excluded come back; a tighter limit never gives a faster mapping."""
    before, least = result.step_time_s, 0.0
    traffic = sum(part.dram_bytes for part in result.score.partitions)
    for most in (4.0, 8.0, 12.0):
        many = Budget("partitions", lambda block: 1.0, at_least=most)
        bound = Budget("traffic", lambda block: block.dram_bytes, at_least=1.5 * traffic)
        found = optimize_within(result, many, bound)
        assert found.totals["partitions"] >= most and found.totals["traffic"] >= 1.5 * traffic * (1 - 1e-6)
        assert found.score.step_time_s >= max(before, least)
        least = found.score.step_time_s


def test_a_loose_budget_changes_nothing(result: Result) -> None:
    found = optimize_within(result, Budget("all", lambda block: 1.0, at_most=1000))
    assert found.score.step_time_s == pytest.approx(result.step_time_s, rel=1e-9)


def test_the_message_says_what_can_be_reached(result: Result) -> None:
    count = len(result.graph.kernels)
    with pytest.raises(Infeasible, match=rf"at_least {count + 1}, but the most .* reaches is {count};"):
        optimize_within(result, Budget("partitions", lambda block: 1.0, at_least=count + 1))
    small, large = Budget("few", lambda b: 1.0, at_most=10), Budget("many", lambda b: 1.0, at_least=12)
    with pytest.raises(Infeasible, match="budgets 'few', 'many' together"):
        optimize_within(result, small, large)


def test_pieces_have_stages_of_their_own() -> None:
    """A budget on the layer leaves the logits alone, and the other way round."""
    whole = df.optimize(
        df.load_graph("llama-3.2-1b", ends=True), df.load_system("sn10-8-ring"), tp=8, assumptions=APART
    )
    of = {part.stage for part in whole.score.partitions}
    assert len(of) > 1
    stage = max(of)
    parts = [part for part in whole.score.partitions if part.stage == stage]
    count = sum(len(part.kernels) for part in parts)
    found = optimize_within(whole, Budget("partitions", lambda block: 1.0, at_least=count), stage=stage)
    assert found.totals == {"partitions": count}
    others = [[p.kernels for p in score.partitions if p.stage != stage] for score in (whole.score, found.score)]
    assert others[0] == others[1]


def test_what_is_refused(result: Result) -> None:
    one = Budget("one", lambda block: 1.0, at_most=9)
    for call, message in [
        (lambda: optimize_within(result), "found budgets"),
        (lambda: optimize_within(result, one, one), "names of their own"),
        (lambda: optimize_within(result, one, stage=7), "found stage 7, expected one of 0"),
        (
            lambda: optimize_within(result, Budget("nan", lambda b: math.nan, at_most=1)),
            "'nan': found nan for the block",
        ),
        (lambda: Budget("open", lambda b: 1.0), "expected a finite end"),
        (lambda: Budget("empty", lambda b: 1.0, at_least=2, at_most=1), "at_least <= at_most"),
    ]:
        with pytest.raises(PlanError, match=message):
            call()


def test_a_chip_without_fusion_and_a_wide_graph_are_refused() -> None:
    one = Budget("one", lambda block: 1.0, at_most=9)
    single = df.optimize(df.load_graph("gpt2-small"), df.load_system("h100-8"), tp=8, assumptions=ALONE)
    with pytest.raises(PlanError, match="kernel by kernel"):
        optimize_within(single, one)
    kernels = [Kernel(name=f"k{i}", op="elementwise", m=64, n=64) for i in range(18)]
    end = Kernel(name="sum", op="elementwise", m=64, n=64)
    graph = Graph(
        name="wide", batch=8, kernels=(*kernels, end), tensors=tuple(Tensor(src=k.name, dst="sum") for k in kernels)
    )
    wide = df.optimize(graph, df.load_system("sn10-8-ring"), tp=1, pp=1, dp=8, time_limit=10, assumptions=APART)
    with pytest.raises(PlanError, match="too many down-sets"):
        optimize_within(wide, one)
