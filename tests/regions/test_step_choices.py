"""Plans that compose a step in another way: layers computed again, placements, two microbatches in turns, gradients
that hide. All are covered, and the answer is that of brute force and of the other search."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from brute import least_capacities
from covered import jointly
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import World, share, with_dram, worlds
from test_best_mapping import check
from test_placed import cases as served
from test_placed import every_plan

from dfopt.documents.request import Request
from dfopt.documents.system import System
from dfopt.errors import PlanError
from dfopt.workloads.recompute import recomputed, some_recomputed

PLAIN: dict[str, Any] = {
    "tile_rows": 1,
    "compute_model": ["fixed", "efficiency"],
    "gradient_overlap": None,
    "empty_partitions": "allow",
    "forward_backward": ["separate", "shared"],
}


def some_again(world: World, data: st.DataObject, most: int = 8) -> World:
    """The world with layers of both kinds: computed again, and kept."""
    graph = world.graph
    assume(graph.folded and len(graph.layers.kinds) == graph.layers.counted == 1)
    forward = [kernel.name for kernel in graph.kernels if kernel.pass_ == "forward"]
    assume(forward)
    mixed = some_recomputed(graph, recomputed(graph, data.draw(st.sets(st.sampled_from(forward), min_size=1))))
    assume(len(mixed.kernels) <= most)
    return replace(world, graph=mixed)


@share(1)
@given(worlds(most=4, least=2, trains=True, repeats=(4,), max_pp=2, **PLAIN), st.data())
def test_layers_of_which_some_are_computed_again(world: World, data: st.DataObject) -> None:
    world, asked = some_again(world, data), {"two_batch_overlap": False}
    try:
        fits = least_capacities(world.graph, with_dram(world.system, None), jointly(world), Request(**asked))
    except PlanError:
        assume(False)
    sizes = sorted({size for size in fits.values() if 0 < size < float("inf")})
    check(replace(world, system=with_dram(world.system, data.draw(st.sampled_from([None, *sizes])))), asked)


@share(1)
@given(served(**PLAIN))
def test_what_lies_where_of_what_does_not_train(case: tuple[World, System]) -> None:
    world, system = case
    asked = {"mp": 1, "two_batch_overlap": False, **({} if world.graph.folded else {"pp": 1})}
    request = Request(**asked)
    plans = list(every_plan(world.graph, system, world, request))
    assume(len(plans) <= 81 * 5)
    check(replace(world, system=system), asked, plans)
