"""The members of regions by brute force, with the judge's values: every vector of options with its best partitions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from brute import Choice, tile_counts
from brute_problem import Memo, Problem
from covered import request_of, setting_of, space_of
from hypothesis import assume
from hypothesis import strategies as st
from oracles import kinds, stages_legal
from strategies import World, sums_meet

from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Sharding
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.errors import PlanError
from dfopt.regions.region import Region
from dfopt.regions.space import MappingSpace

Vector = tuple[int, ...]


@dataclass(eq=False)
class Members:
    """Values of the mappings of a world, by plan, tiles and schemes."""

    world: World
    request: Request
    memo: Memo = field(default_factory=dict)
    problems: dict[Plan, Problem] = field(default_factory=dict)
    known: dict[tuple[Plan, int, tuple[Sharding, ...]], float] = field(default_factory=dict)

    @cached_property
    def space(self) -> MappingSpace:
        return space_of(setting_of(self.world), self.request)

    def value(self, plan: Plan, tiles: int, schemes: tuple[Sharding, ...]) -> float:
        """Seconds of a step with the partitions that are best and fit; infinite if none do."""
        if (plan, tiles, schemes) not in self.known:
            self.known[plan, tiles, schemes] = self._value(plan, tiles, schemes)
        return self.known[plan, tiles, schemes]

    def _value(self, plan: Plan, tiles: int, schemes: tuple[Sharding, ...]) -> float:
        graph = self.world.graph
        world = World(graph, self.world.system, plan, self.space.setting.assumptions)
        if tiles not in tile_counts(world, schemes):
            return math.inf
        sharding = {kernel.name: scheme for kernel, scheme in zip(graph.kernels, schemes, strict=True)}
        if not sums_meet(graph, plan, world.assumptions, sharding):
            return math.inf
        if plan not in self.problems:
            self.problems[plan] = Problem(world, self.request, self.memo)
        return min(self._judged(plan, schemes, place, tiles) for place in places(graph, plan))

    def _judged(self, plan: Plan, schemes: tuple[Sharding, ...], place: tuple[int, ...], tiles: int) -> float:
        """The same with the stage of the mapping that every kernel is in."""
        seconds = self.problems[plan].seconds(schemes, place, tiles)
        if not all(map(math.isfinite, seconds)):
            return math.inf
        choice = Choice(self.problems[plan], schemes, place, tiles, seconds)
        graph, hides = self.world.graph, self.space.setting.assumptions.gradient_overlap is not None
        by_pass = graph.trains and (hides or plan.placement is not None)
        found = choice.judged_behind(math.inf) if by_pass else choice.judged()
        return math.inf if found is None else found.value

    def of(self, region: Region) -> Iterator[tuple[Plan, Vector, float]]:
        """Plans, options and seconds of a region's members."""
        schemes_k = region.of.layer.schemes_k
        for i in region.plans:
            plan = region.of.plans[i]
            for vector in itertools.product(*region.domain):
                schemes = tuple(schemes[option] for schemes, option in zip(schemes_k, vector, strict=True))
                yield plan, vector, self.value(plan, region.of.tiles, schemes)

    def least(self, region: Region) -> float:
        """The value of the best member; infinite if none fits."""
        return min((value for _, _, value in self.of(region)), default=math.inf)


def places(graph: Graph, plan: Plan) -> list[tuple[int, ...]]:
    """Stages of the mapping that kernels may be in."""
    if graph.folded:
        return [tuple(kinds(graph).index(kernel.layer or "layer") for kernel in graph.kernels)]
    names = [kernel.name for kernel in graph.kernels]
    every = itertools.product(range(plan.stages), repeat=len(names))
    return [place for place in every if stages_legal(graph, dict(zip(names, place, strict=True)))]


def drawn_root(world: World, data: st.DataObject, asked: Request | None = None) -> tuple[Members, Region]:
    """A random root of what is asked of a world."""
    members = Members(world, request_of(world, data.draw) if asked is None else asked)
    try:
        roots = members.space.roots
    except PlanError:
        assume(False)
    listed = [root for root in roots if isinstance(root, Region)]
    assume(listed)
    return members, data.draw(st.sampled_from(listed))
