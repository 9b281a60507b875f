"""What the judge says of a mapping on a stack of dies, in a report."""

from __future__ import annotations

from dfopt.documents.physical import PhysicalScore
from dfopt.show.html import Cell, Html, facts, mark, paragraph, section, table
from dfopt.show.physical import _frequency, _memory
from dfopt.show.tables import percent, seconds
from dfopt.units import Dimension
from dfopt.units import format as show_unit

__all__ = ["physical_section"]

_HOTTEST = 20


def physical_section(physical: PhysicalScore, drawn: dict[str, Html], per: str = "token") -> Html:
    """Times, memory, energy and temperatures, with the map of the tiles; energy is told ``per`` token or sample."""
    rows: list[tuple[str, object]] = [
        ("stack", physical.stack),
        ("step time", f"{_four(physical.step_time_s, 'time')}, {physical.slowdown:.4g} x of the modelled one"),
        ("modelled", f"{_four(physical.modelled_step_time_s, 'time')}, with the bandwidth that the system states"),
        ("clock", _frequency(physical)),
        ("DRAM", _memory(physical)),
        ("hottest point", _hottest(physical)),
        ("power", f"{physical.power_w:.4g} W in the hottest stack, loop gain of leakage {physical.loop_gain:.3g}"),
        ("energy", f"{_four(physical.energy_per_step_j, 'energy')} per step,"
                   f" {_four(physical.energy_per_token_j, 'energy')} per {per}"),
    ]  # fmt: skip
    return section(
        "heat",
        "On the stack",
        *(paragraph(mark("limit broken", "bad"), f" {sentence}") for sentence in physical.violations),
        facts(rows),
        drawn["temperature"],
        _dies(physical),
        _partitions(physical),
        _energy(physical),
        _tiles(physical),
    )


def _four(value: float, dimension: Dimension) -> str:
    return show_unit(value, dimension)


def _hottest(physical: PhysicalScore) -> str:
    dram = "" if physical.dram_max_c is None else f", {physical.dram_max_c:.2f} °C of the DRAM"
    return f"{physical.logic_max_c:.2f} °C of the logic{dram}"


def _celsius(value: float) -> Cell:
    return Cell(f"{value:.2f}", value)


def _dies(physical: PhysicalScore) -> Html:
    rows = [
        [
            chip.stage,
            die.die,
            die.kind,
            Cell(f"{die.power_w:.2f}", die.power_w),
            _celsius(die.max_c),
            _celsius(die.mean_c),
        ]
        for chip in physical.chips
        for die in chip.dies
    ]
    columns = ["stage", "die", "kind", "power (W)", "hottest (°C)", "mean (°C)"]
    return table("Dies, from the far face to the heat sink", columns, rows)


def _partitions(physical: PhysicalScore) -> Html:
    columns = ["stage", "#", "clock", "compute", "DRAM", "network", "time", "bound by", "DRAM bandwidth", "limited by",
               "bursts per activate", "energy"]  # fmt: skip
    rows = []
    for part in physical.partitions:
        moved = part.dram_binding != "none"
        times = (part.compute_s, part.memory_s, part.network_s, part.time_s)
        rows.append(
            [
                part.stage,
                part.partition,
                Cell(percent(part.frequency), part.frequency),
                *(Cell(seconds(value), value) for value in times),
                part.bound_by,
                Cell(_four(part.dram_bandwidth_b_per_s, "bandwidth"), part.dram_bandwidth_b_per_s) if moved else "-",
                part.dram_binding.replace("_", " "),
                Cell(f"{part.bursts_per_activate:.3g}", part.bursts_per_activate) if moved else "-",
                Cell(_four(part.energy_j, "energy"), part.energy_j),
            ]
        )
    return table("Partitions on the stack", columns, rows)


def _energy(physical: PhysicalScore) -> Html:
    whole = physical.energy_per_step_j
    rows = [
        [name.replace("dram_", "DRAM ").replace("_", " "), Cell(_four(joules, "energy"), joules),
         Cell(percent(joules / whole), joules / whole)]
        for name, joules in sorted(physical.energy_j.items(), key=lambda item: -item[1])
        if joules > 0
    ]  # fmt: skip
    return table("Energy of a step by component", ["component", "per step", "share"], rows)


def _tiles(physical: PhysicalScore) -> Html:
    tiles = physical.hottest_tiles(_HOTTEST)
    rows = [[one.die, one.tile, Cell(f"{one.power_w:.3f}", one.power_w), _celsius(one.mean_c)] for one in tiles]
    title = f"Hottest {len(tiles)} of {len(physical.hottest_chip.tiles)} tiles of stage {physical.hottest_chip.stage}"
    return table(title, ["die", "tile", "power (W)", "mean (°C)"], rows)
