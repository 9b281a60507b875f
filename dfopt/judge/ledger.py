"""The judge's books: what a chip of a pipeline stage holds in its memories, state by state."""

from __future__ import annotations

import bisect
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from dfopt.documents.breakdown import MemoryBreakdown
from dfopt.documents.graph import Kernel
from dfopt.documents.placement import TRAINED, Item
from dfopt.judge import network, working
from dfopt.judge.case import Case, Fan, Rank
from dfopt.judge.types import held_word, optimizer_words, reduced_word, word
from dfopt.physics import offload, pipeline
from dfopt.physics.states import KINDS, OPTIMIZER_BYTES, STATE_OF, Amount, Held, Kind, capacities
from dfopt.physics.working import MAIN_GRADIENT

_PARTS: Final[dict[Amount, str]] = {
    **dict.fromkeys(("weights", "experts", "tables"), "weights_b"),
    **dict.fromkeys(("gradients", "other gradients", "layer gradients", "table gradients"), "weight_gradients_b"),
    **dict.fromkeys(("parameters", "table optimizer"), "optimizer_b"),
    **dict.fromkeys(("waiting", "working"), "working_b"),
    "saved": "activations_b",
    "cached": "caches_b",
}
_GRADIENTS: Final[dict[Amount, str]] = {"waiting": "waiting gradients", "working": "working gradients"}
"""Of what is held while a layer runs, the part that is gradients of activations."""


StageAmounts = Callable[[int], Mapping[str, float]]
"""The :func:`amounts` of a stage of the mapping."""


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


def entries(case: Case, rank: Rank, amounts_of: StageAmounts) -> list[LedgerEntry]:
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
    checkpoints = [stage for stage in rank.runs if case.trains and _only_ends(case, [stage])]
    away = offloaded(case)
    for kind in KINDS:
        if kind.lifetime == "exchange" or (kind.trained and not _keeps_gradients(case)):
            continue
        size = _scale(case, kind)
        bytes_by_stage = {stage: size * amounts[stage][kind.of] for stage in rank.runs}
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
            part = "checkpoints_b" if kind.of == "saved" and stage in checkpoints else _PARTS[kind.of]
            gradients = amounts[stage].get(_GRADIENTS[kind.of], 0.0) if kind.of in _GRADIENTS else 0.0
            booked.append(LedgerEntry(tier, kind.name, part, held, gradients, kind.item))
    booked += _exchanged(case, rank, amounts)
    for item in away:  # layers at work have theirs in the fastest memory
        part = next(_PARTS[kind.of] for kind in KINDS if kind.item == item)
        layer = max((_of_item(case, amounts[stage], item) for stage in ran_by(rank)), default=0.0)
        total = math.fsum(entry.size for entry in booked if entry.item == item)
        size = offload.buffered(total, layer, item, case.assume)
        booked.append(LedgerEntry(case.system.chip.fastest_tier, STATE_OF[item], part, size))
    return booked


def _exchanged(case: Case, rank: Rank, amounts: Mapping[int, Mapping[str, float]]) -> Iterator[LedgerEntry]:
    """What a chip has whole of layers that are exchanged, though copies share it out, and what it is sent in."""
    stated, level, ran = case.assume.layers_exchanged, case.plan.zero or 0, ran_by(rank)
    layers, fastest = min(stated or 1, sum(rank.runs.values())), case.system.chip.fastest_tier
    if level == 3:
        gathered = max((amounts[stage]["whole weights"] for stage in ran), default=0.0)
        yield LedgerEntry(fastest, "weights", "weights_b", layers * gathered)
    if not case.trains or case.assume.gradients != "exact":
        return
    if level >= 2 and stated and not case.assume.by_layer:
        most = max((amounts[stage]["whole parameters"] for stage in ran), default=0.0)
        yield LedgerEntry(fastest, "gradients", "weight_gradients_b", layers * most * reduced_word(case.graph))
    if case.assume.exchange_buffers and case.plan.copies > 1:
        yield LedgerEntry(fastest, "gradients", "weight_gradients_b", case.assume.exchange_buffers)


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
    here = amounts(case, stage)
    return {item: _of_item(case, here, item) for item in offloaded(case)}


