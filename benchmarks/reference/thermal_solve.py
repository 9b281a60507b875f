"""Solve thermal reference cases: steady stacks, other grids and packages of them, the column, and transients."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from thermal_cases import Broken, Case, pulse_of
from thermal_fields import Field, PowerMap, ThermalModel, sink_package
from thermal_rows import Figures, Run

from dfopt.documents.stack_parts import SinkPackage
from dfopt.errors import json_path, shown
from dfopt.technology.thermal.types import Body, Slab

__all__ = ["column", "hotspot_extras", "steady", "transient"]

ZERO_C = 273.15
BALANCE = 1e-6  # relative: heat into ambient against power
PLATES = ("spreader", "sink")
QUANTITIES = ("T_max", "T_mean")
TRANSIENT = "threedice_transient_cases.json"

LAYER_COLUMNS = {"T_max": "Tmax_C", "T_mean": "Tmean_C"}
SUMMARY_COLUMNS = {
    "logic_T_max": "logic_Tmax_C", "logic_T_mean": "logic_Tmean_C", "dram_T_max": "dram_Tmax_C",
    "sink_T_mean": "sink_Tmean_C",
}  # fmt: skip
CHECK_COLUMNS = {"logic/T_max": "logic_Tmax_C", "logic/T_mean": "logic_Tmean_C", "sink/T_mean": "sink_Tmean_C"}
CHECK_PLACE = ("case", "mode", "solver")
TILE_PLACE = ("case", "layer", "tile_ix", "tile_iy")

# The one-dimensional column: its inputs stand in the README of the reference data, not in a file.
COLUMN_ID, COLUMN_POWER, COLUMN_SIDE, COLUMN_AMBIENT = "C1D", 100.0, 0.016, 318.15  # W, m, K
COLUMN = Body(
    COLUMN_SIDE, COLUMN_SIDE, (Slab("logic", 150e-6, 100.0, 1.75e6), Slab("tim", 20e-6, 4.0, 4e6)),
    sink_package(r_convec=0.3, s_sink=0.016 + 1e-9, t_sink=6.9e-3, s_spreader=0.016 + 1e-9, t_spreader=1e-3),
    COLUMN_AMBIENT,
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
    """T_max or T_mean of a layer, Celsius."""
    return {"T_max": field.max, "T_mean": field.mean}[quantity](layer) - ZERO_C


# Steady cases ------------------------------------------------------------------------------------------------------


def steady(run: Run, kind: str, prefix: str, extra: Callable[[Run, Case, Solved], None] | None = None) -> None:
    """All rows of the steady cases of one tool; a reported case that DIR does not describe is looked up in the base."""
    file = f"{prefix}_cases.json"
    found = run.cases(file, run.folder)
    layers = run.read_csv(f"{prefix}_results.csv", ("case", "layer"), LAYER_COLUMNS)
    blocks = {"T_mean": "T_C" if kind == "hotspot" else "Tavg_C", "T_max": "Tmax_C"}
    tiles = run.read_csv(f"{prefix}_blocks.csv", TILE_PLACE, blocks)
    summary = run.read_csv(f"{prefix}_summary.csv", ("case",), SUMMARY_COLUMNS)
    for (name,), figures in summary.items():  # what the results leave out
        for key, value in figures.items():
            layer, quantity = key.split("_", 1)
            if layer != "dram":
                layers.setdefault((name, layer), {}).setdefault(quantity, value)
    reported = dict.fromkeys(key[0] for figures in (layers, tiles, summary) for key in figures)
    if extra is not None and not (run.folder / file).exists():
        others = [read(run) for read in (solver_checks, finer_grids, meshed_plates)]
        reported |= dict.fromkeys(key[0] for figures in others for key in figures if key[0] != COLUMN_ID)
    from_base(run, f"{kind} layers", [name for name in reported if name not in found], file, found)
    for name, case in found.items():
        try:
            if isinstance(case, str):
                raise Broken(case)
            solved = solve(case.body, case.power(case.grid), case.grid)
            known = [*case.body.names, *(plate for plate in PLATES if plate in solved.field.plates_k)]
            shown_layers = [n for n in known if kind == "hotspot" or n in case.tiles or (name, n) in layers]
            add_layers(run, f"{kind} layers", case, shown_layers, solved, layers)
            add_tiles(run, f"{kind} tiles", case, solved, tiles, QUANTITIES[kind == "hotspot" :])
            add_summary(run, f"{kind} layers", case, solved, summary)
            for key in layers:
                if key[0] == name and key[1] not in known:
                    word = f"{prefix}_results.csv names the layer {key[1]!r}, which the case does not have"
                    run.error(f"{kind} layers", "/".join(key), Broken(word))
            if extra is not None:
                extra(run, case, solved)
            print(f"{name}: {solved.check} ({solved.seconds:.2f} s)", file=sys.stderr)
        except Exception as error:  # one broken case must not hide the others
            run.error(f"{kind} layers", name, error)


def from_base(run: Run, group: str, names: Iterable[str], file: str, found: dict[str, Any]) -> None:
    """Add what the base has of these cases; the others are ``unsupported``."""
    for name in names:
        known = run.read_json(run.base / file) if file == TRANSIENT else run.cases(file, run.base)
        if isinstance(known, dict) and name in known:
            found[name] = known[name]
            print(f"{name}: taken from {run.base / file}", file=sys.stderr)
        else:
            word = f"reported, but no case in {file} of {run.folder} or {run.base}"
            run.add(group, name, "T_max", None, None, status="unsupported", note=word)


def add_layers(run: Run, group: str, case: Case, layers: Iterable[str], solved: Solved, reported: Figures) -> None:
    """Rows of layers."""
    for layer in layers:
        given = reported.get((case.id, layer), {})
        for quantity in QUANTITIES:
            ours = figure(solved.field, layer, quantity)
            run.add(group, f"{case.id}/{layer}", quantity, ours, given.get(quantity), solved.seconds, note=case.note,
                    check=solved.check, formulation=solved.solver)  # fmt: skip


def add_tiles(run: Run, group: str, case: Case, solved: Solved, reported: Figures, kinds: tuple[str, ...]) -> None:
    """Rows of tiles of every powered layer; what is reported of others is an error."""
    left = {key: None for key in reported if key[0] == case.id}
    for layer, (rects, _, n) in case.tiles.items():
        values = {"T_max": solved.field.tile_maxima(layer, rects), "T_mean": solved.field.tile_means(layer, rects)}
        for index in range(len(rects)):
            place = (case.id, layer, str(index % n), str(index // n))
            left.pop(place, None)
            given = reported.get(place, {})
            for quantity in [q for q in QUANTITIES if q in kinds or q in given]:
                ours = float(values[quantity][index]) - ZERO_C
                run.add(group, f"{case.id}/{layer}/{place[2]},{place[3]}", quantity, ours, given.get(quantity),
                        solved.seconds, note=case.note, check=solved.check, formulation=solved.solver)  # fmt: skip
    for _, layer, x, y in left:
        word = f"the tile {x},{y} of {layer!r} is reported, which the case does not have"
        run.error(group, f"{case.id}/{layer}/{x},{y}", Broken(word))


def add_summary(run: Run, group: str, case: Case, solved: Solved, summary: Figures) -> None:
    """The row of a summary that says more than those of the layers: the hottest DRAM."""
    given = summary.get((case.id,), {})
    drams = [name for name in case.body.names if name.startswith("dram")]
    if "dram_T_max" in given and drams:
        ours = max(figure(solved.field, name, "T_max") for name in drams)
        run.add(group, f"{case.id}/dram", "T_max", ours, given["dram_T_max"], solved.seconds, check=solved.check,
                formulation=solved.solver)  # fmt: skip


def solver_checks(run: Run) -> Figures:
    """What the tool says of its own solver, by case, mode and solver."""
    return run.read_csv("hotspot_solver_checks.csv", CHECK_PLACE, CHECK_COLUMNS)


def finer_grids(run: Run) -> Figures:
    """The logic die on other grids, by case and cells along a side."""
    columns = {"T_max": "logic_Tmax_C", "T_mean": "logic_Tmean_C"}
    return run.read_csv("hotspot_grid_refinement.csv", ("case", "grid"), columns)


def meshed_plates(run: Run) -> Figures:
    """Layers under plates that are meshed, by case and layer."""
    return run.read_csv("package_plate_fv.csv", ("case", "layer"), {"T_max": "fv_Tmax_C", "T_mean": "fv_Tmean_C"})


def hotspot_extras(run: Run, case: Case, solved: Solved) -> None:
    """Other grids, meshed plates, and the tool's own checks of its solver, of one HotSpot case."""
    for key, value in solver_checks(run).get((case.id, "plain", "superlu"), {}).items():
        layer, quantity = key.split("/")
        ours = figure(solved.field, layer, quantity)
        run.add("hotspot layers", f"{case.id}/check/{layer}", quantity, ours, value, solved.seconds,
                formulation=solved.solver)  # fmt: skip
    for (name, cells), given in finer_grids(run).items():
        if name == case.id:
            if not cells.isdecimal() or not int(cells):
                word = f"hotspot_grid_refinement.csv: grid: found {cells!r}, expected cells along a side"
                run.error("hotspot grids", f"{name}/logic/grid {cells}", Broken(word))
                continue
            grid = int(cells), int(cells)
            finer = solve(case.body, case.power(grid), grid)
            for quantity, value in given.items():
                ours = figure(finer.field, "logic", quantity)
                run.add("hotspot grids", f"{name}/logic/grid {cells}", quantity, ours, value, finer.seconds,
                        check=finer.check, formulation=finer.solver)  # fmt: skip
    plates = meshed_plates(run)
    package = case.body.package
    if any(name == case.id for name, _ in plates) and isinstance(package, SinkPackage):
        body = replace(case.body, package=package.model_copy(update={"mode": "plates"}))
        meshed = solve(body, case.power(case.grid), case.grid)
        for (name, layer), given in plates.items():
            for quantity, value in given.items() if name == case.id else ():
                ours = figure(meshed.field, layer, quantity)
                rise = ours - (body.ambient_k - ZERO_C)
                off = f"{100 * (ours - value) / rise:+.2f} % of the rise; " if rise else ""
                run.add("hotspot plates", f"{name}/plates/{layer}", quantity, ours, value, meshed.seconds,
                        note=f"{off}another mesh, no limit", check=meshed.check, formulation=meshed.solver)  # fmt: skip


