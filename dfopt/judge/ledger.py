"""The judge's books: what a chip of a pipeline stage holds in its memories, state by state."""

from __future__ import annotations

import bisect
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from dfopt.documents.breakdown import MemoryBreakdown
from dfopt.documents.placement import TRAINED, Item
from dfopt.judge.amounts import AmountsOf, StageAmounts, amounts_of_stage, for_parameter, keeps_gradients, only_ends
from dfopt.judge.case import Case, Rank
from dfopt.judge.types import reduced_word
from dfopt.physics import offload, pipeline
from dfopt.physics.states import KINDS, OPTIMIZER_BYTES, STATE_OF, Held, Kind, capacities


class LedgerEntry(NamedTuple):
    """Bytes of one state in one memory of a chip.

    Attributes
    ----------
    tier, name : str
        Memory, and name of the state.
    part : str
        Part of the memory breakdown to which they belong.
    size : float, B
        Total bytes.
    gradients : float, B
        Gradients among them.
    item : str, optional
        Placement item.
    """

    tier: str
    name: str
    part: str
    size: float
    gradients: float = 0.0
    item: Item | None = None


def entries(case: Case, rank: Rank, amounts_of: AmountsOf) -> list[LedgerEntry]:
    """All states that a chip of a pipeline stage stores: parameters, activations and tables.

    Parameters
    ----------
    case, rank : Case, Rank
        The mapping, and the pipeline stage.
    amounts_of : callable
        Function from a stage of the mapping to the amounts of one evaluation.
    """
    booked: list[LedgerEntry] = []
    amounts = {stage: amounts_of(stage) for stage in rank.runs}
    checkpoints = [stage for stage in rank.runs if case.trains and only_ends(case, [stage])]
    away = offloaded(case)
    for kind in KINDS:
        if kind.lifetime == "exchange" or (kind.trained and not keeps_gradients(case)):
            continue
        size = _scale(case, kind)
        bytes_by_stage = {stage: size * amounts[stage].of(kind) for stage in rank.runs}
        ran = [stage for stage, times in rank.runs.items() if times]
        largest = max(ran, key=bytes_by_stage.__getitem__, default=None)
        largest_bytes = 0.0 if largest is None else bytes_by_stage[largest]
        if kind.lifetime in ("partition", "layer"):  # stages of the mapping run one after another
            if kind.lifetime == "partition":
                largest = max(bytes_by_stage, key=bytes_by_stage.__getitem__)
            bytes_by_stage = {} if largest is None else {largest: bytes_by_stage[largest]}
        else:
            bytes_by_stage = {stage: times * bytes_by_stage[stage] for stage, times in rank.runs.items()}
        if kind.lifetime == "microbatch":
            bytes_by_stage = {stage: part * _in_flight(case, rank, stage) for stage, part in bytes_by_stage.items()}
        elif kind.lifetime == "sequences":
            bytes_by_stage = {stage: part * case.plan.microbatches for stage, part in bytes_by_stage.items()}
        elif kind.lifetime == "others" and kind.item not in away:
            bytes_by_stage[-1] = -largest_bytes
        tier = case.plan.tier_of(kind.item, case.system.chip)
        for stage, held in bytes_by_stage.items():
            part = "checkpoints" if kind.of == "saved" and stage in checkpoints else kind.part
            gradients = amounts[stage].gradients.get(kind.of, 0.0) if stage in amounts else 0.0
            booked.append(LedgerEntry(tier, kind.name, part, held, gradients, kind.item))
    booked += _exchanged(case, rank, amounts)
    for item in away:  # layers at work have theirs in the fastest memory
        part = next(kind.part for kind in KINDS if kind.item == item)
        layer = max((_of_item(case, amounts[stage], item) for stage in ran_by(rank)), default=0.0)
        total = math.fsum(entry.size for entry in booked if entry.item == item)
        size = offload.buffered(total, layer, item, case.assume)
        booked.append(LedgerEntry(case.system.chip.fastest_tier, STATE_OF[item], part, size))
    return booked


def _exchanged(case: Case, rank: Rank, amounts: Mapping[int, StageAmounts]) -> Iterator[LedgerEntry]:
    """What a chip has whole of layers that are exchanged, though copies share it out, and what it is sent in."""
    stated, level, ran = case.assume.layers_exchanged, case.plan.zero or 0, ran_by(rank)
    layers, fastest = min(stated or 1, sum(rank.runs.values())), case.system.chip.fastest_tier
    if level == 3:
        gathered = max((amounts[stage].weights for stage in ran), default=0.0)
        yield LedgerEntry(fastest, "weights", "weights", layers * gathered)
    if not case.trains or case.assume.gradients != "exact":
        return
    if level >= 2 and stated and not case.assume.by_layer:
        most = max((amounts[stage].parameters for stage in ran), default=0.0)
        yield LedgerEntry(fastest, "gradients", "weight_gradients", layers * most * reduced_word(case.graph))
    if case.assume.exchange_buffers and case.plan.copies > 1:
        yield LedgerEntry(fastest, "gradients", "weight_gradients", case.assume.exchange_buffers)


