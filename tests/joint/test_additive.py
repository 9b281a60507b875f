"""Bounds that look at layouts and at partitions apart against brute force over both."""

from __future__ import annotations

import numpy as np
import pytest
from brute import joint_optimum
from hypothesis import given
from hypothesis import strategies as st
from strategies import World, worlds

from dfopt.bnb import UNLIMITED
from dfopt.documents.assumptions import profile
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.errors import Infeasible
from dfopt.joint.additive import least_of_both
from dfopt.joint.dual import Resources
from dfopt.machines.compose import load_system
from dfopt.physics.pipeline import resolve
from dfopt.search.nodes import Nodes
from dfopt.search.options import Options
from dfopt.search.relaxed import covers
from dfopt.setting.instance import Setting
from dfopt.workloads import load_graph


@given(worlds(most=5, least=2), st.sampled_from(["none", "compute_memory"]), st.sampled_from(["separate", "shared"]))
def test_no_mapping_takes_less(world: World, overlap: str, rule: str) -> None:
    chosen = world.assumptions.model_copy(update={"overlap": overlap, "forward_backward": rule})
    setting = Setting(world.graph, world.system, chosen)
    if not covers(world.graph, world.plan):
        return
    nodes = Nodes(setting, Options(Request()))
    try:
        opened = nodes.open(world.plan)
    except Infeasible:
        return
    best = joint_optimum(world.graph, world.system, chosen, Request(), [world.plan])
    if best is None or opened[0].ready.instance.mapped_stages > 1:
        return
    lows = []
    for node in opened:
        stage = node.ready.stages[0]
        if stage.tables is None or stage.limits is None or stage.lattice is None:
            return
        given = nodes.menu(node.ready.instance), node.allowed_o, stage.tables, stage.limits, stage.lattice
        low = least_of_both(*given, clock=UNLIMITED)
        lows.append(node.ready.value_of([low.seconds]))
    assert min(lows) <= best.value * (1 + 1e-9)


def test_what_resources_show_is_of_the_schemes_that_are_left() -> None:
    """Fewer are left with tiles that chips cannot share."""
    chosen = resolve(profile("default"), "dataflow", 0.9)
    setting = Setting(load_graph("gpt2-small"), load_system("sn10-8-ring"), chosen)
    nodes = Nodes(setting, Options(Request()))
    node = nodes.open(Plan(tp=8, tp_dims=("ring",)))[0]
    menu, stage = nodes.menu(node.ready.instance), node.ready.stages[0]
    assert stage.tables is not None and stage.limits is not None
    given = stage.tables, stage.limits, stage.members
    whole_o = np.array([scheme == "none" for scheme in menu.tables.scheme_o])  # every chip does all of a kernel
    may_k = np.bincount(menu.tables.kernel_o, whole_o) > 0
    few_o = node.allowed_o & (whole_o | ~may_k[menu.tables.kernel_o])
    every, few = (Resources.of_stage(menu, left_o, *given).dual().seconds for left_o in (node.allowed_o, few_o))
    assert every < few


def test_a_training_layer_is_bounded_within_one_percent() -> None:
    """What a tensor may move at most hides compute: those that move little beyond their least are left out."""
    chosen = resolve(profile("default").with_(overlap="compute_memory"), "dataflow", 0.9)
    graph = load_graph("gpt3-175b", mode="training")
    nodes = Nodes(Setting(graph, load_system("sn10-8-ring"), chosen), Options(Request()))
    lows = []
    for node in nodes.open(Plan(tp=8, tp_dims=("ring",), layers_per_stage=96, microbatches=2304)):
        stage = node.ready.stages[0]
        assert stage.tables is not None and stage.limits is not None and stage.lattice is not None
        given = nodes.menu(node.ready.instance), node.allowed_o, stage.tables, stage.limits, stage.lattice
        lows.append(node.ready.value_of([least_of_both(*given, clock=UNLIMITED).seconds]))
    assert min(lows) == pytest.approx(4313.79, rel=0.01)  # a mapping takes 4313.79 s, and nothing less than a bound
    assert min(lows) <= 4313.795
