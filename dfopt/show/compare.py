"""Results side by side: what differs in the question, their figures, parts of a step, what differs in the mapping."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, groupby
from typing import Any, Final

from rich.console import Group, RenderableType

from dfopt.documents.experts import routing_of
from dfopt.documents.metrics import METRICS
from dfopt.documents.result import Result
from dfopt.documents.score import Score
from dfopt.errors import PlanError
from dfopt.show.asked import asked_facts
from dfopt.show.grid import ColumnKind, Grid
from dfopt.show.html import Html, paragraph, table
from dfopt.show.omissions import left_out
from dfopt.show.parts import dollars, held_words
from dfopt.show.report.page import PagePart, assemble
from dfopt.show.tables import plan_words, seconds, shortlist, status_line
from dfopt.units import number, show_unit

TextRows = list[tuple[str, ...]]
_DOCUMENTS: Final = ("graph", "system", "assumptions")
_FIRST: Final = 3  # differences that the first line names
_MOST: Final = 12  # fields of a document that are listed one by one
_NOT_ASKED: Final = (  # prose; what is drawn, and what a search may choose
    "schema", "description", "source", "kernels", "tensors", "carried", "microbatch", "tokens", "variant", "recomputed",
)  # fmt: skip


def _total(score: Score, name: str, total: float | None, words: Callable[[float], str]) -> str:
    """Price or power of a system, or what is known of it and what that is without."""
    return (score.unpriced or {}).get(name, "-") if total is None else words(total)


def _metric(name: str, result: Result) -> str:
    """A metric of a result, at the speed that a stack of dies keeps up."""
    return METRICS[name].shown(getattr(result.score.sustained, name))


_FIGURES: Final[dict[str, Callable[[Result], str]]] = {
    "plan": lambda result: plan_words(result.plan, result.graph.microbatch),
    "computed": lambda result: result.graph.variant or "-",
    "step time": partial(_metric, "step_time_s"),
    "without heat": lambda result: "-" if result.score.physical is None else seconds(result.step_time_s),
    **{metric.words: partial(_metric, name) for name, metric in METRICS.items() if metric.headline},
    "tokens per second per chip": lambda result: number(result.score.sustained.tokens_per_s / result.system.chips),
    "status": status_line,
    "bound by": lambda result: result.score.bound_by,
    "memory of a chip": lambda result: held_words(
        max(stage.held_in(result.system.chip.fastest_tier) for stage in result.score.stages),
        result.system.chip.fastest.capacity,
    ),
    "partitions": lambda result: str(len(result.score.partitions)),
    "price": lambda result: _total(result.score, "price", result.score.price_usd, dollars),
    "power": lambda result: _total(result.score, "power", result.score.power_w, partial(show_unit, dimension="power")),
    "routing": lambda result: routing_of(result.graph) or "-",
    "left out": lambda result: left_out(result) or "-",
}


def pace_words(time_s: float, first_s: float) -> str:
    """Speed relative to the first time as text, such as "25 % faster".

    Examples
    --------
    >>> pace_words(2.0, 2.0), pace_words(1.6, 2.0), pace_words(2.5, 2.0), pace_words(9.0, 2.0)
    ('as fast', '25 % faster', '25 % slower', '4.5 times slower')
    """
    pace, word = (first_s / time_s, "faster") if time_s < first_s else (time_s / first_s, "slower")
    if pace - 1 < 5e-7:
        return "as fast"
    return f"{number(pace, 3)} times {word}" if pace >= 2 else f"{number(100 * (pace - 1), 3)} % {word}"


def _figures(results: Sequence[Result]) -> TextRows:
    rows = [(name, *map(of, results)) for name, of in _FIGURES.items()]
    first, *others = (result.score.sustained for result in results)
    other = ["" if math.isclose(result.flop_per_step, first.flop_per_step) else ", of other work" for result in others]
    paces = [pace_words(result.step_time_s, first.step_time_s) + end for result, end in zip(others, other, strict=True)]
    rows.insert(3, ("against the first", "-", *paces))
    return [row for row in rows if set(row[1:]) != {"-"}]


def _unlike(documents: Sequence[dict[str, str]]) -> TextRows:
    """What is not the same in all of some documents; of many fields the first."""
    every = ((name, *(each.get(name, "-") for each in documents)) for name in dict.fromkeys(chain(*documents)))
    rows = [row for row in every if len(set(row[1:])) > 1]
    more = f"{len(rows) - _MOST} more fields"
    return [*rows[:_MOST], *[("...", *[more] * len(documents))] * (len(rows) > _MOST)]


def _fields(data: Any, path: str) -> dict[str, str]:
    """Every field of a document of a question by its path."""
    if not isinstance(data, dict | list):
        return {path: str(data)}
    named = data.items() if isinstance(data, dict) else enumerate(data)
    inside = (_fields(value, f"{path}.{name}") for name, value in named if name not in _NOT_ASKED)
    return {name: value for fields in inside for name, value in fields.items()}


def _questions(results: Sequence[Result]) -> TextRows:
    """What differs in what was asked: in words, then field by field."""
    stacks = ({"stack": "none" if result.system.stack is None else result.system.stack.name} for result in results)
    rows = _unlike([dict(asked_facts(result)) | stack for result, stack in zip(results, stacks, strict=True)])
    rows += _document_rows(results)
    rows += _unlike([_fields(result.request.stated(), "asked") for result in results])
    drawn = [{"kernels": f"{len(result.graph.kernels)} in graph {result.graph.digest()}"} for result in results]
    graphs = {(result.graph.microbatch, result.graph.variant) for result in results}
    return rows if len(graphs) > 1 else rows + _unlike(drawn)


def _document_rows(results: Sequence[Result]) -> TextRows:
    """What differs in the documents of the questions, field by field."""
    return [
        row
        for name in _DOCUMENTS
        for row in _unlike([_fields(getattr(result, name).to_data(), name) for result in results])
    ]


def difference(results: Sequence[Result]) -> str:
    """One line on what differs between results: the question, else the documents, else the mapping."""
    asked = [_question_fields(result) for result in results]
    rows = _unlike(asked) if all(asked) else []
    if not rows and len({tuple(getattr(result, name).digest() for name in _DOCUMENTS) for result in results}) > 1:
        rows = _document_rows(results)
    if rows:
        shown = [["not given" if cell == "-" else cell for cell in row] for row in rows[:_FIRST]]
        first = "; ".join(f"{name}: {' against '.join(values)}" for name, *values in shown)
        return f"different {first}" + (f"; and {len(rows) - _FIRST} more" if len(rows) > _FIRST else "")
    if len({result.mapping.digest() for result in results}) > 1:
        return "the same question, different mappings"
    return "the same question, the same mapping"


def _question_fields(result: Result) -> dict[str, str]:
    """What a question says, by the names of its options and parameters; nothing where it is not in the result."""
    if result.question is None:
        return {}
    data = result.question.to_data()
    groups = [data.pop(name, {}) for name in ("parameters", "set", "options")]
    data.pop("schema", None)
    given = {name: value for group in (data, *groups) for name, value in group.items()}
    return {name: ", ".join(map(str, x)) if isinstance(x, list | tuple) else str(x) for name, x in given.items()}


def _mappings(results: Sequence[Result]) -> TextRows:
    """What differs in places of kernels: how many are fused with others, and runs of them that are sharded alike."""
    blocks: list[dict[str, frozenset[str]]] = []
    for result in results:
        held = [(kernel.stage, kernel.partition, kernel.name) for kernel in result.mapping.kernels]
        blocks.append({name: frozenset(each[2] for each in held if each[:2] == (i, j)) for i, j, name in held})
    others = [sum(each.get(name) != block for name, block in blocks[0].items()) for each in blocks]
    fused = ("fused unlike the first", "-", *(f"{count} of {len(blocks[0])} kernels" for count in others[1:]))
    places = [{kernel.name: kernel.sharding for kernel in result.mapping.kernels} for result in results]
    cells = {name: tuple(each.get(name, "-") for each in places) for name in dict.fromkeys(chain(*places))}
    rows = [(f"{shortlist(alike)} sharded by", *where) for where, alike in groupby(cells, cells.__getitem__)]
    return [fused] * any(others) + [row for row in rows if len(set(row[1:])) > 1]


def _tables(names: Sequence[str], results: Sequence[Result]) -> list[Grid]:
    if len(results) < 2 or len(set(names)) < len(names):
        raise PlanError(f"compare: found {', '.join(names) or 'nothing'}, expected two or more different results")
    columns: dict[str, ColumnKind] = {"": "text", **dict.fromkeys(names, "text")}
    questions, mappings = _questions(results), _mappings(results)
    spent = [result.score.breakdown.parts for result in results]
    parts = [(name.replace("_", " "), *(seconds(each.get(name, 0.0)) for each in spent))
             for name in dict.fromkeys(chain(*spent))]  # fmt: skip
    return [
        Grid("What was asked differs" if questions else "All were asked the same", columns, questions),
        Grid("Results", columns, _figures(results)),
        Grid("Parts of the step", columns, parts),
        Grid("What differs in the mapping" if mappings else "The mapping is the same", columns, mappings),
    ]


def compare_report(names: Sequence[str], results: Sequence[Result]) -> RenderableType:
    """Terminal report of several results side by side; `PlanError` for fewer than two, or equal ones."""
    tables = _tables(names, results)
    parts = (part for grid in tables for part in (grid if grid.rows else grid.title, ""))
    return Group(difference(results), "", *parts)


def compare_page(names: Sequence[str], results: Sequence[Result], version: str) -> str:
    """HTML page of several results side by side; raises as `compare_report` does.

    Parameters
    ----------
    names, results
        Names of the results as headings, and the results, at least two.
    version : str
        Version of dfopt, for the foot of the page.
    """
    grids = _tables(names, results)
    parts = [paragraph(difference(results))]
    parts += [table(grid.title, grid.names, grid.rows) if grid.rows else paragraph(grid.title) for grid in grids]
    head = Html(f"<p class=note>dfopt comparison</p><h1>{len(results)} results</h1>")
    return assemble("dfopt comparison", head, [PagePart("results", "Side by side", parts)], version)
