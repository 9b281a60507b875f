"""What kernels take at least under any of their schemes, whatever the rest of a plan is: the work of a layer."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dfopt.documents.graph import Kernel
from dfopt.documents.saved import added_bytes, reduced_bytes
from dfopt.documents.sections import kernels_by_kind
from dfopt.physics import ops
from dfopt.physics.dtypes import slowdown
from dfopt.physics.efficiency import most_sustained
from dfopt.physics.offload import Layer
from dfopt.physics.pipeline import partition_time
from dfopt.physics.states import cached_bytes, own_traffic
from dfopt.setting.by_kernel import end_share, ends_by_kernel, passed_by_kernel, saved_by_kernel
from dfopt.setting.conversions import overhead_of_kernels
from dfopt.setting.cycles import least_cycles_s
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.ledger import State, states_of, weight_factors
from dfopt.setting.offload import least_layers, moves
from dfopt.setting.optimizer import optimizer_seconds
from dfopt.setting.overlap import Passes, exchanged_by_kind, roofline_passes
from dfopt.setting.placements import Counted
from dfopt.setting.stages import PipelineStage
from dfopt.setting.tables import Floats, compute_seconds

__all__ = ["Known", "Least", "LeastWork", "Parts", "exchanging"]


@dataclass(frozen=True)
class Least:
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


Known = dict[tuple[Kernel, int, Counted], _Alone]
"""Of kernels, many of which are the same in several graphs."""
Parts = list[tuple[Sequence[str], tuple[Floats, Floats, Floats, Floats]]]
"""By kind of layer: passes of its kernels; seconds of compute, memory, network and SRAM of each."""


def exchanging(instance: Instance) -> Hashable:
    """What decides what copies hold and exchange of a layer, and so of its optimizer's step."""
    plan = instance.plan
    often = plan.microbatches if (plan.zero or 0) > 1 else 1
    return instance.shared, plan.copies, plan.copy_dims, plan.zero, plan.hybrid, plan.placement, often


