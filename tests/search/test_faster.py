"""What is proven of chips that communicate faster holds, as a share, for others: below the best of these."""

from __future__ import annotations

import pytest

import dfopt as df
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.physics.pipeline import resolve
from dfopt.search.families import Families
from dfopt.search.faster import Faster, asked_for
from dfopt.search.nodes import Nodes
from dfopt.search.options import Options
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.terms.bounds import PlanBounds


@pytest.fixture(scope="module", params=["ideal", "calibrated"])
def setting(request: pytest.FixtureRequest) -> Setting:
    graph, system = df.load_graph("gpt2-small", mode="training", batch=512), df.load_system("a100-512")
    found = df.optimize(graph, system, assumptions=request.param, tp=8, pp=1, zero=0, time_limit=20, gap=0.2)
    return Setting(graph, found.system, resolve(found.assumptions, system.chip.execution, None))


@pytest.fixture(scope="module")
def plans(setting: Setting) -> list[Plan]:
    asked = Request.of(tp=8, pp=1, zero=0)
    return asked_plans(setting.graph, setting.system, asked, setting.assumptions)[0]


def test_shares_are_of_the_least_of_all_collectives(setting: Setting, plans: list[Plan]) -> None:
    works = {setting.under(plan).shared: None for plan in plans}
    order = Faster(works)
    assert len(works) >= 4  # eight of a node, four and two, two and four, one of each of eight nodes
    for one in works:
        for other, share in order.than(one).items():
            ratios = [
                one.communication_s(kind, volume, one.plan.shard_dims)
                / other.communication_s(kind, volume, other.plan.shard_dims)
                for kind, volume in asked_for(one)
            ]
            assert share == pytest.approx(min(1.0, *ratios))


def test_no_mapping_beats_what_faster_chips_prove(setting: Setting, plans: list[Plan]) -> None:
    nodes, bounds = Nodes(setting, Options(Request.of(gap=0.0))), PlanBounds(setting)
    tables = bounds.tables(plans)
    low = bounds.of_all(plans)
    families = Families(nodes, bounds, dict(low), tables)
    asked = {"assumptions": setting.assumptions, "tp": 8, "pp": 1, "zero": 0, "sensitivity": False, "gap": 0.1}
    more = 0
    for plan in plans:
        families._by_faster(plan)
        assert {one.plan.shard_dims for one in families._of} <= {("node",)}  # no other is opened
        if plan.shard_dims == ("node",):
            continue
        best = df.optimize(setting.graph, setting.system, tp_dims=plan.shard_dims, **asked)
        assert best.plan.shard_dims == plan.shard_dims
        assert low[plan] <= families.bounds[plan] <= best.value * (1 + 1e-9)
        more += families.bounds[plan] > low[plan] * 1.2
    assert more