def _of_item(case: Case, amounts: Mapping[str, float], item: Item) -> float:
    kinds = [kind for kind in KINDS if kind.item == item and (_keeps_gradients(case) or not kind.trained)]
    sizes = [_scale(case, kind) for kind in kinds]
    return math.fsum(size * amounts[kind.of] for size, kind in zip(sizes, kinds, strict=True))


def _scale(case: Case, kind: Kind) -> float:
    """Bytes of a state for each unit of its amount, which is a byte or a parameter."""
    if kind.per_parameter == OPTIMIZER_BYTES:
        return for_parameter(case)
    return getattr(case.assume, kind.per_parameter) if kind.per_parameter else 1.0


def for_parameter(case: Case) -> float:
    """Bytes of optimizer state for one parameter."""
    return optimizer_words(case.graph, case.assume.optimizer_bytes_per_parameter)[0]


def held(case: Case, rank: Rank) -> Held:
    """Bytes of every state that a chip of a pipeline stage stores, by memory and state."""
    return books_of(entries(case, rank, partial(amounts, case)))


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


def least_recomputed(case: Case, rank: Rank, amounts_of: StageAmounts) -> int | None:
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
        sizes_by_part["activation_gradients_b"].append(entry.gradients)
    return MemoryBreakdown(**{part: math.fsum(sizes) for part, sizes in sizes_by_part.items()})


def _keeps_gradients(case: Case) -> bool:
    return case.trains and case.assume.gradients == "exact"


def amounts(case: Case, stage: int) -> dict[str, float]:
    """Bytes of one evaluation of a stage of the mapping on one chip, by state; gradients are parts of others."""
    here = case.of_stage[stage]
    # A backward GEMM reads the weight of a forward one: when training, only the latter holds it.
    once = case.trains and case.forward_weights
    level = {kind.of: kind.shared_from for kind in KINDS if kind.lifetime != "exchange"}

    def part(of: Amount, kernel: Kernel, over: Collection[str] = ()) -> float:
        """The part that a chip holds of what it shares out with others, but for what lies spread over them anyhow."""
        return 1.0 if "copies" in over else case.plan.share_held(level.get(of), kernel.copied or 0.0)

    sizes_by_amount: dict[Amount, list[float]] = defaultdict(list)
    own = [placed for placed in here if placed.forward or not once]
    for placed in own:
        of_weight: Amount = "experts" if placed.kernel.module == "experts" else "weights"
        sizes_by_amount[of_weight].append(placed.weight * part(of_weight, placed.kernel))
        sizes_by_amount["parameters"].append(placed.parameters * part("parameters", placed.kernel))
    gradients = _gradients(case)
    for each, size in gradients.items():
        sizes_by_amount[each] = [placed.parameters * part(each, placed.kernel) * size for placed in own]
    saved_fans = [fan for fan in case.touching[stage] if fan.home[0] == stage and _is_saved(case, fan)]
    sizes_by_amount["saved"] = [working.left_of(case, fan) for fan in saved_fans]
    sizes_by_amount["saved"] += working.kept(case, here, "forward")
    kept = network.gathered_and_kept(case, stage)
    sizes_by_amount["saved"] += kept
    ends = case.assume.by_layer and _only_ends(case, case.of_stage)
    activations, gradients_here = working.working(case, stage, checkpoints=ends)
    again = kept if case.assume.by_layer else []  # nothing is gathered again for the layer at work
    sizes_by_amount["working"] = [*activations, *gradients_here, *(-size for size in again)]
    sizes_by_amount["working"] += [
        max(fan.chip - working.left_of(case, fan), 0.0) for fan in saved_fans
    ]  # as they are made
    peak = (0.0, 0.0) if case.trains and case.assume.by_layer else _waiting(case, stage)
    sizes_by_amount["waiting"] = [peak[0]]
    sizes_by_amount["cached"] = [placed.cached for placed in here]
    for placed in here:
        kernel, resident = placed.kernel, placed.kernel.resident_bytes
        if not resident:
            continue
        parts = math.prod(getattr(case.plan, name) for name in kernel.spread_over)
        if not placed.forward:
            for each, size in gradients.items():
                of: Amount = "table gradients" if each == "gradients" else each
                stated = each == "gradients" and case.graph.main_gradients is None
                scale = 1.0 if stated else size / word(case.graph, "ends")
                sizes_by_amount[of].append(scale * resident / parts * part(of, kernel, kernel.spread_over))
            continue
        sizes_by_amount["tables"].append(resident / parts * part("tables", kernel, kernel.spread_over))
        state = kernel.resident_optimizer_bytes
        if state is None:  # as much for a parameter as for one of the weights
            state = resident / word(case.graph, "ends") * for_parameter(case)
        sizes_by_amount["table optimizer"].append(state / parts * part("table optimizer", kernel, kernel.spread_over))
    totals: dict[str, float] = {
        kind.of: math.fsum(sizes_by_amount[kind.of]) for kind in KINDS if kind.lifetime != "exchange"
    }
    totals |= {"waiting gradients": peak[1], "working gradients": math.fsum(gradients_here)}
    totals |= {"whole weights": math.fsum(placed.weight for placed in own)}
    return totals | {"whole parameters": math.fsum(placed.parameters for placed in own)}


