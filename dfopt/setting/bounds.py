"""A lower bound on the step time of a plan that holds for every mapping under it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dfopt.documents.graph import Kernel
from dfopt.documents.placement import item_of_weight
from dfopt.documents.plan import Plan
from dfopt.documents.sections import kernels_by_kind
from dfopt.physics import ops
from dfopt.physics.dtypes import slowdown
from dfopt.physics.efficiency import most_sustained
from dfopt.physics.pipeline import partition_time, step_time, with_point_to_point
from dfopt.physics.states import cached_bytes, capacities, own_traffic
from dfopt.setting.by_kernel import end_share, ends_by_kernel, passed_by_kernel, saved_by_kernel
from dfopt.setting.conversions import overhead_of_kernels
from dfopt.setting.cycles import least_cycles_s
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.ledger import State, held, left, room_to_save, states_of
from dfopt.setting.offload import least_layers, moves, moving_stages
from dfopt.setting.optimizer import optimizer_seconds
from dfopt.setting.overlap import exchange_seconds, hides_any, least_s, roofline_passes
from dfopt.setting.placements import Counted
from dfopt.setting.stages import PipelineStage
from dfopt.setting.tables import Floats, Ints, compute_seconds


@dataclass(frozen=True)
class _Least:
    """What no sharding over some degree of tensor parallelism avoids, for one kind of layer and one microbatch."""

    compute_s: float
    memory_s: float
    gradient_k: Floats
    states: Sequence[State]
    compute_k: Floats
    memory_k: Floats
    sram_k: Floats
    weight_k: Floats

    @property
    def sram_s(self) -> float:
        """Seconds of SRAM traffic; none where its bandwidth has no limit."""
        return float(self.sram_k.sum())


class _Alone(NamedTuple):
    """What no scheme of a kernel over some degree avoids, each by itself; bytes but for compute."""

    compute_s: float
    weight_share: float
    output_share: float
    moved: float
    own: float
    cached: float


class PlanBounds:
    """Step times that no mapping beats, and what every mapping holds, for any number of plans of a setting."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._known: dict[Setting, _Bounds] = {}  # of the graphs that plans with a second axis see, too
        # of the kernels, many of which are the same in several of them
        self._of_kernels: dict[tuple[Kernel, int, Counted], _Alone] = {}

    def _of(self, instance: Instance) -> _Bounds:
        if instance.setting not in self._known:
            self._known[instance.setting] = _Bounds(instance.setting, self._of_kernels)
        return self._known[instance.setting]

    def seconds(self, instance: Instance) -> float:
        """Seconds per step that no mapping under a plan beats."""
        return float(self._of(instance).seconds(instance, [instance.plan])[0])

    def of_all(self, plans: Iterable[Plan]) -> dict[Plan, float]:
        """The same of many plans: of those that differ in how stages hold layers only, all at a time."""
        families: dict[Hashable, list[Plan]] = {}
        for plan in plans:
            families.setdefault(plan.apart_from_stages, []).append(plan)
        found: dict[Plan, float] = {}
        for alike in families.values():
            instance = self.setting.under(alike[0])
            found.update(zip(alike, self._of(instance).seconds(instance, alike).tolist(), strict=True))
        return found

    def seconds_of(self, alike: Sequence[Plan], low_s: float, hop_s: float) -> list[float]:
        """The same of plans that differ in how stages hold layers only, where more is known of their work.

        A layer takes so many seconds at least, and what a chunk of layers sends to the next stage.
        """
        instance = self.setting.under(alike[0])
        found: list[float] = self._of(instance).seconds(instance, alike, low_s, hop_s).tolist()
        return found

    def interval(self, instance: Instance) -> float:
        """Seconds of the slowest stage for one microbatch that no mapping under a plan beats."""
        return float(self._of(instance).intervals(instance, [instance.plan])[0])

    def traffic(self, instance: Instance) -> tuple[float, float]:
        """Bytes that a chip of every stage moves at least for one microbatch: over DRAM, and to and from SRAM.

        Those of SRAM are known where its bandwidth is limited, and 0 else.
        """
        return self._of(instance).traffic(instance)

    def check_dram(self, instance: Instance) -> None:
        """Refuse a plan under which no mapping fits the DRAM: what its kernels hold at least is more than that.

        Raises
        ------
        Infeasible
            If the weights, gradients, optimizer state and saved activations of a stage exceed the capacity.
        """
        self._of(instance).check_dram(instance)

    def least_states(self, instance: Instance) -> dict[int, Sequence[State]]:
        """What the kernels of each stage of the mapping keep at least, each state by itself, for :meth:`stages`."""
        return self._of(instance).least_states(instance)

    def room(self, instance: Instance) -> float:
        """Bytes that a layer may keep for its backward pass beside the least of all else, where layers are equal."""
        return min(room_to_save(instance, stage, self.least_states(instance)) for stage in self.stages(instance))

    def stages(self, instance: Instance) -> tuple[PipelineStage, ...]:
        """The distinct pipeline stages."""
        return self._of(instance).stages(instance)


