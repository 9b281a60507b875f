"""What the terminal shows of a mapping on a stack of dies: times, memory, energy, heat."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType

from dfopt.documents.physical_score import PhysicalScore
from dfopt.documents.score import Score
from dfopt.show.grid import ColumnKind, FactList, Grid, Shown
from dfopt.show.html import TableCell
from dfopt.show.omissions import Judged, left_out
from dfopt.show.tables import counted, percent, seconds, times_in
from dfopt.units import number, show_unit


def physical_facts(physical: PhysicalScore, per: str) -> list[tuple[str, str]]:
    """Label and text of the step, memory, energy and heat of a mapping on a stack; energies ``per`` token or sample."""
    return [
        ("on stack", physical.stack),
        ("slowdown", f"{number(physical.slowdown)} x the step time of a chip without a stack"),
        ("frequency", _frequency(physical)),
        ("DRAM", _memory(physical)),
        ("energy", f"{_energy(physical.energy_per_step_j)} per step, {_energy(physical.energy_per_token_j)} per {per}"),
        ("heat", f"{physical.power_w:.4g} W in the hottest stack, loop gain of leakage {physical.loop_gain:.3g}"),
        *(("note", note) for note in physical.notes or ()),
    ]


def _energy(joules: float) -> str:
    return show_unit(joules, "energy")


def _frequency(physical: PhysicalScore) -> str:
    if physical.throttled:
        return f"throttled to {percent(physical.frequency)} of nominal"
    return "nominal, above its limits" if physical.violations else "nominal, within its limits"


def _memory(physical: PhysicalScore) -> str:
    rate = f"refreshed {physical.refresh_rate:.4g} x as often as normal" if physical.refresh_rate != 1 else "cool"
    if physical.dram_bandwidth_b_per_s is None:
        return f"no traffic, {rate}"
    return f"{show_unit(physical.dram_bandwidth_b_per_s, 'bandwidth')} effective, {rate}"


def physical_tables(physical: PhysicalScore, top: int, per: str) -> list[Grid]:
    """Tables of a mapping on a stack: partitions, energy by component, dies, and the hottest tiles.

    Parameters
    ----------
    physical
        Figures of the judge.
    top : int
        Number of tiles; 0 leaves their table out.
    per : str
        What energies are counted for, such as ``step``.
    """
    tables = [_partitions(physical), _components(physical, per), _dies(physical)]
    return [*tables, _tiles(physical, top)] if top > 0 else tables


def _figure(value: float, form: str = "") -> TableCell:
    return TableCell(f"{value:{form}}", value)


def _partitions(physical: PhysicalScore) -> Grid:
    several = len({part.stage for part in physical.partitions}) > 1
    columns: dict[str, ColumnKind] = {"stage": "figure"} if several else {}
    more = ["SRAM"] * any(part.sram_s is not None for part in physical.partitions)
    columns |= {name: "figure" for name in ("#", "clock", "compute", "memory", "network", *more, "time")}
    columns |= {"bound by": "word", "DRAM": "figure", "limited by": "word", "bursts/act": "figure", "energy": "figure"}
    unit_s, unit = times_in(part.time_s for part in physical.partitions)
    rows: list[list[Shown]] = []
    for part in physical.partitions:
        rate, moved = part.dram_bandwidth_b_per_s, part.dram_binding != "none"
        waits = () if part.sram_s is None else (part.sram_s,)
        spent = (part.compute_s, part.memory_s, part.network_s, *waits, part.time_s)
        times = [TableCell(f"{t / unit_s:.3f}", t) for t in spent]
        rows.append([
            *([_figure(part.stage)] if several else []), _figure(part.partition),
            TableCell(percent(part.frequency), part.frequency), *times, part.bound_by,
            TableCell(show_unit(rate, "bandwidth"), rate) if moved else "-", part.dram_binding.replace("_", " "),
            _figure(part.bursts_per_activate, ".3g") if moved else "-",
            TableCell(_energy(part.energy_j), part.energy_j)
        ])  # fmt: skip
    return Grid(f"Partitions on the stack (times in {unit})", columns, rows)


def _components(physical: PhysicalScore, per: str) -> Grid:
    rows: list[list[Shown]] = []
    for name, joules in sorted(physical.energy_j.items(), key=lambda item: -item[1]):
        if joules > 0:
            share = joules / physical.energy_per_step_j
            words = name.replace("dram_", "DRAM ").replace("_", " ")
            energies = (TableCell(_energy(value), value) for value in (joules, share * physical.energy_per_token_j))
            rows.append([words, *energies, TableCell(percent(share), share)])
    columns: dict[str, ColumnKind] = {"component": "word"}
    columns |= dict.fromkeys(("per step", f"per {per}", "share"), "figure")
    return Grid("Energy", columns, rows)


def _dies(physical: PhysicalScore) -> Grid:
    several = len(physical.chips) > 1
    columns: dict[str, ColumnKind] = {"stage": "figure"} if several else {}
    columns |= {"die": "word", "power W": "figure", "hottest degC": "figure", "mean degC": "figure"}
    rows: list[list[Shown]] = [
        [*([_figure(chip.stage)] if several else []), die.die,
         *(_figure(x, ".2f") for x in (die.power_w, die.max_c, die.mean_c))]
        for chip in physical.chips
        for die in chip.dies
    ]  # fmt: skip
    return Grid("Dies, from the far face to the heat sink", columns, rows)


def _tiles(physical: PhysicalScore, top: int) -> Grid:
    hottest = physical.hottest_tiles(top)
    stage = f" of stage {physical.hottest_chip.stage}" if len(physical.chips) > 1 else ""
    rows: list[list[Shown]] = [
        [tile.die, tile.tile, _figure(tile.power_w, ".3f"), _figure(tile.mean_c, ".2f")] for tile in hottest
    ]
    columns: dict[str, ColumnKind] = {"die": "word", "tile": "word", "power W": "figure", "mean degC": "figure"}
    return Grid(f"Hottest {len(hottest)} tiles{stage}", columns, rows)


def with_physics(report: RenderableType, score: Score, top: int = 5) -> RenderableType:
    """A terminal report followed by the judge's figures of the die stack, if there is one.

    That is step time, memory of each partition, energy by component, the hottest tiles and broken limits.

    Parameters
    ----------
    report
        The report without these figures.
    score
        The score.
    top : int
        Number of tiles.
    """
    physical, per = score.physical, counted(score)
    if physical is None:
        return report
    facts = physical_facts(physical, per) + [("limit broken", sentence) for sentence in physical.violations]
    tables = (part for grid in physical_tables(physical, top, per) for part in ("", grid))
    return Group(report, "", FactList(facts), *tables)


@dataclass(frozen=True)
class Ranked:
    """A scored mapping to rank: its file, a description, and its score."""

    file: str
    what: str
    answer: Judged

    @property
    def score(self) -> Score:
        """Score of the mapping."""
        return self.answer.score

    @property
    def violations(self) -> tuple[str, ...]:
        """All limits that the mapping breaks, as sentences."""
        physical = self.score.physical
        return (*self.score.violations, *(physical.violations if physical is not None else ()))


def _relative_paths(ranked: Sequence[Ranked]) -> list[str]:
    """The files without the folder that all of them are in."""
    paths = [os.path.abspath(judged.file) for judged in ranked]
    folder = os.path.commonpath([os.path.dirname(path) for path in paths])
    return [os.path.relpath(path, folder) for path in paths]


def ranking_report(ranked: Sequence[Ranked]) -> RenderableType:
    """Terminal report of several mappings side by side, in the given order."""
    kinds = {counted(judged.score) for judged in ranked}
    per = kinds.pop() if len(kinds) == 1 else "step"  # tokens and samples do not compare
    columns: dict[str, ColumnKind] = {"#": "figure", "result": "text", "mapping": "text"}
    columns |= {name: "figure" for name in ("step time", "modelled", "clock", "logic degC", "DRAM degC", f"J/{per}")}
    rows = []
    for place, (judged, file) in enumerate(zip(ranked, _relative_paths(ranked), strict=True), start=1):
        physical = judged.score.physical
        row = [
            str(place),
            file,
            judged.what,
            seconds(judged.score.sustained.step_time_s),
            seconds(judged.score.step_time_s),
        ]
        if physical is None:
            row += ["-"] * 4
        else:
            dram = "-" if physical.dram_max_c is None else f"{physical.dram_max_c:.2f}"
            row += [percent(physical.frequency), f"{physical.logic_max_c:.2f}", dram]
            row += [f"{physical.energy_per_step_j if per == 'step' else physical.energy_per_token_j:.4g}"]
        rows.append([*row, "broken" if judged.violations else "kept"])
    sentences = [(mapping.file, sentence) for mapping in ranked for sentence in mapping.violations]
    title = "By step time; those that break a limit come last"
    parts: list[RenderableType] = [Grid(title, {**columns, "limit": "word"}, rows)]
    sentences += [
        ("left out", missing) for missing in dict.fromkeys(left_out(mapping.answer) for mapping in ranked) if missing
    ]
    if sentences:
        parts += ["", FactList(sentences)]
    return Group(*parts)
