"""Whole mappings by arrays against the judge: prices, and cuts of graphs whose kernels are drawn once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from brute_problem import Problem
from covered import covered
from hypothesis import assume, given, note
from hypothesis import strategies as st
from members import Members, drawn_root, places
from sharded_cases import shard
from small_systems import rings, small_system
from strategies import World, share

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.fusion.blocks import restrict
from dfopt.judge import amounts
from dfopt.physics.network import adds_up_at_once
from dfopt.regions import cuts
from dfopt.regions.chains import Pipelines
from dfopt.regions.cuts import TooMany, cuts_of
from dfopt.regions.lattices import arcs_of
from dfopt.regions.pricing import best_of
from dfopt.regions.region import Region
from dfopt.setting.instance import Setting
from dfopt.terms.step.hops import added_by_kind, hop_seconds
from dfopt.terms.step.ledger import held, sharded_states
from dfopt.workloads.backward import backward_of

MANY = 40


@share(1)
@given(covered(most=4), st.data())
def test_the_best_partitions_of_a_vector_are_the_judges(world: World, data: st.DataObject) -> None:
    """JudgedMapping exactly where brute force finds some that fit, with its value."""
    members, root = drawn_root(world, data)
    plan = data.draw(st.sampled_from(root.plans))
    domain = [sorted(data.draw(st.sets(st.sampled_from(left), min_size=1, max_size=2))) for left in root.domain]
    while math.prod(map(len, domain)) > MANY:
        domain[max(range(len(domain)), key=lambda k: len(domain[k]))].pop()
    region = Region(root.of, tuple(map(tuple, domain)), (plan,), root.arcs_k)
    for _, vector, value in members.of(region):
        best = best_of(root.of, np.array([plan]), root.arcs_k, np.array([vector]), np.array([math.inf]))
        found = next(iter(best.kept), None)
        note(f"{root.of.plans[plan]} {root.of.tiles} {root.of.schemes(vector)} {value} {found}")
        assert (found is None) == math.isinf(value)
        assert found is None or found.step_s == pytest.approx(value, rel=1e-9)


@share(1)
@given(covered(most=4), st.data())
def test_stages_hold_what_the_books_say(world: World, data: st.DataObject) -> None:
    _, root = drawn_root(world, data)
    assume(root.of.cuts is None)  # else see the cuts below
    of, options = root.of, [data.draw(st.sampled_from(left)) for left in root.domain]
    held_hkv = of.held(of.table.exact(np.array([options])))
    found = of.holding.bytes_held(held_hkv)[:, :, 0].T.ravel().tolist()
    names = [kernel.name for kernel in of.layer.kernels]
    schemes = {name: of.layer.schemes_k[k][options[k]] for k, name in enumerate(names)}
    books = []
    for i in range(len(of.plans)):
        instance = of.instance(i)
        sharded = shard(instance, schemes, of.tiles)
        parts = {kind: restrict(sharded, np.flatnonzero(of.kind_k == kind)) for kind in range(of.kinds)}
        states = {kind: sharded_states(of.setting, part) for kind, part in parts.items()}
        stages = instance.pipeline if instance.graph.folded else instance.pipeline[:1]
        tiers = instance.system.chip.tiers
        books += [sum(held(instance, stage, states)[tier].values()) for stage in stages for tier in tiers]
    assert found == pytest.approx(books, rel=1e-9, abs=1e-9)


# -- cuts, and what is said of the stages between them, against the step rule ------------------


def members_of(world: World, data: st.DataObject) -> tuple[Members, Region]:
    """A root whose plans have several stages, with kernels that may be in any."""
    members, root = drawn_root(world, data)
    assume(root.of.cuts is not None)
    return members, root


def cut_root(world: World, data: st.DataObject) -> Region:
    """The same without its members."""
    return members_of(world, data)[1]


def drawn_pipelines(root: Region, data: st.DataObject) -> tuple[np.ndarray, Pipelines]:
    """Pipelines under random options."""
    options = np.array([data.draw(st.sampled_from(left)) for left in root.domain])
    return options, Pipelines(root.of, root.of.table.exact(options[None]), root.of.figures_of(options[None]))


def every_chain(root: Region, i: int) -> Iterator[tuple[int, ...]]:
    """All cuts that a plan may have."""
    set_uk = root.of.cuts.set_uk
    inside_uu = ~(set_uk[:, None] & ~set_uk[None]).any(axis=2)
    for inner in itertools.product(range(len(set_uk)), repeat=root.of.plans[i].stages - 1):
        chain = 0, *inner, len(set_uk) - 1
        if all(inside_uu[pair] for pair in itertools.pairwise(chain)):
            yield chain


@share(0.5)
@given(covered(repeats=(1,), least=2, most=4), st.data())
def test_chains_of_cuts_are_all_that_is_legal(world: World, data: st.DataObject) -> None:
    root = cut_root(world, data)
    set_uk, found = root.of.cuts.set_uk, [chain[1:-1] for chain in every_chain(root, 0)]
    stages = {tuple((~set_uk[list(chain)]).sum(axis=0).tolist()) for chain in found}
    assert len(stages) == len(found)
    assert stages == set(places(world.graph, root.of.plans[0]))


@share(1)
@given(covered(repeats=(1,), least=2, most=4), st.data())
def test_stages_send_exchange_and_hold_what_the_step_rule_says(world: World, data: st.DataObject) -> None:
    root = cut_root(world, data)
    of, stages = root.of, root.of.cut_stages
    i = data.draw(st.sampled_from(root.plans))
    options, pipelines = drawn_pipelines(root, data)
    stage_k = np.array(data.draw(st.sampled_from(places(world.graph, of.plans[i]))))
    instance, sharded = of.instance(i), shard(of.instance(i), of.schemes(options.tolist()), of.tiles)
    cuts = [
        next(u for u, set_k in enumerate(of.cuts.set_uk) if (set_k == (stage_k < number)).all())
        for number in range(of.plans[i].stages + 1)
    ]
    pairs = tuple(np.array(list(itertools.pairwise(cuts))).T)
    hops = stages.hops(i, pipelines.figures.output_vk, least=False)[0][pairs]
    assert hops == pytest.approx(hop_seconds(instance, sharded, stage_k, least=False), rel=1e-9, abs=1e-15)
    added = stages.added(i, pipelines.figures.gradient_vk[0], pipelines.figures.weight_vk[0])[pairs]
    added_s = added_by_kind(instance, sharded.gradient_k, sharded.weight_k, stage_k)
    once = 0.0 if adds_up_at_once(of.setting.assumptions) else added_s.max()
    assert added.max() == pytest.approx(once, rel=1e-9, abs=1e-15)
    if of.holding.limited:
        parts = {n: restrict(sharded, np.flatnonzero(stage_k == n)) for n in range(of.plans[i].stages) if n in stage_k}
        states = {n: sharded_states(of.setting, part) for n, part in parts.items()}
        fastest = instance.system.chip.fastest_tier
        books = [sum(held(instance, one, states)[fastest].values()) for one in instance.pipeline]
        room = (of.holding.capacity_m[0] - pipelines.room(i)[0][pairs]).tolist()
        assert room == pytest.approx(books, rel=1e-9, abs=1e-9 * of.holding.capacity_m[0])


@share(1)
@given(covered(repeats=(1,), least=2, most=4), st.data())
def test_the_slowest_stage_is_a_bound_that_is_met(world: World, data: st.DataObject) -> None:
    """Of the best pipeline without a limit on memory, where nothing is added and the slowest stage stands for all."""
    root = cut_root(world, data)
    _, pipelines = drawn_pipelines(root, data)
    i = data.draw(st.sampled_from(root.plans))
    low, found = float(pipelines.least_steps(i)[0]), pipelines.best(i, 0, math.inf)
    best = math.inf if found is None else found[0].step_s
    assert low <= best * (1 + 1e-12)
    none_added = not pipelines._stages.added(i, pipelines.figures.gradient_vk[0], pipelines.figures.weight_vk[0]).any()
    if root.of.cut_stages.by_slowest and none_added and not root.of.holding.counts_waiting:
        assert low == pytest.approx(best, rel=1e-12)


@share(1)
@given(covered(repeats=(1,), least=2, most=4), st.data())
def test_what_waits_in_a_stage_is_what_the_judge_says(world: World, data: st.DataObject) -> None:
    members, root = members_of(world, data)
    of, i = root.of, data.draw(st.sampled_from(root.plans))
    options, pipelines = drawn_pipelines(root, data)
    assume(of.holding.counts_waiting)
    listed = {*zip(of.cuts.first_s.tolist(), of.cuts.last_s.tolist(), strict=True)}
    pairs_of = {chain: {p for p in itertools.pairwise(chain) if p[0] != p[1]} for chain in every_chain(root, i)}
    every = [chain for chain, pairs in pairs_of.items() if pairs <= listed]
    assume(every)  # else no partitions are as asked for
    chain = data.draw(st.sampled_from(every))
    partition_k, stage_k, waits = np.zeros(len(options), dtype=int), np.zeros(len(options), dtype=int), {}
    for stage, (first, last) in enumerate(itertools.pairwise(chain)):
        if first == last:
            continue
        arcs, inside_k = of.cuts.stage(first, last), of.cuts.set_uk[last] & ~of.cuts.set_uk[first]
        price_b = np.where(data.draw(st.booleans()), 1.0, arcs.member_bk.sum(axis=1) ** 2.0)
        path = arcs.path(arcs.distances(price_b[None])[0], price_b)
        waits[stage] = of.waiting_inside(arcs, pipelines.amount_vc[0], inside_k)[path].max()
        member_bk = arcs.member_bk[arcs.block_a[path]]
        for number, block in zip(of.cuts.numbers(first, last, member_bk), member_bk, strict=True):
            partition_k[block], stage_k[block] = number, stage
    chosen = members.space.setting.assumptions
    problem = Problem(World(world.graph, world.system, of.plans[i], chosen), members.request, {})
    schemes = tuple(of.schemes(options.tolist()).values())
    looked = problem.case(schemes, stage_k.tolist(), partition_k.tolist(), of.tiles)
    for stage, bytes_ in waits.items():
        assert bytes_ == pytest.approx(amounts._waiting(looked, stage)[0], rel=1e-9, abs=1e-9)


def test_stages_with_too_many_arcs_are_given_up_before_they_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """To join them takes the more time the more there are."""
    kernels = tuple(Kernel(name=f"k{i}", op="gemm", m=8, k=8, n=8) for i in range(4))
    graph = backward_of(Graph(name="g", batch=4, kernels=kernels))
    system = small_system(*rings(2), peak=300, sram=1e6)
    setting = Setting.resolved(graph, system, Assumptions(tile_rows=1))
    instance = setting.under(Plan(pp=2, pp_dims=("x",)))
    arcs, numbering = arcs_of(instance, 0, Request())
    assert cuts_of(instance, arcs, numbering, Request()) is not None
    monkeypatch.setattr(cuts, "_MOST_ARCS", 10)
    monkeypatch.delattr(cuts, "_joined")
    with pytest.raises(TooMany):
        cuts_of(instance, arcs, numbering, Request())
