"""Brute force for the joint problem: every plan, sharding, stage of a kernel, tile count and cut into partitions.

It shares nothing with what it checks but the judge, which is the price list.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from brute_plans import every_plan, resolved
from brute_problem import Memo, Problem, bits_of
from oracles import judged, kinds, stages_legal
from strategies import World, sums_meet

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Mapping, Sharding
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.score import Score
from dfopt.documents.system import System
from dfopt.judge.members import seen_by_a_chip
from dfopt.physics import ops

_PRECISE = 1e-12


class Joint(NamedTuple):
    """A best mapping: kernel -> scheme, and kernel -> partition of its stage."""

    value: float
    plan: Plan
    sharding: dict[str, Sharding]
    partition: dict[str, int]
    mapping: Mapping
    score: Score


def joint_optimum(
    graph: Graph,
    system: System,
    assumptions: Assumptions,
    request: Request | None = None,
    plans: Sequence[Plan] | None = None,
) -> Joint | None:
    """The best of all mappings that a request allows, or None when none keeps every limit.

    ``plans``: those to try, by default all that the request leaves free.
    """
    asked = Request() if request is None else request
    chosen = resolved(assumptions, system.chip)
    plans = every_plan(graph, system, asked, chosen) if plans is None else plans
    open_: list[tuple[float, int, Choice]] = []
    for choice in choices_of(graph, system, chosen, plans, asked):
        open_.append((choice.problem.step_s(choice.seconds), len(open_), choice))
    hidden = chosen.gradient_overlap == "backward" and graph.folded and graph.trains
    best: Joint | None = None
    for low, _, choice in sorted(open_, key=lambda entry: entry[:2]):
        most = math.inf if best is None else best.value * (1 + _PRECISE)
        if low > most:
            break
        away = graph.trains and choice.problem.world.plan.placement is not None
        found = choice.judged_behind(most) if away or hidden else choice.judged()
        assert found is None or found.value >= low * (1 - 1e-9)
        keeps = found is not None and all(
            float(getattr(found.score, f"{limit.metric}_s")) <= limit.at_most * (1 + 1e-9)
            for limit in asked.objective.limits
        )
        if found is not None and keeps and (best is None or found.value < best.value):
            best = found
    return best


def sharding_optima(
    graph: Graph, system: System, assumptions: Assumptions, request: Request, plans: Sequence[Plan]
) -> dict[tuple[Plan, tuple[Sharding, ...]], float]:
    """The best value under every sharding of some plans with which something fits."""
    chosen = resolved(assumptions, system.chip)
    hidden = chosen.gradient_overlap == "backward" and graph.folded and graph.trains
    found: dict[tuple[Plan, tuple[Sharding, ...]], float] = {}
    for choice in choices_of(graph, system, chosen, plans, request):
        best = choice.judged_behind(math.inf) if hidden else choice.judged()
        if best is not None:
            key = best.plan, choice.schemes
            found[key] = min(best.value, found.get(key, math.inf))
    return found


def least_capacities(graph: Graph, system: System, assumptions: Assumptions, asked: Request) -> dict[Plan, float]:
    """Fewest bytes of DRAM with which some mapping under each plan fits every chip; infinite where none does."""
    chosen, memo = resolved(assumptions, system.chip), Memo()
    every = {
        plan: choices(World(graph, system, plan, chosen), asked, memo)
        for plan in every_plan(graph, system, asked, chosen)
    }
    return {plan: min((one.least_bytes() for one in found), default=math.inf) for plan, found in every.items()}


# -- one plan -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """A sharding with stages and a tile count; ``seconds`` of its pipeline stages at least, by the best partitions."""

    problem: Problem
    schemes: tuple[Sharding, ...]
    stage_k: tuple[int, ...]
    count: int
    seconds: tuple[float, ...]

    def judged(self) -> Joint | None:
        """The best mapping of this choice, unless it holds more than the DRAM has."""
        problem = self.problem
        partition = problem.partitions(self.schemes, self.stage_k, self.count)
        return None if partition is None else self.judged_as(partition)

    def judged_as(self, partition: tuple[int, ...]) -> Joint:
        """One mapping of this choice."""
        problem, world = self.problem, self.problem.world
        names = [kernel.name for kernel in world.graph.kernels]
        mapping = problem.mapping(self.schemes, self.stage_k, partition, self.count)
        score = judged(world, mapping)
        assert not score.violations, score.violations
        sharding = dict(zip(names, self.schemes, strict=True))
        return Joint(score.step_time_s, world.plan, sharding, dict(zip(names, partition, strict=True)), mapping, score)

    def judged_behind(self, most: float) -> Joint | None:
        """The best where gradients are added up behind the backward pass: a slower one may hide more, so all of them
        are looked at whose time without what shows is no longer than ``most``."""
        problem, best = self.problem, None
        every = problem.every_partition(self.schemes, self.stage_k, self.count)
        listed = ((problem.step_s(seconds), partition) for seconds, partition in every)
        for low, partition in sorted(listed, key=lambda entry: entry[0]):
            if low > most:
                break
            found = self.judged_as(partition)
            if best is None or found.value < best.value:
                best, most = found, min(most, found.value * (1 + _PRECISE))
        return best

    def least_bytes(self) -> float:
        """What the fullest chip holds when as little as possible waits between partitions."""
        problem, found = self.problem, dict[int, float]()
        for stage in set(self.stage_k):
            sequences = problem.cuts.of(bits_of(self.stage_k, stage), stage)
            fits = np.isfinite(problem.times(stage, self.schemes, self.stage_k, self.count))
            found[stage] = float(problem.waiting(sequences.rows[fits], self.schemes, self.stage_k, stage).min())
        return max(
            sum(sizes.values()) + max(found.get(stage, 0.0) for stage in rank.runs)
            for rank, sizes in problem.kept(self.schemes, self.stage_k, self.count)
        )


def choices_of(
    graph: Graph, system: System, chosen: Assumptions, plans: Sequence[Plan], asked: Request
) -> Iterator[Choice]:
    """The same of all plans, which share prices of blocks."""
    memo: Memo = {}
    for plan in plans:
        yield from choices(World(seen_by_a_chip(graph, plan, system), system, plan, chosen, graph), asked, memo)


def choices(world: World, asked: Request, memo: Memo) -> Iterator[Choice]:
    """Every sharding, stages and tile count of a plan under which every stage has a partitioning that fits SRAM."""
    graph, plan = world.graph, world.plan
    problem = Problem(world, asked, memo)
    names = [kernel.name for kernel in graph.kernels]
    if graph.folded:
        places = [tuple(kinds(graph).index(kernel.layer or "layer") for kernel in graph.kernels)]
    else:
        every = itertools.product(range(plan.stages), repeat=len(names))
        places = [place for place in every if stages_legal(graph, dict(zip(names, place, strict=True)))]
    for schemes in shardings(world, asked):
        for count in tile_counts(world, schemes):
            for place in places:
                seconds = problem.seconds(schemes, place, count)
                if all(map(math.isfinite, seconds)):
                    yield Choice(problem, schemes, place, count, seconds)


def shardings(world: World, asked: Request) -> Iterator[tuple[Sharding, ...]]:
    """Legal schemes of all kernels, as pinned, whose partial sums meet."""
    graph, plan = world.graph, world.plan
    menus = [ops.legal_schemes(kernel, plan.shards, world.assumptions) for kernel in graph.kernels]
    if plan.shards > 1:
        for k, kernel in enumerate(graph.kernels):
            pinned = asked.pin_sharding.get(kernel.name)
            menus[k] = tuple(scheme for scheme in menus[k] if pinned in (None, scheme))
    for schemes in itertools.product(*menus):
        sharding = {kernel.name: z for kernel, z in zip(graph.kernels, schemes, strict=True)}
        if sums_meet(graph, plan, world.assumptions, sharding):
            yield schemes


def tile_counts(world: World, schemes: Sequence[Sharding]) -> list[int]:
    """Pieces that the shortest streamed axis may be cut into; chips that split it have a row each of every piece."""
    rows, asked = ops.streamed_rows(world.graph), world.assumptions.tile_rows
    shared = any(k.streamed == "n" and z in ("n", "k>n") for k, z in zip(world.graph.kernels, schemes, strict=True))
    least = min(rows, max(asked or 1, world.plan.shards if shared else 1))
    if asked is not None or world.assumptions.compute_model != "cycle":
        return [math.ceil(rows / least)]
    return sorted({math.ceil(rows / size) for size in range(least, rows + 1)})
