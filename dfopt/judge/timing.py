"""From bytes and FLOP to seconds: partitions, stages, the step, and what binds them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.documents.graph import Kernel
from dfopt.documents.metrics import FORMULAS
from dfopt.documents.score import PartitionScore, Score, StageScore
from dfopt.judge import ledger, network, offload, runtimes, traffic, turns, types, window
from dfopt.judge.amounts import amounts_of_stage
from dfopt.judge.breakdown import CommunicationSeconds, breakdown, link_time, sent_by_place
from dfopt.judge.case import TERMS, Case, Place, Placed, TimeTerm, totals
from dfopt.judge.limits import violations
from dfopt.judge.stages import Extra, PartitionSeconds, StageTime, step
from dfopt.physics import chip as chips
from dfopt.physics import ops, pipeline
from dfopt.physics.communications import Price
from dfopt.physics.cost import system_cost
from dfopt.physics.efficiency import bandwidth_share, efficiency_share, memory_rows, row_op
from dfopt.physics.states import Held
from dfopt.physics.work import flop_of_step


def score(case: Case, tiling: traffic.WeightParts, paid: Sequence[network.Paid]) -> Score:
    """The complete score of a mapping, from its weight parts and tensor-parallel communications.

    Parameters
    ----------
    case : Case
        The mapping.
    tiling : WeightParts
        Numbers of weight parts of kernels.
    paid : sequence of Paid
        Tensor-parallel communications, each with the kernel that pays for it.
    """
    price = network.price_list(case)
    sram = traffic.sram_need(case, tiling)
    moved = traffic.by_memory(case, tiling)
    sent = sent_by_place(case, paid, price)
    partitions = _partitions(case, sent, moved, sram)
    amounts = cache(partial(amounts_of_stage, case))
    booked = {rank.number: ledger.entries(case, rank, amounts) for rank in case.ranks}
    held = {number: ledger.books_of(entries) for number, entries in booked.items()}
    hops = network.hops(case, price)
    spent = step(case, _of_passes(case, partitions), _extra(case, partitions, hops, price))
    links, linked, updates = spent.links, max(spent.links.values()), spent.time.optimizer
    recomputed = {rank.number: ledger.least_recomputed(case, rank, amounts) for rank in case.ranks}
    stages = [_stage_score(case, stage, hops, held, recomputed) for stage in spent.stages]
    slowest = stages[spent.stages.index(spent.slowest)]
    ends = {number: (links[number], spent.updates[number]) for number in links if number != slowest.stage}
    parts = {
        stage.stage: breakdown(case, partitions, stage, spent.time, sent, ends.get(stage.stage)) for stage in stages
    }
    graph, system = case.graph, case.system
    samples_per_s, tokens = graph.batch / spent.time.total, graph.evaluation_tokens
    flop = flop_of_step(case.model, case.layers)
    shares = _shares(case, slowest, partitions)
    cost = system_cost(system)
    return Score(
        step_time_s=spent.time.total,
        layer_time_s=slowest.layer_time_s,
        pipeline_fill_s=spent.time.fill,
        point_to_point_s=spent.time.point_to_point,
        gradient_reduction_s=spent.time.gradient_reduction,
        gradient_link_s=None if spent.exposed_s is None else linked,
        optimizer_step_s=None if case.assume.optimizer_step is None else updates,
        flop_per_step=flop,
        utilization=_utilization(case, _once, spent.time.total),
        model_flop_utilization=_utilization(case, _of_model if case.trains else _product, spent.time.total),
        hardware_flop_utilization=_utilization(case, _product, spent.time.total),
        samples_per_s=samples_per_s,
        tokens_per_s=samples_per_s * (tokens.processed / graph.microbatch),
        produced_tokens_per_s=None if tokens.produced is None else samples_per_s * (tokens.produced / graph.microbatch),
        # A stage without kernels can be the slowest only because of what it relays.
        bound_by=max(TERMS, key=lambda term: shares[term]) if max(shares.values()) > 0 else "network",
        compute_share=shares["compute"],
        memory_share=shares["memory"],
        network_share=shares["network"],
        sram_share=None if system.chip.sram.bandwidth is None else shares["sram"],
        stages=tuple(stages),
        partitions=tuple(partitions),
        collectives=network.counts(case, paid),
        price_usd=cost.complete("usd"),
        power_w=(power_w := cost.complete("w")),
        unpriced=cost.incomplete or None,
        # at full power all the time: an upper figure
        energy_per_step_j=None if power_w is None else power_w * spent.time.total,
        breakdown=parts[slowest.stage],
        stage_breakdowns=tuple(parts[stage.stage] for stage in stages),
        link_time=link_time(case, slowest, paid, price, slowest.point_to_point_s, linked),
        link_latency_s=_latency_s(case, slowest, paid, network.without_bytes(price)),
        memory=tuple(ledger.memory(booked[rank.number]) for rank in case.ranks),
        formulas=dict(FORMULAS),
        violations=violations(case, tiling, sram, held),
        notes=(*types.notes(graph, system.chip), *runtimes.refused(case)) or None,
    )


def _latency_s(case: Case, slowest: StageScore, paid: Sequence[network.Paid], price: Price) -> float:
    """Seconds of a step that links take for messages of no bytes, as such a ``price`` says."""
    hop_s = network.hops(case, price)[slowest.stage]
    exchanged = network.exchanges(case, price)
    reduced_s = max(network.reduction_s(rank, exchanged) for rank in case.ranks)
    waits = link_time(case, slowest, paid, price, hop_s, reduced_s)
    return waits.model_copy(update={"data_parallel_s": reduced_s}).total  # what is spread over microbatches has none


def _of_passes(case: Case, partitions: Sequence[PartitionScore]) -> PartitionSeconds:
    """Seconds of partitions by stage of the mapping and whether they have something of the forward pass."""
    seconds: dict[tuple[int, bool], list[float]] = defaultdict(list)
    for partition in partitions:
        begins = any(case.kernels[number].forward for number in case.members[partition.stage, partition.partition])
        seconds[partition.stage, begins].append(partition.time_s)
    return seconds


def _extra(case: Case, partitions: Sequence[PartitionScore], hops: dict[int, float], price: Price) -> Extra:
    """What a step takes beside the work of its partitions."""
    hidden = totals((case.place(k), s) for k, s in network.hidden_seconds(case, price))
    computing = _computing(case, partitions, hidden)
    taken = case.ranks if case.plan.two_batch_overlap else ()
    return Extra(
        hops=hops,
        exchanges=network.exchanges(case, price),
        updates={stage: network.optimizer_s(case, stage) for stage in case.ran},
        per_step_s=network.point_to_point_per_step_s(case, price),
        offload={rank.number: offload.shown_s(case, rank, partitions, hops[rank.number]) for rank in case.ranks},
        turns={rank.number: turns.stage_s(case, rank, computing, hidden) for rank in taken},
        window_s=window.exposed_s(case, partitions, hops, price),
    )


def _partitions(
    case: Case, sent: CommunicationSeconds, moved: dict[str, dict[Place, float]], sram: dict[Place, float]
) -> list[PartitionScore]:
    chip = case.system.chip
    talk = {
        place: math.fsum(s for name, each in parts.items() if name != "overhead_s" for s in each)
        for place, parts in sent.items()
    }
    rate = chip.sram.bandwidth
    accessed = {} if rate is None else traffic.sram_traffic(case)
    scores = []
    for place, numbers in case.members.items():
        members = [case.kernels[number] for number in numbers]
        through = {name: parts.get(place, 0.0) for name, parts in moved.items()}
        flop = math.fsum(placed.flop for placed in members)
        seconds: dict[TimeTerm, float] = {
            "compute": compute_s(case, members) / case.clock(place),
            "memory": math.fsum(count / _bandwidth(case, name, count) for name, count in through.items()),
            "network": talk.get(place, 0.0) + (case.assume.kernel_overhead or 0.0),
        }
        if rate is not None:  # at the clock of compute
            seconds["sram"] = math.fsum(accessed[number] for number in numbers) / rate / case.clock(place)
        scores.append(
            PartitionScore(
                stage=place[0],
                partition=place[1],
                kernels=tuple(placed.kernel.name for placed in members),
                tiles=tuple(placed.tiles for placed in members),
                compute_s=seconds["compute"],
                memory_s=seconds["memory"],
                network_s=seconds["network"],
                sram_s=seconds.get("sram"),
                time_s=pipeline.partition_time(
                    seconds["compute"], seconds["memory"], seconds["network"], case.assume.overlap, seconds.get("sram")
                ),
                bound_by=max(seconds, key=lambda term: seconds[term]),
                flop=flop,
                dram_bytes=math.fsum(through.values()),
                sram_bytes=sram.get(place, 0.0),
                through=through if len(through) > 1 else None,
            )
        )
    return scores


def _utilization(case: Case, counted: Callable[[Kernel], float], step_s: float) -> float:
    """Share of a step that FLOP of its kernels would take, each at the peak of the type that it computes in."""
    by_peak: dict[float, list[float]] = defaultdict(list)
    for placed, kernel in zip(case.kernels, case.model.kernels, strict=True):
        by_peak[placed.peak].append(case.times_of(kernel) * counted(kernel))
    evaluations, chips = case.graph.batch / case.graph.microbatch, case.system.chips
    return math.fsum(math.fsum(part) * evaluations / (step_s * chips * peak) for peak, part in by_peak.items())


def _once(kernel: Kernel) -> float:
    """FLOP of what is not computed a second time."""
    return 0.0 if kernel.pass_ == "recompute" else ops.flop(kernel)


def _product(kernel: Kernel) -> float:
    """FLOP of a matrix product."""
    return 0.0 if kernel.op == "elementwise" else ops.flop(kernel)


def _of_model(kernel: Kernel) -> float:
    """FLOP of a forward pass and, twice as many, of its gradients, whatever runs: Chowdhery et al., appendix B."""
    return 3.0 * _product(kernel) if kernel.pass_ == "forward" else 0.0


def compute_s(case: Case, members: Sequence[Placed]) -> float:
    """Seconds in which a partition computes."""
    if case.assume.compute_model == "cycle":
        # More tiles than the chip has are a broken limit, not an error: the menu then ends at the chip's.
        menus = [(placed.tiles, *latencies(case, placed)) for placed in members]
        return max(float(seconds[tiles <= given].min()) for given, tiles, seconds in menus)
    by_rate: dict[float, list[float]] = defaultdict(list)
    for placed in members:
        by_rate[_share(case, placed) * placed.peak].append(placed.flop)
    # FLOP of one rate are added before the division: a table of one share is the fixed model to the last digit.
    return math.fsum(math.fsum(flop) / rate for rate, flop in by_rate.items())


def _bandwidth(case: Case, memory: str, moved: float) -> float:
    """The rate at which a partition moves its bytes through a memory."""
    chip = case.system.chip
    return chip.tiers[memory].bandwidth * float(bandwidth_share(memory_rows(chip, case.assume), moved, memory))


def _share(case: Case, placed: Placed) -> float:
    """The share of its peak that a kernel sustains: that of all, or by the chip's table."""
    if case.assume.compute_model == "fixed":
        assert case.assume.compute_utilization is not None  # `pipeline.resolve` saw to it
        return case.assume.compute_utilization
    assert case.system.chip.efficiency is not None  # `fit.check` saw to it
    extents = ops.shard_extents(placed.kernel, placed.sharding, case.plan.shards, case.assume.sharding_rules)
    simd, op = placed.kernel.op == "elementwise", row_op(placed.kernel, case.assume)
    return float(efficiency_share(case.system.chip.efficiency, simd, placed.flop, extents, op))


