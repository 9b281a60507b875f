"""Results side by side: their figures, and what differs between them, on the terminal and as a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, groupby
from typing import Final

from rich.console import Group, RenderableType

from dfopt.documents.experts import routing_of
from dfopt.documents.result import Result
from dfopt.errors import PlanError
from dfopt.show.grid import Grid, Kind
from dfopt.show.html import Html, table
from dfopt.show.omissions import left_out
from dfopt.show.report.page import Section, assemble
from dfopt.show.tables import dollars, percent, seconds, shortlist, status_line
from dfopt.units import format as show_unit

__all__ = ["compare_page", "compare_report"]

Rows = list[tuple[str, ...]]
_FIGURES: Final[dict[str, Callable[[Result], str]]] = {
    "graph": lambda one: one.graph.name,
    "system": lambda one: f"{one.system.name}, {one.system.chips} chips",
    "plan": lambda one: one.plan.label,
    "computed": lambda one: one.graph.variant or "-",
    "step time": lambda one: seconds(one.step_time_s),
    "utilization": lambda one: percent(one.utilization),
    "samples per second": lambda one: f"{one.score.samples_per_s:.4g}",
    "status": status_line,
    "bound by": lambda one: one.score.bound_by,
    "DRAM of a chip": lambda one: show_unit(max(stage.dram_bytes for stage in one.score.stages), "bytes"),
    "partitions": lambda one: str(len(one.score.partitions)),
    "price": lambda one: "-" if one.score.price_usd is None else dollars(one.score.price_usd),
    "routing": lambda one: routing_of(one.graph) or "-",
    "left out": lambda one: left_out(one) or "-",
}


def _figures(results: Sequence[Result]) -> Rows:
    rows = [(name, *map(of, results)) for name, of in _FIGURES.items()]
    first = results[0].step_time_s
    rows.insert(5, ("against the first", *(f"{one.step_time_s / first:.4f} x" for one in results)))
    return [row for row in rows if set(row[1:]) != {"-"}]


def _differences(results: Sequence[Result]) -> Rows:
    """Assumptions, and places of kernels, that are not the same in all results; a run of kernels alike is one row."""
    assumed = [{name: str(value) for name, value in one.assumptions.to_data().items()} for one in results]
    found: Rows = [(f"assumed {name}", *(each.get(name, "-") for each in assumed))
                   for name in dict.fromkeys(chain(*assumed)) if name != "schema"]  # fmt: skip
    places = [{kernel.name: kernel for kernel in one.mapping.kernels} for one in results]
    for key, words in (("partition", "in partition"), ("sharding", "sharded by")):
        cells = {name: tuple(str(getattr(each.get(name), key, "-")) for each in places)
                 for name in dict.fromkeys(chain(*places))}  # fmt: skip
        found += [(f"{shortlist(alike)} {words}", *where) for where, alike in groupby(cells, cells.__getitem__)]
    return [row for row in found if len(set(row[1:])) > 1]


def _tables(names: Sequence[str], results: Sequence[Result]) -> tuple[Grid, Grid]:
    if len(results) < 2 or len(set(names)) < len(names):
        raise PlanError(f"compare: found {', '.join(names) or 'nothing'}, expected two or more different results")
    columns: dict[str, Kind] = {"": "text", **dict.fromkeys(names, "text")}
    differs = _differences(results)
    title = "What differs" if differs else "Nothing else differs"
    return Grid("Results", columns, _figures(results)), Grid(title, columns, differs)


def compare_report(names: Sequence[str], results: Sequence[Result]) -> RenderableType:
    """Results side by side for the terminal; `PlanError` for fewer than two, or the same twice."""
    figures, differs = _tables(names, results)
    return Group(figures, "", differs if differs.rows else differs.title)


def compare_page(names: Sequence[str], results: Sequence[Result], version: str) -> str:
    """Results side by side as one HTML file; raises as `compare_report` does."""
    parts = [table(one.title, one.names, one.rows) for one in _tables(names, results) if one.rows]
    head = Html(f"<p class=note>dfopt comparison</p><h1>{len(results)} results</h1>")
    return assemble("dfopt comparison", head, [Section("results", "Side by side", parts)], version)
