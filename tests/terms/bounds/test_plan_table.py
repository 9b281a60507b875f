"""Plans as arrays: what their stages hold at least, and what a step takes, as of every plan by itself."""

from __future__ import annotations

import numpy as np
import pytest
from exchanges_by_hand import Layers, shown_of_stages
from exposed_by_hand import exposed_s
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import World, worlds

import dfopt as df
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.system import Chip, Memory, NetworkDim, Sram, System
from dfopt.physics.pipeline import resolve, step_time, with_point_to_point
from dfopt.physics.states import capacities
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.terms.bounds import PlanBounds, PlanTable
from dfopt.terms.bounds.plan_arrays import bounded_stages
from dfopt.terms.bounds.work_bounds import WorkBounds
from dfopt.terms.step.hops import per_step_hops
from dfopt.terms.step.ledger import held
from dfopt.terms.step.overlap import exchanges_behind, hides_any
from dfopt.workloads import load_graph
from dfopt.workloads.backward import backward_of


def used_by(bounds: PlanBounds, plan: Plan) -> float:
    """The largest share of a memory that a plan takes up, from the books of each of its stages."""
    instance = bounds.setting.under(plan)
    books = [held(instance, stage, bounds.least_states(instance)) for stage in bounded_stages(instance)]
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
        assert table.least_i == pytest.approx(alone, rel=1e-12)


def overlapped_by_hand(table: PlanTable, number: int, low_k: list[float], hop_s: float) -> float:
    """Seconds of a step of one of a table's plans, from the figures of each of its stages by itself."""
    plan, instance = table.plans[number], table.setting.under(table.plans[number])
    stages = [sum(times * low_k[kind] for kind, times in stage.runs) for stage in instance.pipeline]
    hidden = table.assumptions.hides_hops_in(plan.interleave)
    stages = [with_point_to_point(one, hop_s, hidden) for one in stages]
    hops = [0.0 if hidden else hop_s] * len(stages)
    row = np.flatnonzero(table.plan_r == number)[0]
    forward, back, _, _, memory, compute = (tuple(each_krv[:, row, 0].tolist()) for each_krv in table._passes)
    exchanged = (tuple(each_k.tolist()) for each_k in WorkBounds(instance).exchanged)
    shown = shown_of_stages(instance, Layers(*exchanged, forward, back, memory, compute), hops)
    shows_s = exposed_s(stages, shown) if exchanges_behind(instance) else 0.0
    once = (table.assumptions.step_overhead or 0.0) + per_step_hops(instance)
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
    least = float(table._layer_krv.max())  # no layer takes less by itself
    low_k = [data.draw(st.sampled_from([1.0, 1.5, 20.0])) * least] * table.runs_rk.shape[1]
    hop_s = data.draw(st.sampled_from([0.0, 0.1 * least, 3.0 * least]))
    alone = [overlapped_by_hand(table, i, low_k, hop_s) for i in range(len(table.plans))]
    transfers = table._transfers._replace(hop_rv=np.full((len(table.plan_r), 1), hop_s))
    assert table.steps.of(np.array(low_k)[:, None], transfers)[:, 0] == pytest.approx(alone, rel=1e-12)
    assert np.isinf(table.steps.of(np.full((len(low_k), 1), np.inf), transfers)).all()


def test_kernels_that_must_share_a_stage_are_bounded_together() -> None:
    def interval(stage_with: str | None) -> float:
        shared = {"op": "gemm", "m": 64, "k": 64, "n": 64}
        kernels = (df.Kernel(name="a", **shared), df.Kernel(name="b", stage_with=stage_with, **shared))
        graph = df.Graph(name="three alike", batch=2, kernels=(*kernels, df.Kernel(name="c", **shared)))
        ring, chosen = df.load_system("sn10-8-ring"), df.Assumptions(compute_utilization=1.0, overlap="none")
        setting = Setting.resolved(graph, ring, chosen)
        plans, _ = asked_plans(graph, ring, Request.of(pp=2, tp=4), setting.assumptions)
        return PlanBounds(setting).interval(setting.under(plans[0]))

    assert interval("a") == pytest.approx(interval(None) * 2 / 1.5, rel=1e-12)


def drawn_once(layers: int, size: int = 4096) -> Graph:
    """A training graph that is not folded."""
    kernels = tuple(Kernel(name=f"f{i}", op="gemm", m=size, k=size, n=size) for i in range(layers))
    tensors = tuple(Tensor(src=f"f{i}", dst=f"f{i + 1}") for i in range(layers - 1))
    return backward_of(Graph(name="g", batch=8, kernels=kernels, tensors=tensors))


@pytest.mark.parametrize("pp", [1, 2, 4])
def test_no_bound_is_above_the_step_of_kernels_that_are_spread_over_stages(pp: int) -> None:
    memories = (Memory(name="HBM", bandwidth=1e12, capacity=1e12), Memory(name="DDR", bandwidth=1e11, capacity=1e13))
    chip = Chip(name="c", tiles=4, peak=1e14, sram=Sram(capacity=1e9), memories=memories)
    network = (NetworkDim(name="x", topology="switch", size=pp, link_bandwidth=1e12),) if pp > 1 else ()
    system = System(name="s", chip=chip, network=network)
    assumptions, graph = Assumptions(offload="calculon", forward_backward="separate"), drawn_once(4)
    given = {"pp": pp, "tp": 1, "dp": 1, "place": {"optimizer": "DDR"}}
    result = df.solve(graph, system, assumptions=assumptions, **given)
    setting = Setting.resolved(graph, system, assumptions)
    assert PlanBounds(setting).seconds(setting.under(result.plan)) <= result.value * (1 + 1e-9)
