"""The optimiser's books: what pipeline stages hold in the memories of a chip, and what is left of them.

Bytes are those of one chip. A *tier* is the name of a memory of the chip (:attr:`dfopt.documents.system.Chip.tiers`),
an *item* what a placement puts into one (:mod:`dfopt.documents.placement`). *Offloaded* items lie in a slower memory
while the graph trains. These arguments mean the same in every function:

* ``instance``: a setting under one plan; ``stage``: a pipeline stage of it;
* ``number``: a stage of the mapping. Of a folded graph that is a kind of layer, else a pipeline stage;
* ``states``: by stage of the mapping, what its kernels keep (:func:`states_of`). One that is left out keeps nothing.
"""

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
from dfopt.terms.layer import counts_training
from dfopt.terms.rules import HELD
from dfopt.terms.rules.held import waits
from dfopt.terms.sharded_graph import ShardedGraph

OF_LAYERS: Final = ("layer", "others", "exchange")
"""Lifetimes (:attr:`State.lifetime`) of what the layer at work has another amount of than other layers of its stage."""


@dataclass(frozen=True)
class State:
    """Bytes that stay in a memory, of one evaluation (one layer, one microbatch) of some kernels.

    One chip of a plan holds ``bytes / chips_of(instance, state)``. Fields are as in the table of states, where
    :class:`dfopt.physics.states.Kind` explains them.

    Attributes
    ----------
    name : str
        ``weights``, ``gradients``, ``optimizer``, ``activations``, ``caches`` or ``tables``. States of one name add up.
    bytes : B
        On one chip if `split_over` is empty, else on all chips that it is spread over; before ZeRO shares it out.
    split_over : tuple of str
        Degrees of the plan, such as ``shards`` and ``copies``: their product is the number of chips it is spread over.
    lifetime : str
        ``step``: every layer has it. ``microbatch``: also for every microbatch in flight. ``sequences``: also for every
        one of a step. ``layer``, ``exchange``: only layers at work have it. ``others``: all layers but the one at work.
    item : Item or None
        Item of a placement that it belongs to. None: it lies in the fastest memory.
    shared_from, exists_from : int or None, int
        ZeRO levels from which data-parallel copies share it out (None: never), and from which there is any of it.
    copied : bool
        Whether all chips of the module-wise parallel axis hold the same, and so share it out with the copies.
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
    """Usable bytes of every memory that has a limit, by tier: its capacity without the share that a model cannot use.

    ``1 + 1e-12`` times as many, so that what fits exactly does in any order of summation.
    """
    return capacities(setting.system.chip, setting.assumptions.memory_reserve)


def usable_words(capacity: float, assumptions: Assumptions) -> str:
    """Usable bytes of a memory, ``capacity``, in words, such as ``72 GB (of 80 GB, 10 % is reserved)``."""
    return usable(capacity, assumptions.memory_reserve)


def states_of(setting: Setting, kernels: Sequence[Kernel], sizes: Iterable[float] = ()) -> tuple[State, ...]:
    """What some kernels keep: one state for each entry of :data:`dfopt.physics.states.KINDS` that they have any of.

    Parameters
    ----------
    kernels : sequence of Kernel
        They say only what tables and other resident data there are.
    sizes : iterable of float, optional
        All else: the sum over these kernels of each resource of :data:`dfopt.terms.rules.HELD`, in its order, for one
        evaluation on one chip. What is left out at the end is 0.
    """
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
    trains = counts_training(graph, assumptions)
    found = []
    for kind in KINDS:
        size = for_parameter if kind.per_parameter else 1.0
        if size > 0 and (trains or not kind.trained):
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
    """Bytes that one chip of a pipeline stage holds, by tier and name of the state.

    The fastest memory also has what layers at work need of offloaded items (:func:`buffers`), and buckets of gradients
    (:func:`reserved`). Tensors that wait between partitions are not included.
    """
    books = lying(instance, stage, states)
    for state, size in buffers(instance, stage, states).items():
        books[instance.system.chip.fastest_tier][state] += size
    if taken := reserved(instance):
        books[instance.system.chip.fastest_tier]["gradients"] += taken
    return books


def lying(instance: Instance, stage: PipelineStage, states: Mapping[int, Sequence[State]]) -> Held:
    """Bytes of states that one chip of a pipeline stage holds, each in the memory of its item, by tier and name.

    Unlike in :func:`held`, the fastest memory has nothing of offloaded items, and no buckets of gradients.
    """
    books: Held = defaultdict(lambda: defaultdict(float))
    for state, size in kept(instance, stage, states):
        books[instance.plan.tier_of(state.item, instance.system.chip)][state.name] += size
    return books


def offloaded(instance: Instance) -> dict[Item, str]:
    """The items of a plan that lie in a slower memory, and its name (tier); empty for a graph that does not train."""
    placement, chip = instance.plan.placement, instance.system.chip
    if placement is None or not instance.graph.trains:
        return {}
    return {item: tier for item, tier in placement.elsewhere.items() if item in TRAINED and tier != chip.fastest_tier}


def of_layers(instance: Instance, states: Mapping[int, Sequence[State]]) -> dict[int, dict[Item, float]]:
    """Bytes that one chip has of each offloaded item for one evaluation, by stage of the mapping and item.

    Every stage of `states` has an entry, which is empty where nothing is offloaded.
    """
    away = offloaded(instance)
    found: dict[int, dict[Item, float]] = {number: defaultdict(float) for number in states}
    for number, of in states.items() if away else ():
        for state in of:
            if state.item in away:
                found[number][state.item] += state.bytes / chips_of(instance, state)
    return found


def buffers(instance: Instance, stage: PipelineStage, states: Mapping[int, Sequence[State]]) -> dict[str, float]:
    """Bytes of the fastest memory for what layers at work need of offloaded items, by name of the state."""
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
    """Bytes of the fastest memory for buckets of gradients (``exchange_buffers``), whatever the mapping.

    0 unless the graph trains under ``gradients: exact`` with several data-parallel copies.
    """
    assumptions = instance.assumptions
    exchanges = counts_training(instance.graph, assumptions) and instance.plan.copies > 1
    return (assumptions.exchange_buffers or 0.0) if exchanges else 0.0


def limited(instance: Instance) -> dict[str, float]:
    """Bytes that a mapping may fill of every memory that has a limit, by tier: usable ones less :func:`reserved`.

    Negative where buckets of gradients alone exceed the fastest memory.
    """
    taken, chip = reserved(instance), instance.system.chip
    limits = usable_bytes(instance.setting)
    return {tier: size - (taken if tier == chip.fastest_tier else 0.0) for tier, size in limits.items()}


def kept(
    instance: Instance, stage: PipelineStage, states: Mapping[int, Sequence[State]]
) -> Iterator[tuple[State, float]]:
    """Pairs of a state and the bytes of it that a chip of the stage holds, for all layers and microbatches in flight.

    A state comes once for each entry of :attr:`PipelineStage.runs` that keeps it. Its bytes are 0 where only the layer
    at work has it, and that is of another stage of the mapping.
    """
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
    """Chips that hold a state together, each a part: the product of its degrees in the plan, times its ZeRO sharers."""
    degree: int = math.prod(getattr(instance.plan, name) for name in state.split_over)
    if "copies" in state.split_over:
        return degree
    return degree * instance.plan.held_by(state.shared_from, copied=state.copied)


def at_once(instance: Instance, stage: PipelineStage, state: State) -> int:
    """Layers of a pipeline stage that have a state at a time, where its lifetime is that of the layer at work.

    It is 1 for lifetimes ``layer`` and ``others``, for ``exchange`` as ``layers_exchanged`` says and no more than the
    stage has. It is 0 below the ZeRO level from which the state exists.
    """
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
    """States of one layer, split into what every layer holds and what the layer at work holds beside that.

    The bytes of a pipeline stage are layers x the first list, and once the sum of sign x bytes of the second one. A
    state with lifetime ``layer`` or ``exchange`` exists for the layer at work alone, one with ``others`` for all layers
    but that.

    Returns
    -------
    (list of State, list of (float, State))
        First the states of every layer, ``others`` written as lifetime ``step``. Then pairs of a sign and a state: 1
        for ``layer`` and ``exchange``, -1 for ``others``.
    """
    alike = [replace(one, lifetime="step") if one.lifetime == "others" else one for one in states]
    signs = {"layer": 1.0, "exchange": 1.0, "others": -1.0}
    more = [(signs[one.lifetime], one) for one in states if one.lifetime in signs]
    return [one for one in alike if one.lifetime not in signs], more


def room_to_save(instance: Instance, stage: PipelineStage, states: Mapping[int, Sequence[State]]) -> float:
    """Bytes that one layer may keep of one microbatch for the backward pass, beside all else that its chip holds.

    ``states`` are of layers of one kind. Infinite where the memory of activations has no limit, or nothing is kept.
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
    """Bytes left of every memory that has a limit, by tier.

    ``books``: what a pipeline stage holds, of :func:`held`; ``who_needs``: how an error begins: ``stage 0 needs``.

    Raises
    ------
    Infeasible
        If the stage holds more than a memory has: what it holds, what the chip has and what would help.
    """
    found = {}
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
                f" {usable_words(capacity, instance.assumptions)}: short by {-found[tier] / 1e9:.4g} GB; levers:"
                f" {', '.join(['more tensor or pipeline parallelism', 'more chips', *elsewhere, *levers])}"
            )
    return found


