"""What any thermal network must do, on drawn bodies: all packages, grids, materials and power maps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from thermal_bodies import PACKAGES, SIDE, bodies, cooled, powers, quarters, stack
from thermal_fields import Rect, ThermalModel, rasterise, sink_package

from dfopt.arrays import Floats
from dfopt.documents.stack_parts import HtcPackage
from dfopt.technology.thermal.responses import responses, tile_weights
from dfopt.technology.thermal.types import Body, Slab


def drawn_power(data: st.DataObject, body: Body, nx: int, ny: int) -> dict[str, Floats]:
    """Watts in one slab or more."""
    names = data.draw(st.lists(st.sampled_from(body.names), min_size=1, unique=True))
    return {name: data.draw(powers(ny, nx)) for name in names}


@given(bodies(), st.data())
def test_all_power_leaves_to_ambient(drawn: Any, data: st.DataObject) -> None:
    body, nx, ny = drawn
    power = drawn_power(data, body, nx, ny)
    field = ThermalModel(body, nx, ny).steady(power)
    assert field.power_w == pytest.approx(sum(p.sum() for p in power.values()), rel=1e-12)
    assert field.to_ambient_w == pytest.approx(field.power_w, rel=1e-6)
    rise = field.temperature_k - body.ambient_k
    assert np.all(rise > -1e-10 * rise.max()) and rise.max() > 0  # a watt anywhere cools no cell


@given(bodies(), st.data(), st.floats(-2.0, 3.0))
def test_fields_add_up(drawn: Any, data: st.DataObject, factor: float) -> None:
    body, nx, ny = drawn
    model = ThermalModel(body, nx, ny)
    one, two = drawn_power(data, body, nx, ny), drawn_power(data, body, nx, ny)
    empty = np.zeros((ny, nx))
    both = {name: one.get(name, empty) + factor * two.get(name, empty) for name in body.names}
    rises = [model.steady(p).temperature_k - body.ambient_k for p in (one, two, both)]
    scale = np.abs(rises[0]).max() + np.abs(rises[1]).max()
    np.testing.assert_allclose(rises[2], rises[0] + factor * rises[1], atol=1e-9 * scale)


@given(bodies(), st.data())
def test_responses_are_symmetric_and_equal_direct_solves(drawn: Any, data: st.DataObject) -> None:
    body, nx, ny = drawn
    tiles = [(name, rect) for name in body.names[:2] for rect in quarters(body.side_x, body.side_y)]
    tiles.append((body.names[-1], Rect(0.1 * body.side_x, 0.3 * body.side_y, 0.55 * body.side_x, 0.2 * body.side_y)))
    model = ThermalModel(body, nx, ny)
    cells = responses(body, nx, ny, tiles)
    weights = tile_weights([rect for _, rect in tiles], nx, ny, body.side_x, body.side_y)
    slabs = [body.names.index(name) for name, _ in tiles]
    R = np.einsum("iyx,jiyx->ij", weights, cells[:, slabs])  # rise of the mean of tile i per watt in tile j
    assert np.all(-1e-12 * R.max() < R) and np.all(np.diag(R) > 0)
    np.testing.assert_allclose(R, R.T, atol=1e-10 * R.max(), rtol=0)
    watts = data.draw(st.lists(st.floats(0.0, 2.0), min_size=len(tiles), max_size=len(tiles)))
    power = {name: np.zeros((ny, nx)) for name in body.names}
    for (name, rect), each in zip(tiles, watts, strict=True):
        power[name] += rasterise([rect], [each], nx, ny, body.side_x, body.side_y)
    field = model.steady(power)
    direct = [field.tile_means(name, [rect])[0] for name, rect in tiles]
    scale = max(1.0, field.max() - body.ambient_k)
    np.testing.assert_allclose(R @ watts + body.ambient_k, direct, atol=1e-6 * scale / 100, rtol=0)
    whole = np.tensordot(watts, cells, axes=1) + body.ambient_k
    np.testing.assert_allclose(whole, field.temperature_k, atol=1e-8 * scale, rtol=0)


@given(bodies(), st.data())
def test_better_conductors_never_warm_the_powered_cells(drawn: Any, data: st.DataObject) -> None:
    """Rayleigh: the mean rise weighted by the power falls when any conductance grows."""
    body, nx, ny = drawn
    power = drawn_power(data, body, nx, ny)
    factors = np.array(data.draw(st.lists(st.floats(1.0, 4.0), min_size=nx * ny, max_size=nx * ny))).reshape(ny, nx)
    which = data.draw(st.integers(0, len(body.slabs) - 1))
    slabs = list(body.slabs)
    slabs[which] = replace(slabs[which], conductivity=slabs[which].conductivity * factors)
    weighted = []
    for each in (body, replace(body, slabs=tuple(slabs))):
        field = ThermalModel(each, nx, ny).steady(power)
        weighted.append(sum(float((p * (field.of(n) - body.ambient_k)).sum()) for n, p in power.items()))
    assert weighted[1] <= weighted[0] * (1 + 1e-9)


@given(bodies(), st.data(), st.floats(1.5, 10.0))
def test_better_cooling_cools_every_cell(drawn: Any, data: st.DataObject, factor: float) -> None:
    body, nx, ny = drawn
    power = drawn_power(data, body, nx, ny)
    package = body.package
    if isinstance(package, HtcPackage):
        change = {"htc_w_per_m2k": package.htc_w_per_m2k * factor}
    else:
        change = {"r_convec_k_per_w": package.r_convec_k_per_w / factor}
    better = replace(body, package=package.model_copy(update=change))
    before, cooled, path = (
        ThermalModel(b, nx, ny).steady(power).temperature_k
        for b in (body, better, replace(body, far_htc=body.far_htc + 100.0 * factor))
    )
    rise = before - body.ambient_k
    lost = 1e-10 * rise.max()
    assert np.all(before - cooled > 1e-6 * rise - lost)
    assert np.all(before - path > -lost) and path.max() < before.max()


@pytest.mark.parametrize("name", PACKAGES)
@given(st.data())
def test_symmetric_power_gives_a_symmetric_field(name: str, data: st.DataObject) -> None:
    quarter = data.draw(powers(3, 3))
    map_ = quarter + quarter[::-1] + quarter[:, ::-1] + quarter[::-1, ::-1]
    map_ = map_ + map_.T
    field = ThermalModel(stack(PACKAGES[name]), 3, 3).steady({"logic": map_})
    for same in (field.temperature_k[:, ::-1], field.temperature_k[:, :, ::-1], np.swapaxes(field.temperature_k, 1, 2)):
        np.testing.assert_allclose(same, field.temperature_k, atol=1e-9, rtol=0)


@given(bodies())
def test_turning_the_die_turns_the_field(drawn: Any) -> None:
    body, nx, ny = drawn
    map_ = np.arange(1.0, nx * ny + 1).reshape(ny, nx)
    turned = tuple(replace(slab, conductivity=np.transpose(slab.conductivity)) for slab in body.slabs)
    other = replace(body, side_x=body.side_y, side_y=body.side_x, slabs=turned)
    one = ThermalModel(body, nx, ny).steady({"slab0": map_})
    two = ThermalModel(other, ny, nx).steady({"slab0": map_.T})
    np.testing.assert_allclose(np.swapaxes(two.temperature_k, 1, 2), one.temperature_k, rtol=1e-8)


@given(bodies(), st.data(), st.floats(1e-4, 1.0))
def test_transient(drawn: Any, data: st.DataObject, step: float) -> None:
    body, nx, ny = drawn
    power = drawn_power(data, body, nx, ny)
    model = ThermalModel(body, nx, ny)
    steady = model.steady(power)
    rise = steady.max() - body.ambient_k
    assume(rise < 1e5)
    # the steady state stays
    kept = model.transient([power] * 2, step, steady)
    np.testing.assert_allclose(kept.temperature_k[-1], steady.temperature_k, atol=1e-8 * rise, rtol=0)
    # from ambient, temperatures rise towards it and never pass it
    warm = model.transient([power] * 3, step)
    assert np.all(np.diff(warm.temperature_k, axis=0) >= -1e-9 * rise)
    assert np.all(warm.temperature_k <= steady.temperature_k + 1e-9 * rise)
    # after very long steps they have arrived
    last = model.transient([power] * 4, 1e7)
    np.testing.assert_allclose(last.final.temperature_k, steady.temperature_k, atol=1e-5 * rise, rtol=0)
    # what came in and did not leave is stored
    first = model.transient([power], step).final
    stored = float(model.network.capacity @ (first.state_k - body.ambient_k))
    assert stored == pytest.approx(step * (first.power_w - first.to_ambient_w), rel=1e-6, abs=1e-9 * step)
    # two runs of one step are one run of two
    again = model.transient([power], step, first)
    np.testing.assert_allclose(again.temperature_k[0], warm.temperature_k[1], atol=1e-9 * rise, rtol=0)
    np.testing.assert_allclose(warm.times_s, step * np.arange(1, 4))
    name = body.names[0]
    assert warm.max(name)[1] == warm.of(name)[1].max() and warm.mean(name).shape == (3,)


@pytest.mark.parametrize("name", PACKAGES)
def test_finer_grids_converge(name: str) -> None:
    body = stack(PACKAGES[name], drams=1)
    means = []
    for n in (8, 16, 32):  # heat spreads over half a millimetre, so 8 cells only begin to see it
        power = rasterise([Rect(SIDE / 4, SIDE / 2, SIDE / 4, SIDE / 4)], [30.0], n, n, SIDE, SIDE)
        field = ThermalModel(body, n, n).steady({"logic": power})
        means.append(field.tile_means("logic", quarters(n=4)))
    coarse, fine = np.abs(means[1] - means[0]).max(), np.abs(means[2] - means[1]).max()
    assert fine < 0.6 * coarse
    assert fine < 0.05 * (means[2].max() - body.ambient_k)


def test_plates_as_large_as_the_die_are_slabs_of_the_stack() -> None:
    sizes: dict[str, float] = {"s_sink": SIDE, "s_spreader": SIDE, "t_sink": 4e-3, "t_spreader": 1e-3}
    map_ = {"logic": np.arange(16.0).reshape(4, 4)}
    plated = ThermalModel(stack(sink_package("plates", r_convec=1 / (2e3 * SIDE**2), **sizes)), 4, 4)
    copper = [Slab("a", 1e-3, 400.0, 3.55e6), *(Slab(name, 4e-3 / 3, 400.0, 3.55e6) for name in "bcd")]
    bare = stack(cooled(2e3))
    slabbed = ThermalModel(replace(bare, slabs=(*bare.slabs, *copper)), 4, 4)
    one, two = plated.steady(map_), slabbed.steady(map_)
    np.testing.assert_allclose(one.temperature_k, two.temperature_k[:-4], rtol=1e-12)
    np.testing.assert_allclose(one.of("spreader"), two.of("a"), rtol=1e-12)
    np.testing.assert_allclose(one.of("sink"), (two.of("b") + two.of("c") + two.of("d")) / 3, rtol=1e-12)


def test_a_lid_is_a_slab_of_the_stack() -> None:
    map_ = {"logic": np.arange(16.0).reshape(4, 4)}
    bare = stack(cooled(2e3))
    lidded = replace(bare, package=bare.package.model_copy(update={"plate_thickness": 2e-3}))
    slabbed = replace(bare, slabs=(*bare.slabs, Slab("a", 2e-3, 400.0, 3.55e6)))
    one, two = (ThermalModel(body, 4, 4).steady(map_) for body in (lidded, slabbed))
    np.testing.assert_array_equal(one.temperature_k, two.temperature_k[:-1])
    np.testing.assert_array_equal(one.of("lid"), two.of("a"))


def test_plates_are_warmer_than_the_lumped_package() -> None:
    """Lumped rims conduct sideways as if the whole ring were near: 10 to 12 % less rise at 10 mm and 60 W."""
    n = 16
    power = {"logic": np.full((n, n), 60.0 / n**2)}
    lumped = ThermalModel(stack(PACKAGES["hotspot"], 4), n, n).steady(power).mean("logic") - 318.15
    meshed = ThermalModel(stack(PACKAGES["plates"], 4), n, n).steady(power).mean("logic") - 318.15
    assert 1.02 < meshed / lumped < 1.2
