"""Solve thermal reference cases of die stacks and compare with what HotSpot and 3D-ICE printed for them.

    python benchmarks/reference/thermal.py DIR [--json OUT] [--base DIR]

DIR may hold any of these, and each may hold any of its cases:

    hotspot_cases.json               hotspot_results.csv hotspot_blocks.csv hotspot_summary.csv
                                     hotspot_grid_refinement.csv package_plate_fv.csv hotspot_solver_checks.csv
    threedice_cases.json             threedice_results.csv threedice_blocks.csv threedice_summary.csv
    threedice_transient_cases.json   threedice_transient.csv

One row per layer or tile and quantity (T_max, T_mean, T_min; Celsius). A case without reported figures is solved all
the same; its rows have none. The stack of a transient is looked up in DIR, then in ``--base``. ``package_plate_fv.csv``
is no independent tool (plates meshed in another way) and is reported without a limit.

Exit code 0, 1 if a case or a file raised an error, 3 if DIR holds no case file.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from dfopt.errors import DfoptError, json_path, shown
from dfopt.physics.thermal import (
    Body,
    Field,
    HotspotPackage,
    HtcPackage,
    PlatesPackage,
    PowerMap,
    Rect,
    Slab,
    ThermalModel,
    rasterise,
)  # fmt: skip

ZERO_C = 273.15
BASE = Path(__file__).resolve().parents[3] / "shared" / "reference" / "thermal"
BALANCE = 1e-6  # relative: heat into ambient against power
PLATES = ("spreader", "sink")
# kelvin, per group; None is reported only
LIMITS: dict[str, float | None] = {
    "hotspot layers": 0.05,
    "hotspot tiles": 0.05,
    "hotspot grids": 0.05,
    "hotspot column": 0.05,
    "hotspot plates": None,
    "column, analytic": 1e-6,
    "htc layers": 0.05,
    "htc tiles": 0.05,
    "transient": 0.1,
}
QUANTITIES = ("T_max", "T_mean", "T_min")

# The one-dimensional column: its inputs stand in the README of the reference data, not in a file.
COLUMN_POWER, COLUMN_SIDE, COLUMN_AMBIENT = 100.0, 0.016, 318.15  # W, m, K
COLUMN = Body(
    COLUMN_SIDE, COLUMN_SIDE, (Slab("logic", 150e-6, 100.0, 1.75e6), Slab("tim", 20e-6, 4.0, 4e6)),
    HotspotPackage(r_convec=0.3, s_sink=0.016 + 1e-9, t_sink=6.9e-3, s_spreader=0.016 + 1e-9, t_spreader=1e-3),
    COLUMN_AMBIENT,
)  # fmt: skip

Row = dict[str, Any]
Figures = dict[tuple[str, ...], dict[str, float]]  # (case, layer or place) -> quantity -> value


class Broken(Exception):
    """A file or a case that does not say what it must."""


def need(data: Any, key: str | int, kind: type | tuple[type, ...], where: str) -> Any:
    """``data[key]`` of a kind, or `Broken` with the path."""
    here = where + json_path(key)[1:]
    try:
        found = data[key]
    except (KeyError, IndexError, TypeError):
        raise Broken(f"{here}: missing, expected {_name(kind)}") from None
    wrong = isinstance(found, bool) and kind is not bool
    if wrong or not isinstance(found, kind):
        raise Broken(f"{here}: found {shown(found)}, expected {_name(kind)}")
    return found


def _name(kind: type | tuple[type, ...]) -> str:
    names = {dict: "a mapping", list: "a list", str: "a text", bool: "true or false", int: "a number"}
    return names[kind[0] if isinstance(kind, tuple) else kind]


NUMBER = (int, float)


@dataclass(frozen=True)
class Case:
    """One stack with its power."""

    id: str
    body: Body
    tiles: dict[str, tuple[list[Rect], list[float], int]]  # of each powered layer: tiles, watts, tiles per side
    grid: tuple[int, int]

    def power(self, grid: tuple[int, int]) -> dict[str, Any]:
        """Watts per cell of each powered layer."""
        sides = self.body.side_x, self.body.side_y
        return {name: rasterise(rects, watts, *grid, *sides) for name, (rects, watts, _) in self.tiles.items()}

    @property
    def watts(self) -> float:
        """All of it."""
        return sum(sum(watts) for _, watts, _ in self.tiles.values())


def grid_of(text: str, case: str, where: str) -> tuple[int, int]:
    """The cells of a case from a sentence such as '40x40 over the die (32x32 for I15)'."""
    pair = r"(\d+)\s*[x*]\s*(\d+)"
    general = re.search(pair, re.sub(r"\([^)]*\)", "", text))
    for nx, ny, cases in re.findall(pair + r"\s+for\s+([^;)]*)", text):
        if case in re.findall(r"\w+", cases):
            return int(nx), int(ny)
    if general is None:
        raise Broken(f"{where}: found {shown(text)}, expected the cells over the die such as '32x32'")
    return int(general[1]), int(general[2])


def layer_of(data: Any, side: float, where: str) -> tuple[Slab, tuple[list[Rect], list[float], int] | None]:
    """A slab of a case file, and its tiles if it is powered."""
    thickness, k, cv = (float(need(data, key, NUMBER, where)) for key in ("t_m", "k_W_per_mK", "cv_J_per_m3K"))
    source = data.get("source_slab_t_m")
    if source is not None:
        source = float(need(data, "source_slab_t_m", NUMBER, where))
    slab = Slab(need(data, "name", str, where), thickness, k, cv, source)
    if not need(data, "power", bool, where):
        return slab, None
    n = need(data, "tiles_per_side", int, where)
    watts = need(data, "p_W", list, where)
    if len(watts) != n * n:
        raise Broken(f"{where}.p_W: found {len(watts)} powers, expected {n * n} for {n} x {n} tiles")
    for i in range(len(watts)):
        need(watts, i, NUMBER, f"{where}.p_W")
    rects = [Rect(i * side / n, j * side / n, side / n, side / n) for j in range(n) for i in range(n)]
    return slab, (rects, [float(w) for w in watts], n)


def case_of(data: Any, where: str, grid: str) -> Case:
    """A case of hotspot_cases.json or threedice_cases.json."""
    name = need(data, "id", str, where)
    side = float(need(data, "die_side_m", NUMBER, where))
    layers = need(data, "layers", list, where)
    read = [layer_of(layer, side, f"{where}.layers[{i}]") for i, layer in enumerate(layers)]
    package: HotspotPackage | HtcPackage
    if "package" in data:
        given = {key: float(need(data["package"], key, NUMBER, f"{where}.package")) for key in data["package"]}
        if "ambient" not in given:
            raise Broken(f"{where}.package.ambient: missing, expected kelvin")
        ambient = given.pop("ambient")
        try:
            package = HotspotPackage(**given)
        except TypeError as error:
            raise Broken(f"{where}.package: {str(error).split('() ')[-1]}") from None
    else:
        package = HtcPackage(float(need(data, "htc_W_per_m2K", NUMBER, where)))
        ambient = float(need(data, "T_fluid_K", NUMBER, where))
    body = Body(side, side, tuple(slab for slab, _ in read), package, ambient)
    tiles = {slab.name: found for slab, found in read if found is not None}
    return Case(name, body, tiles, grid_of(str(data.get("grid", grid)), name, f"{where}.grid"))


# What the rows are made of -----------------------------------------------------------------------------------------


@dataclass
class Run:
    """All that is collected on the way."""

    folder: Path
    base: Path
    rows: list[Row] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    known: dict[str, Figures] = field(default_factory=dict)  # CSV files that were read

    def read_json(self, name: str, folder: Path | None = None) -> Any:
        """A JSON file of the folder; None if absent or broken, the latter with one line."""
        path = (folder or self.folder) / name
        if not path.exists():
            return None
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            self.fail(f"{path}: not readable as JSON: {error}")
            return None

    def read_csv(self, name: str, place: tuple[str, ...], quantities: Mapping[str, str]) -> Figures:
        """Reported figures of a CSV file: by the columns ``place``, quantity -> value of its column."""
        path = self.folder / name
        if name in self.known:
            return self.known[name]
        found = self.known.setdefault(name, {})
        if not path.exists():
            return found
        try:
            with path.open(encoding="utf-8", newline="") as file:
                lines = csv.DictReader(file)
                for number, line in enumerate(lines, 2):
                    missing = [key for key in place if line.get(key) is None]
                    if missing:
                        raise Broken(f"line {number}: no column {missing[0]!r}")
                    here = found.setdefault(tuple(str(line[key]) for key in place), {})
                    for quantity, column in quantities.items():
                        text = line.get(column)
                        if text:
                            value = float(text)
                            if not math.isfinite(value):
                                raise Broken(f"line {number}, {column}: found {text}, expected a finite number")
                            here[quantity] = value
        except (OSError, ValueError, csv.Error, Broken) as error:
            self.fail(f"{path}: {error}")
        return found

    def fail(self, line: str) -> None:
        """One line about something broken."""
        self.failed.append(line)
        print(line, file=sys.stderr)

    def add(
        self, group: str, case: str, quantity: str, ours: float | None, reported: float | None,
        seconds: float = 0.0, status: str = "ok", note: str = "", check: str = "", formulation: str = "",
    ) -> None:  # fmt: skip
        """One row."""
        limit = LIMITS.get(group)
        error = None if ours is None or reported is None else ours - reported
        met = None if error is None or limit is None else abs(error) <= limit
        word = "" if error is None else f"{error:+.4f} K" + ("" if met is not False else f", limit {limit:g} K")
        self.rows.append(
            {
                "case": case, "quantity": quantity, "reported": reported, "ours": ours,
                "ratio": ours / reported if ours is not None and reported else None, "ours_is": word,
                "gap": None, "seconds": round(seconds, 3), "status": status, "note": note,
                "formulation": formulation, "check": check,
                "group": group, "error_K": error, "limit_K": limit, "met": met,
            }
        )  # fmt: skip


@dataclass(frozen=True)
class Solved:
    """A field and how it came about."""

    field: Field
    seconds: float
    solver: str

    @property
    def check(self) -> str:
        """A word about the balance of energy."""
        power = self.field.power_w
        off = abs(self.field.to_ambient_w - power) / abs(power) if power else abs(self.field.to_ambient_w)
        return f"energy balance {off:.1e}" + ("" if off <= BALANCE else f", above {BALANCE:g}")


def solve(body: Body, power: PowerMap, grid: tuple[int, int]) -> Solved:
    """The steady field on a grid."""
    began = time.perf_counter()
    model = ThermalModel(body, *grid)
    field = model.steady(power)
    return Solved(field, time.perf_counter() - began, type(model.solver).__name__.lower())


def figure(field: Field, layer: str, quantity: str) -> float:
    """T_max, T_mean or T_min of a layer, Celsius."""
    kinds = {"T_max": field.max, "T_mean": field.mean, "T_min": field.min}
    return kinds[quantity](layer) - ZERO_C


def add_layers(run: Run, group: str, case: str, layers: Iterable[str], solved: Solved, reported: Figures) -> None:
    """Rows of layers: what is reported, or T_max and T_mean."""
    for layer in layers:
        given = reported.get((case, layer), {})
        for quantity in [q for q in QUANTITIES if q in given] or QUANTITIES[:2]:
            ours = figure(solved.field, layer, quantity)
            where = f"{case}/{layer}"
            run.add(group, where, quantity, ours, given.get(quantity), solved.seconds, check=solved.check,
                    formulation=solved.solver)  # fmt: skip


def add_tiles(run: Run, group: str, case: Case, solved: Solved, reported: Figures, kinds: tuple[str, ...]) -> None:
    """Rows of tiles of every powered layer."""
    for layer, (rects, _, n) in case.tiles.items():
        values = {"T_mean": solved.field.tile_means(layer, rects), "T_max": solved.field.tile_maxima(layer, rects)}
        for index in range(len(rects)):
            x, y = index % n, index // n
            given = reported.get((case.id, layer, str(x), str(y)), {})
            for quantity in [q for q in kinds if q in given] or kinds:
                ours = float(values[quantity][index]) - ZERO_C
                run.add(group, f"{case.id}/{layer}/{x},{y}", quantity, ours, given.get(quantity), solved.seconds,
                        formulation=solved.solver)  # fmt: skip


def add_summary(run: Run, group: str, case: Case, solved: Solved, summary: Figures, layers: Figures) -> None:
    """Rows of a summary that say more than those of the layers: the hottest DRAM, and what no layer row has."""
    given = summary.get((case.id,), {})
    drams = [name for name in case.body.names if name.startswith("dram")]
    if "dram_T_max" in given and drams:
        ours = max(figure(solved.field, name, "T_max") for name in drams)
        run.add(group, f"{case.id}/dram", "T_max", ours, given["dram_T_max"], solved.seconds, check=solved.check)
    for key, value in given.items():
        layer, quantity = key.split("_", 1)
        known = layer in case.body.names or layer in solved.field.plates_k
        if known and quantity not in layers.get((case.id, layer), {}):
            ours = figure(solved.field, layer, quantity)
            run.add(group, f"{case.id}/{layer}", quantity, ours, value, solved.seconds, note="from the summary")


LAYER_COLUMNS = {"T_max": "Tmax_C", "T_mean": "Tmean_C", "T_min": "Tmin_C"}
SUMMARY_COLUMNS = {
    "logic_T_max": "logic_Tmax_C", "logic_T_mean": "logic_Tmean_C", "dram_T_max": "dram_Tmax_C",
    "sink_T_mean": "sink_Tmean_C",
}  # fmt: skip
CHECK_COLUMNS = {"logic/T_max": "logic_Tmax_C", "logic/T_mean": "logic_Tmean_C", "sink/T_mean": "sink_Tmean_C"}
CHECK_PLACE = ("case", "mode", "solver")
TILE_PLACE = ("case", "layer", "tile_ix", "tile_iy")


def cases_of(run: Run, name: str, folder: Path | None = None, only: str = "") -> Iterator[tuple[str, Case | str]]:
    """(id, case) of a case file, or (id, what is wrong with it)."""
    data = run.read_json(name, folder)
    if data is None:
        return
    listed = data.get("cases") if isinstance(data, dict) else None
    if not isinstance(listed, list):
        run.fail(f"{(folder or run.folder) / name}: $.cases: found {shown(listed)}, expected a list of cases")
        return
    for index, each in enumerate(listed):
        where = f"$.cases[{index}]"
        key = str(each.get("id", where)) if isinstance(each, dict) else where
        if only and key != only:
            continue
        try:
            yield key, case_of(each, where, str(data.get("grid", "")))
        except (Broken, DfoptError) as error:
            yield key, one_line(error)


def one_line(error: Exception) -> str:
    """An error as one line."""
    known = isinstance(error, DfoptError | Broken)
    text = " ".join(str(error).split())
    return text if known else f"unexpected {type(error).__name__}: {text}"


def steady(run: Run, kind: str, file: str, prefix: str, extra: Any = None) -> None:
    """All rows of the steady cases of one tool."""
    found = list(cases_of(run, file))
    if not found:
        return
    layers = run.read_csv(f"{prefix}_results.csv", ("case", "layer"), LAYER_COLUMNS)
    blocks = {"T_mean": "T_C" if kind == "hotspot" else "Tavg_C", "T_max": "Tmax_C"}
    tiles = run.read_csv(f"{prefix}_blocks.csv", TILE_PLACE, blocks)
    summary = run.read_csv(f"{prefix}_summary.csv", ("case",), SUMMARY_COLUMNS)
    ids = {name for name, _ in found}
    for figures in (layers, tiles, summary):
        left = sorted({key[0] for key in figures} - ids)
        if left:
            print(f"{file}: no case for the reported figures of {', '.join(left)}", file=sys.stderr)
    for name, case in found:
        try:
            if isinstance(case, str):
                raise Broken(case)
            solved = solve(case.body, case.power(case.grid), case.grid)
            powered = kind != "hotspot"
            shown_layers = [n for n in case.body.names if not powered or n in case.tiles or (name, n) in layers]
            shown_layers += [plate for plate in PLATES if plate in solved.field.plates_k]
            add_layers(run, f"{kind} layers", name, shown_layers, solved, layers)
            unknown = [layer for key, layer in layers if key == name and layer not in shown_layers]
            if unknown:
                raise Broken(f"{prefix}_results.csv names the layer {unknown[0]!r}, which the case does not have")
            add_tiles(run, f"{kind} tiles", case, solved, tiles, ("T_mean",) if not powered else ("T_mean", "T_max"))
            add_summary(run, f"{kind} layers", case, solved, summary, layers)
            if extra is not None:
                extra(run, case, solved)
            print(f"{name}: {solved.check} ({solved.seconds:.2f} s)", file=sys.stderr)
        except Exception as error:  # one broken case must not hide the others
            failed(run, f"{kind} layers", name, error)


def failed(run: Run, group: str, name: str, error: Exception) -> None:
    """The row and the line of a case that raised."""
    run.add(group, name, "T_max", None, None, status="error", note=one_line(error))
    run.fail(f"{name}: error: {one_line(error)}")


def hotspot_extras(run: Run, case: Case, solved: Solved) -> None:
    """Other grids, meshed plates, and the tool's own checks of its solver, of one HotSpot case."""
    for key, value in (
        run.read_csv("hotspot_solver_checks.csv", CHECK_PLACE, CHECK_COLUMNS)
        .get((case.id, "plain", "superlu"), {})
        .items()
    ):
        layer, quantity = key.split("/")
        ours = figure(solved.field, layer, quantity)
        run.add("hotspot layers", f"{case.id}/check/{layer}", quantity, ours, value, solved.seconds)
    columns = {"T_max": "logic_Tmax_C", "T_mean": "logic_Tmean_C"}
    for (name, cells), given in run.read_csv("hotspot_grid_refinement.csv", ("case", "grid"), columns).items():
        if name == case.id:
            grid = int(cells), int(cells)
            solved = solve(case.body, case.power(grid), grid)
            for quantity, value in given.items():
                ours = figure(solved.field, "logic", quantity)
                run.add("hotspot grids", f"{name}/logic/grid {cells}", quantity, ours, value, solved.seconds,
                        check=solved.check, formulation=solved.solver)  # fmt: skip
    columns = {"T_max": "fv_Tmax_C", "T_mean": "fv_Tmean_C"}
    plates = run.read_csv("package_plate_fv.csv", ("case", "layer"), columns)
    if any(name == case.id for name, _ in plates):
        package = case.body.package
        assert isinstance(package, HotspotPackage)
        same = {key: value for key, value in vars(package).items() if key != "c_convec"}
        body = replace(case.body, package=PlatesPackage(**same))
        solved = solve(body, case.power(case.grid), case.grid)
        for (name, layer), given in plates.items():
            for quantity, value in given.items() if name == case.id else ():
                ours = figure(solved.field, layer, quantity)
                rise = ours - (body.ambient_k - ZERO_C)
                note = f"{100 * (ours - value) / rise:+.2f} % of the rise; another mesh, no limit"
                run.add("hotspot plates", f"{name}/plates/{layer}", quantity, ours, value, solved.seconds, note=note,
                        check=solved.check, formulation=solved.solver)  # fmt: skip


