"""What shows of the bytes that slower memories of a chip move while it trains, see :mod:`dfopt.physics.offload`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dfopt.documents.score import PartitionScore
from dfopt.errors import PlanError
from dfopt.judge import ledger
from dfopt.judge.case import Case, Rank
from dfopt.physics import offload


def shown_s(case: Case, rank: Rank, partitions: Sequence[PartitionScore], hop_s: float) -> tuple[float, float]:
    """Seconds that a pipeline stage waits for slower memories in one microbatch: (forward, backward).

    Parameters
    ----------
    case, rank : Case, Rank
        The mapping, and the pipeline stage.
    partitions : sequence of PartitionScore
        Partitions of the mapping.
    hop_s : float, s
        Messages that the stage sends meanwhile.

    Raises
    ------
    PlanError
        For layers of several kinds under Calculon's rules, which that program does not have.
    """
    if not ledger.offloaded(case):
        return 0.0, 0.0
    beside_s, lasts = 0.0, 0
    if case.assume.offload == "calculon":
        if len(rank.runs) > 1:
            raise PlanError("offload: found calculon, which is about layers that are all of one kind; leave it out")
        if case.plan.stages > 1 and not case.hides_hops:
            beside_s, lasts = hop_s / 2 / case.plan.interleave, case.plan.interleave
    ahead, back = list[float](), list[float]()
    for stage, times in rank.runs.items():
        last = min(lasts, times)
        for count, sent_s in ((times - last, 0.0), (last, beside_s)):
            forward_s, backward_s = of_layer_s(case, stage, partitions, sent_s)
            ahead.append(count * forward_s)
            back.append(count * backward_s)
    return math.fsum(ahead), math.fsum(back)


def of_layer_s(
    case: Case, stage: int, partitions: Sequence[PartitionScore], sent_s: float = 0.0
) -> tuple[float, float]:
    """Seconds that one layer waits for slower memories: (forward, backward), with a message of ``sent_s`` in each.

    Parameters
    ----------
    case, stage : Case, int
        The mapping, and a stage of the mapping.
    partitions : sequence of PartitionScore
        Scores of all partitions.
    sent_s : float, s
        Seconds of the concurrent message of each pass.
    """
    if not ledger.offloaded(case):
        return 0.0, 0.0
    moving = offload.passes_s(ledger.of_layer(case, stage), case.plan, case.system.chip, case.assume)
    shown_s = []
    for begins, moving_s in zip((True, False), moving, strict=True):
        passing = [
            partition for partition in partitions if partition.stage == stage and _begins(case, partition) == begins
        ]
        work_s = math.fsum(partition.time_s for partition in passing)
        memory_s = math.fsum(partition.memory_s for partition in passing if not _again(case, partition))
        shown_s.append(offload.shows_s(moving_s, memory_s, work_s + sent_s))
    return shown_s[0], shown_s[1]


def _begins(case: Case, partition: PartitionScore) -> bool:
    """Whether a partition has something of the forward pass."""
    return any(case.kernels[number].forward for number in case.members[partition.stage, partition.partition])


def _again(case: Case, partition: PartitionScore) -> bool:
    """Whether it only computes again, which keeps the fastest memory free as Calculon has it."""
    members = (case.kernels[number].kernel.pass_ for number in case.members[partition.stage, partition.partition])
    return case.assume.offload == "calculon" and any(pass_ == "recompute" for pass_ in members)
