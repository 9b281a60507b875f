"""How a watt in each tile of a floorplan warms every cell: what all temperatures of a stack are sums of.

``T = ambient + R P`` with R of the network's symmetric conductance matrix, so R is symmetric (reciprocity) and all
its entries are above 0: a watt anywhere warms every cell.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from dfopt.arrays import Floats
from dfopt.documents.stack_parts import Tile
from dfopt.technology.thermal.network import network_of
from dfopt.technology.thermal.types import Body

_AT_ONCE = 64  # right-hand sides in one solve: more cost memory and save no time
_SLACK = 1e-9  # share of a tile that only rounding puts into a cell
# Raise it when a change of the physics changes the numbers: matrices kept on disk are then no longer found.
_VERSION = 2
_OF_TRANSIENTS: dict[str, bool | set[str]] = {
    "c_convec_j_per_k": True,
    "plate_heat_capacity": True,
    "spreader": {"heat_capacity"},
    "sink": {"heat_capacity"},
}


def _shares(low: float, size: float, side: float, cells: int) -> Floats:
    """The share of the interval [low, low + size] that falls into each of ``cells`` equal cells of [0, side]."""
    edges = np.linspace(0.0, side, cells + 1)
    covered = np.diff(np.clip(edges, low, low + size))
    # a cell that only rounding puts under the tile would lend it its temperature
    covered[covered <= _SLACK * covered.sum()] = 0.0
    return np.asarray(covered / covered.sum())


def tile_weights(tiles: Sequence[Tile], nx: int, ny: int, side_x: float, side_y: float) -> Floats:
    """Share of each tile's area in each cell of a die.

    They are the watts per cell of one watt in the tile, and the weights of its mean.

    Parameters
    ----------
    tiles
        The tiles.
    nx, ny : int
        Cells over the die along its sides.
    side_x, side_y : float, m
        Sides of the die.

    Returns
    -------
    float array, shape (tiles, ny, nx)
        Shares. Those of a tile add up to 1.

    Examples
    --------
    >>> tile_weights([Tile(name="a", kind="compute", x=0.0, y=0.0, width=1.5, height=1.0)], 2, 1, 2.0, 1.0).round(3)
    array([[[0.667, 0.333]]])
    """
    weights = np.empty((len(tiles), ny, nx))
    for index, tile in enumerate(tiles):
        across = _shares(tile.x, tile.width, side_x, nx)
        weights[index] = np.multiply.outer(_shares(tile.y, tile.height, side_y, ny), across)
    return weights


def responses(body: Body, nx: int, ny: int, tiles: Sequence[tuple[str, Tile]]) -> Floats:
    """Temperature rise of every cell per watt in each tile, K/W, shape (tiles, slabs, ny, nx).

    Parameters
    ----------
    nx, ny
        Cells over the die.
    tiles
        Slab name and rectangle of each tile; the power is uniform in it.

    Examples
    --------
    Through 1 cm2 of 100 um silicon (120 W/mK) and a coefficient of 1e5 W/m2K a watt raises the middle of the die by
    (0.5 * 100e-6 / 120 + 1e-5) / 1e-4 K.

    >>> from dfopt.documents.stack_parts import HtcPackage
    >>> from dfopt.technology.thermal.types import Slab
    >>> package = HtcPackage(mode="htc", htc_w_per_m2k=1e5)
    >>> body = Body(0.01, 0.01, (Slab("die", 100e-6, 120.0, 1.75e6),), package, 300.0)
    >>> tile = Tile(name="all", kind="compute", x=0.0, y=0.0, width=0.01, height=0.01)
    >>> round(float(responses(body, 4, 4, [("die", tile)]).max()), 6)
    0.104167
    """
    from dfopt.technology.thermal.solvers import solver_of  # scipy: not for those whose responses are known

    network = network_of(body, nx, ny)
    solver = solver_of(network)
    weights = tile_weights([tile for _, tile in tiles], nx, ny, body.side_x, body.side_y)
    slabs = [body.names.index(name) for name, _ in tiles]
    rises_tsyx = np.empty((len(tiles), *network.slab_nodes.shape))
    for first in range(0, len(tiles), _AT_ONCE):
        part = range(first, min(first + _AT_ONCE, len(tiles)))
        watts = np.zeros((network.nodes, len(part)))
        for column, index in enumerate(part):
            watts[network.slab_nodes[slabs[index]].ravel(), column] = weights[index].ravel()
        rises = solver.solve(watts)[network.slab_nodes]
        rises_tsyx[part.start : part.stop] = np.moveaxis(rises, -1, 0)
    return rises_tsyx


def digest(body: Body, nx: int, ny: int, tiles: Sequence[tuple[str, Tile]]) -> str:
    """SHA-256 of everything that decides the `responses` of a body, grid and tiles.

    Names of slabs, heat capacities and the ambient temperature do not count; a tile is identified by the index of its
    slab.

    Parameters
    ----------
    body
        Slabs and package.
    nx, ny : int
        Cells over the die along its sides.
    tiles
        Tiles, each with the name of its slab.
    """
    places = {name: index for index, name in enumerate(body.names)}
    package = body.package.model_dump(exclude=_OF_TRANSIENTS)
    slabs = [(s.thickness_m, s.source_thickness_m, np.asarray(s.conductivity).tolist()) for s in body.slabs]
    where = [(places[name], tile.x, tile.y, tile.width, tile.height) for name, tile in tiles]
    every = (_VERSION, nx, ny, float(body.side_x), float(body.side_y), float(body.far_htc), package, slabs, where)
    return hashlib.sha256(repr(every).encode()).hexdigest()
