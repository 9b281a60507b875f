"""A mapping on a real stack of dies: times with the memory's effective bandwidth, energy, heat, throttling.

The chips of a distinct pipeline stage are alike. Each spends the energy of one microbatch in the time of the slowest
stage, plus what flows as time goes by; in that steady state it must keep its limits. If it does not, all chips take
the highest frequency level at which every one does. Temperature limits are checked at the hottest cell of the thermal
grid. A step then takes what `dfopt.judge.timing` would say of these times.

While a chip waits (for a slower stage, a message, in a pause, in the fill of the pipeline) it takes the lowest level,
and all that flows as time goes by is paid for the whole step. Memory beside the stack is taken to be as warm as the
air, and heats nothing but the interface on the logic die; its energy counts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from dfopt.arrays import Floats
from dfopt.documents.physical_score import ChipHeat, PartitionPhysics, PhysicalScore
from dfopt.documents.score import Score
from dfopt.documents.stack import Stack
from dfopt.judge import activity, network, streams, traffic
from dfopt.judge.case import Case, Place, TimeTerm
from dfopt.judge.limits import SLACK
from dfopt.judge.stages import through_s
from dfopt.physics import pipeline
from dfopt.technology.coupling import ChipWork, StepWork, ThermalState, solve
from dfopt.technology.power import COMPONENTS, Activity, PowerModel
from dfopt.technology.stack_models import heat_of, power_of
from dfopt.technology.streams import ByPattern, DramStreams, Flow, Served

_ZERO_C = 273.15


@dataclass(frozen=True)
class _Setting:
    """What does not change while times and temperatures are sought; lists follow ``case.members``."""

    case: Case
    score: Score
    stack: Stack
    model: PowerModel
    memory: DramStreams
    flows: tuple[ByPattern, ...]
    served: dict[float, tuple[list[Served], Floats]]
    activity: Activity
    places: tuple[Place, ...]
    hop_bytes: dict[int, float]

    def serve(self, refresh_rate: float) -> tuple[list[Served], Floats]:
        """What the memory gives to each partition, and the seconds of that as an array."""
        if refresh_rate not in self.served:
            served = [self.memory.serve(each, refresh_rate) for each in self.flows]
            self.served[refresh_rate] = served, self.model.vector(service.seconds for service in served)
        return self.served[refresh_rate]


def physical_score(
    case: Case,
    score: Score,
    tiling: traffic.WeightParts,
    paid: Sequence[network.Paid],
    stack: Stack,
    throttle: bool = True,
) -> PhysicalScore:
    """Power, temperature and clocks of a mapping on a stack of dies, from the score without heat.

    Without ``throttle`` the chip stays at the nominal frequency, and exceeded limits are only reported.

    Parameters
    ----------
    case, score : Case, Score
        The mapping, and its score without heat.
    tiling, paid : WeightParts, sequence of Paid
        Weight parts, and tensor-parallel communications.
    stack : Stack
        The dies.
    throttle : bool
        Whether the clock is lowered until the limits hold.
    """
    here = _setting(case, score, tiling, paid, stack)
    work = _work(here)
    state, rounds = solve(work, here.model, heat_of(stack), throttle)
    step = pipeline.step_time(
        case.plan,
        case.assume,
        state.interval_s,
        through_s=through_s(case, state.stage_s.tolist()),
        point_to_point_per_step_s=score.point_to_point_s,
        gradient_reduction_s=score.gradient_reduction_s,
        overhead_s=case.assume.step_overhead or 0.0,
        optimizer_s=score.optimizer_step_s or 0.0,
    ).total
    split = {name: joules.tolist() for name, joules in here.model.dynamic_split(here.activity, state.voltages).items()}
    energy = _energy(here, state, split, step)
    graph = case.graph
    total_j, moved = math.fsum(energy.values()), [part.dram_bytes for part in score.partitions]
    partitions = tuple(_partitions(here, state, split))
    waiting = math.fsum(part.memory_s for part in partitions)
    chips = tuple(_chips(here, state))
    broken, violations = _violations(here, state, throttle)
    dram = [die.max_c for chip in chips for die in chip.dies if die.kind == "dram"]
    return PhysicalScore(
        stack=stack.name,
        step_time_s=step,
        modelled_step_time_s=score.step_time_s,
        slowdown=step / score.step_time_s,
        interval_s=state.interval_s,
        frequency=state.level.frequency,
        throttled=state.level.frequency < 1.0,
        iterations=rounds,
        loop_gain=state.gain,
        energy_per_step_j=total_j,
        energy_per_token_j=total_j / (graph.batch * (graph.evaluation_tokens.processed / graph.microbatch)),
        energy_j=energy,
        power_w=max(chip.power_w for chip in chips),
        logic_max_c=max(die.max_c for chip in chips for die in chip.dies if die.kind == "logic"),
        dram_max_c=max(dram) if dram else None,
        dram_bandwidth_b_per_s=math.fsum(moved) / waiting if waiting > 0 else None,
        refresh_rate=max(state.refresh_rates),
        partitions=partitions,
        chips=chips,
        runaway=state.runaway,
        limits_broken=tuple(broken),
        violations=tuple(violations),
        notes=_unconfirmed(here, state),
    )


def _unconfirmed(here: _Setting, state: ThermalState) -> tuple[str, ...] | None:
    """That the formula of the DRAM's bandwidth does not hold for some partitions, if it does not, and why."""
    rate = max(state.refresh_rates)
    why = [here.memory.out_of_range(flows, rate) for flows in here.flows]
    reasons = "; ".join(dict.fromkeys(text for some in why for text in some))
    if not reasons:
        return None
    return (
        f"the formula of the DRAM's bandwidth is out of its range in {sum(map(bool, why))} of {len(why)} partitions:"
        f" {reasons}. Beside simulators it is up to 55 % off for mixes, and more for few banks and short queues",
    )