def dram_left(instance: Instance, states: Mapping[int, Sequence[State]]) -> dict[int, float]:
    """Bytes per chip of the fastest memory left for what waits between partitions, by stage of the mapping in `states`.

    Kernels that run in several pipeline stages have what the fullest of those leaves. Only there a tensor is counted at
    a time: the partitions of one stage of the mapping run before those of the next. Infinite where the memory has no
    limit, or where what waits is counted as a state (``training_memory: calculon``).

    Raises
    ------
    Infeasible
        If weights, gradients, optimizer state and saved activations alone exceed a memory in some pipeline stage.
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
    """Microbatches of which a pipeline stage holds the saved activations of a kind of layer; 1 if nothing is trained.

    A stage that stands for several alike has those of the first of them. If the graph is not folded, every stage counts
    as the first of the pipeline. See :func:`dfopt.physics.pipeline.microbatches_in_flight`.
    """
    graph, schedule = instance.graph, instance.assumptions.schedule
    capped = not instance.assumptions.by_layer
    if not graph.folded:
        return microbatches_in_flight(instance.plan, graph.trains, schedule, capped=capped)
    where = graph.layers.where(number)
    return microbatches_in_flight(instance.plan, graph.trains, schedule, stage.number, where, capped=capped)


def sharded_states(setting: Setting, stage: ShardedGraph) -> tuple[State, ...]:
    """What the kernels of one stage of the mapping keep under their schemes; ``stage`` has these kernels alone."""
    graph = setting.graph
    index = graph.index()
    kernels = [graph.kernels[index[name]] for name in stage.names]
    return states_of(setting, kernels, stage.held_k.sum(axis=0).tolist())
