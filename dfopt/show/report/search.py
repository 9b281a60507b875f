"""How a result was found and proven: plans, solves, alternatives; and what more of a resource would give."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from dfopt.documents.plan_records import GraphRecord, PlanRecord
from dfopt.documents.result import Result
from dfopt.show import plots
from dfopt.show.details import sensitivity
from dfopt.show.html import Html, TableCell, facts, mark, paragraph, table
from dfopt.show.report.page import PagePart, draw
from dfopt.show.tables import STATES, percent
from dfopt.units import show_unit

_MOST: Final = 200  # plans, solves or stages


def search_section(result: Result) -> PagePart:
    """Page section on the search: proof, plans, solves, progress and alternatives."""
    counts = result.plan_counts
    listed = ", ".join(f"{count} {STATES[status]}" for status, count in counts.most_common())
    rows: list[tuple[str, object]] = [
        ("proof", result.proof),
        ("plans", f"{counts.total()}: {listed}"),
        *([("graphs whose plans are not listed", _least_of_unlisted(result.apart))] if result.apart else []),
        ("no mapping has a shorter step than", show_unit(result.bound, "time", 6)),
        ("gap", percent(result.gap)),
        ("with these shardings no step is shorter than", show_unit(result.level_bound, "time", 6)),
        ("gap per level", percent(result.level_gap)),
        ("space", str(result.space)),
        ("partitions allowed", result.p_max),
    ]
    caption = "The search over time: the best answer, and the bound that no plan beats. Where they meet, it is optimal."
    progress = draw("progress", caption, plots.progress, result)
    tables = facts(rows), _plans(result), _solves(result), progress, _alternatives(result)
    return PagePart("search", "Search and proof", tables)


def _order(plan: PlanRecord) -> tuple[bool, float, bool, float]:
    """By step time; then, of what was not solved, by what it cannot beat."""
    value, bound = plan.value, plan.level_bound
    return value is None, math.inf if value is None else value, bound is None, math.inf if bound is None else bound


def _least_of_unlisted(graphs: Sequence[GraphRecord]) -> str:
    least = min(graph.bound for graph in graphs)
    return f"{len(graphs)}: whatever the plan, all chips together take {show_unit(least, 'time', 6)} or more"


def _time(value: float | None) -> TableCell:
    return TableCell("-") if value is None else TableCell(show_unit(value, "time", 5), value)


def _gap(value: float | None) -> TableCell:
    # what is left of two equal floats is no gap
    return TableCell("-") if value is None else TableCell(percent(value if value > 1e-12 else 0.0), value)


def _plans(result: Result) -> Html:
    ordered = sorted(result.plans, key=_order)
    tiled = any(plan.tile_count is not None for plan in ordered)
    columns = ["plan", "microbatches", *(["tiles of the stream"] if tiled else []), "status", "step time",
               "bound per level", "bound", "against the best", "gap per level", "note"]  # fmt: skip
    best = result.value
    rows: list[Sequence[object]] = []
    for plan in ordered[:_MOST]:
        value = plan.value if plan.value is not None else plan.level_bound
        least = ">= " * (plan.value is None)
        ratio = TableCell("-") if value is None else TableCell(f"{least}{value / best:.4g} x", value / best)
        chosen = plan.plan == result.plan and plan.status == "solved" and plan.value == best
        rows.append([
            plan.plan.label, plan.plan.microbatches, *([plan.tile_count] if tiled else []),
            mark("chosen", "good") if chosen else STATES[plan.status],
            _time(plan.value), _time(plan.level_bound), _time(plan.bound), ratio, _gap(plan.gap), plan.note,
        ])  # fmt: skip
    left = result.plan_counts - Counter(plan.status for plan in ordered[:_MOST])
    words = ", ".join(f"{count} {STATES[status]}" for status, count in left.most_common())
    note = f"The best {len(rows)} of {len(rows) + left.total()} plans; left out: {words}." if left else ""
    return table("Plans considered, the best first", columns, rows, note)


def _solves(result: Result) -> Html:
    solves = [(plan, solve) for plan in sorted(result.plans, key=_order) for solve in plan.solves]
    if not solves:
        return paragraph("No plan needed a solver: bounds and closed forms decided.", kind="note")
    columns = ["plan", "problem", "stage", "formulation", "ended", "objective", "bound", "gap", "time", "nodes",
               "rows", "columns", "nonzeros", "note"]  # fmt: skip
    rows = [
        [
            plan.plan.label, solve.problem, solve.stage, solve.formulation, solve.termination.replace("_", " "),
            _time(solve.objective), _time(solve.bound), _gap(solve.gap),
            TableCell(show_unit(solve.seconds, "time", 3), solve.seconds), solve.nodes, solve.rows, solve.columns,
            solve.nonzeros, solve.note,
        ]
        for plan, solve in solves[:_MOST]
    ]  # fmt: skip
    total = sum(solve.seconds for _, solve in solves)
    note = f"{len(solves)} solves, {total:.3g} s together."
    if len(solves) > _MOST:
        note += f" Those of the best plans are shown, {len(solves) - _MOST} are left out."
    return table("Solver records", columns, rows, note)


def _alternatives(result: Result) -> Html | None:
    if not result.alternatives:
        return None
    rows = [
        [option.mapping.plan.label, option.microbatch, option.mapping.tile_count, _time(option.value),
         TableCell(f"{option.value / result.value:.4g} x", option.value / result.value)]
        for option in result.alternatives
    ]  # fmt: skip
    columns = ["plan", "microbatch", "tiles of the stream", "step time", "against the best"]
    return table("The next best mappings", columns, rows)


def sensitivity_section(result: Result) -> PagePart | None:
    """Page section on step times with 10 % more of each resource; None if not requested."""
    if not result.sensitivity:
        return None
    grid = sensitivity(result)
    words = paragraph("With the mapping of the winning plan optimised anew each time.")
    return PagePart(
        "sensitivity", "What would help", [words, table(f"{grid.title} one resource", grid.names, grid.rows)]
    )
