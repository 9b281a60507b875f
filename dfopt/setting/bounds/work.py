"""What kernels take at least under any of their schemes, whatever the rest of a plan is: the work of a layer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

from dfopt.documents.graph import Kernel
from dfopt.documents.saved import added_bytes, reduced_bytes
from dfopt.documents.sections import kernels_by_kind
from dfopt.physics import ops
from dfopt.physics.dtypes import rate, slowdown
from dfopt.physics.efficiency import most_sustained
from dfopt.physics.offload import Layer
from dfopt.physics.operands import shard_flop
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
from dfopt.setting.reads import ByReads
from dfopt.setting.stages import PipelineStage
from dfopt.setting.tables import Floats, compute_seconds

__all__ = ["Least", "LeastWork", "Parts"]


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
    """What no scheme of a kernel over some degree avoids, each by itself; bytes but for FLOP and shares."""

    flop: float
    weight_share: float
    output_share: float
    moved: float
    own: float
    cached: float


class _Amounts(NamedTuple):
    """The same of the kernels of a layer, on any chip: bytes over DRAM and SRAM, of gradients and weights, and states.

    ``flop_k``: none where rates of a chip depend on more than that.
    """

    flop_k: Floats | None
    moved_k: Floats
    accessed_k: Floats
    gradient_k: Floats
    held_k: Floats
    states: Sequence[State]


Parts = list[tuple[Sequence[str], tuple[Floats, Floats, Floats, Floats]]]
"""By kind of layer: passes of its kernels; seconds of compute, memory, network and SRAM of each."""


Answer = TypeVar("Answer")


class LeastWork:
    """What no sharding avoids of the kernels of one graph, by the chips that share them.

    Compute of every kernel as short as under any of its legal schemes, when it has the whole chip; the DRAM
    traffic that no mapping avoids (weights, gradients, KV caches, inputs and outputs), and where its bandwidth has a
    limit that of SRAM, tensors included; the communications that kernels list themselves; combined as the overlap
    assumption has it. What a sharding or a cut costs counts as nothing.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting, graph = setting, setting.graph
        self._questions: defaultdict[str, ByReads] = defaultdict(ByReads)
        self._ends = ends_by_kernel(graph) if setting.assumptions.layer_boundary == "dram" else {}
        self.kind_k = np.array([graph.kind_of(kernel) for kernel in graph.kernels])
        self.kinds = kernels_by_kind(graph)
        self._talks = any(kernel.communications for kernel in graph.kernels)
        self._saved = saved_by_kernel(graph, setting.assumptions)
        limited = setting.system.chip.sram.bandwidth is not None
        self._passed = passed_by_kernel(graph, setting.assumptions) if limited else {}
        rules, whole = setting.assumptions, setting.model.memo
        # kernels are the same in many graphs that chips of a model see, and what they move on many machines
        self._of_kernels: dict[tuple[Kernel, int, Counted], _Alone] = whole.setdefault(("alone", rules, limited), {})
        self._amounts: dict[tuple[int, Counted, int], _Amounts] = graph.memo.setdefault(("least", rules, limited), {})
        self._compute_s: dict[tuple[Kernel, int], float] = whole.setdefault(("compute", rules, setting.system.chip), {})

    def drawn_stages(self, instance: Instance) -> int:
        """Stages that kernels drawn once are spread over: the heaviest has at least the average."""
        return 1 if instance.graph.folded else instance.plan.stages

    def known(self, question: str, instance: Instance, work: Callable[[Instance], Answer]) -> Answer:
        """The answer to a question about an instance, worked out once for all plans that look the same to it."""
        setting = instance.setting
        found: Answer = self._questions[question].answer(instance.plan, lambda plan: work(Instance(setting, plan)))
        return found

    def of(self, instance: Instance) -> tuple[Least, ...]:
        """The least of every kind of layer."""
        return self.known("least", instance, self._least)

    def _least(self, instance: Instance) -> tuple[Least, ...]:
        shards, counted = instance.plan.shards, instance.counted
        return tuple(self._worked_out(shards, counted, kind) for kind in range(len(self.kinds)))

    def states(self, instance: Instance) -> dict[int, Sequence[State]]:
        """What the kernels of each stage of the mapping keep at least, each state by itself, for :meth:`stages`."""
        return self.known("states", instance, self._states)

    def _states(self, instance: Instance) -> dict[int, Sequence[State]]:
        drawn = self.drawn_stages(instance)
        return {
            kind: [replace(one, bytes=one.bytes / drawn) for one in least.states]
            for kind, least in enumerate(self.of(instance))
        }

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
        return self.known("passes", instance, lambda one: roofline_passes(self.parts(one), one.assumptions))

    def exchanged(self, instance: Instance) -> tuple[Floats, Floats, Floats]:
        """What copies exchange at least of every kind of layer, where it may be hidden: as ``Exchanges`` has it."""
        return self.known("exchanged", instance, self._exchanged)

    def _exchanged(self, instance: Instance) -> tuple[Floats, Floats, Floats]:
        gradient_k, weight_k = np.zeros((2, len(self.kind_k)))
        for kind, one in enumerate(self.of(instance)):
            gradient_k[mine := self.kind_k == kind], weight_k[mine] = one.gradient_k, one.weight_k
        every_k = np.arange(len(weight_k))
        step_k = self.known("step", instance, lambda other: optimizer_seconds(other, every_k, weight_k))
        return exchanged_by_kind(instance, gradient_k, weight_k, self.kind_k, step_k)

    def moved(self, instance: Instance) -> Floats:
        """Least figures of :class:`dfopt.physics.offload.Layer` by kind of layer; 0 where nothing is moved."""
        if not moves(instance):
            return np.zeros((len(self.kinds), len(Layer._fields)))
        return self.known("moved", instance, self._moved)

    def _moved(self, instance: Instance) -> Floats:
        layers = least_layers(instance, self.parts(instance), self.states(instance), self.passes(instance))
        return np.array([layers[kind] for kind in range(len(self.kinds))])

    def _own_seconds(self, instance: Instance) -> Floats:
        """Seconds of each kernel's own communications, as a part of its block's."""
        return instance.own_communication_s if self._talks else np.zeros(len(self.kind_k))

    def layers(self, instance: Instance) -> tuple[Floats, Floats]:
        """Least seconds of each kind of layer: a microbatch, and what it sends beside that."""
        return self.known("layers", instance, self._of_layers)

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

    def _worked_out(self, shards: int, counted: Counted, kind: int) -> Least:
        key, chip, kernels = (shards, counted, kind), self.setting.system.chip, self.kinds[kind]
        if key not in self._amounts:
            self._amounts[key] = self._amounts_of(shards, counted, kernels)
        least = self._amounts[key]
        memory_k = least.moved_k / most_sustained(chip, self.setting.assumptions)
        rate = chip.sram.bandwidth
        sram_k = np.zeros(len(kernels)) if rate is None else least.accessed_k / rate
        if least.flop_k is None:
            compute_k = np.array([self._seconds(kernel, shards) for kernel in kernels])
        else:
            compute_k = least.flop_k / self._rates[kind]
        return Least(
            compute_s=float(compute_k.sum()),
            memory_s=float(memory_k.sum()),
            gradient_k=least.gradient_k,
            states=least.states,
            compute_k=compute_k,
            memory_k=memory_k,
            sram_k=sram_k,
            weight_k=least.held_k,
        )

    @cached_property
    def _rates(self) -> list[Floats]:
        """FLOP/s that the chip sustains of each kernel, by kind of layer."""
        graph, chip, share = self.setting.graph, self.setting.system.chip, self.setting.assumptions.compute_utilization
        return [np.array([rate(graph, kernel, chip) for kernel in kernels]) * (share or 1.0) for kernels in self.kinds]

    def _seconds(self, kernel: Kernel, shards: int) -> float:
        """Seconds of a kernel under its fastest scheme, where that depends on more than FLOP."""
        if (kernel, shards) not in self._compute_s:
            setting, rules = self.setting, self.setting.assumptions.sharding_rules
            schemes = ops.legal_schemes(kernel, shards, setting.assumptions)
            if setting.assumptions.compute_model == "cycle":
                least = min(least_cycles_s(kernel, z, shards, setting.system, rules) for z in schemes)
                least *= slowdown(setting.graph, kernel, setting.system.chip)
            else:
                least = float(compute_seconds(setting, [kernel] * len(schemes), schemes, shards).min())
            self._compute_s[kernel, shards] = least
        return self._compute_s[kernel, shards]

    def _amounts_of(self, shards: int, counted: Counted, kernels: list[Kernel]) -> _Amounts:
        assumptions, rules = self.setting.assumptions, self.setting.assumptions.sharding_rules
        words = self.setting.graph.words
        reduced, adding = reduced_bytes(self.setting.graph), added_bytes(self.setting.graph, assumptions)
        saved = cached = working = 0.0
        flop, traffic, accessed, gradient, held_k = [], [], [], [], []
        for kernel in kernels:
            alone = self._known(kernel, shards, counted)
            _, held_share, made_share, moved, own, kept = alone
            flop.append(alone.flop)
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
        weights = (weight_factors(self.setting, kernels) @ held_k).tolist()
        return _Amounts(
            flop_k=np.array(flop) if assumptions.compute_model == "fixed" else None,
            moved_k=np.array(traffic),
            accessed_k=np.array(accessed),
            gradient_k=np.array(gradient),
            held_k=np.array(held_k),
            states=states_of(self.setting, kernels, (*weights, saved, cached, working)),
        )

    def _known(self, kernel: Kernel, shards: int, counted: Counted) -> _Alone:
        if (kernel, shards, counted) not in self._of_kernels:
            self._of_kernels[kernel, shards, counted] = self._alone(kernel, shards, counted)
        return self._of_kernels[kernel, shards, counted]

    def _alone(self, kernel: Kernel, shards: int, counted: Counted) -> _Alone:
        assumptions = self.setting.assumptions
        rules, schemes = assumptions.sharding_rules, ops.legal_schemes(kernel, shards, assumptions)
        return _Alone(
            flop=min(shard_flop(kernel, z, shards, self.setting.sums, assumptions) for z in schemes),
            weight_share=min(ops.weight_share(kernel, z, shards, rules) for z in schemes),
            output_share=min(ops.output_share(kernel, z, shards, rules) for z in schemes),
            moved=min(counted.own_traffic(kernel, z, shards) for z in schemes),
            own=min(own_traffic(kernel, z, shards) for z in schemes) if self._passed else 0.0,
            cached=min(cached_bytes(kernel, z, shards) for z in schemes),
        )