def column(run: Run) -> None:
    """The one-dimensional column, if the checks of the tool are there: against the tool and against the sum by hand."""
    checks = run.read_csv("hotspot_solver_checks.csv", CHECK_PLACE, CHECK_COLUMNS)
    left = sum(key[1:] != ("plain", "superlu") for key in checks)
    if left:
        print(
            f"hotspot_solver_checks.csv: {left} rows not compared: modes that are wrong or stop early", file=sys.stderr
        )
    given = checks.get(("C1D", "plain", "superlu"))
    if given is None:
        return
    package, area = COLUMN.package, COLUMN_SIDE**2
    assert isinstance(package, HotspotPackage)
    through = sum(float(s.thickness_m) / float(s.conductivity) for s in COLUMN.slabs)
    through += package.t_spreader / package.k_spreader + package.t_sink / package.k_sink
    # the plates are 1 nm wider than the die, which takes 1e-7 of the convection: it is what the area ratio says
    analytic = COLUMN_AMBIENT + COLUMN_POWER * (through / area + package.r_convec) - ZERO_C
    grid = 16, 16
    solved = solve(COLUMN, {"logic": np.full(grid, COLUMN_POWER / 256)}, grid)
    for key, value in given.items():
        layer, quantity = key.split("/")
        run.add("hotspot column", f"C1D/{layer}", quantity, figure(solved.field, layer, quantity), value,
                solved.seconds, check=solved.check, formulation=solved.solver)  # fmt: skip
    die = replace(COLUMN, package=replace(package, s_sink=COLUMN_SIDE, s_spreader=COLUMN_SIDE))
    solved = solve(die, {"logic": np.full(grid, COLUMN_POWER / 256)}, grid)
    run.add("column, analytic", "C1D/analytic", "T_max", figure(solved.field, "logic", "T_max"), analytic,
            solved.seconds, check=solved.check, formulation=solved.solver)  # fmt: skip


