"""Tables for the terminal: what an architect wants to see at a glance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType

from dfopt.documents.heat import HEAT_WORDS
from dfopt.documents.plan import Plan
from dfopt.documents.result import Result, status_words, unproven
from dfopt.documents.score import Score
from dfopt.physics.schedule import terms_of
from dfopt.show.grid import ColumnKind, FactList, Grid
from dfopt.show.parts import dollars as dollars
from dfopt.show.parts import percent as percent
from dfopt.show.parts import time_facts as time_facts
from dfopt.units import number, show_unit

STATES = {
    "solved": "solved", "pruned_by_bound": "pruned by its bound", "pruned_per_level": "pruned under its sharding",
    "infeasible": "infeasible", "infeasible_per_level": "infeasible under its sharding", "limit": "stopped",
    "not_reached": "not reached",
}  # fmt: skip


def status_line(result: Result) -> str:
    """Text on what is proven of a result, with or without heat."""
    if result.heat is None:
        return status_words(result)
    return (
        f"heat-aware: {HEAT_WORDS[result.heat.status]}, gap {percent(result.heat.gap)};"
        f" {percent(result.level_gap)} above the bound per level without heat"
    )


def ending(result: Result) -> str:
    """Text on what ended the search: proof, gap, time limit or interrupt."""
    gap = f"gap {percent(result.gap)}"
    return {
        "gap_reached": f"ended at the gap that was asked for, {gap}",
        "limit_with_solution": f"{unproven(result, 'ended by the time limit')}, {gap}",
        "interrupted_with_solution": f"ended by an interrupt, {gap}",
    }.get(result.status, "proven")


def least_bound(result: Result) -> str:
    """Text on what keeps the gap open: the plan or graph with the least bound."""
    plans = [(record.bound, record.plan.label, record.status) for record in result.plans if record.bound is not None]
    graphs = [(r.bound, f"every plan with a microbatch of {r.microbatch}", r.status) for r in result.apart or ()]
    groups = [
        (result.bound, f"{count:,} plans with a microbatch of {plans.microbatch}", group.status)
        for plans in result.unlisted or ()
        for group, count in plans.counts.items()
        if group.status in ("limit", "not_reached")
    ]
    bound, name, status = min([*plans, *graphs, *groups])
    return f"{seconds(bound)} under {name} ({STATES[status]})"


def seconds(value: float) -> str:
    """A time as text with a suitable unit."""
    return show_unit(value, "time")


def shortlist(names: Iterable[str], limit: int = 6) -> str:
    """Names separated by commas; of more than ``limit`` only the first and last."""
    listed = list(names)
    if len(listed) <= limit:
        return ", ".join(listed)
    return ", ".join([*listed[: limit - 2], f"... {len(listed) - limit + 1} more", listed[-1]])


def first_of(names: Sequence[str], most: int) -> str:
    """The first ``most`` names as text, and the number of others."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def times_in(times: Iterable[float]) -> tuple[float, str]:
    """Seconds per unit, and the unit, for a column of times.

    Examples
    --------
    >>> times_in([2.4e-3, 1e-6]), times_in([4.4e-5, 3e-7])
    ((0.001, 'ms'), (1e-06, 'us'))
    """
    return (1e-3, "ms") if max(times, default=0.0) >= 1e-3 else (1e-6, "us")


