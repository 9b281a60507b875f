"""Layers that are recomputed in some number, and copies in groups, against brute force over everything."""

from __future__ import annotations

from dataclasses import replace

import pytest
from brute import joint_optimum, least_capacities
from hypothesis import assume, given, note
from hypothesis import strategies as st
from strategies import World, share, with_dram, worlds

import dfopt.search as optimizer
from dfopt.documents.request import Request
from dfopt.errors import Infeasible, PlanError
from dfopt.search.verify import verify
from dfopt.workloads.recompute import recomputed, some_recomputed

ONE = {"execution": "kernel_by_kernel", "empty_partitions": "allow", "tile_rows": 1, "sharding_objective": "joint"}


def check(world: World, data: st.DataObject, **asked: object) -> None:
    """The best of a memory that some plans fit, or none do."""
    request = Request(**asked)
    try:
        fits = sorted(
            {size for size in least_capacities(world.graph, world.system, world.assumptions, request).values()}
        )
    except PlanError:
        assume(False)
    capacity = data.draw(st.sampled_from([None, *(size for size in fits if 0 < size < float("inf"))]))
    world = replace(world, system=with_dram(world.system, capacity))
    best = joint_optimum(world.graph, world.system, world.assumptions, request)
    if best is None:
        with pytest.raises(Infeasible):
            optimizer.solve(world.graph, world.system, assumptions=world.assumptions, **asked)
        return
    found = optimizer.solve(world.graph, world.system, assumptions=world.assumptions, sensitivity=False, **asked)
    note(f"{found.value} {found.status} {found.plan.label} against {best}")
    assert found.status == "optimal" and found.value == pytest.approx(best.value, rel=1e-9)
    assert found.bound <= best.value * (1 + 1e-9) and verify(found).ok


@share(0.25)
@given(worlds(most=4, least=2, trains=True, repeats=(4,), max_pp=2, pieces=False, **ONE), st.data())
def test_the_number_of_layers_is_brute_force(world: World, data: st.DataObject) -> None:
    graph = world.graph
    assume(len(graph.layers.kinds) == graph.layers.counted == 1)
    forward = [kernel.name for kernel in graph.kernels if kernel.pass_ == "forward"]
    assume(forward)
    names = data.draw(st.sets(st.sampled_from(forward), min_size=1))
    mixed = some_recomputed(graph, recomputed(graph, names))
    assume(len(mixed.kernels) <= 8)
    check(replace(world, graph=mixed), data)


@share(0.25)
@given(worlds(most=3, least=2, trains=True, pieces=False, gradients="exact", **ONE), st.data())
def test_the_groups_of_copies_are_brute_force(world: World, data: st.DataObject) -> None:
    check(world, data, zero=(0, 1, 2, 3), zero_replicas="all")
