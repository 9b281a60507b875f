"""Blocks that are listed, chosen with the schemes by one MILP: against brute force over all shardings and blocks."""

from __future__ import annotations

import numpy as np
import pytest
from brute import joint_optimum
from hypothesis import event, given
from hypothesis import strategies as st
from strategies import World, falls, share, worlds

import dfopt as df
from dfopt.bnb import UNLIMITED
from dfopt.documents.request import Request
from dfopt.errors import Infeasible
from dfopt.joint.listed import least_listed
from dfopt.search.node import Node
from dfopt.search.nodes import Nodes
from dfopt.search.options import Options
from dfopt.search.relaxed import covers
from dfopt.search.shown import weighed_gradients
from dfopt.setting.instance import Setting


def listed(nodes: Nodes, node: Node, upper: float = np.inf) -> list[float] | None:
    """What every stage of a node takes at least; none where blocks are not listed."""
    menu, found = nodes.menu(node.ready.instance), []
    for stage in node.ready.stages:
        if stage.tables is None or stage.limits is None:
            return None
        weighed_o = weighed_gradients(node.ready, menu, node.allowed_o)
        given = menu, node.allowed_o, stage.members, stage.tables, stage.limits, weighed_o
        found.append(least_listed(*given, upper, clock=UNLIMITED).seconds)
    return found


def with_dram(world: World, capacity: float | None) -> df.System:
    """The system of a world with another memory."""
    dram = world.system.chip.dram.model_copy(update={"capacity": capacity})
    return world.system.model_copy(update={"chip": world.system.chip.model_copy(update={"dram": dram})})


@given(
    worlds(most=5, least=2),
    st.sampled_from(["library", "kernel_by_kernel"]),
    st.sampled_from(["none", "compute_memory", "perfect"]),
)
def test_no_mapping_takes_less_and_one_takes_as_much(world: World, execution: str, overlap: str) -> None:
    chosen = world.assumptions.model_copy(update={"overlap": overlap, "execution": execution})
    system = with_dram(world, None)
    setting = Setting(world.graph, system, chosen)
    if not covers(world.graph, world.plan):
        return
    nodes = Nodes(setting, Options(Request()))
    try:
        opened = nodes.open(world.plan)
    except Infeasible:
        return
    best = joint_optimum(world.graph, system, chosen, Request(), [world.plan])
    shown = [listed(nodes, node) for node in opened]
    if best is None or None in shown:
        return
    values = [node.ready.value_of(lows) for node, lows in zip(opened, shown, strict=True) if lows is not None]
    assert min(values) <= best.value * (1 + 1e-9)
    known = chosen.compute_model != "cycle" and not world.graph.trains
    if known and len(opened[0].ready.stages) == 1 and world.plan.stages == 1:
        event("exact")
        assert min(values) == pytest.approx(best.value, rel=1e-6)


_SLOWER = {"memory": True, "compute_model": "efficiency", "empty_partitions": "allow"}


@share(0.5)
@given(
    worlds(most=5, least=2, **_SLOWER), st.sampled_from(["library", "kernel_by_kernel"]),
    st.sampled_from(["none", "compute_memory", "perfect"]),
)  # fmt: skip
def test_nor_where_few_bytes_are_moved_slower(world: World, execution: str, overlap: str) -> None:
    """Blocks have the very seconds of their bytes, unless shares fall: then a limit that is just met may be missed."""
    chosen = world.assumptions.model_copy(update={"overlap": overlap, "execution": execution})
    system = with_dram(world, None)
    if not covers(world.graph, world.plan):
        return
    nodes = Nodes(Setting(world.graph, system, chosen), Options(Request()))
    try:
        opened = nodes.open(world.plan)
    except Infeasible:
        return
    best = joint_optimum(world.graph, system, chosen, Request(), [world.plan])
    shown = [listed(nodes, node) for node in opened]
    if best is None or None in shown:
        return
    values = [node.ready.value_of(lows) for node, lows in zip(opened, shown, strict=True) if lows is not None]
    assert min(values) <= best.value * (1 + 1e-9)
    known = not falls(world.system) and chosen.compute_model != "cycle" and not world.graph.trains
    if known and len(opened[0].ready.stages) == 1 and world.plan.stages == 1:
        event("exact")
        assert min(values) == pytest.approx(best.value, rel=1e-6)


@given(
    worlds(most=5, least=2, zero=True),
    st.sampled_from(["library", "kernel_by_kernel"]),
    st.sampled_from([0.5, 0.7, 0.9, 0.98, 1.0]),
)
def test_no_mapping_that_fits_takes_less(world: World, execution: str, share: float) -> None:
    """With as much of the DRAM as leaves out the mapping that is best without a limit."""
    chosen = world.assumptions.model_copy(update={"execution": execution})
    if not covers(world.graph, world.plan):
        return
    free = joint_optimum(world.graph, with_dram(world, None), chosen, Request(), [world.plan])
    if free is None:
        return
    held = [sum(one.states["dram"].values()) for one in free.score.stages if one.states]
    if not any(held):
        return
    system = with_dram(world, max(held) * share)
    nodes = Nodes(Setting(world.graph, system, chosen), Options(Request()))
    try:
        opened = nodes.open(world.plan)
    except Infeasible:
        return
    best = joint_optimum(world.graph, system, chosen, Request(), [world.plan])
    for node in opened:
        nodes.fitting(node, nodes.menu(node.ready.instance).first_k)
    event("nothing fits" if best is None else "as the best" if best.value == free.value else "slower")
    assert min(node.bound for node in opened) <= (np.inf if best is None else best.value * (1 + 1e-9))


def test_a_training_layer_on_a_gpu_is_proven() -> None:
    """Where bounds by resource leave 8 % open: a kernel that computes hides no traffic of another one."""
    graph, system = df.load_graph("llama-3.1-8b", mode="training", ends=False), df.load_system("h100-8")
    result = df.optimize(graph, system, assumptions="ideal", tp=4, pp=2, dp=1, interleave=4, sensitivity=False)
    assert result.status == "optimal"
    assert result.step_time_s == pytest.approx(3.05974848200973, rel=1e-9)
