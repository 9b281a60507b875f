"""The influence matrix: temperatures of tiles as a linear function of the powers of tiles.

``T = ambient + R P`` with R of the network's symmetric conductance matrix, so R is symmetric (reciprocity) and all
its entries are above 0: a watt anywhere warms every tile.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dfopt.technology.thermal.types import Body, Floats, Rect

__all__ = ["Influence", "Tile", "digest"]

Tile = tuple[str, Rect]

# Raise it when a change of the physics changes the numbers: matrices kept on disk are then no longer found.
_VERSION = 1


@dataclass(frozen=True, eq=False)
class Influence:
    """How the powers of tiles warm the means of tiles.

    Parameters
    ----------
    matrix_k_per_w
        K/W, shape (tiles, tiles): rise of the mean of tile i per watt in tile j. Read-only.
    tiles
        Slab name and rectangle of each.
    ambient_k
        Kelvin.

    Examples
    --------
    >>> tile = ("die", Rect(0.0, 0.0, 0.01, 0.01))
    >>> Influence(np.array([[0.5]]), (tile,), 300.0).temperatures([20.0])
    array([310.])
    """

    matrix_k_per_w: Floats
    tiles: tuple[Tile, ...]
    ambient_k: float

    def temperatures(self, powers: ArrayLike) -> Floats:
        """Kelvin, mean of each tile, for the watts of each tile; further cases along a second axis."""
        return np.asarray(self.matrix_k_per_w @ np.asarray(powers, dtype=np.float64) + self.ambient_k)


def digest(body: Body, nx: int, ny: int, tiles: Sequence[Tile]) -> str:
    """A name for the matrix of a body, grid and tiles: SHA-256 of all that decides its entries.

    Names of slabs, heat capacities and the ambient temperature do not enter the matrix; a tile is told by the place of
    its slab in the stack.

    Examples
    --------
    >>> from dfopt.technology.thermal.types import HtcPackage, Slab
    >>> def body(k: float) -> Body:
    ...     return Body(0.01, 0.01, (Slab("die", 1e-4, k, 1.75e6),), HtcPackage(1e5), 300.0)
    >>> digest(body(120.0), 4, 4, []) == digest(body(120.0), 4, 4, []), len(digest(body(120.0), 4, 4, []))
    (True, 64)
    >>> digest(body(120.0), 4, 4, []) == digest(body(121.0), 4, 4, [])
    False
    """
    summed = hashlib.sha256()

    def add(*values: object) -> None:
        summed.update((repr(values) + "\n").encode())

    package = body.package
    add("dfopt influence", _VERSION, nx, ny, float(body.side_x), float(body.side_y), float(body.far_htc))
    for key in (f.name for f in dataclasses.fields(package)):
        value = getattr(package, key)
        add(type(package).__name__, key, None if value is None else float(value))
    for slab in body.slabs:
        source = slab.source_thickness_m
        add(float(slab.thickness_m), None if source is None else float(source))
        k = np.ascontiguousarray(slab.conductivity, dtype="<f8")
        add(k.shape)
        summed.update(k.tobytes())
    places = {name: index for index, name in enumerate(body.names)}
    for name, rect in tiles:
        add(places[name], *(float(value) for value in (rect.x, rect.y, rect.width, rect.height)))
    return summed.hexdigest()