def _setting(
    case: Case, score: Score, tiling: traffic.WeightParts, paid: Sequence[network.Paid], stack: Stack
) -> _Setting:
    moved: dict[Place, list[Flow]] = defaultdict(list)
    for place, flow in streams.flows(case, tiling):
        moved[place].append(flow)
    memory, places = DramStreams(stack), tuple(case.members)
    flows = {place: memory.by_pattern(moved[place]) for place in places}
    commands = {place: those.commands for place, those in flows.items()}
    model = power_of(stack)
    return _Setting(
        case=case,
        score=score,
        stack=stack,
        model=model,
        memory=memory,
        flows=tuple(flows.values()),
        served={},
        activity=model.activity(activity.blocks(case, paid, commands)),
        places=places,
        hop_bytes=network.hops(case, network.sent_bytes(case)),
    )


def _work(here: _Setting) -> StepWork:
    case, model = here.case, here.model
    hop_s = {stage.stage: stage.point_to_point_s for stage in here.score.stages}
    chips = []
    for rank in case.ranks:
        waits = math.fsum(times * case.pauses.get(stage, 0.0) for stage, times in rank.runs.items())
        chips.append(
            ChipWork(
                runs=model.vector(float(rank.runs.get(stage, 0)) for stage, _ in here.places),
                once_j=here.hop_bytes[rank.number] * here.stack.logic.network * model.io_tiles,
                pause_s=waits,
                hop_s=hop_s[rank.number] if case.plan.stages > 1 else None,
            )
        )
    clocks = [case.clock(place) for place in here.places]
    scores = here.score.partitions
    return StepWork(
        compute_s=model.vector(part.compute_s * clock for part, clock in zip(scores, clocks, strict=True)),
        network_s=model.vector(part.network_s for part in scores),
        sram_s=model.vector((part.sram_s or 0.0) * clock for part, clock in zip(scores, clocks, strict=True)),
        clocks=model.vector(clocks),
        memory_s=lambda rate: here.serve(rate)[1],
        logic_j=model.logic_dynamic(here.activity),
        outward_j=model.outward_dynamic(here.activity),
        overlap=case.assume.overlap,
        hides_hops=case.hides_hops,
        chips=tuple(chips),
    )


def _energy(here: _Setting, state: ThermalState, split: dict[str, list[float]], step_s: float) -> dict[str, float]:
    """Joules of a step by component, all chips."""
    case, plan = here.case, here.case.plan
    group = plan.shards * plan.members * plan.copies
    evaluations = plan.shards * plan.members * case.graph.batch / case.graph.microbatch
    times, folded = case.layers.times, case.graph.folded
    repeats = [times(stage) if folded else 1 for stage, _ in here.places]
    parts: dict[str, list[float]] = {name: [] for name in COMPONENTS}
    for name, joules in split.items():
        each = zip(repeats, joules, strict=True)
        parts[name].append(evaluations * math.fsum(times * energy_j for times, energy_j in each))
    sent = network.sent_bytes(case)
    bytes_sent = [plan.copies * network.point_to_point_per_step_s(case, sent)]
    exchanged = network.exchanges(case, sent)
    for c, rank in enumerate(case.ranks):
        reduced = network.reduction_s(rank, exchanged)
        bytes_sent.append(rank.alike * group * (plan.microbatches * here.hop_bytes[rank.number] + reduced))
        constant = here.model.constant_split(
            state.tiles_k[c], state.refresh_rates[c], float(state.idle_share[c]), float(state.leak_voltage[c])
        )
        for name, watts in constant.items():
            parts[name].append(rank.alike * group * watts * step_s)
    parts["network"].append(here.stack.logic.network * math.fsum(bytes_sent))
    return {name: math.fsum(values) for name, values in parts.items()}


