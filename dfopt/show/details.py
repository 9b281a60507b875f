"""What an answer says on request: its plan, kernels, time, memory, decisions, proof, sensitivity and heat in full."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.text import Text

from dfopt.documents.experts import routing_of
from dfopt.documents.result import Result
from dfopt.documents.score import Score
from dfopt.show.answer import headline, summary
from dfopt.show.asked import asked_facts
from dfopt.show.decisions import decisions
from dfopt.show.grid import FactList, Grid
from dfopt.show.html import TableCell
from dfopt.show.inputs import routing_facts, type_words
from dfopt.show.matrix_tables import grids
from dfopt.show.omissions import Judged, JudgedResult, omissions
from dfopt.show.parts import RESOURCES, dollars, held_words, parts_words, time_facts
from dfopt.show.physical import physical_facts, physical_tables
from dfopt.show.stages import stage_facts
from dfopt.show.tables import counted, ending, least_bound, partitions, plan_words, seconds, speed_facts, status_line
from dfopt.units import number, show_unit

_WIDEST: Final = 100  # columns of a summary, on a terminal that has more
_TILES: Final = 5  # of a stack, the hottest


def _plan(answer: JudgedResult) -> Iterator[RenderableType]:
    graph = answer.graph
    facts = [*asked_facts(answer), ("plan", plan_words(answer.plan, graph.microbatch))]
    facts += [("computed", graph.variant)] if graph.variant else []
    facts += [("types", type_words(graph))] if graph.dtypes else []
    facts += stage_facts(answer) if isinstance(answer, Result) else []
    yield FactList([*facts, *routing_facts(routing_of(graph))])


def _kernels(answer: JudgedResult) -> Iterator[RenderableType]:
    score, kinds = answer.score, answer.graph.layers.kinds
    title, blocks = "Partitions of one layer and microbatch, in order", answer.mapping.blocks_by_partition
    yield partitions(score, title, len(score.stages) == 1, kinds, blocks)


def time_details(answer: JudgedResult) -> list[tuple[str, str]]:
    """Label and text of speed, bottleneck, parts of the step, collectives, price and power."""
    score = answer.score
    facts = [*speed_facts(score, answer.graph.trains), ("bottleneck", score.bound_by), *time_facts(score)]
    if score.collectives:
        listed = ", ".join(f"{count} {kind.replace('.', ' (')})" for kind, count in sorted(score.collectives.items()))
        facts.append(("collectives", f"{'of every kind of layer' if score.has_kinds else 'per layer'}: {listed}"))
    return [*facts, *_cost(score)]


def _cost(score: Score) -> Iterator[tuple[str, str]]:
    """Price and power of the machine, and what a step takes of them."""
    rate, keeps = score.flop_per_step / score.sustained.step_time_s / 1e9, score.sustained
    if score.price_usd is not None:
        yield "price", f"{dollars(score.price_usd)}, {number(rate / score.price_usd)} GFLOP/s per USD"
    if score.power_w is not None:
        energy = show_unit(score.power_w * keeps.step_time_s, "energy")
        power = show_unit(score.power_w, "power")
        yield "power", f"{power}, {number(rate / score.power_w)} GFLOP/s per W, {energy} per step"
    yield from (score.unpriced or {}).items()


def memory_details(answer: JudgedResult) -> list[tuple[str, str]]:
    """Label and text of the bytes in each memory of a chip and their composition, by pipeline stage."""
    score, chip = answer.score, answer.system.chip
    facts = []
    for (name, tier), word in zip(chip.tiers.items(), chip.named_tiers, strict=True):
        most = max(stage.held_in(name) for stage in score.stages)
        facts.append((word, f"{held_words(most, tier.capacity)} (a chip of the heaviest stage)"))
    for stage, held in enumerate(score.memory):
        facts.append((f"stage {stage}" if len(score.memory) > 1 else "held", parts_words(held)))
    return facts


def _decisions(answer: JudgedResult) -> Iterator[RenderableType]:
    decided = decisions(answer) if isinstance(answer, Result) else None
    yield decided if decided is not None else "Decisions: none but the plan; the way to compute a step was not searched"


def _proof(answer: JudgedResult) -> Iterator[RenderableType]:
    if isinstance(answer, Judged):
        return
    facts = [("status", status_line(answer))]
    if answer.gap:
        facts.append(("least bound", least_bound(answer)))
    facts.append(("proof", answer.proof))
    facts.append(("space", str(answer.space)))
    facts += [("fixed", ", ".join(answer.fixed))] if answer.fixed else []
    facts += [("note", note) for note in answer.score.notes or ()]
    missing = omissions(answer)
    yield FactList([*facts, *[("left out", ", ".join(missing))] * bool(missing)])


def sensitivity(result: Result) -> Grid:
    """Table of step times with 10 % more of each resource, and the speedup."""
    rows = []
    for row in result.sensitivity:
        least, most = ("", "") if row.proven else (">= ", "<= ")
        time = TableCell(f"{most}{seconds(row.value)}", row.value)
        gain = TableCell(f"{least}{row.speedup:.4f}x", row.speedup)
        rows.append((RESOURCES[row.resource], time, gain))
    return Grid("With 10 % more of", {"resource": "word", "step time": "figure", "speedup": "figure"}, rows)


def _sensitivity(answer: JudgedResult) -> Iterator[RenderableType]:
    if isinstance(answer, Result) and answer.sensitivity:
        yield sensitivity(answer)


def _heat(answer: JudgedResult, tiles: int = _TILES) -> Iterator[RenderableType]:
    physical, per = answer.score.physical, counted(answer.score)
    if physical is not None:
        yield FactList(physical_facts(physical, per))
        yield from (part for table in physical_tables(physical, tiles, per) for part in ("", table))


def _matrices(answer: JudgedResult) -> Iterator[RenderableType]:
    if isinstance(answer, Judged):
        yield "Matrices: only a result of a search has them"
        return
    yield from grids(answer.matrices, answer.graph)


_DetailSection = Callable[[JudgedResult], Iterator[RenderableType]]
_SECTIONS: Final[dict[str, _DetailSection]] = {
    "plan": _plan,
    "kernels": _kernels,
    "time": lambda answer: iter([FactList(time_details(answer))]),
    "memory": lambda answer: iter([FactList(memory_details(answer))]),
    "decisions": _decisions,
    "proof": _proof,
    "sensitivity": _sensitivity,
    "heat": _heat,
}
_APART: Final[dict[str, _DetailSection]] = {"matrices": _matrices}  # long, and for readers of the paper
DETAILS: Final = (*_SECTIONS, *_APART, "all")
"""Sections of an answer by name, in their order, and all of them, but for the matrices."""


def answer_report(
    answer: JudgedResult, other: Score | None = None, detail: Sequence[str] = (), tiles: int = _TILES
) -> RenderableType:
    """Terminal report of an answer: at most 16 lines, and the requested sections below.

    Parameters
    ----------
    answer : Result or Judged
    other : Score, optional
        The same mapping under the other efficiency, see `dfopt.show.answer.summary`.
    detail : sequence of str
        Names among `DETAILS`.
    tiles : int
        For a die stack, the number of hottest tiles to list.
    """
    asked, machine = headline(answer)
    last = "more: --detail all"
    if isinstance(answer, Result):
        last = f"{ending(answer)} after {answer.seconds:.2f} s; {last}"
    broken = [*answer.score.violations, *(answer.score.physical.violations if answer.score.physical else ())]
    facts = [*summary(answer, other), *(("limit broken", sentence) for sentence in broken)]
    top = Group(Text(asked, "bold"), Text(machine), FactList(facts), Text(last, "dim"))
    names = list(_SECTIONS) if "all" in detail else detail
    sections: dict[str, _DetailSection] = {**_SECTIONS, **_APART, "heat": partial(_heat, tiles=tiles)}
    parts = (part for name in names for part in ("", *sections[name](answer)))
    return Group(Constrain(top, _WIDEST), *parts)
