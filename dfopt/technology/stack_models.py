"""A stack document as the solvers of `dfopt.technology.thermal` want it, and how its tiles warm it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dfopt.documents.stack import Stack
from dfopt.documents.stack_parts import HtcPackage
from dfopt.physics.identity import Same
from dfopt.technology.placement import Floats
from dfopt.technology.power import PowerModel

if TYPE_CHECKING:
    from dfopt.technology.thermal import Body, ThermalModel, Tile

__all__ = ["Heat", "body_of", "heat_of", "power_of", "thermal_model", "tiles_of"]

# Entries of a response matrix that is worth a file: 32 MB. A larger one (a fine grid) is computed in every process.
_LARGEST_KEPT = 4_000_000


def body_of(stack: Stack) -> Body:
    """The slabs of a stack: its dies with the bonds between them, from the far face to the sink, under its package.

    A bond is the slab ``NAME/bond`` behind die ``NAME``, the lid of a cold plate is ``package/lid``.

    Examples
    --------
    >>> from dfopt.documents.zoo import find
    >>> body_of(Stack.load(find("stacks", "hybrid-vault"))).names[-2:]
    ('top', 'top/bond')
    """
    from dfopt.technology import thermal

    slabs = []
    for die in stack.layers:
        slabs.append(thermal.Slab(die.name, die.thickness, die.conductivity, die.heat_capacity, die.source_thickness))
        if die.bond is not None:
            bond = die.bond
            slabs.append(thermal.Slab(f"{die.name}/bond", bond.thickness, bond.conductivity, bond.heat_capacity))
    given = stack.package
    package: thermal.Package
    if isinstance(given, HtcPackage):
        if given.plate_thickness is not None:
            lid = (given.plate_thickness, given.plate_conductivity, given.plate_heat_capacity)
            slabs.append(thermal.Slab("package/lid", *lid))
        package = thermal.HtcPackage(given.htc_w_per_m2k)
    else:
        sink, spreader = given.sink, given.spreader
        plates = {
            "r_convec": given.r_convec_k_per_w,
            "s_sink": sink.side,
            "t_sink": sink.thickness,
            "s_spreader": spreader.side,
            "t_spreader": spreader.thickness,
            "k_sink": sink.conductivity,
            "k_spreader": spreader.conductivity,
            "cv_sink": sink.heat_capacity,
            "cv_spreader": spreader.heat_capacity,
        }
        if given.mode == "hotspot":
            package = thermal.HotspotPackage(**plates, c_convec=given.c_convec_j_per_k)
        else:
            package = thermal.PlatesPackage(**plates)  # type: ignore[arg-type]  # its counts of cells are not given
    return thermal.Body(stack.side_x, stack.side_y, tuple(slabs), package, stack.ambient, stack.far_htc_w_per_m2k)


def tiles_of(stack: Stack) -> list[Tile]:
    """Slab and rectangle of every tile, in the order of ``Stack.tiles``."""
    from dfopt.technology.thermal import Rect

    return [(die, Rect(tile.x, tile.y, tile.width, tile.height)) for die, tile in stack.tiles]


def thermal_model(stack: Stack) -> ThermalModel:
    """The finite volumes of a stack on its own grid."""
    from dfopt.technology.thermal import ThermalModel

    return ThermalModel(body_of(stack), stack.cells, stack.cells)


@dataclass(frozen=True, eq=False)
class Heat:
    """How the powers of tiles warm tiles and cells: ``rise = matrix @ watts``.

    Parameters
    ----------
    means_k_per_w : array (I, I)
        Rise of the mean of each tile per watt in each tile.
    cells_k_per_w : array (dies * ny * nx, I)
        Rise of every cell of the dies with tiles, die by die from the far face to the sink.
    dies : tuple of str
        Those dies.
    ambient_k : float
        Kelvin.

    Examples
    --------
    >>> heat = Heat(np.eye(2), np.ones((4, 2)), ("logic",), 300.0)
    >>> heat.die_max(np.array([1.0, 2.0])), heat.die_mean(np.array([1.0, 2.0]))
    (array([303.]), array([303.]))
    """

    means_k_per_w: Floats
    cells_k_per_w: Floats
    dies: tuple[str, ...]
    ambient_k: float

    def cells(self, watts: Floats) -> Floats:
        """Kelvin of every cell, (..., dies, cells), for the watts of the tiles, (..., I)."""
        # One product for all cases: the matrix is read once, which takes most of the time.
        rise = watts @ self.cells_k_per_w.T
        return np.asarray((self.ambient_k + rise).reshape(*watts.shape[:-1], len(self.dies), -1))

    def die_max(self, watts: Floats) -> NDArray[np.float64]:
        """Kelvin of the hottest cell of each die, (..., dies)."""
        return np.asarray(self.cells(watts).max(axis=-1))

    @cached_property
    def _of_dies(self) -> Floats:
        cells = self.cells_k_per_w.reshape(len(self.dies), -1, self.cells_k_per_w.shape[1])
        return np.asarray(cells.mean(axis=1))

    def die_mean(self, watts: Floats) -> NDArray[np.float64]:
        """Kelvin, mean over each die, (..., dies)."""
        return np.asarray(self.ambient_k + watts @ self._of_dies.T)


def power_of(stack: Stack, chip_tiles: int) -> PowerModel:
    """The floorplans and energies of a stack, kept in memory: `PowerModel.from_stack`."""
    return _power(Same(stack), chip_tiles)


@lru_cache(maxsize=16)
def _power(key: Same[Stack], chip_tiles: int) -> PowerModel:
    return PowerModel.from_stack(key.document, chip_tiles)


def heat_of(stack: Stack) -> Heat:
    """The responses of a stack to the powers of its tiles, kept in memory and in the user's cache directory."""
    return _heat(Same(stack))


@lru_cache(maxsize=16)
def _heat(key: Same[Stack]) -> Heat:
    from dfopt.technology.thermal import Cache
    from dfopt.technology.thermal.influence import digest

    stack = key.document
    model, tiles = thermal_model(stack), tiles_of(stack)
    means = model.influence(tiles).matrix_k_per_w
    dies = tuple(dict.fromkeys(die for die, _ in tiles))
    shape = (len(dies) * stack.cells**2, len(tiles))
    # The matrix of the means and that of the cells belong to the same body, grid and tiles: one name, two files.
    name, cache = digest(model.body, stack.cells, stack.cells, tiles) + "-cells", Cache.default()
    keep = shape[0] * shape[1] <= _LARGEST_KEPT
    cells = cache.get(name, shape) if keep else None
    if cells is None:
        rises = model.responses(tiles)[:, [model.body.names.index(die) for die in dies]]
        cells = np.ascontiguousarray(rises.reshape(len(tiles), -1).T)
        if keep:
            cache.put(name, cells)
    return Heat(means, cells, dies, stack.ambient)