def latencies(case: Case, placed: Placed) -> tuple[Ints, Floats]:
    """Numbers of compute tiles, and seconds of a kernel's shard on each, by the cycle model (DFModel, section V.C).

    A mask is skipped; a type that is twice as fast takes half the cycles.
    """
    kernel, chip, degree = placed.kernel, case.system.chip, case.plan.shards
    assert chip.lanes is not None and chip.stages is not None and chip.frequency is not None  # `fit.check` saw to it
    rows, columns, inner = ops.shard_extents(kernel, placed.sharding, degree, case.assume.sharding_rules)
    steps = case.tile_count if kernel.streamed != "none" else 1
    if kernel.streamed == "n":
        columns = -(-columns // case.tile_count)
    elif kernel.streamed == "k":
        inner = -(-inner // case.tile_count)
    tiles, cycles = chips.cycle_menu(
        rows, columns, inner, lanes=chip.lanes, stages=chip.stages, tiles=chip.tiles, simd=kernel.op == "elementwise"
    )
    spent = steps * cycles * ops.work_share(kernel)
    return tiles, np.asarray(spent * (chip.peak_flops / placed.peak) / chip.frequency, dtype=float)


def _stage_score(
    case: Case, stage: StageTime, hops: dict[int, float], held: dict[int, Held], recomputed: dict[int, int | None]
) -> StageScore:
    rank, away = stage.rank, ledger.offloaded(case)
    return StageScore(
        stage=rank.number,
        layers=stage.layers,
        layer_time_s=stage.layer_s,
        once_time_s=stage.once_s,
        point_to_point_s=hops[rank.number],
        time_s=stage.time_s,
        offload_forward_s=stage.offload[0] if away else None,
        offload_backward_s=stage.offload[1] if away else None,
        holds=tuple(rank.runs),
        times=_unequal_runs(rank.runs, stage.layers),
        recomputed=recomputed[rank.number],
        states=held[rank.number],
    )


def _computing(case: Case, partitions: Sequence[PartitionScore], hidden: dict[Place, float]) -> dict[Place, float]:
    """Seconds of every partition for one microbatch, without what it sends while the other one computes."""
    seconds = {}
    for partition in partitions:
        place = partition.stage, partition.partition
        exposed_s = max(partition.network_s - hidden.get(place, 0.0), 0.0)
        seconds[place] = pipeline.partition_time(
            partition.compute_s, partition.memory_s, exposed_s, case.assume.overlap, partition.sram_s
        )
    return seconds


def _unequal_runs(runs: dict[int, int], layers: int) -> tuple[int, ...] | None:
    """How often a stage runs each kind, unless that is its layers of the first and the others once."""
    times = tuple(runs.values())
    return None if times == (layers, *(1 for _ in times[1:])) else times


def _shares(case: Case, slowest: StageScore, partitions: Sequence[PartitionScore]) -> dict[TimeTerm, float]:
    """Fractions of the time of the slowest stage's kernels spent in partitions bound by each term."""
    partitions_ = [partition for partition in partitions if partition.stage in slowest.holds]
    (times,) = (rank.runs for rank in case.ranks if rank.number == slowest.stage)
    if len(slowest.holds) == 1:  # all its partitions run equally often
        times, total_s = dict.fromkeys(slowest.holds, 1), slowest.layer_time_s or 1.0
    else:
        total_s = slowest.layers * slowest.layer_time_s + slowest.once_time_s or 1.0
    return {
        term: math.fsum(times[p.stage] * p.time_s for p in partitions_ if p.bound_by == term) / total_s
        for term in TERMS
    }
