"""What is proven of chips along some dims, as a share, is below what is proven along others: of random worlds."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import World, share, worlds

from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.errors import Infeasible, PlanError
from dfopt.search.faster import Faster
from dfopt.search.node import Node
from dfopt.search.nodes import Nodes
from dfopt.search.options import Options
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans


def _shown(nodes: Nodes, node: Node) -> float:
    """Seconds of the only stage by each resource for itself; 0 where there are several, or it has no kernels."""
    stage = node.ready.stages[0]
    alone = len(node.ready.stages) == 1 and stage.tables is not None
    return nodes.shown.apart(node, stage).seconds if alone else 0.0


@share(0.3)
@given(worlds(most=4, repeats=(4,), dims=2, sharding_objective="joint", network_dims="parts"), st.data())
def test_communication_and_compute_along_other_dims_take_at_least_a_share(world: World, data: st.DataObject) -> None:
    setting = Setting(world.graph, world.system, world.assumptions)
    try:
        plans: list[Plan] = asked_plans(world.graph, world.system, Request(), world.assumptions)[0]
    except PlanError:
        return
    works = {setting.under(plan).shared: None for plan in plans if not plan.two_batch_overlap}
    order, nodes = Faster(works), Nodes(setting, Options(Request()))
    pairs = [(one, other, much) for one in works for other, much in order.than(one).items()]
    assume(pairs)
    one, other, much = data.draw(st.sampled_from(pairs))
    try:
        lows = [[_shown(nodes, node) for node in nodes.of(each, every=True)] for each in (one, other)]
    except Infeasible:  # not even alone, along whatever dims
        return
    assert min(lows[0]) >= much * min(lows[1]) * (1 - 1e-7)
