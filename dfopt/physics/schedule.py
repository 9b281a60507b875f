"""When each stage of a pipeline works on which microbatch: 1F1B, interleaved 1F1B, GPipe, from a result alone.

Sources: the order of forward and backward passes of 1F1B and its interleaved form is that of Narayanan et al.,
SC'21 (Megatron-LM), section 2.2, figures 3 and 4; GPipe is Huang et al., NeurIPS 2019, figure 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from dfopt.documents.plan import Plan
from dfopt.documents.result import Result
from dfopt.documents.score import PartitionScore, StageScore
from dfopt.errors import PlanError
from dfopt.physics.ops import work_share
from dfopt.physics.pipeline import resolve

Direction = Literal["forward", "backward"]
TERMS = ("compute", "memory", "network", "sram")
ScheduleStep = tuple[Direction, int, int]  # pass, chunk of layers, microbatch


@dataclass(frozen=True)
class ScheduledPass:
    """One pass of one microbatch through one chunk of a stage: start and end in seconds."""

    stage: int
    kind: Direction
    chunk: int
    microbatch: int
    start: float
    end: float


def order(plan: Plan, schedule: str, trains: bool, stage: int, microbatches: int) -> list[ScheduleStep]:
    """Sequence of passes of a stage under ``one_f_one_b`` or ``gpipe``, for ``microbatches`` microbatches.

    Parameters
    ----------
    plan, schedule : Plan, str
        Stages and chunks, and ``one_f_one_b`` or ``gpipe``.
    trains : bool
        Whether there is a backward pass.
    stage, microbatches : int
        Position of the stage, and number of microbatches.

    Examples
    --------
    >>> [f"{kind[0]}{microbatch}" for kind, _, microbatch in order(Plan(pp=2), "one_f_one_b", True, 0, 3)]
    ['f0', 'f1', 'b0', 'f2', 'b1', 'b2']
    """
    deep, chunks = plan.stages, plan.interleave
    ahead: list[ScheduleStep] = []
    back: list[ScheduleStep] = []
    for first in range(0, microbatches, deep):  # a round: one per stage through the first chunk, then the next one
        group = range(first, min(first + deep, microbatches))
        ahead += [("forward", chunk, microbatch) for chunk in range(chunks) for microbatch in group]
        back += [("backward", chunk, microbatch) for chunk in reversed(range(chunks)) for microbatch in group]
    if not trains:
        return ahead
    if schedule == "gpipe":
        return ahead + back
    warm = deep - stage - 1 if chunks == 1 else 2 * (deep - stage - 1) + (chunks - 1) * deep
    warm = min(warm, len(ahead))
    steady = [step for pair in zip(ahead[warm:], back, strict=False) for step in pair]
    return [*ahead[:warm], *steady, *back[len(ahead) - warm :]]


def blocks(
    plan: Plan, schedule: str, times: Sequence[Sequence[tuple[float, float]]], trains: bool, microbatches: int
) -> list[list[ScheduledPass]]:
    """Timeline of every stage: its passes in order, each as early as its predecessors allow.

    The blocks are by stage, in order of time.

    Parameters
    ----------
    plan, schedule, trains : Plan, str, bool
        See :func:`order`.
    times : nested sequence of (float, float), s
        By stage and chunk, the forward and the backward pass of one microbatch.
    microbatches : int
        Number of microbatches.

    Raises
    ------
    PlanError
        If the order cannot be kept: interleaved stages need microbatches that the stages divide.

    Examples
    --------
    >>> made = blocks(Plan(pp=4), "one_f_one_b", [[(1.0, 2.0)]] * 4, True, 8)
    >>> max(block.end for stage in made for block in stage)  # (8 + 4 - 1) x 3 s
    33.0
    """
    todo = [order(plan, schedule, trains, stage, microbatches) for stage in range(plan.stages)]
    ended: dict[tuple[int, Direction, int, int], float] = {}
    done_by_stage: list[list[ScheduledPass]] = [[] for _ in todo]
    left = sum(map(len, todo))
    while left:
        before = left
        for stage, steps in enumerate(todo):
            clock = done_by_stage[stage][-1].end if done_by_stage[stage] else 0.0
            for kind, chunk, microbatch in steps[len(done_by_stage[stage]) :]:
                needs = _needs(plan, stage, kind, chunk)
                if needs is not None and (*needs, microbatch) not in ended:
                    break
                start = max(clock, ended[(*needs, microbatch)] if needs is not None else 0.0)
                clock = start + times[stage][chunk][kind == "backward"]
                ended[stage, kind, chunk, microbatch] = clock
                done_by_stage[stage].append(ScheduledPass(stage, kind, chunk, microbatch, start, clock))
                left -= 1
        if left == before:
            raise PlanError(
                f"schedule: {microbatches} microbatches do not run through {plan.stages} stages of {plan.interleave}"
                f" chunks; the interleaved order needs a multiple of {plan.stages} of them"
            )
    return done_by_stage


def _needs(plan: Plan, stage: int, kind: Direction, chunk: int) -> tuple[int, Direction, int] | None:
    """What must have ended for the same microbatch: stage, pass and chunk; none at the very start."""
    last = plan.stages - 1
    if kind == "forward":
        if stage > 0:
            return stage - 1, "forward", chunk
        return (last, "forward", chunk - 1) if chunk else None
    if stage < last:
        return stage + 1, "backward", chunk
    return (0, "backward", chunk + 1) if chunk < plan.interleave - 1 else (last, "forward", chunk)


def score_of_stage(result: Result, stage: int) -> StageScore:
    """The stage score that stands for a pipeline stage: its own, that of the middle stages, or that of all."""
    score_by_stage = {score.stage: score for score in result.score.stages}
    if stage in score_by_stage:
        return score_by_stage[stage]
    return score_by_stage[1] if 1 in score_by_stage and len(score_by_stage) > 2 else result.score.stages[0]


def trains(result: Result) -> bool:
    """Whether the workload of a result has a backward pass."""
    return any(kernel.pass_ != "forward" for kernel in result.graph.kernels)


def overlap_of(result: Result) -> str:
    """Overlap rule of a result with ``auto`` resolved: ``perfect``, ``none`` or ``compute_memory``."""
    return resolve(result.assumptions, result.system.chip.execution, 1.0).overlap


def terms_of(parts: Iterable[PartitionScore]) -> tuple[str, ...]:
    """Names of the resources for which the partitions have seconds."""
    return TERMS if any(part.sram_s is not None for part in parts) else TERMS[:3]


def busy_intervals(part: PartitionScore, overlap: str) -> dict[str, tuple[float, float]]:
    """Start and end of each resource's work within a partition, s; idle resources are left out.

    Examples
    --------
    >>> part = PartitionScore(
    ...     stage=0, partition=0, kernels=("Q",), tiles=(8,), compute_s=2.0, memory_s=1.0, network_s=0.5, time_s=2.5,
    ...     bound_by="compute", flop=1e12, dram_bytes=1e11, sram_bytes=0.0,
    ... )
    >>> busy_intervals(part, "compute_memory")
    {'compute': (0.0, 2.0), 'memory': (0.0, 1.0), 'network': (2.0, 2.5)}
    """
    terms, intervals, done = part.terms, dict[str, tuple[float, float]](), 0.0
    for term, time in terms.items():
        at = done if overlap == "none" else 0.0
        if overlap == "compute_memory" and term == "network":
            at = max(time for other, time in terms.items() if other != term)
        done = at + time
        if time > 0:
            intervals[term] = at, done
    return intervals


def forward_shares(result: Result) -> dict[tuple[int, int], float]:
    """Share of each partition's time that belongs to the forward pass, by (stage, partition).

    Nearly every partition is of one pass. The time of a mixed partition is split by multiply-adds, ``outer x m x n x
    k`` of each kernel, without masked elements.
    """
    index, kernels = result.graph.index(), result.graph.kernels
    share_by_place = {}
    for part in result.score.partitions:
        work = {True: 0.0, False: 0.0}
        for name in part.kernels:
            kernel = kernels[index[name]]
            work[kernel.pass_ == "forward"] += (
                float(kernel.matrices) * kernel.m * kernel.n * kernel.k * work_share(kernel)
            )
        total = work[True] + work[False]
        share_by_place[part.stage, part.partition] = work[True] / total if total else 1.0
    return share_by_place


@dataclass(frozen=True)
class Content:
    """Work of a stage for one microbatch in one pass of one chunk; times in seconds.

    ``runs``: partitions in order with how often they run after each other (once per layer), each with the share of its
    time that belongs to this pass. ``wait_s``: seconds that the stage waits for its neighbours in addition to that
    work; ``hop_s``: seconds that it sends.
    """

    runs: tuple[tuple[int, tuple[tuple[PartitionScore, float], ...]], ...]
    wait_s: float
    hop_s: float

    @property
    def time_s(self) -> float:
        """Seconds of the whole pass."""
        return self.wait_s + sum(n * sum(part.time_s * share for part, share in parts) for n, parts in self.runs)


def contents(result: Result, stage: int) -> list[tuple[Content, Content]]:
    """Forward and backward pass of each chunk of a pipeline stage.

    Raises
    ------
    PlanError
        If the layers of the stage do not divide into its chunks, but for a smaller first or last one.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.solve(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
    >>> [(ahead, back)] = contents(result, 0)
    >>> abs(ahead.time_s + back.time_s - result.score.stages[0].time_s) < 1e-12
    True
    """
    score, shares, chunks = score_of_stage(result, stage), forward_shares(result), result.plan.interleave
    layers, held = result.graph.layers, score.runs
    counted = [kind for kind in held if not result.graph.folded or kind < layers.counted]
    each = {kind: [held[kind] // chunks] * chunks for kind in counted}
    if result.plan.uneven and len(counted) == 1:
        each = {counted[0]: list(result.plan.chunk_layers(stage))}
    if any(sum(each[kind]) != held[kind] for kind in counted):
        raise PlanError(
            f"schedule: found {score.layers} layers in stage {stage}, expected a multiple of {chunks} chunks"
        )
    pieces: dict[int, tuple[list[tuple[PartitionScore, float]], list[tuple[PartitionScore, float]]]] = {}
    for piece in held:
        partitions = sorted((p for p in result.score.partitions if p.stage == piece), key=lambda part: part.partition)
        mixed = [(part, shares[part.stage, part.partition]) for part in partitions]
        pieces[piece] = [(p, s) for p, s in mixed if s > 0], [(p, 1 - s) for p, s in mixed if s < 1]
    # of the layers a chunk has its part; what runs once is in the first or the last one
    passes_by_chunk = []
    for chunk in range(chunks):
        both = []
        for back in (0, 1):
            runs = [(each[kind][chunk], tuple(pieces[kind][back])) for kind in counted if each[kind][chunk]]
            for kind in held:
                front = kind not in counted and layers.where(kind) == "first"
                if kind not in counted and chunk == (0 if front else chunks - 1):
                    at_start = front != bool(back)  # an embedding comes first, and last on the way back
                    runs.insert(0 if at_start else len(runs), (held[kind], tuple(pieces[kind][back])))
            both.append([run for run in runs if run[1]])
        passes_by_chunk.append(both)
    work = [
        [sum(n * sum(p.time_s * s for p, s in parts) for n, parts in runs) for runs in both] for both in passes_by_chunk
    ]
    total_s = sum(map(sum, work))
    wait, passes = max(score.time_s - total_s, 0.0), 2 if trains(result) else 1

    def share(chunk: int, back: int) -> float:
        if total_s:
            return work[chunk][back] / total_s
        return 0.0 if back >= passes else 1 / (passes * chunks)

    return [
        (
            Content(tuple(ahead), wait * share(chunk, 0), score.point_to_point_s * share(chunk, 0)),
            Content(tuple(behind), wait * share(chunk, 1), score.point_to_point_s * share(chunk, 1)),
        )
        for chunk, (ahead, behind) in enumerate(passes_by_chunk)
    ]


def passes(result: Result) -> list[list[tuple[float, float]]]:
    """Seconds of a microbatch's forward and backward pass by stage and chunk, including messages."""
    passes_by_score: dict[int, list[tuple[float, float]]] = {}
    passes_by_stage = []
    for stage in range(result.plan.stages):
        key = score_of_stage(result, stage).stage
        if key not in passes_by_score:
            passes_by_score[key] = [(ahead.time_s, back.time_s) for ahead, back in contents(result, stage)]
        passes_by_stage.append(passes_by_score[key])
    return passes_by_stage
