"""From bytes and FLOP to seconds: partitions, stages, the step, and what binds them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence

from dfopt.documents.graph import Kernel
from dfopt.documents.metrics import FORMULAS
from dfopt.documents.score import PartitionScore, Score, StageScore
from dfopt.judge import ledger, network, offload, overlap, runtimes, traffic, turns, types, window
from dfopt.judge.breakdown import Sent, breakdown, link_time, sent_by_place
from dfopt.judge.case import TERMS, Case, Place, Placed, Rank, Term, totals
from dfopt.judge.limits import violations
from dfopt.physics import chip as chips
from dfopt.physics import fill, ops, pipeline
from dfopt.physics.cost import system_cost
from dfopt.physics.efficiency import bandwidth_share, efficiency_share, memory_rows, row_op
from dfopt.physics.states import Held
from dfopt.physics.work import flop_of_step


def score(case: Case, tiling: traffic.WeightParts, paid: Sequence[network.Paid]) -> Score:
    """All figures of a mapping, given its weight parts and what its tensor-parallel group communicates."""
    price = network.price_list(case)
    sram = traffic.sram_need(case, tiling)
    moved = traffic.by_memory(case, tiling)
    sent = sent_by_place(case, paid, price)
    partitions = _partitions(case, sent, moved, sram)
    booked = {rank.number: ledger.entries(case, rank) for rank in case.ranks}
    held = {number: ledger.books_of(entries) for number, entries in booked.items()}
    hidden = totals((case.place(k), s) for k, s in network.hidden_seconds(case, price))
    hops = network.hops(case, price)
    stages = _stages(case, partitions, hops, held, hidden)
    # Stages that wait for the same hop are equally slow; the one with more to do says what binds.
    slowest = max(stages, key=lambda one: (one.time_s, one.layers * one.layer_time_s + one.once_time_s))
    links = {rank.number: network.gradient_reduction_s(case, rank, price) for rank in case.ranks}
    linked = max(links.values())
    exposed = overlap.exposed_s(case, stages, partitions, price)
    shown = window.exposed_s(case, partitions, hops, price)
    adam = {rank.number: _updates_s(case, rank) for rank in case.ranks}
    if shown is not None:
        exposed = shown + max(adam.values())
    # what the step waits for at its end: of it the optimizer's step has what it takes in the slowest stage
    behind = max(links[number] + adam[number] for number in links) if exposed is None else exposed
    updates = min(behind, adam[slowest.stage])
    step = pipeline.step_time(
        case.plan,
        case.assume,
        slowest.time_s,
        through_s=through_s(case, [one.time_s for one in stages]),
        point_to_point_per_step_s=network.point_to_point_per_step_s(case, price),
        gradient_reduction_s=behind - updates,
        optimizer_s=updates,
        overhead_s=case.assume.step_overhead or 0.0,
    )
    ends = {number: (links[number], adam[number]) for number in links if number != slowest.stage}
    parts = {one.stage: breakdown(case, partitions, one, step, sent, ends.get(one.stage)) for one in stages}
    graph, system = case.graph, case.system
    samples_per_s, tokens = graph.batch / step.total, graph.evaluation_tokens
    flop = flop_of_step(case.model, case.layers)
    shares = _shares(case, slowest, partitions)
    cost = system_cost(system)
    return Score(
        step_time_s=step.total,
        layer_time_s=slowest.layer_time_s,
        pipeline_fill_s=step.fill,
        point_to_point_s=step.point_to_point,
        gradient_reduction_s=step.gradient_reduction,
        gradient_link_s=None if exposed is None else linked,
        optimizer_step_s=None if case.assume.optimizer_step is None else updates,
        flop_per_step=flop,
        utilization=_utilization(case, _once, step.total),
        model_flop_utilization=_utilization(case, _of_model if case.trains else _product, step.total),
        hardware_flop_utilization=_utilization(case, _product, step.total),
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
        energy_per_step_j=None if power_w is None else power_w * step.total,
        breakdown=parts[slowest.stage],
        stage_breakdowns=tuple(parts[one.stage] for one in stages),
        link_time=link_time(case, slowest, paid, price, slowest.point_to_point_s, linked),
        link_latency_s=_latency_s(case, slowest, paid, network.without_bytes(price)),
        memory=tuple(ledger.memory(booked[rank.number]) for rank in case.ranks),
        formulas=dict(FORMULAS),
        violations=violations(case, tiling, sram, held),
        notes=(*types.notes(graph, system.chip), *runtimes.refused(case)) or None,
    )


def through_s(case: Case, seconds: Sequence[float]) -> float | None:
    """Seconds in which all microbatches are through stages of such times; none where the slowest stands for all."""
    if case.assume.bubble != "stages":
        return None
    turns = case.trains and case.assume.schedule == "one_f_one_b"
    places, often = case.line, (case.plan.rounds, case.plan.interleave)
    return float(fill.chains([seconds[place] for place in places], [1] * len(places), *often, turns=turns).max())


def _latency_s(case: Case, slowest: StageScore, paid: Sequence[network.Paid], price: network.Price) -> float:
    """Seconds of a step that links take for messages of no bytes, as such a ``price`` says."""
    hop_s = network.hops(case, price)[slowest.stage]
    reduced_s = max(network.gradient_reduction_s(case, rank, price) for rank in case.ranks)
    waits = link_time(case, slowest, paid, price, hop_s, reduced_s)
    return waits.model_copy(update={"data_parallel_s": reduced_s}).total  # what is spread over microbatches has none


def _updates_s(case: Case, rank: Rank) -> float:
    """Seconds of the optimizer's step over what a pipeline stage has."""
    return math.fsum(times * network.optimizer_s(case, stage) for stage, times in rank.runs.items())


