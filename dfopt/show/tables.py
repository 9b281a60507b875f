"""Tables for the terminal: what an architect wants to see at a glance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType

from dfopt.documents.heat import HEAT_WORDS
from dfopt.documents.plan import Plan
from dfopt.documents.result import Result, status_words
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
    """What is proven of a result, heat or none."""
    if result.heat is None:
        return status_words(result)
    return (
        f"heat-aware: {HEAT_WORDS[result.heat.status]}, gap {percent(result.heat.gap)};"
        f" {percent(result.level_gap)} above the bound per level without heat"
    )


def ending(result: Result) -> str:
    """What ended the search: a proof, the gap that was asked for, the time limit, or an interrupt."""
    gap = f"gap {percent(result.gap)}"
    return {
        "gap_reached": f"ended at the gap that was asked for, {gap}",
        "limit_with_solution": f"ended by the time limit, {gap}",
        "interrupted_with_solution": f"ended by an interrupt, {gap}",
    }.get(result.status, "proven")


def least_bound(result: Result) -> str:
    """What keeps the gap of a result open: the plan, or the graph without a list of plans, of the least bound."""
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
    """A time with a unit that suits it."""
    return show_unit(value, "time")


def shortlist(names: Iterable[str], limit: int = 6) -> str:
    """Names with commas between them; of many the first and the last."""
    listed = list(names)
    if len(listed) <= limit:
        return ", ".join(listed)
    return ", ".join([*listed[: limit - 2], f"... {len(listed) - limit + 1} more", listed[-1]])


def first_of(names: Sequence[str], most: int) -> str:
    """The first of some names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def times_in(times: Iterable[float]) -> tuple[float, str]:
    """Seconds per unit, and the unit, in which a column of times reads well.

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
    """A row for each partition of a judged mapping: kernels, tiles, the times of its resources and its own, what binds.

    Parameters
    ----------
    score : Score
        Of the mapping.
    title : str
        Of the table, to which the unit of times is added.
    single_stage : bool
        Whether rows do without the pipeline stage, or the kind of layer, that they are of.
    kinds : sequence of str
        Names of the kinds of layers, if there are several.
    blocks : mapping, optional
        In how many blocks partitions take their tokens, by stage and partition; if there are any, in a column.
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
    """Time, rate and utilization of a step, on a stack of dies those that it keeps up."""
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
    """A plan, its microbatches of so many samples, and the layers of its stages."""
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
    """What rates and energies are told for: a token, or a sample where it is of one token, as of an FFT or a DLRM.

    Of a decode step, which keeps keys and values, it is a token although every sequence has one.
    """
    serves = any("caches" in tier for stage in score.stages for tier in stage.states.values())
    return "token" if serves or score.tokens_per_s != score.samples_per_s else "sample"


def score_report(score: Score) -> RenderableType:
    """A score by itself, with the limits that its mapping breaks."""
    facts = [*speed_facts(score), ("bottleneck", score.bound_by), *time_facts(score)]
    facts += [("limit broken", violation) for violation in score.violations]
    facts += [("note", note) for note in score.notes or ()]
    single_stage = len(score.stages) == 1 and not score.has_kinds
    return Group(FactList(facts), "", partitions(score, "Partitions", single_stage, ()))
