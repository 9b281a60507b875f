"""Budgets over partitions with the sharding free: against all shardings and all partitionings of each, one by one."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Iterator
from dataclasses import replace

import pytest
from block_cases import IN_TOKEN_BLOCKS, needing_blocks, ways_to_run
from brute import shardings
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import fusions, judged, mapping_of
from strategies import World, share, with_sram, worlds

import dfopt as df
from dfopt.bnb import Clock
from dfopt.documents.assumptions import profile
from dfopt.documents.mapping import Sharding, TokenBlocks
from dfopt.documents.request import Request
from dfopt.documents.result import Result
from dfopt.documents.score import PartitionScore, Score
from dfopt.errors import Infeasible
from dfopt.physics import ops
from dfopt.regions.facts import FactCache
from dfopt.regions.space import MappingSpace
from dfopt.search.budgets import Budget, PricedBlock
from dfopt.search.fitting import Fitter, Rows
from dfopt.search.within import optimize_within
from dfopt.setting.instance import Setting
from dfopt.setting.stages import is_cut
from dfopt.solving.options import Options


def drawn_value(seed: int, seen: tuple[str, ...]) -> float:
    """An arbitrary whole number of what is seen of a block, the same each time."""
    return float(zlib.crc32(f"{seed} {sorted(seen)}".encode()) % 8)


def block_of(part: PartitionScore) -> PricedBlock:
    return PricedBlock(
        part.kernels, part.compute_s, part.memory_s, part.network_s, part.time_s, part.dram_bytes, part.sram_bytes
    )


VALUES = {
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


@share(0.1)
@given(WORLDS, st.data())
def test_the_best_sharding_and_partitions_within_budgets(world: World, data: st.DataObject) -> None:
    check(world, data)


@share(0.2)
@given(IN_BLOCKS, st.data())
def test_the_best_sharding_and_partitions_in_every_way_to_run_them(world: World, data: st.DataObject) -> None:
    assume(not any(row.unit == "memory" for row in world.system.chip.efficiency or ()))  # which are refused
    assume(world.plan.tp > 1 and len(ways_to_run(world)) < 6)
    check(world, data, most_shardings=10)


@pytest.mark.nightly
@share(0.2)
@given(WORLDS, st.data())
def test_the_best_sharding_and_partitions_within_budgets_nightly(world: World, data: st.DataObject) -> None:
    check(world, data)


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


def check(world: World, data: st.DataObject, most_shardings: int = 30) -> None:
    """All shardings and all partitionings of each, whatever a value looks at; infeasible exactly when none keeps it."""
    assume(world.plan.tp > 1 and (world.assumptions.forward_backward != "halves" or not world.graph.trains))
    most = data.draw(st.sampled_from([2, 3])) if world.assumptions.empty_partitions == "forbid" else None
    stage = {kernel.name: world.graph.kind_of(kernel) for kernel in world.graph.kernels}
    menus = [ops.legal_schemes(kernel, world.plan.tp, world.assumptions) for kernel in world.graph.kernels]
    assume(math.prod(map(len, menus)) <= most_shardings and (most or 0) <= list(stage.values()).count(0) > 0)
    name, (value, grows) = data.draw(st.sampled_from(sorted(VALUES.items())))
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


TOGETHER = profile("default").with_(sharding_objective="joint", execution="dataflow")


def test_nothing_under_any_sharding_is_refused_at_once() -> None:
    result = df.optimize(df.load_graph("gpt2-small"), "sn10-8-ring", tp=8, assumptions=TOGETHER)
    many = Budget("partitions", lambda block: 1.0, at_least=99)
    with pytest.raises(Infeasible, match=r"most that any partitioning reaches is 18; .*no other sharding keeps them"):
        optimize_within(result, many)


def test_a_mapping_that_breaks_a_budget_is_no_answer() -> None:
    """The one that is the best without the budget, where little time is left to prove another one."""
    result = df.optimize(df.load_graph("gpt2-small"), "sn10-8-ring", tp=8, assumptions=TOGETHER)
    more = len(result.score.partitions) + 1
    found = optimize_within(result, Budget("partitions", lambda block: 1.0, at_least=more), time_limit=20, gap=0.5)
    assert len(found.score.partitions) >= more


def test_where_stages_are_a_choice_the_sharding_stays() -> None:
    graph = df.load_graph("gpt2-small").model_copy(update={"sections": None, "carried": ()})
    result = df.optimize(graph, "sn10-8-ring", tp=1, pp=2, dp=4, assumptions=TOGETHER, time_limit=1)
    found = optimize_within(result, Budget("partitions", lambda block: 1.0, at_least=2), stage=1)
    assert found.status == "optimal_per_level"
    assert found.note == "kernels drawn once on several pipeline stages keep their stages and their sharding"
