"""Answers that are remembered by what was read of a plan, against answers that are worked out anew."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharded_cases import chosen, shard
from strategies import World, shardings, share, worlds

import dfopt as df
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.plans import asked_plans
from dfopt.setting.reads import ByReads
from dfopt.sharding.tables import build
from dfopt.terms.bounds.work_bounds import WorkBounds
from dfopt.terms.layer import Layer
from dfopt.terms.rules import TERMS
from dfopt.terms.sharded import LayerOptions

PLANS = st.builds(Plan, tp=st.integers(1, 3), dp=st.integers(1, 3), microbatches=st.integers(1, 3))


@given(st.lists(PLANS, min_size=1, max_size=12))
def test_answers_are_those_of_each_plan(plans: list[Plan]) -> None:
    """What is read may depend on what was read before, and methods are read with what they are given."""

    def work(plan: Plan) -> Any:
        if plan.tp == 1:
            return plan.tp, plan.axis_values("batch")
        return plan.tp, plan.microbatches if plan.tp == 2 else plan.only("kernels").tp

    question = ByReads()
    assert [question.answer(plan, work) for plan in plans] == [work(plan) for plan in plans]
    assert question.worked_out == len({work(plan) for plan in plans})


def test_one_question_may_ask_another() -> None:
    """What the inner one reads counts for the outer one, if it was known as well."""
    inner, outer = ByReads(), ByReads()

    def work(plan: Plan) -> int:
        return 10 * inner.answer(plan, lambda one: one.tp)

    assert inner.answer(Plan(tp=2), lambda one: one.tp) == 2
    assert [outer.answer(Plan(tp=tp, dp=dp), work) for tp, dp in ((2, 1), (3, 1), (3, 2))] == [20, 30, 30]
    assert (inner.worked_out, outer.worked_out) == (2, 2)


def test_an_answer_that_depends_on_more_is_refused() -> None:
    """A plan that keeps nothing is no key, and what is read must follow from what was read before."""
    question, calls = ByReads(), []

    def fickle(plan: Plan) -> int:
        calls.append(plan)
        return plan.tp + (plan.dp if len(calls) == 1 else plan.microbatches)

    question.answer(Plan(tp=2, dp=1), fickle)
    with pytest.raises(AssertionError, match="depends on more"):
        question.answer(Plan(tp=2, dp=2), fickle)
    with pytest.raises(TypeError, match="unhashable"):
        ByReads().answer(Plan(tp=2), lambda plan: {plan: 1})


def same(a: Any, b: Any) -> bool:
    """Two answers, arrays among them."""
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(np.array_equal(a, b)) if isinstance(a, np.ndarray) else a == b


@share(0.3)
@given(worlds(most=4, max_pp=4, zero=True, memory=True), st.data())
def test_plans_of_a_world_are_not_mixed_up(world: World, data: st.DataObject) -> None:
    """Charges of every rule and the least work of some plans, in any order, as with nothing known before."""
    legal, _ = asked_plans(world.graph, world.system, Request(), world.assumptions)
    setting = world.instance.setting
    for plan in data.draw(st.lists(st.sampled_from(legal), min_size=2, max_size=4)):
        instance = setting.under(plan)
        alone = Instance(replace(instance.setting), plan)
        tiles = data.draw(st.sampled_from([1, 4]))
        known, anew = Layer(instance.shared, tiles), Layer(alone.shared, tiles)
        for term in TERMS:
            pairs = zip(term.of(known), term.charges(anew), strict=True)
            assert all(
                (a.resource, a.incidence, a.scope) == (b.resource, b.incidence, b.scope)
                and np.array_equal(a.amount, b.amount)
                for a, b in pairs
            )
        mine, theirs = WorkBounds(instance), WorkBounds(alone)
        for ask in ("seconds", "held", "states", "exchanged", "added"):
            assert same(getattr(mine, ask), getattr(theirs, ask)), ask


def test_members_of_a_graph_of_which_some_layers_are_recomputed_share_a_setting() -> None:
    """Such a graph says how many layers in a dict, and is no key."""
    graph = df.load_graph("qwen3-0.6b", phase="training", batch=4, isl=64, recompute="full/none")
    machine = df.load_system("mi300x-8")
    setting = Setting.resolved(graph, machine, df.Assumptions())
    plans, _ = asked_plans(setting.graph, machine, Request(mp=2), setting.assumptions)
    seen = {id(setting.seen(plan)) for plan in plans}
    assert 0 < len(seen) < len(plans)


def figures(made: Any) -> dict[str, Any]:
    return {field.name: getattr(made, field.name) for field in fields(made)}


def work(instance: Instance, sharding: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a chip's kernels cost, worked out from the whole plan and nothing that is known of others."""
    alone = Instance(replace(instance.setting), instance.plan)
    layer, tables = LayerOptions(alone), figures(build(alone))
    del tables["hop_tl"]  # between stages: not of a folded layer's own work
    return figures(layer.least(chosen(layer, sharding), shard(instance, sharding).tile_count)), tables


@share(0.5)
@given(worlds(most=4, max_pp=4, zero=True), st.data())
def test_what_is_shared_is_the_same_work(world: World, data: st.DataObject) -> None:
    """Any two plans of a system: where what they share is equal, so is every array that prices a chip's kernels.

    And the part of the plan that is shared gives the same arrays as the whole of it.
    """
    legal, _ = asked_plans(world.graph, world.system, Request(), world.assumptions)
    one, other = (data.draw(st.sampled_from(legal)) for _ in range(2))
    setting = world.instance.setting
    mine, theirs = setting.under(one), setting.under(other)
    sharding = data.draw(shardings(world.graph, one, world.assumptions))
    whole = work(mine, sharding)
    assert same(whole, work(mine.shared, sharding))
    assert one == other or (mine.shared is theirs.shared) == (mine.shared.plan == theirs.shared.plan)
    assert same(whole[0], figures(shard(mine, sharding)))
    if mine.shared is theirs.shared:
        assert same(whole[0], work(theirs, sharding)[0])
