"""Random worlds that regions cover, and what is asked of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from block_cases import IN_TOKEN_BLOCKS, needing_blocks
from brute import Joint, joint_optimum
from hypothesis import note, reject
from hypothesis import strategies as st
from strategies import ROWS, World, footprint, with_dram, worlds

from dfopt.bnb import Clock, Outcome
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.request import Request
from dfopt.documents.result import Result
from dfopt.errors import PlanError
from dfopt.physics import ops
from dfopt.regions.problem import parameters_of, problem_in, searched
from dfopt.regions.region import Branch
from dfopt.regions.space import MappingSpace
from dfopt.regions.variants import Variants
from dfopt.search.verify import verify
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.solving.options import Options

MANY = 32
"""Ways to share out kernels that are drawn once among pipeline stages that brute force looks at in one example."""

FIXED: dict[str, Any] = {
    "tile_rows": ROWS,
    "compute_model": ["fixed", "fixed", "efficiency", "cycle"],
    "token_blocks": ["none", "none", "allow"],
    "training_memory": [None, None, "calculon"],
}
"""Assumptions under which the answer is one of regions; all others are drawn."""


@st.composite
def covered(draw: st.DrawFn, **more: Any) -> World:
    """A world whose plans and assumptions are covered; many have little DRAM."""
    world = draw(worlds(**{"most": 5, "least": 2, **FIXED, **more}))
    if draw(st.booleans()):
        size = draw(st.sampled_from([30.0, 12.0, 6.0, 4.0, 2.0, 1.0, 0.6]))
        world = replace(world, system=with_dram(world.system, size * footprint(world.graph)))
    return world


@st.composite
def in_token_blocks(draw: st.DrawFn, **more: Any) -> World:
    """A world whose partitions may take their tokens in blocks, with about as much SRAM as all kernels then need."""
    return draw(needing_blocks(covered(most=4, **IN_TOKEN_BLOCKS | more)))


def jointly(world: World) -> Assumptions:
    """Schemes and fusions are chosen together."""
    return world.assumptions.with_(sharding_objective="joint")


def setting_of(world: World) -> Setting:
    """Graph, system and resolved assumptions."""
    return Setting.resolved(world.graph, world.system, jointly(world))


def space_of(setting: Setting, request: Request) -> MappingSpace:
    """All mappings that a request leaves free.

    Raises
    ------
    PlanError
        If no plan has what is asked for.
    """
    legal, rejected = asked_plans(setting.graph, setting.system, request, setting.assumptions)
    if not legal:
        raise PlanError("; ".join(dict.fromkeys(one.reason for one in rejected)))
    return MappingSpace.of_plans(setting, request, [*chain.from_iterable(map(Variants(setting, request).of, legal))])


def best_mapping(setting: Setting, request: Request) -> Outcome[Branch, Any]:
    """The fastest mapping of a setting, with a bound; ``empty``: no mapping fits the memories."""
    options = Options(request, Clock.of_limit(request.time_limit))
    return searched(problem_in([space_of(setting, request)], options), parameters_of(request), options.clock)


def optimum(world: World, asked: Mapping[str, Any]) -> Joint | None:
    """The best of all mappings that a request allows, by brute force; none if nothing fits.

    Raises
    ------
    PlanError
        If no plan has what is asked for.
    """
    return joint_optimum(world.graph, world.system, jointly(world), Request(**asked))


def optimum_of_some(world: World, asked: Mapping[str, Any]) -> Joint | None:
    """The same; another world is drawn if no plan has what is asked for."""
    try:
        return optimum(world, asked)
    except PlanError:
        reject()


def check_honest(result: Result, best: float) -> None:
    """No bound is above the best value and no mapping below it, what is called optimal is, and a check has no doubt."""
    note(f"{result.value} {result.bound} {result.status} {result.plan.label} against {best}")
    assert result.bound <= best * (1 + 1e-9)
    assert result.value >= best * (1 - 1e-9)
    assert result.status != "optimal" or result.value <= best * (1 + 1e-6)
    shown = verify(result)
    assert not shown.problems, shown.problems


def asked_of(world: World, draw: st.DrawFn, ways: int = MANY) -> dict[str, Any]:
    """Few stages where kernels are drawn once and may be in any, levels of ZeRO, numbers of partitions, and pins.

    ``ways``: to share out these kernels, at most.
    """
    chosen, graph = world.assumptions, world.graph
    asked: dict[str, Any] = {"two_batch_overlap": False}
    if not graph.folded:
        most = ways ** (1 / len(graph.kernels))
        asked["pp"] = draw(st.sampled_from([one for one in stages_of(world) if one <= most] or [1]))
    if graph.trains:
        asked["zero"] = draw(st.sampled_from([None, None, (0, 1), (2, 3)]))
    if chosen.execution != "kernel_by_kernel":
        asked |= (
            draw(st.one_of(st.just({}), counted(world))) if chosen.empty_partitions == "allow" else draw(counted(world))
        )
    allowed = asked.get("pp", world.plan.pp) == world.plan.pp  # what is asked for allows the drawn plan
    if draw(st.integers(0, 3)) == 0 and world.plan.tp > 1 and allowed:
        kernel = draw(st.sampled_from(graph.kernels))
        scheme = draw(st.sampled_from(ops.legal_schemes(kernel, world.plan.tp, chosen)))
        asked |= {"pin_sharding": {kernel.name: scheme}, "tp_dims": world.plan.tp_dims}
    return asked


@st.composite
def counted(draw: st.DrawFn, world: World) -> dict[str, Any]:
    """How many partitions there are at most, or exactly, and kernels in one of them."""
    few = [1, 2, 3] if world.assumptions.empty_partitions == "forbid" else [None, 1, 2, 3, 4]
    asked: dict[str, Any] = {"p_max": draw(st.sampled_from(few))}
    most = min(asked["p_max"] or 3, len(world.graph.kernels))
    names = draw(st.sets(st.sampled_from([kernel.name for kernel in world.graph.kernels]), max_size=2))
    if draw(st.booleans()):
        asked["pin_partition"] = {name: draw(st.integers(0, most - 1)) for name in sorted(names)}
    return asked


def stages_of(world: World) -> list[int]:
    """Numbers of pipeline stages that plans of a world have."""
    setting = setting_of(world)
    try:
        plans, _ = asked_plans(setting.graph, setting.system, Request(two_batch_overlap=False), setting.assumptions)
    except PlanError:
        return []
    return sorted({plan.stages for plan in plans}, reverse=True)


def request_of(world: World, draw: st.DrawFn) -> Request:
    """The same as a request."""
    return Request(**asked_of(world, draw))
