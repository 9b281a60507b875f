"""A chip that was derived from a technology, as a table of its components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType

from dfopt.documents.design import SLACK, Design
from dfopt.show.grid import ColumnKind, FactList, Grid
from dfopt.units import show_unit


def chip_report(
    design: Design, parts: Mapping[str, Mapping[str, Any]], price: Mapping[str, Any] | None = None
) -> RenderableType:
    """Terminal report of a derived chip: components with size, speed and power, and the binding budgets.

    Parameters
    ----------
    design
        The design that the chip is derived from.
    parts
        Figures by component, as :func:`dfopt.technology.plain_data.plain_figures` has them.
    price
        Figures of :func:`dfopt.technology.plain_data.plain_price`; None without prices.
    """
    given = design.budgets
    area = f"{given.chip_area_mm2:.4g} mm2 of chip, {given.package_area_mm2:.4g} mm2 of package"
    drawn = sum(part["power"] for part in parts.values())
    facts = [
        ("design", f"{design.name}: technology {design.technology.name}, profile {design.profile}"),
        ("budgets", f"{area}, {show_unit(given.power, 'power')}"),
        ("power", f"{show_unit(drawn, 'power')} drawn by all components"),
        *_price(price),
    ]
    columns: dict[str, ColumnKind] = {
        "component": "word", "built": "text", "size": "figure", "clock": "figure", "voltage": "figure",
        "sustained": "figure", "power": "figure",
    }  # fmt: skip
    limits: dict[str, ColumnKind] = {"component": "word", "bound by": "text", "left over": "text"}
    built = Grid("Components", columns, [_row(name, part) for name, part in parts.items()])
    bound = Grid("What binds them", limits, [[name, _bound(part), _left(part)] for name, part in parts.items()])
    return Group(FactList(facts), "", built, "", bound)


def _price(price: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Area, yield and price of the dies, and the price of all."""
    if price is None:
        return [("price", "unknown: the technology has no wafer")]
    dies = f"{price['dies']} of {price['die_area_mm2']:.4g} mm2" if price["dies"] > 1 else "1"
    per_wafer = f"{price['dies_per_wafer']:.4g} on a wafer, {price['die_yield']:.1%} of them good"
    rows = [("dies", f"{dies}; {per_wafer}, {price['die_usd']:,.0f} USD each")]
    missing = [
        what
        for what, key in (("price of DRAM", "dram_usd"), ("package", "package"))
        if price[key] is None and (key != "package" or price["dram_usd"] is not None)
    ]
    if missing:
        return [*rows, ("price", f"unknown: the technology has no {missing[0]}")]
    package = price["package"]
    stack = price["stack"] or {"lost": 0.0, "kept": 1.0}
    lost = package["lost_dies"] + package["lost_packages"] + price["dies"] * stack["lost"]
    rows += [("stack", f"a die with its layers; {stack['kept']:.1%} of them good")] if price["stack"] else []
    parts = f"{price['dram_usd']:,.0f} DRAM, {package['package']:,.0f} package, {lost:,.0f} lost in bonding"
    return [*rows, ("price", f"{price['usd']:,.0f} USD: {parts}, the rest dies")]


def _row(name: str, part: Mapping[str, Any]) -> list[str]:
    return [
        name,
        _built(part),
        _of(part.get("size"), "bytes"),
        _of(part.get("frequency") or None, "frequency"),
        f"{part['voltage']:.3g} V" if part.get("frequency") and part["voltage"] else "-",
        _of(part["rate"] or None, "flop_rate" if "peak" in part else "bandwidth"),
        show_unit(part["power"], "power"),
    ]


def _of(value: float | None, dimension: Any) -> str:
    return "-" if value is None else show_unit(value, dimension)


def _built(part: Mapping[str, Any]) -> str:
    counted = [(part[key], key) for key in ("units", "clusters", "banks", "stacks", "layers", "links") if key in part]
    words = ((f"{count:.12g}" if float(count).is_integer() else f"{count:.4g}", key) for count, key in counted)
    return ", ".join(f"{count} {key if count != '1' else key[:-1]}" for count, key in words)


def _bound(part: Mapping[str, Any]) -> str:
    """What binds speed; and what binds how much of it there is, where that is something else."""
    counts = {part[key]: of for key, of in (("link_bound", "links"), ("count_bound", "number")) if key in part}
    others = [f"{of} by {limit}" for limit, of in counts.items() if limit != part["bound"]]
    return ", ".join([part["bound"], *others])


def _left(part: Mapping[str, Any]) -> str:
    left = [show_unit(part["power_left"], "power")] if part["power_left"] > SLACK * max(part["power"], 1.0) else []
    of = {"area_left": "mm2", "package_area_left": "mm2 of package", "edge_left": "mm of edge"}
    left += [f"{part[key]:.4g} {unit}" for key, unit in of.items() if part.get(key, 0.0) > SLACK]
    return ", ".join(left) or "nothing"
