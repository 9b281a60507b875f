"""What ``dfopt show`` prints for a stack of dies."""

from __future__ import annotations

from rich.console import Group, RenderableType

from dfopt.documents.stack import Stack
from dfopt.documents.stack_parts import Bond, HtcPackage, TileGrid
from dfopt.show.grid import ColumnKind, FactList, Grid
from dfopt.show.inputs import entitled
from dfopt.units import show_unit


def stack_report(stack: Stack) -> RenderableType:
    """Terminal report of a die stack: dies, memory, package, limits and operating points."""
    return Group(
        FactList(_head(stack)), "", _dies(stack), "", FactList([*_memory(stack), *_cooling(stack), *_power(stack)])
    )


def _head(stack: Stack) -> list[tuple[str, str]]:
    area = f"{_mm(stack.side_x)} x {_mm(stack.side_y)}, {stack.side_x * stack.side_y * 1e6:.4g} mm2"
    memory = f"{len(stack.dram_dies)} DRAM dies in the stack" if stack.dram_dies else "memory outside the stack"
    return [("stack", entitled(stack)), ("die", f"{area}; {memory}")]


def _dies(stack: Stack) -> Grid:
    rows = []
    for die in reversed(stack.dies):
        name = die.name if die.count == 1 else f"{die.name}0 to {die.name}{die.count - 1}"
        plan, leakage = die.floorplan, "-"
        tiles = f"{plan.columns} x {plan.rows}" if isinstance(plan, TileGrid) else str(len(plan))
        if die.leakage is not None:
            leakage = f"{show_unit(die.leakage.power, 'power')} at {_celsius(die.leakage.at)}"
        row = [name, die.kind, show_unit(die.thickness, "length"), f"{die.conductivity:.4g}"]
        rows.append([*row, "-" if die.kind == "passive" else tiles, leakage, _bond(die.bond)])
    columns: dict[str, ColumnKind] = {
        "die": "word", "kind": "word", "thickness": "figure", "W/(m K)": "figure", "tiles": "figure", "leakage": "word",
        "bond to the sink": "text",
    }  # fmt: skip
    return Grid("Dies, from the sink to the far face", columns, rows)


def _bond(bond: Bond | None) -> str:
    if bond is None:
        return "none"
    text = f"{bond.kind}, {show_unit(bond.thickness, 'length')}, {bond.conductivity:.4g} W/(m K)"
    return text if bond.pitch is None else f"{text}, pitch {show_unit(bond.pitch, 'length')}"


def _memory(stack: Stack) -> list[tuple[str, str]]:
    dram, timings = stack.dram, stack.dram.timings
    peak = f"{show_unit(dram.peak, 'bandwidth')} peak, {show_unit(dram.capacity, 'bytes')}"
    channel = f"{show_unit(dram.peak / dram.channels, 'bandwidth')} on {dram.io_bits} bits"
    row_cycle = timings.tRC if timings.tRC is not None else timings.tRAS + timings.tRP
    listed = [("tRC", row_cycle), ("tRCD", timings.tRCDRD), ("CL", timings.CL), ("tFAW", timings.tFAW)]
    steps = [f"x{step.rate:g} above {_celsius(step.above)}" for step in dram.refresh]
    banks = f"{dram.banks} banks in {dram.bank_groups} group{'' if dram.bank_groups == 1 else 's'}"
    sizes = f"rows of {dram.row:.6g} B, bursts of {dram.burst:.6g} B, interleaved by {dram.interleave:.6g} B"
    flight = f"{dram.buffers.requests} bursts per channel, {show_unit(dram.buffers.round_trip, 'time')} on chip"
    rows = [
        ("memory", f"{peak}; {dram.channels} channels of {channel}"),
        ("channel", f"{banks}, {sizes}"),
        ("timings", ", ".join(f"{name} {show_unit(value, 'time')}" for name, value in listed)),
        ("refresh", ", ".join([f"{show_unit(timings.tRFC, 'time')} in {show_unit(timings.tREFI, 'time')}", *steps])),
        ("in flight", flight),
    ]
    have = stack.connections_available
    if have is not None:
        need = stack.connections_needed
        rows.append(("connections", f"{need:,} of {have:,.0f} next to the logic die ({100 * need / have:.3g} %)"))
    return rows


def _cooling(stack: Stack) -> list[tuple[str, str]]:
    package = stack.package
    if isinstance(package, HtcPackage):
        lid = package.plate_thickness
        says = f"{package.htc_w_per_m2k:.6g} W/(m2 K) on {'the last die' if lid is None else f'a lid of {_mm(lid)}'}"
    else:
        plates = (("spreader", package.spreader), ("sink", package.sink))
        sizes = [f"{name} {_mm(plate.side)} x {_mm(plate.thickness)}" for name, plate in plates]
        says = f"{package.mode}: {package.r_convec_k_per_w:.4g} K/W to the air, {', '.join(sizes)}"
    far = f", far face {stack.far_htc_w_per_m2k:.4g} W/(m2 K)" if stack.far_htc_w_per_m2k else ""
    return [("package", f"{says}{far}"), ("ambient", _celsius(stack.ambient))]


def _power(stack: Stack) -> list[tuple[str, str]]:
    logic, limits, energies = stack.logic, stack.limits, stack.dram.energies
    read_bit = (energies.read_burst / stack.dram.burst + energies.io) / 8
    at = {"logic": limits.logic, "DRAM": limits.dram}
    limit_words = [f"{name} {_celsius(kelvin)}" for name, kelvin in at.items() if kelvin is not None]
    limit_words += [show_unit(limits.power, "power")] if limits.power is not None else []
    per_bit = (("SRAM", logic.sram), ("NoC", logic.noc), ("network", logic.network))
    listed = [f"{logic.flop * 1e12:.3g} pJ/FLOP", *(f"{name} {_per_bit(value / 8)}" for name, value in per_bit)]
    levels = [f"{level.frequency:.3g} ({level.voltage:.3g})" for level in stack.levels]
    return [
        ("logic", f"{', '.join(listed)}, idle {show_unit(logic.idle, 'power')}"),
        ("DRAM reads", f"{_per_bit(read_bit)} with the way, {show_unit(energies.activate, 'energy')} per activate"),
        ("limits", ", ".join(limit_words) or "none"),
        ("levels", f"frequency (voltage) {', '.join(levels)}"),
    ]


def _per_bit(joules: float) -> str:
    return f"{joules * 1e12:.3g} pJ/bit"


def _mm(metres: float) -> str:
    return f"{metres * 1e3:.6g} mm"


def _celsius(kelvin: float) -> str:
    return f"{kelvin - 273.15:.6g} degC"
