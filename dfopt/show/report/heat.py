"""The three answers of ``dfopt heat`` as one HTML page."""

from __future__ import annotations

from dfopt.documents.heat import HeatAnswer, HeatReport
from dfopt.show.heat import TITLES, gain_of
from dfopt.show.html import Cell, Html, facts, join, mark, paragraph, section, table, text
from dfopt.show.report.page import Page, assemble
from dfopt.show.tables import percent, seconds
from dfopt.units import Dimension
from dfopt.units import format as show_unit

__all__ = ["heat_page"]


def heat_page(report: HeatReport, version: str = "") -> str:
    """A heat report as one HTML file.

    Parameters
    ----------
    report : HeatReport
        What ``dfopt heat -o`` wrote.
    version : str
        Of dfopt.

    Returns
    -------
    str
        HTML that refers to nothing outside of itself.

    Examples
    --------
    >>> page = heat_page(HeatReport(graph="g<1>", system="s", stack="k", plan="TP8", answers=()))
    >>> page[:15], "g&lt;1&gt; on s" in page, "://" in page
    ('<!DOCTYPE html>', True, False)
    """
    sections = [("answers", "Answers to heat", lambda drawn: _answers(report))]
    if report.price is not None or report.proof is not None:
        sections.append(("proof", "Proof and prices", lambda drawn: _proof(report)))
    written = f" by dfopt {version}" if version else ""
    foot = f"Written{written}. This file asks for nothing from any network."
    return assemble(Page(f"{report.graph} on {report.system}: dfopt report", _head(report), sections, (), foot))


def _head(report: HeatReport) -> Html:
    boxes: list[tuple[str, object]] = []
    for one in report.answers:
        kept = mark("keeps its limits", "good") if one.keeps_limits else mark("breaks a limit", "bad")
        boxes.append((TITLES[one.name], Html(f"{text(show_unit(one.step_time_s, 'time', 6))} {kept.code}")))
    limits = {"logic": report.limit_logic_c, "DRAM": report.limit_dram_c}
    said = [f"{name} {celsius:.4g} °C" for name, celsius in limits.items() if celsius is not None]
    said += [f"{report.limit_power_w:.4g} W"] if report.limit_power_w is not None else []
    rows: list[tuple[str, object]] = [
        ("plan", report.plan),
        ("stack", report.stack),
        ("limits", ", ".join(said) or "none"),
    ]
    gain = gain_of(report)
    return join(
        Html("<p class=note>dfopt report of answers to heat</p>"),
        Html(f"<h1>{text(report.graph)} on {text(report.system)}</h1>"),
        facts(boxes, "head"),
        *(paragraph(f"{line[0].upper()}{line[1:]}.") for line in ([gain] if gain else [])),
        facts(rows),
        *([paragraph(report.note)] if report.note else []),
    )


def _answers(report: HeatReport) -> Html:
    first = report.answers[0] if report.answers else None
    rows = [_row(one, first) for one in report.answers]
    columns = ["answer", "step time", "against heat ignored", "lowest clock", "pause per interval", "partitions",
               "logic (°C)", "DRAM (°C)", "refresh rate", "power (W)", "energy per step", "limits"]  # fmt: skip
    slowed = [
        [part.stage, part.partition, Cell(percent(part.frequency), part.frequency), ", ".join(part.kernels)]
        for part in report.slowed
    ]
    broken = [[TITLES[one.name], sentence] for one in report.answers for sentence in one.violations]
    return section(
        "answers",
        "Answers to heat",
        table("One plan and sharding, three ways to deal with heat", columns, rows),
        table("Limits that are broken", ["answer", "what"], broken) if broken else None,
        table("Partitions of the heat-aware mapping below the nominal clock",
              ["stage", "#", "clock", "kernels"], slowed) if slowed else None,
    )  # fmt: skip


def _row(one: HeatAnswer, first: HeatAnswer | None) -> list[object]:
    against = one.step_time_s / first.step_time_s if first is not None else 1.0
    energy: Dimension = "energy"
    return [
        TITLES[one.name],
        Cell(seconds(one.step_time_s), one.step_time_s),
        Cell(f"{against:.4f} x", against),
        Cell(percent(one.lowest_frequency), one.lowest_frequency),
        Cell(seconds(one.pause_s) if one.pause_s else "none", one.pause_s),
        one.partitions,
        Cell(f"{one.logic_max_c:.2f}", one.logic_max_c),
        "-" if one.dram_max_c is None else Cell(f"{one.dram_max_c:.2f}", one.dram_max_c),
        Cell(f"{one.refresh_rate:.4g} x", one.refresh_rate),
        Cell(f"{one.power_w:.4g}", one.power_w),
        Cell(show_unit(one.energy_per_step_j, energy), one.energy_per_step_j),
        mark("kept", "good") if one.keeps_limits else mark("broken", "bad"),
    ]


def _proof(report: HeatReport) -> Html:
    rows: list[tuple[str, object]] = []
    if report.proof is not None:
        proof = report.proof
        rows += [
            ("status", f"{proof.status.replace('_', ' ')}, gap {percent(proof.gap)}"),
            ("bound", f"{seconds(proof.bound_s)} between two microbatches, found {seconds(proof.interval_s)}"),
            ("searched", f"{proof.blocks} blocks of kernels at {proof.levels} levels, {proof.rounds} rounds of"
                         f" temperature, {seconds(proof.seconds)}"),
        ]  # fmt: skip
        rows += [("note", proof.note)] if proof.note else []
    if report.price is not None:
        price = report.price
        rows += [
            ("one kelvin on the logic", f"{seconds(price.lp_logic_s_per_k)} of a step, by the LP's duals"),
            ("one kelvin on the DRAM", f"{seconds(price.lp_dram_s_per_k)} of a step, by the LP's duals"),
        ]
        if price.one_kelvin_more_s is not None:
            rows.append(("one kelvin on both", f"{seconds(price.one_kelvin_more_s)} of a step, solved anew"))
        rows.append(("binding", "; ".join(price.binding) or "nothing"))
    return section("proof", "Proof and prices", facts(rows))
