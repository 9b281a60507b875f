"""The optimiser's books: what pipeline stages hold in the memories of a chip, and what is left of them.

Bytes are those of one chip. *Items*, such as weights, are what a placement puts into a memory
(:mod:`dfopt.documents.placement`). *Offloaded* items lie in a slower memory while the graph trains.
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
from dfopt.physics.offload import buffered
from dfopt.physics.pipeline import microbatches_in_flight
from dfopt.physics.states import KINDS, LABELS, OPTIMIZER_BYTES, STATE_OF, Amount, Held, Kind, capacities, usable
from dfopt.physics.working import MAIN_GRADIENT
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.stages import PipelineStage
from dfopt.terms.layer import counts_training
from dfopt.terms.rules import HELD
from dfopt.terms.rules.held import waits
from dfopt.terms.sharded_graph import ShardedGraph

OF_LAYERS: Final = ("layer", "others", "exchange")
"""Lifetimes (:attr:`State.lifetime`) of states of which the layer at work holds other bytes than idle layers."""


@dataclass(frozen=True)
class State:
    """Bytes that stay in a memory, of one evaluation (one layer, one microbatch) of some kernels.

    One chip of a plan holds ``bytes / chips_of(instance, state)`` for each evaluation. The *layer at work* is the one
    that a stage computes at the moment. ZeRO levels are 0 to 3.

    Attributes
    ----------
    name : str
        ``weights``, ``gradients``, ``optimizer``, ``activations``, ``caches`` or ``tables``. States of one name add up.
    bytes : B
        On one chip if `split_over` is empty, else on all chips together that hold parts; before ZeRO shares them out.
    split_over : tuple of str
        Degrees of the plan, such as ``shards`` and ``copies``: the state is spread over the product of them in chips.
    lifetime : str
        Which layers of a stage hold `bytes`. ``step``: each, once. ``microbatch``: each, for every microbatch in
        flight. ``sequences``: each, for every microbatch of a step. ``layer``: the layer at work alone, once.
        ``others``: each but the layer at work. ``exchange``: as many as are exchanged at a time (``layers_exchanged``).
    item : Item or None
        Item of a placement, which says the memory that the state lies in. None: the fastest memory.
    shared_from, exists_from : int or None, int
        Lowest ZeRO levels at which data-parallel copies share the state out (None: never), and at which it exists.
    copied : bool
        Whether all chips of the module-wise parallel axis hold the same bytes. ZeRO shares these out over it, too.
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
    """Usable bytes of every memory of a chip that has a limit, by name of the memory: capacity less the reserved share.

    They are ``capacity * (1 - memory_reserve) * (1 + 1e-12)``, where the last factor allows for rounded sums. Empty if
    no memory has a limit. ``setting``: graph, machine and resolved assumptions; a ``memory_reserve`` of None is 0.
    """
    return capacities(setting.system.chip, setting.assumptions.memory_reserve)


def usable_words(capacity: float, assumptions: Assumptions) -> str:
    """A capacity as text for messages: ``72 GB (of 80 GB, 10 % is reserved)``, or ``72 GB`` if no share is reserved.

    ``capacity``: usable bytes. The share is the assumption ``memory_reserve``; None or 0: none. Infinite: ``inf GB``.
    """
    return usable(capacity, assumptions.memory_reserve)


def states_of(setting: Setting, kernels: Sequence[Kernel], sizes: Iterable[float] = ()) -> tuple[State, ...]:
    """States that some kernels keep of one evaluation: those of :data:`dfopt.physics.states.KINDS` with any bytes.

    They are in the order of ``KINDS``. ``setting``: graph, machine and resolved assumptions. ``kernels``: those of one
    kind of layer, or of one stage; only their tables and other resident data are read. ``sizes``: all else, the sum
    over these kernels of each resource of :data:`dfopt.terms.rules.HELD`, in its order, for one evaluation on one chip:
    bytes, or numbers of parameters. Entries left out at the end are 0.
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
        share = (kernel.copied or 0.0) if copied else 1.0 - (kernel.copied or 0.0)
        for of, amount in _of_tables(kernel, graph, gradients, for_parameter):
            amounts[of, kernel.spread_over, copied] += amount * share
    trains = counts_training(graph, assumptions)
    states = []
    for kind in KINDS:
        size = _unit_bytes(kind, graph, assumptions)
        if size > 0 and (trains or not kind.trained):
            for (of, split_over, copied), amount in amounts.items():
                if of == kind.of and amount > 0:
                    lies = kind.lifetime, kind.item, kind.shared_from, kind.exists_from, copied
                    states.append(State(kind.name, size * amount, split_over, *lies))
    return tuple(states)


def _unit_bytes(kind: Kind, graph: Graph, assumptions: Assumptions) -> float:
    """Bytes for one parameter of a state whose amount is a number of parameters; 1 where the amount is in bytes."""
    if kind.per_parameter is None:
        return 1.0
    stated: float = getattr(assumptions, kind.per_parameter)
    return optimizer_bytes(graph, stated) if kind.per_parameter == OPTIMIZER_BYTES else stated


def _of_tables(
    kernel: Kernel, graph: Graph, gradients: Mapping[Amount, float], for_parameter: float
) -> Iterator[tuple[Amount, float]]:
    """Bytes and parameters of a kernel's tables, and bytes of their optimizer; gradients if it is a backward kernel."""
    size, word = kernel.resident_bytes, graph.words.ends
    if kernel.pass_ == "forward":
        stated = kernel.resident_optimizer_bytes
        yield "tables", size
        yield "table parameters", size / word
        yield "table optimizer", size / word * for_parameter if stated is None else stated
        return
    for of, gradient_word in gradients.items():
        of = "table gradients" if of == "gradients" else of
        yield of, size if graph.main_gradients is None and of == "table gradients" else size * (gradient_word / word)


