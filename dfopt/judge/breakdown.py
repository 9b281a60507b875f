"""Where the time of a step goes, from what the judge says of partitions and stages."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from dfopt.documents.breakdown import Breakdown
from dfopt.documents.graph import Kernel
from dfopt.documents.score import PartitionScore, StageScore
from dfopt.judge import network
from dfopt.judge.case import Case, Place
from dfopt.physics import pipeline
from dfopt.physics.pipeline import StepTime

_WORK: Final = {"forward": "forward_s", "recompute": "recompute_s", "backward": "backward_s", "update": "backward_s"}


def breakdown(
    case: Case,
    partitions: Sequence[PartitionScore],
    slowest: StageScore,
    step: StepTime,
    paid: Sequence[network.Paid],
    price: network.Price,
) -> Breakdown:
    """Seconds of every part of a step."""
    sent = _sent(case, paid, price)
    spent: dict[str, list[float]] = defaultdict(list)
    for one in partitions:
        times = slowest.runs.get(one.stage, 0) * case.plan.microbatches
        for name, seconds in _of_partition(case, one, sent[one.stage, one.partition]):
            spent[name].append(times * seconds)
    for stage, pause in case.pauses.items():
        spent["pause_s"].append(slowest.runs.get(stage, 0) * case.plan.microbatches * pause)
    if case.plan.two_batch_overlap:  # of what is sent while the other microbatch computes, what it waits for
        alone = case.plan.rounds * (slowest.time_s - case.plan.at_once * slowest.point_to_point_s)
        inside = math.fsum(s for name, each in spent.items() if name != "exchange_s" for s in each)
        spent["exchange_s"] = [max(alone - inside, 0.0)]
    # what a stage waits for its neighbours beyond its own work
    hop = step.steady - math.fsum(seconds for each in spent.values() for seconds in each)
    spent["pipeline_parallel_s"] += [hop if hop > 1e-12 * step.total else 0.0, step.point_to_point]
    spent["data_parallel_s"].append(step.gradient_reduction)
    spent["bubble_s"].append(step.fill)
    spent["overhead_s"].append(step.overhead)
    spent["optimizer_s"].append(step.optimizer)
    return Breakdown(**{name: math.fsum(each) for name, each in spent.items()})


def _sent(case: Case, paid: Sequence[network.Paid], price: network.Price) -> dict[Place, dict[str, float]]:
    """Seconds of communication of every partition, by the part of a breakdown."""
    found: dict[Place, dict[str, float]] = defaultdict(lambda: defaultdict(float))

    def note(name: str, kernels: Iterator[tuple[int, float]]) -> None:
        for number, seconds in kernels:
            again = case.kernels[number].kernel.pass_ == "recompute"
            found[case.place(number)]["recomputed_communication_s" if again else name] += seconds

    note("tensor_parallel_s", network.sharding_seconds(case, [one for one in paid if not _again(case, one)], price))
    again = [one for one in paid if _again(case, one)]
    note("recomputed_communication_s", network.sharding_seconds(case, again, price))
    note("exchange_s", network.own_seconds(case, price))
    for number, seconds in network.amortized_seconds(case):
        found[case.place(number)]["data_parallel_s"] += seconds
    for place in case.members if case.assume.kernel_overhead else ():
        found[place]["overhead_s"] += case.assume.kernel_overhead or 0.0
    return found


def _again(case: Case, one: network.Paid) -> bool:
    """Whether it is done once more for the whole backward pass, instead of being kept."""
    return one.late and case.assume.backward_gathers is not None


def _of_partition(case: Case, one: PartitionScore, sent: dict[str, float]) -> Iterator[tuple[str, float]]:
    """Parts of a partition's time: its work by passes, and what its communication makes it longer."""
    work = pipeline.partition_time(one.compute_s, one.memory_s, 0.0, case.assume.overlap, one.sram_s)
    flop: dict[str, list[float]] = defaultdict(list)
    for number in case.members[one.stage, one.partition]:
        placed = case.kernels[number]
        flop[_part_of(placed.kernel)].append(placed.flop)
    whole, talk = math.fsum(one for each in flop.values() for one in each), math.fsum(sent.values())
    for name, each in flop.items():
        yield name, work * math.fsum(each) / whole
    for name, seconds in sent.items():
        if talk > 0:
            yield name, (one.time_s - work) * seconds / talk


def _part_of(kernel: Kernel) -> str:
    return "optimizer_s" if kernel.role == "optimizer" else _WORK[kernel.pass_]
