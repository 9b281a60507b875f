"""Prices of whole mappings by arrays against the judge: bytes that stages hold, seconds of a step, and what fits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from covered import covered
from hypothesis import assume, given, note
from hypothesis import strategies as st
from members import drawn_root
from sharded_cases import shard
from strategies import World, share

from dfopt.fusion.blocks import restrict
from dfopt.regions.pricing import best_of
from dfopt.regions.region import Region
from dfopt.terms.step.ledger import held, sharded_states

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
    assume(root.of.cuts is None)  # else see test_cuts
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