class LeastWork:
    """What no sharding avoids of the kernels of one graph, by the chips that share them.

    Compute of every kernel as short as under any of its legal schemes, when it has the whole chip; the DRAM
    traffic that no mapping avoids (weights, gradients, KV caches, inputs and outputs), and where its bandwidth has a
    limit that of SRAM, tensors included; the communications that kernels list themselves; combined as the overlap
    assumption has it. What a sharding or a cut costs counts as nothing.
    """

    def __init__(self, setting: Setting, of_kernels: Known) -> None:
        self.setting, graph = setting, setting.graph
        self._of_kernels = of_kernels
        self._least: dict[tuple[int, Counted], tuple[Least, ...]] = {}
        self._states: dict[tuple[int, Counted, int], dict[int, Sequence[State]]] = {}
        self._layers: dict[tuple[Instance, int], tuple[Floats, Floats]] = {}
        self._passes: dict[Instance, Passes] = {}
        self._exchanged: dict[Hashable, tuple[Floats, Floats, Floats]] = {}
        self._steps: dict[Hashable, Floats] = {}
        self._moved: dict[Hashable, Floats] = {}
        self._ends = ends_by_kernel(graph) if setting.assumptions.layer_boundary == "dram" else {}
        self.kind_k = np.array([graph.kind_of(kernel) for kernel in graph.kernels])
        self.kinds = kernels_by_kind(graph)
        self._talks = any(kernel.communications for kernel in graph.kernels)
        self._saved = saved_by_kernel(graph, setting.assumptions)
        limited = setting.system.chip.sram.bandwidth is not None
        self._passed = passed_by_kernel(graph, setting.assumptions) if limited else {}

    def drawn_stages(self, instance: Instance) -> int:
        """Stages that kernels drawn once are spread over: the heaviest has at least the average."""
        return 1 if instance.graph.folded else instance.plan.stages

    def of(self, instance: Instance) -> tuple[Least, ...]:
        """The least of every kind of layer."""
        key = instance.plan.shards, instance.counted
        if key not in self._least:
            self._least[key] = tuple(self._worked_out(*key, kernels) for kernels in self.kinds)
        return self._least[key]

    def states(self, instance: Instance) -> dict[int, Sequence[State]]:
        """What the kernels of each stage of the mapping keep at least, each state by itself, for :meth:`stages`."""
        drawn = self.drawn_stages(instance)
        key = instance.plan.shards, instance.counted, drawn
        if key not in self._states:
            self._states[key] = {
                kind: [replace(one, bytes=one.bytes / drawn) for one in least.states]
                for kind, least in enumerate(self.of(instance))
            }
        return self._states[key]

    def stages(self, instance: Instance) -> tuple[PipelineStage, ...]:
        """The distinct pipeline stages; of kernels drawn once the heaviest, with its average share of all of them."""
        return instance.pipeline if instance.graph.folded else instance.pipeline[:1]

    def parts(self, instance: Instance) -> Parts:
        """Of every kind of layer the pass of each kernel, and its least seconds by resource."""
        own_k, found = self._own_seconds(instance), Parts()
        for kind, one in enumerate(self.of(instance)):
            passes = [kernel.pass_ for kernel in self.kinds[kind]]
            found.append((passes, (one.compute_k, one.memory_k, own_k[self.kind_k == kind], one.sram_k)))
        return found

    def passes(self, instance: Instance) -> Passes:
        """What both passes of every kind of layer take at least."""
        if instance.shared not in self._passes:
            self._passes[instance.shared] = roofline_passes(self.parts(instance), instance.assumptions)
        return self._passes[instance.shared]

    def exchanged(self, instance: Instance) -> tuple[Floats, Floats, Floats]:
        """What copies exchange at least of every kind of layer, where it may be hidden: as ``Exchanges`` has it."""
        if (key := exchanging(instance)) not in self._exchanged:
            gradient_k, weight_k = np.zeros((2, len(self.kind_k)))
            for kind, one in enumerate(self.of(instance)):
                gradient_k[mine := self.kind_k == kind], weight_k[mine] = one.gradient_k, one.weight_k
            step_k = self._step(instance, weight_k)
            self._exchanged[key] = exchanged_by_kind(instance, gradient_k, weight_k, self.kind_k, step_k)
        return self._exchanged[key]

    def _step(self, instance: Instance, weight_k: Floats) -> Floats:
        """Seconds of the optimizer's step for each kernel at least: chips that share a layer, and copies, decide."""
        plan = instance.plan
        key = plan.shards, instance.counted, plan.members, plan.copies, plan.held_by(1), plan.placement
        if key not in self._steps:
            self._steps[key] = optimizer_seconds(instance, np.arange(len(weight_k)), weight_k)
        return self._steps[key]

    def moved(self, instance: Instance) -> Floats:
        """Least figures of :class:`dfopt.physics.offload.Layer` by kind of layer; 0 where nothing is moved."""
        if not moves(instance):
            return np.zeros((len(self.kinds), len(Layer._fields)))
        if (key := exchanging(instance)) not in self._moved:
            given = self.parts(instance), self.states(instance), self.passes(instance)
            layers = least_layers(instance, *given)
            self._moved[key] = np.array([layers[kind] for kind in range(len(self.kinds))])
        return self._moved[key]

    def _own_seconds(self, instance: Instance) -> Floats:
        """Seconds of each kernel's own communications, as a part of its block's."""
        return instance.own_communication_s if self._talks else np.zeros(len(self.kind_k))

    def layers(self, instance: Instance) -> tuple[Floats, Floats]:
        """Least seconds of each kind of layer: a microbatch, and what it sends beside that."""
        key = instance.shared, self.drawn_stages(instance)
        if key not in self._layers:
            self._layers[key] = self._of_layers(instance)
        return self._layers[key]

    def _of_layers(self, instance: Instance) -> tuple[Floats, Floats]:
        assumptions = instance.assumptions
        kinds, drawn = self.of(instance), self.drawn_stages(instance)
        own_k = self._own_seconds(instance) + (overhead_of_kernels(assumptions) or 0.0)
        network = np.bincount(self.kind_k, own_k, len(kinds))
        once = [
            partition_time(least.compute_s, least.memory_s, float(talk), assumptions.overlap, least.sram_s) / drawn
            for least, talk in zip(kinds, network, strict=True)
        ]
        if drawn > 1:  # kernels drawn once are not spread evenly: some stage runs the longest of them whole
            once = [max(average, self._longest(least, own_k)) for average, least in zip(once, kinds, strict=True)]
        sent = np.bincount(self.kind_k, instance.hidden_s, len(kinds)).astype(float)
        return np.array(once), sent

    def _longest(self, least: Least, own_k: Floats) -> float:
        """Seconds of the kernel that takes longest with the whole chip to itself."""
        terms = zip(*(each.tolist() for each in (least.compute_k, least.memory_k, own_k, least.sram_k)), strict=True)
        overlap = self.setting.assumptions.overlap
        return max(partition_time(compute, memory, talk, overlap, sram) for compute, memory, talk, sram in terms)

    def _worked_out(self, shards: int, counted: Counted, kernels: list[Kernel]) -> Least:
        assumptions, system = self.setting.assumptions, self.setting.system
        rules, words = assumptions.sharding_rules, self.setting.graph.words
        reduced, adding = reduced_bytes(self.setting.graph), added_bytes(self.setting.graph, assumptions)
        saved = cached = working = 0.0
        compute, traffic, accessed, gradient, held_k = [], [], [], [], []
        for kernel in kernels:
            alone = self._known(kernel, shards, counted)
            _, held_share, made_share, moved, own, kept = alone
            compute.append(alone.compute_s)
            word, held = words.of_weight(kernel), ops.weight_elements(kernel) * held_share
            held_k.append(held * word)
            gradient.append(ops.gradient_elements(kernel) * reduced * made_share)
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
            added = assumptions.gradient_passes * ops.gradients_added(kernel) * adding * made_share
            added = added if assumptions.gradients == "exact" else 0.0
            traffic.append(moved + added)
            passed = self._passed.get(kernel.name, ())
            passed_on = sum(size * self._known(src, shards, counted).output_share for src, size in passed)
            accessed.append(own + read + outward + added + passed_on)
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
        weights = (weight_factors(self.setting, kernels) @ held_k).tolist()
        states = states_of(self.setting, kernels, (*weights, saved, cached, working))
        return Least(*whole, np.array(gradient), states, compute_k, memory_k, sram_k, np.array(held_k))

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