def _partitions(
    case: Case, sent: Sent, moved: dict[str, dict[Place, float]], sram: dict[Place, float]
) -> list[PartitionScore]:
    chip = case.system.chip
    talk = {
        place: math.fsum(s for name, each in parts.items() if name != "overhead_s" for s in each)
        for place, parts in sent.items()
    }
    rate = chip.sram.bandwidth
    accessed = {} if rate is None else traffic.sram_traffic(case)
    found = []
    for place, numbers in case.members.items():
        members = [case.kernels[number] for number in numbers]
        through = {name: parts.get(place, 0.0) for name, parts in moved.items()}
        flop = math.fsum(one.flop for one in members)
        seconds: dict[Term, float] = {
            "compute": _compute_s(case, members) / case.clock(place),
            "memory": math.fsum(count / _bandwidth(case, name, count) for name, count in through.items()),
            "network": talk.get(place, 0.0) + (case.assume.kernel_overhead or 0.0),
        }
        if rate is not None:  # at the clock of compute
            seconds["sram"] = math.fsum(accessed[number] for number in numbers) / rate / case.clock(place)
        found.append(
            PartitionScore(
                stage=place[0],
                partition=place[1],
                kernels=tuple(one.kernel.name for one in members),
                tiles=tuple(one.tiles for one in members),
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
    return found


def _utilization(case: Case, counted: Callable[[Kernel], float], step_s: float) -> float:
    """Share of a step that FLOP of its kernels would take, each at the peak of the type that it computes in."""
    by_peak: dict[float, list[float]] = defaultdict(list)
    for one, kernel in zip(case.kernels, case.model.kernels, strict=True):
        by_peak[one.peak].append(case.times_of(kernel) * counted(kernel))
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


def _compute_s(case: Case, members: Sequence[Placed]) -> float:
    """Compute time of a partition; under the cycle model a type that is twice as fast takes half the cycles."""
    chip = case.system.chip
    if case.assume.compute_model == "cycle":
        assert chip.frequency is not None  # `fit.check` saw to it
        return max(_cycles(case, one) * (chip.peak_flops / one.peak) for one in members) / chip.frequency
    by_rate: dict[float, list[float]] = defaultdict(list)
    for one in members:
        by_rate[_share(case, one) * one.peak].append(one.flop)
    # FLOP of one rate are added before the division: a table of one share is the fixed model to the last digit.
    return math.fsum(math.fsum(flop) / rate for rate, flop in by_rate.items())


def _bandwidth(case: Case, memory: str, moved: float) -> float:
    """The rate at which a partition moves its bytes through a memory."""
    chip = case.system.chip
    return chip.tiers[memory].bandwidth * float(bandwidth_share(memory_rows(chip, case.assume), moved, memory))


def _share(case: Case, one: Placed) -> float:
    """The share of its peak that a kernel sustains: that of all, or by the chip's table."""
    if case.assume.compute_model == "fixed":
        assert case.assume.compute_utilization is not None  # `pipeline.resolve` saw to it
        return case.assume.compute_utilization
    assert case.system.chip.efficiency is not None  # `fit.check` saw to it
    extents = ops.shard_extents(one.kernel, one.sharding, case.plan.shards, case.assume.sharding_rules)
    simd, op = one.kernel.op == "elementwise", row_op(one.kernel, case.assume)
    return float(efficiency_share(case.system.chip.efficiency, simd, one.flop, extents, op))


def _cycles(case: Case, one: Placed) -> float:
    """Cycles of a kernel's shard, all its tile steps, on the compute tiles that it was given; a mask is skipped."""
    kernel, chip, degree = one.kernel, case.system.chip, case.plan.shards
    assert chip.lanes is not None and chip.stages is not None  # `fit.check` saw to it
    rows, columns, inner = ops.shard_extents(kernel, one.sharding, degree, case.assume.sharding_rules)
    steps = case.tile_count if kernel.streamed != "none" else 1
    if kernel.streamed == "n":
        columns = -(-columns // case.tile_count)
    elif kernel.streamed == "k":
        inner = -(-inner // case.tile_count)
    tiles, cycles = chips.cycle_menu(
        rows, columns, inner, lanes=chip.lanes, stages=chip.stages, tiles=chip.tiles, simd=kernel.op == "elementwise"
    )
    # More tiles than the chip has are a broken limit, not an error: the menu then ends at the chip's.
    return steps * int(cycles[tiles <= one.tiles].min()) * ops.work_share(kernel)


def _stages(
    case: Case,
    partitions: Sequence[PartitionScore],
    hops: dict[int, float],
    held: dict[int, Held],
    hidden: dict[Place, float],
) -> list[StageScore]:
    waits = (((stage, 0), wait) for stage, wait in case.pauses.items())
    layer_s = totals([*(((one.stage, 0), one.time_s) for one in partitions), *waits])
    found = []
    for rank in case.ranks:
        counted = case.graph.layers.counted if case.graph.folded else case.plan.stages
        mine = {stage: times for stage, times in rank.runs.items() if stage < counted}
        layers = sum(mine.values())
        layer = layer_s.get((next(iter(mine)), 0), 0.0)
        if len(mine) > 1:  # of several kinds their mean
            layer = math.fsum(times * layer_s.get((stage, 0), 0.0) for stage, times in mine.items()) / layers
        ends = (times * layer_s.get((stage, 0), 0.0) for stage, times in rank.runs.items() if stage >= counted)
        once = math.fsum(ends)
        shown = offload.shown_s(case, rank, partitions, hops[rank.number])
        whole = math.fsum((layers * layer + once, *shown))
        if case.plan.two_batch_overlap:
            whole = turns.stage_s(case, rank, _computing(case, partitions, hidden), hidden)
        if case.plan.stages > 1:
            sent = case.plan.at_once * hops[rank.number]
            whole = pipeline.with_point_to_point(whole, sent, case.hides_hops)
        found.append(
            StageScore(
                stage=rank.number,
                layers=layers,
                layer_time_s=layer,
                once_time_s=once,
                point_to_point_s=hops[rank.number],
                time_s=whole,
                offload_forward_s=shown[0] if ledger.offloaded(case) else None,
                offload_backward_s=shown[1] if ledger.offloaded(case) else None,
                holds=tuple(rank.runs),
                times=_said(rank.runs, layers),
                recomputed=ledger.least_recomputed(case, rank),
                states=held[rank.number],
            )
        )
    return found


def _computing(case: Case, partitions: Sequence[PartitionScore], hidden: dict[Place, float]) -> dict[Place, float]:
    """Seconds of every partition for one microbatch, without what it sends while the other one computes."""
    found = {}
    for one in partitions:
        place = one.stage, one.partition
        beside = max(one.network_s - hidden.get(place, 0.0), 0.0)
        found[place] = pipeline.partition_time(one.compute_s, one.memory_s, beside, case.assume.overlap, one.sram_s)
    return found


def _said(runs: dict[int, int], layers: int) -> tuple[int, ...] | None:
    """How often a stage runs each kind, unless that is its layers of the first and the others once."""
    times = tuple(runs.values())
    return None if times == (layers, *(1 for _ in times[1:])) else times


def _shares(case: Case, slowest: StageScore, partitions: Sequence[PartitionScore]) -> dict[Term, float]:
    """Fractions of the time of the slowest stage's kernels spent in partitions bound by each term."""
    mine = [one for one in partitions if one.stage in slowest.holds]
    (times,) = (rank.runs for rank in case.ranks if rank.number == slowest.stage)
    if len(slowest.holds) == 1:  # all its partitions run equally often
        times, whole = dict.fromkeys(slowest.holds, 1), slowest.layer_time_s or 1.0
    else:
        whole = slowest.layers * slowest.layer_time_s + slowest.once_time_s or 1.0
    return {term: math.fsum(times[p.stage] * p.time_s for p in mine if p.bound_by == term) / whole for term in TERMS}