def transient(run: Run) -> None:
    """All rows of the transient cases."""
    data = run.read_json("threedice_transient_cases.json")
    if data is None:
        return
    if not isinstance(data, dict):
        run.fail(f"threedice_transient_cases.json: $: found {shown(data)}, expected a mapping of cases")
        return
    reported = run.read_csv("threedice_transient.csv", ("case", "layer", "t_s"), LAYER_COLUMNS)
    for name, each in data.items():
        try:
            one_transient(run, name, each, {key[1:]: value for key, value in reported.items() if key[0] == name})
        except Exception as error:  # one broken case must not hide the others
            failed(run, "transient", name, error)


def one_transient(run: Run, name: str, data: Any, reported: dict[tuple[str, ...], dict[str, float]]) -> None:
    """The rows of one transient: T_max and T_mean at the end of each slot."""
    where = json_path(name)
    wanted = need(data, "base_case", str, where)
    case: Case | str | None = None
    for folder in (run.folder, run.base):
        case = case or next((c for _, c in cases_of(run, "threedice_cases.json", folder, only=wanted)), None)
    if case is None:
        raise Broken(f"{where}.base_case: {wanted!r} is neither in {run.folder} nor in {run.base}; give --base DIR")
    if isinstance(case, str):
        raise Broken(f"{where}.base_case: {case}")
    step, slot = (float(need(data, key, NUMBER, where)) for key in ("step_s", "slot_s"))
    if not (0 < step <= slot < math.inf) or abs(slot / step - round(slot / step)) > 1e-6:
        raise Broken(f"{where}: found step_s {step:g} and slot_s {slot:g}, expected whole steps in a slot")
    if data.get("initial", "T_fluid") != "T_fluid":
        raise Broken(f"{where}.initial: found {shown(data['initial'])}, expected 'T_fluid'")
    scales = need(data, "power_scale_per_slot", list, where)
    for index in range(len(scales)):
        need(scales, index, NUMBER, f"{where}.power_scale_per_slot")
    grid, per_slot = grid_of(str(data.get("grid", "")), name, f"{where}.grid"), round(slot / step)
    full = case.power(grid)
    maps = {scale: {layer: scale * watts for layer, watts in full.items()} for scale in set(scales)}
    began = time.perf_counter()
    model = ThermalModel(case.body, *grid)
    found = model.transient([maps[scale] for scale in scales for _ in range(per_slot)], step)
    seconds = time.perf_counter() - began
    ends = slice(per_slot - 1, None, per_slot)
    times = {float(t): t for _, t in reported}
    solver = type(model.step_solver(step)).__name__.lower()
    for layer in dict.fromkeys([*case.tiles, *(layer for layer, _ in reported)]):
        values = {"T_max": found.max(layer)[ends], "T_mean": found.mean(layer)[ends]}
        for index in range(len(scales)):
            t = next((text for at, text in times.items() if abs(at - (index + 1) * slot) < slot / 2), None)
            t = t or f"{(index + 1) * slot:.4f}"
            given = reported.get((layer, t), {})
            for quantity, series in values.items():
                run.add("transient", f"{name}/{layer}/{t}", quantity, float(series[index]) - ZERO_C,
                        given.get(quantity), seconds, formulation=solver)  # fmt: skip
    print(f"{name}: {len(scales) * per_slot} steps ({seconds:.2f} s)", file=sys.stderr)


