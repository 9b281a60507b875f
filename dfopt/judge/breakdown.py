"""Where the time of a step goes, from what the judge says of partitions and stages."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from dfopt.arrays import ROUNDING
from dfopt.documents.breakdown import Breakdown, LinkTime
from dfopt.documents.score import PartitionScore, StageScore
from dfopt.judge import network
from dfopt.judge.case import Case, Place
from dfopt.physics import pipeline
from dfopt.physics.communications import Price
from dfopt.physics.pipeline import StepTime

CommunicationSeconds = Mapping[Place, Mapping[str, Sequence[float]]]
"""Seconds of communication of every partition, by the part of a breakdown."""
_WORK: Final = {"forward": "forward_s", "recompute": "recompute_s", "backward": "backward_s", "update": "backward_s"}


def breakdown(
    case: Case,
    partitions: Sequence[PartitionScore],
    stage: StageScore,
    step: StepTime,
    sent: CommunicationSeconds,
    ends: tuple[float, float] | None,
) -> Breakdown:
    """Seconds of every part of a step, for one pipeline stage.

    Parameters
    ----------
    case : Case
        The mapping.
    partitions, stage : sequence of PartitionScore, StageScore
        Figures of all partitions, and of the stage.
    step, sent : StepTime, CommunicationSeconds
        The step, and the seconds of communication by part.
    ends : (float, float), s, optional
        Gradient exchange and optimizer of this stage. None for the slowest stage, whose step has them.
    """
    spent: dict[str, list[float]] = defaultdict(list)
    for partition in partitions:
        times = stage.runs.get(partition.stage, 0) * case.plan.microbatches
        for name, seconds in _of_partition(case, partition, sent[partition.stage, partition.partition]):
            spent[name].append(times * seconds)
    for name, waits in (
        ("offload_forward_s", stage.offload_forward_s),
        ("offload_backward_s", stage.offload_backward_s),
    ):
        spent[name].append(case.plan.microbatches * (waits or 0.0))
    for number, pause in case.pauses.items():
        spent["pause_s"].append(stage.runs.get(number, 0) * case.plan.microbatches * pause)
    if case.plan.two_batch_overlap:  # of what is sent while the other microbatch computes, what it waits for
        alone = case.plan.rounds * (stage.time_s - case.plan.at_once * stage.point_to_point_s)
        inside = math.fsum(s for name, each in spent.items() if name != "exchange_s" for s in each)
        spent["exchange_s"] = [max(alone - inside, 0.0)]
    # what a stage waits for its neighbours beyond its own work, and for a slower one
    own = case.plan.rounds * stage.time_s
    hop = own - math.fsum(seconds for each in spent.values() for seconds in each)
    spent["pipeline_parallel_s"] += [hop if hop > ROUNDING * step.total else 0.0, step.point_to_point]
    behind = step.gradient_reduction + step.optimizer
    updates = step.optimizer if ends is None else min(ends[1], behind)
    added = step.gradient_reduction if ends is None else min(ends[0], behind - updates)
    spent["data_parallel_s"].append(added)
    spent["optimizer_s"].append(updates)
    spent["bubble_s"].append(step.fill)
    if ends is not None:
        spent["bubble_s"] += [max(step.steady - own, 0.0), max(behind - updates - added, 0.0)]
    spent["overhead_s"].append(step.overhead)
    return Breakdown(**{name: math.fsum(each) for name, each in spent.items()})


def link_time(
    case: Case, stage: StageScore, paid: Sequence[network.Paid], price: Price, hop_s: float, reduced_s: float
) -> LinkTime:
    """Seconds of a step in which the links of the slowest stage are busy.

    Parameters
    ----------
    case, stage : Case, StageScore
        The mapping, and the slowest stage.
    paid, price
        Communications, and their prices (:func:`dfopt.judge.network.price_list`).
    hop_s : float, s
        A message to a neighbouring stage.
    reduced_s : float, s
        Gradient exchange of the stage with the longest one.
    """
    spent: dict[str, list[float]] = defaultdict(list)
    on_links = ((payment, price(payment.kind, payment.total, case.plan.shard_dims)) for payment in paid)
    parts = [*_named(case, on_links), *_listed(case, price)]
    for name, number, seconds in parts:
        times = stage.runs.get(case.place(number)[0], 0) * case.plan.microbatches
        spent[name].append(times * seconds)
    once_s = network.point_to_point_per_step_s(case, price)
    spent["pipeline_parallel_s"] += [case.plan.microbatches * hop_s, once_s]
    spent["data_parallel_s"].append(reduced_s)
    return LinkTime(**{name: math.fsum(each) for name, each in spent.items()})


def sent_by_place(case: Case, paid: Sequence[network.Paid], price: Price) -> CommunicationSeconds:
    """Seconds of all network time of partitions, by the part of a breakdown.

    Parameters
    ----------
    case : Case
        The mapping.
    paid, price
        Communications of the tensor-parallel group, and their prices (:func:`dfopt.judge.network.price_list`).
    """
    seconds_by_place: dict[Place, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    on_chip = ((payment, network.between_shards_s(case, payment, price)) for payment in paid)
    for name, number, seconds in (*_named(case, on_chip), *_listed(case, price)):
        seconds_by_place[case.place(number)][name].append(seconds)
    for place in case.members if case.assume.kernel_overhead else ():
        seconds_by_place[place]["overhead_s"].append(case.assume.kernel_overhead or 0.0)
    return seconds_by_place


def _named(case: Case, each: Iterable[tuple[network.Paid, float]]) -> Iterator[tuple[str, int, float]]:
    """(part, kernel, seconds) of communications of the tensor-parallel group."""
    for payment, seconds in each:
        # done once more for the whole backward pass, instead of being kept
        late = payment.late and case.assume.backward_gathers is not None
        yield _or_again(case, payment.kernel, "tensor_parallel_s", late), payment.kernel, seconds


def _listed(case: Case, price: Price) -> Iterator[tuple[str, int, float]]:
    """(part, kernel, seconds) of communications that kernels list, and of gradients added up in every microbatch."""
    for number, seconds in network.own_seconds(case, price):
        yield _or_again(case, number, "exchange_s"), number, seconds
    for number, seconds in network.amortized_seconds(case):
        yield "data_parallel_s", number, seconds


def _or_again(case: Case, number: int, name: str, late: bool = False) -> str:
    again = late or case.kernels[number].kernel.pass_ == "recompute"
    return "recomputed_communication_s" if again else name


def _of_partition(
    case: Case, partition: PartitionScore, sent: Mapping[str, Sequence[float]]
) -> Iterator[tuple[str, float]]:
    """Parts of a partition's time: its work by passes, and what its communication makes it longer."""
    work = pipeline.partition_time(partition.compute_s, partition.memory_s, 0.0, case.assume.overlap, partition.sram_s)
    flop: dict[str, list[float]] = defaultdict(list)
    for number in case.members[partition.stage, partition.partition]:
        placed, kernel = case.kernels[number], case.kernels[number].kernel
        flop["optimizer_s" if kernel.role == "optimizer" else _WORK[kernel.pass_]].append(placed.flop)
    total = math.fsum(figure for each in flop.values() for figure in each)
    talk = math.fsum(map(math.fsum, sent.values()))
    for name, each in flop.items():
        yield name, work * math.fsum(each) / total
    for name, seconds in sent.items():
        if talk > 0:
            yield name, (partition.time_s - work) * math.fsum(seconds) / talk
