"""The three answers of ``dfopt heat`` as one HTML page."""

from __future__ import annotations

from dfopt.documents.heat import HeatReport
from dfopt.show.heat import TITLES, answers_table, gain_of, proof_facts
from dfopt.show.html import Html, TableCell, facts, mark, paragraph, table, text
from dfopt.show.report.page import PagePart, assemble, heading
from dfopt.show.tables import percent
from dfopt.units import show_unit


def heat_page(report: HeatReport, version: str = "") -> str:
    """Self-contained HTML page of a heat report, as ``dfopt heat -o`` wrote it."""
    title = f"{report.graph} on {report.system}"
    proof = PagePart("proof", "Proof and prices", [facts(proof_facts(report))])
    sections = [
        _answers(report) if report.answers else None,
        proof if report.price is not None or report.proof is not None else None,
    ]
    return assemble(f"{title}: dfopt report", _head(title, report), sections, version)


def _head(title: str, report: HeatReport) -> Html:
    boxes: list[tuple[str, object]] = []
    for answer in report.answers:
        kept = mark("keeps its limits", "good") if answer.keeps_limits else mark("breaks a limit", "bad")
        boxes.append((TITLES[answer.name], Html(f"{text(show_unit(answer.step_time_s, 'time', 6))} {kept.code}")))
    limits = {"logic": report.limit_logic_c, "DRAM": report.limit_dram_c}
    limit_words = [f"{name} {celsius:.4g} °C" for name, celsius in limits.items() if celsius is not None]
    limit_words += [f"{report.limit_power_w:.4g} W"] if report.limit_power_w is not None else []
    gain = gain_of(report)
    return heading(
        "answers to heat", title, boxes,
        paragraph(f"{gain[0].upper()}{gain[1:]}.") if gain else None,
        facts([("plan", report.plan), ("stack", report.stack), ("limits", ", ".join(limit_words) or "none")]),
        paragraph(report.note) if report.note else None,
    )  # fmt: skip


def _answers(report: HeatReport) -> PagePart:
    answers = answers_table(report)
    slowed = [
        [part.stage, part.partition, TableCell(percent(part.frequency), part.frequency), ", ".join(part.kernels)]
        for part in report.slowed
    ]
    broken = [[TITLES[answer.name], sentence] for answer in report.answers for sentence in answer.violations]
    return PagePart("answers", "Answers to heat", [
        table("One plan and sharding, three ways to deal with heat", answers.names, answers.rows),
        table("Limits that are broken", ["answer", "what"], broken) if broken else None,
        table("Partitions of the heat-aware mapping below the nominal clock",
              ["stage", "#", "clock", "kernels"], slowed) if slowed else None,
    ])  # fmt: skip
