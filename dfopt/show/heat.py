"""What the terminal shows of the three answers to heat, side by side."""

from __future__ import annotations

from typing import Final

from rich.console import Group, RenderableType

from dfopt.documents.heat import HeatAnswer, HeatReport
from dfopt.show.grid import Grid, Kind
from dfopt.show.tables import percent, seconds
from dfopt.units import format as show_unit

__all__ = ["TITLES", "gain_of", "heat_report"]

TITLES: Final = {"ignore": "ignore heat", "throttle": "throttle", "aware": "heat-aware"}


def gain_of(report: HeatReport) -> str:
    """What mapping around heat gains on throttling, in words; empty if one of them is missing."""
    if report.speedup is None:
        return ""
    gain = 100 * (report.speedup - 1)
    return f"heat-aware is {gain:.3g} % faster than throttled" if gain >= 1e-3 else "heat-aware is as fast as throttled"


def heat_report(report: HeatReport) -> RenderableType:
    """Step time, frequency, temperatures and energy of every answer; then the proof and what a kelvin is worth."""
    first = report.answers[0]
    rows = {
        "step time": [seconds(one.step_time_s) for one in report.answers],
        "against heat ignored": [f"{one.step_time_s / first.step_time_s:.4f} x" for one in report.answers],
        "lowest frequency": [percent(one.lowest_frequency) for one in report.answers],
        "pause per interval": [seconds(one.pause_s) if one.pause_s else "none" for one in report.answers],
        "partitions": [str(one.partitions) for one in report.answers],
        f"logic{_limit(report.limit_logic_c)}": [f"{one.logic_max_c:.2f} degC" for one in report.answers],
        f"DRAM{_limit(report.limit_dram_c)}": [_dram(one) for one in report.answers],
        "refresh": [f"{one.refresh_rate:.4g} x" for one in report.answers],
        "power of a stack": [f"{one.power_w:.4g} W" for one in report.answers],
        "energy per step": [show_unit(one.energy_per_step_j, "energy") for one in report.answers],
        "keeps its limits": ["yes" if one.keeps_limits else "no" for one in report.answers],
    }
    columns: dict[str, Kind] = {"figure": "word", **{TITLES[one.name]: "figure" for one in report.answers}}
    table = Grid("", columns, [(name, *cells) for name, cells in rows.items()])
    lines = [f"{report.graph} on {report.system}, stack {report.stack}, {report.plan}", ""]
    after = [""]
    gain = gain_of(report)
    if gain:
        after.append(gain)
    if report.proof is not None:
        proof = report.proof
        after.append(
            f"proof: {proof.status}, gap {percent(proof.gap)}, {proof.blocks} blocks x {proof.levels} levels,"
            f" {proof.rounds} rounds of temperature, {seconds(proof.seconds)}"
        )
    if report.price is not None:
        price = report.price
        text = (
            f"one kelvin: logic {seconds(price.lp_logic_s_per_k)}, DRAM {seconds(price.lp_dram_s_per_k)} per step (LP)"
        )
        if price.one_kelvin_more_s is not None:
            text += f"; both limits 1 K higher, solved anew: {seconds(price.one_kelvin_more_s)} less"
        after.append(text)
        after.append(f"binding: {'; '.join(price.binding) or 'nothing'}")
    for part in report.slowed:
        names = ", ".join(part.kernels[:4]) + (f" and {len(part.kernels) - 4} more" if len(part.kernels) > 4 else "")
        after.append(f"partition {part.partition} of stage {part.stage} at {percent(part.frequency)}: {names}")
    if report.note:
        after.append(f"note: {report.note}")
    for one in report.answers:
        after += [f"{TITLES[one.name]}: {sentence}" for sentence in one.violations]
    return Group(*lines, table, *after)


def _limit(celsius: float | None) -> str:
    return "" if celsius is None else f" (limit {celsius:.4g} degC)"


def _dram(answer: HeatAnswer) -> str:
    return "outside" if answer.dram_max_c is None else f"{answer.dram_max_c:.2f} degC"
