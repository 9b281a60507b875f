"""What no mapping beats under many plans of one graph: seconds of a step from the least work of kernels, and memory.

Suffixes: i plan; g group of plans that differ only in how stages hold layers; s group of those that give a chip the
same work; r distinct pipeline stage, of all plans in a row; k kind of layer or kernel; h what a layer holds; v vector
of options, of which there is one; t resource of a chip.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.setting.stages import in_one_stage
from dfopt.terms.bounds.holding import Holding
from dfopt.terms.bounds.moving import Moving
from dfopt.terms.bounds.passes import PassSeconds
from dfopt.terms.bounds.plan_arrays import PlanArrays
from dfopt.terms.bounds.steps import StepBounds
from dfopt.terms.bounds.transfers import Transfers
from dfopt.terms.bounds.work_bounds import WorkBounds
from dfopt.terms.chip import ChipModel, chip_of, combine
from dfopt.terms.step.offload import frees_memory_k


class PlanTable(PlanArrays):
    """Lower bounds on step time and memory for many plans at once.

    Bounds hold for every *mapping*: sharding schemes and on-chip partitions of all kernels. *Kinds* are the distinct
    layers of the model, by number (axis k).
    """

    def of_some(self, places: Iterable[int]) -> PlanTable:
        """The table of some plans, by their places."""
        return PlanTable(self.under_i[place] for place in places)

    @cached_property
    def steps(self) -> StepBounds:
        """Bounds on the step under each plan."""
        return StepBounds(self)

    @cached_property
    def holding(self) -> Holding:
        """Memory model: what stages store under each plan."""
        return Holding(self)

    @cached_property
    def moving(self) -> Moving:
        """Traffic of slower memories in addition to that of layers."""
        return Moving(self.holding)

    @cached_property
    def used_i(self) -> Floats:
        """Least share of the fullest memory in use, over stages: shape (plans,). Above 1: no fit. 0: no limit."""
        return self.holding.used(self._held_hkgv)[:, 0]

    @property
    def least_held_mr(self) -> Floats:
        """Least bytes that a chip of every stage holds in each memory: shape (memories, stages)."""
        return self.holding.bytes_held(self._held_hkgv)[:, :, 0]

    def seconds(self, layer_k: Floats) -> Floats:
        """Lower bounds on the seconds per step of every plan, valid for every mapping: float array, shape (plans,).

        Whether the plan fits memory is not asked.

        Parameters
        ----------
        layer_k : float array, s, shape (kinds,)
            Further lower bounds on the seconds of a layer of every kind for one microbatch.
        """
        layer_krv = np.maximum(self._layer_krv, np.reshape(layer_k, (-1, 1, 1)))
        return self.steps.of_stages(layer_krv, self._transfers, self._longest_rv)[:, 0]

    def most(self, cutoff: float) -> float:
        """Largest seconds of a layer with which the step of some plan may be below a cutoff, s; see `StepBounds.most`.

        Of graphs with one kind of layer only.
        """
        return float(self.steps.most(cutoff, np.zeros(1), 0, self._transfers).max())

    @cached_property
    def least_i(self) -> Floats:
        """Lower bound on the step under each plan, s, from the least work of kernels alone: shape (plans,)."""
        return self.seconds(np.zeros(1))

    def intervals(self) -> Floats:
        """Least seconds of the slowest pipeline stage of every plan for one microbatch: float array, shape (plans,).

        With ``two_batch_overlap`` for two, which take turns.
        """
        return self.steps.slowest(self._layer_krv, self._transfers, self._longest_rv)[:, 0]

    def stage_seconds(self, resource: str) -> Floats:
        """Least seconds of one resource of a chip in every stage for one microbatch: float array, shape (stages,).

        0 for a resource that is none of :attr:`dfopt.terms.chip.ChipModel.resources`.
        """
        if resource not in self._chip.resources:
            return np.zeros(len(self.plan_r))
        seconds_sk = self._by_kind(np.ones(len(self.kind_k), dtype=bool))[self._chip.resources.index(resource)]
        return np.asarray((self.average_rk * seconds_sk[self._shared_r]).sum(axis=1))

    # -- the least of layers ------------------------------------------------------------------------------------------

    @cached_property
    def _chip(self) -> ChipModel:
        return chip_of(self.setting.system, self.setting.assumptions, bounding=True)

    @cached_property
    def _shared_r(self) -> Ints:
        """The work of a chip that each stage has, as its number."""
        return self.shared_g[self.group_r]

    @cached_property
    def _seconds_tsk(self) -> Floats:
        """Least seconds of each resource in which a chip runs every kernel for one microbatch."""
        firsts = np.unique(self.shared_g, return_index=True)[1]
        every = np.array([WorkBounds(self.instances[g]).seconds for g in firsts.tolist()])
        return np.moveaxis(every, 1, 0)[: len(self._chip.resources)]

    def _by_kind(self, some_k: Bools) -> Floats:
        """The sums over some kernels of a layer of every kind: shape (resources, works of a chip, kinds)."""
        of_kind_kn = np.equal.outer(self.kind_k, np.arange(self.runs_rk.shape[1])) & some_k[:, None]
        return np.asarray(self._seconds_tsk @ of_kind_kn.astype(float))

    def _by_stage(self, seconds_sk: Floats) -> Floats:
        """Seconds of layers in every stage: shape (kinds, stages, 1)."""
        return seconds_sk[self._shared_r].T[:, :, None]

    @cached_property
    def _layer_krv(self) -> Floats:
        """Least seconds of one layer of every kind for one microbatch, all of its passes together.

        The sums of its kernels overlap as in a partition.
        """
        return self._by_stage(combine(self._by_kind(np.ones(len(self.kind_k), dtype=bool)), self._chip))

    @cached_property
    def _longest_rv(self) -> Floats:
        """Seconds of the kernels that take longest of those that must share a stage, with a chip to themselves.

        Some stage runs them, where kernels are drawn once.
        """
        together_kn = np.equal.outer(in_one_stage(self.setting.graph), np.arange(len(self.kind_k))).astype(float)
        longest_s = combine(self._seconds_tsk @ together_kn, self._chip).max(axis=1)
        return np.where(self.share_r < 1, longest_s[self._shared_r], 0.0)[:, None]

    @cached_property
    def _held_hkgv(self) -> Floats:
        """What one layer of every kind holds at least."""
        firsts = np.unique(self.shared_g, return_index=True)[1]
        held_shk = np.array([WorkBounds(self.instances[g]).held.T for g in firsts.tolist()])
        return np.moveaxis(held_shk, 0, 2)[:, :, self.shared_g, None]

    @cached_property
    def _transfers(self) -> Transfers:
        """Seconds of transfers, at least; no more is known of messages between stages."""
        messages = self.steps.messages
        added_iv, exchanged = np.zeros((len(self.plans), 1)), None
        if messages.hides:
            each = zip(*(WorkBounds(instance).exchanged for instance in self.instances), strict=True)
            exchanged = tuple(np.array(each_gk)[:, :, None] for each_gk in each)
        elif messages.trains:
            added_iv = messages.slowest(np.array([WorkBounds(instance).added for instance in self.instances]))[:, None]
        moving = self.moving.seconds(self._held_hkgv) if self.moving.any else None
        passes = self._passes if exchanged is not None or moving is not None else None
        return Transfers(np.zeros((len(self.plan_r), 1)), added_iv, exchanged, moving, passes)

    @property
    def _passes(self) -> PassSeconds:
        """Least seconds of both passes, however kernels are partitioned.

        Recomputation and weight updates count with the backward pass. That has nothing unless ``forward_backward`` is
        ``separate``: else all partitions may hold forward kernels, and so count with the forward pass. Memory time and
        compute time of the backward pass, as Calculon counts them, are without what runs again.
        """
        pass_k = np.array([kernel.pass_ for kernel in self.setting.graph.kernels])
        forward_k, again_k = pass_k == "forward", pass_k == "recompute"
        separate = float(self.assumptions.forward_backward == "separate")
        ahead_tsk, late_tsk = self._by_kind(forward_k), self._by_kind(~forward_k & ~again_k)
        seen_tsk = self._by_kind(~forward_k & ~frees_memory_k(self.setting))
        fields = (
            combine(ahead_tsk, self._chip), separate * combine(self._by_kind(~forward_k), self._chip),
            ahead_tsk[1], separate * seen_tsk[1], late_tsk[1], late_tsk[0],
        )  # fmt: skip
        return PassSeconds(*map(self._by_stage, fields))
