"""What kernels take at least under any of their sharding schemes, whatever the rest of a plan is: the work of a layer.

A *folded* graph has the kernels of each distinct layer once, and says how often the model repeats it. *Kinds* are these
distinct layers, by number (:attr:`dfopt.documents.graph.Graph.kernels_by_kind`). A graph that is not folded has one, 0,
with all kernels. Seconds and bytes are those of one chip, for one microbatch.

Suffixes: k kernel in the order of the graph, or kind of layer; h what a layer holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dfopt.arrays import Floats
from dfopt.setting.instance import Instance
from dfopt.setting.reads import by_reads
from dfopt.terms.bounds.plan_arrays import drawn_stages
from dfopt.terms.conversions import overhead_of_kernels
from dfopt.terms.layer import Layer
from dfopt.terms.least import Least, least_of
from dfopt.terms.step.hops import added_by_kind
from dfopt.terms.step.ledger import State, states_of
from dfopt.terms.step.overlap import exchanged_by_kind


@dataclass(frozen=True, eq=False)
class WorkBounds:
    """Lower bounds on seconds and bytes of one layer on one chip, for every sharding and partitioning, for many plans.

    The compute of every kernel is the shortest of its legal schemes, when the kernel has the whole chip. DRAM traffic
    is that which no mapping avoids: weights, gradients, KV caches, inputs and outputs. SRAM traffic has the tensors
    too, and counts where SRAM has a bandwidth. Communications are those that kernels list themselves. Collectives that
    a sharding needs count as 0, and so does DRAM traffic of tensors between partitions.

    What ``by_reads`` decorates is an attribute, not called: it is kept for all plans that agree in what it depends on.

    Attributes
    ----------
    instance : Instance
        Setting and plan.
    """

    instance: Instance

    @by_reads
    def of_kernels(self) -> Least:
        """Least seconds and bytes of every kernel over all sharding schemes, at a plan's degree of tensor parallelism.

        Sums over kernels of a graph that is not folded are those of all pipeline stages.
        """
        return least_of(Layer(self.instance, 1))

    @property
    def seconds(self) -> Floats:
        """Least seconds of compute, memory, network and SRAM of every kernel for one microbatch: shape (4, kernels).

        Seconds of the network are communications that kernels list themselves, but for those that another microbatch
        hides (``two_batch_overlap``), and under ``execution: kernel_by_kernel`` the time to launch each kernel.
        """
        least, instance = self.of_kernels, self.instance
        own_k = instance.own_communication_s + overhead_of_kernels(instance.assumptions)
        return np.array([least.compute_k, least.memory_k, own_k, least.sram_k])

    @property
    def held(self) -> Floats:
        """Least amounts that a layer of every kind stores on a chip for one microbatch: shape (kinds, HELD).

        Of a graph that is not folded all its kernels, whatever stage they are in.
        """
        setting = self.instance.setting
        of_kind_nk = np.equal.outer(np.arange(len(setting.graph.kernels_by_kind)), setting.kind_k).astype(float)
        return np.asarray(of_kind_nk @ self.of_kernels.held_kh)

    @by_reads
    def states(self) -> dict[int, Sequence[State]]:
        """Least bytes that one layer keeps in memory for one microbatch, by kind of layer: ``{kind: states}``.

        A :class:`~dfopt.terms.step.ledger.State` is data that stays in a memory, such as weights or saved activations.
        Bytes of each state are the least over all sharding schemes; another state may need another scheme. If the graph
        is not folded, bytes are those of all kernels over the number of pipeline stages: the average of these stages.
        """
        setting, drawn = self.instance.setting, drawn_stages(self.instance)
        kinds = zip(setting.graph.kernels_by_kind, self.held, strict=True)
        states_k = (states_of(setting, kernels, held_h.tolist()) for kernels, held_h in kinds)
        return {k: [replace(state, bytes=state.bytes / drawn) for state in states] for k, states in enumerate(states_k)}

    @by_reads
    def exchanged(self) -> tuple[Floats, Floats, Floats]:
        """Least seconds in which data-parallel copies exchange gradients and weights of one layer, by kind of layer.

        The figures are for plans whose passes may hide these exchanges: ask only where
        :func:`dfopt.terms.step.overlap.hides_any` is true. See :func:`dfopt.terms.step.overlap.exchanged_by_kind`.
        """
        least, instance = self.of_kernels, self.instance
        return exchanged_by_kind(instance, least.gradient_k, least.weight_k, instance.setting.kind_k)

    @by_reads
    def added(self) -> Floats:
        """Least seconds per step of exchanges for one layer, if no pass hides them: float array, shape (kinds,).

        See :func:`dfopt.terms.step.hops.added_by_kind`. Of kernels that are drawn once those of the average stage.
        """
        least, instance, share = self.of_kernels, self.instance, 1.0 / drawn_stages(self.instance)
        return added_by_kind(instance, least.gradient_k, least.weight_k, instance.setting.kind_k, share)