def _gradients(graph: Graph, assumptions: Assumptions) -> dict[Amount, float]:
    """Which gradients there are, with the bytes of each for a parameter."""
    if assumptions.by_layer:
        return {"other gradients": graph.words.activations, "layer gradients": MAIN_GRADIENT}
    return {"gradients": gradient_bytes(graph)}


def held(instance: Instance, stage: PipelineStage, states: Mapping[int, Sequence[State]]) -> Held:
    """Bytes that one chip of a pipeline stage holds, by memory and name of the state: ``{memory: {name: bytes}}``.

    ``instance``: setting and plan; ``stage``: one of its pipeline; ``states``: by kind of layer (number as in
    ``stage.runs``), what one layer keeps of one microbatch (:func:`states_of`). The fastest memory also has copies of
    offloaded items (:func:`buffers`) and buckets of gradients (:func:`reserved`), but no tensors between partitions.
    """
    books = lying(instance, stage, states)
    for state, size in buffers(instance, stage, states).items():
        books[instance.system.chip.fastest_tier][state] += size
    if taken := reserved(instance):
        books[instance.system.chip.fastest_tier]["gradients"] += taken
    return books


def lying(instance: Instance, stage: PipelineStage, states: Mapping[int, Sequence[State]]) -> Held:
    """Bytes that one chip of a stage holds of each state, by name of the memory: ``{memory: {name of state: bytes}}``.

    All layers and microbatches in flight count. ``states``: by kind of layer (number as in ``stage.runs``), what one
    layer keeps of one microbatch. Left out are copies of offloaded items and buckets of gradients (:func:`held`).
    """
    books: Held = defaultdict(lambda: defaultdict(float))
    for state, size in kept(instance, stage, states):
        books[instance.plan.tier_of(state.item, instance.system.chip)][state.name] += size
    return books


def offloaded(instance: Instance) -> dict[Item, str]:
    """Items that a plan puts into a slower memory than the fastest one: ``{item: name of the slower memory}``.

    Items are ``weights`` and ``experts`` (weights of routed experts), saved ``activations``, ``gradients`` and the
    state of the ``optimizer``. ``instance``: setting and plan. Empty unless the graph trains.
    """
    placement, chip = instance.plan.placement, instance.system.chip
    if placement is None or not instance.graph.trains:
        return {}
    return {item: tier for item, tier in placement.elsewhere.items() if item in TRAINED and tier != chip.fastest_tier}


def buffers(instance: Instance, stage: PipelineStage, states: Mapping[int, Sequence[State]]) -> dict[str, float]:
    """Bytes of a chip's fastest memory for copies of offloaded items that layers at work need, by name of the state.

    Empty if no item is. Of each item twice what the stage's largest layer has for one microbatch, at most all that the
    stage has (:func:`dfopt.physics.offload.buffered`). ``states``: what a layer of each kind keeps of one microbatch.
    """
    if not (away := offloaded(instance)):
        return {}
    pairs, buffer_bytes = list(kept(instance, stage, states)), defaultdict[str, float](float)
    layers = [states.get(number, ()) for number, times in stage.runs if times]
    for item in away:
        total = sum(size for state, size in pairs if state.item == item)
        states_of_layer = ([each for each in layer if each.item == item] for layer in layers)
        most = max((sum(each.bytes / chips_of(instance, each) for each in of) for of in states_of_layer), default=0.0)
        buffer_bytes[STATE_OF[item]] += buffered(total, most, item, instance.assumptions)
    return buffer_bytes


