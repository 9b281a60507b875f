"""Time the thermal solver on a stack of DRAM dies: ``python benchmarks/speed/thermal.py [--drams 8] [--cells 32]``.

Per package: nodes of the network, seconds to build it, to factorise it with the first field, for another field, for 100
transient steps (factorisation apart), for the responses to 16 tiles on every die, and for a product with them. Also
what a finer mesh of the plates changes. Seconds are of the CPU; set ``OMP_NUM_THREADS=1`` for those of one core.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "reference"))  # fields are not part of dfopt

from thermal_fields import Rect, ThermalModel, sink_package

from dfopt.documents.stack_parts import HtcPackage, SinkPackage
from dfopt.technology.thermal import sheets
from dfopt.technology.thermal.responses import responses
from dfopt.technology.thermal.types import Body, Slab

SIDE = 0.01
SIZES: dict[str, float] = {"s_sink": 0.06, "t_sink": 6.9e-3, "s_spreader": 0.03, "t_spreader": 1e-3}


def stack(package: HtcPackage | SinkPackage, drams: int, source: float | None) -> Body:
    """Logic at the far face, DRAM dies on hybrid bonds, a thermal interface."""
    slabs = [Slab("logic", 1e-4, 120.0, 1.75e6, source)]
    for i in range(drams):
        slabs += [Slab(f"bond{i}", 5e-6, 4.0, 2.2e6), Slab(f"dram{i}", 5e-5, 120.0, 1.75e6, source)]
    return Body(SIDE, SIDE, (*slabs, Slab("tim", 3e-5, 5.0, 4e6)), package, 318.15)


def seconds(call: Callable[[], object], rounds: int = 1) -> float:
    """The quickest of some rounds, in CPU time: other work on the machine does not count."""
    found = []
    for _ in range(rounds):
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return min(found)


def row_of(name: str, body: Body, cells: int) -> list[str]:
    """One line of the table."""
    power = {"logic": np.full((cells, cells), 60.0 / cells**2)}
    build = seconds(lambda: ThermalModel(body, cells, cells))
    model = ThermalModel(body, cells, cells)
    first = seconds(lambda: model.steady(power))
    again = seconds(lambda: model.steady(power), 5)
    model.transient([power], 1e-3)  # factorises for this step
    steps = seconds(lambda: model.transient([power] * 100, 1e-3))
    quarter = SIDE / 4
    rects = [Rect(i * quarter, j * quarter, quarter, quarter) for j in range(4) for i in range(4)]
    tiles = [(slab, rect) for slab in body.names if slab.startswith(("logic", "dram")) for rect in rects]
    matrix = seconds(lambda: responses(body, cells, cells, tiles))
    rises, watts = responses(body, cells, cells, tiles), np.ones(len(tiles))
    product = seconds(lambda: watts @ rises.reshape(len(tiles), -1), 20)
    solver = type(model.solver).__name__
    times = (build, first, again, steps, matrix)
    return [name, solver, f"{model.network.nodes:,}", *(f"{t:.4f}" for t in times), str(len(tiles)), f"{product:.1e}"]


def mesh_rows(drams: int, cells: int) -> list[list[str]]:
    """The hottest cell of 60 W under meshed plates, for several meshes of them."""
    rows = []
    power = {"logic": np.full((cells, cells), 60.0 / cells**2)}
    kept = sheets.GROWTH, sheets.SPREADER_CELLS, sheets.SINK_CELLS
    package = sink_package("plates", r_convec=0.2, **SIZES)
    for mesh in ((1.4, 1, 1), (1.4, 1, 3), (1.2, 1, 3), (1.4, 2, 6)):
        sheets.GROWTH, sheets.SPREADER_CELLS, sheets.SINK_CELLS = mesh  # type: ignore[misc]
        field = ThermalModel(stack(package, drams, None), cells, cells).steady(power)
        rows.append([*map(str, mesh), f"{field.max('logic') - 273.15:.3f}"])
    sheets.GROWTH, sheets.SPREADER_CELLS, sheets.SINK_CELLS = kept  # type: ignore[misc]
    return rows


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drams", type=int, default=8)
    parser.add_argument("--cells", type=int, default=32, help="over each side of the die")
    options = parser.parse_args()
    packages: dict[str, HtcPackage | SinkPackage] = {
        "htc": HtcPackage(mode="htc", htc_w_per_m2k=5e4),
        "hotspot": sink_package(r_convec=0.2, **SIZES),
        "plates": sink_package("plates", r_convec=0.2, **SIZES),
    }
    table = Table(
        title=f"{options.drams} DRAM dies, {options.cells} x {options.cells} cells; CPU seconds", show_edge=False
    )
    for column in (
        "package",
        "solver",
        "nodes",
        "build",
        "first field",
        "field",
        "100 steps",
        "matrix",
        "tiles",
        "T=RP",
    ):
        table.add_column(column, justify="right")
    for name, package in packages.items():
        table.add_row(*row_of(name, stack(package, options.drams, None), options.cells))
    for name in ("htc", "plates"):
        body = stack(packages[name], options.drams, 2e-6)
        table.add_row(*row_of(f"{name}, 2 um sources", body, options.cells))
    five = stack(packages["htc"], 5, None)  # 12 slabs
    table.add_row(*row_of("htc, 12 slabs, 64 x 64", five, 64))
    meshes = Table(title="mesh of the plates", show_edge=False)
    for column in ("growth", "spreader cells", "sink cells", "hottest C"):
        meshes.add_column(column, justify="right")
    for row in mesh_rows(options.drams, options.cells):
        meshes.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table, meshes, sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
