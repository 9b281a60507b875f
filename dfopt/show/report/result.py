"""The report of a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dfopt.documents.assumptions import PROFILES, Assumptions
from dfopt.documents.result import Result
from dfopt.documents.score import PartitionScore, StageScore
from dfopt.physics.states import LABELS
from dfopt.show.html import Cell, Html, facts, join, mark, paragraph, section, subtitle, table, text
from dfopt.show.report.figures import result_figures
from dfopt.show.report.inputs import Remark
from dfopt.show.report.page import LIMIT, Page, assemble, needs_matplotlib
from dfopt.show.report.physical import physical_section
from dfopt.show.report.search import search_section, sensitivity_section
from dfopt.show.tables import _bottleneck, _plan_words, batch_words, counted, percent, seconds, status_line
from dfopt.units import Dimension
from dfopt.units import format as show_unit

__all__ = ["result_report"]

_ROWS: Final = 300  # of a table of partitions or kernels
_Section = tuple[str, str, Any]


def result_report(
    result: Result,
    remarks: Sequence[Remark] = (),
    notes: Sequence[str] = (),
    limit: int = LIMIT,
) -> str:
    """A result as one HTML file.

    Parameters
    ----------
    result : Result
        What to report.
    remarks : sequence of Remark
        What the zoo's files say of numbers in its graph and system that nobody confirmed.
    notes : sequence of str
        What can and what cannot be said of where its inputs come from.
    limit : int
        Bytes of the file; figures that do not fit are left out, and named.

    Returns
    -------
    str
        HTML that refers to nothing outside of itself.

    Raises
    ------
    PlanError
        If Matplotlib is missing, or the tables alone pass the limit.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.optimize(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
    >>> page = result_report(result)
    >>> page[:15], "://" in page, len(page) < 1_000_000
    ('<!DOCTYPE html>', False, True)
    """
    needs_matplotlib()
    made: list[_Section] = [
        ("time", "Where the time goes", lambda drawn: _time(result, drawn)),
        ("placement", "Mapping", lambda drawn: _placement(result, drawn)),
    ]
    if result.score.physical is not None:
        physical, per = result.score.physical, counted(result.score)
        made.append(("heat", "On the stack", lambda drawn: physical_section(physical, drawn, per)))
    made.append(("search", "Search and proof", lambda drawn: search_section(result, drawn)))
    if result.sensitivity:
        made.append(("sensitivity", "Sensitivity", lambda drawn: sensitivity_section(result)))
    made += [
        ("assumptions", "Assumptions", lambda drawn: _assumptions(result)),
        ("inputs", "Inputs and sources", lambda drawn: _inputs(result, remarks, notes)),
        ("versions", "Versions and digests", lambda drawn: _versions(result)),
    ]
    title = f"{result.mapping.graph} on {result.mapping.system}"
    foot = f"Written by dfopt {result.provenance.dfopt}. This file asks for nothing from any network."
    return assemble(Page(f"{title}: dfopt report", _head(result), made, result_figures(result), foot), limit)


def _head(result: Result) -> Html:
    score = result.score
    # a heat-aware mapping has a proof of its own; the gap of the result is to mappings that ignore heat
    shown = result.status if result.heat is None else result.heat.status
    proven = shown in ("optimal", "optimal_per_level")
    boxes: list[tuple[str, object]] = [
        ("step time", show_unit(result.step_time, "time", 6)),
        ("utilization of peak", percent(result.utilization)),
        ("gap to any mapping", percent(result.gap)),
        ("status", mark(status_line(result), "good" if proven else "open")),
        ("bound by", score.bound_by),
        ("tokens per second", _rate(score.tokens_per_s)),
    ]
    if counted(score) == "sample":
        boxes[-1] = ("samples per second", _rate(score.samples_per_s))
    physical = score.physical
    if physical is not None and abs(physical.slowdown - 1) >= 5e-4:
        boxes.insert(1, ("step time on its stack", show_unit(physical.step_time_s, "time", 6)))
    system, graph = result.system, result.graph
    rows: list[tuple[str, object]] = [
        ("workload", f"{graph.name}: {graph.description}" if graph.description else graph.name),
        ("system", f"{system.name}: {system.description}" if system.description else system.name),
        ("plan", _plan_words(result.plan, graph.microbatch)),
        ("proof", result.proof),
        ("assumptions", f"profile {result.assumptions.profile}"),
    ]
    broken = [*score.violations, *(physical.violations if physical is not None else ())]
    return join(
        Html("<p class=note>dfopt report of a mapping</p>"),
        Html(f"<h1>{text(graph.name)} on {text(system.name)}</h1>"),
        facts(boxes, "head"),
        *(paragraph(mark("limit broken", "bad"), f" {sentence}") for sentence in broken),
        facts(rows),
    )


def _rate(tokens: float) -> str:
    """Tokens per second, without an exponent where people have words for it."""
    return f"{float(f'{tokens:.4g}'):,.10g}" if 1e-3 < tokens < 1e9 else f"{tokens:.4g}"


def _time(result: Result, drawn: dict[str, Html]) -> Html:
    score = result.score
    rows = [("one layer, one microbatch", seconds(score.layer_time_s)), *_bottleneck(result)]
    return section(
        "time",
        "Where the time goes",
        facts(rows),
        drawn["breakdown"],
        drawn["roofline"],
        _partitions(result),
        _stages(result) if len(score.stages) > 1 or result.plan.stages > 1 else _memory(result),
        drawn["timeline"],
        drawn.get("schedule"),
    )


def unit(value: float, dimension: Dimension) -> Cell:
    """A figure of four digits with a unit, sorted by its value."""
    return Cell(show_unit(value, dimension), value)


def _partitions(result: Result) -> Html:
    score = result.score
    several = len({part.stage for part in score.partitions}) > 1
    place = "runs in" if score.has_pieces else "stage"
    columns = [
        *([place] if several else []), "#", "kernels", "tiles", "compute", "DRAM", "network", "time", "bound by",
        "GFLOP", "DRAM traffic", "SRAM",
    ]  # fmt: skip
    kept, note = _longest(score.partitions)
    rows = [
        [
            *([_place(result, part.stage)] if several else []),
            part.partition,
            ", ".join(part.kernels[:12]) + (f" and {len(part.kernels) - 12} more" if len(part.kernels) > 12 else ""),
            sum(part.tiles),
            *(unit(value, "time") for value in (part.compute_s, part.memory_s, part.network_s, part.time_s)),
            part.bound_by,
            Cell(f"{part.flop / 1e9:.4g}", part.flop),
            unit(part.dram_bytes, "bytes"),
            unit(part.sram_bytes, "bytes"),
        ]
        for part in kept
    ]
    return table("Partitions of a chip, for one layer and one microbatch", columns, rows, note)


def _place(result: Result, stage: int) -> str | Cell:
    if result.score.has_pieces:
        return ("layer", "before the first layer", "after the last layer")[stage]
    return Cell(str(stage), stage)


def _longest(parts: Sequence[PartitionScore]) -> tuple[list[PartitionScore], str]:
    """The partitions that a table shows, in order, and what to say of the others."""
    out = {id(part) for part in sorted(parts, key=lambda part: -part.time_s)[_ROWS:]}
    rest = sum(part.time_s for part in parts if id(part) in out)
    note = f"{len(out)} shorter partitions, {seconds(rest)} together, are left out." if out else ""
    return [part for part in parts if id(part) not in out], note


def _stages(result: Result) -> Html:
    columns = ["stage", "layers", "a layer", "once", "to the neighbours", "a microbatch", *LABELS, "DRAM in all"]
    rows = [
        [
            stage.stage, stage.layers, unit(stage.layer_time_s, "time"), unit(stage.once_time_s, "time"),
            unit(stage.point_to_point_s, "time"), unit(stage.time_s, "time"),
            *(unit(value, "bytes") for value in _held(stage).values()),
        ]
        for stage in result.score.stages[:_ROWS]
    ]  # fmt: skip
    more = len(result.score.stages) - _ROWS
    note = "Stages that are alike are listed once. Memory is DRAM of one chip." + (
        f" {more} more stages are left out." if more > 0 else ""
    )
    return table("Pipeline stages", columns, rows, note)


def _held(stage: StageScore) -> dict[str, float]:
    """Bytes of every state in DRAM, in one order, and of all together."""
    held = stage.states.get("dram", {})
    return {**{name: held.get(name, 0.0) for name in LABELS}, "DRAM in all": stage.dram_bytes}


def _memory(result: Result) -> Html:
    (stage,) = result.score.stages
    rows = [[name, unit(value, "bytes")] for name, value in _held(stage).items() if value or "all" in name]
    capacity = result.system.chip.dram.capacity
    rows.append(["capacity", "no limit given" if capacity is None else unit(capacity, "bytes")])
    return table("DRAM of one chip", ["what", "held"], rows)


def _placement(result: Result, drawn: dict[str, Html]) -> Html:
    mapping = result.mapping
    several = mapping.stages > 1
    where = "runs in" if result.score.has_pieces else "stage"
    rows = [
        [
            kernel.name,
            *([_place(result, kernel.stage)] if several else []),
            kernel.partition,
            kernel.sharding,
            kernel.tiles,
        ]
        for kernel in mapping.kernels[:_ROWS]
    ]
    more = len(mapping.kernels) - _ROWS
    note = f"{more} more kernels are left out; the result's own file has them." if more > 0 else ""
    columns = ["kernel", *([where] if several else []), "partition", "sharding", "tiles"]
    return section(
        "placement",
        "Mapping",
        drawn["dataflow"],
        table("Where every kernel runs", columns, rows, note),
        _settings(result),
    )


def _settings(result: Result) -> Html | None:
    mapping = result.mapping
    rows: list[tuple[str, object]] = []
    if mapping.tile_count > 1:
        rows.append(("streamed axis", f"cut into {mapping.tile_count} tiles"))
    for clock in mapping.clocks or ():
        rows.append(
            (f"partition {clock.partition} of stage {clock.stage}", f"at {percent(clock.frequency)} of the clock")
        )
    for pause in mapping.pauses or ():
        rows.append((f"stage {pause.stage}", f"waits {seconds(pause.time)} to cool"))
    return facts(rows) if rows else None


def _assumptions(result: Result) -> Html:
    used = result.assumptions.to_data()
    default = Assumptions().to_data()
    own = PROFILES.get(result.assumptions.profile)
    named = (own or Assumptions()).to_data()
    chip = _of_chip(result)
    rows, changed = [], 0
    for name, field in Assumptions.model_fields.items():
        if name in ("schema_", "profile"):
            continue
        value, usual = used.get(name), default.get(name)
        if value == usual:
            how: object = "default"
        elif usual == named.get(name) and name in chip and value == chip[name]:
            how = "default: as the chip says"
        else:
            changed += 1
            how = mark("of the profile" if own is not None and value == named.get(name) else "changed", "open")
        rows.append([name, _shown(value), how, _shown(usual), field.description or ""])
    said = f"{changed} of {len(rows)} fields are not those of the default profile."
    return section(
        "assumptions",
        "Assumptions",
        paragraph(
            f"Profile {result.assumptions.profile}. {said} Two results can be compared only if theirs are equal."
        ),
        table("What the model takes for granted", ["field", "here", "how", "default", "what it means"], rows),
    )


def _of_chip(result: Result) -> dict[str, object]:
    """What the chip says where the default profile leaves it to the chip; a result has such fields filled in."""
    chip = result.system.chip
    own = result.assumptions.execution
    execution = chip.execution if own == "auto" else own
    filled = Assumptions(
        execution=chip.execution,
        overlap="perfect" if execution == "dataflow" else "compute_memory",
        compute_utilization=chip.compute_utilization,
    ).to_data()
    return {name: filled[name] for name in ("execution", "overlap", "compute_utilization")}


def _shown(value: object) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _inputs(result: Result, remarks: Sequence[Remark], notes: Sequence[str]) -> Html:
    graph, system, chip = result.graph, result.system, result.system.chip
    rows: list[tuple[str, object]] = [
        (
            "graph",
            f"{graph.name}: {len(graph.kernels)} kernels, {len(graph.tensors)} tensors, repeated {graph.repeat} times",
        ),
        ("batch", f"{batch_words(graph)}, {graph.microbatch} per evaluation"),
        ("source of the graph", graph.source or "not stated"),
        ("chips", f"{system.chips} x {chip.name}, {chip.execution.replace('_', ' ')}"),
        ("compute", f"{show_unit(chip.peak_flops, 'flop_rate')} peak per chip, {chip.tiles} tiles"),
        ("SRAM", show_unit(chip.sram.capacity, "bytes")),
        ("DRAM", _dram(result)),
        *((f"network {dim.name}", _dim(dim)) for dim in system.network),
        ("source of the system", system.source or "not stated"),
    ]
    if system.stack is not None:
        rows += [("stack", system.stack.name), ("source of the stack", system.stack.source or "not stated")]
    parts: list[Html | None] = [facts(rows), subtitle("Unconfirmed inputs")]
    if remarks:
        listed = [[f"{one.file}:{one.number}", mark(one.kind, "note"), one.line, one.said] for one in remarks]
        parts.append(table("Lines of zoo files that do not take their number for confirmed",
                           ["file", "word", "sets", "remark"], listed))  # fmt: skip
    parts += [paragraph(sentence) for sentence in notes]
    return section("inputs", "Inputs and sources", *parts)


def _dram(result: Result) -> str:
    dram = result.system.chip.dram
    rate = show_unit(dram.bandwidth, "bandwidth")
    return rate if dram.capacity is None else f"{rate}, {show_unit(dram.capacity, 'bytes')}"


def _dim(dim: Any) -> str:
    link = f"{show_unit(dim.link_bandwidth, 'bandwidth')} per link and direction, {seconds(dim.latency)} per hop"
    return f"{dim.topology.replace('_', ' ')} of {dim.size}, {link}"


def _versions(result: Result) -> Html:
    made, request = result.provenance, result.request
    if not result.seal:
        seal: object = mark("not sealed", "open")
    elif result.seal == result.unsealed_digest():
        seal = mark("intact", "good")
    else:
        seal = mark("broken: this result was edited after it was made", "bad")
    asked = [f"{name}={_shown(value)}" for name, value in request.said().items()]
    rows: list[tuple[str, object]] = [
        ("dfopt", made.dfopt), ("solver", made.solver), ("HiGHS", made.highs), ("Python", made.python),
        ("seed", made.seed), ("digest of the graph", made.graph_digest), ("digest of the system", made.system_digest),
        ("digest of the assumptions", made.assumptions_digest), ("seal of the result", seal),
        ("asked for", ", ".join(asked) or "nothing special"), ("solved in", f"{result.seconds:.2f} s"),
    ]  # fmt: skip
    return section("versions", "Versions and digests", facts(rows))
