"""What a chip has of one evaluation of a stage of a mapping: weights, tables, gradients, activations and caches."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dfopt.documents.plan import Plan
from dfopt.judge import network, working
from dfopt.judge.case import Case, Fan
from dfopt.judge.placed import Placed
from dfopt.judge.types import held_word, optimizer_words, word
from dfopt.physics.states import Amount, Kind
from dfopt.physics.working import MAIN_GRADIENT


class Share(NamedTuple):
    """A part of an amount: its size before ZeRO, units of a byte or a parameter, and how it is shared out.

    ``copied``: the part of it that is equal on all chips of the second axis. ``spread``: it lies over the replicas
    anyhow, so that ZeRO shares out no more of it.
    """

    size: float
    copied: float = 0.0
    spread: bool = False
    scale: float = 1.0


@dataclass(frozen=True)
class StageAmounts:
    """What a chip has of one evaluation of a stage of the mapping.

    Attributes
    ----------
    plan : Plan
        The plan, whose replicas share states out.
    shares : dict
        Parts of every amount.
    gradients : dict, B
        Gradients of activations among what waits, and among what the layer at work has.
    weights, parameters : float
        Bytes of weights, and number of parameters, before ZeRO shares them out.
    """

    plan: Plan
    shares: Mapping[Amount, Sequence[Share]]
    gradients: Mapping[Amount, float]
    weights: float
    parameters: float
    _totals: dict[tuple[Amount, int | None], float] = field(default_factory=dict)

    def of(self, kind: Kind) -> float:
        """The amount that a kind of state is computed from, where ZeRO shares it out as it does this kind."""
        key = kind.of, kind.shared_from
        if key not in self._totals:
            held = self.plan.share_held
            self._totals[key] = math.fsum(
                each.size * (1.0 if each.spread else held(kind.shared_from, each.copied)) * each.scale
                for each in self.shares.get(kind.of, ())
            )
        return self._totals[key]


AmountsOf = Callable[[int], StageAmounts]
"""The :func:`amounts_of_stage` of a stage of the mapping."""


def amounts_of_stage(case: Case, stage: int) -> StageAmounts:
    """Bytes and parameters of one evaluation of a stage of the mapping on one chip."""
    here, gradients = case.of_stage[stage], _gradients(case)
    # A backward GEMM reads the weight of a forward one: when training, only the latter holds it.
    own = [placed for placed in here if placed.forward or not (case.trains and case.forward_weights)]
    shares: dict[Amount, list[Share]] = defaultdict(list)
    for placed in own:
        copied = placed.kernel.copied or 0.0
        of_weight: Amount = "experts" if placed.kernel.module == "experts" else "weights"
        shares[of_weight].append(Share(placed.weight, copied))
        shares["parameters"].append(Share(placed.parameters, copied))
        for each, size in gradients.items():
            shares[each].append(Share(placed.parameters, copied, scale=size))
    for each, part in _of_tables(case, here, gradients):
        shares[each].append(part)
    activations, of_gradients = _of_activations(case, stage)
    for each, sizes in activations.items():
        shares[each] = [*map(Share, sizes)]
    weights, parameters = math.fsum(placed.weight for placed in own), math.fsum(placed.parameters for placed in own)
    return StageAmounts(case.plan, shares, of_gradients, weights, parameters)


def _of_tables(case: Case, here: Iterable[Placed], gradients: Mapping[Amount, float]) -> Iterator[tuple[Amount, Share]]:
    """Bytes of tables and of their gradients and optimizer, and their parameters."""
    width = word(case.graph, "ends")
    for placed in here:
        kernel, resident = placed.kernel, placed.kernel.resident_bytes
        if not resident:
            continue
        parts = math.prod(getattr(case.plan, name) for name in kernel.spread_over)
        lies = kernel.copied or 0.0, "copies" in kernel.spread_over
        if not placed.forward:
            for each, size in gradients.items():
                of: Amount = "table gradients" if each == "gradients" else each
                stated = each == "gradients" and case.graph.main_gradients is None
                yield of, Share((1.0 if stated else size / width) * resident / parts, *lies)
            continue
        yield "tables", Share(resident / parts, *lies)
        yield "table parameters", Share(resident / width / parts, *lies)
        state = kernel.resident_optimizer_bytes
        if state is None:  # as much for a parameter as for one of the weights
            state = resident / width * for_parameter(case)
        yield "table optimizer", Share(state / parts, *lies)


def _gradients(case: Case) -> dict[Amount, float]:
    """Which gradients there are, with the bytes of each for a parameter."""
    if case.assume.by_layer:
        return {"other gradients": word(case.graph), "layer gradients": MAIN_GRADIENT}
    return {"gradients": held_word(case.graph)}


def for_parameter(case: Case) -> float:
    """Bytes of optimizer state for one parameter."""
    return optimizer_words(case.graph, case.assume.optimizer_bytes_per_parameter)[0]


def _of_activations(case: Case, stage: int) -> tuple[dict[Amount, list[float]], dict[Amount, float]]:
    """Bytes of activations and caches of a stage, and gradients among those that wait or are worked on."""
    here = case.of_stage[stage]
    fans = [fan for fan in case.touching[stage] if fan.home[0] == stage and _is_saved(case, fan)]
    kept = network.gathered_and_kept(case, stage)
    saved = [*(working.left_of(case, fan) for fan in fans), *working.kept(case, here, "forward"), *kept]
    ends = case.assume.by_layer and only_ends(case, case.of_stage)
    activations, gradients = working.working(case, stage, checkpoints=ends)
    again = kept if case.assume.by_layer else []  # nothing is gathered again for the layer at work
    at_work = [*activations, *gradients, *(-size for size in again)]
    at_work += [max(fan.chip - working.left_of(case, fan), 0.0) for fan in fans]  # as they are made
    peak = (0.0, 0.0) if case.trains and case.assume.by_layer else _waiting(case, stage)
    cached = [placed.cached for placed in here]
    sizes: dict[Amount, list[float]] = {"saved": saved, "working": at_work, "waiting": [peak[0]], "cached": cached}
    return sizes, {"waiting": peak[1], "working": math.fsum(gradients)}


def _is_saved(case: Case, fan: Fan) -> bool:
    """Whether the forward pass keeps this fan for the backward pass."""
    if not case.trains or not case.kernels[fan.src].forward:
        return False
    return not all(case.kernels[reader].forward for reader in fan.readers)


def only_ends(case: Case, stages: Collection[int]) -> bool:
    """Whether some stages of the mapping compute something again, and keep for that what layers hand on, no more."""
    ends = {number for fan in case.carried for number in (fan.src, *fan.readers)}
    here = {number: placed for number, placed in enumerate(case.kernels) if placed.place[0] in stages}
    if not any(placed.kernel.pass_ == "recompute" for placed in here.values()):
        return False
    saved = {fan.src for fan in case.fans if fan.src in here and _is_saved(case, fan)}
    saved |= {number for number, placed in here.items() if sum(working.kept(case, [placed], "forward"))}
    return saved <= ends


def _waiting(case: Case, stage: int) -> tuple[float, float]:
    """Largest sum, over the partitions of a stage, of cut tensors that wait in DRAM; of which gradients."""
    partitions = [partition for of_stage, partition in case.members if of_stage == stage]
    if not partitions:
        return 0.0, 0.0
    last = max(partitions)
    # (partition, bytes, of gradients): what starts to wait at a partition, and what no longer waits there
    changes: list[tuple[int, float, float]] = []
    for fan in case.touching[stage]:
        if not fan.away or (keeps_gradients(case) and (_is_saved(case, fan) or working.is_beside(case, fan))):
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


def keeps_gradients(case: Case) -> bool:
    return case.trains and case.assume.gradients == "exact"
