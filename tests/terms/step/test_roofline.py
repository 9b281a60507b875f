"""What all chips have to do at least, whatever the plan: below the bound of every plan, and of every mapping."""

from __future__ import annotations

import numpy as np
import pytest
from given_plans import least_of
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import judged, mapping_of
from strategies import World, shardings, share, worlds

import dfopt as df
from dfopt.documents.assumptions import profile
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.physics.pipeline import partition_time, resolve
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.plans import asked_plans
from dfopt.setting.stages import pipeline_stages
from dfopt.terms.bounds import PlanBounds
from dfopt.terms.bounds.work_bounds import WorkBounds
from dfopt.terms.step.roofline import least_step

CASES = {
    "decode, experts, several microbatches": ("deepseek-v3", "h100-8", {"phase": "decode", "context": 4096}, 64, 4),
    "decode, two memories": ("llama-3.1-8b", "sn40l-16-ddr", {"phase": "decode", "context": 512}, 16, 16),
    "prefill, local windows": ("gemma-4-26b-a4b", "h100-8", {"phase": "prefill", "seq": 2048}, 8, 2),
    "decode, states that do not grow": ("nemotron-3-nano", "h100-8", {"phase": "decode", "context": 99}, 8, 8),
    "training": ("mixtral-8x7b", "h100-8", {"mode": "training"}, 16, 1),
    "training of a dense model": ("gpt3-175b", "sn10-8-ring", {"mode": "training"}, 16, 2),
    "encoder": ("bert-large", "a100-8", {}, 8, 4),
    "tables": ("dlrm-a", "h100-8", {}, None, None),
}


def setting_of(case: str, named: str) -> tuple[Setting, list[Plan]]:
    name, machine, parameters, batch, microbatch = CASES[case]
    sizes = {} if batch is None else {"batch": batch, "microbatch": microbatch}
    graph, system = df.load_graph(name, **sizes, **parameters), df.load_system(machine)
    chosen = resolve(profile(named), system.chip.execution, 0.9)
    return Setting(graph, system, chosen), asked_plans(graph, system, Request(), chosen)[0]


@pytest.mark.parametrize("case", CASES)
def test_no_plan_has_a_lower_bound(case: str) -> None:
    for named in ("default", "dfmodel"):
        setting, legal = setting_of(case, named)
        assert 0.0 < least_step(setting) <= min(least_of(setting, legal).values()) * (1 + 1e-12)


@share(1)
@given(worlds(most=4, max_pp=2, zero=True), st.data())
def test_no_mapping_takes_less(world: World, data: st.DataObject) -> None:
    sharding = data.draw(shardings(world.graph, world.plan, world.assumptions))
    names = [kernel.name for kernel in world.graph.kernels]
    mapping = mapping_of(world, sharding, dict.fromkeys(names, 0), dict.fromkeys(names, 0))
    assume(mapping is not None)
    score = judged(world, mapping)
    assert least_step(world.instance.setting) <= score.step_time_s * (1 + 1e-9)
    assert least_step(world.instance.setting) <= PlanBounds(world.instance.setting).seconds(world.instance) * (1 + 1e-9)


def test_it_is_nearly_reached_where_weights_decide() -> None:
    """Few sequences at a time: each evaluation reads the weights again, and any plan has to."""
    setting, legal = setting_of("decode, experts, several microbatches", "default")
    assert least_step(setting) > 0.95 * min(least_of(setting, legal).values())


def layers_by_hand(instance: Instance) -> tuple[list[float], list[float]]:
    """Least seconds of a layer of every kind, and of what it sends while another microbatch computes."""
    graph, own = instance.graph, WorkBounds(instance)
    kind_k = np.array([graph.kind_of(kernel) for kernel in graph.kernels])
    seconds_tk, kinds = own.seconds, range(len(graph.layers.kinds))
    sums = [seconds_tk[:, kind_k == kind].sum(axis=1).tolist() for kind in kinds]
    overlap = instance.assumptions.overlap
    once = [partition_time(compute, memory, sent, overlap, sram) for compute, memory, sent, sram in sums]
    return once, [float(instance.hidden_s[kind_k == kind].sum()) for kind in kinds]


def test_plans_that_differ_in_layers_are_bounded_at_a_time_as_each_by_itself() -> None:
    setting, legal = setting_of("decode, experts, several microbatches", "default")
    few = [plan for plan in legal if plan.stages in (2, 4)][::7]
    assert len({(plan.apart_from_stages, plan.interleave, plan.recomputed) for plan in few}) < len(few)
    found = least_of(setting, few)
    for plan in few:
        bounds = PlanBounds(setting)
        instance = setting.under(plan)
        assert found[plan] == pytest.approx(bounds.seconds(instance), rel=1e-12)
        once, sent = layers_by_hand(instance)
        by_hand = max(
            sum(times * each[kind] for kind, times in stage.runs)
            for each in (once, sent)
            for stage in pipeline_stages(setting.model, plan)
        )
        rounds = plan.microbatches + (plan.stages - 1) * plan.at_once
        assert found[plan] == pytest.approx(by_hand * rounds, rel=1e-12)