class _Bounds:
    """Bounds for any number of plans of one graph on one system.

    Compute of every kernel as short as under any of its legal schemes, when it has the whole chip; the DRAM
    traffic that no mapping avoids (weights, gradients, KV caches, inputs and outputs), and where its bandwidth has a
    limit that of SRAM, tensors included; the communications that kernels list themselves; combined as the overlap
    assumption has it. Then the all-reduce of the gradients at the end of the step. What a sharding or a cut costs
    counts as nothing. Of two microbatches that take turns, chip and network have to do all of both, each by itself.
    """

    def __init__(self, setting: Setting, of_kernels: dict[tuple[Kernel, int, Counted], _Alone]) -> None:
        self.setting, graph = setting, setting.graph
        self._of_kernels = of_kernels
        self._least: dict[tuple[int, Counted], tuple[_Least, ...]] = {}
        self._layers: dict[Hashable, tuple[Floats, Floats]] = {}
        self._held: dict[Hashable, dict[int, Sequence[State]]] = {}
        self._run: dict[Hashable, tuple[Floats, Ints]] = {}
        self._ends = ends_by_kernel(graph) if setting.assumptions.layer_boundary == "dram" else {}
        self._kind_k = np.array([graph.kind_of(kernel) for kernel in graph.kernels])
        self._kinds = kernels_by_kind(graph)
        self._talks = any(kernel.communications for kernel in graph.kernels)
        self._saved = saved_by_kernel(graph, setting.assumptions)
        limited = setting.system.chip.sram.bandwidth is not None
        self._passed = passed_by_kernel(graph, setting.assumptions) if limited else {}

    def seconds(self, instance: Instance, plans: Sequence[Plan], low_s: float = 0.0, hop_s: float = 0.0) -> Floats:
        """Seconds per step that no mapping beats under each of some plans that differ in how stages hold layers.

        ``low_s``, ``hop_s``: of a layer, and of what a chunk of layers hands on, at least, for one microbatch.
        """
        if hides_any(instance.assumptions, self.setting.graph):
            return self._overlapped(instance, plans, low_s, hop_s)
        added_s = self._slowest(plans, self._gradients(instance)).tolist()
        pairs = zip(plans, self.intervals(instance, plans, low_s, hop_s).tolist(), added_s, strict=True)
        own = instance.assumptions
        once = own.step_overhead or 0.0
        return np.array([step_time(one, own, s, gradient_reduction_s=g, overhead_s=once).total for one, s, g in pairs])

    def intervals(self, instance: Instance, plans: Sequence[Plan], low_s: float = 0.0, hop_s: float = 0.0) -> Floats:
        """Seconds of the slowest stage under each, for one microbatch or two that are taken together."""
        once, sent = self._known_layers(instance)
        once = np.maximum(once, low_s)
        if moves(instance):  # beside the work of layers, which takes as long as that at least
            layers = least_layers(instance, self._parts(instance), self.least_states(instance))
            under = [Instance(self.setting, plan) for plan in plans]
            each = ((one, max(moving_stages(one, once, layers, self.stages, hop_s))) for one in under)
            hidden = instance.assumptions.hides_hops
            return np.array([with_point_to_point(s, one.plan.interleave * hop_s, hidden) for one, s in each])
        once, sent = (self._slowest(plans, each) for each in (once, sent))
        busy: Floats = np.maximum(once, sent)
        if hop_s:
            hops, hidden = [one.interleave * hop_s for one in plans], instance.assumptions.hides_hops
            pairs = zip(busy.tolist(), hops, strict=True)
            busy = np.array([with_point_to_point(stage_s, hop, hidden) for stage_s, hop in pairs])
        return np.asarray(instance.plan.at_once * busy)

    def _overlapped(self, instance: Instance, plans: Sequence[Plan], low_s: float, hop_s: float) -> Floats:
        """Seconds per step where gradients are added up behind the backward pass: from the least of every part."""
        gradient_k, weight_k = np.zeros((2, len(self._kind_k)))
        for kind, one in enumerate(self._least_of(instance)):
            gradient_k[mine := self._kind_k == kind], weight_k[mine] = one.gradient_k, one.weight_k
        # of training, where no microbatches take turns
        once, parts = np.maximum(np.maximum(*self._known_layers(instance)), low_s), self._parts(instance)
        stages = [(self._runs([plan])[0] @ once).tolist() for plan in plans]
        if moves(instance):
            layers = least_layers(instance, parts, self.least_states(instance))
            stages = [moving_stages(Instance(self.setting, one), once, layers, self.stages, hop_s) for one in plans]
        exchanges = exchange_seconds(instance, gradient_k, weight_k, self._kind_k)
        given = exchanges, roofline_passes(parts, instance.assumptions)
        each = zip(plans, stages, strict=True)
        return np.array([least_s(instance, plan, seconds, *given, hop_s) for plan, seconds in each])

    def _parts(self, instance: Instance) -> list[tuple[Sequence[str], tuple[Floats, Floats, Floats, Floats]]]:
        """Of every kind the pass of each kernel, and its least seconds by resource."""
        own_k: Floats = instance.own_communication_s if self._talks else np.zeros(len(self._kind_k))
        parts = list[tuple[Sequence[str], tuple[Floats, Floats, Floats, Floats]]]()
        for kind, one in enumerate(self._least_of(instance)):
            passes = [kernel.pass_ for kernel in self._kinds[kind]]
            parts.append((passes, (one.compute_k, one.memory_k, own_k[self._kind_k == kind], one.sram_k)))
        return parts

    def _known_layers(self, instance: Instance) -> tuple[Floats, Floats]:
        key = instance.shared, self._drawn_stages(instance)
        if key not in self._layers:
            self._layers[key] = self._of_layers(instance)
        return self._layers[key]

    def traffic(self, instance: Instance) -> tuple[float, float]:
        """Bytes of DRAM and of SRAM for one microbatch, of the stage with the least of each."""
        chip, drawn = instance.system.chip, self._drawn_stages(instance)
        kinds = self._least_of(instance)
        rates = most_sustained(chip, instance.assumptions) / drawn, (chip.sram.bandwidth or 0.0) / drawn
        seconds = [one.memory_s for one in kinds], [one.sram_s for one in kinds]
        dram, sram = (
            rate * min(sum(times * each[kind] for kind, times in stage.runs) for stage in self.stages(instance))
            for rate, each in zip(rates, seconds, strict=True)
        )
        return dram, sram

    def _slowest(self, plans: Sequence[Plan], each: Floats) -> Floats:
        """Seconds of the slowest stage of each plan, from those of each kind of layer."""
        runs, first = self._runs(plans)
        return np.maximum.reduceat(runs @ each, first) if each.any() else np.zeros(len(first))

    def _runs(self, plans: Sequence[Plan]) -> tuple[Floats, Ints]:
        """How often each stage of each plan runs each kind of layer, below one another; and where each plan begins."""
        key = plans[0].stages, tuple((one.stage_layers, one.recomputed) for one in plans)
        if key not in self._run:
            rows, first = list[Floats](), list[int]()
            for one in plans:
                first.append(len(rows))
                for stage in self.stages(Instance(self.setting, one)):
                    rows.append(np.zeros(len(self._kinds)))
                    for kind, times in stage.runs:
                        rows[-1][kind] += times
            self._run[key] = np.array(rows), np.array(first)
        return self._run[key]

    def _gradients(self, instance: Instance) -> Floats:
        """Least seconds of each kind of layer in which gradients are added up after a step, and the optimizer's."""
        seconds = np.zeros(len(self._kinds))
        if instance.assumptions.gradients != "exact" or not self.setting.graph.trains:
            return seconds
        drawn = self._drawn_stages(instance)
        for kind, least in enumerate(self._least_of(instance)):
            mine = np.flatnonzero(self._kind_k == kind)
            seconds[kind] = optimizer_seconds(instance, mine, least.weight_k).sum() / drawn
        for dims, share_k in instance.adding:
            for kind, least in enumerate(self._least_of(instance)):
                volume_k = np.zeros(len(self._kind_k))
                volume_k[self._kind_k == kind] = share_k[self._kind_k == kind] * least.gradient_k / drawn
                seconds[kind] += instance.exchanged_s(dims, volume_k)
        return seconds

    def _of_layers(self, instance: Instance) -> tuple[Floats, Floats]:
        """Least seconds of each kind of layer: a microbatch, and what it sends beside that."""
        assumptions = instance.assumptions
        kinds, drawn = self._least_of(instance), self._drawn_stages(instance)
        own_k: Floats = instance.own_communication_s if self._talks else np.zeros(len(self._kind_k))
        own_k = own_k + (overhead_of_kernels(assumptions) or 0.0)
        network = np.bincount(self._kind_k, own_k, len(kinds))
        once = [
            partition_time(least.compute_s, least.memory_s, float(talk), assumptions.overlap, least.sram_s) / drawn
            for least, talk in zip(kinds, network, strict=True)
        ]
        if drawn > 1:  # kernels drawn once are not spread evenly: some stage runs the longest of them whole
            once = [max(average, self._longest(least, own_k)) for average, least in zip(once, kinds, strict=True)]
        sent = np.bincount(self._kind_k, instance.hidden_s, len(kinds)).astype(float)
        return np.array(once), sent

    def _longest(self, least: _Least, own_k: Floats) -> float:
        """Seconds of the kernel that takes longest with the whole chip to itself."""
        terms = zip(*(each.tolist() for each in (least.compute_k, least.memory_k, own_k, least.sram_k)), strict=True)
        overlap = self.setting.assumptions.overlap
        return max(partition_time(compute, memory, talk, overlap, sram) for compute, memory, talk, sram in terms)

    def check_dram(self, instance: Instance) -> None:
        """Refuse a plan whose stages hold more than the DRAM even when all that they keep is split as far as can be.

        Raises
        ------
        Infeasible
            With what a chip would have to hold, before anything is solved.
        """
        if not capacities(instance.system.chip):
            return
        states = self.least_states(instance)
        for stage in self.stages(instance):
            name = stage.name if len(self._kinds) > 1 else "the heaviest stage"
            left(instance, held(instance, stage, states), f"{name} needs at least")

    def least_states(self, instance: Instance) -> dict[int, Sequence[State]]:
        """What the kernels of each stage of the mapping keep at least, each state by itself, for :meth:`stages`."""
        drawn = self._drawn_stages(instance)
        key = instance.plan.shards, instance.counted, drawn
        if key not in self._held:
            self._held[key] = {
                kind: [replace(one, bytes=one.bytes / drawn) for one in least.states]
                for kind, least in enumerate(self._least_of(instance))
            }
        return self._held[key]

    def stages(self, instance: Instance) -> tuple[PipelineStage, ...]:
        """The distinct pipeline stages; of kernels drawn once the heaviest, with its average share of all of them."""
        return instance.pipeline if instance.graph.folded else instance.pipeline[:1]

    def _drawn_stages(self, instance: Instance) -> int:
        """Stages that kernels drawn once are spread over: the heaviest has at least the average."""
        return 1 if instance.graph.folded else instance.plan.stages

    def _least_of(self, instance: Instance) -> tuple[_Least, ...]:
        key = instance.plan.shards, instance.counted
        if key not in self._least:
            self._least[key] = tuple(self._worked_out(*key, kernels) for kernels in self._kinds)
        return self._least[key]

    def _worked_out(self, shards: int, counted: Counted, kernels: list[Kernel]) -> _Least:
        assumptions, system = self.setting.assumptions, self.setting.system
        rules, words = assumptions.sharding_rules, self.setting.graph.words
        weights = experts = parameters = saved = cached = working = 0.0
        compute, traffic, accessed, gradient, held_k = [], [], [], [], []
        for kernel in kernels:
            alone = self._known(kernel, shards, counted)
            _, held_share, made_share, moved, own, kept = alone
            compute.append(alone.compute_s)
            word, held = words.of_weight(kernel), ops.weight_elements(kernel) * held_share
            held_k.append(held * word)
            gradient.append(ops.gradient_elements(kernel) * words.activations * made_share)
            read = ops.weights_read(kernel) * word * held_share
            moved += read * counted.of_weight(kernel) if assumptions.weights_from_dram else 0.0
            ends = self._ends.get(kernel.name, ())
            schemes = ops.legal_schemes(kernel, shards, assumptions) if ends else ()
            outward = 0.0
            for operand, size in ends:  # operand 0 is the output
                end = size * min(
                    end_share(kernel, operand, z, shards, rules, size / words.activations) for z in schemes
                )
                moved, outward = moved + end, outward + end
            added = assumptions.gradient_passes * ops.gradients_added(kernel) * words.activations * made_share
            added = added if assumptions.gradients == "exact" else 0.0
            traffic.append(moved + added)
            passed = self._passed.get(kernel.name, ())
            passed_on = sum(size * self._known(src, shards, counted).output_share for src, size in passed)
            accessed.append(own + read + outward + added + passed_on)
            if kernel.pass_ == "forward" or not self.setting.only_forward:
                parameters += held
                if item_of_weight(kernel) == "experts":
                    experts += held * word
                else:
                    weights += held * word
            cached += kept
            saved += self._saved[kernel.name] * made_share
            if self.setting.beside:
                schemes = ops.legal_schemes(kernel, shards, assumptions)
                beside = np.array([self.setting.beside.on_chip(kernel, z, shards) for z in schemes]).min(axis=0)
                saved, working = saved + float(beside[0]), working + float(beside[1])
        compute_k, memory_k = np.array(compute), np.array(traffic) / most_sustained(system.chip, assumptions)
        rate = system.chip.sram.bandwidth
        sram_k = np.zeros(len(kernels)) if rate is None else np.array(accessed) / rate
        whole = float(compute_k.sum()), float(memory_k.sum())
        states = states_of(self.setting, kernels, weights, parameters, saved, cached, experts, working)
        return _Least(*whole, np.array(gradient), states, compute_k, memory_k, sram_k, np.array(held_k))

    def _known(self, kernel: Kernel, shards: int, counted: Counted) -> _Alone:
        if (kernel, shards, counted) not in self._of_kernels:
            self._of_kernels[kernel, shards, counted] = self._alone(kernel, shards, counted)
        return self._of_kernels[kernel, shards, counted]

    def _alone(self, kernel: Kernel, shards: int, counted: Counted) -> _Alone:
        assumptions, system = self.setting.assumptions, self.setting.system
        rules, schemes = assumptions.sharding_rules, ops.legal_schemes(kernel, shards, assumptions)
        if assumptions.compute_model == "cycle":
            least = min(least_cycles_s(kernel, z, shards, system, rules) for z in schemes)
            least *= slowdown(self.setting.graph, kernel, system.chip)
        else:
            least = float(compute_seconds(self.setting, [kernel] * len(schemes), schemes, shards).min())
        return _Alone(
            compute_s=least,
            weight_share=min(ops.weight_share(kernel, z, shards, rules) for z in schemes),
            output_share=min(ops.output_share(kernel, z, shards, rules) for z in schemes),
            moved=min(counted.own_traffic(kernel, z, shards) for z in schemes),
            own=min(own_traffic(kernel, z, shards) for z in schemes) if self._passed else 0.0,
            cached=min(cached_bytes(kernel, z, shards) for z in schemes),
        )
