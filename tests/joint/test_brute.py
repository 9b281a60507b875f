"""The brute force of the joint problem: against a plainer one, and its plans against those of a search."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from typing import Any

import pytest
from brute import joint_optimum
from brute_plans import every_plan, resolved
from covered import asked_of
from hypothesis import assume, given, note
from hypothesis import strategies as st
from oracles import fusions, stages_legal
from problem_cases import close
from small_systems import rings, small_system
from strategies import ROWS, World, layered, share, sums_meet, worlds

import dfopt.search as optimizer
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Kernel
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.errors import Infeasible, PlanError
from dfopt.physics import ops
from dfopt.setting.plans import asked_plans

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
    asked = asked_of(world, data.draw)
    del asked["two_batch_overlap"]
    best = joint_optimum(graph, world.system, chosen, Request(**asked))
    try:
        result = optimizer.solve(graph, world.system, assumptions=chosen, **asked)
    except Infeasible:
        return
    note(f"{result.value} {result.status} against {best}")
    assert best is not None
    assert result.bound * (1 - 1e-9) <= best.value <= result.value * (1 + 1e-6)
    assert result.status != "optimal" or close(best.value, result.value)


# -- all plans that a request leaves free, written out -----------------------------------------


_STAGES: dict[str, list[Any]] = {
    "pp": [1, 2, 3, 4],
    "interleave": [1, 2],
    "first_layers": [0, 1, 2],
    "last_layers": [0, 1, 2],
}


@share(20)
@given(worlds(most=4, least=2, tile_rows=ROWS, repeats=(1, 4, 4)), st.data())
def test_no_plan_is_listed_beside_the_space_and_none_left_out_without_one_as_good(
    world: World, data: st.DataObject
) -> None:
    """As good: alike but for the order of dims, and with layers that are a part of the other's in every stage."""
    asked = Request(**asked_of_stages(world, data))
    every, listed = plans_of(world, asked)
    note(f"{[plan.label for plan in every]} against {[plan.label for plan in listed]}")
    assert not {*listed} - {*every}
    alike = defaultdict[str, list[Plan]](list)
    for plan in listed:
        alike[apart_from_layers(plan)].append(plan)
    for plan in every:
        if gives_away_all(world, plan):
            continue
        assert any(as_good(world, one, plan) for one in alike[apart_from_layers(plan)]), plan.label


def asked_of_stages(world: World, data: st.DataObject) -> dict[str, Any]:
    """What copies share out, and some of the stages and their layers."""
    asked = {
        name: data.draw(st.sampled_from(values)) for name, values in _STAGES.items() if not data.draw(st.integers(0, 5))
    }
    if world.graph.trains:
        asked["schedule"] = data.draw(st.sampled_from([None, None, None, "gpipe", "1f1b", "interleaved"]))
        if world.assumptions.gradients == "exact":
            asked["zero"] = data.draw(st.sampled_from([None, None, (0, 1), (2, 3)]))
            asked["zero_replicas"] = data.draw(st.sampled_from([None, None, "all"]))
    try:
        Request(**asked)
    except ValueError:  # such as a schedule beside chunks that it has not
        assume(False)
    return asked


def plans_of(world: World, asked: Request) -> tuple[list[Plan], list[Plan]]:
    """All plans, and those that are listed; a request that no plan has is refused by both."""
    chosen = resolved(world.assumptions, world.system.chip)
    try:
        listed, _ = asked_plans(world.graph, world.system, asked, chosen)
    except PlanError:
        with pytest.raises(PlanError):
            every_plan(world.graph, world.system, asked, chosen)
        return [], []
    every = every_plan(world.graph, world.system, asked, chosen)
    assert len(set(listed)) == len(listed)
    return every, listed


def apart_from_layers(plan: Plan) -> str:
    """All that a plan says but the layers of its stages, and in which order its axes use dims."""
    said = plan.model_dump(exclude={"layers_per_stage", "first_layers", "last_layers"})
    dims = {key: sorted(names) for key, names in said.items() if key.endswith("_dims")}
    return str(said | dims | {"hybrid": plan.hybrid and plan.hybrid.replicas})


def as_good(world: World, one: Plan, other: Plan) -> bool:
    """Whether a plan has a part of the layers of another in every stage, and as many chunks to fill a pipeline."""
    if world.assumptions.bubble == "interleaved" and one.layers_per_stage != other.layers_per_stage:
        return False
    mine, theirs = held(world, one), held(world, other)
    return mine == theirs or (world.graph.layers.counted == 1 and all(map(int.__le__, mine, theirs)))


def held(world: World, plan: Plan) -> list[int]:
    """Layers of every stage: where these are equal as many as it is charged for, else those that there are."""
    first, most, last = plan.stage_layers
    sizes = [most] if plan.stages == 1 else [first, *[most] * (plan.stages - 2), last]
    layers = world.graph.layers
    if layers.counted == 1 or not world.graph.folded:
        return sizes
    return [max(min(size, layers.count - sum(sizes[:at])), 0) for at, size in enumerate(sizes)]


def gives_away_all(world: World, plan: Plan) -> bool:
    """Whether both ends have four layers fewer than the middle.

    Three are listed whatever they weigh; one more helps only where they weigh as much (``uneven_layers``).
    """
    sizes = held(world, plan)
    return world.assumptions.bubble != "interleaved" and plan.layers_per_stage - max(sizes[0], sizes[-1]) > 3


@pytest.mark.parametrize("end", ["first", "last"])
@pytest.mark.parametrize(("bubble", "trains", "layers", "chunks"), [
    ("interleaved", False, (0, 3, 1), 1), ("interleaved", False, (1, 2, 1), 1), ("stages", True, (1, 2, 1), 2),
])  # fmt: skip
def test_an_end_without_kernels_of_its_own_may_hold_what_is_left_of_the_layers(
    end: str, bubble: str, trains: bool, layers: tuple[int, int, int], chunks: int
) -> None:
    """Where the layers of stages are chunks, and of stages in chunks; nowhere else."""
    kernels = [Kernel(name="layer", op="gemm", m=4, k=4, n=4), Kernel(name="end", op="gemm", m=4, k=4, n=4, layer=end)]
    if trains:
        kernels.append(Kernel(name="back", op="gemm", m=4, k=4, n=4, pass_="backward"))
    system = small_system(*rings(3, rate=1e2))
    graph, asked = layered(4, kernels, batch=12), Request(pp=3)
    wanted = layers if end == "first" else layers[::-1]
    for other in ("one_f_one_b", "stages", "interleaved"):
        chosen = resolved(Assumptions(bubble=other), system.chip)
        for plans in (every_plan(graph, system, asked, chosen), asked_plans(graph, system, asked, chosen)[0]):
            found = [plan for plan in plans if plan.stage_layers == wanted and plan.interleave == chunks]
            assert bool(found) == (other == bubble or (chunks > 1 and other == "one_f_one_b"))
