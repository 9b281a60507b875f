"""What kernels take at least under any of their sharding schemes, whatever the rest of a plan is: the work of a layer.

A *folded* graph has the kernels of each distinct layer once, and says how often the model repeats it. *Kinds* are these
distinct layers, by number (:attr:`dfopt.documents.graph.Graph.kernels_by_kind`). A graph that is not folded has one, 0,
with all kernels. Seconds and bytes are those of one chip, for one microbatch.

Suffixes: k kernel in the order of the graph, or kind of layer; h what a layer holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from dfopt.arrays import Floats
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.reads import ByReads
from dfopt.terms.bounds.plan_arrays import drawn_stages
from dfopt.terms.conversions import overhead_of_kernels
from dfopt.terms.layer import Layer
from dfopt.terms.least import Least, least_of
from dfopt.terms.step.hops import added_by_kind
from dfopt.terms.step.ledger import State, states_of
from dfopt.terms.step.overlap import exchanged_by_kind

__all__ = ["LeastWork"]


Answer = TypeVar("Answer")


class LeastWork:
    """Lower bounds on seconds and bytes of one layer on one chip, whatever its sharding and partitions, for many plans.

    The compute of every kernel is the shortest of its legal schemes, when the kernel has the whole chip. DRAM traffic
    is that which no mapping avoids: weights, gradients, KV caches, inputs and outputs. SRAM traffic has the tensors
    too, and counts where SRAM has a bandwidth. Communications are those that kernels list themselves. Collectives that
    a sharding needs count as 0, and so does DRAM traffic of tensors between partitions.

    Make it with ``LeastWork(setting)``. Methods take an instance of the same setting: ``setting.under(plan)``. An
    answer is kept for all plans that agree in what it depends on.

    Attributes
    ----------
    setting : Setting
        Graph, system and resolved assumptions.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._questions: defaultdict[str, ByReads] = defaultdict(ByReads)
        self._kind_k = np.array([setting.graph.kind_of(kernel) for kernel in setting.graph.kernels], dtype=np.int64)

    def _known(self, question: str, instance: Instance, work: Callable[[Instance], Answer]) -> Answer:
        """``work(instance)``, computed once for all plans that agree in the fields that `work` reads.

        ``question`` is the name under which answers are kept. The plan of the instance is a recorder of the fields that
        `work` reads: `work` must not hash or keep it.
        """
        setting = instance.setting
        found: Answer = self._questions[question].answer(instance.plan, lambda plan: work(Instance(setting, plan)))
        return found

    def of(self, instance: Instance) -> Least:
        """Least seconds and bytes of every kernel over all sharding schemes, at a plan's degree of tensor parallelism.

        Sums over kernels of a graph that is not folded are those of all pipeline stages.
        """
        return self._known("least", instance, lambda one: least_of(Layer(one, 1)))

    def seconds(self, instance: Instance) -> Floats:
        """Least seconds of compute, memory, network and SRAM of every kernel for one microbatch: shape (4, kernels).

        Seconds of the network are communications that kernels list themselves, but for those that another microbatch
        hides (``two_batch_overlap``), and under ``execution: kernel_by_kernel`` the time to launch each kernel.
        """
        least = self.of(instance)
        own_k = instance.own_communication_s + overhead_of_kernels(self.setting.assumptions)
        return np.array([least.compute_k, least.memory_k, own_k, least.sram_k])

    def held(self, instance: Instance) -> Floats:
        """What one layer of every kind has a chip hold at least for one microbatch: float array, shape (kinds, HELD).

        Of a graph that is not folded all its kernels, whatever stage they are in.
        """
        kinds = len(self.setting.graph.kernels_by_kind)
        of_kind_nk = np.equal.outer(np.arange(kinds), self._kind_k).astype(float)
        return np.asarray(of_kind_nk @ self.of(instance).held_kh)

    def states(self, instance: Instance) -> dict[int, Sequence[State]]:
        """Least bytes that one layer keeps in memory for one microbatch, by kind of layer: ``{kind: states}``.

        A :class:`~dfopt.terms.step.ledger.State` is data that stays in a memory, such as weights or saved activations.
        Bytes of each state are the least over all sharding schemes; another state may need another scheme. If the graph
        is not folded, bytes are those of all kernels over the number of pipeline stages: the average of these stages.
        """
        return self._known("states", instance, self._states)

    def _states(self, instance: Instance) -> dict[int, Sequence[State]]:
        drawn, kinds = drawn_stages(instance), zip(self.setting.graph.kernels_by_kind, self.held(instance), strict=True)
        found = (states_of(self.setting, kernels, held_h.tolist()) for kernels, held_h in kinds)
        return {kind: [replace(one, bytes=one.bytes / drawn) for one in states] for kind, states in enumerate(found)}

    def exchanged(self, instance: Instance) -> tuple[Floats, Floats, Floats]:
        """Least seconds in which data-parallel copies exchange gradients and weights of one layer, by kind of layer.

        The figures are for plans whose passes may hide these exchanges: call the method only where
        :func:`dfopt.terms.step.overlap.hides_any` is true. See :func:`dfopt.terms.step.overlap.exchanged_by_kind`.
        """

        def exchanged(instance: Instance) -> tuple[Floats, Floats, Floats]:
            least = self.of(instance)
            return exchanged_by_kind(instance, least.gradient_k, least.weight_k, self._kind_k)

        return self._known("exchanged", instance, exchanged)

    def added(self, instance: Instance) -> Floats:
        """The same where no pass hides them: least seconds per step of one layer, shape (kinds,).

        See :func:`dfopt.terms.step.hops.added_by_kind`. Of kernels that are drawn once those of the average stage.
        """

        def added(instance: Instance) -> Floats:
            least, share = self.of(instance), 1.0 / drawn_stages(instance)
            return added_by_kind(instance, least.gradient_k, least.weight_k, self._kind_k, share)

        return self._known("added", instance, added)
