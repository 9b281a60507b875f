"""A stack document as the solvers of `dfopt.technology.thermal` want it, and how its tiles warm it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from dfopt.arrays import Floats
from dfopt.documents.stack import Stack
from dfopt.physics.identity import Same
from dfopt.technology.power import PowerModel
from dfopt.technology.thermal.cache import kept
from dfopt.technology.thermal.responses import digest, responses, tile_weights
from dfopt.technology.thermal.types import Body, Slab


def body_of(stack: Stack) -> Body:
    """Thermal body of a stack: dies and bonds from the far face to the sink, with the package.

    A bond is the slab ``NAME/bond`` behind die ``NAME``.

    Examples
    --------
    >>> from dfopt.documents.zoo import find
    >>> body_of(Stack.load(find("stacks", "hybrid-vault"))).names[-2:]
    ('top', 'top/bond')
    """
    slabs = []
    for die in stack.layers:
        slabs.append(Slab(die.name, die.thickness, die.conductivity, die.heat_capacity, die.source_thickness))
        if die.bond is not None:
            bond = die.bond
            slabs.append(Slab(f"{die.name}/bond", bond.thickness, bond.conductivity, bond.heat_capacity))
    return Body(stack.side_x, stack.side_y, tuple(slabs), stack.package, stack.ambient, stack.far_htc_w_per_m2k)


@dataclass(frozen=True, eq=False)
class Heat:
    """Thermal response of tiles and cells to the power of tiles: ``rise = matrix @ watts``.

    Parameters
    ----------
    means_k_per_w : array (I, I)
        Rise of the mean of each tile per watt in each tile.
    cells_k_per_w : array (dies * ny * nx, I)
        Rise of every cell of the dies with tiles, die by die from the far face to the sink.
    dies : tuple of str
        Names of the dies.
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
        """Temperature of every cell, K, shape (..., dies, cells), for tile powers (..., I) in W."""
        # One product for all cases: the matrix is read once, which takes most of the time.
        rise = watts @ self.cells_k_per_w.T
        return np.asarray((self.ambient_k + rise).reshape(*watts.shape[:-1], len(self.dies), -1))

    def die_max(self, watts: Floats) -> Floats:
        """Temperature of the hottest cell of each die, K, shape (..., dies)."""
        return np.asarray(self.cells(watts).max(axis=-1))

    @cached_property
    def _of_dies(self) -> Floats:
        cells = self.cells_k_per_w.reshape(len(self.dies), -1, self.cells_k_per_w.shape[1])
        return np.asarray(cells.mean(axis=1))

    def die_mean(self, watts: Floats) -> Floats:
        """Mean temperature of each die, K, shape (..., dies)."""
        return np.asarray(self.ambient_k + watts @ self._of_dies.T)


def power_of(stack: Stack) -> PowerModel:
    """Power model of a stack, cached: `PowerModel.from_stack`."""
    return _power(Same(stack))


@lru_cache(maxsize=16)
def _power(key: Same[Stack]) -> PowerModel:
    return PowerModel.from_stack(key.document)


def heat_of(stack: Stack) -> Heat:
    """Thermal response of a stack, cached in memory and on disk."""
    return _heat(Same(stack))


@lru_cache(maxsize=16)
def _heat(key: Same[Stack]) -> Heat:
    stack = key.document
    body, cells, tiles = body_of(stack), stack.cells, stack.tiles
    dies = tuple(dict.fromkeys(die for die, _ in tiles))

    def work() -> Floats:
        rises = responses(body, cells, cells, tiles)[:, [body.names.index(die) for die in dies]]
        return np.ascontiguousarray(rises.reshape(len(tiles), -1).T)

    name = digest(body, cells, cells, tiles) + "-cells"
    matrix = kept(name, (len(dies) * cells**2, len(tiles)), work)
    weights = tile_weights([tile for _, tile in tiles], cells, cells, body.side_x, body.side_y)
    means = np.empty((len(tiles), len(tiles)))
    for die, of_die in zip(dies, matrix.reshape(len(dies), cells**2, -1), strict=True):
        on_die = [index for index, (name, _) in enumerate(tiles) if name == die]
        means[on_die] = weights[on_die].reshape(len(on_die), -1) @ of_die
    return Heat(means, matrix, dies, stack.ambient)
