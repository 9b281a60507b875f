"""A chip that was derived from a technology, as a table of its components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType

from dfopt.documents.design import SLACK, Design
from dfopt.show.grid import Facts, Grid, Kind
from dfopt.units import format as show_unit

__all__ = ["chip_report"]


def chip_report(design: Design, parts: Mapping[str, Mapping[str, Any]]) -> RenderableType:
    """What a design yields: components with their size, speed and power, what binds them, and what they leave.

    ``parts``: figures by component, as :func:`dfopt.technology.told.told` has them.
    """
    given = design.budgets
    area = f"{given.chip_area_mm2:.4g} mm2 of chip, {given.package_area_mm2:.4g} mm2 of package"
    drawn = sum(part["power"] for part in parts.values())
    facts = [
        ("design", f"{design.name}: technology {design.technology.name}, profile {design.profile}"),
        ("budgets", f"{area}, {show_unit(given.power, 'power')}"),
        ("power", f"{show_unit(drawn, 'power')} drawn by all components"),
    ]
    columns: dict[str, Kind] = {
        "component": "word", "built": "text", "size": "figure", "clock": "figure", "voltage": "figure",
        "sustained": "figure", "power": "figure",
    }  # fmt: skip
    limits: dict[str, Kind] = {"component": "word", "bound by": "text", "left over": "text"}
    built = Grid("Components", columns, [_row(name, part) for name, part in parts.items()])
    bound = Grid("What binds them", limits, [[name, _bound(part), _left(part)] for name, part in parts.items()])
    return Group(Facts(facts), "", built, "", bound)


def _row(name: str, part: Mapping[str, Any]) -> list[str]:
    return [
        name,
        _built(part),
        _of(part.get("size"), "bytes"),
        _of(part.get("frequency") or None, "frequency"),
        f"{part['voltage']:.3g} V" if part.get("frequency") else "-",
        _of(part["rate"] or None, "flop_rate" if "peak" in part else "bandwidth"),
        show_unit(part["power"], "power"),
    ]


def _of(value: float | None, dimension: Any) -> str:
    return "-" if value is None else show_unit(value, dimension)


def _built(part: Mapping[str, Any]) -> str:
    counted = [(part[key], key) for key in ("units", "clusters", "banks", "stacks", "links") if key in part]
    return ", ".join(f"{count:.12g} {key if count != 1 else key[:-1]}" for count, key in counted)


def _bound(part: Mapping[str, Any]) -> str:
    """What binds speed; and what binds how much of it there is, where that is something else."""
    counts = {part[key]: of for key, of in (("link_bound", "links"), ("count_bound", "number")) if key in part}
    said = [f"{of} by {limit}" for limit, of in counts.items() if limit != part["bound"]]
    return ", ".join([part["bound"], *said])


def _left(part: Mapping[str, Any]) -> str:
    left = [show_unit(part["power_left"], "power")] if part["power_left"] > SLACK * max(part["power"], 1.0) else []
    of = {"area_left": "mm2", "package_area_left": "mm2 of package", "edge_left": "mm of edge"}
    left += [f"{part[key]:.4g} {unit}" for key, unit in of.items() if part.get(key, 0.0) > SLACK]
    return ", ".join(left) or "nothing"