def reserved(instance: Instance) -> float:
    """Bytes of a chip's fastest memory for *buckets*: buffers in which data-parallel copies add up gradients.

    They are the assumption ``exchange_buffers`` (None: 0) under any sharding schemes. 0 unless the graph of
    ``instance`` trains under ``gradients: exact``, and its plan has several data-parallel copies.
    """
    assumptions = instance.assumptions
    exchanges = counts_training(instance.graph, assumptions) and instance.plan.copies > 1
    return (assumptions.exchange_buffers or 0.0) if exchanges else 0.0


def limited(instance: Instance) -> dict[str, float]:
    """Bytes per chip that data of kernels may fill, by memory with a limit: :func:`usable_bytes` less :func:`reserved`.

    Negative for the fastest memory if :func:`reserved` alone exceeds it. ``instance``: setting and plan.
    """
    taken, chip = reserved(instance), instance.system.chip
    limits = usable_bytes(instance.setting)
    return {tier: size - (taken if tier == chip.fastest_tier else 0.0) for tier, size in limits.items()}


def kept(
    instance: Instance, stage: PipelineStage, states: Mapping[int, Sequence[State]]
) -> Iterator[tuple[State, float]]:
    """Pairs of a state and the bytes of it that one chip of the stage holds, for all layers and microbatches in flight.

    ``states``: by kind of layer, what one layer keeps of one microbatch. A state comes once for each entry of
    ``stage.runs`` (number of the kind, how many layers) that keeps it. Of a state that only the layer at work has, the
    kind of layer with the most bytes counts: the pairs of other kinds have 0 bytes.
    """
    at_work, away = _largest(instance, stage, states), offloaded(instance)
    for number, times in stage.runs:
        for state in states.get(number, ()):
            count = float(times)
            if state.lifetime in OF_LAYERS and state.item not in away:
                largest = at_work.get((state.name, state.lifetime)) == number
                count = count - largest if state.lifetime == "others" else largest * at_once(instance, stage, state)
            if state.lifetime == "microbatch":
                count *= in_flight(instance, stage, number)
            elif state.lifetime == "sequences":
                count *= instance.plan.microbatches
            yield state, count * state.bytes / chips_of(instance, state)


def chips_of(instance: Instance, state: State) -> int:
    """Number of chips that hold one state together, each an equal part: 1 if every chip holds all of it.

    It is the product of the degrees of the plan in ``state.split_over``. That is multiplied by the number of chips that
    ZeRO shares the state out over, unless ``split_over`` has ``copies``: it is spread over these already.
    """
    degree: int = math.prod(getattr(instance.plan, name) for name in state.split_over)
    if "copies" in state.split_over:
        return degree
    return degree * instance.plan.held_by(state.shared_from, copied=state.copied)


def at_once(instance: Instance, stage: PipelineStage, state: State) -> int:
    """Layers of a pipeline stage that count as at work at a time, for a state of a lifetime in :data:`OF_LAYERS`.

    1 for the lifetimes ``layer`` and ``others``. For ``exchange`` the assumption ``layers_exchanged`` (None: 1), but
    at most the layers of the stage. 0 if the ZeRO level of the plan of ``instance`` is below ``state.exists_from``.
    """
    if (instance.plan.zero or 0) < state.exists_from:
        return 0
    layers = instance.assumptions.layers_exchanged or 1
    return min(layers, sum(times for _, times in stage.runs)) if state.lifetime == "exchange" else 1