def column(run: Run) -> None:
    """The one-dimensional column, if the checks of the tool are there: against the tool and against the sum by hand."""
    checks = solver_checks(run)
    left = sum(key[1:] != ("plain", "superlu") for key in checks)
    if left:
        word = f"hotspot_solver_checks.csv: {left} rows not compared: modes that are wrong or stop early"
        print(word, file=sys.stderr)
    given = checks.get((COLUMN_ID, "plain", "superlu"))
    if given is None:
        return
    package, area = COLUMN.package, COLUMN_SIDE**2
    assert isinstance(package, SinkPackage)
    through = sum(float(s.thickness_m) / float(s.conductivity) for s in COLUMN.slabs)
    through += sum(plate.thickness / plate.conductivity for plate in (package.spreader, package.sink))
    # the plates are 1 nm wider than the die, which takes 1e-7 of the convection: it is what the area ratio says
    analytic = COLUMN_AMBIENT + COLUMN_POWER * (through / area + package.r_convec_k_per_w) - ZERO_C
    grid = 16, 16
    solved = solve(COLUMN, {"logic": np.full(grid, COLUMN_POWER / 256)}, grid)
    for key, value in given.items():
        layer, quantity = key.split("/")
        run.add("hotspot column", f"{COLUMN_ID}/{layer}", quantity, figure(solved.field, layer, quantity), value,
                solved.seconds, check=solved.check, formulation=solved.solver)  # fmt: skip
    small = {name: getattr(package, name).model_copy(update={"side": COLUMN_SIDE}) for name in PLATES}
    die = replace(COLUMN, package=package.model_copy(update=small))
    solved = solve(die, {"logic": np.full(grid, COLUMN_POWER / 256)}, grid)
    run.add("column, analytic", f"{COLUMN_ID}/analytic", "T_max", figure(solved.field, "logic", "T_max"), analytic,
            solved.seconds, check=solved.check, formulation=solved.solver)  # fmt: skip


