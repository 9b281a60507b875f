"""Tiles to cells and back, and the errors of tiles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thermal_bodies import cooled
from thermal_fields import Field, Rect, rasterise
from thermal_fields.raster import tile_weights

from dfopt.errors import SystemSpecError
from dfopt.technology.thermal.types import Body, Slab

SX, SY = 0.012, 0.007


@st.composite
def rects(draw: st.DrawFn) -> Rect:
    """A tile inside the die."""
    x, y = draw(st.floats(0.0, 0.9)) * SX, draw(st.floats(0.0, 0.9)) * SY
    return Rect(x, y, draw(st.floats(0.01, 1.0)) * (SX - x), draw(st.floats(0.01, 1.0)) * (SY - y))


@given(st.lists(st.tuples(rects(), st.floats(-5.0, 50.0)), max_size=5), st.integers(1, 9), st.integers(1, 9))
def test_power_is_kept_and_lies_in_the_tiles(drawn: list[tuple[Rect, float]], nx: int, ny: int) -> None:
    tiles, watts = [r for r, _ in drawn], [w for _, w in drawn]
    cells = rasterise(tiles, watts, nx, ny, SX, SY)
    assert cells.shape == (ny, nx)
    assert cells.sum() == pytest.approx(sum(watts), abs=1e-9)
    for rect, weights in zip(tiles, tile_weights(tiles, nx, ny, SX, SY), strict=True):
        assert weights.sum() == pytest.approx(1.0, rel=1e-12)
        for j, i in np.ndindex(ny, nx):
            wide = min(rect.x + rect.width, (i + 1) * SX / nx) - max(rect.x, i * SX / nx)
            high = min(rect.y + rect.height, (j + 1) * SY / ny) - max(rect.y, j * SY / ny)
            assert weights[j, i] == pytest.approx(
                max(wide, 0.0) * max(high, 0.0) / (rect.width * rect.height), abs=1e-9
            )


@given(rects(), st.floats(0.1, 0.9))
def test_a_tile_cut_in_two_is_the_tile(rect: Rect, share: float) -> None:
    left = Rect(rect.x, rect.y, share * rect.width, rect.height)
    right = Rect(rect.x + left.width, rect.y, (1 - share) * rect.width, rect.height)
    whole = rasterise([rect], [10.0], 7, 5, SX, SY)
    np.testing.assert_allclose(rasterise([left, right], [10 * share, 10 * (1 - share)], 7, 5, SX, SY), whole, atol=1e-9)


def test_sums_of_widths_may_pass_the_edge_by_rounding() -> None:
    width = SX / 3
    assert 3 * width >= SX - 1e-18
    tile = Rect(2 * width, 0.0, width * (1 + 1e-12), SY)
    assert rasterise([tile], [6.0], 3, 1, SX, SY)[0, 2] == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("rect", "words"),
    [
        (Rect(0.005, 0.0, 0.008, 0.001), r"\$\.rects\[1\]: found x 0.005 to 0.013 m.*inside the die, 0 to 0.012 m"),
        (Rect(-0.001, 0.0, 0.002, 0.001), "inside the die"),
        (Rect(0.0, 0.006, 0.001, 0.002), "y 0.006 to 0.008 m"),
        (Rect(0.0, 0.0, 0.0, 0.001), "an area"),
        (Rect(0.0, 0.0, float("nan"), 0.001), "finite numbers"),
        (Rect(0.0, float("inf"), 0.001, 0.001), "finite numbers"),
    ],
)
def test_tiles_outside_the_die(rect: Rect, words: str) -> None:
    with pytest.raises(SystemSpecError, match=words):
        rasterise([Rect(0.0, 0.0, 0.001, 0.001), rect], [1.0, 1.0], 4, 4, SX, SY)


def test_all_wrong_tiles_are_named_at_once() -> None:
    with pytest.raises(SystemSpecError) as caught:
        tile_weights([Rect(1.0, 0.0, 1.0, 1.0), Rect(0.0, 0.0, SX, SY), Rect(0.0, 2.0, 1.0, 1.0)], 4, 4, SX, SY)
    assert [issue.where for issue in caught.value.issues] == ["$.rects[0]", "$.rects[2]"]


def test_powers_that_do_not_fit() -> None:
    whole = Rect(0.0, 0.0, SX, SY)
    with pytest.raises(SystemSpecError, match="found 2 powers for 1 tiles"):
        rasterise([whole], [1.0, 2.0], 4, 4, SX, SY)
    with pytest.raises(SystemSpecError, match=r"\$\.powers\[1\]: found nan"):
        rasterise([whole, whole], [1.0, float("nan")], 4, 4, SX, SY)


@pytest.mark.parametrize("side", [0.004, 0.008, 0.01, 0.012, 0.02, 0.026])
@pytest.mark.parametrize("tiles, cells", [(3, 12), (4, 20), (5, 20), (5, 25), (8, 16), (8, 40)])
def test_the_maximum_of_a_tile_is_not_that_of_its_neighbour(side: float, tiles: int, cells: int) -> None:
    """Edges of tiles and cells differ in the last bit: a tile must not have cells that it only seems to touch."""
    size, per = side / tiles, cells // tiles
    rects = [Rect(i * size, j * size, size, size) for j in range(tiles) for i in range(tiles)]
    body = Body(side, side, (Slab("die", 1e-4, 100.0, 1.75e6),), cooled(1e4), 300.0)
    owner = np.add.outer(np.arange(cells) // per * tiles, np.arange(cells) // per)
    for kelvin in (owner, -owner):
        field = Field(body, kelvin[None].astype(float), {}, np.zeros(0), 0.0, 0.0)
        assert np.abs(field.tile_maxima("die", rects)).tolist() == list(range(tiles * tiles))