def _largest(
    instance: Instance, stage: PipelineStage, states: Mapping[int, Sequence[State]]
) -> dict[tuple[str, str], int]:
    """The layer that holds most of what one has at a time, by name and lifetime."""
    layer_bytes: dict[tuple[str, str], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for number, times in stage.runs:
        for state in states.get(number, ()) if times else ():
            if state.lifetime in OF_LAYERS:
                layer_bytes[state.name, state.lifetime][number] += state.bytes / chips_of(instance, state)
    return {key: max(layers, key=lambda number: layers[number]) for key, layers in layer_bytes.items()}


def by_layers(states: Sequence[State]) -> tuple[list[State], list[tuple[float, State]]]:
    """Split states in two: those that count for every layer of a stage, and corrections for the layer at work.

    First come states of every layer; those of lifetime ``others`` (all layers but the one at work) now have ``step``.
    Second come pairs of a sign and a state as given: 1 for ``layer`` and ``exchange``, which only layers at work have,
    and -1 for ``others``, which the first counts for one layer too many. If all layers of a stage are of one kind, its
    chip holds the bytes of the first (:func:`lying`), plus for each pair ``sign * at_once(...) * bytes /
    chips_of(instance, state)``. Leave out pairs of offloaded items (:func:`offloaded`): every layer keeps these.
    """
    alike = [replace(state, lifetime="step") if state.lifetime == "others" else state for state in states]
    signs = {"layer": 1.0, "exchange": 1.0, "others": -1.0}
    more = [(signs[state.lifetime], state) for state in states if state.lifetime in signs]
    return [state for state in alike if state.lifetime not in signs], more


def left(instance: Instance, books: Held, who_needs: str) -> dict[str, float]:
    """Bytes left of every memory of a chip that has a limit, by name: :func:`usable_bytes` less those that it holds.

    ``books``: bytes that one chip of a stage holds, as :func:`held` returns them. Raises
    :class:`~dfopt.errors.Infeasible` if they exceed the usable bytes of a memory. The message has both figures, and
    what would help. ``who_needs``: how it begins, such as ``stage 0 needs``.
    """
    free_bytes = {}
    for tier, capacity in usable_bytes(instance.setting).items():
        parts = books.get(tier, {})
        free_bytes[tier] = capacity - sum(parts.values())
        if free_bytes[tier] < 0:
            others = [other for other in instance.system.chip.tiers if other != tier]
            elsewhere = {f"another placement ({', '.join(others)})": None} if others else {}
            listed = ", ".join(f"{label} {parts[name] / 1e9:.4g} GB" for name, label in LABELS.items() if name in parts)
            levers = {kind.lever: None for kind in KINDS if kind.lever and kind.name in parts}
            raise Infeasible(
                f"{who_needs} {sum(parts.values()) / 1e9:.4g} GB of {tier.upper()} per chip ({listed}), the chip has"
                f" {usable_words(capacity, instance.assumptions)}: short by {-free_bytes[tier] / 1e9:.4g} GB; levers:"
                f" {', '.join(['more tensor or pipeline parallelism', 'more chips', *elsewhere, *levers])}"
            )
    return free_bytes


def dram_left(instance: Instance, states: Mapping[int, Sequence[State]]) -> dict[int, float]:
    """Bytes per chip of the fastest memory left for tensors that wait between on-chip partitions, by kind of layer.

    ``states``: by kind of layer, what one layer keeps of one microbatch. Keys are the same: numbers of kinds, or of
    pipeline stages if the graph draws every layer. A kind in several pipeline stages has what the fullest of these
    leaves of :func:`usable_bytes`. Kinds run one after another, so each may use all of that. Infinite without a limit,
    or where tensors that wait are counted as a state (``training_memory: calculon``). Raises
    :class:`~dfopt.errors.Infeasible` if the states alone (:func:`held`) exceed a memory in some pipeline stage.
    """
    free_bytes, fastest = dict.fromkeys(states, math.inf), instance.system.chip.fastest_tier
    if not capacities(instance.system.chip):
        return free_bytes
    for stage in instance.pipeline:
        rest = left(instance, held(instance, stage, states), f"{stage.name} needs").get(fastest, math.inf)
        rest = rest if waits(instance.setting) else math.inf
        free_bytes |= {number: min(free_bytes[number], rest) for number, _ in stage.runs if number in free_bytes}
    return free_bytes


def in_flight(instance: Instance, stage: PipelineStage, number: int) -> float:
    """Microbatches whose saved activations of kind of layer ``number`` a stage holds; 1 if the graph does not train.

    Under ``schedule: gpipe`` all of a step. Else at most as many as the stages from this one to the last, or more if
    these are interleaved (:func:`dfopt.physics.pipeline.microbatches_in_flight`): then it may be a fraction. A stage
    that stands for several has the figure of the first. If the graph draws every layer, all count as the first stage.
    """
    graph, schedule = instance.graph, instance.assumptions.schedule
    capped = not instance.assumptions.by_layer
    if not graph.folded:
        return microbatches_in_flight(instance.plan, graph.trains, schedule, capped=capped)
    where = graph.layers.where(number)
    return microbatches_in_flight(instance.plan, graph.trains, schedule, stage.number, where, capped=capped)


def sharded_states(setting: Setting, stage: ShardedGraph) -> tuple[State, ...]:
    """Weights, gradients and other states that the kernels of ``stage`` keep on one chip, under their sharding schemes.

    ``stage``: one layer of a kind, or all kernels of a pipeline stage if the graph draws every layer (not *folded*). A
    :class:`State` has a name and bytes for one microbatch, above 0. In the order of :data:`dfopt.physics.states.KINDS`.
    """
    graph = setting.graph
    index = graph.index()
    kernels = [graph.kernels[index[name]] for name in stage.names]
    return states_of(setting, kernels, stage.held_k.sum(axis=0).tolist())
