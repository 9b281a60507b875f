"""The three answers of ``dfopt heat`` as one HTML page."""

from __future__ import annotations

from dfopt.documents.heat import HeatReport
from dfopt.show.heat import TITLES, answer_rows, gain_of, proof_facts
from dfopt.show.html import Cell, Html, facts, join, mark, paragraph, section, table, text
from dfopt.show.report.page import Page, assemble
from dfopt.show.tables import percent
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
    sections = [("answers", "Answers to heat", lambda drawn: _answers(report))] if report.answers else []
    if report.price is not None or report.proof is not None:
        found = section("proof", "Proof and prices", facts(proof_facts(report)))
        sections.append(("proof", "Proof and prices", lambda drawn: found))
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
    columns = ["figure", *(TITLES[one.name] for one in report.answers)]
    slowed = [
        [part.stage, part.partition, Cell(percent(part.frequency), part.frequency), ", ".join(part.kernels)]
        for part in report.slowed
    ]
    broken = [[TITLES[one.name], sentence] for one in report.answers for sentence in one.violations]
    return section(
        "answers",
        "Answers to heat",
        table("One plan and sharding, three ways to deal with heat", columns, answer_rows(report)),
        table("Limits that are broken", ["answer", "what"], broken) if broken else None,
        table("Partitions of the heat-aware mapping below the nominal clock",
              ["stage", "#", "clock", "kernels"], slowed) if slowed else None,
    )  # fmt: skip
