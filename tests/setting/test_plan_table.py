"""Plans as arrays: what their stages hold at least, and what a step takes, as of every plan by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from strategies import World, worlds

import dfopt as df
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.physics.pipeline import resolve
from dfopt.physics.states import capacities
from dfopt.setting.bounds import PlanBounds
from dfopt.setting.instance import Setting
from dfopt.setting.ledger import held
from dfopt.setting.plans import asked_plans
from dfopt.workloads import load_graph


def used_by(bounds: PlanBounds, plan: Plan) -> float:
    """The largest share of a memory that a plan takes up, from the books of each of its stages."""
    instance = bounds.setting.under(plan)
    books = [held(instance, stage, bounds.least_states(instance)) for stage in bounds.stages(instance)]
    limits = capacities(instance.system.chip)
    return max((sum(book[tier].values()) / most for book in books for tier, most in limits.items()), default=0.0)


@given(worlds(roomy=True, zero=True))
def test_what_arrays_hold_is_in_the_books(world: World) -> None:
    bounds = PlanBounds(world.instance.setting)
    [table] = bounds.tables([world.plan])
    assert table.used_i[0] == pytest.approx(used_by(bounds, world.plan), rel=1e-12)


@pytest.mark.parametrize(
    ("graph", "system", "assumptions", "asked"),
    [
        (("llama-3.1-8b", {"mode": "training", "batch": 16}), "h100-8", {}, {"zero": (0, 1, 2, 3)}),
        (
            ("gpt2-small", {"mode": "training", "batch": 16}),
            "a100-8",
            {"training_memory": "calculon", "gradients": "exact"},
            {"zero": (0, 1)},
        ),
        (("mixtral-8x7b", {}), "h100-8", {}, {}),
        (
            ("gpt2-small", {"mode": "training", "batch": 16}),
            "sn40l-16-ddr",
            {},
            {"zero": (0, 1, 3), "place": {"optimizer": "DDR", "weights": "DDR", "activations": "DDR"}},
        ),
    ],
)
def test_many_plans_are_as_each_by_itself(
    graph: tuple[str, dict[str, object]], system: str, assumptions: dict[str, object], asked: dict[str, object]
) -> None:
    drawn, machine = load_graph(graph[0], **graph[1]), df.load_system(system)
    chosen = resolve(df.Assumptions(**assumptions), machine.chip.execution, machine.chip.compute_utilization)
    setting, request = Setting(drawn, machine, chosen), Request.of(**asked)
    plans = asked_plans(drawn, machine, request, chosen)[0]
    few, bounds = plans[:: max(len(plans) // 60, 1)], PlanBounds(setting)
    for table in bounds.tables(few):
        assert table.used_i == pytest.approx([used_by(bounds, plan) for plan in table.plans], rel=1e-12)
        alone = [bounds.seconds(setting.under(plan)) for plan in table.plans]
        assert table.seconds() == pytest.approx(alone, rel=1e-12)
        some = np.arange(len(table.plans))[1::3]
        assert table.seconds(some).tolist() == table.seconds()[some].tolist()
        raised = table.seconds(some, 1.0, 0.5)
        for place, number in enumerate(some.tolist()):
            [mine] = PlanBounds(setting).tables([table.plans[number]])
            assert raised[place] == pytest.approx(mine.seconds(None, 1.0, 0.5)[0], rel=1e-12)
        for shared in table.shared:
            assert all(setting.under(table.plans[i]).shared is shared for i in table.of_shared(shared).tolist())
