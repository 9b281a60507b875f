"""The least that chips have to hold when no plan fits, by state, and what would make it less."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import itemgetter

from dfopt.bnb import Clock, OutOfTime
from dfopt.documents.plan import Plan
from dfopt.errors import Infeasible
from dfopt.interrupts import interruptible
from dfopt.physics.states import LABELS
from dfopt.regions.lattices import KnownArcs
from dfopt.regions.region import listed
from dfopt.regions.space import MappingSpace
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.stages import PipelineStage, is_cut
from dfopt.solving.options import Options
from dfopt.solving.work import OPENED
from dfopt.terms.bounds.plan_arrays import bounded_stages
from dfopt.terms.rules.held import waits
from dfopt.terms.step.ledger import State, kept, sharded_states, usable_bytes, usable_words

_PART = 0.5  # of the work that is left
_ROUNDED = 1 - 1e-9  # of a share: sums of arrays are rounded in another way
_WAITING = "activations between partitions"


@dataclass(frozen=True)
class LeastHeld:
    """Least bytes by state that any mapping stores in a memory of a chip, for the plan that needs least of it.

    Every state is the least over all shardings; tensors that wait between partitions are also the least over all
    partitions. No mapping stores less than the sum. The best one may store more, if no single sharding has the least of
    each state.

    Examples
    --------
    >>> held = {"weights": 60e9, "saved activations": 30e9}
    >>> print(LeastHeld(Plan(dp=4), "stage 0", "dram", 80e9, held, {"weights": 60e9}, 30e9))
    least DRAM: TP1 PP1 DP4 holds at least 90 GB per chip in stage 0, whatever its sharding and partitions
    (weights 60 GB, saved activations 30 GB); the chip has 80 GB: short by 10 GB
    what would help:
      states that copies share out (--zero; 4 copies each hold whole: weights 60 GB): at most 45 GB less
      saved activations that are computed again (--recompute): at most 30 GB less
    """

    plan: Plan
    stage: str  # the fullest pipeline stage
    tier: str
    capacity: float
    states: Mapping[str, float]  # bytes by state, as people call it
    alike: Mapping[str, float]  # of those, what each of the plan's copies holds whole
    again: float  # of those, what the forward pass saves for the backward pass
    kept: float = 0.0  # of those, what is kept for sequences of serving
    sequences: int = 0  # so many, over all copies
    room: str = ""  # the capacity as people say it, and what it is a part of
    others: int = 0  # plans that may lack less, which other limits rule out, or several together

    @property
    def bytes(self) -> float:
        """Bytes of all states together."""
        return sum(self.states.values())

    @property
    def short(self) -> float:
        """Bytes that the memory lacks; negative where it has room."""
        return self.bytes - self.capacity

    def __str__(self) -> str:
        short = self.short
        lines = [
            f"least {self.tier.upper()}: {self.plan.label} holds at least {gb(self.bytes)} per chip in"
            f" {self.stage}, whatever its sharding and partitions ({named(self.states)}); the chip has"
            f" {self.room or gb(self.capacity)}: short by {gb(short)}"
        ]
        if self.others:
            lines.append(f"({self.others} other plans may hold less: other limits, or several together, rule them out)")
        lines += self._nearest()
        copies, less = self.plan.copies, []
        if copies > 1 and self.alike:
            saved = sum(self.alike.values()) * (1 - 1 / copies)
            less.append(
                (saved, f"states that copies share out (--zero; {copies} copies each hold whole: {named(self.alike)})")
            )
        if self.again:
            less.append((self.again, "saved activations that are computed again (--recompute)"))
        if less:
            lines += ["what would help:"]
            lines += [f"  {what}: at most {gb(saved)} less{', not enough' * (saved < short)}" for saved, what in less]
            if len(less) > 1 and sum(saved for saved, _ in less) < short:
                lines += ["  not even all of these together are enough"]
        return "\n".join(lines)

    def _nearest(self) -> list[str]:
        """How many sequences there could be room for, or chips that could hold what does not grow with them."""
        fixed = self.bytes - self.kept
        if self.again or not self.sequences:
            return []
        each = self.kept * self.plan.copies / self.sequences
        room = math.floor((self.capacity - fixed) / each) * self.plan.copies if each and fixed <= self.capacity else 0
        if room:
            return [f"nearest: room for at most {room} of the {self.sequences} sequences under this plan (--batch max)"]
        chips = math.ceil(self.plan.shards * self.plan.members * self.plan.stages * (fixed + each) / self.capacity)
        return [f"nearest: about {chips} such chips for one sequence, or {gb(fixed + each)} on each of these"]


def least_held(
    shares: Sequence[tuple[Setting, Mapping[Plan, float]]], options: Options
) -> tuple[int, LeastHeld] | None:
    """The memory demand of the plan that comes nearest to fitting, of plans that do not fit.

    Plans are examined in ascending order of the bytes that every sharding stores, until no further plan can have the
    least demand once waiting tensors are added.

    Parameters
    ----------
    shares : sequence of (Setting, dict)
        For each graph its plans, each with a lower bound on the share of its fullest memory in use; 0 if unknown.
    options : Options
        The request, and the clock, of which half of the remaining work may be spent.

    Returns
    -------
    (int, LeastHeld), optional
        Index of the plan's graph, and the plan's memory demand. None: no plan is shown to exceed a memory.

    Raises
    ------
    KeyboardInterrupt
        If an interrupt came meanwhile.
    """
    limits = usable_bytes(shares[0][0]) if shares else {}
    if not limits:
        return None
    known_arcs: KnownArcs = {}
    spaces = [_endless(setting, [*plans], options, known_arcs) for setting, plans in shares]
    least, clock = min(limits.values()), options.clock.share(_PART)
    plans = [(number, plan, share) for number, (_, of_plan) in enumerate(shares) for plan, share in of_plan.items()]
    best, place, ruled_out = None, 0, list[tuple[int, float]]()
    with interruptible():
        for number, plan, share in sorted(plans, key=itemgetter(2)):
            if best is not None and (share * _ROUNDED - 1) * least >= best.short:
                break
            space = spaces[number]
            instance = space.setting.under(plan)
            states = space.bounds.least_states(instance)
            kept_only = _fullest(instance, bounded_stages(instance), states, {}, limits)
            if best is not None and kept_only.short >= best.short:
                continue
            held = _with_waiting(space, clock, kept_only, limits)
            if held is None or held.short <= 0:  # other limits rule it out
                ruled_out.append((number, kept_only.short))
            elif best is None or held.short < best.short:
                best, place = held, number
    if best is None:
        return None
    return place, replace(best, others=sum(number == place and short < best.short for number, short in ruled_out))


def _endless(setting: Setting, plans: Sequence[Plan], options: Options, known_arcs: KnownArcs) -> MappingSpace:
    """The mappings of plans on chips whose memories have no end, so that all can be counted."""
    endless = setting.system.chip.with_memories(lambda memory: memory.model_copy(update={"capacity": None}))
    joint = setting.assumptions.with_(sharding_objective="joint")  # whatever comes first
    free = replace(setting, system=setting.system.model_copy(update={"chip": endless}), assumptions=joint)
    return MappingSpace.of_plans(free, options.request, plans, known_arcs)


def _with_waiting(
    space: MappingSpace, clock: Clock, kept_only: LeastHeld, limits: Mapping[str, float]
) -> LeastHeld | None:
    """What a plan holds at least with what every fusion leaves to wait; none if nothing fits, whatever the memory.

    As long as there is work left for that, and fusions are bounded whatever the sharding.
    """
    plan = kept_only.plan
    if clock.over or is_cut(space.setting.graph, plan):
        return kept_only
    instance, fullest = space.setting.under(plan), list[LeastHeld]()
    try:
        regions = listed(space.in_classes([plan]))
    except OutOfTime:
        return kept_only
    for region in regions:
        clock.charge(OPENED)
        of, least_c = region.of, region.of.table.least(region.domain)
        with suppress(Infeasible):  # a kernel does not fit in so many tiles
            tables_k = [of.stage(kind, region.domain) for kind in range(of.kinds)]
            states = {kind: sharded_states(of.setting, tables.sharded) for kind, tables in enumerate(tables_k)}
            waiting = {kind: of.least_waiting(kind, least_c) for kind in range(of.kinds)}
            if math.inf not in waiting.values():
                fullest.append(_fullest(instance, instance.pipeline, states, waiting, limits))
    return min(fullest, key=lambda held: held.short, default=None)


def _fullest(
    instance: Instance,
    stages: Sequence[PipelineStage],
    states: Mapping[int, Sequence[State]],
    waiting: Mapping[int, float],
    limits: Mapping[str, float],
) -> LeastHeld:
    """The books of the pipeline stage and memory that lack most."""
    books, chip = [], instance.system.chip
    for stage, (tier, capacity) in itertools.product(stages, limits.items()):
        size_of, alike, again, served = defaultdict[str, float](float), defaultdict[str, float](float), 0.0, 0.0
        for state, size in kept(instance, stage, states):
            if instance.plan.tier_of(state.item, chip) != tier:
                continue
            size_of[LABELS[state.name]] += size
            if state.lifetime == "microbatch":
                again += size
            elif state.lifetime == "sequences":
                served += size
            # no copy has another's sequences, nor what it shares out already
            elif (
                "copies" not in state.split_over and instance.plan.held_by(state.shared_from, copied=state.copied) == 1
            ):
                alike[LABELS[state.name]] += size
        queued = (
            max(waiting.get(number, 0.0) for number, _ in stage.runs)
            if tier == chip.fastest_tier and waits(instance.setting)
            else 0.0
        )
        if queued:
            size_of[_WAITING] = queued
        held = dict(size_of), dict(alike), again, served, instance.graph.batch if served else 0
        room = usable_words(capacity, instance.assumptions)
        books.append(LeastHeld(instance.plan, stage.name, tier, capacity, *held, room))
    return max(books, key=lambda held: held.short)


def gb(size: float) -> str:
    """A size in bytes as a text in GB, with four significant digits."""
    return f"{size / 1e9:.4g} GB"


def named(states: Mapping[str, float]) -> str:
    """Bytes by state as a text in GB, separated by commas."""
    return ", ".join(f"{label} {gb(size)}" for label, size in states.items())
