"""What kernels take at least under any of their sharding schemes, whatever the rest of a plan is: the work of a layer.

A *folded* graph has the kernels of each distinct layer once, and says how often the model repeats it. *Kinds* are these
distinct layers, by number (:attr:`dfopt.documents.graph.Graph.kernels_by_kind`). A graph that is not folded has one, 0,
with all kernels. Seconds and bytes are those of one chip, for one microbatch.

Suffixes: k kernel, in the order of the graph or of its kind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from dfopt.arrays import Floats
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
    """Lower bounds on seconds and bytes of one layer on one chip for one microbatch, under every sharding scheme.

    The layer is of one kind (distinct layer of the model), and the degree of tensor parallelism is given. Each figure
    of each kernel is its least over the legal schemes; two figures may be least under different schemes. Axis k has the
    kernels of the kind.

    Attributes
    ----------
    compute_s, memory_s : s
        Sums over kernels of `compute_k` and `memory_k`.
    gradient_k : B, shape (kernels,)
        Bytes of the weight gradient of each kernel on one chip, in the type in which data-parallel copies add it up.
    states : sequence of State
        Weights, gradients, saved activations and other data that all kernels of the layer together keep in memory. Each
        :class:`~dfopt.terms.step.ledger.State` has the bytes of one of these, in B.
    compute_k : s, shape (kernels,)
        Time in which the whole chip computes each kernel.
    memory_k, sram_k : s, shape (kernels,)
        Time of the traffic of the off-chip memories, and of SRAM. A byte in a slower off-chip memory takes the longer
        time of that memory. `sram_k` is 0 where SRAM has no bandwidth.
    weight_k : B, shape (kernels,)
        Bytes of the weights of each kernel on one chip.
    """

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
        """Least seconds of SRAM traffic of all kernels of the layer for one microbatch; 0 if SRAM has no bandwidth."""
        return float(self.sram_k.sum())


Parts = list[tuple[Sequence[str], tuple[Floats, Floats, Floats, Floats]]]
"""By kind: the pass of each of its kernels (``forward``, ``recompute``, ``backward`` or ``update``), and their least
seconds of compute, memory, network and SRAM for one microbatch, shape (kernels of the kind,) each."""


Answer = TypeVar("Answer")


class LeastWork:
    """Lower bounds on seconds and bytes of one layer on one chip, whatever its sharding and partitions, for many plans.

    The compute of every kernel is the shortest of its legal schemes, when the kernel has the whole chip. DRAM traffic
    is that which no mapping avoids: weights, gradients, KV caches, inputs and outputs. SRAM traffic has the tensors
    too, and counts where SRAM has a bandwidth. Communications are those that kernels list themselves. Collectives that
    a sharding needs count as 0, and so does DRAM traffic of tensors between partitions.

    Make it with ``LeastWork(setting)``. Methods take an instance of the same setting: ``setting.under(plan)``. An
    answer is kept for all plans that agree in what it depends on. Seconds and bytes are those of one chip for one layer
    and one microbatch, unless a method says otherwise.

    *Kinds* are the distinct layers of the model, by number. A *folded* graph has the kernels of each kind once, and
    says how often the model repeats it. A graph that is not folded has one kind, 0, with all kernels.

    Attributes
    ----------
    setting : Setting
        Graph, system and resolved assumptions.
    kind_k : int array, shape (kernels of the graph,)
        Kind of layer of each kernel, by number.
    kinds : list of list of Kernel
        Kernels by kind of layer.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting, graph = setting, setting.graph
        self._questions: defaultdict[str, ByReads] = defaultdict(ByReads)
        self.kind_k = np.array([graph.kind_of(kernel) for kernel in graph.kernels])
        self.kinds = graph.kernels_by_kind
        self._talks = any(kernel.communications for kernel in graph.kernels)

    def drawn_stages(self, instance: Instance) -> int:
        """Number of pipeline stages over which the kernels of the graph are spread; 1 for a folded graph.

        A folded graph has one layer of each kind, whatever pipeline stages run it. Of any other graph, a sum over all
        kernels divided by this number is the average of the stages: the heaviest has that or more.

        Parameters
        ----------
        instance : Instance
            Setting and plan.
        """
        return 1 if instance.graph.folded else instance.plan.stages

    def known(self, question: str, instance: Instance, work: Callable[[Instance], Answer]) -> Answer:
        """Return ``work(instance)``, computed once for all plans that agree in the fields that `work` reads.

        Parameters
        ----------
        question : str
            Name under which answers are kept: no other question may have it.
        instance : Instance
            Setting and plan that the question is about.
        work : callable
            Returns the answer for an instance of this setting. The answer must depend on the instance alone. The plan
            of the instance is a recorder of the fields that `work` reads: `work` must not hash or keep it.
        """
        setting = instance.setting
        found: Answer = self._questions[question].answer(instance.plan, lambda plan: work(Instance(setting, plan)))
        return found

    def of(self, instance: Instance) -> tuple[Least, ...]:
        """Least seconds and bytes of one layer of each kind on one chip, for one microbatch: one entry for each kind.

        Each figure is a lower bound over all sharding schemes, at the degree of tensor parallelism of the plan. Entries
        are in the order of `kinds`. A graph that is not folded has one entry, with all its kernels: sums over them are
        not divided by the number of pipeline stages.

        Parameters
        ----------
        instance : Instance
            Setting and plan.
        """
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
        """Least bytes that one layer keeps in memory for one microbatch, by kind of layer: ``{kind: states}``.

        A :class:`~dfopt.terms.step.ledger.State` is data that stays in a memory, such as weights or saved activations.
        Bytes of each state are the least over all sharding schemes; another state may need another scheme. If the graph
        is not folded, bytes are those of all kernels over the number of pipeline stages: the average of these stages.

        Parameters
        ----------
        instance : Instance
            Setting and plan.
        """
        return self.known("states", instance, self._states)

    def _states(self, instance: Instance) -> dict[int, Sequence[State]]:
        drawn = self.drawn_stages(instance)
        return {
            kind: [replace(one, bytes=one.bytes / drawn) for one in least.states]
            for kind, least in enumerate(self.of(instance))
        }

    def stages(self, instance: Instance) -> tuple[PipelineStage, ...]:
        """Pipeline stages of a plan for which bounds are worked out, each standing for all stages that are alike.

        For a folded graph these are all distinct stages. For any other graph it is open which kernels a stage runs, so
        the first stage alone is returned and stands for all. A bound takes it to have the average of the kernels
        (:meth:`drawn_stages`). The heaviest stage has that or more, so the bound holds for it too.

        Parameters
        ----------
        instance : Instance
            Setting and plan.

        Returns
        -------
        tuple of PipelineStage
            ``runs`` of a :class:`~dfopt.setting.stages.PipelineStage` has a pair for each kind of layer that the stage
            runs: the kind, and how many layers of it for one microbatch. Not folded: ``((0, 1),)``.
        """
        return instance.pipeline if instance.graph.folded else instance.pipeline[:1]

    def parts(self, instance: Instance) -> Parts:
        """Pass of every kernel, and its least seconds for one microbatch, by kind of layer.

        Seconds of the network have only the communications that kernels list for themselves. They are 0 where another
        microbatch hides these (``two_batch_overlap``).

        Parameters
        ----------
        instance : Instance
            Setting and plan.

        Returns
        -------
        list of (sequence of str, (float array, float array, float array, float array))
            For each kind the passes of its kernels (``forward``, ``recompute``, ``backward`` or ``update``), and their
            seconds of compute, memory, network and SRAM, shape (kernels of the kind,) each.
        """
        own_k, found = self._own_seconds(instance), Parts()
        for kind, one in enumerate(self.of(instance)):
            passes = [kernel.pass_ for kernel in self.kinds[kind]]
            found.append((passes, (one.compute_k, one.memory_k, own_k[self.kind_k == kind], one.sram_k)))
        return found

    def passes(self, instance: Instance) -> Passes:
        """Least seconds of the forward and of the backward pass of one layer for one microbatch, by kind of layer.

        They hold for all sharding schemes and partitions. A pass takes the sums of its kernels' seconds of compute,
        memory, network and SRAM (:meth:`parts`), combined as the assumption ``overlap`` says
        (:func:`dfopt.terms.chip.rule_of`). Recomputation and weight updates count with the backward pass.

        Parameters
        ----------
        instance : Instance
            Setting and plan.

        Returns
        -------
        Passes
            Each field but ``exact``, which is false, has a float for each kind, in s. ``forward_s`` and ``backward_s``
            are the two passes. ``backward_s`` is 0 unless the assumption ``forward_backward`` is ``separate``: else all
            partitions may hold forward kernels, and so count with the forward pass. ``memory_s`` and ``compute_s`` are
            sums over kernels of the backward pass and weight updates, without recomputation.
        """
        return self.known("passes", instance, lambda one: roofline_passes(self.parts(one), one.assumptions))

    def exchanged(self, instance: Instance) -> tuple[Floats, Floats, Floats]:
        """Least seconds in which data-parallel copies exchange gradients and weights of one layer, by kind of layer.

        The figures are for plans whose passes may hide these exchanges. *Calculon's rule* says how much is hidden under
        ``gradient_overlap: calculon`` and ``calculon_or_none`` (:mod:`dfopt.physics.window`), and under ``backward``
        exchanges hide layer by layer (:mod:`dfopt.physics.overlap`). *Gathering* weights is the all-gather of updated
        weights that the copies share out (ZeRO).

        Parameters
        ----------
        instance : Instance
            Setting and plan. Call the method only where :func:`dfopt.terms.step.overlap.hides_any` is true. It does not
            check this, and elsewhere its result must not be used: there no pass hides an exchange.

        Returns
        -------
        (float array, float array, float array), s, shape (kinds,) each
            The fields ``reduce_s``, ``weights_s`` and ``gathers_s`` of :class:`dfopt.terms.step.overlap.Exchanges`, in
            this order. No seconds are in two of them. ``reduce_s``: one reduction of the gradients, on average over the
            reductions of a step; with Calculon's rule all exchanges of a step, gathering of weights too. ``weights_s``:
            seconds per step that no pass hides, which are the optimizer's step and all other gathering of weights.
            ``gathers_s``: seconds per step of the gathering that a forward pass may hide; 0 where none may.
        """
        return self.known("exchanged", instance, self._exchanged)

    def _exchanged(self, instance: Instance) -> tuple[Floats, Floats, Floats]:
        gradient_k, weight_k = np.zeros((2, len(self.kind_k)))
        for kind, one in enumerate(self.of(instance)):
            gradient_k[mine := self.kind_k == kind], weight_k[mine] = one.gradient_k, one.weight_k
        step_k = optimizer_seconds(instance, np.arange(len(weight_k)), weight_k)
        return exchanged_by_kind(instance, gradient_k, weight_k, self.kind_k, step_k)

    def moved(self, instance: Instance) -> Floats:
        """Least seconds of work, memory traffic and moving of offloaded data of a layer for one microbatch, by kind.

        Kinds are the distinct layers of the model, by number. Offloaded data, such as weights, lies in a slower memory,
        and moves to or from the fastest one while the layer computes.

        Parameters
        ----------
        instance : Instance
            Setting and plan.

        Returns
        -------
        float array, s, shape (kinds, 6)
            Columns 0 and 1: work of the forward and of the backward pass. 2 and 3: the part of that in which each pass
            uses the fastest memory. 4 and 5: moving of offloaded data during each pass. This is the order of
            :class:`dfopt.physics.offload.Layer`. Columns 1 and 3 are 0 unless ``forward_backward`` is ``separate``
            (:meth:`passes`). All are 0, work too, where nothing is moved. They are 0 as well if the graph is not folded
            (all its kernels are drawn once) and the plan has several pipeline stages, as it is open which kernels a
            stage runs.
        """
        if not moves(instance) or self.drawn_stages(instance) > 1:
            return np.zeros((len(self.kinds), len(offload.Layer._fields)))
        return self.known("moved", instance, self._moved)

    def _moved(self, instance: Instance) -> Floats:
        layers = least_layers(instance, self.parts(instance), self.states(instance), self.passes(instance))
        return np.array([layers[kind] for kind in range(len(self.kinds))])

    def _own_seconds(self, instance: Instance) -> Floats:
        """Seconds of each kernel's own communications, as a part of its block's, shape (kernels of the graph,)."""
        return instance.own_communication_s if self._talks else np.zeros(len(self.kind_k))

    def layers(self, instance: Instance) -> tuple[Floats, Floats]:
        """Least seconds of one layer for one microbatch, and of communications that another microbatch hides, by kind.

        The kernels of all passes of the layer count together. Kinds are the distinct layers of the model, by number.

        Parameters
        ----------
        instance : Instance
            Setting and plan.

        Returns
        -------
        (float array, float array), s, shape (kinds,) each
            First, sums over kernels of compute, memory, SRAM and network seconds, combined as the assumption
            ``overlap`` says (:func:`dfopt.terms.chip.rule_of`). Network seconds are communications that kernels list
            themselves, and under ``execution: kernel_by_kernel`` the time to launch each kernel. For a graph that is
            not folded, the result bounds the heaviest pipeline stage: it is the average of the stages, or the longest
            kernel if that is more. Second, with ``two_batch_overlap`` the communications that kernels list themselves,
            which the first then does not include; else 0.
        """
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
