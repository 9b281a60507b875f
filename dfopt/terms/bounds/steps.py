"""What a step takes under many plans and many vectors of options at once, from the seconds of their layers.

The plans give a chip the same work, so a layer takes the same under all of them. They differ in how many layers a
pipeline stage holds, in how stages are joined, in how many copies of the batch exchange gradients, and in what slower
memories move beside the passes of a layer. Everything here is non-decreasing in the seconds of layers and of their
passes, in shares of outputs that are sent on, and in bytes of gradients: least figures give a lower bound. Figures of
known partitions give what a step takes.

Suffixes: i plan, g group of plans that differ in layers of stages only, r distinct pipeline stage of a plan (those of
all plans in a row), k kind of layer or kernel, v vector of options, q run of equal stages in a pipeline.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dfopt.arrays import ROUNDING, Bools, Floats
from dfopt.physics.fill import chains
from dfopt.physics.window import by_window
from dfopt.terms.bounds.exposed import Exchanging, Exposed
from dfopt.terms.bounds.passes import PassSeconds, with_moving
from dfopt.terms.bounds.plan_arrays import PlanArrays
from dfopt.terms.bounds.transfers import TransferBounds, Transfers
from dfopt.terms.step.hops import per_step_hops

_HALVINGS = 60
"""How often the interval is halved in which the step rule is turned around: 1e-18 of it are left."""
_POINTS = 63
"""Points of an interval that are looked at together, at most, over all plans: of few plans one takes as long as all."""


@dataclass(frozen=True, eq=False)
class StepBounds:
    """Steps of many plans with equal work of chips, for many vectors of options.

    Attributes
    ----------
    table : PlanArrays
        The plans, with the layers of their stages.
    """

    table: PlanArrays

    # -- what a step makes of its layers ------------------------------------------------------------------------------

    def of(self, layer_kv: Floats, transfers: Transfers, stage_rv: Floats | None = None) -> Floats:
        """Seconds of a step under every plan, for each vector of options.

        Parameters
        ----------
        layer_kv : float array, s, shape (kinds, vectors)
            Seconds of a layer of every kind for one microbatch. They may be infinite.
        transfers : Transfers
            Transfers in addition to the layers, for the same vectors, or for one that stands for all.
        stage_rv : float array, s, shape (stages, vectors), optional
            Seconds of all layers of a stage, at least, by what else is shown.

        Returns
        -------
        float array, s, shape (plans, vectors)
            Lower bounds, if the arguments are.
        """
        return self.of_stages(layer_kv[:, None, :], transfers, stage_rv)

    def of_stages(self, layer_krv: Floats, transfers: Transfers, least_rv: Floats | None = None) -> Floats:
        """Seconds of a step under every plan, from those of layers in every pipeline stage.

        Parameters
        ----------
        layer_krv : float array, s, shape (kinds, stages, vectors)
            Seconds of a layer of every kind for one microbatch, or with one stage for all. They may be infinite.
        transfers : Transfers
            Transfers in addition to the layers, for the same vectors, or for one that stands for all.
        least_rv : float array, s, shape (stages, vectors), optional
            Seconds of all layers of a stage, at least, by what else is shown.

        Returns
        -------
        float array, s, shape (plans, vectors)
            Lower bounds, if the arguments are.
        """
        alone_rv = self._stages(layer_krv)
        work_rv = self._work(layer_krv, alone_rv, transfers, least_rv)
        busy_rv = self._busy(work_rv, transfers)
        step_iv = self.of_busy(self._at_once_rv * busy_rv, transfers)
        if transfers.exchanged is not None:
            step_iv = step_iv + self._exposed(busy_rv, work_rv, alone_rv, transfers, transfers.exchanged)
        return step_iv

    def slowest(self, layer_krv: Floats, transfers: Transfers, least_rv: Floats | None = None) -> Floats:
        """Seconds of the slowest pipeline stage of each plan in a round, with its messages: shape (plans, vectors).

        Arguments are those of :meth:`of_stages`. In a round a stage takes as many microbatches as it takes at once.
        """
        work_rv = self._work(layer_krv, self._stages(layer_krv), transfers, least_rv)
        return self.table.slowest(self._at_once_rv * self._busy(work_rv, transfers))

    def _work(self, layer_krv: Floats, alone_rv: Floats, transfers: Transfers, least_rv: Floats | None) -> Floats:
        """Seconds of every stage for one microbatch without messages; ``alone_rv``: of its layers."""
        work_rv = alone_rv if transfers.moving is None else self._with_moving(layer_krv, transfers, transfers.moving)
        if self._sent_r.any():
            work_rv = np.maximum(work_rv, self._sent_r[:, None])
        return work_rv if least_rv is None else np.maximum(work_rv, least_rv)

    def _busy(self, work_rv: Floats, transfers: Transfers) -> Floats:
        """The same with messages."""
        hides_rv = self.table.hides_hops_i[self.table.plan_r, None]
        return np.where(hides_rv, np.maximum(work_rv, transfers.hop_rv), work_rv + transfers.hop_rv)

    @property
    def _at_once_rv(self) -> Floats:
        return self.table.at_once_i[self.table.plan_r, None]

    def of_busy(self, busy_rv: Floats, transfers: Transfers) -> Floats:
        """Seconds of a step from the seconds of every stage in a round, with messages: shape (plans, vectors).

        Without exchanges that passes may hide.
        """
        if self.table.lines is not None:
            through_iv = self._through(busy_rv, self.table.lines[0].turns)
        else:
            through_iv = self.table.slowest(busy_rv) * (self.table.rounds_i + self.table.fill_i)[:, None]
        step_iv: Floats = through_iv + transfers.added_iv + self.once_i[:, None]
        return step_iv

    def _stages(self, layer_krv: Floats) -> Floats:
        """Seconds of the layers of every stage; what never ends takes none where it is not run.

        Of kernels that are drawn once an average stage has its share, and the slowest no less.
        """
        runs_rk, total = self.table.average_rk, np.zeros((len(self.table.runs_rk), layer_krv.shape[2]))
        for k, each_rv in enumerate(layer_krv):
            total += _often(runs_rk[:, k], each_rv)
        return total

    def _with_moving(self, layer_krv: Floats, transfers: Transfers, moving: tuple[Floats, Floats]) -> Floats:
        """The same where layers wait for what slower memories move.

        Each pass of a layer takes the larger of two times: its work; and its moving plus its own use of the fastest
        memory. The second is less by :meth:`_hop_per_pass` for the last layer of each chunk.
        """
        runs_rk, total_rv = self.table.average_rk, np.zeros(())
        passes, hop_rv = self._passes(transfers), self._hop_per_pass(transfers)
        last_rk: Floats = np.minimum(self.table.interleave_i[self.table.plan_r, None], runs_rk)
        last_rk = last_rk * np.asarray((hop_rv > 0).any(axis=1))[:, None]
        for k, each_rv in enumerate(layer_krv):
            moved = moving[0][self.table.group_r, k], moving[1][self.table.group_r, k]
            work = passes.ahead_krv[k], passes.back_krv[k]
            memory = passes.ahead_memory_krv[k], passes.back_memory_krv[k]
            layer = np.asarray(each_rv), work, memory, moved
            total_rv = total_rv + _often(runs_rk[:, k] - last_rk[:, k], with_moving(*layer))
            if last_rk[:, k].any():
                total_rv = total_rv + _often(last_rk[:, k], with_moving(*layer, hop_rv))
        return total_rv

    def _hop_per_pass(self, transfers: Transfers) -> Floats:
        """Seconds of the message that hides moving beside the last layer of a chunk, in each pass of one microbatch.

        A chunk of layers sends a message to another pipeline stage when its last layer is done (Calculon, Isaev et al.,
        SC'23). The time of the message itself counts elsewhere. 0 unless Calculon's rules count, there are several
        pipeline stages, and these wait for messages.
        """
        if self.table.assumptions.offload != "calculon":
            return np.zeros((1, 1))
        plan_r = self.table.plan_r
        waits_r = (self.table.stages_i[plan_r] > 1) & ~self.table.hides_hops_i[plan_r]
        return waits_r[:, None] * transfers.hop_rv / (2 * self.table.interleave_i[plan_r, None])

    def _passes(self, transfers: Transfers) -> PassSeconds:
        return transfers.passes or PassSeconds(*np.zeros((6, self.table.runs_rk.shape[1], 1, 1)))

    def _exposed(
        self, busy_rv: Floats, work_rv: Floats, alone_rv: Floats, transfers: Transfers, exchanged: tuple[Floats, ...]
    ) -> Floats:
        """Seconds in which exchanges show that passes may hide; ``alone_rv``: without waits for slower memories."""
        passes, endless_rv = self._passes(transfers), np.isinf(busy_rv)
        plan_r = self.table.plan_r
        shown_rv = np.where(self.table.hides_hops_i[plan_r, None], 0.0, transfers.hop_rv)
        if transfers.exact and transfers.moving is not None:
            windows = by_window(self.table.assumptions, self.table.setting.graph)
            with np.errstate(invalid="ignore"):
                moving_rv = np.where(endless_rv, 0.0, work_rv - alone_rv)
            shown_rv = self._backward_waits(transfers, transfers.moving) if windows else shown_rv + moving_rv
        elif by_window(self.table.assumptions, self.table.setting.graph):
            shown_rv = np.zeros((1, 1))
        of_kinds = passes.ahead_krv, passes.back_krv, passes.memory_krv, passes.compute_krv
        stages = Exchanging(
            stage_rv=np.where(endless_rv, 0.0, busy_rv),
            exchanges=tuple(each_gkv[self.table.group_r] for each_gkv in exchanged),
            passes=tuple(np.moveaxis(_finite(each_krv), 0, 1) for each_krv in of_kinds),
            hop_rv=transfers.hop_rv / self.table.interleave_i[plan_r, None],
            waits_rv=shown_rv,
        )
        return self.exposed.seconds(stages, exact=transfers.exact)

    def _backward_waits(self, transfers: Transfers, moving: tuple[Floats, Floats]) -> Floats:
        """Seconds that a layer waits in its backward pass, on average over the layers of every stage; of one kind."""
        passes, hop_rv = self._passes(transfers), self._hop_per_pass(transfers)
        moved_rv = moving[1][self.table.group_r, 0]
        size_r = self.table.runs_rk.sum(axis=1)
        last_r = np.minimum(self.table.interleave_i[self.table.plan_r], size_r) * (hop_rv > 0).any(axis=1)

        def waits(hop: Floats | float) -> Floats:
            back_rv = _finite(passes.back_krv[0])
            over_rv = moved_rv + np.where(back_rv > 0, passes.back_memory_krv[0], 0.0) - (back_rv + hop)
            return np.where(moved_rv > 0, np.maximum(over_rv, 0.0), 0.0)

        total_rv = (size_r - last_r)[:, None] * waits(0.0) + last_r[:, None] * waits(hop_rv)
        return np.asarray(total_rv / np.maximum(size_r, 1.0)[:, None])

    @cached_property
    def exposed(self) -> Exposed:
        """Model of the exposed exchanges of data-parallel replicas."""
        return Exposed(self.table)

    @cached_property
    def _sent_r(self) -> Floats:
        """Seconds of what every stage sends while another microbatch computes."""
        kind_k, kinds = self.table.kind_k, self.table.runs_rk.shape[1]
        sent_gk = np.array([np.bincount(kind_k, instance.hidden_s, kinds) for instance in self.table.instances])
        return np.asarray((self.table.runs_rk * sent_gk[self.table.group_r]).sum(axis=1))

    def _through(self, busy_rv: Floats, turns: bool) -> Floats:
        """Seconds in which all microbatches are through, where the time of every stage is charged."""
        row_iq, count_iq = self.table.runs_iq
        seconds = np.moveaxis(busy_rv[self.table.first_i[:, None] + row_iq], 2, 1)  # (plans, vectors, runs)
        endless_iv: Bools = np.asarray(np.isinf(np.where(count_iq[:, None] > 0, seconds, 0.0)).any(axis=2))
        options = self.table.rounds_i[:, None], self.table.interleave_i[:, None]
        seconds = np.where(endless_iv[:, :, None], 0.0, seconds)
        through_ivc = chains(seconds, count_iq[:, None], *options, turns=turns)
        return np.where(endless_iv, np.inf, through_ivc.max(axis=2))

    def most(self, cutoff: float, layer_k: Floats, kind: int, transfers: Transfers) -> Floats:
        """Largest seconds of a layer of one kind with which the step is below a cutoff, by plan.

        The step rule is turned around by dividing intervals, so it is stated once.

        Parameters
        ----------
        cutoff : float, s
        layer_k : float array, s, shape (kinds,)
            Least seconds of the layers of every kind; the entry of ``kind`` is not read.
        kind : int
            The kind of layer that is asked about.
        transfers : Transfers
            Transfers of one vector: least figures.

        Returns
        -------
        float array, s, shape (plans,)
            A little more, so that rounding excludes nothing. Negative: no step of the plan is below the cutoff.
            Infinite where no cutoff is known, or a plan has no such layer.
        """
        if not np.isfinite(cutoff):
            return np.full(len(self.table.plans), np.inf)

        def step(seconds_iv: Floats) -> Floats:
            layer_kiv = np.repeat(layer_k[:, None], seconds_iv.size, axis=1).reshape(-1, *seconds_iv.shape)
            layer_kiv[kind] = seconds_iv
            return self.of_stages(layer_kiv[:, self.table.plan_r], transfers)

        plans = len(self.table.plans)
        low_i, high_i = np.zeros(plans), np.full(plans, max(cutoff, 0.0) + 1.0)
        at_all_i, always_i = (step(np.stack([low_i, high_i], axis=1)) <= cutoff).T
        parts = 1 + min(max(_POINTS // plans, 1), _POINTS)
        for _ in range(math.ceil(_HALVINGS / math.log2(parts))):
            point_in = low_i[:, None] + (high_i - low_i)[:, None] * (np.arange(parts + 1) / parts)
            below_i = (np.arange(1, parts) * (step(point_in[:, 1:-1]) <= cutoff)).max(axis=1)
            low_i, high_i = point_in[np.arange(plans), below_i], point_in[np.arange(plans), below_i + 1]
        most_i = np.where(always_i, np.inf, high_i * (1 + ROUNDING))
        return np.where(at_all_i, most_i, -1.0)

    @cached_property
    def messages(self) -> TransferBounds:
        """Model of messages, exchanges and the optimizer step."""
        return TransferBounds(self.table)

    # -- figures of plans ---------------------------------------------------------------------------------------------

    @cached_property
    def once_i(self) -> Floats:
        """Seconds per step of messages charged once, and of the fixed overhead: float array, shape (plans,)."""
        overhead = self.table.assumptions.step_overhead or 0.0
        return np.array(self.table.of_plans(per_step_hops), dtype=np.float64) + overhead


def _often(times_r: Floats, each_rv: Floats) -> Floats:
    """Seconds of so many layers; what never ends takes none where it is not run."""
    shape = np.broadcast_shapes((len(times_r), 1), each_rv.shape)
    return np.multiply(times_r[:, None], each_rv, where=times_r[:, None] > 0, out=np.zeros(shape))


def _finite(seconds: Floats) -> Floats:
    """Seconds, where what never ends has none."""
    return np.where(np.isfinite(seconds), seconds, 0.0)
