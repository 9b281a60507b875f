"""The thermal model of a body on a grid: steady fields and transients.

Source of the equations: energy balance of finite volumes; backward Euler in time,
``(C/dt + G) T' = P + C/dt T + G_ambient T_ambient``. All solves are for the rise above ambient, which is linear in
the power.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.errors import Issue, SystemSpecError, json_path
from dfopt.technology.thermal.network import Network, network_of
from dfopt.technology.thermal.sheets import plates_of, sheets_of
from dfopt.technology.thermal.solvers import Solver, solver_of
from dfopt.technology.thermal.types import Body
from thermal_fields.checks import check, slab_index
from thermal_fields.field import Field, Transient

__all__ = ["PowerMap", "ThermalModel", "stepped"]

PowerMap = Mapping[str, Floats]

_STEP_SIZES = 4  # factorisations kept; one of 40,000 nodes takes up to 200 MB


def stepped(network: Network, step_s: float) -> Network:
    """The network of one backward Euler step: what a node stores in it goes to ground."""
    stored, layered = network.capacity / step_s, network.layered
    if layered is not None:
        of_cell = stored[: int(np.prod(layered.shape))].reshape(layered.shape)[:, 0, 0]
        layered = replace(layered, ground=layered.ground + of_cell)
    return replace(network, ground=network.ground + stored, layered=layered)


def plate_nodes(body: Body, nx: int, ny: int) -> dict[str, Ints]:
    """For each plate of the package its nodes over the die, shape (parts of its thickness, ny, nx)."""
    slabs = sheets_of(body, nx, ny)
    first, nodes = sum(sheet.areas.size for sheet in slabs), dict[str, list[Ints]]()
    for sheet in plates_of(body, slabs[0].dx, slabs[0].dy):
        ids = np.arange(first, first + sheet.areas.size).reshape(sheet.shape)
        nodes.setdefault(sheet.name, []).append(ids[-sheet.y0 :, -sheet.x0 :][:ny, :nx])
        first += sheet.areas.size
    return {name: np.stack(parts) for name, parts in nodes.items()}


class ThermalModel:
    """A body on a grid; factorised when the first field is asked for, and once per step size.

    Parameters
    ----------
    body
        The stack and its package.
    nx, ny
        Cells over the die.

    Raises
    ------
    SystemSpecError
        With all that is wrong of the body, such as material arrays that do not fit the grid.

    Examples
    --------
    100 W through 1 cm2 of 100 um silicon (120 W/mK) and a coefficient of 1e5 W/m2K: the rise at the middle of the die
    is 100 W * (0.5 * 100e-6 / 120 + 1e-5) / 1e-4 m2.

    >>> from dfopt.documents.stack_parts import HtcPackage
    >>> from dfopt.technology.thermal.types import Slab
    >>> die = Slab("die", 100e-6, 120.0, 1.75e6)
    >>> model = ThermalModel(Body(0.01, 0.01, (die,), HtcPackage(mode="htc", htc_w_per_m2k=1e5), 300.0), nx=4, ny=4)
    >>> field = model.steady({"die": np.full((4, 4), 100 / 16)})
    >>> round(field.max("die"), 6), round(field.to_ambient_w, 6)
    (310.416667, 100.0)
    """

    def __init__(self, body: Body, nx: int = 32, ny: int = 32) -> None:
        check(body, nx, ny)
        self.body, self.nx, self.ny = body, nx, ny
        self.network: Network = network_of(body, nx, ny)
        self.plate_nodes = plate_nodes(body, nx, ny)
        self._steps: dict[float, Solver] = {}

    @cached_property
    def solver(self) -> Solver:
        """Of the steady state, factorised when first asked for."""
        return solver_of(self.network)

    def step_solver(self, step_s: float) -> Solver:
        """Of one backward Euler step of ``step_s`` seconds; the last few step sizes stay factorised."""
        if step_s not in self._steps:
            while len(self._steps) >= _STEP_SIZES:
                self._steps.pop(next(iter(self._steps)))
            self._steps[step_s] = solver_of(stepped(self.network, step_s))
        return self._steps[step_s]

    def steady(self, power: PowerMap) -> Field:
        """The steady field.

        Parameters
        ----------
        power
            Watts per cell, shape (ny, nx), of every powered slab by name; the others have none.

        Returns
        -------
        Field

        Raises
        ------
        SystemSpecError
            For an unknown slab, another shape, or power that is not finite.
        """
        watts = self._watts(power, "$.power")
        return self._field(self.solver.solve(watts), float(watts.sum()))

    def transient(self, power: Sequence[PowerMap], step_s: float, initial: Field | None = None) -> Transient:
        """Backward Euler with a constant step.

        Parameters
        ----------
        power
            A map as in `steady` for each step, constant during it.
        step_s
            Seconds.
        initial
            A field of the same body and grid; everything at ambient if left out.

        Returns
        -------
        Transient
            The temperatures at the end of each step.

        Raises
        ------
        SystemSpecError
            As `steady`; no steps, a step that is not above 0, or an initial field of another body.
        """
        if not (np.isfinite(step_s) and step_s > 0):
            raise SystemSpecError("", [Issue("$.step_s", f"found {step_s}, expected seconds above 0")])
        if not len(power):
            raise SystemSpecError("", [Issue("$.power", "found no steps, expected at least one power map")])
        rise = np.zeros(self.network.nodes)
        if initial is not None:
            if initial.state_k.shape != rise.shape or initial.body.names != self.body.names:
                message = "found a field of another body or grid, expected one of this model"
                raise SystemSpecError("", [Issue("$.initial", message, "start from a field this model made")])
            rise = initial.state_k - self.body.ambient_k
        solver, stored = self.step_solver(step_s), self.network.capacity / step_s
        found = np.empty((len(power), *self.network.slab_nodes.shape))
        last: PowerMap | None = None
        for index, each in enumerate(power):
            if each is not last:  # steps in a row often share one map
                last, watts = each, self._watts(each, f"$.power[{index}]")
            rise = solver.solve(watts + stored * rise)
            found[index] = rise[self.network.slab_nodes]
        times: Floats = np.asarray(step_s * np.arange(1, len(power) + 1), dtype=np.float64)
        return Transient(times, found + self.body.ambient_k, self._field(rise, float(watts.sum())))

    def _watts(self, power: PowerMap, where: str) -> Floats:
        """Watts at each node."""
        watts = np.zeros(self.network.nodes)
        for name, each in power.items():
            slab, here = slab_index(self.body, name, where), where + json_path(name)[1:]
            cells = np.asarray(each, dtype=np.float64)
            if cells.shape != (self.ny, self.nx):
                message = f"found shape {cells.shape}, expected {(self.ny, self.nx)} watts per cell"
                raise SystemSpecError("", [Issue(here, message, "rasterise() makes it from tiles")])
            if not np.all(np.isfinite(cells)):
                raise SystemSpecError("", [Issue(here, "found a value that is not finite, expected watts per cell")])
            watts[self.network.slab_nodes[slab]] = cells
        return watts

    def _field(self, rise: Floats, power: float) -> Field:
        ambient = self.body.ambient_k
        plates = {name: rise[nodes].mean(axis=0) + ambient for name, nodes in self.plate_nodes.items()}
        return Field(
            body=self.body,
            temperature_k=rise[self.network.slab_nodes] + ambient,
            plates_k=plates,
            state_k=rise + ambient,
            power_w=power,
            to_ambient_w=float(self.network.ground @ rise),
        )
