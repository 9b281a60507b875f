"""How many layers the first and the last stage of a pipeline have where they have other work as well."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from dfopt.arrays import ROUNDING
from dfopt.documents.graph import Graph, Kernel
from dfopt.physics import ops
from dfopt.physics.identity import Same
from dfopt.physics.pipeline import layers_per_stage
from dfopt.physics.states import cached_bytes, own_traffic

StageLayers = tuple[int, int, int]  # of the first stage, of each one in the middle, and of the last
_CACHED: Final = 256  # answers: of each graph, for each number of stages that its plans have


def uneven_layers(
    graph: Graph, stages: int, *, as_chunks: bool = False, saved: float = 0.0
) -> list[dict[str, int | None]]:
    """Numbers of layers of the first, middle and last pipeline stages, where these may differ.

    A stage with kernels of its own may give up to its neighbour as many layers as have twice the work of those kernels
    (:func:`handed_on`), plus one, and at least three. The factor of two allows for kernels that are sharded or run less
    efficiently than a layer. Such a stage may have no layer left. A first stage that saves activations of more
    microbatches than the next one may give up more, so that it fits the memory. Of these numbers,
    :func:`splits` keeps those that may minimize the slowest stage; if the time of every stage counts (``bubble:
    stages``), others may fill a pipeline sooner. Stages have no more places than layers need, though ``bubble:
    interleaved`` would count those as chunks.

    Parameters
    ----------
    graph, stages
        The model, and the stages of its pipeline.
    as_chunks
        Whether a pipeline with more layers in its stages fills sooner, as under ``bubble: interleaved``. Stages in the
        middle that are larger than the slowest stage requires may then be better (:func:`wider_splits`), and an end
        without kernels of its own has the remaining layers, at least one.
    saved
        Bytes of activations that a layer saves of one microbatch, relative to those that it holds anyway: 0 unless the
        first stage saves those of one microbatch more than the next one (:mod:`dfopt.setting.saved`).

    Returns
    -------
    list of dict
        Changes of a :class:`Plan`; none where all stages are alike.

    Examples
    --------
    >>> from dfopt.documents.sections import Section
    >>> kernels = [Kernel(name="a", op="elementwise", m=1, n=1), Kernel(name="b", op="gemm", m=1, n=1, layer="head")]
    >>> sections = (Section(repeat=16), Section(layers=("head",)))
    >>> graph = Graph(name="g", sections=sections, kernels=tuple(kernels))
    >>> [tuple(plan.values()) for plan in uneven_layers(graph, 4)]
    [(6, 6, 0), (5, 5, 1)]
    """
    layers = graph.layers
    if stages == 1 or layers.counted == len(layers.kinds):
        return []
    return list(_uneven(Same(graph), stages, as_chunks, saved))


def with_ends(graph: Graph, stages: int, first: int | None, last: int | None) -> dict[str, int | None]:
    """Plan fields for a requested number of layers in the first or last pipeline stage.

    All others have equally many, the fewest that hold the rest.

    Parameters
    ----------
    graph
        A model whose ends run once.
    stages
        Pipeline stages.
    first, last
        Layers of the first and of the last stage; None: free.

    Raises
    ------
    ValueError
        Why there is no such plan.

    Examples
    --------
    >>> from dfopt.documents.sections import Section
    >>> kernels = [Kernel(name="a", op="elementwise", m=1, n=1), Kernel(name="b", op="gemm", m=1, n=1, layer="head")]
    >>> sections = (Section(repeat=126), Section(layers=("head",)))
    >>> with_ends(Graph(name="g", sections=sections, kernels=tuple(kernels)), 16, 7, None)
    {'layers_per_stage': 8, 'first_layers': 7, 'last_layers': 8}
    """
    layers = graph.layers
    if layers.counted == len(layers.kinds):
        raise ValueError("all its stages are alike: nothing runs before the first or after the last layer")
    fixed = [count for count in (first, last) if count is not None]
    if stages < 2 or (stages == 2 and len(fixed) == 2 and sum(fixed) != layers.count):
        raise ValueError(
            f"{stages} stages do not hold {layers.count} layers with {' and '.join(map(str, fixed))} of them"
        )
    others = stages - len(fixed)
    most = max([*fixed, layers_per_stage(max(layers.count - sum(fixed), 0), others) if others else 0])
    ends = (most if first is None else first, most if last is None else last)
    total = sum(ends) + (stages - 2) * most
    if not 0 <= total - layers.count < stages:
        raise ValueError(f"stages of {ends[0]}, {most} and {ends[1]} layers hold {total}, of {layers.count}")
    return {"layers_per_stage": most, "first_layers": ends[0], "last_layers": ends[1]}


def uneven_chunks(graph: Graph, stages: int, chunks: int) -> list[dict[str, int | None]]:
    """Plan fields for interleaved stages whose first or last chunk has fewer layers than the others.

    An embedding or logits count as layers there: these chunks lack all layers that would be missing in the last stages
    otherwise. Searched for layers of one kind, whose stages in the middle have as many as evenly split.

    Parameters
    ----------
    graph
        A model whose ends run once.
    stages, chunks
        Number of pipeline stages, and of chunks of layers in each stage.

    Returns
    -------
    list of dict
        Changes of a :class:`Plan`; none where all stages are full, alike, or in one chunk.

    Examples
    --------
    >>> from dfopt.documents.sections import Section
    >>> kernels = [Kernel(name="a", op="elementwise", m=1, n=1), Kernel(name="b", op="gemm", m=1, n=1, layer="head")]
    >>> sections = (Section(repeat=126), Section(layers=("head",)))
    >>> graph = Graph(name="g", sections=sections, kernels=tuple(kernels))
    >>> [(one["first_layers"], one["last_layers"]) for one in uneven_chunks(graph, 16, 4)]
    [(8, 6), (7, 7), (6, 8)]
    """
    layers = graph.layers
    if stages == 1 or chunks == 1 or layers.counted > 1 or len(layers.kinds) == 1:
        return []
    most = layers_per_stage(layers.count, stages)
    spare, chunk = stages * most - layers.count, most // chunks
    pairs = [(fewer, min(chunk, spare - fewer)) for fewer in range(max(spare - chunk, 0), min(chunk, spare) + 1)]
    pairs = [(chunk, chunk)] if spare > 2 * chunk else pairs
    return [
        {"layers_per_stage": most, "interleave": chunks, "first_layers": most - first, "last_layers": most - last}
        for first, last in pairs
        if first or last
    ]


@lru_cache(maxsize=_CACHED)
def _uneven(same: Same[Graph], stages: int, as_chunks: bool, saved: float) -> tuple[dict[str, int | None], ...]:
    graph, layers = same.document, same.document.layers
    even, of_kind = layers_per_stage(layers.count, stages), graph.kernels_by_kind
    alone, spared = [], []
    # its own layers from the inside out, and then those of its neighbours: a middle may have more than an even split
    first_order = [*layers.order[:even][::-1], *layers.order[even:]]
    last_order = [*layers.order[-even:], *layers.order[:-even][::-1]]
    for first, given in ((True, first_order), (False, last_order)):
        own = [kernel for kind, _ in layers.ends(first, not first) for kernel in of_kind[kind]]
        alone.append(bool(own))
        spared.append(max(handed_on(graph, own, [of_kind[kind] for kind in given]) + 1, 3) if own else 0)
    asked = layers.count, stages, spared[0], spared[1], (alone[0], alone[1]), saved if alone[0] else 0.0
    candidates = wider_splits(*asked) if as_chunks else splits(*asked)
    if layers.counted > 1 and stages > 2:
        every = {*candidates, *cuts(*asked)}
        if as_chunks and not alone[1]:  # where places count as chunks, an end without kernels has none that is empty
            left = {sizes: max(layers.count - sizes[0] - (stages - 2) * sizes[1], 1) for sizes in every}
            every = {sizes for sizes in every if sizes[2] <= left[sizes]}
        candidates = fewest(every, layers.count, stages)
    return tuple(
        {"layers_per_stage": max(layers), "first_layers": layers[0], "last_layers": layers[2]}
        for layers in candidates
        if layers != (even, even if stages > 2 else 0, even)
    )


def handed_on(graph: Graph, own: Sequence[Kernel], layers: Sequence[Sequence[Kernel]]) -> int:
    """Number of layers that weigh twice as much as the kernels at one end of the pipeline.

    They weigh FLOP, bytes of DRAM traffic, bytes that are held, or bytes of outputs: the measure that needs the most
    layers decides. All layers are handed on if they weigh less, also if they weigh nothing.

    Parameters
    ----------
    graph
        The model.
    own
        Kernels that the first or the last stage runs once.
    layers
        Kernels of each layer, in the order in which the stage hands layers on.

    Returns
    -------
    int
        At most all of the given layers.
    """

    def weights(kernel: Kernel, elements: float) -> float:
        return elements * graph.words.of_weight(kernel)

    most, kinds = 0, {id(kernels): kernels for kernels in layers}
    for measure in (
        ops.flop,
        lambda kernel: weights(kernel, ops.weights_read(kernel)) + own_traffic(kernel, "none", 1),
        lambda kernel: weights(kernel, ops.weight_elements(kernel)) + kernel.resident_bytes
        + cached_bytes(kernel, "none", 1),
        lambda kernel: graph.output_bytes(kernel.name),
    ):  # fmt: skip
        weight_of = {at: float(sum(map(measure, kernels))) for at, kernels in kinds.items()}
        weighs = np.cumsum([weight_of[id(kernels)] for kernels in layers])
        wanted = 2.0 * float(sum(map(measure, own)))
        if wanted > 0:
            most = max(most, min(int(np.searchsorted(weighs * (1 + ROUNDING), wanted)) + 1, len(layers)))
    return most


@lru_cache(maxsize=_CACHED)
def splits(
    repeat: int, stages: int, first: int, last: int, alone: tuple[bool, bool], saved: float = 0.0
) -> tuple[StageLayers, ...]:
    """Layer counts of stages that may minimize the slowest stage, for any times of a layer and of the ends.

    With times t of a layer, and a <= first x t and b <= last x t of the other kernels of both ends, the slowest stage
    takes max(f t + a, m t, l t + b). Let V t be its least value and m = floor(V): no stage in the middle has more
    layers. The first has f = floor(V - a / t) at most, so m - f <= ceil(a / t) <= first, the last likewise. Taking all
    pairs of m - f and m - l in these ranges, each with the least m that holds all layers, gives one with no more layers
    in any stage than the best has, so it is best too. Dominated numbers are left out, which have at least as many
    layers in every stage as others and more in one, as time and memory of a stage grow with its layers.

    Memory: a layer holds w bytes, and s more for each microbatch in flight. In 1F1B there are p of them in the first of
    p stages and p - 1 in the next. If that fits with m layers, the first one fits with m - first - m s / (w + p s) if
    its own kernels have no more bytes than ``first`` layers.

    Two stages have no middle, f + l are all layers, and the best f is (repeat t + b - a) / 2t, rounded up or down. If
    the last one fits with more than repeat - f layers, the first one fits with f = m - first - m s / (2 w + 3 s), where
    m is half of all.

    Parameters
    ----------
    repeat, stages
        Layers, and stages that they are on: two or more.
    first, last
        Layers at most that the ends have less than the middle; of two stages, less than half of all.
    alone
        Whether the first and the last stage have work without any layer.
    saved
        The ratio s / w; 0 if no stage saves more than the next.

    Examples
    --------
    >>> splits(42, 8, 0, 6, (False, True))
    ((6, 6, 0),)
    """
    least, first, last = [0 if own else 1 for own in alone], min(first, repeat), min(last, repeat)
    even = layers_per_stage(repeat, stages)
    if stages == 2:
        fewer = max(first, 3) + _for_activations(even, stages, saved)
        low, high = max(even - fewer, least[0]), min(repeat - even + max(last, 3), repeat - least[1])
        return tuple((f, 0, repeat - f) for f in reversed(range(low, high + 1)))
    return tuple(sorted(_undominated(cuts(repeat, stages, first, last, alone, saved)), reverse=True))


@lru_cache(maxsize=_CACHED)
def wider_splits(
    repeat: int, stages: int, first: int, last: int, alone: tuple[bool, bool], saved: float = 0.0
) -> tuple[StageLayers, ...]:
    """Layer counts of stages that may be best where a stage's layers count as chunks that fill the pipeline.

    In addition to those of :func:`splits`, which minimize the slowest stage V, they have more layers m in a stage: a
    step of M microbatches takes V (M + (p - 1) / (m - 1)). As V >= m t, and an even split of e layers takes (e + A) t
    at most with A = max(first, last), more layers are worse once m (M + (p - 1) / (m - 1)) is (e + A) (M + (p - 1) / (e
    - 1)) for M = 1, and for M without end; it goes linearly with 1 / M between them. For one m, V is least where both
    ends take about the same: f = (R + (b - a) / t) / 2 for R layers at the ends, rounded up or down; numbers near it
    are included too, as limits of memory may require them.

    Parameters
    ----------
    repeat, stages, first, last, alone, saved
        As of :func:`splits`.

    Examples
    --------
    >>> splits(4, 3, 3, 3, (True, True))
    ((2, 2, 0), (1, 3, 0), (1, 2, 1), (0, 3, 1), (0, 2, 2))
    >>> set(wider_splits(4, 3, 3, 3, (True, True))) - set(splits(4, 3, 3, 3, (True, True)))
    {(0, 4, 0)}
    """
    least, first, last = [0 if own else 1 for own in alone], min(first, repeat), min(last, repeat)
    even, worst = layers_per_stage(repeat, stages), max(first, last)
    candidates = {*splits(repeat, stages, first, last, alone, saved)}

    def worse(most: int) -> bool:
        return all(
            most * (1 + part / max(most - 1, 1)) > (even + worst) * (1 + part / max(even - 1, 1)) * (1 + ROUNDING)
            for part in (0, stages - 1)
        )

    for most in itertools.takewhile(lambda most: not worse(most), range(even, repeat + 1)):
        if stages == 2:
            pairs = [(most, repeat - most), (repeat - most, most)]
        else:
            ends = max(repeat - (stages - 2) * most, sum(least))
            fewer = first + _for_activations(most, stages, saved)
            near = range(ends // 2 - fewer - 2, ends // 2 + last + 3)
            pairs = [(f, ends - f) for f in near]
        for f, l in pairs:
            if least[0] <= f <= most and least[1] <= l <= most:
                candidates.add((f, most if stages > 2 else 0, l))
    return tuple(sorted(_undominated(candidates), reverse=True))


@lru_cache(maxsize=_CACHED)
def cuts(
    repeat: int, stages: int, first: int, last: int, alone: tuple[bool, bool], saved: float = 0.0
) -> frozenset[StageLayers]:
    """Layer counts of three or more stages that average less than one unused place.

    A stage with unused places moves the cuts after it. With layers of several kinds, other cuts distribute the kinds
    differently, so that no number is better than another for all layers.

    Parameters
    ----------
    repeat, stages, first, last, alone, saved
        As of :func:`splits`.

    Examples
    --------
    >>> fewest(cuts(4, 4, 1, 2, (True, True)), 4, 4)
    ((2, 2, 0), (1, 2, 0), (1, 1, 1))
    """
    least, first, last = [0 if own else 1 for own in alone], min(first, repeat), min(last, repeat)
    candidates = set[StageLayers]()
    for most in range(layers_per_stage(repeat, stages), repeat + 1):
        most_fewer = first + _for_activations(most, stages, saved)
        if (stages - 2) * most + max(most - most_fewer, least[0]) + max(most - last, least[1]) >= repeat + stages:
            break
        for fewer in itertools.product(range(most_fewer + 1), range(last + 1)):
            f, l = (max(most - few, own) for few, own in zip(fewer, least, strict=True))
            if repeat <= f + (stages - 2) * most + l < repeat + stages:
                candidates.add((f, most, l))
    return frozenset(candidates)


def _for_activations(most: int, stages: int, saved: float) -> int:
    """Layers that the first stage may have less than the next, or than half of all, as it saves more activations."""
    held, times = (2, 3) if stages == 2 else (1, stages)
    return math.ceil(most / (held / saved + times) * (1 - ROUNDING)) if saved else 0


def fewest(candidates: Collection[StageLayers], repeat: int, stages: int) -> tuple[StageLayers, ...]:
    """Layer counts without those that cut the layers at the same points as others with fewer places.

    Parameters
    ----------
    candidates
        Layers of the first stage, of each in the middle, and of the last.
    repeat, stages
        Layers of the model, and its stages.
    """
    by_cuts: dict[tuple[int, ...], StageLayers] = {}
    for first, most, last in sorted(candidates, key=lambda n: (n[0] + (stages - 2) * n[1] + n[2], n)):
        cuts = tuple(min(first + at * most, repeat) for at in range(stages - 1))
        by_cuts.setdefault(cuts, (first, most, last))
    return tuple(sorted(by_cuts.values(), reverse=True))


def _undominated(candidates: Collection[StageLayers]) -> list[StageLayers]:
    """Numbers of layers without those that have no less in any stage than others, and more in one."""
    every = np.array([*candidates])
    return [sizes for sizes, row in zip(candidates, every, strict=True) if (every <= row).all(axis=1).sum() == 1]
