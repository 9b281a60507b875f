"""Executions of a training step against brute force: plan, interleaving, what is shared out and computed again."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from brute import joint_optimum, least_capacities
from hypothesis import assume, given, note
from hypothesis import strategies as st
from strategies import ROWS, World, keeping, share, with_dram, worlds
from test_assignment import SQUEEZE, check, squeezed
from test_joint_search import check_what_fits

import dfopt.search as optimizer
from dfopt.documents.graph import Graph
from dfopt.documents.request import Request
from dfopt.errors import Infeasible
from dfopt.search.verify import verify
from dfopt.setting.plans import asked_plans
from dfopt.workloads.recompute import recomputed

# -- where kernels say what they keep, and memory is counted as Calculon does ------------------


@st.composite
def tight(draw: st.DrawFn) -> tuple[World, dict[str, object]]:
    """Worlds whose best mapping without limits is a little too large for the DRAM."""
    fixed: dict[str, object] = {"execution": [draw(st.sampled_from(["dataflow", "library", "kernel_by_kernel"]))]}
    if fixed["execution"] == ["dataflow"]:  # rows state what listed partitions hide
        fixed["gradient_overlap"] = None
    world = draw(keeping(worlds(most=4, least=2, trains=True, roomy=True, tile_rows=ROWS, **fixed)))
    asked = {"p_max": draw(st.integers(1, 4))} if world.assumptions.execution != "kernel_by_kernel" else {}
    free = joint_optimum(world.graph, world.system, world.assumptions, Request(**asked), [world.plan])
    assume(free is not None and max(one.dram_bytes for one in free.score.stages) > 0)
    return squeezed(world, free.score, "dram", draw(st.sampled_from(SQUEEZE))), asked


@share(0.3)
@given(tight())
def test_one_milp_of_a_plan_is_brute_force(case: tuple[World, dict[str, object]]) -> None:
    check(*case)


@share(0.3)
@given(keeping(worlds(most=4, least=2, trains=True, tile_rows=ROWS)), st.data())
def test_what_fits_where_memory_is_counted_as_calculon_does(world: World, data: st.DataObject) -> None:
    check_what_fits(world, data)


# -- executions of a training step, and what is proven of every plan on the way ----------------


ZERO = (0, 1)


def ways(graph: Graph, data: st.DataObject) -> tuple[Graph, ...]:
    """A graph as it is and with some of its forward kernels run again, as far as that changes anything."""
    forward = [kernel.name for kernel in graph.kernels if kernel.pass_ == "forward"]
    again = recomputed(graph, data.draw(st.sets(st.sampled_from(forward), min_size=1, max_size=2)))
    if len(again.kernels) == len(graph.kernels):
        return (graph,)
    return graph, again.model_copy(update={"variant": "recompute: some"})


def short_of_memory(world: World, drawn: tuple[Graph, ...], data: st.DataObject) -> World:
    """Half of them with as much DRAM as some execution needs, a little more or less; others as they are."""
    if data.draw(st.booleans()):
        return world
    unlimited, asked = with_dram(world.system, None), Request(zero=ZERO)
    needs = [least_capacities(graph, unlimited, world.assumptions, asked).values() for graph in drawn]
    sizes = sorted({size for each in needs for size in each if 0 < size < math.inf})
    assume(sizes)
    capacity = data.draw(st.sampled_from(sizes)) * data.draw(st.sampled_from([0.9999, 1.0001, 1.2]))
    return replace(world, system=with_dram(world.system, capacity))


def check_execution(world: World, data: st.DataObject) -> None:
    """The execution that is found is the best of all, and no bound is above what its plan allows."""
    # of fused kernels that hide gradients only a bound is sure
    chosen = world.assumptions.with_(sharding_objective="joint", gradient_overlap=None)
    assume(world.graph.trains and any(kernel.pass_ == "forward" for kernel in world.graph.kernels))
    drawn = ways(world.graph, data)
    world = short_of_memory(world, drawn, data)
    asked = {"zero": ZERO} | ({"p_max": 2} if chosen.empty_partitions == "forbid" else {})
    if chosen.execution == "kernel_by_kernel":
        asked.pop("p_max", None)
    best = [joint_optimum(graph, world.system, chosen, Request(**asked)) for graph in drawn]
    values = [one.value for one in best if one is not None]
    if not values:
        with pytest.raises(Infeasible):
            optimizer.solve(drawn[0], world.system, variants=drawn[1:], assumptions=chosen, **asked)
        return
    result = optimizer.solve(drawn[0], world.system, variants=drawn[1:], assumptions=chosen, **asked)
    note(f"{result.value} {result.status} against {values}")
    assert result.status == "optimal"
    assert result.value == pytest.approx(min(values), rel=1e-9)
    by_name = {graph.variant: graph for graph in drawn}
    usable = {
        name: set(asked_plans(graph, world.system, Request(**asked), chosen)[0]) for name, graph in by_name.items()
    }
    some = data.draw(st.lists(st.sampled_from(result.plans), min_size=1, max_size=4))
    for record in [one for one in some if one.plan in usable[one.variant]]:  # others are none of these batches
        alone = joint_optimum(by_name[record.variant], world.system, chosen, Request(**asked), [record.plan])
        mine = alone is not None and record.tile_count in (None, alone.mapping.tile_count)  # others may be slower
        if record.status == "infeasible":
            assert not mine
        elif mine:
            assert record.bound <= alone.value * (1 + 1e-9)
    found = verify(result)
    assert found.ok, found.problems


@share(0.5, nightly=0.15)
@given(worlds(most=4, least=2, trains=True, repeats=(2, 4), pieces=False, tile_rows=ROWS), st.data())
def test_the_best_execution_is_that_of_brute_force(world: World, data: st.DataObject) -> None:
    check_execution(world, data)
