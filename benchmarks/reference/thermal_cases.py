"""The case files of die stacks under HotSpot and 3D-ICE, read into bodies, watts and cells."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from thermal_fields import Rect, rasterise, sink_package
from thermal_fields.checks import check

from dfopt.documents.stack_parts import HtcPackage
from dfopt.errors import json_path, shown
from dfopt.technology.thermal.types import Body, Slab

__all__ = ["Broken", "Case", "Pulse", "case_of", "grid_of", "need", "pulse_of"]

NUMBER = (int, float)
# The cells over the die where a file does not say: as the README of the reference data has them.
HOTSPOT_GRID, HTC_GRID, TRANSIENT_GRID = "32x32", "40x40", "20x20"
_CASE = {"id", "die_side_m", "summary", "package", "layers", "grid", "htc_W_per_m2K", "T_fluid_K"}
_LAYER = {"name", "t_m", "k_W_per_mK", "cv_J_per_m3K", "power", "tiles_per_side", "p_W", "source_slab_t_m"}
_PULSE = {"base_case", "step_s", "slot_s", "grid", "initial", "power_scale_per_slot"}

Tiles = tuple[list[Rect], list[float], int]  # tiles, watts, tiles per side


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


def _unread(data: dict[str, Any], known: Iterable[str], where: str) -> list[str]:
    """Keys that may mean something and are not read; a text is taken for a comment."""
    return [f"{where}.{k}" for k, value in data.items() if k not in known and not isinstance(value, str)]


@dataclass(frozen=True)
class Case:
    """One stack with its power; ``note`` says what was assumed or not read."""

    id: str
    body: Body
    tiles: dict[str, Tiles]  # of each powered layer
    grid: tuple[int, int]
    note: str = ""

    def power(self, grid: tuple[int, int]) -> dict[str, Any]:
        """Watts per cell of each powered layer."""
        sides = self.body.side_x, self.body.side_y
        return {name: rasterise(rects, watts, *grid, *sides) for name, (rects, watts, _) in self.tiles.items()}


@dataclass(frozen=True)
class Pulse:
    """One transient: the case that it is of, and its power slot by slot, ``steps`` solver steps each."""

    base: str
    step_s: float
    slot_s: float
    steps: int
    scales: tuple[float, ...]
    grid: tuple[int, int]
    note: str = ""


def grid_of(text: str, case: str, where: str) -> tuple[int, int]:
    """The cells of a case from a sentence.

    >>> text = "40x40 over the die (32x32 for I15 and I16, 24x24 for I17)"
    >>> grid_of(text, "I15", "$"), grid_of(text, "I17", "$"), grid_of(text, "I1", "$")
    ((32, 32), (24, 24), (40, 40))
    """
    pair = r"(\d+)\s*[x*]\s*(\d+)"
    for nx, ny, cases in re.findall(pair + r"\s+for\s+([^;)]*?)(?=\d+\s*[x*]|[;)]|$)", text):
        if case in re.findall(r"\w+", cases):
            return _cells(nx, ny, where)
    general = re.search(pair, re.sub(r"\([^)]*\)", "", text))
    if general is None:
        raise Broken(f"{where}: found {shown(text)}, expected the cells over the die such as '32x32'")
    return _cells(general[1], general[2], where)


def _cells(nx: str, ny: str, where: str) -> tuple[int, int]:
    if not int(nx) or not int(ny):
        raise Broken(f"{where}: found '{nx}x{ny}', expected at least one cell each way")
    return int(nx), int(ny)


def _grid(text: Any, otherwise: str, case: str, where: str, notes: list[str]) -> tuple[int, int]:
    """The cells that a file gives, or those of the README with a note."""
    if not text:
        notes.append(f"no grid given, {otherwise} taken")
    return grid_of(str(text or otherwise), case, where)


def _layer(data: Any, side: float, where: str, notes: list[str]) -> tuple[Slab, Tiles | None]:
    """A slab of a case file, and its tiles if it is powered."""
    thickness, k, cv = (float(need(data, key, NUMBER, where)) for key in ("t_m", "k_W_per_mK", "cv_J_per_m3K"))
    source = data.get("source_slab_t_m")
    if source is not None:
        source = float(need(data, "source_slab_t_m", NUMBER, where))
    slab = Slab(need(data, "name", str, where), thickness, k, cv, source)
    notes += _unread(data, _LAYER, where)
    powered = need(data, "power", bool, where) if "power" in data else "p_W" in data
    if not powered:
        return slab, None
    watts = need(data, "p_W", list, where)
    n = need(data, "tiles_per_side", int, where) if "tiles_per_side" in data else math.isqrt(len(watts))
    if n < 1 or len(watts) != n * n:
        raise Broken(f"{where}.p_W: found {len(watts)} powers, expected {n * n} for {n} x {n} tiles")
    for i in range(len(watts)):
        need(watts, i, NUMBER, f"{where}.p_W")
    rects = [Rect(i * side / n, j * side / n, side / n, side / n) for j in range(n) for i in range(n)]
    return slab, (rects, [float(w) for w in watts], n)


def case_of(data: Any, where: str, grid: Any) -> Case:
    """A case of hotspot_cases.json or threedice_cases.json; ``grid`` is what the file says of all its cases."""
    name = need(data, "id", str, where)
    side = float(need(data, "die_side_m", NUMBER, where))
    layers = need(data, "layers", list, where)
    unread = _unread(data, _CASE, where)
    read = [_layer(layer, side, f"{where}.layers[{i}]", unread) for i, layer in enumerate(layers)]
    if "package" in data:
        given = need(data, "package", dict, where)
        inside = f"{where}.package"
        known = set(inspect.signature(sink_package).parameters) - {"mode"}
        numbers = {k: float(need(given, k, NUMBER, inside)) for k in given if not _comment(given[k], k, known)}
        ambient = float(need(given, "ambient", NUMBER, inside))
        numbers.pop("ambient")
        try:
            package = sink_package(**numbers)
        except TypeError as error:
            raise Broken(f"{inside}: {str(error).split('() ')[-1]}") from None
    else:
        package = HtcPackage(mode="htc", htc_w_per_m2k=float(need(data, "htc_W_per_m2K", NUMBER, where)))
        ambient = float(need(data, "T_fluid_K", NUMBER, where))
    body = Body(side, side, tuple(slab for slab, _ in read), package, ambient)
    tiles = {slab.name: found for slab, found in read if found is not None}
    notes = [f"not read: {', '.join(unread)}"] if unread else []
    otherwise = HTC_GRID if isinstance(package, HtcPackage) else HOTSPOT_GRID
    cells = _grid(data.get("grid") or grid, otherwise, name, f"{where}.grid", notes)
    check(body, *cells)
    return Case(name, body, tiles, cells, "; ".join(notes))


def _comment(value: Any, key: str, known: Iterable[str]) -> bool:
    return isinstance(value, str) and key not in known and key != "ambient"


def pulse_of(name: str, data: Any) -> Pulse:
    """A case of threedice_transient_cases.json."""
    where = json_path(name)
    base = need(data, "base_case", str, where)
    step, slot = (float(need(data, key, NUMBER, where)) for key in ("step_s", "slot_s"))
    if not (0 < step <= slot < math.inf) or abs(slot / step - round(slot / step)) > 1e-6:
        raise Broken(f"{where}: found step_s {step:g} and slot_s {slot:g}, expected whole steps in a slot")
    if data.get("initial", "T_fluid") != "T_fluid":
        raise Broken(f"{where}.initial: found {shown(data['initial'])}, expected 'T_fluid'")
    scales = need(data, "power_scale_per_slot", list, where)
    if not scales:
        raise Broken(f"{where}.power_scale_per_slot: found no slots, expected at least one number")
    for index in range(len(scales)):
        if not math.isfinite(need(scales, index, NUMBER, f"{where}.power_scale_per_slot")):
            raise Broken(f"{where}.power_scale_per_slot[{index}]: found {scales[index]}, expected a finite number")
    unread = _unread(data, _PULSE, where)
    notes = [f"not read: {', '.join(unread)}"] if unread else []
    grid = _grid(data.get("grid"), TRANSIENT_GRID, name, f"{where}.grid", notes)
    return Pulse(base, step, slot, round(slot / step), tuple(map(float, scales)), grid, "; ".join(notes))
