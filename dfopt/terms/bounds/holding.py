"""What pipeline stages of many plans hold, for many vectors of options: :mod:`dfopt.terms.step.ledger` as arrays.

States are linear in what a layer holds (:data:`dfopt.terms.rules.HELD`), but for two kinds in the fastest memory: those
that only the layer at work has, of which the largest kind of layer counts, and copies of what lies in slower memories
while the graph trains. Everything is non-decreasing in every figure, so least figures give a lower bound on bytes.

Suffixes: m memory of a chip, the fastest first; r distinct pipeline stage of a plan (those of all plans in a row), i
plan, g group of plans that differ in layers of stages only, k kind of layer, h what a layer holds, c state, v vector of
options. What layers hold has one group for all where all plans give a chip the same work.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np

from dfopt.arrays import Bools, Floats
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.placement import Item
from dfopt.physics.offload import buffered
from dfopt.setting.instance import Instance, Setting
from dfopt.terms.bounds.plan_arrays import PlanArrays
from dfopt.terms.rules import HELD
from dfopt.terms.rules.held import waits
from dfopt.terms.step.ledger import OF_LAYERS, State, chips_of, in_flight, offloaded, reserved, states_of, usable_bytes


@dataclass(frozen=True, eq=False)
class Holding:
    """Bytes that one chip of each pipeline stage holds in each of its memories.

    Attributes
    ----------
    table : PlanArrays
        The plans, with the layers of their stages.
    """

    table: PlanArrays

    @cached_property
    def capacity_m(self) -> Floats:
        """Usable bytes of every memory; infinite without a limit."""
        setting = self.table.setting
        limits = usable_bytes(setting)
        return np.array([limits.get(name, math.inf) for name in setting.system.chip.tiers])

    @property
    def limited(self) -> bool:
        """Whether any memory has a limit."""
        return bool(np.isfinite(self.capacity_m).any())

    @cached_property
    def counts_waiting(self) -> bool:
        """Whether tensors that wait between partitions use the fastest memory."""
        return math.isfinite(self.capacity_m[0]) and waits(self.table.setting)

    def bytes_held(self, held_hkgv: Floats) -> Floats:
        """Bytes that one chip of every stage holds, without tensors that wait between partitions.

        Parameters
        ----------
        held_hkgv : float array, shape (HELD, kinds, groups, vectors)
            Amounts that one layer of every kind stores for one microbatch, in the order of
            :data:`dfopt.terms.rules.HELD`.

        Returns
        -------
        float array, B, shape (memories, stages, vectors)
            A lower bound if ``held_hkgv`` is.
        """
        linear: Floats = np.einsum("mrkh,hkrv->mrv", self.of_layers, self._by_stage(held_hkgv))
        return linear + self._beside_layers(held_hkgv)

    def used(self, held_hkgv: Floats) -> Floats:
        """Share of the fullest memory in use, over the stages of each plan: shape (plans, vectors).

        Above 1 it does not fit; 0 without limits. A lower bound if ``held_hkgv`` is.
        """
        used_mrv = self.bytes_held(held_hkgv) / self.capacity_m[:, None, None]
        return self.table.slowest(used_mrv.max(axis=0))

    def _by_stage(self, held_hkgv: Floats) -> Floats:
        """What layers hold, by stage of a plan instead of group of plans."""
        return held_hkgv if held_hkgv.shape[2] == 1 else held_hkgv[:, :, self.table.group_r]

    @property
    def of_layers(self) -> Floats:
        """Bytes for each unit that a layer of a kind stores: float array, shape (memories, stages, kinds, HELD).

        Of kernels that are drawn once an average stage has its share.
        """
        linear_mrkh = self._lying_mrkc @ self._states[1]
        return np.asarray(linear_mrkh * self.table.share_r[:, None, None])

    def room_of_layers(self, held_hkgv: Floats) -> Floats:
        """Upper bound on the bytes left for what :attr:`of_layers` counts, given least amounts of layers.

        Float array, B, shape (memories, stages, vectors).
        """
        return self.capacity_m[:, None, None] - self._beside_layers(held_hkgv)

    def _beside_layers(self, held_hkgv: Floats) -> Floats:
        """Bytes of what no scheme changes, of the layers at work, and of copies of what lies elsewhere."""
        share_r, held_hkrv = self.table.share_r, self._by_stage(held_hkgv)
        tables_rkc, runs_rk = self._tables_gkc[self.table.group_r], self.table.runs_rk
        tables_mr = share_r * np.einsum("mrkc,rkc->mr", self._lying_mrkc, tables_rkc)
        total = np.repeat(tables_mr[:, :, None], held_hkgv.shape[3], axis=2)
        total[0] += self.reserved_r[:, None]
        for lifetime, once_rc, times_r in self._at_work:
            share_rc = share_r[:, None] * once_rc
            layer_rkv = np.einsum("rh,hkrv->rkv", share_rc @ self._states[1], held_hkrv)
            layer_rkv += np.einsum("rc,rkc->rk", share_rc, tables_rkc)[:, :, None]
            largest_rv = np.where(runs_rk[:, :, None] > 0, layer_rkv, 0.0).max(axis=1)
            if lifetime == "others":
                largest_rv = np.einsum("rk,rkv->rv", runs_rk, layer_rkv) - largest_rv
            total[0] += times_r[:, None] * largest_rv
        for item, once_gkv in self.of_layer_elsewhere(held_hkgv).items():
            of_layers, of_tables = self._elsewhere[item]
            all_rv = np.einsum("rkh,hkrv->rv", of_layers, held_hkrv) + of_tables[:, None]
            largest_rv = np.where(runs_rk[:, :, None] > 0, once_gkv[self.table.group_r], 0.0).max(axis=1)
            total[0] += share_r[:, None] * _copied(all_rv, largest_rv, item, self.table.assumptions)
        return total

    def bytes_by_kernel(self, plan: int, held_vhk: Floats) -> Floats:
        """Bytes that one chip of a pipeline stage stores for each of its kernels, in an unrolled graph.

        Nothing lies in slower memories while the graph trains.

        Parameters
        ----------
        plan : int
            Number of the plan.
        held_vhk : float array, shape (vectors, HELD, kernels)
            Amounts that every kernel stores for one microbatch.

        Returns
        -------
        float array, B, shape (memories, vectors, kernels)
            Without tensors that wait between partitions, and without :attr:`reserved_r`.
        """
        row, (_, of_held, of_tables) = int(self.table.first_i[plan]), self._states
        lying_mc = self._lying_mrkc[:, row, 0].copy()
        for lifetime, once_rc, times_r in self._at_work:
            if lifetime != "others":  # the stage is the layer at work
                lying_mc[0] += times_r[row] * once_rc[row]
        tables_mk = lying_mc @ of_tables[self.table.under_i[plan].setting]
        return np.asarray(np.einsum("mh,vhk->mvk", lying_mc @ of_held, held_vhk) + tables_mk[:, None])

    def room(self, held_hkgv: Floats, slack: float = 0.0) -> Floats:
        """Bytes left for tensors that wait between the partitions of a layer, by plan and kind.

        Parameters
        ----------
        held_hkgv : float array, shape (HELD, kinds, groups, vectors)
            What one layer of every kind holds for one microbatch.
        slack : float
            Share by which each memory is taken to be larger: sums of bytes are rounded.

        Returns
        -------
        float array, B, shape (kinds, plans, vectors)
            In the fastest memory, of the fullest stage that runs the kind; infinite without a limit, or if none does.
            Minus infinity if some stage of the plan holds more than there is in any memory. Where kernels are drawn
            once a stage may hold none of them: at most, all is left.
        """
        listed_rk, first = self._listed_rk, self.table.first_i
        if not self.limited:
            return np.full((listed_rk.shape[1], len(first), held_hkgv.shape[3]), np.inf)
        left_mrv = self.capacity_m[:, None, None] * (1 + slack) - self.bytes_held(held_hkgv)
        fits_iv = np.minimum.reduceat(left_mrv.min(axis=0), first, axis=0) >= 0
        most_r = self.capacity_m[0] * (1 + slack) - self.reserved_r
        most_rv = np.where(self.table.share_r[:, None] < 1, most_r[:, None], left_mrv[0])
        left_krv = np.where(listed_rk.T[:, :, None], most_rv, np.inf)
        left_kiv = np.minimum.reduceat(left_krv, first, axis=1)
        if not self.counts_waiting:
            left_kiv = np.full_like(left_kiv, np.inf)
        return np.where(fits_iv, left_kiv, -np.inf)

    @cached_property
    def _listed_rk(self) -> Bools:
        """Kinds of layers that a stage runs, with those that it runs 0 times, such as a stage of an embedding only.

        The judge and the ledger have room for what waits in these, too.
        """
        kinds = range(self.table.runs_rk.shape[1])
        return self.table.of_stages(lambda _, stage: [kind in dict(stage.runs) for kind in kinds]) > 0

    @cached_property
    def _states(self) -> tuple[list[State], Floats, dict[Setting, Floats]]:
        """All states, what each has of what a layer holds, shape (states, HELD), and of tables, (states, kernels).

        What chips see of a model has tables of its own, by setting.
        """
        settings = self.table.settings
        with_tables = dict.fromkeys(k for setting in settings for k in setting.graph.kernels if k.resident_bytes)
        of_units = [states_of(self.table.setting, (), unit) for unit in np.eye(len(HELD)).tolist()]
        of_kernel = {kernel: states_of(self.table.setting, (kernel,)) for kernel in with_tables}
        states = list(dict.fromkeys(replace(state, bytes=0.0) for state in chain(*of_units, *of_kernel.values())))

        def sizes(of: Sequence[Sequence[State]]) -> Floats:
            size_cx = np.zeros((len(states), len(of)))
            for x, each in enumerate(of):
                for state in each:
                    size_cx[states.index(replace(state, bytes=0.0)), x] += state.bytes
            return size_cx

        of_tables = {part: sizes([of_kernel.get(kernel, ()) for kernel in part.graph.kernels]) for part in settings}
        return states, sizes(of_units), of_tables

    @cached_property
    def _tables_gkc(self) -> Floats:
        """Bytes of each state of the tables of every kind of layer: float array, shape (groups, kinds, states)."""
        of_kind_nk = np.equal.outer(self.table.kind_k, np.arange(self.table.runs_rk.shape[1])).astype(float)
        tables_kc = {setting: (size_cn @ of_kind_nk).T for setting, size_cn in self._states[2].items()}
        return np.array([tables_kc[instance.setting] for instance in self.table.instances])

    @cached_property
    def _chips_gc(self) -> Floats:
        """Chips that share out each state, by group of plans."""
        return self._by_state_gc(chips_of)

    @cached_property
    def _memory_gc(self) -> Floats:
        """Number of the memory that each state lies in, by group of plans."""
        chip = self.table.setting.system.chip
        tiers = list(chip.tiers)
        return self._by_state_gc(lambda instance, state: tiers.index(instance.plan.tier_of(state.item, chip)))

    @cached_property
    def _away_gc(self) -> Bools:
        """Whether each state lies in a slower memory while the graph trains, by group of plans."""
        return self._by_state_gc(lambda instance, state: state.item in offloaded(instance)) > 0

    def _by_state_gc(self, of: Callable[[Instance, State], float]) -> Floats:
        """A figure of each state under the plans of every group: shape (groups, states)."""
        states = self._states[0]
        figures = self.table.of_groups(lambda instance: [of(instance, state) for state in states])
        return np.array(figures, dtype=float).reshape(len(figures), -1)

    @cached_property
    def _states_elsewhere(self) -> dict[Item, list[int]]:
        """Items that some plan offloads, with the states of each."""
        members_of = defaultdict[Item, list[int]](list)
        for c in np.flatnonzero(self._away_gc.any(axis=0)).tolist():
            item = self._states[0][c].item
            assert item is not None
            members_of[item].append(c)
        return members_of

    def of_layer_elsewhere(self, held_hkgv: Floats) -> dict[Item, Floats]:
        """Bytes that one chip holds of each offloaded item of one layer: float arrays, shape (groups, kinds, vectors).

        ``held_hkgv``: what one layer of every kind holds for one microbatch.
        """

        def of_state(c: int) -> Floats:
            once_gkv = np.einsum("h,hkgv->gkv", self._states[1][c], held_hkgv) + self._tables_gkc[:, :, [c]]
            return np.asarray((self._away_gc[:, c] / self._chips_gc[:, c])[:, None, None] * once_gkv)

        return {item: np.sum([of_state(c) for c in some], axis=0) for item, some in self._states_elsewhere.items()}

    @cached_property
    def _waiting_rk(self) -> Floats:
        """Microbatches whose saved activations each stage holds, by kind of layer."""
        kinds = range(self.table.runs_rk.shape[1])
        return self.table.of_stages(lambda instance, stage: [in_flight(instance, stage, kind) for kind in kinds])

    @cached_property
    def _lying_mrkc(self) -> Floats:
        """How often a chip of a stage has each state of a layer of every kind in each memory; not those at work.

        Of kernels that are drawn once a stage that has all of them. Float array, shape (memories, stages, kinds,
        states).
        """
        lies_mrc = self._memory_gc[self.table.group_r] == np.arange(len(self.capacity_m))[:, None, None]
        return np.asarray(self._count_rkc * lies_mrc[:, :, None])

    @cached_property
    def reserved_r(self) -> Floats:
        """Bytes of the fastest memory of every stage for buckets of gradients."""
        return np.asarray(np.array([reserved(instance) for instance in self.table.instances])[self.table.group_r])

    @cached_property
    def _count_rkc(self) -> Floats:
        """How often a chip of a stage has each state of the layers of every kind; those of layers at work count apart.

        Float array, shape (stages, kinds, states).
        """
        group_r = self.table.group_r
        count_rkc = self.table.runs_rk[:, :, None] / self._chips_gc[group_r][:, None, :]
        for c, state in enumerate(self._states[0]):
            if state.lifetime == "microbatch":
                count_rkc[:, :, c] *= self._waiting_rk
            elif state.lifetime == "sequences":
                of_group = np.array([instance.plan.microbatches for instance in self.table.instances], dtype=float)
                count_rkc[:, :, c] *= of_group[group_r, None]
            elif state.lifetime in OF_LAYERS:
                count_rkc[:, :, c] *= self._away_gc[group_r, c][:, None]
        return count_rkc

    @cached_property
    def _at_work(self) -> list[tuple[str, Floats, Floats]]:
        """States of the layer at work: of each lifetime how often a chip has each state of one layer, (stages, states).

        And how many layers count, (stages,).
        """
        states = self._states[0]
        plan_r, assumptions = self.table.plan_r, self.table.setting.assumptions
        zero_r = np.array([plan.zero or 0 for plan in self.table.plans])[plan_r]
        layers_r = np.minimum(assumptions.layers_exchanged or 1, self.table.runs_rk.sum(axis=1))
        groups: dict[tuple[str, str, int], list[int]] = defaultdict(list)
        for c, state in enumerate(states):
            if state.lifetime in OF_LAYERS:
                groups[state.name, state.lifetime, state.exists_from].append(c)
        assert len({key[:2] for key in groups}) == len(groups), "states of one name and lifetime begin at one level"
        at_work = []
        for (_, lifetime, exists_from), members in groups.items():
            assert len({states[c].item for c in members}) == 1, "states of one name and lifetime lie together"
            once_rc = np.isin(np.arange(len(states)), members) / self._chips_gc[self.table.group_r]
            times_r = layers_r if lifetime == "exchange" else np.ones(len(layers_r))
            counts_r = (zero_r >= exists_from) & ~self._away_gc[self.table.group_r, members[0]]
            at_work.append((lifetime, once_rc, np.where(counts_r, times_r, 0.0)))
        return at_work

    @cached_property
    def _elsewhere(self) -> dict[Item, tuple[Floats, Floats]]:
        """Offloaded items: bytes of a stage for each of what a layer of a kind holds, and those of its tables."""
        bytes_of = dict[Item, tuple[Floats, Floats]]()
        for item, some in self._states_elsewhere.items():
            count_rkc = self._count_rkc[:, :, some] * self._away_gc[self.table.group_r][:, None, some]
            tables_rkc = self._tables_gkc[self.table.group_r][:, :, some]
            bytes_of[item] = count_rkc @ self._states[1][some], (count_rkc * tables_rkc).sum(axis=(1, 2))
        return bytes_of


def _copied(total: Floats, of_a_layer: Floats, item: Item, assumptions: Assumptions) -> Floats:
    """Bytes of the fastest memory for what lies elsewhere: :func:`dfopt.physics.offload.buffered` as arrays.

    So many layers, and where that is the rule, no more than there are.
    """
    layers, capped = (buffered(each, 1.0, item, assumptions) for each in (np.inf, 0.0))
    return np.minimum(total, layers * of_a_layer) if capped == 0.0 else layers * of_a_layer
