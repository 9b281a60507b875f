"""What pipeline stages of many plans hold, for many vectors of options: :mod:`dfopt.terms.step.ledger` as arrays.

States are linear in what a layer holds (:data:`dfopt.terms.rules.HELD`), but for those that only the layer at work has:
of these the largest kind of layer counts. Everything is non-decreasing in every figure, so least figures give a lower
bound on bytes.

Suffixes: r distinct pipeline stage of a plan (those of all plans in a row), i plan, k kind of layer, h what a layer
holds, v vector of options.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dfopt.arrays import Bools, Floats
from dfopt.documents.plan import Plan
from dfopt.setting.instance import Instance
from dfopt.setting.reads import ByReads
from dfopt.terms.bounds import PlanTable
from dfopt.terms.rules import HELD
from dfopt.terms.rules.held import waits
from dfopt.terms.step.ledger import OF_LAYERS, State, chips_of, in_flight, reserved, states_of, usable_bytes

__all__ = ["Holding"]


@dataclass(frozen=True, eq=False)
class Holding:
    """Bytes that one chip of each pipeline stage holds of plans under which everything lies in the fastest memory.

    Attributes
    ----------
    table : PlanTable
        The plans, with the layers of their stages.
    """

    table: PlanTable

    @cached_property
    def capacity(self) -> float:
        """Usable bytes of the fastest memory; infinite without a limit."""
        setting = self.table.work.setting
        return usable_bytes(setting).get(setting.system.chip.fastest_tier, math.inf)

    @cached_property
    def counts_waiting(self) -> bool:
        """Whether tensors that wait between partitions take up room of the fastest memory."""
        return math.isfinite(self.capacity) and waits(self.table.work.setting)

    def bytes_held(self, held_hkv: Floats) -> Floats:
        """Bytes that one chip of every stage holds, without tensors that wait between partitions.

        Parameters
        ----------
        held_hkv : float array, shape (HELD, kinds, vectors)
            What one layer of every kind holds for one microbatch, in the order of :data:`dfopt.terms.rules.HELD`.

        Returns
        -------
        float array, B, shape (stages, vectors)
            A lower bound if ``held_hkv`` is.
        """
        linear: Floats = np.einsum("rkh,hkv->rv", self.of_layers, held_hkv)
        return linear + self._beside_layers(held_hkv)

    @property
    def of_layers(self) -> Floats:
        """Bytes of every stage for each of what a layer of a kind holds: float array, shape (stages, kinds, HELD)."""
        return self._linear[0]

    def room_of_layers(self, held_hkv: Floats) -> Floats:
        """Bytes left at most for what :attr:`of_layers` counts, with what layers hold at least.

        Float array, B, shape (stages, vectors).
        """
        return self.capacity - self._beside_layers(held_hkv)

    def _beside_layers(self, held_hkv: Floats) -> Floats:
        """Bytes of what no scheme changes, and of the layers at work."""
        total = np.repeat(self._linear[1][:, None], held_hkv.shape[2], axis=1)
        runs_rk = self.table.runs_rk
        for lifetime, each_rh, times_r in self._at_work:
            layer_rkv = np.einsum("rh,hkv->rkv", each_rh, held_hkv)
            largest_rv = np.where(runs_rk[:, :, None] > 0, layer_rkv, 0.0).max(axis=1)
            if lifetime == "others":
                total += np.einsum("rk,rkv->rv", runs_rk, layer_rkv) - largest_rv
            else:
                total += times_r[:, None] * largest_rv
        return total

    def room(self, held_hkv: Floats) -> Floats:
        """Bytes that are left for tensors that wait between the partitions of a layer, by plan and kind.

        Parameters
        ----------
        held_hkv : float array, shape (HELD, kinds, vectors)
            What one layer of every kind holds for one microbatch.

        Returns
        -------
        float array, B, shape (kinds, plans, vectors)
            Of the fullest stage that runs the kind; infinite without a limit, or if none does. Negative for all kinds
            if some stage of the plan holds more than there is.
        """
        listed_rk, first = self._listed_rk, self.table.first_i
        if math.isinf(self.capacity):
            return np.full((listed_rk.shape[1], len(first), held_hkv.shape[2]), np.inf)
        left_rv = self.capacity - self.bytes_held(held_hkv)
        fits_iv = np.minimum.reduceat(left_rv, first, axis=0) >= 0
        left_krv = np.where(listed_rk.T[:, :, None], left_rv, np.inf)
        left_kiv = np.minimum.reduceat(left_krv, first, axis=1)
        return np.where(fits_iv, left_kiv if self.counts_waiting else np.inf, -1.0)

    @cached_property
    def _listed_rk(self) -> Bools:
        """Kinds of layers that a stage runs, with those that it runs 0 times, such as a stage of an embedding only.

        The judge and the ledger have room for what waits in these, too.
        """
        listed_rk = np.zeros(self.table.runs_rk.shape, dtype=bool)
        for r, stage in enumerate(self.table.stages):
            listed_rk[r, [kind for kind, _ in stage.runs]] = True
        return listed_rk

    @cached_property
    def _states(self) -> tuple[list[State], Floats, Floats]:
        """All states, what each has of what a layer holds, shape (states, HELD), and of its tables, (states, kinds)."""
        setting, kinds = self.table.work.setting, self.table.work.kinds
        columns: dict[State, int] = {}
        entries: list[tuple[int, int, int, float]] = []  # state, kind or -1, HELD, bytes

        def add(states: Iterable[State], kind: int, of: int) -> None:
            for state in states:
                column = columns.setdefault(replace(state, bytes=0.0), len(columns))
                entries.append((column, kind, of, state.bytes))

        for h in range(len(HELD)):
            add(states_of(setting, (), np.eye(len(HELD))[h].tolist()), -1, h)
        for kind, kernels in enumerate(kinds):
            add(states_of(setting, kernels), kind, -1)
        of_held, of_tables = np.zeros((len(columns), len(HELD))), np.zeros((len(columns), len(kinds)))
        for column, kind, h, size in entries:
            if kind < 0:
                of_held[column, h] += size
            else:
                of_tables[column, kind] += size
        return list(columns), of_held, of_tables

    @cached_property
    def _chips_rc(self) -> Floats:
        """Chips that share out each state, by stage."""
        states, question, setting = self._states[0], ByReads(), self.table.work.setting

        def chips(plan: Plan) -> list[int]:
            return [chips_of(Instance(setting, plan), state) for state in states]

        chips_gc = np.array([question.answer(one.plan, chips) for one in self.table.instances], dtype=float)
        return chips_gc.reshape(len(self.table.instances), -1)[self.table.group_i[self.table.plan_r]]

    @cached_property
    def _waiting_rk(self) -> Floats:
        """Microbatches whose saved activations each stage holds, by kind of layer."""
        setting, kinds = self.table.work.setting, range(self.table.runs_rk.shape[1])
        questions = defaultdict[int, ByReads](ByReads)
        found = []
        for i, stage in zip(self.table.plan_r.tolist(), self.table.stages, strict=True):

            def of(plan: Plan, stage: object = stage) -> list[float]:
                return [in_flight(Instance(setting, plan), stage, kind) for kind in kinds]  # type: ignore[arg-type]

            found.append(questions[stage.number].answer(self.table.plans[i], of))
        return np.array(found, dtype=float).reshape(self.table.runs_rk.shape)

    @cached_property
    def _linear(self) -> tuple[Floats, Floats]:
        """Bytes of every stage for what layers hold, shape (stages, kinds, HELD), and bytes that no scheme changes."""
        states, of_held, of_tables = self._states
        runs_rk, instances = self.table.runs_rk, self.table.instances
        group_r = self.table.group_i[self.table.plan_r]
        microbatches_r = np.array([one.plan.microbatches for one in instances], dtype=float)[group_r]
        taken_r = np.array([reserved(one) for one in instances])[group_r]
        linear_rkh = np.zeros((*runs_rk.shape, len(HELD)))
        for c, state in enumerate(states):
            if state.lifetime in OF_LAYERS:
                assert not of_tables[c].any(), "tables are there for every layer"
                continue
            count_rk = runs_rk / self._chips_rc[:, [c]]
            if state.lifetime == "microbatch":
                count_rk = count_rk * self._waiting_rk
            elif state.lifetime == "sequences":
                count_rk = count_rk * microbatches_r[:, None]
            linear_rkh += count_rk[:, :, None] * of_held[c]
            taken_r = taken_r + count_rk @ of_tables[c]
        return linear_rkh, taken_r

    @cached_property
    def _at_work(self) -> list[tuple[str, Floats, Floats]]:
        """States of the layer at work: lifetime, bytes of each of what a layer holds, and how many layers count."""
        states, of_held, _ = self._states
        plan_r, assumptions = self.table.plan_r, self.table.work.setting.assumptions
        zero_r = np.array([plan.zero or 0 for plan in self.table.plans])[plan_r]
        layers_r = np.minimum(assumptions.layers_exchanged or 1, self.table.runs_rk.sum(axis=1))
        groups: dict[tuple[str, str, int], list[int]] = defaultdict(list)
        for c, state in enumerate(states):
            if state.lifetime in OF_LAYERS:
                groups[state.name, state.lifetime, state.exists_from].append(c)
        assert len({key[:2] for key in groups}) == len(groups), "states of one name and lifetime begin at one level"
        found = []
        for (_, lifetime, exists_from), mine in groups.items():
            each_rh = sum(of_held[c] / self._chips_rc[:, [c]] for c in mine)
            times_r = layers_r if lifetime == "exchange" else np.ones(len(layers_r))
            found.append((lifetime, np.asarray(each_rh), np.where(zero_r >= exists_from, times_r, 0.0)))
        return found
