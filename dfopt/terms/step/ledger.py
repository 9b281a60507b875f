"""The optimiser's books: what the stages of a plan hold in the memories of a chip, and what is left of them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.placement import TRAINED, Item
from dfopt.documents.saved import gradient_bytes, optimizer_bytes, reduced_bytes
from dfopt.errors import Infeasible
from dfopt.physics.offload import LAYERS, buffered
from dfopt.physics.pipeline import microbatches_in_flight
from dfopt.physics.states import KINDS, LABELS, STATE_OF, Amount, Held, capacities, usable
from dfopt.physics.working import MAIN_GRADIENT
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.stages import PipelineStage
from dfopt.terms.rules import HELD
from dfopt.terms.rules.held import waits
from dfopt.terms.sharded_graph import ShardedGraph

OF_LAYERS: Final = ("layer", "others", "exchange")
"""Lifetimes of what one layer has more of than the others."""


@dataclass(frozen=True)
class State:
    """Bytes that stay, of one evaluation of some kernels, as in the table :data:`dfopt.physics.states.KINDS`.

    ``bytes`` are on one chip, or on all chips that it is spread over: as many as the product of the plan's degrees
    named in ``split_over``. ``copied``: all chips of the second axis have the same.
    """

    name: str
    bytes: float
    split_over: tuple[str, ...]
    lifetime: str
    item: Item | None
    shared_from: int | None
    exists_from: int = 0
    copied: bool = False


def usable_bytes(setting: Setting) -> dict[str, float]:
    """Bytes of every memory that has a limit, by tier, less the share that a model cannot use."""
    return capacities(setting.system.chip, setting.assumptions.memory_reserve)


def usable_words(capacity: float, assumptions: Assumptions) -> str:
    """What of a memory can be used, as people say it: how much, and what it is a part of."""
    return usable(capacity, assumptions.memory_reserve)


def states_of(setting: Setting, kernels: Sequence[Kernel], sizes: Iterable[float] = ()) -> tuple[State, ...]:
    """What some kernels keep: their tables, and so much else, in the order of :data:`dfopt.terms.rules.HELD`."""
    graph, assumptions = setting.graph, setting.assumptions
    amounts: dict[tuple[Amount, tuple[str, ...], bool], float] = defaultdict(float)
    amounts |= {(of, (), copied): size for (of, copied), size in zip(HELD.values(), sizes, strict=False)}
    gradients = _gradients(graph, assumptions)
    for_parameter = optimizer_bytes(graph, assumptions.optimizer_bytes_per_parameter)
    for copied in (False, True):
        parameters = amounts["parameters", (), copied]
        for of, word in gradients.items():
            amounts[of, (), copied] = parameters * word
        if assumptions.layers_exchanged and not assumptions.by_layer:  # which counts gradients of a layer whole anyhow
            amounts["whole gradients", (), copied] = parameters * reduced_bytes(graph)
    for kernel, copied in product((kernel for kernel in kernels if kernel.resident_bytes), (False, True)):
        key, share = (kernel.spread_over, copied), (kernel.copied or 0.0) if copied else 1.0 - (kernel.copied or 0.0)
        if kernel.pass_ == "forward":
            amounts["tables", *key] += kernel.resident_bytes * share
            state = kernel.resident_optimizer_bytes
            if state is None:
                state = kernel.resident_bytes / graph.words.ends * for_parameter
            amounts["table optimizer", *key] += state * share
            continue
        for of, word in gradients.items():
            of = "table gradients" if of == "gradients" else of
            scale = 1.0 if graph.main_gradients is None and of == "table gradients" else word / graph.words.ends
            amounts[of, *key] += kernel.resident_bytes * scale * share
    keeps_gradients = graph.trains and assumptions.gradients == "exact"
    found = []
    for kind in KINDS:
        size = for_parameter if kind.per_parameter else 1.0
        if size > 0 and (keeps_gradients or not kind.trained):
            for (of, split_over, copied), amount in amounts.items():
                if of == kind.of and amount > 0:
                    lies = kind.lifetime, kind.item, kind.shared_from, kind.exists_from, copied
                    found.append(State(kind.name, size * amount, split_over, *lies))
    return tuple(found)


def _gradients(graph: Graph, assumptions: Assumptions) -> dict[Amount, float]:
    """Which gradients there are, with the bytes of each for a parameter."""
    if assumptions.by_layer:
        return {"other gradients": graph.words.activations, "layer gradients": MAIN_GRADIENT}
    return {"gradients": gradient_bytes(graph)}


def held(instance: Instance, stage: PipelineStage, states: Mapping[int, Sequence[State]]) -> Held:
    """What one chip of a pipeline stage holds of the states of mapped stages, beside what waits between partitions."""
    books = lying(instance, stage, states)
    for state, size in buffers(instance, stage, states).items():
        books[instance.system.chip.fastest_tier][state] += size
    if taken := reserved(instance):
        books[instance.system.chip.fastest_tier]["gradients"] += taken
    return books


def lying(instance: Instance, stage: PipelineStage, states: Mapping[int, Sequence[State]]) -> Held:
    """The same where they lie, without what the fastest memory has of what lies elsewhere."""
    books: Held = defaultdict(lambda: defaultdict(float))
    for state, size in kept(instance, stage, states):
        books[instance.plan.tier_of(state.item, instance.system.chip)][state.name] += size
    return books


def offloaded(instance: Instance) -> dict[Item, str]:
    """What a graph that trains has in a slower memory, and in which."""
    placement, chip = instance.plan.placement, instance.system.chip
    if placement is None or not instance.graph.trains:
        return {}
    return {item: tier for item, tier in placement.elsewhere.items() if item in TRAINED and tier != chip.fastest_tier}


def of_layers(instance: Instance, states: Mapping[int, Sequence[State]]) -> dict[int, dict[Item, float]]:
    """Bytes that one chip has of each offloaded item for one evaluation, by stage of the mapping."""
    away = offloaded(instance)
    found: dict[int, dict[Item, float]] = {number: defaultdict(float) for number in states}
    for number, of in states.items() if away else ():
        for state in of:
            if state.item in away:
                found[number][state.item] += state.bytes / chips_of(instance, state)
    return found


def buffers(instance: Instance, stage: PipelineStage, states: Mapping[int, Sequence[State]]) -> dict[str, float]:
    """Bytes of the fastest memory, by state, that layers at work have of what lies elsewhere."""
    if not (away := offloaded(instance)):
        return {}
    layers, total = of_layers(instance, states), dict.fromkeys(away, 0.0)
    for state, size in kept(instance, stage, states):
        if state.item in total:
            total[state.item] += size
    found: dict[str, float] = defaultdict(float)
    for item in away:
        most = max(
            (layers[number].get(item, 0.0) for number, times in stage.runs if times and number in layers), default=0.0
        )
        found[STATE_OF[item]] += buffered(total[item], most, item, instance.assumptions)
    return found


def reserved(instance: Instance) -> float:
    """Bytes of the fastest memory that copies of the batch take for buckets of gradients, whatever the mapping."""
    assumptions = instance.assumptions
    exchanges = instance.graph.trains and assumptions.gradients == "exact" and instance.plan.copies > 1
    return (assumptions.exchange_buffers or 0.0) if exchanges else 0.0


def limited(instance: Instance) -> dict[str, float]:
    """Bytes of every memory that has a limit, without what is taken whatever the mapping."""
    taken, chip = reserved(instance), instance.system.chip
    limits = usable_bytes(instance.setting)
    return {tier: size - (taken if tier == chip.fastest_tier else 0.0) for tier, size in limits.items()}


def kept(
    instance: Instance, stage: PipelineStage, states: Mapping[int, Sequence[State]]
) -> Iterator[tuple[State, float]]:
    """The states of mapped stages that a pipeline stage runs, with the bytes that one of its chips holds of each."""
    at_work, away = _largest(instance, stage, states), offloaded(instance)
    for number, times in stage.runs:
        for state in states.get(number, ()):
            count = float(times)
            if state.lifetime in OF_LAYERS and state.item not in away:
                one = float(at_work.get((state.name, state.lifetime)) == number)
                count = count - one if state.lifetime == "others" else one * at_once(instance, stage, state)
            if state.lifetime == "microbatch":
                count *= in_flight(instance, stage, number)
            elif state.lifetime == "sequences":
                count *= instance.plan.microbatches
            yield state, count * state.bytes / chips_of(instance, state)


def chips_of(instance: Instance, state: State) -> int:
    """Chips that a state is spread over."""
    degree: int = math.prod(getattr(instance.plan, name) for name in state.split_over)
    if "copies" in state.split_over:
        return degree
    return degree * instance.plan.held_by(state.shared_from, copied=state.copied)


def at_once(instance: Instance, stage: PipelineStage, state: State) -> int:
    """Layers that have a state at a time which they do not all have: no more than a pipeline stage has."""
    if (instance.plan.zero or 0) < state.exists_from:
        return 0
    layers = instance.assumptions.layers_exchanged or 1
    return min(layers, sum(times for _, times in stage.runs)) if state.lifetime == "exchange" else 1


def _largest(
    instance: Instance, stage: PipelineStage, states: Mapping[int, Sequence[State]]
) -> dict[tuple[str, str], int]:
    """The layer that holds most of what one has at a time, by name and lifetime."""
    sums: dict[tuple[str, str], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for number, times in stage.runs:
        for state in states.get(number, ()) if times else ():
            if state.lifetime in OF_LAYERS:
                sums[state.name, state.lifetime][number] += state.bytes / chips_of(instance, state)
    return {key: max(layers, key=lambda number: layers[number]) for key, layers in sums.items()}


def by_layers(states: Sequence[State]) -> tuple[list[State], list[tuple[float, State]]]:
    """States as if all layers had them alike; and what the layer that has most has more, by sign."""
    alike = [replace(one, lifetime="step") if one.lifetime == "others" else one for one in states]
    signs = {"layer": 1.0, "exchange": 1.0, "others": -1.0}
    more = [(signs[one.lifetime], one) for one in states if one.lifetime in signs]
    return [one for one in alike if one.lifetime not in signs], more


def room_to_save(instance: Instance, stage: PipelineStage, states: Mapping[int, Sequence[State]]) -> float:
    """Bytes that each evaluation of the layers of a stage may keep for its backward pass, beside all else it keeps.

    ``states``: of layers of one kind. Infinite where the memory has no limit, or nothing is kept.
    """
    chip = instance.system.chip
    found = [one for one in kept(instance, stage, states) if one[0].lifetime == "microbatch"]
    size, once = sum(size for _, size in found), sum(state.bytes for state, _ in found)
    here, books, room = offloaded(instance).get("activations"), held(instance, stage, states), math.inf
    mine = {here or chip.fastest_tier: size}
    if here is not None:  # a chip works on two layers of them
        mine[chip.fastest_tier] = min(size, LAYERS * once)
    for tier, capacity in usable_bytes(instance.setting).items():
        if found and tier in mine:
            others = sum(books[tier].values()) - mine[tier]
            room = min(room, max(capacity - others, 0.0) * once / mine[tier])
    return room


def left(instance: Instance, books: Held, who_needs: str) -> dict[str, float]:
    """Bytes left of every memory that has a limit.

    Raises
    ------
    Infeasible
        If a stage holds more than a memory has: what it holds, what the chip has and what would help.
    """
    found = {}
    reserve = instance.assumptions.memory_reserve
    for tier, capacity in usable_bytes(instance.setting).items():
        parts = books.get(tier, {})
        found[tier] = capacity - sum(parts.values())
        if found[tier] < 0:
            others = [other for other in instance.system.chip.tiers if other != tier]
            elsewhere = {f"another placement ({', '.join(others)})": None} if others else {}
            listed = ", ".join(f"{label} {parts[name] / 1e9:.4g} GB" for name, label in LABELS.items() if name in parts)
            levers = {kind.lever: None for kind in KINDS if kind.lever and kind.name in parts}
            raise Infeasible(
                f"{who_needs} {sum(parts.values()) / 1e9:.4g} GB of {tier.upper()} per chip ({listed}), the chip has"
                f" {usable(capacity, reserve)}: short by {-found[tier] / 1e9:.4g} GB; levers:"
                f" {', '.join(['more tensor or pipeline parallelism', 'more chips', *elsewhere, *levers])}"
            )
    return found


def dram_left(instance: Instance, states: Mapping[int, Sequence[State]]) -> dict[int, float]:
    """DRAM left for what waits between the partitions of each stage of the mapping.

    Kernels that run in several pipeline stages have what the fullest of those leaves. Only there a tensor is counted
    at a time: the partitions of one stage of the mapping run before those of the next.

    Parameters
    ----------
    states : dict
        What the kernels of each stage of the mapping that has any keep, see :func:`sharded_states`.

    Returns
    -------
    dict
        Bytes per chip of the fastest memory, by stage of the mapping; infinite where it has no limit.

    Raises
    ------
    Infeasible
        If weights, gradients, optimizer state and saved activations alone exceed the capacity of a pipeline stage.
    """
    found, fastest = dict.fromkeys(states, math.inf), instance.system.chip.fastest_tier
    if not capacities(instance.system.chip):
        return found
    for stage in instance.pipeline:
        rest = left(instance, held(instance, stage, states), f"{stage.name} needs").get(fastest, math.inf)
        rest = rest if waits(instance.setting) else math.inf
        found |= {number: min(found[number], rest) for number, _ in stage.runs if number in found}
    return found


def in_flight(instance: Instance, stage: PipelineStage, number: int) -> float:
    """Microbatches whose saved activations a pipeline stage holds; where one stands for all, those of the first."""
    graph, schedule = instance.graph, instance.assumptions.schedule
    capped = not instance.assumptions.by_layer
    if not graph.folded:
        return microbatches_in_flight(instance.plan, graph.trains, schedule, capped=capped)
    where = graph.layers.where(number)
    return microbatches_in_flight(instance.plan, graph.trains, schedule, stage.number, where, capped=capped)


def sharded_states(setting: Setting, stage: ShardedGraph) -> tuple[State, ...]:
    """What the kernels of a stage of the mapping keep, under their shardings."""
    graph = setting.graph
    index = graph.index()
    kernels = [graph.kernels[index[name]] for name in stage.names]
    return states_of(setting, kernels, stage.held_k.sum(axis=0).tolist())
