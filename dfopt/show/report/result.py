"""The report of a result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from dfopt.documents.assumptions import PROFILES, Assumptions
from dfopt.documents.descriptions import fields_of
from dfopt.documents.experts import routing_of
from dfopt.documents.result import Result
from dfopt.documents.score import StageScore
from dfopt.documents.system import Chip
from dfopt.physics.pipeline import resolve
from dfopt.physics.states import LABELS
from dfopt.show import inputs, plots, tables
from dfopt.show.answer import headline, summary
from dfopt.show.asked import batch_words
from dfopt.show.decisions import decisions
from dfopt.show.details import memory_details, time_details
from dfopt.show.html import Html, TableCell, facts, mark, paragraph, table
from dfopt.show.physical import physical_facts, physical_tables
from dfopt.show.plots.partitions import longest
from dfopt.show.report.page import LIMIT, PageFigure, PagePart, assemble, draw, heading, needs_matplotlib
from dfopt.show.report.search import search_section, sensitivity_section
from dfopt.show.report.sources import Remark, inputs_section
from dfopt.show.tables import counted, percent, seconds
from dfopt.units import Dimension, number, show_unit

_ROWS: Final = 300  # of a table of partitions or kernels
_BOXES: Final = 80  # of a dataflow figure: more of them are a map, not a page
_HOTTEST: Final = 20  # tiles


def result_report(
    result: Result,
    remarks: Sequence[Remark] = (),
    notes: Sequence[str] = (),
    limit: int = LIMIT,
    before: Sequence[PagePart] = (),
) -> str:
    """Self-contained HTML page of a result.

    Parameters
    ----------
    remarks : sequence of Remark
        Remarks of the zoo's files on unconfirmed numbers of the graph and system.
    notes : sequence of str
        Statements on the origin of the inputs, as far as it is known.
    limit : int
        Bytes of the file; figures that do not fit are left out, and named.
    before : sequence of PagePart
        First section of the page, such as the origin of the system.

    Raises
    ------
    PlanError
        If Matplotlib is missing, or the tables alone pass the limit.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.solve(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
    >>> page = result_report(result)
    >>> page[:15], "://" in page, len(page) < 1_000_000
    ('<!DOCTYPE html>', False, True)
    """
    needs_matplotlib()
    sections = [
        *before,
        _decided(result), _time(result), _memory(result), _on_stack(result), search_section(result),
        sensitivity_section(result), _placement(result), _assumptions(result),
        inputs_section(_inputs(result), remarks, notes), _versions(result),
    ]  # fmt: skip
    title = f"{result.mapping.graph} on {result.mapping.system}"
    return assemble(f"{title}: dfopt report", _head(result), sections, result.provenance.dfopt, limit)


def _head(result: Result) -> Html:
    score, physical, system, graph = result.score, result.score.physical, result.system, result.graph
    # a heat-aware mapping has a proof of its own; the gap of the result is to mappings that ignore heat
    shown = result.status if result.heat is None else result.heat.status
    proven = shown in ("optimal", "optimal_per_level")
    keeps, per = score.sustained, counted(score)
    boxes: list[tuple[str, object]] = [("step time", show_unit(keeps.step_time_s, "time", 6))]
    if physical is not None and abs(physical.slowdown - 1) >= 5e-4:
        boxes = [("step time on its stack", boxes[0][1]), ("without heat", show_unit(result.step_time, "time", 6))]
    boxes += [
        ("utilization of peak", percent(keeps.utilization)),
        ("gap to any mapping", percent(result.gap)),
        ("status", mark(tables.status_line(result), "good" if proven else "open")),
        ("bound by", score.bound_by),
        (f"{per}s per second", number(keeps.samples_per_s if per == "sample" else keeps.tokens_per_s)),
    ]
    if (produced := keeps.produced_tokens_per_s) not in (None, keeps.tokens_per_s):
        boxes.append(("tokens produced per second", number(produced or 0.0)))
    asked, machine = headline(result)
    rows = [
        ("question", asked), ("machine", machine), *summary(result),
        ("workload", inputs.entitled(graph)), ("system", inputs.entitled(system)),
        *inputs.routing_facts(routing_of(graph)),
    ]  # fmt: skip
    violations = [*score.violations, *(physical.violations if physical is not None else ())]
    return heading("a mapping", f"{graph.name} on {system.name}", boxes, *_broken(violations), facts(rows))


def _broken(violations: Iterable[str]) -> list[Html]:
    return [paragraph(mark("limit broken", "bad"), f" {sentence}") for sentence in violations]


def _time(result: Result) -> PagePart:
    """Where the time goes: the step by its parts, over stages, and inside of a layer."""
    pipeline, trains = result.plan.stages > 1, result.graph.trains
    parts: list[Html | PageFigure | None] = [
        draw("breakdown", "What takes the time of a step; the parts add up to it.", plots.breakdown, result),
        draw("step", "The same by the passes of training.", plots.step, result) if trains else None,
        draw("timeline", "When each stage works on which microbatch, and what communication hides behind work.",
             plots.timeline, result) if pipeline or trains else None,
        facts(time_details(result)),
        draw("partitions", "One layer and microbatch on a chip: when each partition computes, reads and sends.",
             plots.partitions, result),
        draw("roofline", "What partitions reach against their FLOP per byte of DRAM and of network, under the ceilings"
             " of the chip.", plots.roofline, result),
        _partitions(result),
    ]  # fmt: skip
    return PagePart("time", "Where the time goes", parts)


def _memory(result: Result) -> PagePart:
    """What fills the memory of a chip."""
    return PagePart("memory", "What fills the memory", [
        draw("memory", "Bytes of a chip by state, against its capacity.", plots.memory, result),
        facts(memory_details(result)),
        _stages(result),
    ])  # fmt: skip


def _decided(result: Result) -> PagePart:
    """The plan on the machine, and what other ways to compute the step cost."""
    grid = decisions(result)
    return PagePart("decisions", "Decisions", [
        draw("plan", "One copy of the model: a square is a chip, a frame is a pipeline stage.", plots.plan, result),
        table(grid.title, grid.names, grid.rows) if grid is not None else None,
    ])  # fmt: skip


def _unit(value: float, dimension: Dimension) -> TableCell:
    """A figure of four digits with a unit, sorted by its value."""
    return TableCell(show_unit(value, dimension), value)


def _stage_column(result: Result) -> tuple[list[str], Callable[[int], list[str | TableCell]]]:
    """The header and the cells of a column that says where something runs; none where there is one place only."""
    if result.mapping.stages == 1:
        return [], lambda stage: []
    if result.score.has_kinds:
        return ["layer"], lambda stage: [result.graph.layers.kinds[stage]]
    return ["stage"], lambda stage: [TableCell(str(stage), stage)]


def _partitions(result: Result) -> Html:
    place, placed = _stage_column(result)
    kept, left, rest = longest(result.score.partitions, _ROWS)
    more = ["SRAM time"] * (result.score.sram_share is not None)
    columns = [*place, "#", "kernels", "tiles", "compute", "DRAM", "network", *more, "time", "bound by", "work",
               "DRAM traffic", "SRAM"]  # fmt: skip
    blocks = result.mapping.blocks_by_partition
    columns += ["token blocks"] * bool(blocks)
    rows = [
        [
            *placed(part.stage), part.partition, tables.first_of(part.kernels, 12), sum(part.tiles),
            *(_unit(value, "time") for value in (*part.terms.values(), part.time_s)),
            part.bound_by, _unit(part.flop, "flop"), _unit(part.dram_bytes, "bytes"),
            _unit(part.sram_bytes, "bytes"), *([blocks.get((part.stage, part.partition), "")] if blocks else []),
        ]
        for part in kept
    ]  # fmt: skip
    note = f"{left} shorter partitions, {seconds(rest)} together, are left out." if left else ""
    return table("Partitions of a chip, for one layer and one microbatch", columns, rows, note)


def _stages(result: Result) -> Html:
    stages, chip = result.score.stages[:_ROWS], result.system.chip
    held = [_held(stage, chip) for stage in stages]
    states = [name for name in held[0] if any(each[name] for each in held)]
    columns = ["stage", "layers", "a layer", "once", "to the neighbours", "a microbatch", *states]
    rows = [
        [
            stage.stage, stage.layers,
            *(_unit(value, "time") for value in
              (stage.layer_time_s, stage.once_time_s, stage.point_to_point_s, stage.time_s)),
            *(_unit(each[name], "bytes") for name in states),
        ]
        for stage, each in zip(stages, held, strict=True)
    ]  # fmt: skip
    more = len(result.score.stages) - _ROWS
    note = "Stages that are alike are listed once. Memory is DRAM of one chip."
    note += f" {more} more stages are left out." if more > 0 else ""
    return table("Pipeline stages", columns, rows, note)


def _held(stage: StageScore, chip: Chip) -> dict[str, float]:
    """Bytes of every state, in one order, and of all together; of several memories also what lies in each."""
    parts = [(name, size) for held in stage.states.values() for name, size in held.items()]
    totals = {name: math.fsum(size for label, size in parts if label == name) for name in LABELS}
    each = {f"in {name}": stage.held_in(name) for name in chip.tiers} if len(chip.tiers) > 1 else {}
    return {**totals, "DRAM in all": stage.dram_bytes, **each}


def _placement(result: Result) -> PagePart:
    mapping = result.mapping
    place, placed = _stage_column(result)
    rows = [
        [kernel.name, *placed(kernel.stage), kernel.partition, kernel.sharding, kernel.tiles]
        for kernel in mapping.kernels[:_ROWS]
    ]
    more = len(mapping.kernels) - _ROWS
    note = f"{more} more kernels are left out; the result's own file has them." if more > 0 else ""
    settings = [("streamed axis", f"cut into {mapping.tile_count} tiles")] if mapping.tile_count > 1 else []
    settings += [
        (f"partition {clock.partition} of stage {clock.stage}", f"at {percent(clock.frequency)} of the clock")
        for clock in mapping.clocks or ()
    ]
    settings += [
        (
            f"partition {tokens.partition} of stage {tokens.stage}",
            f"takes its tokens in {tokens.blocks} block{'s' * (tokens.blocks > 1)}",
        )
        for tokens in mapping.token_blocks or ()
    ]
    settings += [(f"stage {pause.stage}", f"waits {seconds(pause.time)} to cool") for pause in mapping.pauses or ()]
    caption = "Kernels with the number and colour of their partition; tensors that are cut pass through DRAM."
    return PagePart("placement", "Mapping", [
        draw("dataflow", caption, plots.dataflow, result, limit=_BOXES),
        table("Where every kernel runs", ["kernel", *place, "partition", "sharding", "tiles"], rows, note),
        facts(settings) if settings else None,
    ])  # fmt: skip


def _on_stack(result: Result) -> PagePart | None:
    """Times, memory, energy and temperatures on a stack of dies, with the map of the tiles."""
    physical, per = result.score.physical, counted(result.score)
    if physical is None:
        return None
    caption = "Mean temperature of every tile of every die in the steady state; the hottest one is framed."
    return PagePart("heat", "On the stack", [
        *_broken(physical.violations),
        facts(physical_facts(physical, per)),
        draw("temperature", caption, plots.temperature, result, paper=True),
        *(table(grid.title, grid.names, grid.rows) for grid in physical_tables(physical, _HOTTEST, per)),
    ])  # fmt: skip


def _assumptions(result: Result) -> PagePart:
    used = result.assumptions.to_data()
    default = Assumptions().to_data()
    own = PROFILES.get(result.assumptions.profile)
    named = (own or Assumptions()).to_data()
    chip = _of_chip(result)
    rows, changed = [], 0
    for field in fields_of(Assumptions):
        name = field.name
        if name in ("schema", "profile"):
            continue
        value, usual = used.get(name), default.get(name)
        if value == usual:
            how: object = "default"
        elif usual == named.get(name) and value == chip.get(name):
            how = "default: as chip and graph say"
        else:
            changed += 1
            how = mark("of the profile" if own is not None and value == named.get(name) else "changed", "open")
        rows.append([name, _shown(value), how, _shown(usual), field.text.replace("``", "")])
    summary = (
        f"Profile {result.assumptions.profile}. {changed} of {len(rows)} fields are not those of the default profile."
    )
    return PagePart("assumptions", "Assumptions", [
        paragraph(f"{summary} Two results can be compared only if theirs are equal."),
        table("What the model takes for granted", ["field", "here", "how", "default", "what it means"], rows),
    ])  # fmt: skip


def _of_chip(result: Result) -> dict[str, object]:
    """What the chip says where the default profile leaves it to the chip; a result has such fields filled in."""
    chip = result.system.chip
    usual = resolve(Assumptions(), chip.execution, chip.compute_utilization, graph=result.graph)
    own = Assumptions(execution=result.assumptions.execution)
    return usual.with_(overlap=resolve(own, chip.execution, chip.compute_utilization).overlap).to_data()


def _shown(value: object) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _inputs(result: Result) -> list[tuple[str, object]]:
    graph, system = result.graph, result.system
    sizes = f"{len(graph.kernels)} kernels, {len(graph.tensors)} tensors, {inputs.layers_words(graph)}"
    rows: list[tuple[str, object]] = [
        ("graph", f"{graph.name}: {sizes}"), ("batch", batch_words(graph)),
        ("source of the graph", graph.source or "not stated"), *inputs.system_facts(system),
        ("source of the system", system.source or "not stated"),
    ]  # fmt: skip
    if system.stack is not None:
        rows += [("stack", system.stack.name), ("source of the stack", system.stack.source or "not stated")]
    return rows


def _versions(result: Result) -> PagePart:
    origin, request = result.provenance, result.request
    if not result.seal:
        seal: object = mark("not sealed", "open")
    elif result.seal == result.unsealed_digest():
        seal = mark("intact", "good")
    else:
        seal = mark("broken: this result was edited after it was made", "bad")
    asked = [f"{name}={_shown(value)}" for name, value in request.stated().items()]
    rows: list[tuple[str, object]] = [
        ("dfopt", origin.dfopt), ("solver", origin.solver), ("HiGHS", origin.highs), ("Python", origin.python),
        ("seed", origin.seed), ("digest of the graph", origin.graph_digest),
        ("digest of the system", origin.system_digest), ("digest of the assumptions", origin.assumptions_digest),
        ("seal of the result", seal), ("asked for", ", ".join(asked) or "nothing special"),
        ("solved in", f"{result.seconds:.2f} s"),
    ]  # fmt: skip
    return PagePart("versions", "Versions and digests", [facts(rows)])
