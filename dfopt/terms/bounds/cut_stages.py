"""What pipeline stages send, hold and take whose kernels are drawn once: each stage is what lies between two cuts.

A *cut* is the set of the kernels of all stages in front of it. A stage that sends something to one further on has it
relayed: it crosses every cut in between, and the sending side of each pays. All is non-decreasing in seconds of work,
in bytes of gradients and in what kernels hold: least figures give a lower bound.

Suffixes: i plan, u cut, p stage (a pair of cuts of which the second holds the first), m message, k kernel, n label, x
figure of a pipeline that is not complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.physics.copies import exchanged
from dfopt.physics.fill import NO_STAGE, appended
from dfopt.setting.instance import Instance
from dfopt.setting.reads import memoized
from dfopt.terms.bounds.steps import StepBounds
from dfopt.terms.layer import Layer, counts_training
from dfopt.terms.step.hops import sent_s
from dfopt.terms.step.optimizer import optimizer_seconds


@dataclass(frozen=True, eq=False)
class CutStages:
    """Times and messages of pipeline stages between any two cuts of an unrolled graph.

    Attributes
    ----------
    steps : StepBounds
        The plans. Each has several stages, and the graph is not folded.
    layer : Layer
        Kernels and tensors.
    set_uk : bool array, shape (cuts, kernels)
        Kernels of every cut: the first has none, the last all.
    """

    steps: StepBounds
    layer: Layer
    set_uk: Bools

    @cached_property
    def pairs(self) -> tuple[Ints, Ints]:
        """Cuts in front of and behind every stage, as two int arrays; a stage may be empty."""
        inside_uu = ~(self.set_uk[:, None] & ~self.set_uk[None]).any(axis=2)
        before_p, after_p = np.nonzero(inside_uu)
        return before_p.astype(np.int64), after_p.astype(np.int64)

    @cached_property
    def member_pk(self) -> Floats:
        """Membership of kernels in every stage: 1 or 0, shape (stages, kernels)."""
        before_p, after_p = self.pairs
        return (self.set_uk[after_p] & ~self.set_uk[before_p]).astype(np.float64)

    def stage_totals(self, figure_vk: Floats) -> Floats:
        """Sum of a figure over the kernels of every stage, by the cuts around it: shape (vectors, cuts, cuts)."""
        sum_vu = figure_vk @ self.set_uk.T.astype(np.float64)
        return np.asarray(sum_vu[:, None, :] - sum_vu[:, :, None])

    # -- messages -----------------------------------------------------------------------------------------------------

    @cached_property
    def _messages(self) -> tuple[list[tuple[int, float]], Floats, Floats]:
        """Sources and bytes of what may be sent, and which messages cross each cut, to the next stage and back."""
        forward_k = np.array([kernel.pass_ == "forward" for kernel in self.layer.kernels])
        messages, on_mu, back_mu = list[tuple[int, float]](), list[Bools](), list[Bools]()
        for fan in self.layer.fan_outs:
            readers, source_u = np.array(fan.kernels), self.set_uk[:, fan.source]
            back_r = ~forward_k[fan.source] & ~forward_k[readers]
            if fan.carried:
                continue
            messages.append((fan.source, fan.bytes))
            on_mu.append(source_u & ~self.set_uk[:, readers[~back_r]].all(axis=1))
            back_mu.append(~source_u & self.set_uk[:, readers[back_r]].any(axis=1))
        shape = len(messages), len(self.set_uk)
        return messages, np.array(on_mu, dtype=float).reshape(shape), np.array(back_mu, dtype=float).reshape(shape)

    def hops(self, plan: int, output_vk: Floats, *, least: bool) -> Floats:
        """Seconds in which every stage sends to its neighbours for one microbatch.

        Parameters
        ----------
        plan : int
            Number of the plan.
        output_vk : float array, no unit, shape (vectors, kernels)
            Share of every kernel's output that one chip holds.
        least : bool
            Whether these are the least over several options, so that the result is a lower bound.

        Returns
        -------
        float array, s, shape (vectors, cuts, cuts)
            Seconds of messages, by the cuts before and after the stage.
        """
        messages, on_mu, back_mu = self._messages
        seconds_vm = np.zeros((len(output_vk), len(messages)))
        for m, (k, tensor_bytes) in enumerate(messages):
            share_n, place_v = np.unique(output_vk[:, k], return_inverse=True)
            each_n = np.array([self._sent(tensor_bytes, share, least)[plan] for share in share_n.tolist()])
            seconds_vm[:, m] = each_n[place_v]
        return np.asarray((seconds_vm @ back_mu)[:, :, None] + (seconds_vm @ on_mu)[:, None, :])

    def sent_by_option(self, kernel: int, share_o: Floats) -> Floats:
        """Seconds of each message of a kernel's output by option, over plans: shape (options, any)."""
        seconds = [
            np.array([self._sent(tensor_bytes, share, False) for share in share_o.tolist()])
            for source, tensor_bytes in self._messages[0]
            if source == kernel
        ]
        return np.concatenate([np.zeros((len(share_o), 0)), *seconds], axis=1)

    @memoized
    def _sent(self, tensor_bytes: float, share: float, least: bool) -> Floats:
        """Seconds of one message, by plan."""
        return np.array(self.steps.table.of_plans(lambda instance: sent_s(instance, tensor_bytes, share, least=least)))

    # -- seconds ------------------------------------------------------------------------------------------------------

    def busy(self, plan: int, work_vuu: Floats, hop_vuu: Floats) -> Floats:
        """Seconds of every stage for one microbatch, from those of its partitions and of its messages.

        They are the larger of the two where the stages of the plan work while they send, else the sum.

        Parameters
        ----------
        plan : int
            Number of the plan.
        work_vuu, hop_vuu : float arrays, s, shape (vectors, cuts, cuts), or (cuts, cuts) of one vector
            Seconds of partitions, and of messages (:meth:`hops`), by the cuts before and after the stage.

        Returns
        -------
        float array, s
            Seconds of stages, in the same shape.
        """
        hides = self.steps.table.hides_hops_i[plan]
        return np.maximum(work_vuu, hop_vuu) if hides else work_vuu + hop_vuu

    def added(self, plan: int, gradient_k: Floats, weight_k: Floats) -> Floats:
        """Seconds per step of every stage for its gradient exchange and optimizer.

        Parameters
        ----------
        plan : int
            Number of the plan.
        gradient_k, weight_k : float arrays, B, shape (kernels,)
            Bytes of every kernel's weight gradient as copies add it up, and of its weight, on one chip.

        Returns
        -------
        float array, s, shape (cuts, cuts)
            As :func:`dfopt.terms.step.hops.added_by_kind` has them.
        """
        instance = Instance(self.steps.table.setting, self.steps.table.plans[plan])
        if not counts_training(instance.graph, instance.assumptions):
            return np.zeros((len(self.set_uk), len(self.set_uk)))
        added_p = self.member_pk @ optimizer_seconds(instance, np.arange(len(weight_k)), weight_k)
        for dims, share_k in instance.adding:
            volume_k = share_k * gradient_k
            both_kx = np.stack([volume_k, volume_k * instance.setting.weight_word_k], axis=1)
            both_nx, place_p = np.unique(self.member_pk @ both_kx, axis=0, return_inverse=True)
            price = instance.communication_s
            each_n = [exchanged(instance.plan, dims, gradient, weight, price) for gradient, weight in both_nx.tolist()]
            added_p = added_p + np.array(each_n)[place_p.ravel()]
        added_uu = np.zeros((len(self.set_uk), len(self.set_uk)))
        added_uu[self.pairs] = added_p
        return added_uu

    # -- pipelines ----------------------------------------------------------------------------------------------------

    @property
    def by_slowest(self) -> bool:
        """Whether the slowest stage decides the step; otherwise each stage's own time counts."""
        return self.steps.table.lines is None

    @property
    def no_stage(self) -> Floats:
        """Figures of an empty pipeline, to be extended by :meth:`grown`: shape (1, figures)."""
        return np.array([[0.0] if self.by_slowest else NO_STAGE])

    def grown(self, plan: int, behind: int, figure_nx: Floats, busy_n: Floats) -> Floats:
        """Figures of pipelines after one more stage is added at their end.

        Parameters
        ----------
        plan : int
            Number of the plan.
        behind : int
            Stages that will come behind it.
        figure_nx : float array, s, shape (labels, figures)
            Figures of the pipelines without it: the seconds of the slowest stage, or those of
            :func:`dfopt.physics.fill.appended` where the time of every stage is charged. At first :attr:`no_stage`.
        busy_n : float array, s, shape (labels,)
            Seconds of the further stage for one microbatch (:meth:`busy`).

        Returns
        -------
        float array, s, shape (labels, figures)
        """
        if self.by_slowest:
            return np.maximum(figure_nx, busy_n[:, None])
        table = self.steps.table
        assert table.lines is not None
        rounds, turns = float(table.rounds_i[plan]), table.lines[plan].turns
        return appended(figure_nx, busy_n, rounds, behind, turns=turns)

    def step(self, plan: int, figure_nx: Floats, added_n: Floats) -> Floats:
        """Seconds of a step from the figures of pipelines, and from what is added once.

        Parameters
        ----------
        plan : int
            Number of the plan.
        figure_nx : float array, s, shape (labels, figures)
            Figures of the pipelines, as :meth:`grown` returns them.
        added_n : float array, s, shape (labels,)
            Seconds once per step of the slowest stage in exchanges and the optimizer (:meth:`added`).

        Returns
        -------
        float array, s, shape (labels,)
            A lower bound where stages are still to come.
        """
        table = self.steps.table
        through_n = figure_nx.max(axis=1)
        if self.by_slowest:
            through_n = through_n * (table.rounds_i[plan] + table.fill_i[plan])
        step_n: Floats = through_n + added_n + self.steps.once_i[plan]
        return step_n
