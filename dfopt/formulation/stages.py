"""What pipeline stages hold and take, as rows of a MILP over the times of blocks and the options of kernels.

Suffixes: k kernel, o option (all of a kernel, in its order), b block.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.formulation.block_rows import ChargeRows
from dfopt.formulation.held import AT_WORK, HeldBytes
from dfopt.formulation.overlapped import LayerSeconds, step_terms
from dfopt.milp import Terms
from dfopt.physics import ops
from dfopt.physics.collectives import NOTHING
from dfopt.physics.copies import exchanges
from dfopt.physics.metrics import Constants, step_seconds
from dfopt.physics.network import adds_up_at_once, affine
from dfopt.physics.pipeline import messages
from dfopt.setting.instance import Instance
from dfopt.setting.reads import memoized
from dfopt.setting.stages import PipelineStage
from dfopt.terms.incidence import Open
from dfopt.terms.kernel import LayerKernel, weight_bytes
from dfopt.terms.layer import FanOut, Layer
from dfopt.terms.step.hops import both_ways_at_once, hides_hops, per_step_hops, sent_once, sent_s
from dfopt.terms.step.ledger import limited
from dfopt.terms.step.optimizer import optimizer_seconds


class StageRows:
    """MILP rows for memory and time of pipeline stages.

    Parameters
    ----------
    instance : Instance
        The plan.
    layer : Layer
        The instance: work of the chips in one evaluation.
    blocks : ChargeRows
        Sums and times of blocks.
    stage_b : int array
        Stage of the mapping of each block.
    stage_k : int array or None
        Stage of each kernel. None: it is chosen.
    """

    def __init__(
        self, instance: Instance, layer: Layer, blocks: ChargeRows, stage_b: Ints, stage_k: Ints | None
    ) -> None:
        self.instance, self.layer, self.blocks = instance, layer, blocks
        self.choices, self.model = blocks.choices, blocks.model
        self.stage_b, self.stage_k = stage_b, stage_k

    # -- options in a stage of the mapping ------------------------------------------------------
    def _in_stage(self, kernel: int, number: int) -> Ints:
        """Columns of a kernel's options in a stage of the mapping, shape (options that are left, any)."""
        if self.stage_k is not None:
            columns = self.choices.s_ko[kernel]
            return (columns if self.stage_k[kernel] == number else np.full_like(columns, -1))[:, None]
        labels = tuple(range(len(self.choices.domain[kernel])))
        return self.choices.placed(kernel, (kernel,), (labels,))[:, self.stage_b == number]

    def _by_options(self, number: int, amount_ko: Iterable[Floats]) -> Terms:
        """What kernels in a stage of the mapping have of a figure of their options, as terms of one row."""
        terms: Terms = []
        for k, amount_o in enumerate(amount_ko):
            left = amount_o[list(self.choices.domain[k])]
            if left.any():
                columns = self._in_stage(k, number)
                terms.append((columns.reshape(1, -1), np.repeat(left, columns.shape[1])[None, :]))
        return terms

    # -- memory -------------------------------------------------------------------------------
    def hold(self, held: HeldBytes, *, waiting: bool) -> None:
        """Add memory limits of chips, optionally with tensors that wait between partitions."""
        for tier, capacity in limited(self.instance).items():
            for stage in self.instance.pipeline if np.isfinite(capacity) else ():
                self._hold(held, tier, max(capacity, 0.0), stage, waiting)

    def _hold(self, held: HeldBytes, tier: str, capacity: float, stage: PipelineStage, waiting: bool) -> None:
        model, name, unit = self.model, f"{tier}_{stage.number}", max(capacity, 1.0)
        H = model.continuous(f"held_{name}", (1,), 0.0, capacity / unit)
        parts: Terms = [(H, 1.0)]
        more: dict[str, Terms] = {}
        for number, _ in stage.runs:
            bytes_sko = held.by_option(tier, stage, number)
            parts += [(columns, -amounts / unit) for columns, amounts in self._by_options(number, bytes_sko[0])]
            for state, of_state in zip(AT_WORK, bytes_sko[1:], strict=True):
                terms = self._by_options(number, of_state)
                if terms:
                    if state not in more:
                        more[state] = [(model.continuous(f"{state}_{name}", (1,), 0.0), 1.0)]
                    rows = [more[state][0], *((columns, -amounts / unit) for columns, amounts in terms)]
                    model.rows(f"{state}_{name}_{number}", rows, lower=0)
        parts += [(of[0][0], -1.0) for of in more.values()]
        model.rows(f"held_{name}", parts, lower=0)
        if waiting and tier == self.instance.system.chip.fastest_tier:
            for number, _ in stage.runs:
                self._wait(number, f"{name}_{number}", H, unit, capacity)

    def _wait(self, number: int, name: str, H: Ints, unit: float, capacity: float) -> None:
        """What waits while each partition of a stage runs, beside what stays: the paper's L."""
        places = np.flatnonzero(self.stage_b == number)
        terms: Terms = [(np.full(len(places), H[0]), 1.0)]
        for columns, amounts in self._alive(number):
            terms.append((columns, amounts / unit))
        if len(terms) > 1:
            self.model.rows(f"dram_{name}", terms, upper=capacity / unit)

    @memoized
    def _alive(self, number: int) -> Terms:
        """Columns of tensors that are open while each partition of a stage runs, with their bytes."""
        terms, places = Terms(), np.flatnonzero(self.stage_b == number)
        for charge in self.blocks.table.charges:
            if charge.resource == "waiting_bytes":
                assert isinstance(charge.incidence, Open)
                terms.append(self._open(charge.incidence, *self.blocks.classified(charge), places))
        return terms

    def _open(
        self, incidence: Open, scope: tuple[int, ...], classes: tuple[tuple[int, ...], ...], amount: Floats,
        of_stage: Ints,
    ) -> tuple[Ints, Floats]:  # fmt: skip
        """A tensor is open from its source to its last reader, both included, unless one partition has them all."""
        model, places = self.model, len(of_stage)
        written = self.choices.placed(incidence.source, scope, classes).reshape(amount.size, -1)[:, of_stage]
        L = model.continuous(f"L_{len(model.row_blocks)}", (places, amount.size), 0.0, 1.0)
        until, before = np.tri(places, dtype=bool), np.tri(places, k=-1, dtype=bool)
        back = self.stage_k is None
        for reader in incidence.readers:
            read = self.choices.placed(reader, scope, classes).reshape(amount.size, -1)[:, of_stage]
            both = self.blocks.counting.both(incidence.source, reader, scope, classes)[:, of_stage]
            for f in range(amount.size):
                ends = [(written[f], read[f])] + [(read[f], written[f])] * back
                for way, (first, last) in enumerate(ends):
                    early, late = (until, before) if not way else (until.T, before.T)
                    terms: Terms = [
                        (L[:, f], 1.0),
                        (np.where(early, first, -1), -1.0),
                        (np.where(late, last, -1), 1.0),
                        (both[f], 1.0),
                    ]
                    model.rows(f"alive_{len(model.row_blocks)}", terms, lower=0)
        return L, np.broadcast_to(amount.ravel(), L.shape)

    # -- time ---------------------------------------------------------------------------------
    def minimize(self, time_b: Ints, forward_b: Bools | None = None) -> float:
        """Set the step of the plan as objective; return the seconds of one objective unit.

        The objective is the slowest pipeline stage, or the longest chain through all stages, plus the seconds of a step
        outside of stages. ``forward_b``: mask of the blocks with forward kernels, if exchanges between replicas hide
        behind all other blocks.
        """
        instance, model, line = self.instance, self.model, self.instance.line
        count = len(instance.pipeline)
        constants = Constants(instance.plan, instance.assumptions, line=line)
        most = max(times for stage in instance.pipeline for _, times in stage.runs)
        scale = most * self.blocks.unit_s
        none = step_seconds([0.0] * count, constants)
        rounds = step_seconds([1.0] * count, constants) - none
        unit = scale * rounds
        T, G = model.continuous("T", (1,)), model.continuous("G", (1,))
        T_s = np.repeat(T, count) if line is None and forward_b is None else model.continuous("T_s", (count,))
        if line is None and forward_b is not None:
            model.rows("slowest", [(np.repeat(T, count), 1.0), (T_s, -1.0)], lower=0)
        if line is not None:
            each = np.stack([line.chains(np.eye(count)[number].tolist()) for number in range(count)], axis=1) / rounds
            chains: Terms = [(np.repeat(T, len(each))[:, None], 1.0), (np.tile(T_s, (len(each), 1)), -each)]
            model.rows("chains", chains, lower=0)
        sent_of: list[Terms] = [
            [(columns.reshape(1, -1), np.reshape(seconds, (1, -1)) / scale) for columns, seconds in hop]
            for hop in self._hops()
        ]
        hides = hides_hops(instance)
        for place, (stage, hop) in enumerate(zip(instance.pipeline, sent_of, strict=True)):
            times_b = sum(times / most * (self.stage_b == number) for number, times in stage.runs)
            sent: Terms = [(columns, -np.asarray(seconds)) for columns, seconds in hop]
            work: Terms = [(T_s[[place]], 1.0), (time_b[None, :], -np.asarray(times_b)[None, :])]
            model.rows(f"stage_{stage.number}", work + ([] if hides else sent), lower=0)
            if hides and sent:
                model.rows(f"hop_{stage.number}", [(T_s[[place]], 1.0), *sent], lower=0)
            if forward_b is None:
                model.rows(f"gradients_{stage.number}", [(G, 1.0), *self._gradients(stage, unit)], lower=0)
        offset = (per_step_hops(instance) + none) / unit
        if forward_b is None:
            model.minimize([(T, 1.0), (G, 1.0)], offset=offset)
            return unit
        parts = [self._parts(time_b, forward_b, number, scale) for number in range(instance.mapped_stages)]
        sent_s = [[] if hides else terms for terms in sent_of]
        step = step_terms(model, instance, parts, T, T_s, sent_s, rounds)
        model.minimize([(columns, np.asarray(values) / rounds) for columns, values in step], offset=offset)
        return unit

    def _parts(self, time_b: Ints, forward_b: Bools, number: int, scale: float) -> LayerSeconds:
        """What an evaluation of a kind of layer takes, by pass, and what is exchanged of it in a step; by the scale."""
        here, of_units = self.stage_b == number, self.blocks.unit_s / scale
        exchanged = {
            "optimizer": self._by_options(number, self._optimizer_ko),
            "gradients": self._exchanged(number, "gradients"),
            "weights": self._exchanged(number, "weights"),
        }
        return {
            "forward": [(time_b[here & forward_b][None, :], of_units)],
            "backward": [(time_b[here & ~forward_b][None, :], of_units)],
            **{name: [(c, np.asarray(v) / scale) for c, v in terms] for name, terms in exchanged.items()},
        }

    def _gradients(self, stage: PipelineStage, unit: float) -> Terms:
        """Less the units that a pipeline stage takes at the end of a step, for gradients and optimizer, as terms."""
        terms: Terms = []
        for number, times in stage.runs:
            seconds = self._by_options(number, self._optimizer_ko)
            seconds += self._exchanged(number, "gradients") + self._exchanged(number, "weights")
            terms += [(columns, -times * np.asarray(amounts) / unit) for columns, amounts in seconds]
        return terms

    @memoized
    def _exchanged(self, number: int, of: str) -> Terms:
        """Seconds of a step in which copies exchange gradients or weights of an evaluation, by stage of the mapping."""
        instance, exchanged = self.instance, Terms()
        for dims, _ in () if adds_up_at_once(instance.assumptions) else instance.adding:
            resource = _REDUCED[0] if dims == instance.plan.copy_dims else _REDUCED[1]
            volume_ko = self.blocks.table.of_options(resource)
            for each in (exchange for exchange in exchanges(instance.plan, dims) if exchange.of == of):
                words = instance.setting.weight_word_k if of == "weights" else np.ones(len(volume_ko))
                sent_ko = [
                    volume * (each.times * each.share * word) for volume, word in zip(volume_ko, words, strict=True)
                ]
                cost = affine(each.kind, each.dims, instance.system, instance.assumptions)
                fixed = each.times * (cost.fixed + instance.system.collective_overhead) if cost is not NOTHING else 0.0
                terms = self._by_options(number, sent_ko)
                exchanged += [(columns, amounts * cost.per_byte) for columns, amounts in terms]
                if terms and fixed:
                    exchanged.append(
                        (self._any(f"some_gradients_{len(self.model.column_blocks)}", number, sent_ko), fixed)
                    )
        return exchanged

    def _any(self, name: str, number: int, amount_ko: list[Floats]) -> Ints:
        """A column that is 1 if a stage of the mapping has any kernel with some amount."""
        some = self.model.continuous(name, (1,), 0.0, 1.0)
        for k, amount_o in enumerate(amount_ko):
            if amount_o.any():
                columns = self._in_stage(k, number).reshape(1, -1)
                if (columns >= 0).any():
                    self.model.rows(f"{name}_{k}", [(some, 1.0), (columns, -1.0)], lower=0)
        return some

    @cached_property
    def _optimizer_ko(self) -> list[Floats]:
        """Seconds of the optimizer's step of each kernel, by option."""
        seconds = list[Floats]()
        for k, kernel in enumerate(LayerKernel.all_of(self.layer)):
            weight_o = weight_bytes(kernel, ops.weight_elements)
            seconds.append(optimizer_seconds(self.instance, np.full(len(weight_o), k), weight_o))
        return seconds

    # -- neighbours ---------------------------------------------------------------------------
    def _hops(self) -> list[Terms]:
        """Seconds that every pipeline stage sends to its neighbours, as terms."""
        instance, plan = self.instance, self.instance.plan
        by_stage: list[Terms] = [[] for _ in instance.pipeline]
        if plan.stages == 1:
            return by_stage
        if self.stage_k is None:
            for fan in self.layer.fan_outs:
                if not fan.carried:
                    self._sent(fan, by_stage)
            return by_stage
        assumptions, alone = instance.assumptions, len(instance.pipeline) == 1
        if sent_once(instance):
            return by_stage
        if both_ways_at_once(instance):
            return [self._handed_on("", (True, False), plan.interleave)] * len(by_stage)
        ways = [self._handed_on(name, (name == "_on",), 1) for name in ("_on", "_back")]
        for terms, stage in zip(by_stage, instance.pipeline, strict=True):
            often = messages(plan, assumptions, stage.number, all_alike=alone)
            for way, times in zip(ways, often, strict=True):
                terms += [(columns, times * np.asarray(seconds)) for columns, seconds in way if times]
        return by_stage

    def _sent(self, fan: FanOut, by_stage: list[Terms]) -> None:
        """What a tensor that crosses stages costs at each cut between these: of either way once for all its readers."""
        scope, model = (fan.source,), self.model
        share_o = self.layer.output_share_ko[fan.source][list(self.choices.domain[fan.source])]
        shares, labels = np.unique(share_o, return_inverse=True)
        classes = (tuple(labels.tolist()),)
        early = np.arange(self.instance.plan.stages - 1)[:, None] >= self.stage_b
        forward = [kernel.pass_ == "forward" for kernel in self.layer.kernels]
        written = self.choices.placed(fan.source, scope, classes)
        for back in (False, True):
            readers = [k for k in fan.kernels if (not forward[fan.source] and not forward[k]) == back]
            for f, share in enumerate(shares.tolist() if readers else ()):
                seconds = sent_s(self.instance, fan.bytes, share)
                sent = model.continuous(f"sent_{len(model.row_blocks)}", (len(early),), 0.0, 1.0)
                for cut, column in enumerate(sent):
                    by_stage[cut + back].append((column[None], np.array([seconds])))
                sign = -1.0 if back else 1.0
                for reader in readers:
                    ends = [
                        np.where(early, each[f], -1) for each in (written, self.choices.placed(reader, scope, classes))
                    ]
                    terms: Terms = [(sent, 1.0), (ends[0], -sign), (ends[1], sign)]
                    model.rows(f"sent_{len(model.row_blocks)}", terms, lower=0)

    def _handed_on(self, name: str, ways: tuple[bool, ...], times: int) -> Terms:
        """Seconds that the layers of any kind hand on so often at most: forward, back, or both, as terms."""
        graph, layer, unit_s = self.layer.graph, self.layer, self.blocks.unit_s
        kinds, index = list[Terms](), graph.index()
        for handed in graph.handed_on:
            kinds.append([])
            for tensor in handed:
                source = index[tensor.src]
                if (layer.kernels[source].pass_ == "forward") in ways:
                    shares = layer.output_share_ko[source][list(self.choices.domain[source])].tolist()
                    seconds = np.array(
                        [times * sent_s(self.instance, graph.bytes_of(tensor), share) for share in shares]
                    )
                    kinds[-1].append((self.choices.s_ko[source], seconds))
        most = self.model.continuous(f"handed_on{name}", (1,), 0.0)  # the last layer of a stage may be of any kind
        for kind, terms in enumerate(kinds):
            less: Terms = [(columns[None, :], -np.reshape(seconds, (1, -1)) / unit_s) for columns, seconds in terms]
            self.model.rows(f"handed_on{name}_most_{kind}", [(most[None, :], 1.0), *less], lower=0)
        return [(most, np.array([unit_s]))]


_REDUCED = ("gradient_bytes", "gradient_bytes_copied")
"""What copies of the batch add up, and what chips of the second axis do together with them."""
