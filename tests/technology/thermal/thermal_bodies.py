"""Small stacks for the thermal tests, and strategies that draw them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from thermal_fields import Rect, sink_package

from dfopt.arrays import Floats
from dfopt.documents.stack_parts import HtcPackage, SinkPackage
from dfopt.technology.thermal.types import Body, Slab

SIDE = 0.01
PLATE_SIZES: dict[str, float] = {"s_sink": 0.06, "t_sink": 6.9e-3, "s_spreader": 0.03, "t_spreader": 1e-3}
PACKAGES: dict[str, HtcPackage | SinkPackage] = {
    "htc": HtcPackage(mode="htc", htc_w_per_m2k=5e4),
    "hotspot": sink_package(r_convec=0.2, **PLATE_SIZES),
    "plates": sink_package("plates", r_convec=0.2, **PLATE_SIZES),
}


def cooled(htc: float) -> HtcPackage:
    """A cold plate, W/m2K."""
    return HtcPackage(mode="htc", htc_w_per_m2k=htc)


def stack(package: HtcPackage | SinkPackage, drams: int = 2, source: float | None = None, **changes: Any) -> Body:
    """A logic die at the far face, DRAM dies and a thermal interface."""
    slabs = [Slab("logic", 1e-4, 120.0, 1.75e6, source)]
    for i in range(drams):
        slabs += [Slab(f"bond{i}", 5e-6, 4.0, 2.2e6), Slab(f"dram{i}", 5e-5, 120.0, 1.75e6, source)]
    slabs.append(Slab("tim", 3e-5, 5.0, 4e6))
    given: dict[str, Any] = {"side_x": SIDE, "side_y": SIDE, "ambient_k": 318.15, "far_htc": 0.0, **changes}
    return Body(slabs=tuple(slabs), package=package, **given)


def quarters(side_x: float = SIDE, side_y: float = SIDE, n: int = 2) -> list[Rect]:
    """n x n equal tiles, x fastest."""
    w, h = side_x / n, side_y / n
    return [Rect(i * w, j * h, w, h) for j in range(n) for i in range(n)]


def powers(ny: int, nx: int) -> st.SearchStrategy[Floats]:
    """Watts per cell, none below 0 and some above."""
    cells = st.lists(st.integers(0, 20), min_size=nx * ny, max_size=nx * ny).filter(any)
    return cells.map(lambda values: np.array(values, dtype=np.float64).reshape(ny, nx) / 10)


@st.composite
def bodies(draw: st.DrawFn, varied: bool = True) -> tuple[Body, int, int]:
    """A body with any package, and a grid for it."""
    nx, ny = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    side_x, side_y = draw(st.floats(2e-3, 2e-2)), draw(st.floats(2e-3, 2e-2))
    slabs = []
    for index in range(draw(st.integers(1, 4))):
        thickness, k = draw(st.floats(2e-6, 5e-4)), draw(st.floats(0.5, 400.0))
        conductivity: Any = k
        if varied and draw(st.booleans()):
            factors = draw(st.lists(st.floats(0.2, 5.0), min_size=nx * ny, max_size=nx * ny))
            conductivity = k * np.array(factors).reshape(ny, nx)
        source = thickness * draw(st.floats(0.1, 1.0)) if draw(st.booleans()) else None
        slabs.append(Slab(f"slab{index}", thickness, conductivity, draw(st.floats(1e6, 4e6)), source))
    widest = max(side_x, side_y)
    spreader = widest * draw(st.sampled_from([1.0, 1.5, 3.0]))
    sink = spreader * draw(st.sampled_from([1.0, 1.3, 2.0]))
    sizes = {"s_sink": sink, "t_sink": 5e-3, "s_spreader": spreader, "t_spreader": 1e-3}
    package = draw(
        st.sampled_from(
            [
                cooled(draw(st.floats(1e3, 1e5))),
                cooled(1e4).model_copy(update={"plate_thickness": draw(st.floats(1e-4, 3e-3))}),
                sink_package(r_convec=draw(st.floats(0.05, 1.0)), **sizes),
                sink_package("plates", r_convec=draw(st.floats(0.05, 1.0)), **sizes),
            ]
        )
    )
    far = draw(st.sampled_from([0.0, 50.0, 5e3]))
    return Body(side_x, side_y, tuple(slabs), package, 300.0, far), nx, ny
