"""What plans share: equal for two plans only if no figure of a chip's own work differs."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sharded_cases import chosen, shard
from strategies import World, shardings, share, worlds

from dfopt.documents.request import Request
from dfopt.setting.instance import Instance
from dfopt.setting.plans import asked_plans
from dfopt.sharding.tables import build
from dfopt.terms.sharded import LayerOptions


def same(a: Any, b: Any) -> bool:
    """Two sharded graphs."""
    menus = [x for menu in a.menus for x in menu], [x for menu in b.menus for x in menu]
    arrays = [(getattr(a, f.name), getattr(b, f.name)) for f in fields(a) if f.name != "menus"]
    return all(np.array_equal(x, y) for x, y in [*arrays, *zip(*menus, strict=True)])


def work(instance: Instance, sharding: Any) -> tuple[Any, Any]:
    """What a chip's kernels cost, worked out from the whole plan and nothing that is known of others."""
    alone = Instance(replace(instance.setting), instance.plan)
    layer = LayerOptions(alone)
    return build(alone), layer.least(chosen(layer, sharding), shard(instance, sharding).tile_count)


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
    whole, part = work(mine, sharding), work(mine.shared, sharding)
    assert same(whole[1], part[1])
    names = [f.name for f in fields(whole[0]) if f.name != "hop_tl"]  # between stages: not of a folded layer's own work
    assert all(np.array_equal(getattr(whole[0], name), getattr(part[0], name)) for name in names)
    assert one == other or (mine.shared is theirs.shared) == (mine.shared.plan == theirs.shared.plan)
    assert same(whole[1], shard(mine, sharding))
    if mine.shared is theirs.shared:
        assert same(whole[1], work(theirs, sharding)[1])
