"""Where energy goes on a floorplan: placement, components, tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stack_cases import T0, dies, memory, stack

from dfopt.documents.stack import LogicEnergies
from dfopt.documents.stack_parts import Bond, Die, Leakage, Tile
from dfopt.errors import SystemSpecError
from dfopt.technology.placement import placement_shares, snake
from dfopt.technology.power import COMPONENTS, CONSTANT, DYNAMIC, Activity, KernelBlock, PowerModel
from dfopt.technology.stack_models import heat_of

AREAS = st.lists(st.floats(0.1, 10.0), min_size=1, max_size=9)
TILES = st.lists(st.integers(0, 12), min_size=1, max_size=8)


@given(TILES, st.integers(1, 60), AREAS, st.sampled_from(["contiguous", "interleaved"]))
def test_shares_of_a_kernel_sum_to_one(tiles: list[int], chip: int, areas: list[float], mode: Any) -> None:
    shares = placement_shares(tiles, chip, areas, mode)
    assert shares.shape == (len(tiles), len(areas))
    assert (shares >= 0).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-12)


@given(TILES, AREAS, st.randoms(use_true_random=False))
def test_kernels_that_fill_the_chip_fill_every_tile(tiles: list[int], areas: list[float], draw: Any) -> None:
    """Area taken of each floorplan tile by all kernels together is all of it, in whatever order the snake goes."""
    if not sum(tiles):
        return
    order = list(range(len(areas)))
    draw.shuffle(order)
    shares = placement_shares(tiles, sum(tiles), areas, "contiguous", order)
    taken = np.asarray(tiles) @ shares / sum(tiles) * sum(areas)
    np.testing.assert_allclose(taken, areas, rtol=1e-9)
    # Asking for more than there is takes shares in proportion: nothing changes.
    np.testing.assert_array_equal(shares, placement_shares(tiles, 1, areas, "contiguous", order))


@given(st.lists(TILES, min_size=1, max_size=4), AREAS)
def test_many_blocks_at_once_are_the_blocks_one_by_one(blocks: list[list[int]], areas: list[float]) -> None:
    most = max(map(len, blocks))
    padded = np.array([block + [0] * (most - len(block)) for block in blocks], dtype=float)
    chips = np.array([float(sum(block)) + 1 for block in blocks])
    together = placement_shares(padded, chips, areas, "contiguous")
    for b, block in enumerate(blocks):
        alone = placement_shares(block, chips[b], areas, "contiguous")
        np.testing.assert_allclose(together[b, : len(block)], alone, rtol=1e-12)


@given(st.lists(TILES, min_size=1, max_size=6), st.integers(0, 1000))
def test_the_activity_of_many_blocks_is_that_of_each_alone(tiles: list[list[int]], seed: int) -> None:
    """Blocks of like size are placed together: none gets what another does."""
    model, draw = PowerModel.from_stack(stack(dies=dies(0))), np.random.default_rng(seed)
    blocks = [KernelBlock(tuple(map(float, each)), *map(tuple, draw.random((3, len(each))).tolist())) for each in tiles]
    together = model.activity(blocks)
    for b, block in enumerate(blocks):
        alone = model.activity([block])
        for name in ("flop", "sram_traffic_bytes", "noc_bytes"):
            np.testing.assert_allclose(getattr(together, name)[b], getattr(alone, name)[0], rtol=1e-12)
        assert together.flop[b].sum() == pytest.approx(sum(block.flop), rel=1e-12)


def test_the_heat_of_several_chips_is_that_of_each_alone() -> None:
    heat = heat_of(stack(dies=dies(2)))
    watts = np.random.default_rng(7).random((3, heat.means_k_per_w.shape[0]))
    for c, alone in enumerate(watts):
        np.testing.assert_allclose(heat.die_max(watts)[c], heat.die_max(alone), rtol=1e-12)
        np.testing.assert_allclose(heat.die_mean(watts)[c], heat.die_mean(alone), rtol=1e-12)


def test_the_snake_turns_at_the_end_of_a_row() -> None:
    def tile(x: float, y: float) -> Tile:
        return Tile(name=f"{x},{y}", kind="compute", x=x, y=y, width=1, height=1)

    tiles = [tile(x, y) for y in (0, 1, 2) for x in (2, 0, 1)]
    assert [tiles[i].name for i in snake(tiles)] == [
        "0,0", "1,0", "2,0", "2,1", "1,1", "0,1", "0,2", "1,2", "2,2",
    ]  # fmt: skip
    assert snake([]) == []


def work(model: PowerModel, count: int, seed: int) -> Activity:
    """Random activity."""
    draw = np.random.default_rng(seed)
    placed = (count, len(model.compute))
    return Activity(*(draw.random(placed) * 100 for _ in range(3)), *(draw.random(count) * 100 for _ in range(4)))


def mixed() -> tuple[Tile, ...]:
    """Half of the die computes; the rest is memory, network and interfaces."""
    return tuple(
        Tile(name=kind, kind=kind, x=x, y=0, width=width, height=10e-3)
        for kind, x, width in (("compute", 0, 5e-3), ("sram", 5e-3, 2e-3), ("noc", 7e-3, 1e-3), ("io", 8e-3, 2e-3))
    )


@pytest.mark.parametrize("floorplan", [None, mixed()])
@given(seed=st.integers(0, 1000), voltage=st.floats(0.1, 1.0), drams=st.sampled_from([0, 2]))
def test_components_and_tiles_hold_the_same_energy(floorplan: Any, seed: int, voltage: float, drams: int) -> None:
    layers = dies(drams)
    if floorplan is not None:
        layers = (layers[0].model_copy(update={"floorplan": floorplan}), *layers[1:])
    on = stack(dies=layers)
    model = PowerModel.from_stack(on)
    done = work(model, 3, seed)
    tiles = voltage**2 * model.logic_dynamic(done) + model.outward_dynamic(done)
    split = model.dynamic_split(done, voltage)
    assert tiles.shape == (3, len(on.tiles)) and tuple(split) == DYNAMIC
    outside = np.zeros(3)  # memory beside the stack: its commands, and its half of the interface
    if not drams:
        outside = split["dram_activate"] + split["dram_read"] + split["dram_write"] + split["io"] / 2
    np.testing.assert_allclose(tiles.sum(axis=1) + outside, sum(split.values()), rtol=1e-12)
    nominal = model.dynamic_split(done)
    for name in DYNAMIC:
        square = voltage**2 if name in ("compute", "sram", "noc") else 1.0
        np.testing.assert_allclose(split[name], square * nominal[name], rtol=1e-12)
    temperature = np.full(model.count, T0 + 70)
    watts = model.steady_power(2.0, 0.648) + model.leakage(temperature, 0.9)
    parts = model.constant_split(temperature, 2.0, 0.648, 0.9)
    assert tuple(parts) == CONSTANT and {*parts, *split} == set(COMPONENTS)
    cold = 0.0 if drams else parts["dram_refresh"] + parts["dram_background"]
    assert watts.sum() + cold == pytest.approx(sum(parts.values()), rel=1e-12)


def test_each_component_is_on_its_own_tiles() -> None:
    on = stack(dies=(dies(0)[0].model_copy(update={"floorplan": mixed()}),))
    model = PowerModel.from_stack(on)
    kinds = [tile.kind for _, tile in on.tiles]
    where = {
        "flop": "compute",
        "sram_traffic_bytes": "sram",
        "noc_bytes": "noc",
        "network_bytes": "io",
        "read_bursts": "io",
    }
    for field, kind in where.items():
        done = Activity(*(np.zeros((1, 1)) for _ in range(3)), *(np.zeros(1) for _ in range(4)))
        getattr(done, field)[...] = 7.0
        joules = (model.logic_dynamic(done) + model.outward_dynamic(done))[0]
        assert joules.sum() > 0
        assert [kinds[i] for i in np.flatnonzero(joules)] == [kind]


def test_blocks_are_placed_where_their_kernels_are() -> None:
    model = PowerModel.from_stack(stack(dies=dies(0)))
    blocks = [
        KernelBlock(
            tiles=(8.0, 4.0), flop=(8.0, 0.0), sram_traffic_bytes=(0.0, 6.0), noc_bytes=(1.0, 0.0), chip_tiles=16.0
        ),
        KernelBlock(tiles=(1.0,), flop=(4.0,), sram_traffic_bytes=(0.0,), noc_bytes=(0.0,)),  # shares the whole chip
    ]
    found = model.activity(blocks)
    along = list(model.order)
    assert found.flop[:, along].tolist() == [[4.0, 4.0, 0.0, 0.0], [1.0] * 4]
    assert found.sram_traffic_bytes[0, along].tolist() == [0.0, 0.0, 6.0, 0.0]


def test_leakage_grows_with_heat_on_the_die_that_leaks() -> None:
    leak = Leakage(power=10.0, at=T0 + 60, beta_per_k=0.02)
    model = PowerModel.from_stack(stack(dies=dies(1, leak)))
    at = model.leakage(np.full(model.count, T0 + 60))
    assert at.tolist() == pytest.approx([2.5] * 4 + [0.0] * 4)
    hot = model.leakage(np.full(model.count, T0 + 110), voltage=0.5)
    assert hot.sum() == pytest.approx(5.0 * np.e)
    step = 1e-5
    slope = model.leakage_slope(np.full(model.count, T0 + 80)).sum()
    either = [model.leakage(np.full(model.count, T0 + 80 + d)).sum() for d in (-step, step)]
    assert slope == pytest.approx((either[1] - either[0]) / (2 * step), rel=1e-6)
    assert np.isfinite(model.leakage(np.full(model.count, 1e6))).all()


def test_refresh_and_background_are_those_of_all_channels() -> None:
    model = PowerModel.from_stack(stack(dram=memory(3)))
    assert model.refresh_w(2.0) == pytest.approx(3 * 4.0 * 2 / 20.0)
    assert model.background_w == pytest.approx(3 * 0.3)
    watts = model.steady_power(1.0, 0.0)
    assert watts[:4].sum() == 0.0  # the logic die, which comes first
    assert watts[4:].tolist() == pytest.approx([(0.6 + 0.9) / 8] * 8)


def test_a_die_without_tiles_cannot_leak() -> None:
    lid = Die(name="lid", kind="passive", thickness=1e-4, leakage=Leakage(power=1.0, at=300.0),
              bond=Bond(kind="tim", thickness=1e-5, conductivity=2.0))  # fmt: skip
    with pytest.raises(SystemSpecError, match=r"\$\.dies\[1\]\.leakage: found leakage on the passive die 'lid'"):
        PowerModel.from_stack(stack(dies=(*dies(0), lid), logic=LogicEnergies(flop=0.0, sram=0.0)))