# Transients --------------------------------------------------------------------------------------------------------


def transient(run: Run) -> None:
    """All rows of the transient cases."""
    data = run.read_json(run.folder / TRANSIENT)
    if data is not None and not isinstance(data, dict):
        run.fail(f"{TRANSIENT}: $: found {shown(data)}, expected a mapping of cases")
        return
    reported = run.read_csv("threedice_transient.csv", ("case", "layer", "t_s"), LAYER_COLUMNS)
    found = dict(data or {})
    left = dict.fromkeys(key[0] for key in reported if key[0] not in found)
    from_base(run, "transient", left, TRANSIENT, found)
    for name, each in found.items():
        try:
            one_transient(run, name, each, {key[1:]: value for key, value in reported.items() if key[0] == name})
        except Exception as error:  # one broken case must not hide the others
            run.error("transient", name, error)


def one_transient(run: Run, name: str, data: Any, reported: dict[tuple[str, ...], dict[str, float]]) -> None:
    """The rows of one transient: T_max and T_mean at the end of each slot."""
    pulse = pulse_of(name, data)
    case: Case | str | None = None
    for folder in (run.folder, run.base):
        case = case or run.cases("threedice_cases.json", folder).get(pulse.base)
    where = f"{json_path(name)}.base_case"
    if case is None:
        raise Broken(f"{where}: {pulse.base!r} is neither in {run.folder} nor in {run.base}; give --base DIR")
    if isinstance(case, str):
        raise Broken(f"{where}: {case}")
    full = case.power(pulse.grid)
    maps = {scale: {layer: scale * watts for layer, watts in full.items()} for scale in set(pulse.scales)}
    began = time.perf_counter()
    model = ThermalModel(case.body, *pulse.grid)
    found = model.transient([maps[scale] for scale in pulse.scales for _ in range(pulse.steps)], pulse.step_s)
    seconds = time.perf_counter() - began
    ends = slice(pulse.steps - 1, None, pulse.steps)
    solver = type(model.step_solver(pulse.step_s)).__name__.lower()
    note = "; ".join(filter(None, (case.note, pulse.note)))
    texts, left = slots(pulse.slot_s, len(pulse.scales), {t for _, t in reported})
    layers = dict.fromkeys([*case.tiles, *(layer for layer, _ in reported if layer in case.body.names)])
    for layer in layers:
        values = {"T_max": found.max(layer)[ends], "T_mean": found.mean(layer)[ends]}
        for index, t in enumerate(texts):
            given = reported.get((layer, t), {})
            for quantity, series in values.items():
                run.add("transient", f"{name}/{layer}/{t}", quantity, float(series[index]) - ZERO_C,
                        given.get(quantity), seconds, note=note, formulation=solver)  # fmt: skip
    for layer, t in reported:
        if layer not in layers or t in left:
            what = f"at {t!r} s, which is no end of a slot" if t in left else "of a layer that the case does not have"
            run.error("transient", f"{name}/{layer}/{t}", Broken(f"reported {what}"))
    print(f"{name}: {len(pulse.scales) * pulse.steps} steps ({seconds:.2f} s)", file=sys.stderr)


def slots(slot_s: float, count: int, reported: set[str]) -> tuple[list[str], set[str]]:
    """The ends of the slots as text, those that are reported as they are there, and reported times that are none.

    >>> slots(0.002, 3, {"0.0040", "0.0051"})
    (['0.0020', '0.0040', '0.0060'], {'0.0051'})
    """
    known, left = {}, set()
    for text in reported:
        try:
            index = round(float(text) / slot_s)
            # printed times are rounded, to 0.1 ms in what is published
            fits = 1 <= index <= count and abs(float(text) - index * slot_s) <= min(0.25 * slot_s, 5.1e-5)
        except (ValueError, OverflowError):
            fits = False
        if fits:
            known[index] = text
        else:
            left.add(text)
    digits = 4
    while digits < 12 and abs(round(slot_s, digits) - slot_s) > 1e-9 * slot_s:
        digits += 1
    return [known.get(i, f"{i * slot_s:.{digits}f}") for i in range(1, count + 1)], left
