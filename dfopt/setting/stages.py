"""The pipeline stages of a plan, and what each of them runs.

Kernels are in *stages of the mapping*, each a fusion problem of its own: those of a graph drawn once are its pipeline
stages. A repeated layer is stage 0, whatever pipeline stage a repeat is in, and kernels before the first or after the
last repeat are stages 1 and 2 (:data:`dfopt.documents.graph.PIECES`).
"""

from __future__ import annotations

from dataclasses import dataclass

from dfopt.documents.graph import PIECES, Graph
from dfopt.documents.plan import Plan


@dataclass(frozen=True)
class PipelineStage:
    """One pipeline stage, or several that are alike; ``number`` is the place of the first of them.

    ``runs``: stages of the mapping that it runs, and how often for one microbatch.
    """

    number: int
    name: str
    runs: tuple[tuple[int, int], ...]


def pipeline_stages(graph: Graph, plan: Plan) -> tuple[PipelineStage, ...]:
    """The distinct pipeline stages of a plan.

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel
    >>> kernels = [Kernel(name="a", op="elementwise", m=1, n=1), Kernel(name="b", op="gemm", m=1, n=1, runs="last")]
    >>> graph = Graph(name="g", repeat=16, kernels=tuple(kernels))
    >>> [stage.runs for stage in pipeline_stages(graph, Plan(pp=4, layers_per_stage=5, first_layers=4, last_layers=2))]
    [((0, 4), (1, 1)), ((0, 5),), ((0, 2), (2, 1))]
    """
    if graph.repeat == 1:
        return tuple(PipelineStage(number, f"stage {number}", ((number, 1),)) for number in range(plan.stages))
    first, middle, last = plan.stage_layers
    if not graph.has_pieces:
        return (PipelineStage(0, "stage 0", ((0, middle),)),)
    if plan.stages == 1:
        return (PipelineStage(0, f"the stage of {_layers(middle)}", ((0, middle), (1, 1), (2, 1))),)
    found = [PipelineStage(0, f"the first stage ({_layers(first)})", ((0, first), (1, 1)))]
    if plan.stages > 2:
        found.append(PipelineStage(1, f"a stage in the middle ({_layers(middle)})", ((0, middle),)))
    found.append(PipelineStage(plan.stages - 1, f"the last stage ({_layers(last)})", ((0, last), (2, 1))))
    return tuple(found)


def _layers(count: int) -> str:
    return f"{count} layer{'' if count == 1 else 's'}"


def mapped_stages(graph: Graph, plan: Plan) -> int:
    """Stages of the mapping, some of them without a kernel: distinct fusion problems.

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel
    >>> kernel = Kernel(name="a", op="elementwise", m=1, n=1)
    >>> [mapped_stages(Graph(name="g", repeat=n, kernels=(kernel,)), Plan(pp=2)) for n in (1, 4)]
    [2, 1]
    """
    if graph.repeat == 1:
        return plan.stages
    return len(PIECES) if graph.has_pieces else 1