def ran_by(rank: Rank) -> list[int]:
    """Numbers of the mapping's stages that a pipeline stage evaluates."""
    return [stage for stage, times in rank.runs.items() if times]


def offloaded(case: Case) -> dict[Item, str]:
    """Items that a training plan puts into a slower memory, with the name of that memory."""
    placement = case.plan.placement
    if placement is None or not case.trains:
        return {}
    fastest = case.system.chip.fastest_tier
    return {item: name for item, name in placement.elsewhere.items() if item in TRAINED and name != fastest}


def of_layer(case: Case, stage: int) -> dict[Item, float]:
    """Bytes of each offloaded item that a chip has for one evaluation of a stage of the mapping."""
    here = amounts_of_stage(case, stage)
    return {item: _of_item(case, here, item) for item in offloaded(case)}


def _of_item(case: Case, amounts: StageAmounts, item: Item) -> float:
    kinds = [kind for kind in KINDS if kind.item == item and (keeps_gradients(case) or not kind.trained)]
    sizes = [_scale(case, kind) for kind in kinds]
    return math.fsum(size * amounts.of(kind) for size, kind in zip(sizes, kinds, strict=True))


def _scale(case: Case, kind: Kind) -> float:
    """Bytes of a state for each unit of its amount, which is a byte or a parameter."""
    if kind.per_parameter == OPTIMIZER_BYTES:
        return for_parameter(case)
    return getattr(case.assume, kind.per_parameter) if kind.per_parameter else 1.0


def held(case: Case, rank: Rank) -> Held:
    """Bytes of every state that a chip of a pipeline stage stores, by memory and state."""
    return books_of(entries(case, rank, partial(amounts_of_stage, case)))


def books_of(booked: Iterable[LedgerEntry]) -> Held:
    """Sum ledger entries by memory and state, in bytes."""
    parts_by_state: dict[tuple[str, str], list[float]] = defaultdict(list)
    for entry in booked:
        parts_by_state[entry.tier, entry.name].append(entry.size)
    books: Held = {}
    for (tier, name), parts in parts_by_state.items():
        if any(parts):
            books.setdefault(tier, {})[name] = math.fsum(parts)
    return books


def reserved(case: Case) -> float:
    """Share of each memory that the model cannot use, as assumed or as the chip's software reserves."""
    own, assumed = case.system.chip.memory_reserve, case.assume.memory_reserve
    if assumed is not None or own is None:
        return assumed or 0.0
    return own.training if case.trains else own.serving


def least_recomputed(case: Case, rank: Rank, amounts_of: AmountsOf) -> int | None:
    """Fewest layers of a pipeline stage that must be recomputed for it to fit; None if the plan does not count them.

    The bytes of the stage fall with each recomputed layer after the first, so that bisection finds the number. It is
    that of all layers if even those are not enough.

    Parameters
    ----------
    case, rank : Case, Rank
        The mapping, and the pipeline stage.
    amounts_of : callable
        Function from a stage of the mapping to the amounts of one evaluation.
    """
    if not case.plan.recomputed:
        return None
    layers, most = case.graph.layers, capacities(case.system.chip, reserved(case))
    again, kinds = dict(layers.recomputed), [int(layers.order[place]) for place in rank.here]
    uncounted = {kind: times for kind, times in rank.runs.items() if kind >= layers.counted}

    def fits(count: int) -> bool:
        runs = Counter([*(again.get(kind, kind) for kind in kinds[:count]), *kinds[count:]])
        books = books_of(entries(case, replace(rank, runs={**runs, **uncounted}), amounts_of))
        return all(math.fsum(books.get(tier, {}).values()) <= size for tier, size in most.items())

    if not kinds or fits(0):
        return 0
    return 1 + bisect.bisect_left(range(1, len(kinds)), True, key=fits)


def memory(booked: Iterable[LedgerEntry]) -> MemoryBreakdown:
    """Sum ledger entries by part of the memory breakdown, over all memories, in bytes."""
    sizes_by_part: dict[str, list[float]] = defaultdict(list)
    for entry in booked:
        sizes_by_part[entry.part] += [entry.size, -entry.gradients]
        sizes_by_part["activation_gradients"].append(entry.gradients)
    return MemoryBreakdown(**{f"{part}_b": math.fsum(sizes) for part, sizes in sizes_by_part.items()})


def _in_flight(case: Case, rank: Rank, stage: int) -> float:
    """Microbatches whose saved activations a pipeline stage holds of a stage of the mapping."""
    # where all stages are drawn as one, it is the first, the fullest
    capped, schedule = not case.assume.by_layer, case.assume.schedule
    if not case.graph.folded:
        return pipeline.microbatches_in_flight(case.plan, case.trains, schedule, capped=capped)
    where = case.graph.layers.where(stage)
    return pipeline.microbatches_in_flight(case.plan, case.trains, schedule, rank.number, where, capped=capped)
