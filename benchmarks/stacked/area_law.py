"""Fit the area law of a stacked chip, and hold it against published counts of units.

    python benchmarks/stacked/area_law.py [--ends]

Two fits, which share nothing:

1. *Figure 15.* DeepStack (arXiv:2604.04750) says two things of the bandwidth that a device can use with all layers
   connected, over its grid of buffers and ports: it is largest at 9 layers, and 39.6 % less at 12. The first limit is
   the layers' own rate, and then what units take of it, each as much as its port and its buffer allow at the best point
   of the grid. So both statements together are

       units(12) / units(9) = 1 - 0.396226      rate of a layer = units(9) x rate of a unit / 9

   which give the area of a layer with its connections, as a share of what the network leaves of the die, and the rate
   of a layer. All else is as the technology ``stacked`` assumes. These two figures are those of its file.

2. *Counts.* ``tile_counts.csv`` has the units of 60 published designs, rounded down (tile-ai/DeepStack, 8ed05cc4,
   data/fig18_20 and data/fig22, Apache-2.0). Each is two rows that are linear in the areas, so a linear program finds
   the areas that leave the most room to all rows, in bare units.

The table says how many of the counts each of the two meets, and how many within one unit.

``--ends`` fits figure 15 again at both ends of the range of every constant, one at a time (``ranges.yaml``). Both
statements can always be met while layers and network leave area, as the rate of a unit does not depend on the layers.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import yaml
from scipy.optimize import linprog

from dfopt.documents.design import Design
from dfopt.documents.dram_layers import DramLayers
from dfopt.documents.technology import Technology
from dfopt.library import as_design
from dfopt.technology.layered import AreaLaw, Point, network_mm2, usable

PEAK_LAYERS: Final = 9  # figure 15: fig15_bandwidth_peak_layer_all_connected of its data
LAST_LAYERS: Final = 12  # the most of its axis
DROP: Final = 0.396226  # fig15_drop_at_12_layers_pct: 39.6226 % less than at the peak
GRID: Final = [(buffer * 2**10, port) for buffer in (128, 512) for port in (128, 256, 1024)]  # of figure 15
SPLIT: Final = 0.6  # part of a connected layer's area that each layer takes; an assumption, 0 to 0.8
COUNTS: Final = Path(__file__).with_name("tile_counts.csv")
RANGES: Final = Path(__file__).with_name("ranges.yaml")
AREAS: Final = ("die", "layer", "connection", "buffer", "port", "L1", "L2", "L3")
_BUFFER, _PORT = 256 * 2**10, 256  # to which the areas of buffers and ports refer

Row = Mapping[str, float]


class End(NamedTuple):
    """A design whose technology meets figure 15 with one constant at an end of its range; none where none does."""

    name: str
    end: Literal["least", "most"]
    value: float
    design: Design | None

    @property
    def technology(self) -> Technology | None:
        """The technology of the design."""
        return self.design and self.design.technology


def fit_figure_15(
    technology: Technology, die_mm2: float, network_mm2: float, split: float = SPLIT
) -> tuple[float, float, float]:
    """mm2 of a layer and of a connection, and B/s of a connected layer, that meet the two statements."""
    law, part = AreaLaw.of(technology, die_mm2), technology.layers
    assert part is not None
    both = (law.die - network_mm2) * DROP / (LAST_LAYERS - (1 - DROP) * PEAK_LAYERS)
    layer, connection = split * both, (1 - split) * both
    fitted = replace(law, layer=layer, connection=connection)
    boundless = part.model_copy(update={"frequency": 1e30})  # so that units alone are the limit
    rate = _most(fitted, boundless, technology.core.frequency, network_mm2, PEAK_LAYERS)
    return layer, connection, rate / PEAK_LAYERS


def usable_of(technology: Technology, die_mm2: float, network_mm2: float, layers: int) -> float:
    """The most bandwidth over the grid, in B/s, with so many layers, all connected."""
    assert technology.layers is not None
    law = AreaLaw.of(technology, die_mm2)
    return _most(law, technology.layers, technology.core.frequency, network_mm2, layers)


def _most(law: AreaLaw, part: DramLayers, frequency: float, network_mm2: float, layers: int) -> float:
    points = [Point(layers, layers, buffer, port, network_mm2) for buffer, port in GRID]
    return max(float(usable(part, at, law.units(at), frequency)[0]) for at in points)


def network_of(design: Design) -> float:
    """mm2 that the network of a design takes of the logic die."""
    assert design.sizes is not None
    return float(Point.of(design.sizes, design.technology).network_mm2)


def refitted(design: Design, split: float = SPLIT) -> Design | None:
    """A design with the fitted figures of its technology anew; none where they do not meet both statements."""
    die, network, part = design.budgets.chip_area_mm2, network_of(design), design.technology.layers
    assert part is not None
    if network >= die:
        return None
    layer, connection, rate = fit_figure_15(design.technology, die, network, split)
    figures = {
        "area_mm2": layer,
        "keep_out": connection / part.connection_mm2 * part.keep_out,
        "frequency": rate / part.rate * part.frequency,
    }
    technology = design.technology.model_copy(update={"layers": part.model_copy(update=figures)})
    usable_s = [usable_of(technology, die, network, at) for at in range(1, LAST_LAYERS + 1)]
    peak = usable_s[PEAK_LAYERS - 1]
    met = peak >= max(usable_s) * (1 - 1e-9) and math.isclose(usable_s[-1], (1 - DROP) * peak, rel_tol=1e-9)
    return (
        Design.from_data(design.model_copy(update={"technology": technology}).to_data(), design.name) if met else None
    )


def ends() -> Iterator[End]:
    """The design ``stacked-256`` with figure 15 met at both ends of every range, one constant at a time."""
    design = as_design("stacked-256")
    for section, constants in yaml.safe_load(RANGES.read_text(encoding="utf-8")).items():
        of = "technology." if section == "technology" else ""
        for name, given in constants.items():
            for end in ("least", "most"):
                value = given[end]
                if name == "layers.area_mm2":  # of which the range is that of the split
                    yield End(name, end, value, refitted(design, value))
                    continue
                moved: Any = design
                for path in given.get("scales", [name]):
                    moved = _scaled(moved, f"{of}{path}", value / given["of"])
                yield End(name, end, value, refitted(moved))


def _scaled(of: Any, path: str, factor: float) -> Any:
    """A part of a document with one number in it, or all of a table, times a factor."""
    first, _, rest = path.partition(".")
    if not path:
        return {name: value * factor for name, value in of.items()} if isinstance(of, dict) else of * factor
    if isinstance(of, dict):
        return {**of, first: _scaled(of[first], rest, factor)}
    return of.model_copy(update={first: _scaled(getattr(of, first), rest, factor)})


def published() -> list[Row]:
    """The 60 designs with their units."""
    with COUNTS.open(encoding="utf-8") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def _coefficients(row: Row) -> list[float]:
    """What each area is multiplied with in ``left - units x unit``, without the ones of die and bare unit."""
    units, networks = row["tiles"], [1 - row[f"l{level}_network_x"] for level in (1, 2, 3)]
    buffer, port = row["buffer_KiB"] * 2**10 / _BUFFER, row["l1_bytes_per_cycle"] / _PORT
    return [1.0, -row["total_layers"], -row["connected_layers"], -units * buffer, -units * port, *networks]


def fit_counts(rows: Sequence[Row]) -> dict[str, float]:
    """Areas in bare units with which every count is met with the most room, or missed by the least."""
    most, bounds = [], []
    for row in rows:
        exact = np.array(_coefficients(row))
        above = exact.copy()
        above[3:5] *= (row["tiles"] + 1) / row["tiles"]
        # left - n unit >= room, and left - (n + 1) unit <= -room
        most += [[*-exact, 1.0], [*above, 1.0]]
        bounds += [-row["tiles"], row["tiles"] + 1]
    limits = [(0, None)] * len(AREAS) + [(None, None)]
    found = linprog([0.0] * len(AREAS) + [-1.0], A_ub=most, b_ub=bounds, bounds=limits, method="highs")
    return dict(zip((*AREAS, "room"), found.x.tolist(), strict=True))


def units_of(areas: Mapping[str, float], row: Row) -> float:
    """Units by areas in bare units."""
    law = AreaLaw(
        areas["die"], 1.0, areas["buffer"] / (8 * _BUFFER), areas["port"] / _PORT, areas["layer"], areas["connection"]
    )
    network = sum((row[f"l{level}_network_x"] - 1) * areas[f"L{level}"] for level in (1, 2, 3))
    at = Point(
        row["total_layers"], row["connected_layers"], row["buffer_KiB"] * 2**10, row["l1_bytes_per_cycle"], network
    )
    return float(law.units(at))


def met(units: Callable[[Row], float], rows: Sequence[Row]) -> tuple[int, int]:
    """How many counts are equal, rounded down, and how many within one."""
    off = [abs(math.floor(units(row) + 1e-9) - row["tiles"]) for row in rows]
    return sum(one == 0 for one in off), sum(one <= 1 for one in off)


def print_ends() -> None:
    """Print the fit at both ends of every range, and which constants do not change it."""
    every = list(ends())
    centre, same = _fitted(refitted(as_design("stacked-256"))), Counter[str]()
    print(f"{'constant':31} {'at':>8} {'layer, mm2':>11} {'connection, mm2':>16} {'rate of a layer, GB/s':>22}")
    for name, value, figures in [
        ("as in the file", "", centre),
        *((e.name, e.value, _fitted(e.design)) for e in every),
    ]:
        if value != "" and figures is not None and np.allclose(figures, centre, rtol=1e-9):
            same[name] += 1
            continue
        words = "no fit" if figures is None else "{:11.4f} {:16.4f} {:22.1f}".format(*figures)
        print(f"{name:31} {value:>8} {words}")
    print(f"as in the file at both ends: {', '.join(name for name, count in same.items() if count > 1)}")
    print(f"both statements are met in {sum(each.design is not None for each in every)} of {len(every)} fits")


def _fitted(design: Design | None) -> tuple[float, float, float] | None:
    if design is None:
        return None
    part = design.technology.layers
    assert part is not None
    return part.area_mm2, part.connection_mm2, part.rate / 1e9


def main() -> None:
    """Print both fits and what they meet; or the fit at the ends of ranges."""
    parser = argparse.ArgumentParser(description="Fit the area law of a stacked chip.")
    parser.add_argument("--ends", action="store_true", help="fit figure 15 at both ends of every range")
    if parser.parse_args().ends:
        print_ends()
        return
    design = as_design("stacked-256")
    technology, die = design.technology, design.budgets.chip_area_mm2
    assert design.sizes is not None and technology.layers is not None
    law, start = AreaLaw.of(technology, die), Point.of(design.sizes, technology)
    layer, connection, rate = fit_figure_15(technology, die, start.network_mm2)
    part = technology.layers
    keep_out = connection / part.connection_mm2 * part.keep_out
    clock = rate / part.rate * part.frequency / 1e9
    print("Figure 15                    fitted     in the technology")
    print(f"layers.area_mm2              {layer:.4f}     {part.area_mm2:.4f}")
    print(f"layers.keep_out              {keep_out:.3f}     {part.keep_out:.3f}")
    print(f"layers.frequency, GHz        {clock:.4f}     {part.frequency / 1e9:.4f}")
    usable_s = {at: usable_of(technology, die, start.network_mm2, at) for at in range(1, LAST_LAYERS + 1)}
    peak = max(usable_s, key=lambda at: usable_s[at])
    print(f"usable bandwidth peaks at {peak} layers; at 12 it is {1 - usable_s[LAST_LAYERS] / usable_s[peak]:.2%} less")

    rows = published()
    areas = fit_counts(rows)
    words = ", ".join(f"{name} {areas[name]:.3f}" for name in AREAS)
    print(f"\nCounts, in bare units: {words}; room {areas['room']:.3f} units")
    by_file = dict(zip(AREAS, _in_units(technology, law, start), strict=True))
    print("\nareas of                     equal   within one   of")
    for name, given in (("counts", areas), ("the technology", by_file)):
        equal, close = met(lambda row, given=given: units_of(given, row), rows)  # type: ignore[misc]
        print(f"{name:27} {equal:6} {close:12} {len(rows):4}")


def _in_units(technology: Technology, law: AreaLaw, start: Point) -> list[float]:
    """The areas of the technology as those of the counts: in bare units, the network of the start taken off the die."""
    design = as_design("stacked-256")
    assert design.sizes is not None
    roles = ("in_package", "between_packages", "between_nodes")
    networks = [network_mm2(technology.links[role], design.sizes.rate[role]) for role in roles]  # type: ignore[index]
    mm2 = [
        law.die - start.network_mm2, law.layer, law.connection, _BUFFER * 8 * law.bit, _PORT * law.port, *networks
    ]  # fmt: skip
    return [float(one) / law.unit for one in mm2]


if __name__ == "__main__":
    main()
