"""Budgets with blocks of tokens: the best of all ways to run all partitions, each at what the judge says of it."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from itertools import chain, combinations

import pytest
from block_cases import is_broken, mapping_of, one_chip, ways_to_run
from hypothesis import assume, event, given
from hypothesis import strategies as st
from oracles import judged
from strategies import World, share

import dfopt as df
from dfopt.documents.score import PartitionScore
from dfopt.errors import Infeasible, PlanError
from dfopt.search.budgets import Budget, PricedBlock
from dfopt.search.within import Within, optimize_within

VALUES = {
    "kernels": lambda block: float(zlib.crc32(f"3 {sorted(block.kernels)}".encode()) % 8),
    "sram": lambda block: block.sram_bytes,
    "dram": lambda block: block.dram_bytes + 100 * block.time_s,
    "bound by memory": lambda block: float(block.memory_s >= block.time_s > 0),
    "figures": lambda block: float(zlib.crc32(f"{block.kernels} {block.dram_bytes:.6g}".encode()) % 8),
}
GROWING = "sram", "dram"


def seen(part: PartitionScore) -> PricedBlock:
    busy = part.compute_s, part.memory_s, part.network_s, part.time_s
    return PricedBlock(part.kernels, *busy, part.dram_bytes, part.sram_bytes, part.sram_s or 0.0)


def of_one_chip(world: World) -> Iterator[tuple[float, dict[str, float]]]:
    """Seconds and sums of every partitioning in every way to run its partitions, each at what the judge says of it."""
    names, needs = [kernel.name for kernel in world.graph.kernels], {k.name: set[str]() for k in world.graph.kernels}
    for tensor in world.graph.tensors:
        needs[tensor.dst].add(tensor.src)
    ways: dict[tuple[str, ...], list[PartitionScore]] = {}

    def legal(block: tuple[str, ...]) -> list[PartitionScore]:
        if block not in ways:
            ways[block] = []
            for count in ways_to_run(world):
                score = judged(world, mapping_of(world, block, count))
                [said] = [one for one in score.partitions if one.partition == len(names)]
                broken = (is_broken(f"partition {len(names)} of stage 0", said, one) for one in score.violations)
                if not any(broken):
                    ways[block].append(said)
        return ways[block]

    def chosen(done: frozenset[str]) -> Iterator[tuple[PartitionScore, ...]]:
        left = [name for name in names if name not in done]
        if not left:
            yield ()
        for block in chain.from_iterable(combinations(left, size) for size in range(1, len(left) + 1)):
            if all(needs[name] <= done | set(block) for name in block):
                for rest in chosen(done | set(block)):
                    yield from ((said, *rest) for said in legal(tuple(sorted(block))))

    for parts in chosen(frozenset()):
        blocks = list(map(seen, parts))
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
