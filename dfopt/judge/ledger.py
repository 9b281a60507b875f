"""The judge's books: what a chip of a pipeline stage holds in its memories, state by state."""

from __future__ import annotations

import bisect
import math
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from dfopt.judge.case import Case, Fan, Rank
from dfopt.judge.types import word
from dfopt.physics import pipeline
from dfopt.physics.states import KINDS, Amount, Held, cached_bytes, capacities

_WEIGHTS: Final = tuple((kind.of, kind.item) for kind in KINDS if kind.name == "weights")


def held(case: Case, rank: Rank) -> Held:
    """Bytes of every state that a chip of a pipeline stage holds: parameters, activations, tables."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    amounts = {stage: _amounts(case, stage) for stage in rank.runs}
    for kind in KINDS:
        if kind.trained and not _keeps_gradients(case):
            continue
        size = getattr(case.assume, kind.per_parameter) if kind.per_parameter else 1.0
        made = {stage: size * amounts[stage][kind.of] for stage in rank.runs}
        if kind.lifetime == "partition":
            made = {0: max(made.values())}  # stages of the mapping run one after another
        else:
            made = {stage: times * made[stage] for stage, times in rank.runs.items()}
        if kind.lifetime == "microbatch":
            made = {stage: part * _in_flight(case, rank, stage) for stage, part in made.items()}
        elif kind.lifetime == "sequences":
            made = {stage: part * case.plan.microbatches for stage, part in made.items()}
        found[case.plan.tier_of(kind.item, case.system.chip), kind.name] += made.values()
    if case.plan.zero == 3:  # the weights of one layer at a time are there whole
        whole: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        for stage in rank.runs:
            for of, item in _WEIGHTS:
                size = amounts[stage][of] * case.plan.sharers
                whole[case.plan.tier_of(item, case.system.chip)][stage] += size
        for tier, layers in whole.items():
            found[tier, "weights"].append(max(layers.values()))
    books: Held = {}
    for (tier, name), parts in found.items():
        if any(parts):
            books.setdefault(tier, {})[name] = math.fsum(parts)
    return books


def least_recomputed(case: Case, rank: Rank) -> int | None:
    """Fewest layers of a pipeline stage that have to be computed again for it to fit, if a plan says how many are.

    What it holds falls with each after the first, so that halving finds it; all, where not even that is enough.
    """
    if not case.plan.recomputed:
        return None
    layers, most = case.graph.layers, capacities(case.system.chip)
    again, kinds = dict(layers.recomputed), [int(layers.order[place]) for place in rank.here]
    beside = {kind: times for kind, times in rank.runs.items() if kind >= layers.counted}

    def fits(count: int) -> bool:
        runs = Counter([*(again.get(kind, kind) for kind in kinds[:count]), *kinds[count:]])
        books = held(case, replace(rank, runs={**runs, **beside}))
        return all(math.fsum(books.get(tier, {}).values()) <= size for tier, size in most.items())

    if not kinds or fits(0):
        return 0
    return 1 + bisect.bisect_left(range(1, len(kinds)), True, key=fits)


def _keeps_gradients(case: Case) -> bool:
    return case.trains and case.assume.gradients == "exact"


def _amounts(case: Case, stage: int) -> dict[Amount, float]:
    """Bytes of one evaluation of the kernels of a stage of the mapping, on one chip."""
    here = case.of_stage[stage]
    # A backward GEMM reads the weight of a forward one: when training, only the latter holds it.
    once = case.trains and case.forward_weights
    level = {kind.of: kind.shared_from for kind in KINDS}

    def together(of: Amount, over: Collection[str] = ()) -> int:
        """Copies of the batch that share it out, but for what lies spread over them anyhow."""
        return 1 if "copies" in over else case.plan.held_by(level.get(of))

    found: dict[Amount, list[float]] = defaultdict(list)
    own = [one for one in here if one.forward or not once]
    found["weights"] = [one.weight for one in own if one.kernel.module != "experts"]
    found["experts"] = [one.weight for one in own if one.kernel.module == "experts"]
    found["parameters"] = [one.parameters for one in own]
    found["gradients"] = [one.parameters * word(case.graph) for one in own]
    found["saved"] = [fan.chip for fan in case.touching[stage] if fan.home[0] == stage and _is_saved(case, fan)]
    found["waiting"] = [_waiting(case, stage)]
    found["cached"] = [cached_bytes(one.kernel, one.sharding, case.plan.shards) for one in here]
    for one in here:
        kernel, whole = one.kernel, one.kernel.resident_bytes
        if not whole:
            continue
        parts = math.prod(getattr(case.plan, name) for name in kernel.spread_over)
        of: Amount = "tables" if one.forward else "table gradients"
        found[of].append(whole / parts / together(of, kernel.spread_over))
        if one.forward:
            state = kernel.resident_optimizer_bytes
            if state is None:  # as much for a parameter as for one of the weights
                state = whole / word(case.graph, "ends") * case.assume.optimizer_bytes_per_parameter
            found["table optimizer"].append(state / parts / together("table optimizer", kernel.spread_over))
    for of in ("weights", "experts", "gradients", "parameters"):
        found[of] = [size / together(of) for size in found[of]]
    return {kind.of: math.fsum(found[kind.of]) for kind in KINDS}


def _in_flight(case: Case, rank: Rank, stage: int) -> float:
    """Microbatches whose saved activations a pipeline stage holds of a stage of the mapping."""
    # where all stages are drawn as one, it is the first, the fullest
    if not case.graph.folded:
        return pipeline.microbatches_in_flight(case.plan, case.trains, case.assume.schedule)
    where = case.graph.layers.where(stage)
    return pipeline.microbatches_in_flight(case.plan, case.trains, case.assume.schedule, rank.number, where)


def _is_saved(case: Case, fan: Fan) -> bool:
    """Whether the forward pass keeps this fan for the backward pass."""
    if not case.trains or not case.kernels[fan.src].forward:
        return False
    return not all(case.kernels[reader].forward for reader in fan.readers)


def _waiting(case: Case, stage: int) -> float:
    """Largest sum, over the partitions of a stage, of cut tensors that wait in DRAM."""
    mine = [partition for of_stage, partition in case.members if of_stage == stage]
    if not mine:
        return 0.0
    last = max(mine)
    # (partition, bytes): what starts to wait at a partition, and what no longer waits there
    changes: list[tuple[int, float]] = []
    for fan in case.touching[stage]:
        if not fan.away or (_keeps_gradients(case) and _is_saved(case, fan)):
            continue
        home, here = fan.home, [partition for of_stage, partition in fan.away if of_stage == stage]
        if home[0] == stage:
            start, end = home[1], last if len(here) < len(fan.away) else max(here)
        elif here:
            start, end = 0, max(here)
        else:
            continue
        # A mapping that breaks the order still has a lifetime: from the earlier end to the later one.
        changes += [(min(start, *here, end), fan.chip), (max(start, end) + 1, -fan.chip)]
    peak = held = 0.0
    for _, change in sorted(changes):  # releases (negative) come first at each partition
        held += change
        peak = max(peak, held)
    return peak
