"""The brute force of the joint problem against a plainer one, and against the search of two levels."""

from __future__ import annotations

import itertools
import math

from brute import joint_optimum
from hypothesis import assume, given, note
from hypothesis import strategies as st
from oracles import fusions, stages_legal
from problem_cases import close
from strategies import World, share, sums_meet, worlds

import dfopt.search as optimizer
from dfopt.documents.request import Request
from dfopt.errors import Infeasible
from dfopt.physics import ops

_MOST = 30  # mappings without their partitions: each partitioning of each is judged


@share(0.3)
@given(worlds(most=4, execution=["dataflow", "dataflow", "library"]), st.integers(1, 3))
def test_every_mapping_judged_one_by_one_finds_the_same(world: World, p_max: int) -> None:
    graph, plan = world.graph, world.plan
    assume(plan.tp > 1 or (plan.pp > 1 and graph.repeat == 1))
    names = [kernel.name for kernel in graph.kernels]
    menus = [ops.legal_schemes(kernel, plan.tp, world.assumptions) for kernel in graph.kernels]
    every = (dict(zip(names, here, strict=True)) for here in itertools.product(range(plan.pp), repeat=len(names)))
    pieces = {kernel.name: graph.kind_of(kernel) for kernel in graph.kernels}
    stages = [pieces] if graph.folded else [one for one in every if stages_legal(graph, one)]
    assume(math.prod(map(len, menus)) * len(stages) <= _MOST)
    least = math.inf
    for schemes in itertools.product(*menus):
        sharding = dict(zip(names, schemes, strict=True))
        if sums_meet(graph, plan, world.assumptions, sharding):
            found = (one.score.step_time_s for stage in stages for one in fusions(world, sharding, stage, p_max))
            least = min(least, min(found, default=math.inf))
    best = joint_optimum(graph, world.system, world.assumptions, Request(p_max=p_max), [plan])
    note(f"{least} against {best}")
    assert (best is None) == math.isinf(least)
    assert best is None or close(best.value, least, 1e-9)


@share(0.3)
@given(worlds(most=5, least=2), st.data())
def test_two_levels_are_never_better_and_as_good_where_they_prove_it(world: World, data: st.DataObject) -> None:
    """Over all plans, with pins; where only one sharding is legal they prove it always."""
    graph, chosen = world.graph, world.assumptions
    asked: dict[str, object] = {}
    if chosen.execution != "kernel_by_kernel":
        asked["p_max"] = data.draw(st.sampled_from([1, 2, 3] if chosen.empty_partitions == "forbid" else [None, 1, 3]))
    if data.draw(st.integers(0, 3)) == 0 and world.plan.tp > 1:
        kernel = data.draw(st.sampled_from(graph.kernels))
        scheme = data.draw(st.sampled_from(ops.legal_schemes(kernel, world.plan.tp, chosen)))
        asked |= {"pin_sharding": {kernel.name: scheme}, "tp_dims": world.plan.tp_dims}
    best = joint_optimum(graph, world.system, chosen, Request(**asked))
    try:
        result = optimizer.solve(graph, world.system, assumptions=chosen, **asked)
    except Infeasible:
        return
    note(f"{result.value} {result.status} against {best}")
    assert best is not None
    assert result.bound * (1 - 1e-9) <= best.value <= result.value * (1 + 1e-6)
    assert result.status != "optimal" or close(best.value, result.value)
