"""From the time of one stage to the time of one step: pipeline fill, point-to-point, gradients.

Sources: 1F1B fill from Narayanan et al., SC'21 (Megatron-LM), section 2.2; DFModel's interleaved form and the
once-per-step point-to-point term are what DFModel's program computes (its logs agree to 1e-8).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.sections import Where
from dfopt.errors import PlanError

_FEW_KERNELS: Final = 32
"""Forward kernels of a layer, at most, for which ``token_blocks: auto`` is ``allow``."""


@dataclass(frozen=True)
class StepTime:
    """Parts of one step, s; ``total`` is their sum.

    Attributes
    ----------
    steady, fill : float, s
        Seconds of all microbatches in the slowest pipeline stage, and those of filling and draining the pipeline.
    point_to_point : float, s
        Messages between stages that are charged once per step.
    gradient_reduction, optimizer : float, s
        Exposed exchange of gradients, and the optimizer step.
    overhead : float, s
        Fixed overhead of a step.
    """

    steady: float
    fill: float
    point_to_point: float
    gradient_reduction: float
    overhead: float = 0.0
    optimizer: float = 0.0

    @property
    def total(self) -> float:
        """Seconds per step."""
        behind = self.gradient_reduction + self.optimizer
        return self.steady + self.fill + self.point_to_point + behind + self.overhead


def layers_per_stage(repeat: int, stages: int) -> int:
    """Layers in the largest pipeline stage: ``ceil(repeat / stages)``; 1 for an unrolled graph.

    Examples
    --------
    >>> layers_per_stage(96, 8), layers_per_stage(1, 4)
    (12, 1)
    """
    return 1 if repeat == 1 else -(-repeat // stages)


def fill_factor(plan: Plan, bubble: str) -> float:
    """Pipeline fill as a multiple of one microbatch's stage time.

    ``one_f_one_b``: ``(p - 1) / v`` stage times of ``p`` stages for a plan that is interleaved ``v`` times (Narayanan
    et al., SC'21, section 2.2.2), and of ``stages`` that are equal. ``interleaved`` (DFModel): ``v`` is one less than
    the layers per stage, at least one.

    Examples
    --------
    >>> fill_factor(Plan(pp=8, layers_per_stage=12, microbatches=4), "one_f_one_b")
    7.0
    >>> fill_factor(Plan(pp=8, layers_per_stage=12, microbatches=8, interleave=4), "one_f_one_b")
    1.75
    """
    chunks = max(plan.layers_per_stage - 1, 1) if bubble == "interleaved" else plan.interleave
    return (plan.stages - 1) / chunks


def step_time(
    plan: Plan,
    assumptions: Assumptions,
    stage_s: float,
    *,
    through_s: float | None = None,
    point_to_point_per_step_s: float = 0.0,
    gradient_reduction_s: float = 0.0,
    overhead_s: float = 0.0,
    optimizer_s: float = 0.0,
) -> StepTime:
    """Time of one step from the time of the slowest pipeline stage.

    Parameters
    ----------
    plan, assumptions : Plan, Assumptions
        Microbatches and schedule, and the rule for filling the pipeline (``bubble``).
    stage_s : float, s
        Slowest stage for one microbatch, or two that are taken together, with its messages if these are charged per
        microbatch.
    through_s : float, s, optional
        Time until all microbatches have passed all stages (:mod:`dfopt.physics.fill`); by default as if all stages
        took as long as the slowest.
    point_to_point_per_step_s, gradient_reduction_s, overhead_s, optimizer_s : float, s
        Parts that are charged once per step.

    Examples
    --------
    >>> plan = Plan(pp=4, microbatches=16, layers_per_stage=3)
    >>> step_time(plan, Assumptions(), 1.0).total, step_time(plan, Assumptions(), 1.0, through_s=18.0).fill
    (19.0, 2.0)
    """
    steady = stage_s * plan.rounds
    return StepTime(
        steady=steady,
        fill=stage_s * fill_factor(plan, assumptions.bubble) if through_s is None else max(through_s - steady, 0.0),
        point_to_point=point_to_point_per_step_s,
        gradient_reduction=gradient_reduction_s,
        overhead=overhead_s,
        optimizer=optimizer_s,
    )


def least_step_s(plan: Plan, assumptions: Assumptions, stage_s: float) -> float:
    """Lower bound on the step, s, whose slowest pipeline stage takes ``stage_s`` seconds.

    Parameters
    ----------
    plan, assumptions
        The plan, and resolved assumptions.
    stage_s : float, s
        Time of the slowest stage for one microbatch.

    Examples
    --------
    >>> plan = Plan(pp=4, microbatches=16)
    >>> [least_step_s(plan, Assumptions(bubble=bubble), 1.0) for bubble in ("one_f_one_b", "stages")]
    [19.0, 16.0]
    """
    through_s = stage_s * plan.rounds if assumptions.bubble == "stages" else None
    return step_time(plan, assumptions, stage_s, through_s=through_s).total


def messages(plan: Plan, assumptions: Assumptions, stage: int, *, all_alike: bool = False) -> tuple[int, int]:
    """Messages of a stage for one microbatch: (activations sent forward, gradients sent back).

    There is one for every chunk of its layers. Under ``point_to_point: per_neighbour`` the last chunk of the last stage
    sends nothing forward, and the first chunk of the first stage nothing back.

    Parameters
    ----------
    plan, assumptions
        The plan, and resolved assumptions.
    stage : int
        Number of the stage, from 0.
    all_alike : bool
        Whether the stage stands for all stages. Then none is the first or the last.

    Examples
    --------
    >>> ends = Assumptions(point_to_point="per_neighbour")
    >>> [messages(Plan(pp=4, microbatches=8), ends, stage) for stage in range(4)]
    [(1, 0), (1, 1), (1, 1), (0, 1)]
    """
    chunks, ends = plan.interleave, assumptions.point_to_point == "per_neighbour" and not all_alike
    return chunks - (ends and stage == plan.stages - 1), chunks - (ends and stage == 0)


def with_point_to_point(stage_s: float, hop_s: float, hidden: bool) -> float:
    """Stage time including its messages, s: the longer of both if they are hidden, else the sum.

    Parameters
    ----------
    stage_s : float, s
        Time of a stage without its messages.
    hop_s : float, s
        Time of these messages.
    hidden : bool
        Whether they run at the same time as the stage.

    Examples
    --------
    >>> with_point_to_point(3.0, 1.0, True), with_point_to_point(3.0, 1.0, False)
    (3.0, 4.0)
    """
    return max(stage_s, hop_s) if hidden else stage_s + hop_s


def hides_all(assumptions: Assumptions) -> bool:
    """Whether compute, memory and network all overlap, so that the slowest decides (``overlap: perfect``)."""
    return assumptions.overlap == "perfect"


def partition_time(
    compute_s: float, memory_s: float, network_s: float, overlap: str, sram_s: float | None = None
) -> float:
    """Time of one partition from its terms (DFModel, section V.B.4, and its ``overlap`` setting).

    That of SRAM, where its bandwidth is limited, is like that of memory: all but the network is on the chip.

    Parameters
    ----------
    compute_s, memory_s, network_s : float, s
        Busy time of each resource.
    overlap : str
        Value of the assumption: ``perfect``, ``none`` or ``compute_memory``.
    sram_s : float, s, optional
        Busy time of SRAM, if its bandwidth is limited.

    Examples
    --------
    >>> [partition_time(3.0, 2.0, 1.0, o) for o in ("perfect", "none", "compute_memory")]
    [3.0, 6.0, 4.0]
    >>> [partition_time(3.0, 2.0, 1.0, o, sram_s=4.0) for o in ("perfect", "none", "compute_memory")]
    [4.0, 10.0, 5.0]
    """
    sram_s = sram_s or 0.0
    if overlap == "perfect":
        return max(compute_s, memory_s, network_s, sram_s)
    if overlap == "none":
        return compute_s + memory_s + network_s + sram_s
    if overlap == "compute_memory":
        return max(compute_s, memory_s, sram_s) + network_s
    raise ValueError(f"unknown overlap {overlap!r}; resolve 'auto' first")


def microbatches_in_flight(
    plan: Plan, trains: bool, schedule: str = "one_f_one_b", stage: int = 0, where: Where = "every_layer",
    *, capped: bool = True,
) -> float:  # fmt: skip
    """Number of microbatches whose activations a pipeline stage stores, for its layers or for kernels outside of them.

    ``gpipe``: all of a step. ``one_f_one_b``: in the first stage, the heaviest, as many as the pipeline is deep, and
    one less in each stage after it (Narayanan et al., SC'21, section 2.2.1). Interleaved ``v`` times, ``p`` deep:
    ``p + (p - 1) / v``, since its warm-up is longer (Korthikanti et al., MLSys 2023, section 4.2.3), and two chunks
    less, of ``v``, in each stage after the first. Never more than there are.

    Kernels after the last layer go straight into the backward pass. Those before the first layer wait as long as the
    layers of the first stage. With interleaving, the first chunk has processed two microbatches per stage, less one,
    when the first of them returns.

    Where the first chunk of layers of all, or the last, is smaller (``first_layers``, ``last_layers``), its stage holds
    that much less of as many microbatches as are under way in that chunk when most are in all: in the first one of all,
    in the last none, but where each stage has one only.

    Not ``capped``: as many interleaved chunks as would wait if there were microbatches enough, as Calculon has it.

    Parameters
    ----------
    plan, trains : Plan, bool
        The plan, and whether the graph has a backward pass.
    schedule : str
        ``one_f_one_b`` or ``gpipe``.
    stage : int
        Position of the stage.
    where : str
        Position of the kernels: in every layer, before the first or after the last layer.
    capped : bool
        Whether the count is at most the number of microbatches; not in Calculon.

    Examples
    --------
    >>> deep = Plan(pp=8, microbatches=64, layers_per_stage=4)
    >>> [microbatches_in_flight(deep, True, stage=stage) for stage in (0, 1, 7)]
    [8.0, 7.0, 1.0]
    >>> microbatches_in_flight(deep, True, "gpipe")
    64.0
    >>> twice = deep.model_copy(update={"interleave": 2})
    >>> [microbatches_in_flight(twice, True, where=where) for where in ("every_layer", "first", "last")]
    [11.5, 15.0, 1.0]
    >>> less = twice.model_copy(update={"first_layers": 3, "last_layers": 3})
    >>> [microbatches_in_flight(less, True, stage=stage) for stage in (0, 7)]
    [10.333333333333334, 6.0]
    """
    if not trains:
        return 1.0
    if not capped and plan.interleave > 1 and where == "every_layer":
        chunks = (plan.stages - 1 - 2 * stage) / plan.interleave
        return float(min(plan.stages, plan.microbatches) * (1 + chunks / plan.stages))
    held: float = plan.stages - stage
    if schedule == "gpipe":
        held = plan.microbatches
    elif where == "last":
        held = 1
    elif plan.interleave > 1:
        chunks = (plan.stages - 1 - 2 * stage) / plan.interleave
        held = 2 * plan.stages - 1 if where == "first" else plan.stages + chunks
    held = min(held, plan.microbatches)
    if plan.interleave > 1 and plan.uneven and schedule != "gpipe" and where == "every_layer":
        first, most, last = plan.stage_layers
        if stage == 0 and first < most:
            return (held * most - (most - first) * min(2 * plan.stages - 1, plan.microbatches)) / first
        if stage == plan.stages - 1 and last < most:
            return (held * most - (most - last) * float(plan.microbatches <= plan.stages)) / last
    return float(held)


def resolve(
    assumptions: Assumptions,
    chip_execution: str,
    chip_utilization: float,
    reserve: float = 0.0,
    graph: Graph | None = None,
) -> Assumptions:
    """Assumptions with ``auto`` and ``none`` replaced by what they mean for a chip, and for a graph if one is given.

    Parameters
    ----------
    assumptions : Assumptions
        As a document states them.
    chip_execution, chip_utilization : str, float
        Execution and sustained share of the chip, which replace ``auto`` and ``none``.
    reserve : float
        Share of memory that the chip's software reserves.
    graph : Graph, optional
        The workload, to resolve also the assumptions that depend on it.

    Raises
    ------
    PlanError
        If ``operand_traffic: own`` is combined with kernels that may share a partition.

    Examples
    --------
    >>> found = resolve(Assumptions(), "kernel_by_kernel", 0.8)
    >>> found.execution, found.overlap
    ('library', 'compute_memory')
    """
    changes: dict[str, object] = {}
    if assumptions.execution in ("auto", "chip"):
        library = assumptions.execution == "auto" and chip_execution == "kernel_by_kernel"
        changes["execution"] = "library" if library else chip_execution
    execution = changes.get("execution", assumptions.execution)
    if assumptions.overlap == "auto":
        changes["overlap"] = "perfect" if execution == "dataflow" else "compute_memory"
    if assumptions.token_blocks == "auto" and graph is not None:
        # however much is computed again: a question has one answer for all ways to draw its graph
        ahead = Counter(graph.kind_of(kernel) for kernel in graph.kernels if kernel.pass_ == "forward")
        few = max(ahead.values(), default=0) <= _FEW_KERNELS and (graph.folded or not graph.trains)
        changes["token_blocks"] = "allow" if few else "none"
    if assumptions.operand_traffic is not None and execution != "kernel_by_kernel":
        raise PlanError(
            f"operand_traffic: found {assumptions.operand_traffic} beside execution {execution}, expected"
            " kernel_by_kernel, under which no tensor stays on a chip; leave operand_traffic out, or set"
            " execution=kernel_by_kernel"
        )
    if assumptions.compute_utilization is None and assumptions.compute_model == "fixed":
        changes["compute_utilization"] = chip_utilization
    if assumptions.memory_reserve is None and reserve:
        changes["memory_reserve"] = reserve
    return assumptions.with_(**changes) if changes else assumptions
