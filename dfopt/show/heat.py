"""What the terminal shows of the three answers to heat, side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rich.console import Group, RenderableType

from dfopt.documents.heat import HEAT_WORDS, HeatAnswer, HeatReport
from dfopt.show.grid import Grid, Kind
from dfopt.show.tables import first_of, percent, seconds
from dfopt.units import format as show_unit

__all__ = ["TITLES", "answers_table", "gain_of", "heat_report", "proof_facts"]

TITLES: Final = {"ignore": "ignore heat", "throttle": "throttle", "aware": "heat-aware"}


def gain_of(report: HeatReport) -> str:
    """What mapping around heat gains on throttling, in words; empty if one of them is missing."""
    if report.speedup is None:
        return ""
    gain = 100 * (report.speedup - 1)
    return f"heat-aware is {gain:.3g} % faster than throttled" if gain >= 1e-3 else "heat-aware is as fast as throttled"


def answers_table(report: HeatReport) -> Grid:
    """Names of figures, each with the figure of every answer."""
    first, answers = report.answers[0], report.answers
    limits = {"logic": report.limit_logic_c, "DRAM": report.limit_dram_c}
    said = {die: "" if limit is None else f" (limit {limit:.4g} degC)" for die, limit in limits.items()}
    figures: dict[str, Callable[[HeatAnswer], str]] = {
        "step time": lambda one: seconds(one.step_time_s),
        "against heat ignored": lambda one: f"{one.step_time_s / first.step_time_s:.4f} x",
        "lowest frequency": lambda one: percent(one.lowest_frequency),
        "pause per interval": lambda one: seconds(one.pause_s) if one.pause_s else "none",
        "partitions": lambda one: str(one.partitions),
        f"logic{said['logic']}": lambda one: f"{one.logic_max_c:.2f} degC",
        f"DRAM{said['DRAM']}": lambda one: "outside" if one.dram_max_c is None else f"{one.dram_max_c:.2f} degC",
        "refresh": lambda one: f"{one.refresh_rate:.4g} x",
        "power of a stack": lambda one: f"{one.power_w:.4g} W",
        "energy per step": lambda one: show_unit(one.energy_per_step_j, "energy"),
        "keeps its limits": lambda one: "yes" if one.keeps_limits else "no",
    }
    columns: dict[str, Kind] = {"figure": "word", **{TITLES[one.name]: "figure" for one in answers}}
    return Grid("", columns, [(name, *map(write, answers)) for name, write in figures.items()])


def proof_facts(report: HeatReport) -> list[tuple[str, str]]:
    """The proof, what a kelvin is worth, and what binds."""
    found = []
    if (proof := report.proof) is not None:
        said = f"{HEAT_WORDS[proof.status]}, gap {percent(proof.gap)}, {proof.blocks} blocks x {proof.levels} levels,"
        found.append(("proof", f"{said} {proof.rounds} rounds of temperature, {seconds(proof.seconds)}"))
    if (price := report.price) is not None:
        said = f"logic {seconds(price.lp_logic_s_per_k)}, DRAM {seconds(price.lp_dram_s_per_k)} per step (LP)"
        if price.one_kelvin_more_s is not None:
            said += f"; both limits 1 K higher, solved anew: {seconds(price.one_kelvin_more_s)} less"
        found += [("one kelvin", said), ("binding", "; ".join(price.binding) or "nothing")]
    return found


def heat_report(report: HeatReport) -> RenderableType:
    """Step time, frequency, temperatures and energy of every answer; then the proof and what a kelvin is worth."""
    what = f"{report.graph} on {report.system}, stack {report.stack}, {report.plan}"
    after = ["", *filter(None, [gain_of(report)])]
    after += [f"{name}: {said}" for name, said in proof_facts(report)]
    for part in report.slowed:
        where = f"partition {part.partition} of stage {part.stage} at {percent(part.frequency)}"
        after.append(f"{where}: {first_of(part.kernels, 4)}")
    if report.note:
        after.append(f"note: {report.note}")
    for one in report.answers:
        after += [f"{TITLES[one.name]}: {sentence}" for sentence in one.violations]
    return Group(what, "", answers_table(report), *after)
