"""Plans as arrays: what their stages hold at least, and what a step takes, as of every plan by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import World, worlds

import dfopt as df
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.physics.overlap import exposed_s
from dfopt.physics.pipeline import resolve, step_time, with_point_to_point
from dfopt.physics.states import capacities
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.terms.bounds import PlanBounds, PlanTable
from dfopt.terms.step.ledger import held
from dfopt.terms.step.overlap import exchange_seconds, hides_any, reduced_stages
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


def overlapped_by_hand(table: PlanTable, number: int, low_k: list[float], hop_s: float) -> float:
    """Seconds of a step of one of a table's plans, from the figures of each of its stages by itself."""
    plan, work, instance = table.plans[number], table.work, table.work.setting.under(table.plans[number])
    gradient_k, weight_k = np.zeros((2, len(work.kind_k)))
    for kind, one in enumerate(work.of(instance)):
        gradient_k[mine := work.kind_k == kind], weight_k[mine] = one.gradient_k, one.weight_k
    exchanges = exchange_seconds(instance, gradient_k, weight_k, work.kind_k)
    stages = [sum(times * low_k[kind] for kind, times in stage.runs) for stage in instance.pipeline]
    hidden, hop_s = table.assumptions.hides_hops_in(plan.interleave), plan.interleave * hop_s
    stages = [with_point_to_point(one, hop_s, hidden) for one in stages]
    hops = [] if hidden else [hop_s] * len(stages)
    passes = work.passes(instance)
    reduced = reduced_stages(instance.setting.model, plan, exchanges, passes, hops) if exchanges else ()
    shows_s = exposed_s(stages, reduced) if reduced else 0.0
    once = table.assumptions.step_overhead or 0.0
    return step_time(plan, table.assumptions, max(stages), gradient_reduction_s=shows_s, overhead_s=once).total


@pytest.mark.parametrize("way", ["backward", "calculon", "calculon_or_none"])
@given(data=st.data())
def test_hidden_exchanges_are_those_of_each_stage_by_itself(way: str, data: st.DataObject) -> None:
    fixed = {"gradient_overlap": [way], "gradients": ["exact"]}
    fixed |= {} if way == "backward" else {"point_to_point_overlap": ["exposed"]}
    world = data.draw(worlds(roomy=True, zero=True, trains=True, repeats=(2, 4), pieces=False, **fixed))
    setting = world.instance.setting
    assume(hides_any(setting.assumptions, setting.graph))
    assume(way == "backward" or len(setting.graph.layers.kinds) == 1)
    plans = asked_plans(world.graph, world.system, Request(zero=(0, 1, 2, 3), mp=1), setting.assumptions)[0]
    [table] = PlanBounds(setting).tables(plans[:40])
    least = max(float(table.work.layers(one)[0].max()) for one in table.instances)  # no layer takes less by itself
    low_k = [data.draw(st.sampled_from([1.0, 1.5, 20.0])) * least] * len(table.work.kinds)
    hop_s = data.draw(st.sampled_from([0.0, 0.1 * least, 3.0 * least]))
    alone = [overlapped_by_hand(table, i, low_k, hop_s) for i in range(len(table.plans))]
    assert table.seconds(None, np.array(low_k), hop_s) == pytest.approx(alone, rel=1e-12)
    assert np.isinf(table.seconds(None, np.inf, hop_s)).all()
