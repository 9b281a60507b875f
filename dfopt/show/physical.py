"""What the terminal shows of a mapping on a stack of dies: times, memory, energy, heat."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType

from dfopt.documents.physical import PhysicalScore
from dfopt.documents.score import Score
from dfopt.show.grid import Facts, Grid, Kind
from dfopt.show.html import Cell
from dfopt.show.tables import counted, percent, seconds
from dfopt.units import format as show_unit

__all__ = ["Ranked", "Sheet", "physical_facts", "physical_report", "physical_sheets", "ranking_report", "with_physics"]


@dataclass(frozen=True)
class Sheet:
    """A table for the terminal and for a page: a cell is its text, or its text and the number that it sorts by."""

    title: str
    columns: dict[str, Kind]
    rows: list[list[str | Cell]]

    def grid(self) -> Grid:
        """For the terminal."""
        words = [[str(one.shown) if isinstance(one, Cell) else one for one in row] for row in self.rows]
        return Grid(self.title, self.columns, words)


def physical_facts(physical: PhysicalScore, per: str) -> list[tuple[str, str]]:
    """Step time, memory, energy and heat of a mapping on a stack; energies ``per`` token or sample."""
    return [
        ("on stack", physical.stack),
        (
            "step time",
            f"{seconds(physical.step_time_s)}, modelled {seconds(physical.modelled_step_time_s)}"
            f" ({physical.slowdown:.4g} x)",
        ),
        ("frequency", _frequency(physical)),
        ("DRAM", _memory(physical)),
        (
            "energy",
            f"{show_unit(physical.energy_per_step_j, 'energy')} per step,"
            f" {show_unit(physical.energy_per_token_j, 'energy')} per {per}",
        ),
        ("heat", f"{physical.power_w:.4g} W in the hottest stack, loop gain of leakage {physical.loop_gain:.3g}"),
    ]


def physical_sheets(physical: PhysicalScore, top: int, per: str) -> list[Sheet]:
    """Partitions, energy by component, dies and the ``top`` hottest tiles."""
    sheets = [_partitions(physical), _energy(physical, per), _dies(physical)]
    return [*sheets, _tiles(physical, top)] if top > 0 else sheets


def physical_report(physical: PhysicalScore, top: int = 5, per: str = "token") -> RenderableType:
    """A mapping on a stack: step time, memory of each partition, energy by component, temperatures, broken limits.

    Parameters
    ----------
    physical
        What the judge found.
    top
        How many of the hottest tiles to list.
    per
        What energies are told for beside a step: see `dfopt.show.tables.counted`.
    """
    facts = physical_facts(physical, per) + [("limit broken", sentence) for sentence in physical.violations]
    sheets = physical_sheets(physical, top, per)
    return Group(Facts(facts), *(part for sheet in sheets for part in ("", sheet.grid())))


def _frequency(physical: PhysicalScore) -> str:
    if physical.throttled:
        return f"throttled to {percent(physical.frequency)} of nominal"
    return "nominal, above its limits" if physical.violations else "nominal, within its limits"


def _memory(physical: PhysicalScore) -> str:
    rate = f"refreshed {physical.refresh_rate:.4g} x as often as normal" if physical.refresh_rate != 1 else "cool"
    if physical.dram_bandwidth_b_per_s is None:
        return f"no traffic, {rate}"
    return f"{show_unit(physical.dram_bandwidth_b_per_s, 'bandwidth')} effective, {rate}"


def _partitions(physical: PhysicalScore) -> Sheet:
    several = len({part.stage for part in physical.partitions}) > 1
    columns: dict[str, Kind] = {"stage": "figure"} if several else {}
    columns |= {name: "figure" for name in ("#", "clock", "compute", "memory", "network", "time")}
    columns |= {"bound by": "word", "DRAM": "figure", "limited by": "word", "bursts/act": "figure", "energy": "figure"}
    rows: list[list[str | Cell]] = []
    for part in physical.partitions:
        times = (part.compute_s, part.memory_s, part.network_s, part.time_s)
        row: list[str | Cell] = [Cell(str(part.stage), part.stage)] if several else []
        row += [Cell(str(part.partition), part.partition), Cell(percent(part.frequency), part.frequency)]
        row += [*(Cell(f"{1e3 * t:.3f}", t) for t in times), part.bound_by]
        rate, bursts = part.dram_bandwidth_b_per_s, part.bursts_per_activate
        moved = part.dram_binding != "none"
        row += [Cell(show_unit(rate, "bandwidth"), rate) if moved else "-", part.dram_binding.replace("_", " ")]
        row += [
            Cell(f"{bursts:.3g}", bursts) if moved else "-",
            Cell(show_unit(part.energy_j, "energy"), part.energy_j),
        ]
        rows.append(row)
    return Sheet("Partitions on the stack (times in ms)", columns, rows)


def _energy(physical: PhysicalScore, per: str) -> Sheet:
    rows: list[list[str | Cell]] = []
    whole = physical.energy_per_step_j
    for name, joules in sorted(physical.energy_j.items(), key=lambda item: -item[1]):
        if joules > 0:
            share, of_one = joules / whole, joules / whole * physical.energy_per_token_j
            words = name.replace("dram_", "DRAM ").replace("_", " ")
            energies = (Cell(show_unit(value, "energy"), value) for value in (joules, of_one))
            rows.append([words, *energies, Cell(percent(share), share)])
    columns: dict[str, Kind] = {"component": "word", "per step": "figure", f"per {per}": "figure", "share": "figure"}
    return Sheet("Energy", columns, rows)


def _dies(physical: PhysicalScore) -> Sheet:
    several = len(physical.chips) > 1
    columns: dict[str, Kind] = {"stage": "figure"} if several else {}
    columns |= {"die": "word", "power W": "figure", "hottest degC": "figure", "mean degC": "figure"}
    rows: list[list[str | Cell]] = [
        [
            *([Cell(str(chip.stage), chip.stage)] if several else []),
            die.die,
            *(Cell(f"{x:.2f}", x) for x in (die.power_w, die.max_c, die.mean_c)),
        ]
        for chip in physical.chips
        for die in chip.dies
    ]
    return Sheet("Dies, from the far face to the heat sink", columns, rows)


def _tiles(physical: PhysicalScore, top: int) -> Sheet:
    hottest = physical.hottest_tiles(top)
    title = f"Hottest {len(hottest)} tiles" + (f" of stage {physical.hottest_chip.stage}" * (len(physical.chips) > 1))
    rows: list[list[str | Cell]] = [
        [one.die, one.tile, Cell(f"{one.power_w:.3f}", one.power_w), Cell(f"{one.mean_c:.2f}", one.mean_c)]
        for one in hottest
    ]
    return Sheet(title, {"die": "word", "tile": "word", "power W": "figure", "mean degC": "figure"}, rows)


def with_physics(report: RenderableType, score: Score, top: int = 5) -> RenderableType:
    """A report, followed by what the judge says of the stack of dies, if there is one."""
    return report if score.physical is None else Group(report, "", physical_report(score.physical, top, counted(score)))


@dataclass(frozen=True)
class Ranked:
    """A judged mapping: the file that it came from, what it is, its score, and what the model leaves out of it."""

    file: str
    what: str
    score: Score
    left_out: str = ""

    @property
    def step_time_s(self) -> float:
        """Seconds of a step: on the stack if there is one, else as modelled."""
        physical = self.score.physical
        return self.score.step_time_s if physical is None else physical.step_time_s

    @property
    def violations(self) -> tuple[str, ...]:
        """All limits that it breaks."""
        physical = self.score.physical
        return (*self.score.violations, *(() if physical is None else physical.violations))


def _beside(ranked: Sequence[Ranked]) -> list[str]:
    """The files without the folder that all of them are in."""
    paths = [os.path.abspath(one.file) for one in ranked]
    folder = os.path.commonpath([os.path.dirname(path) for path in paths])
    return [os.path.relpath(path, folder) for path in paths]


def ranking_report(ranked: Sequence[Ranked]) -> RenderableType:
    """Several mappings beside each other, in the order given."""
    kinds = {counted(one.score) for one in ranked}
    per = kinds.pop() if len(kinds) == 1 else "step"  # tokens and samples do not compare
    columns: dict[str, Kind] = {"#": "figure", "result": "text", "mapping": "text"}
    columns |= {name: "figure" for name in ("step time", "modelled", "clock", "logic degC", "DRAM degC", f"J/{per}")}
    rows = []
    for place, (one, file) in enumerate(zip(ranked, _beside(ranked), strict=True), start=1):
        physical = one.score.physical
        row = [str(place), file, one.what, seconds(one.step_time_s), seconds(one.score.step_time_s)]
        if physical is None:
            row += ["-"] * 4
        else:
            dram = "-" if physical.dram_max_c is None else f"{physical.dram_max_c:.2f}"
            row += [percent(physical.frequency), f"{physical.logic_max_c:.2f}", dram]
            row += [f"{physical.energy_per_step_j if per == 'step' else physical.energy_per_token_j:.4g}"]
        rows.append([*row, "broken" if one.violations else "kept"])
    sentences = [(one.file, sentence) for one in ranked for sentence in one.violations]
    title = "By step time; those that break a limit come last"
    parts: list[RenderableType] = [Grid(title, {**columns, "limit": "word"}, rows)]
    sentences += [("left out", missing) for missing in dict.fromkeys(one.left_out for one in ranked) if missing]
    if sentences:
        parts += ["", Facts(sentences)]
    return Group(*parts)
