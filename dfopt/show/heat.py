"""What the terminal shows of the three answers to heat, side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rich.console import Group, RenderableType

from dfopt.documents.heat import HEAT_WORDS, HeatAnswer, HeatReport
from dfopt.show.grid import ColumnKind, Grid
from dfopt.show.tables import first_of, percent, seconds
from dfopt.units import show_unit

TITLES: Final = {"ignore": "ignore heat", "throttle": "throttle", "aware": "heat-aware"}


def gain_of(report: HeatReport) -> str:
    """Gain of the heat-aware mapping over throttling, in words; empty if one of them is missing."""
    if report.speedup is None:
        return ""
    gain = 100 * (report.speedup - 1)
    return f"heat-aware is {gain:.3g} % faster than throttled" if gain >= 1e-3 else "heat-aware is as fast as throttled"


def answers_table(report: HeatReport) -> Grid:
    """Table of the three answers on heat: one row for each figure, one column for each answer."""
    first, answers = report.answers[0], report.answers
    limits = {"logic": report.limit_logic_c, "DRAM": report.limit_dram_c}
    limit_words = {die: "" if limit is None else f" (limit {limit:.4g} degC)" for die, limit in limits.items()}
    figures: dict[str, Callable[[HeatAnswer], str]] = {
        "step time": lambda answer: seconds(answer.step_time_s),
        "against heat ignored": lambda answer: f"{answer.step_time_s / first.step_time_s:.4f} x",
        "lowest frequency": lambda answer: percent(answer.lowest_frequency),
        "pause per interval": lambda answer: seconds(answer.pause_s) if answer.pause_s else "none",
        "partitions": lambda answer: str(answer.partitions),
        f"logic{limit_words['logic']}": lambda answer: f"{answer.logic_max_c:.2f} degC",
        f"DRAM{limit_words['DRAM']}": lambda answer: (
            "outside" if answer.dram_max_c is None else f"{answer.dram_max_c:.2f} degC"
        ),
        "refresh": lambda answer: f"{answer.refresh_rate:.4g} x",
        "power of a stack": lambda answer: f"{answer.power_w:.4g} W",
        "energy per step": lambda answer: show_unit(answer.energy_per_step_j, "energy"),
        "keeps its limits": lambda answer: "yes" if answer.keeps_limits else "no",
    }
    columns: dict[str, ColumnKind] = {"figure": "word", **{TITLES[answer.name]: "figure" for answer in answers}}
    return Grid("", columns, [(name, *map(write, answers)) for name, write in figures.items()])


def proof_facts(report: HeatReport) -> list[tuple[str, str]]:
    """Label and text of the proof, of the worth of one kelvin, and of the binding limits."""
    facts = []
    if (proof := report.proof) is not None:
        words = f"{HEAT_WORDS[proof.status]}, gap {percent(proof.gap)}, {proof.blocks} blocks x {proof.levels} levels,"
        facts.append(("proof", f"{words} {proof.rounds} rounds of temperature, {seconds(proof.seconds)}"))
    if (price := report.price) is not None:
        words = f"logic {seconds(price.lp_logic_s_per_k)}, DRAM {seconds(price.lp_dram_s_per_k)} per step (LP)"
        if price.one_kelvin_more_s is not None:
            words += f"; both limits 1 K higher, solved anew: {seconds(price.one_kelvin_more_s)} less"
        facts += [("one kelvin", words), ("binding", "; ".join(price.binding) or "nothing")]
    return facts


def heat_report(report: HeatReport) -> RenderableType:
    """Terminal report of the three answers on heat, their proof, and the worth of one kelvin."""
    what = f"{report.graph} on {report.system}, stack {report.stack}, {report.plan}"
    after = ["", *filter(None, [gain_of(report)])]
    after += [f"{name}: {words}" for name, words in proof_facts(report)]
    for part in report.slowed:
        where = f"partition {part.partition} of stage {part.stage} at {percent(part.frequency)}"
        after.append(f"{where}: {first_of(part.kernels, 4)}")
    if report.note:
        after.append(f"note: {report.note}")
    for answer in report.answers:
        after += [f"{TITLES[answer.name]}: {sentence}" for sentence in answer.violations]
    return Group(what, "", answers_table(report), *after)