def _partitions(here: _Setting, state: ThermalState, split: dict[str, list[float]]) -> Iterator[PartitionPhysics]:
    runs = [rank.runs for rank in here.case.ranks]
    for p, ((stage, partition), part) in enumerate(zip(here.places, here.score.partitions, strict=True)):
        chips = [c for c in range(len(runs)) if runs[c].get(stage)] or [0]
        slowest = max(chips, key=lambda c: state.partition_s[c, p])
        clock = here.case.clock((stage, partition))
        frequency = min(clock, state.level.frequency)
        served = here.serve(state.refresh_rates[slowest])[0][p]
        seconds: dict[TimeTerm, float] = {
            "compute": part.compute_s * clock / frequency,
            "memory": float(state.memory_s[slowest, p]),
            "network": part.network_s,
        }
        if part.sram_s is not None:
            seconds["sram"] = part.sram_s * clock / frequency
        commands = here.flows[p].commands
        bursts = commands.reads + commands.writes
        yield PartitionPhysics(
            stage=stage,
            partition=partition,
            frequency=frequency,
            compute_s=seconds["compute"],
            memory_s=seconds["memory"],
            network_s=seconds["network"],
            sram_s=seconds.get("sram"),
            time_s=float(state.partition_s[slowest, p]),
            bound_by=max(seconds, key=lambda term: seconds[term]),
            dram_bandwidth_b_per_s=served.bandwidth,
            dram_binding=served.binding,
            bursts_per_activate=commands.bursts_per_activate,
            read_share=commands.reads / bursts if bursts else 1.0,
            energy_j=math.fsum(joules[p] for joules in split.values()),
        )


def _chips(here: _Setting, state: ThermalState) -> Iterator[ChipHeat]:
    stack, heat = here.stack, heat_of(here.stack)
    kinds = {die.name: die.kind for die in stack.layers}
    for c, rank in enumerate(here.case.ranks):
        watts = state.tiles_w[c].tolist()
        kelvin = state.tiles_k[c].tolist()
        # Hundreds of small parts: pydantic makes them faster of plain data than by a call for each.
        tiles = [
            {"die": die, "tile": tile.name, "power_w": power, "mean_c": mean - _ZERO_C}
            for (die, tile), power, mean in zip(stack.tiles, watts, kelvin, strict=True)
        ]
        power = {die: math.fsum(each["power_w"] for each in of) for die, of in groupby(tiles, lambda each: each["die"])}
        dies = [
            {"die": die, "kind": kinds[die], "power_w": power[die], "max_c": most - _ZERO_C, "mean_c": mean - _ZERO_C}
            for die, most, mean in zip(
                heat.dies, state.die_max_k[c].tolist(), state.die_mean_k[c].tolist(), strict=True
            )
        ]
        yield ChipHeat.model_validate(
            {
                "stage": rank.number,
                "stage_time_s": float(state.stage_s[c]),
                "power_w": math.fsum(watts),
                "refresh_rate": state.refresh_rates[c],
                "refresh_kept": state.refresh_kept[c],
                "dies": dies,
                "tiles": tiles,
            }
        )


_NAMES = {"logic": "the logic die", "dram": "the hottest DRAM die", "power": "the stack"}


def _violations(here: _Setting, state: ThermalState, throttle: bool) -> tuple[Sequence[str], Sequence[str]]:
    """Kinds of the limits that are broken, and a sentence on each."""
    stack = here.stack
    share = f"{100 * state.level.frequency:.4g} % of the nominal frequency"
    even = f" even at the lowest level ({share})" if throttle and len(stack.levels) > 1 else f" at {share}"
    kinds, sentences = [], []
    if state.runaway:
        kinds.append("runaway")
        hot = float(state.tiles_k.max()) - _ZERO_C
        sentences.append(
            f"thermal runaway{even}: past {hot:.0f} degC leakage grows faster than the package takes the heat away"
            f" (loop gain {state.gain:.3g})"
        )
    elif not state.converged:
        kinds.append("convergence")
        sentences.append(f"temperatures do not settle{even}: the last change was {state.change_k:.3g} K")
    for broken in state.broken:
        kinds.append(broken.what)
        if broken.what == "power":
            sentences.append(f"the stack takes {broken.value:.4g} W{even}, the limit is {broken.limit:.4g} W")
        else:
            celsius, limit = broken.value - _ZERO_C, broken.limit - _ZERO_C
            sentences.append(f"{_NAMES[broken.what]} reaches {celsius:.2f} degC{even}, the limit is {limit:.4g} degC")
    fullest = max(here.score.stages, key=lambda stage: stage.dram_bytes)
    if fullest.dram_bytes > stack.dram.capacity * (1 + SLACK):
        kinds.append("capacity")
        sentences.append(
            f"stage {fullest.stage} needs {fullest.dram_bytes / 1e9:.4g} GB of DRAM per chip,"
            f" the stack has {stack.dram.capacity / 1e9:.4g} GB"
        )
    return kinds, sentences