def table(rows: list[Row]) -> Table:
    """Each group in one line."""
    found = Table(title="Thermal reference: reported against ours", show_edge=False)
    for name in ("group", "cases", "rows", "compared", "max error K", "at", "limit K", "met", "errors"):
        found.add_column(name, justify="left" if name in ("group", "at", "met") else "right", no_wrap=True)
    for group, limit in LIMITS.items():
        mine = [row for row in rows if row["group"] == group]
        if not mine:
            continue
        compared = [row for row in mine if row["error_K"] is not None]
        worst = max(compared, key=lambda row: abs(row["error_K"]), default=None)
        errors = sum(row["status"] == "error" for row in mine)
        met = "-" if limit is None or worst is None else "yes" if all(row["met"] for row in compared) else "NO"
        where = f"{worst['case']} {worst['quantity']}" if worst else "-"
        error = f"{abs(worst['error_K']):.3g}" if worst else "-"
        cases = len({row["case"].split("/")[0] for row in mine})
        found.add_row(group, str(cases), str(len(mine)), str(len(compared)), error, where,
                      "-" if limit is None else f"{limit:g}", met, str(errors))  # fmt: skip
    return found


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the rows as JSON")
    parser.add_argument("--base", type=Path, default=BASE, metavar="DIR", help="where base cases of transients are too")
    options = parser.parse_args()
    files = ("hotspot_cases.json", "threedice_cases.json", "threedice_transient_cases.json")
    if not any((options.folder / name).is_file() for name in (*files, "hotspot_solver_checks.csv")):
        print(f"{options.folder}: no case file found, expected one of {', '.join(files)}", file=sys.stderr)
        return 3
    run = Run(options.folder, options.base)
    steady(run, "hotspot", "hotspot_cases.json", "hotspot", hotspot_extras)
    steady(run, "htc", "threedice_cases.json", "threedice")
    transient(run)
    column(run)
    broken = [row for row in run.rows if "above" in row["check"]]
    if broken:
        run.fail(f"{broken[0]['case']}: {broken[0]['check']}")
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table(run.rows))
    if options.json:
        options.json.write_text(json.dumps(run.rows, indent=1) + "\n", encoding="utf-8")
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
