"""Against sums by hand, a dense solve written cell by cell, and each solver against the other."""

from __future__ import annotations

import doctest
import importlib
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import share
from thermal_bodies import PACKAGES, SIDE, bodies, cooled, powers, stack
from thermal_fields import ThermalModel, sink_package
from thermal_fields.model import stepped

from dfopt.arrays import Floats
from dfopt.documents.stack_parts import HtcPackage, SinkPackage
from dfopt.technology.thermal.network import network_of
from dfopt.technology.thermal.solvers import Condensed, Cosine, Factorised, solver_of
from dfopt.technology.thermal.types import Body, Slab

DIE_SIZED: dict[str, float] = {"s_sink": SIDE, "s_spreader": SIDE, "t_sink": 5e-3, "t_spreader": 1e-3}


@pytest.mark.parametrize("source", [None, 2e-6])
@pytest.mark.parametrize("solver", ["cosine", "lu"])
@pytest.mark.parametrize(
    "package",
    [cooled(2e4), *(sink_package(mode, r_convec=0.3, **DIE_SIZED) for mode in ("hotspot", "plates"))],
    ids=lambda p: p.mode,
)
def test_column(package: HtcPackage | SinkPackage, solver: str, source: float | None) -> None:
    """Uniform power through a column: resistances in series, by hand."""
    body = stack(package, drams=1, source=source)
    watts, area = 50.0, SIDE**2
    network = network_of(body, 3, 3)
    chosen = Cosine(network.layered) if solver == "cosine" and network.layered else Factorised(network)
    rhs = np.zeros(network.nodes)
    rhs[network.slab_nodes[0]] = watts / 9
    rises = chosen.solve(rhs)[network.slab_nodes]
    assert network.layered is not None
    through = [slab.thickness_m / float(slab.conductivity) for slab in body.slabs]
    beyond = 1 / package.htc_w_per_m2k if isinstance(package, HtcPackage) else 5e-3 / 400 + 1e-3 / 400 + 0.3 * area
    for index, slab in enumerate(body.slabs):
        behind = (slab.source_thickness_m or slab.thickness_m) / 2 / float(slab.conductivity)
        if package.mode == "hotspot":
            behind = 0.0  # the node is the far face
        expected = watts * (sum(through[index:]) - behind + beyond) / area
        np.testing.assert_allclose(rises[index], expected, rtol=1e-9)