def _in_flight(case: Case, rank: Rank, stage: int) -> float:
    """Microbatches whose saved activations a pipeline stage holds of a stage of the mapping."""
    # where all stages are drawn as one, it is the first, the fullest
    capped, schedule = not case.assume.by_layer, case.assume.schedule
    if not case.graph.folded:
        return pipeline.microbatches_in_flight(case.plan, case.trains, schedule, capped=capped)
    where = case.graph.layers.where(stage)
    return pipeline.microbatches_in_flight(case.plan, case.trains, schedule, rank.number, where, capped=capped)


def _is_saved(case: Case, fan: Fan) -> bool:
    """Whether the forward pass keeps this fan for the backward pass."""
    if not case.trains or not case.kernels[fan.src].forward:
        return False
    return not all(case.kernels[reader].forward for reader in fan.readers)


def _only_ends(case: Case, stages: Collection[int]) -> bool:
    """Whether some stages of the mapping compute something again, and keep for that what layers hand on, no more."""
    ends = {number for fan in case.carried for number in (fan.src, *fan.readers)}
    here = {number: placed for number, placed in enumerate(case.kernels) if placed.place[0] in stages}
    if not any(placed.kernel.pass_ == "recompute" for placed in here.values()):
        return False
    saved = {fan.src for fan in case.fans if fan.src in here and _is_saved(case, fan)}
    saved |= {number for number, placed in here.items() if sum(working.kept(case, [placed], "forward"))}
    return saved <= ends


def _gradients(case: Case) -> dict[Amount, float]:
    """Which gradients there are, with the bytes of each for a parameter."""
    if case.assume.by_layer:
        return {"other gradients": word(case.graph), "layer gradients": MAIN_GRADIENT}
    return {"gradients": held_word(case.graph)}


def _waiting(case: Case, stage: int) -> tuple[float, float]:
    """Largest sum, over the partitions of a stage, of cut tensors that wait in DRAM; of which gradients."""
    partitions = [partition for of_stage, partition in case.members if of_stage == stage]
    if not partitions:
        return 0.0, 0.0
    last = max(partitions)
    # (partition, bytes, of gradients): what starts to wait at a partition, and what no longer waits there
    changes: list[tuple[int, float, float]] = []
    for fan in case.touching[stage]:
        if not fan.away or (_keeps_gradients(case) and (_is_saved(case, fan) or working.is_beside(case, fan))):
            continue
        home, here = fan.home, [partition for of_stage, partition in fan.away if of_stage == stage]
        if home[0] == stage:
            start, end = home[1], last if len(here) < len(fan.away) else max(here)
        elif here:
            start, end = 0, max(here)
        else:
            continue
        # A mapping that breaks the order still has a lifetime: from the earlier end to the later one.
        gradients = fan.chip if case.kernels[fan.src].kernel.pass_ in ("backward", "update") else 0.0
        changes.append((min(start, *here, end), fan.chip, gradients))
        changes.append((max(start, end) + 1, -fan.chip, -gradients))
    peak = held = gradients_held = 0.0
    at_peak = 0.0
    for _, change, gradients in sorted(changes):  # releases (negative) come first at each partition
        held, gradients_held = held + change, gradients_held + gradients
        if held > peak:
            peak, at_peak = held, min(max(gradients_held, 0.0), held)
    return peak, at_peak
