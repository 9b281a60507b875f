"""Which tiles the program tries in a memory: 18 that it draws, the same each time, and two near squares."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

TILES = 20
SEED = 1
DRAWS = 4096
"""After so many it is certain enough that a room has fewer tiles; the program would go on for ever."""
LEAST_ROOM = 8
"""Elements below which there is no tile: the near squares would have empty sides."""

Tiles = NDArray[np.float64]
"""Three rows, one for each side of a product of matrices; a column is a tile."""


class NoTiles(ValueError):
    """A memory is too small for the tiles that the program tries."""


def squares(room: float) -> set[tuple[int, int, int]]:
    """The two tiles that are always tried."""
    side = 2 ** math.floor(math.log2(math.sqrt(room / 2)))
    return {(side, side, side), (side // 2, side, side * 2)}


def third_side(room: float, first: int, second: int, holds_output: bool) -> int:
    """The largest power of two that a third side may have; 0 if there is none.

    A memory that holds the output has all three faces of the tile; otherwise results pass through, and the face of the
    first and third side takes no room.
    """
    left = math.floor((room - first * second) / (first + second if holds_output else second))
    return 1 << left.bit_length() - 1 if left > 0 else 0


@lru_cache(maxsize=65536)
def drawn(room: float, holds_output: bool) -> Tiles:
    """The tiles for a memory with room for so many elements."""
    if room < LEAST_ROOM:
        raise NoTiles(f"found a room of {room:g} elements, expected {LEAST_ROOM} or more")
    found = squares(room)
    for i, j in _exponents(math.floor(math.log2(room))):
        third = third_side(room, 1 << i, 1 << j, holds_output)
        if third:
            found.add((1 << i, 1 << j, third))
            if len(found) == TILES:
                return np.array(sorted(found), dtype=np.float64).T.copy()
    raise NoTiles(f"found {len(found)} tiles in a room of {room:g} elements, expected {TILES}")


@lru_cache(maxsize=64)
def _exponents(top: int) -> list[tuple[int, int]]:
    """Pairs of exponents in the order in which the program draws them."""
    return [(int(i), int(j)) for i, j in np.random.RandomState(SEED).randint(0, top, (DRAWS, 2))]
