"""What kernels take at least under any of their schemes, whatever the rest of a plan is: the work of a layer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from dfopt.arrays import Floats
from dfopt.documents.sections import kernels_by_kind
from dfopt.physics import offload
from dfopt.physics.efficiency import most_sustained
from dfopt.physics.pipeline import partition_time
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.reads import ByReads
from dfopt.setting.stages import PipelineStage
from dfopt.terms.conversions import overhead_of_kernels
from dfopt.terms.layer import Layer
from dfopt.terms.least import least_compute_k, least_figures
from dfopt.terms.rules import HELD
from dfopt.terms.step.ledger import State, states_of
from dfopt.terms.step.offload import least_layers, moves
from dfopt.terms.step.optimizer import optimizer_seconds
from dfopt.terms.step.overlap import Passes, exchanged_by_kind, roofline_passes

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
        self.kind_k = np.array([graph.kind_of(kernel) for kernel in graph.kernels])
        self.kinds = kernels_by_kind(graph)
        self._talks = any(kernel.communications for kernel in graph.kernels)

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
        chip = self.setting.system.chip
        layer = Layer(instance, 1)
        least_kf = least_figures(layer)
        flop_k, weight_k, gradient_k, copied_k, moved_k, accessed_k = least_kf[:, : -len(HELD)].T
        compute_k = least_compute_k(layer, flop_k)
        memory_k = moved_k / most_sustained(chip, self.setting.assumptions)
        sram_k = accessed_k / (chip.sram.bandwidth or np.inf)
        found = []
        for kind, kernels in enumerate(self.kinds):
            mine = self.kind_k == kind
            found.append(
                Least(
                    compute_s=float(compute_k[mine].sum()),
                    memory_s=float(memory_k[mine].sum()),
                    gradient_k=(gradient_k + copied_k)[mine],
                    states=states_of(self.setting, kernels, least_kf[mine, -len(HELD) :].sum(axis=0).tolist()),
                    compute_k=compute_k[mine],
                    memory_k=memory_k[mine],
                    sram_k=sram_k[mine],
                    weight_k=weight_k[mine],
                )
            )
        return tuple(found)

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
        step_k = optimizer_seconds(instance, np.arange(len(weight_k)), weight_k)
        return exchanged_by_kind(instance, gradient_k, weight_k, self.kind_k, step_k)

    def moved(self, instance: Instance) -> Floats:
        """Least figures of :class:`dfopt.physics.offload.Layer` by kind of layer; 0 where nothing is moved."""
        if not moves(instance):
            return np.zeros((len(self.kinds), len(offload.Layer._fields)))
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
