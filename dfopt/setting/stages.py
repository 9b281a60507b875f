"""The pipeline stages of a plan, and what each of them runs.

Kernels are in *stages of the mapping*, each a fusion problem of its own: those of a graph drawn as a whole are its
pipeline stages. Of a folded graph they are its kinds of layers (:class:`dfopt.documents.sections.Layers`), whatever
pipeline stage a layer is in; a pipeline stage is a contiguous run of layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Final

import numpy as np

from dfopt.arrays import Ints
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.sections import Layers

_CACHED: Final = 4096  # answers: thousands of plans differ in other things


@dataclass(frozen=True)
class PipelineStage:
    """A pipeline stage, or several equal ones: number of the first, and the layers that it runs.

    ``runs``: stages of the mapping that it runs, and how often for one microbatch.
    """

    number: int
    name: str
    runs: tuple[tuple[int, int], ...]


def pipeline_stages(graph: Graph, plan: Plan) -> tuple[PipelineStage, ...]:
    """The distinct pipeline stages of a plan.

    Each has the number of layers that the plan states, in order, as long as there are any. If all counted layers are of
    one kind, one full stage in the middle stands for all others there.

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel
    >>> from dfopt.documents.sections import Section
    >>> kernels = [Kernel(name="a", op="elementwise", m=1, n=1), Kernel(name="b", op="gemm", m=1, n=1, layer="head")]
    >>> sections = (Section(repeat=16), Section(layers=("head",)))
    >>> graph = Graph(name="g", sections=sections, kernels=tuple(kernels))
    >>> [stage.runs for stage in pipeline_stages(graph, Plan(pp=4, layers_per_stage=5, first_layers=4, last_layers=2))]
    [((0, 4),), ((0, 5),), ((0, 2), (1, 1))]
    """
    return _placed(graph, plan)[0]


def stage_places(graph: Graph, plan: Plan) -> tuple[int, ...]:
    """For every stage of a pipeline in order, its position in :func:`pipeline_stages`.

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel
    >>> from dfopt.documents.sections import Section
    >>> kernels = [Kernel(name="a", op="elementwise", m=1, n=1), Kernel(name="b", op="gemm", m=1, n=1, layer="head")]
    >>> sections = (Section(repeat=16), Section(layers=("head",)))
    >>> graph = Graph(name="g", sections=sections, kernels=tuple(kernels))
    >>> stage_places(graph, Plan(pp=4, layers_per_stage=5, first_layers=4, last_layers=2))
    (0, 1, 1, 2)
    """
    return _placed(graph, plan)[1]


def _placed(graph: Graph, plan: Plan) -> tuple[tuple[PipelineStage, ...], tuple[int, ...]]:
    """The distinct stages, and which of them each one is."""
    if not graph.folded:
        stages = (PipelineStage(number, f"stage {number}", ((number, 1),)) for number in range(plan.stages))
        return tuple(stages), tuple(range(plan.stages))
    sizes = plan.stage_layers
    return _of_layers(graph.layers.under(plan.stages, sizes, plan.recomputed), plan.stages, sizes)


@lru_cache(maxsize=_CACHED)
def _of_layers(
    layers: Layers, stages: int, sizes: tuple[int, int, int]
) -> tuple[tuple[PipelineStage, ...], tuple[int, ...]]:
    """The distinct stages of layers that repeat, and which of them each stage is."""
    if len(layers.kinds) == 1:
        return (PipelineStage(0, "stage 0", ((0, sizes[1]),)),), (0,) * stages
    if stages == 1:
        return (PipelineStage(0, f"the stage of {_in_words(sizes[1])}", _runs(layers, 0, sizes[1], True, True)),), (0,)
    distinct = [PipelineStage(0, f"the first stage ({_in_words(sizes[0])})", _runs(layers, 0, sizes[0], True, False))]
    index, places = dict[tuple[tuple[int, int], ...], int](), [0]
    for number in range(1, stages - 1):
        runs = _runs(layers, sizes[0] + (number - 1) * sizes[1], sizes[1], False, False)
        places.append(index.setdefault(runs, len(distinct)))
        if places[-1] == len(distinct):
            size = sum(times for kind, times in runs if kind < layers.counted)
            distinct.append(PipelineStage(number, f"a stage in the middle ({_in_words(size)})", runs))
        if layers.counted == 1 and not any(0 < place < layers.count for at in layers.at for place in at):
            places = [0, *[1] * (stages - 2)]
            break
    before = sizes[0] + (stages - 2) * sizes[1]
    runs = _runs(layers, before, sizes[2], False, True)
    distinct.append(PipelineStage(stages - 1, f"the last stage ({_in_words(sizes[2])})", runs))
    return tuple(distinct), (*places, len(distinct) - 1)


def _runs(layers: Layers, start: int, size: int, first: bool, last: bool) -> tuple[tuple[int, int], ...]:
    """Kinds of the layers that a stage holds, and how often it has each; one kind alone as often as the plan says."""
    start = min(start, layers.count)
    counted, *inner = layers.between(start, min(start + size, layers.count))
    if layers.counted == 1:
        counted = (0, size)
    return (counted, *inner, *layers.ends(first, last))


def in_order(graph: Graph, plan: Plan, number: int) -> tuple[tuple[int, int], ...]:
    """Layers of a pipeline stage in running order: pairs (kind of layer, number in a row).

    Parameters
    ----------
    graph
        The model.
    plan
        Plan with the number of layers of each stage.
    number
        The stage, from 0 on.

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel
    >>> from dfopt.documents.sections import Section
    >>> kernels = [Kernel(name="a", op="elementwise", m=1, n=1), Kernel(name="b", op="gemm", m=1, n=1, layer="head")]
    >>> sections = (Section(repeat=3), Section(layers=("head",)), Section(repeat=2))
    >>> graph = Graph(name="g", sections=sections, kernels=tuple(kernels))
    >>> in_order(graph, Plan(layers_per_stage=5), 0)
    ((0, 3), (1, 1), (0, 2))
    """
    if not graph.folded:
        return ((number, 1),)
    sizes = plan.stage_layers
    return _in_order(graph.layers.under(plan.stages, sizes, plan.recomputed), plan.stages, sizes, number)


@lru_cache(maxsize=_CACHED)
def _in_order(layers: Layers, stages: int, sizes: tuple[int, int, int], number: int) -> tuple[tuple[int, int], ...]:
    first, most, last = sizes
    if len(layers.kinds) == 1:
        return ((0, most),)
    held = [most] if stages == 1 else [first, *[most] * (stages - 2), last]
    start, size = sum(held[:number]), held[number]
    here = [0] * size if layers.counted == 1 else layers.order[start : start + size].tolist()

    def kinds_at(place: int) -> list[int]:
        return [kind for kind, at in enumerate(layers.at, layers.counted) for _ in range(at.count(place))]

    order = kinds_at(0) if number == 0 else []
    for place, kind in enumerate(here, start):
        order += kinds_at(place) if 0 < place < layers.count else []
        order.append(kind)
    order += kinds_at(layers.count) if number == stages - 1 else []
    return tuple((kind, len(list(row))) for kind, row in groupby(order))


def _in_words(count: int) -> str:
    return f"{count} layer{'' if count == 1 else 's'}"


def in_one_stage(graph: Graph) -> Ints:
    """For every kernel the first kernel that must share its pipeline stage (``stage_with``): shape (kernels,)."""
    first_k, index = np.arange(len(graph.kernels)), graph.index()
    for k, kernel in enumerate(graph.kernels):
        if kernel.stage_with is not None:
            first_k[first_k == first_k[k]] = first_k[index[kernel.stage_with]]
    return first_k


def is_cut(graph: Graph, plan: Plan) -> bool:
    """Whether an unrolled graph is cut into several pipeline stages under a plan."""
    return plan.stages > 1 and not graph.folded