def test_one_cell_charges_as_by_hand() -> None:
    """Backward Euler on one node: T_n = P/G (1 - (1 + dt G/C)^-n)."""
    t, k, cv, htc, step, watts = 1e-4, 120.0, 1.75e6, 1e4, 2e-3, 7.0
    model = ThermalModel(Body(SIDE, SIDE, (Slab("die", t, k, cv),), cooled(htc), 300.0), 1, 1)
    G, C = SIDE**2 / (t / (2 * k) + 1 / htc), cv * t * SIDE**2
    found = model.transient([{"die": np.array([[watts]])}] * 20, step).temperature_k.ravel()
    expected = [300.0 + watts / G * (1 - (1 + step * G / C) ** -n) for n in range(1, 21)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_power_that_changes_is_taken_step_by_step() -> None:
    model = ThermalModel(stack(cooled(1e4), 1), 2, 2)
    on, off = {"logic": np.full((2, 2), 5.0)}, {"logic": np.zeros((2, 2))}
    whole = model.transient([on, on, off, on], 1e-3)
    part = model.transient([on, on], 1e-3)
    part = model.transient([off], 1e-3, part.final)
    part = model.transient([on], 1e-3, part.final)
    np.testing.assert_allclose(part.temperature_k[0], whole.temperature_k[3], rtol=1e-13)
    assert whole.max("logic")[2] < whole.max("logic")[1] < whole.max("logic")[3]


def dense(body: Body, nx: int, ny: int, power: dict[str, Floats]) -> Floats:
    """Finite volumes under a heat transfer coefficient, cell by cell into a dense matrix; rises of each slab."""
    assert isinstance(body.package, HtcPackage)
    parts: list[tuple[int, bool, float]] = []
    for index, slab in enumerate(body.slabs):
        source = slab.source_thickness_m or slab.thickness_m
        parts.append((index, True, source))
        if source < slab.thickness_m:
            parts.append((index, False, slab.thickness_m - source))
    dx, dy = body.side_x / nx, body.side_y / ny
    nodes = {(p, j, i): n for n, (p, j, i) in enumerate(np.ndindex(len(parts), ny, nx))}
    A, b = np.zeros((len(nodes), len(nodes))), np.zeros(len(nodes))

    def k_of(p: int, j: int, i: int) -> float:
        k = body.slabs[parts[p][0]].conductivity
        return float(k) if np.ndim(k) == 0 else float(np.asarray(k)[j, i])

    for (p, j, i), n in nodes.items():
        slab, powered, t = parts[p]
        if powered:
            b[n] = power.get(body.slabs[slab].name, np.zeros((ny, nx)))[j, i]
        if p == len(parts) - 1:
            A[n, n] += 1 / (t / (2 * k_of(p, j, i) * dx * dy) + 1 / (body.package.htc_w_per_m2k * dx * dy))
        if p == 0 and body.far_htc:
            A[n, n] += 1 / (t / (2 * k_of(p, j, i) * dx * dy) + 1 / (body.far_htc * dx * dy))
        for other in ((p + 1, j, i), (p, j + 1, i), (p, j, i + 1)):
            if other not in nodes:
                continue
            if other[0] != p:
                t_other = parts[other[0]][2]
                ohm = t / (2 * k_of(p, j, i) * dx * dy) + t_other / (2 * k_of(*other) * dx * dy)
            elif other[1] != j:
                ohm = dy / (2 * k_of(p, j, i) * t * dx) + dy / (2 * k_of(*other) * t * dx)
            else:
                ohm = dx / (2 * k_of(p, j, i) * t * dy) + dx / (2 * k_of(*other) * t * dy)
            m = nodes[other]
            A[n, n] += 1 / ohm
            A[m, m] += 1 / ohm
            A[n, m] -= 1 / ohm
            A[m, n] -= 1 / ohm
    x = np.linalg.solve(A, b).reshape(len(parts), ny, nx)
    return np.stack([x[p] for p, part in enumerate(parts) if part[1]])


@given(bodies(), st.data())
def test_dense_oracle(drawn: Any, data: st.DataObject) -> None:
    body, nx, ny = drawn
    body = Body(body.side_x, body.side_y, body.slabs, cooled(2e4), 300.0, body.far_htc)
    power = {name: data.draw(powers(ny, nx)) for name in body.names}
    expected = dense(body, nx, ny, power)
    found = ThermalModel(body, nx, ny).steady(power).temperature_k - 300.0
    np.testing.assert_allclose(found, expected, atol=1e-9 * expected.max(), rtol=0)


@share(2.0)
@given(bodies(varied=False), st.data(), st.sampled_from([None, 1e-3]))
def test_every_solver_equals_lu(drawn: Any, data: st.DataObject, step: float | None) -> None:
    body, nx, ny = drawn
    network = network_of(body, nx, ny)
    assert network.layered is not None
    network = network if step is None else stepped(network, step)
    chosen, cosine = solver_of(network), network.layered.beyond is None
    assert isinstance(chosen, Cosine if cosine else Condensed)
    rhs = np.zeros((network.nodes, 3))
    rhs[network.slab_nodes[0].ravel(), 0] = data.draw(powers(ny, nx)).ravel()
    rhs[network.slab_nodes[-1].ravel(), 1] = data.draw(powers(ny, nx)).ravel()
    rhs[:, 2] = np.linspace(0.0, 1.0, network.nodes) ** 2  # also in the plates, as the steps of a transient have
    lu, found = Factorised(network).solve(rhs), chosen.solve(rhs)
    near = 1e-9 * max(1.0, lu.max() / 10)
    np.testing.assert_allclose(found, lu, atol=near, rtol=0)
    for column in (1, 2):
        alone = chosen.solve(rhs[:, column])
        np.testing.assert_allclose(alone, found[:, column], rtol=1e-12, atol=0 if cosine else near)


@pytest.mark.parametrize("package", [cooled(5e4), PACKAGES["hotspot"], PACKAGES["plates"]], ids=lambda p: p.mode)
def test_every_solver_equals_lu_on_a_real_stack(package: HtcPackage | SinkPackage) -> None:
    network = network_of(stack(package, drams=8, side_y=0.7 * SIDE, source=2e-6), 20, 19)
    rhs = np.zeros(network.nodes)
    rhs[network.slab_nodes[0][3:9, 10:20]] = 1.0
    chosen = solver_of(network)
    assert isinstance(chosen, Cosine if package.mode == "htc" else Condensed)
    assert np.abs(chosen.solve(rhs) - Factorised(network).solve(rhs)).max() < 1e-9


def test_large_grids_and_varied_materials_take_the_sparse_lu() -> None:
    assert isinstance(solver_of(network_of(stack(PACKAGES["hotspot"], 0), 51, 50)), Factorised)
    body = stack(PACKAGES["hotspot"], 0)
    varied = replace(body.slabs[0], conductivity=np.array([[120.0, 100.0]]))
    assert isinstance(solver_of(network_of(replace(body, slabs=(varied, *body.slabs[1:])), 2, 1)), Factorised)


@given(bodies())
def test_networks_are_symmetric_and_whole(drawn: Any) -> None:
    """No node is cut off, no conductance or capacity is below 0, every part of the stack has its heat capacity."""
    import scipy.sparse as sp
    from scipy.sparse.csgraph import connected_components

    body, nx, ny = drawn
    network = network_of(body, nx, ny)
    assert np.all(network.conductance >= 0) and np.all(network.ground >= 0) and np.all(network.capacity >= 0)
    linked = sp.coo_array((network.conductance, tuple(network.edges)), shape=(network.nodes,) * 2)
    assert connected_components(linked, directed=False)[0] == 1
    stored = sum(float(s.heat_capacity) * s.thickness_m for s in body.slabs) * body.side_x * body.side_y
    package = body.package
    if isinstance(package, SinkPackage):
        inner, outer = package.spreader, package.sink
        stored += inner.heat_capacity * inner.thickness * max(inner.side, body.side_x) * max(inner.side, body.side_y)
        stored += outer.heat_capacity * outer.thickness * outer.side**2
        if package.mode == "hotspot":
            stored += package.c_convec_j_per_k
    elif package.plate_thickness is not None:
        stored += package.plate_heat_capacity * package.plate_thickness * body.side_x * body.side_y
    assert math.isclose(float(network.capacity.sum()), stored, rel_tol=1e-9)


def test_lumped_convection_is_shared_by_the_whole_sink() -> None:
    """With perfect plates all that remains is r_convec, whatever the sizes."""
    sizes: dict[str, float] = {"s_sink": 0.06, "s_spreader": 0.03, "t_sink": 1e-2, "t_spreader": 1e-2}
    copper = {"k_sink": 1e5, "k_spreader": 1e5}
    for package in (sink_package(mode, r_convec=0.4, **sizes, **copper) for mode in ("hotspot", "plates")):
        field = ThermalModel(stack(package, 0), 4, 4).steady({"logic": np.full((4, 4), 2.0)})
        assert field.mean("sink") - 318.15 == pytest.approx(32.0 * 0.4, rel=5e-4)


@pytest.mark.parametrize("name", ["model", "raster"])
def test_the_examples_in_the_docs(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"thermal_fields.{name}"))
    assert found.attempted and not found.failed
