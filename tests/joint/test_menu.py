"""The stage without a sharding: equal to a sharded one where nothing is left to choose, never dearer where there is."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from sharded_cases import chosen, shard
from small_systems import rings, small_system
from strategies import World, shardings, share, worlds

from dfopt import optimize
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.plan import Plan
from dfopt.documents.sections import Section
from dfopt.documents.system import CollectiveFactor
from dfopt.errors import Infeasible
from dfopt.fusion.blocks import price_blocks, stage_tables
from dfopt.physics.pipeline import resolve
from dfopt.solving.menu import Menu
from dfopt.terms.chip import chip_of
from dfopt.terms.sharded_graph import ShardedGraph, tile_counts


def menu_of(world: World) -> Menu:
    return Menu(world.instance, {})


def same(one: ShardedGraph, two: ShardedGraph) -> None:
    for one_or_two in (one, two):  # tolls are steps, which may be cut differently
        assert len(one_or_two.toll_x) == len(one_or_two.payers_xk)
    np.testing.assert_allclose(one.toll_x @ one.payers_xk, two.toll_x @ two.payers_xk, rtol=1e-12, atol=1e-15)
    for field in fields(ShardedGraph):
        if field.name.endswith(("_x", "_xk")):
            continue
        a, b = getattr(one, field.name), getattr(two, field.name)
        if field.name == "menus":
            assert len(a) == len(b)
            for (tiles, seconds), (used, times) in zip(a, b, strict=True):
                assert tiles.tolist() == used.tolist()
                np.testing.assert_allclose(seconds, times, rtol=1e-12)
        elif isinstance(a, np.ndarray) and a.dtype == float:
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15, err_msg=field.name)
        else:
            assert np.array_equal(a, b), field.name


@st.composite
def sharded_worlds(draw: st.DrawFn):
    world = draw(worlds(max_pp=2))
    sharding = draw(shardings(world.graph, world.plan, world.assumptions))
    tiles = draw(st.sampled_from(tile_counts(world.graph, world.assumptions)))
    return world, sharding, tiles


@given(sharded_worlds())
def test_with_nothing_left_to_choose_it_is_the_sharded_layer(case) -> None:
    world, sharding, tiles = case
    menu = menu_of(world)
    exact = shard(world.instance, sharding, tiles)
    same(menu.layer.least(chosen(menu.layer, sharding), tiles), exact)


def test_gradients_that_are_added_up_are_those_of_the_options() -> None:
    """Of four columns of a weight, each of two chips adds up two."""
    kernel = Kernel(name="w", op="weight_update", m=4, k=4, n=4, pass_="update")
    rules = resolve(Assumptions(), "dataflow", 0.5)
    graph, system = Graph(name="g", kernels=(kernel,)), small_system(*rings(2, rate=100.0), tiles=4, bandwidth=1e3)
    menu = menu_of(World(graph, system, Plan(tp=2, tp_dims=("x",)), rules))
    stage_z = {z: menu.layer.least(chosen(menu.layer, {"w": z}), 1) for z in menu.figures.layer.schemes_k[0]}
    added = {z: float(stage.gradient_k[0]) for z, stage in stage_z.items()}
    assert added["m"] * 2 == added["none"] > 0


@share(3)
@given(sharded_worlds(), st.data())
def test_no_block_is_cheaper_under_any_sharding(case, data) -> None:
    world, sharding, tiles = case
    menu = menu_of(world)
    of_sharding = chosen(menu.layer, sharding)
    pairs = zip(menu.domain, of_sharding, strict=True)
    allowed = tuple(tuple(o for o in left if o in picked or data.draw(st.booleans())) for left, picked in pairs)
    exact = shard(world.instance, sharding, tiles)
    chip = chip_of(world.system, world.assumptions)
    try:
        tables = stage_tables(exact, chip)
    except Infeasible:
        reject()
    relaxed = stage_tables(menu.layer.least(allowed, tiles), chip)  # where the sharding fits it must
    count = len(exact.names)
    rows = data.draw(st.lists(st.integers(1, 2**count - 1), min_size=1, max_size=12))
    member = np.array([[row >> k & 1 for k in range(count)] for row in rows], dtype=bool)
    one, least = price_blocks(tables, member), price_blocks(relaxed, member)
    legal = one.legal
    assert (least.legal | ~legal).all()
    # not the SRAM: a weight that is cut into fewer parts fills more of the chip, and still fits
    for name in ("seconds", "time", "dram_bytes"):
        a, b = getattr(one, name)[..., legal], getattr(least, name)[..., legal]
        assert (b <= a * (1 + 1e-9) + 1e-12).all(), name


@pytest.mark.parametrize("boundary", ["free", "dram"])
def test_what_is_handed_on_is_sent_faster_whole_where_parts_of_it_are_gathered(boundary: str) -> None:
    """Where an all-reduce takes longer than both its halves, Calculon's rule takes that off a message in parts."""
    kernel, on = Kernel(name="a", op="elementwise", m=8, n=12), Tensor(src="a", dst="a")
    repeated = (Section(layers=("layer",), repeat=4),)
    graph = Graph(name="g", kernels=(kernel,), carried=(on,), sections=repeated, batch=4)
    slow = {"all_reduce": CollectiveFactor(scale=3.0)}
    x, y = rings(3, 2, rate=20.0)
    dims = x.model_copy(update={"factors": slow}), y
    system = small_system(*dims, tiles=2, peak=3e3, bandwidth=4e3)
    rules = Assumptions(layer_boundary=boundary, point_to_point_parts="calculon", sequence_parallelism="allow")

    def seconds(**pinned: object) -> float:
        asked = {"tp": 3, "pp": 2, "tp_dims": ("x",), "pp_dims": ("y",), "interleave": 1, "sensitivity": False}
        return optimize(graph, system, assumptions=rules, **asked, **pinned).value

    of_each = {scheme: seconds(pin_sharding={"a": scheme}) for scheme in ("none", "m", "n")}
    assert min(of_each, key=of_each.__getitem__) == "none"
    assert seconds() == pytest.approx(of_each["none"], rel=1e-9)