def partitions(
    score: Score,
    title: str,
    single_stage: bool,
    kinds: Sequence[str],
    blocks: Mapping[tuple[int, int], int] | None = None,
) -> Grid:
    """Table of the partitions of a scored mapping: kernels, tiles, times and bottleneck of each.

    Parameters
    ----------
    score : Score
        Score of the mapping.
    title : str
        Title of the table, to which the unit of times is added.
    single_stage : bool
        Whether rows do without the pipeline stage, or the kind of layer, that they are of.
    kinds : sequence of str
        Names of the kinds of layers, if there are several.
    blocks : mapping, optional
        Number of blocks of tokens, by stage and partition; a column of its own if there are any.
    """
    terms = [name.replace("sram", "SRAM") for name in terms_of(score.partitions)]
    times: dict[str, ColumnKind] = {name: "figure" for name in ("tiles", *terms, "time")}
    columns: dict[str, ColumnKind] = {} if single_stage else {"layer" if score.has_kinds else "stage": "figure"}
    columns |= {"#": "figure", "kernels": "text", **times, "bound by": "word", "SRAM MB": "figure"}
    columns |= {"token blocks": "figure"} if blocks else {}
    unit_s, unit = times_in(part.time_s for part in score.partitions)
    rows = []
    for part in score.partitions:
        place = kinds[part.stage] if kinds and score.has_kinds else str(part.stage)
        spent = [f"{t / unit_s:.3f}" for t in (*part.terms.values(), part.time_s)]
        rows.append([
            *([] if single_stage else [place]), str(part.partition), shortlist(part.kernels), str(sum(part.tiles)),
            *spent, part.bound_by, f"{part.sram_bytes / 1e6:.1f}",
            *([str(blocks.get((part.stage, part.partition), ""))] if blocks else []),
        ])  # fmt: skip
    return Grid(f"{title} (times in {unit})", columns, rows)


def speed_facts(score: Score, trains: bool = False) -> list[tuple[str, str]]:
    """Label and text of time, rate and utilization of a step; on a die stack, the sustained ones."""
    keeps, stack = score.sustained, score.physical
    layer = f"one layer, one microbatch: {seconds(score.layer_time_s)}"
    if stack is not None and keeps is not score:
        layer = f"on {stack.stack}; {seconds(score.step_time_s)} without its heat and the rate of its DRAM; {layer}"
    samples = f"{number(keeps.samples_per_s)} samples/s"
    # of an FFT or of a DLRM a sample is one token
    tokens = "" if counted(score) == "sample" else f", {number(keeps.tokens_per_s)} tokens/s"
    if tokens and keeps.produced_tokens_per_s not in (None, keeps.tokens_per_s):
        tokens += f" processed, {number(keeps.produced_tokens_per_s or 0.0)} tokens/s produced"
    mfu, hfu = percent(keeps.model_flop_utilization), percent(keeps.hardware_flop_utilization)
    useful = f", MFU {mfu}, HFU {hfu}" if trains else ""
    return [
        ("step time", f"{seconds(keeps.step_time_s)}   ({layer})"),
        ("throughput", samples + tokens),
        ("utilization", f"{percent(keeps.utilization)} of peak{useful}"),
    ]


def plan_words(plan: Plan, samples: int) -> str:
    """A plan as text, with microbatches of ``samples`` samples and the layers of its stages."""
    layers = f"{plan.layers_per_stage} layer{'' if plan.layers_per_stage == 1 else 's'} per stage"
    if plan.uneven:
        first, middle, last = plan.stage_layers
        between = f", {middle} in each between" if plan.stages > 2 else ""
        layers = f"layers: {first} in the first stage{between}, {last} in the last"
    chunks = f" in {plan.interleave} chunks" if plan.interleave > 1 else ""
    layers += f", {plan.recomputed} of them recomputed" * bool(plan.recomputed)
    many = f"{plan.microbatches} microbatch{'' if plan.microbatches == 1 else 'es'}"
    turns = ", two at a time" if plan.two_batch_overlap else ""
    return f"{plan.label}, {many} of {samples}{turns}, {layers}{chunks}"


def counted(score: Score) -> str:
    """Unit that rates and energies refer to: "token", or "sample" for workloads without tokens.

    Of a decode step, which keeps keys and values, it is a token although every sequence has one.
    """
    serves = any("caches" in tier for stage in score.stages for tier in stage.states.values())
    return "token" if serves or score.tokens_per_s != score.samples_per_s else "sample"


def score_report(score: Score) -> RenderableType:
    """Terminal report of a score, with the limits that its mapping breaks."""
    facts = [*speed_facts(score), ("bottleneck", score.bound_by), *time_facts(score)]
    facts += [("limit broken", violation) for violation in score.violations]
    facts += [("note", note) for note in score.notes or ()]
    single_stage = len(score.stages) == 1 and not score.has_kinds
    return Group(FactList(facts), "", partitions(score, "Partitions", single_stage, ()))
