"""Budgets over partitions, with the sharding given or free: the best of all that keep them, by brute force."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
from block_cases import IN_TOKEN_BLOCKS, needing_blocks, next_blocks, one_chip, runs_of, ways_to_run
from brute import shardings
from hypothesis import assume, event, given, reject
from hypothesis import strategies as st
from oracles import fusions, judged, mapping_of
from strategies import World, share, with_sram, worlds

import dfopt as df
from dfopt.bnb import Clock
from dfopt.documents.assumptions import profile
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.mapping import Sharding, TokenBlocks
from dfopt.documents.request import Request
from dfopt.documents.result import Result
from dfopt.documents.score import PartitionScore, Score
from dfopt.errors import Infeasible, NoSolution, PlanError
from dfopt.physics import ops
from dfopt.regions.facts import FactCache
from dfopt.regions.space import MappingSpace
from dfopt.search.budgets import Budget, PricedBlock
from dfopt.search.fitting import Fitter, Rows
from dfopt.search.within import Within, optimize_within
from dfopt.setting.instance import Setting
from dfopt.setting.stages import is_cut
from dfopt.solving.options import Options


def drawn_value(seed: int, seen: Iterable[str]) -> float:
    """An arbitrary whole number of what is seen of a block, the same each time."""
    return float(zlib.crc32(f"{seed} {sorted(seen)}".encode()) % 8)


def block_of(part: PartitionScore) -> PricedBlock:
    """What the judge says of a partition, as budgets see it."""
    busy = part.compute_s, part.memory_s, part.network_s, part.time_s
    return PricedBlock(part.kernels, *busy, part.dram_bytes, part.sram_bytes, part.sram_s or 0.0)


APART = profile("default").with_(sharding_objective="seconds", execution="dataflow")
ALONE = APART.with_(execution="kernel_by_kernel")


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


# -- in the best of all ways to run partitions, with blocks of tokens --------------------------


VALUES = {
    "kernels": lambda block: drawn_value(3, block.kernels),
    "sram": lambda block: block.sram_bytes,
    "dram": lambda block: block.dram_bytes + 100 * block.time_s,
    "bound by memory": lambda block: float(block.memory_s >= block.time_s > 0),
    "figures": lambda block: drawn_value(5, (*block.kernels, f"{block.dram_bytes:.6g}")),
}
GROWING = "sram", "dram"


def of_one_chip(world: World) -> Iterator[tuple[float, dict[str, float]]]:
    """Seconds and sums of every partitioning in every way to run its partitions, each at what the judge says of it."""
    runs = runs_of(world, ways_to_run(world))

    def chosen(done: frozenset[str]) -> Iterator[tuple[PartitionScore, ...]]:
        if len(done) == len(world.graph.kernels):
            yield ()
        for block in next_blocks(world.graph, done):
            for rest in chosen(done | set(block)):
                yield from ((said, *rest) for said in runs(block))

    for parts in chosen(frozenset()):
        blocks = list(map(block_of, parts))
        yield sum(one.time_s for one in parts), {name: sum(map(value, blocks)) for name, value in VALUES.items()}


def best_within(
    world: World, every: list[tuple[float, float]], name: str, data: st.DataObject
) -> tuple[Within, float] | None:
    """The answer and the least seconds within a drawn budget; none where it is right that there is no answer."""
    side = data.draw(st.sampled_from(sorted({total for _, total in every})))
    low, high = data.draw(st.sampled_from([(-math.inf, side), (side, math.inf)]))
    if name in GROWING:  # sums of any number: a little room for rounding
        low, high = low - abs(side) * 1e-9, high + abs(side) * 1e-9
    fits = [seconds for seconds, total in every if low <= total <= high]
    assert fits
    budget = Budget(name, VALUES[name], low, high, grows=name in GROWING)
    plan = world.plan
    dims = {"tp_dims": plan.tp_dims, "pp_dims": plan.pp_dims, "dp_dims": plan.dp_dims}
    chosen = world.assumptions.with_(sharding_objective="seconds")
    try:
        result = df.optimize(world.graph, world.system, assumptions=chosen, **dims)
    except (Infeasible, PlanError):
        return None
    return optimize_within(result, budget), min(fits)


@share(1.0)
@given(one_chip(), st.sampled_from(sorted(VALUES)), st.data())
def test_the_best_partitions_in_their_best_ways(world: World, name: str, data: st.DataObject) -> None:
    assume(not any(row.unit == "memory" for row in world.system.chip.efficiency or ()))  # which are refused
    every = [(seconds, totals[name]) for seconds, totals in of_one_chip(world)]
    assume(every)
    answer = best_within(world, every, name, data)
    assume(answer is not None)
    found, least = answer
    event(f"{name}, in blocks of tokens: {found.mapping.token_blocks is not None}")
    assert sum(part.time_s for part in found.score.partitions) == pytest.approx(least, rel=1e-6)
    assert found.gap == 0.0 and found.score.feasible


# -- the sharding is free: all shardings and all partitionings of each, one by one -------------


OF_SHARDINGS = {
    "kernels": (lambda block: drawn_value(3, block.kernels), False),
    "grows": (lambda block: block.dram_bytes + 100 * block.time_s + 10 * block.compute_s, True),
    "falls": (lambda block: -block.dram_bytes - 100 * block.network_s, False),
    "figures": (lambda block: drawn_value(5, (*block.kernels, f"{block.dram_bytes:.6g} {block.network_s:.6g}")), False),
}


WORLDS = worlds(
    most=4, least=2, max_pp=1, dims=1, execution=["dataflow", "dataflow", "library"], overlap=["none", "perfect"]
)
IN_BLOCKS = needing_blocks(
    worlds(most=3, least=2, max_pp=1, dims=1, pieces=False, overlap=["none", "perfect"], **IN_TOKEN_BLOCKS)
)


@share(0.1, nightly=0.2)
@given(WORLDS, st.data())
def test_the_best_sharding_and_partitions_within_budgets(world: World, data: st.DataObject) -> None:
    check_every_sharding(world, data)


@share(0.2)
@given(IN_BLOCKS, st.data())
def test_the_best_sharding_and_partitions_in_every_way_to_run_them(world: World, data: st.DataObject) -> None:
    assume(not any(row.unit == "memory" for row in world.system.chip.efficiency or ()))  # which are refused
    assume(world.plan.tp > 1 and len(ways_to_run(world)) < 6)
    check_every_sharding(world, data, most_shardings=10)


def in_every_way(world: World, sharding: dict[str, Sharding], stage: dict[str, int], most: int) -> Iterator[Score]:
    """Scores of all partitionings, with every number of blocks of tokens of each partition."""
    ways, roomy = ways_to_run(world), replace(world, system=with_sram(world.system, 1e18))
    for fusion in fusions(world if len(ways) == 1 else roomy, sharding, stage, most):
        if len(ways) == 1:
            yield fusion.score
            continue
        mapping, used = mapping_of(world, sharding, stage, fusion.partition), sorted(set(fusion.partition.values()))
        assert mapping is not None
        for counts in itertools.product(ways, repeat=len(used)):
            listed = [TokenBlocks(partition=p, blocks=n) for p, n in zip(used, counts, strict=True) if n]
            score = judged(world, mapping.model_copy(update={"token_blocks": tuple(listed) or None}))
            if not score.violations:
                yield score


def check_every_sharding(world: World, data: st.DataObject, most_shardings: int = 30) -> None:
    """All shardings and all partitionings of each, whatever a value looks at; infeasible exactly when none keeps it."""
    assume(world.plan.tp > 1 and (world.assumptions.forward_backward != "halves" or not world.graph.trains))
    most = data.draw(st.sampled_from([2, 3])) if world.assumptions.empty_partitions == "forbid" else None
    stage = {kernel.name: world.graph.kind_of(kernel) for kernel in world.graph.kernels}
    menus = [ops.legal_schemes(kernel, world.plan.tp, world.assumptions) for kernel in world.graph.kernels]
    assume(math.prod(map(len, menus)) <= most_shardings and (most or 0) <= list(stage.values()).count(0) > 0)
    name, (value, grows) = data.draw(st.sampled_from(sorted(OF_SHARDINGS.items())))
    every = []
    for schemes in shardings(world, Request()):
        sharding = {kernel.name: z for kernel, z in zip(world.graph.kernels, schemes, strict=True)}
        for score in in_every_way(world, sharding, stage, most or len(stage)):
            total = sum(value(block_of(part)) for part in score.partitions if part.stage == 0)
            every.append((score.step_time_s, total))
    assume(every)
    side = data.draw(st.sampled_from(sorted(total for _, total in every)))
    if name in ("grows", "falls"):  # sums of any number: a little room for rounding
        low, high = -math.inf, side + abs(side) * data.draw(st.sampled_from([1e-9, 0.01]))
    else:
        low, high = data.draw(st.sampled_from([(-math.inf, side), (side, math.inf)]))
    fits = [seconds for seconds, total in every if low <= total <= high]
    chosen, plan = world.assumptions.with_(sharding_objective="joint"), world.plan
    groups = {} if plan.hybrid is None else {"zero_replicas": plan.hybrid.replicas}
    try:
        result = df.optimize(
            world.graph, world.system, assumptions=chosen, p_max=most, tp_dims=plan.tp_dims, pp_dims=(),
            dp_dims=plan.dp_dims, zero=plan.zero or 0, **groups,
        )  # fmt: skip
    except Infeasible:
        assert not every
        return
    budget = Budget("drawn", value, low, high, grows=grows)
    if not fits:
        with pytest.raises(Infeasible):
            optimize_within(result, budget)
        return
    check_rows(result, budget, min(fits))
    found = optimize_within(result, budget)
    assert found.score.step_time_s == pytest.approx(min(fits), rel=1e-6)
    assert (found.status, found.gap, found.note) == ("optimal", 0.0, "")
    assert found.score.feasible


def check_rows(result: Result, budget: Budget, least: float) -> None:
    """The bound of the rows over all schemes is not above the best mapping that keeps the budget."""
    setting, request = Setting(result.graph, result.system, result.assumptions), result.request
    rows = Rows(FactCache(), Fitter(setting, Options(request), [budget], 0))
    if is_cut(result.graph, result.plan):  # its stages are open
        return
    roots = MappingSpace.of_plans(setting, request, [result.plan]).roots
    for cutoff in (math.inf, least * 1.001):
        assert min(rows.answers(roots, cutoff, Clock())) <= least * (1 + 1e-9)


JOINT = profile("default").with_(sharding_objective="joint", execution="dataflow")


def test_nothing_under_any_sharding_is_refused_at_once() -> None:
    result = df.optimize(df.load_graph("gpt2-small"), "sn10-8-ring", tp=8, assumptions=JOINT)
    many = Budget("partitions", lambda block: 1.0, at_least=99)
    with pytest.raises(Infeasible, match=r"most that any partitioning reaches is 18; .*no other sharding keeps them"):
        optimize_within(result, many)


def test_a_mapping_that_breaks_a_budget_is_no_answer() -> None:
    """The one that is the best without the budget, where little time is left to prove another one."""
    result = df.optimize(df.load_graph("gpt2-small"), "sn10-8-ring", tp=8, assumptions=JOINT)
    more = len(result.score.partitions) + 1
    found = optimize_within(result, Budget("partitions", lambda block: 1.0, at_least=more), time_limit=20, gap=0.5)
    assert len(found.score.partitions) >= more


def test_where_stages_are_a_choice_the_sharding_stays() -> None:
    graph = df.load_graph("gpt2-small").model_copy(update={"sections": None, "carried": ()})
    result = df.optimize(graph, "sn10-8-ring", tp=1, pp=2, dp=4, assumptions=JOINT, time_limit=1)
    found = optimize_within(result, Budget("partitions", lambda block: 1.0, at_least=2), stage=1)
    assert found.status == "optimal_per_level"
    assert found.note == "kernels drawn once on several pipeline stages keep their stages and their sharding"
