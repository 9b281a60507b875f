"""A plan as one MILP: schemes beside the matrices of :mod:`dfopt.fusion.assignment`.

Suffixes: k kernel, o option (a kernel with one of its schemes), t tensor, g fan-out group with a share of its bytes,
p partition (those of all stages of the mapping, one stage after another).

``s_o`` (the paper's ``s_kz``) and ``A_kp`` are binary; the rest follows from them. :mod:`dfopt.joint.figures` says what
partitions cost, :mod:`dfopt.sharding.layouts` what conversions do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dfopt.documents.mapping import Sharding
from dfopt.fusion.assignment import alive, at_once, order, passes
from dfopt.fusion.partitioning import IntraChipLimits, unsaved
from dfopt.fusion.rows import Terms
from dfopt.fusion.segments import order_by_rank
from dfopt.joint.figures import Figures
from dfopt.joint.holding import AT_WORK, held_by_option, limited
from dfopt.joint.menu import Menu
from dfopt.milp import Model
from dfopt.physics.collectives import NOTHING
from dfopt.physics.copies import exchanges
from dfopt.physics.metrics import METRICS, Constants
from dfopt.physics.network import affine
from dfopt.physics.pipeline import messages
from dfopt.setting.hops import per_step_hops, sent_s
from dfopt.setting.instance import Instance
from dfopt.setting.optimizer import optimizer_seconds
from dfopt.setting.stages import PipelineStage
from dfopt.setting.tables import Bools, Floats, Ints
from dfopt.sharding.layouts import conversions, must_meet, padded
from dfopt.terms.chip import chip_of


class JointAssignment:
    """The model of one plan and one tile count.

    Parameters
    ----------
    instance : Instance
        The plan.
    menu : Menu
        Options of its kernels.
    allowed_o : bool array
        Those that may be taken.
    limits : sequence of IntraChipLimits
        Of every stage of the mapping; pins by number of the kernel in the graph.
    tiles : int
        Tiles that the streamed axis is cut into.
    metric : str
        What is minimised.
    deadline : float
        Of ``time.perf_counter``; past it building is given up (:class:`dfopt.fusion.clock.OutOfTime`).
    """

    def __init__(
        self,
        instance: Instance,
        menu: Menu,
        allowed_o: Bools,
        limits: Sequence[IntraChipLimits],
        tiles: int,
        metric: str = "step_time",
        deadline: float = np.inf,
    ) -> None:
        self.instance, self.menu, self.limits, self.deadline = instance, menu, limits, deadline
        graph, tables = instance.graph, menu.tables
        self.chip = chip_of(instance.system, instance.assumptions)
        self.stage_p = np.repeat(np.arange(len(limits)), [one.p_max for one in limits])
        self.forward_k = menu.sharded[0].forward_k
        # the stage of every kernel, unless that is a choice
        self.stage_k = None if tables.stages > 1 else np.array([graph.kind_of(kernel) for kernel in graph.kernels])
        self.model = model = Model("joint")
        self.unit_s = self._unit()
        self.A = model.binary("A", (tables.kernels, len(self.stage_p)))
        self.s = model.binary("s", (len(tables.kernel_o),))
        model.bound(self.s, upper=allowed_o.astype(float))
        model.rows("one_partition", [(self.A, 1.0)], 1, 1)
        model.rows("one_scheme", [(padded([self.s[options] for options in tables.of_kernel]), 1.0)], 1, 1)
        must_meet(model, tables, self.s[:, None])
        self._places()
        figures = Figures(model, menu, self.chip, tiles, self.A, self.s, deadline)
        self.y_op = figures.y_op
        self.blocks = figures.blocks(limits[0].forward_backward == "separate", (self.unit_s, self.chip.sram))
        self.forward_t = figures.forward_t
        lying = zip(figures.whole_t.tolist(), figures.share_t.tolist(), strict=True)
        self.hop_t = [sent_s(instance, whole, share) for whole, share in lying] if self.stage_k is None else []
        talk: Terms = [(c.T, (s / self.unit_s)[None, :]) for c, s, *_ in conversions(model, tables, self.y_op)]
        self.time_p = self.blocks.times(talk)
        for tier, capacity in limited(instance).items():
            self._held(tier, capacity)
        self._objective(metric)

    def _unit(self) -> float:
        """A quarter of what the least of every figure takes: block times are a few of them."""
        menu, every = self.menu, np.ones(len(self.menu.tables.kernel_o), dtype=bool)
        moved = menu.own_bytes_o / self.chip.dram_bandwidth, menu.own_accessed_o / self.chip.sram_bandwidth
        least = menu.by_option("compute_k"), *moved, menu.network_o
        return max(1e-30, *(float(menu.least(figure, every).sum()) / 4 for figure in least))

    # -- partitions ---------------------------------------------------------------------------
    def _places(self) -> None:
        """Where kernels may be: order, passes, pins, tiles."""
        model, A, forward = self.model, self.A, self.forward_k
        n = len(A)
        src_t, dst_t = self.menu.sharded[0].src_t, self.menu.sharded[0].dst_t
        edges = np.unique(np.stack([src_t, dst_t], axis=1), axis=0)
        back = ~forward[edges[:, 0]] & ~forward[edges[:, 1]] & (self.stage_k is None)
        order(model, A, edges[~back])
        order(model, A[:, np.argsort(-self.stage_p, kind="stable")], edges[back], "precedence_back")
        for position, (k, other) in enumerate(self.menu.tables.together_kk if self.stage_k is None else ()):
            for stage in range(len(self.limits)):
                mine, theirs = A[k, self.stage_p == stage], A[other, self.stage_p == stage]
                model.rows(f"together_{position}_{stage}", [(mine[None, :], 1.0), (theirs[None, :], -1.0)], 0, 0)
        if not self.chip.fused:
            after = [np.unique(dst_t[src_t == k]).tolist() for k in range(n)]
            before = [np.unique(src_t[dst_t == k]).tolist() for k in range(n)]
            rank = order_by_rank(before, after, [(not forward[k], k) for k in range(n)])
        for stage, limits in enumerate(self.limits):
            mine = np.flatnonzero(self.stage_p == stage)
            members = np.arange(n) if self.stage_k is None else np.flatnonzero(self.stage_k == stage)
            if not len(members):
                continue
            model.bound(A[np.ix_(np.setdiff1d(np.arange(n), members), mine)], upper=0.0)
            if not self.chip.fused:  # in the one order in which they run
                line = rank[np.isin(rank, members)]
                model.bound(A[line][:, mine][~np.eye(len(line), dtype=bool)], upper=0.0)
                continue
            here = self._here(stage, mine) if self.stage_k is None else None
            passes(model, A[np.ix_(members, mine)], forward[members], limits, f"_{stage}", here)
        for k, partition in {pin for limits in self.limits for pin in limits.pins}:
            places = (np.flatnonzero(self.stage_p == stage) for stage in range(len(self.limits)))
            pinned = [mine[partition] for mine in places if len(mine) > partition]
            model.rows(f"pin_{k}_{partition}", [(A[k, pinned][None, :], 1.0)], lower=1)
        if n > self.chip.tiles:
            model.rows("kernels_per_partition", [(A.T, 1.0)], upper=self.chip.tiles)
        if self.chip.library:
            at_once(model, A, self.menu.sharded[0], self.deadline)

    def _here(self, stage: int, mine: Ints) -> Ints:
        """Whether kernels of the forward pass are in a stage, and whether others are."""
        here = self.model.continuous(f"here_{stage}", (2,), 0.0, 1.0)
        for of, side in enumerate((self.forward_k, ~self.forward_k)):
            if side.any():
                columns = np.full((int(side.sum()), 1), here[of])
                self.model.rows(f"here_{stage}_{of}", [(columns, 1.0), (self.A[np.ix_(side, mine)], -1.0)], lower=0)
        return here

    # -- the plan -----------------------------------------------------------------------------
    def _held(self, tier: str, capacity: float) -> None:
        """What chips of every pipeline stage hold in a memory; of the fastest with what waits between partitions."""
        instance, menu, model = self.instance, self.menu, self.model
        fastest = tier == instance.system.chip.fastest_tier
        setting, blocks = instance.setting, self.blocks.tables
        waits_t = unsaved(blocks) if self.limits[0].saved_in_dram else np.full(len(blocks.sharded.src_t), True)
        groups = np.unique(blocks.sharded.group_t[waits_t])
        waiting: dict[int, Ints] = {}
        for stage in instance.pipeline:
            held_op = np.zeros((1 + len(AT_WORK), *self.y_op.shape))
            for number, _ in stage.runs:
                mine = self.stage_p == number
                held_op[:, :, mine] = held_by_option(instance, menu, tier, stage, number)[:, :, None]
            H = model.continuous(f"held_{tier}_{stage.number}", (1,), 0.0, 1.0)
            parts: Terms = [(H, 1.0), (self.y_op.reshape(1, -1), -held_op[0].reshape(1, -1) / capacity)]
            for name, more_op in zip(AT_WORK, held_op[1:], strict=True):
                if more_op.any():
                    W = model.continuous(f"{name}_{tier}_{stage.number}", (1,), 0.0, 1.0)
                    parts.append((W, -1.0))
                    for number, _ in stage.runs:
                        mine = self.stage_p == number
                        columns, bytes_ = self.y_op[:, mine].reshape(1, -1), more_op[:, mine].reshape(1, -1)
                        model.rows(
                            f"{name}_{tier}_{stage.number}_{number}", [(W, 1.0), (columns, -bytes_ / capacity)], lower=0
                        )
            model.rows(f"held_{tier}_{stage.number}", parts, lower=0)
            if not fastest or not setting.waits:
                continue
            most = (
                np.maximum.reduceat(held_op.sum(axis=0).max(axis=1), menu.first_k).sum() + blocks.bytes_g[groups].sum()
            )
            for number, _ in stage.runs if most > capacity else ():
                places = np.flatnonzero(self.stage_p == number)
                if number not in waiting:
                    waiting[number] = alive(model, self.blocks, groups, places, f"_{number}", self.stage_k is None)
                L = waiting[number].T
                terms: Terms = [(L, blocks.bytes_g[groups][None, :] / capacity), (np.full(len(L), H[0]), 1.0)]
                model.rows(f"dram_{stage.number}_{number}", terms, upper=1.0)

    def _objective(self, metric: str) -> None:
        """The slowest pipeline stage, or the longest chain through all of them, and what a step takes beside."""
        instance, model, line, count = self.instance, self.model, self.instance.line, len(self.instance.pipeline)
        constants, value = Constants(instance.plan, instance.assumptions, line=line), METRICS[metric].value
        most = max(times for stage in instance.pipeline for _, times in stage.runs)
        scale = most * self.unit_s
        none = value([0.0] * count, constants)
        rounds = value([1.0] * count, constants) - none
        self.unit = scale * rounds
        T, G = model.continuous("T", (1,)), model.continuous("G", (1,))
        T_s = np.repeat(T, count) if line is None else model.continuous("T_s", (count,))
        if line is not None:
            each = np.stack([line.chains(np.eye(count)[number].tolist()) for number in range(count)], axis=1) / rounds
            model.rows(
                "chains", [(np.repeat(T, len(each))[:, None], 1.0), (np.tile(T_s, (len(each), 1)), -each)], lower=0
            )
        for place, (stage, hop) in enumerate(zip(instance.pipeline, self._hops(), strict=True)):
            T_of = T_s[[place]]
            times_p = sum(times / most * (self.stage_p == number) for number, times in stage.runs)
            hidden = instance.hides_hops
            sent: Terms = [(columns.reshape(1, -1), -np.reshape(seconds, (1, -1)) / scale) for columns, seconds in hop]
            work: Terms = [(T_of, 1.0), (self.time_p[None, :], -np.asarray(times_p)[None, :])]
            model.rows(f"stage_{stage.number}", work + ([] if hidden else sent), lower=0)
            if hidden and sent:
                model.rows(f"hop_{stage.number}", [(T_of, 1.0), *sent], lower=0)
            model.rows(f"gradients_{stage.number}", [(G, 1.0), *self._gradients(stage)], lower=0)
        model.minimize([(T, 1.0), (G, 1.0)], offset=(per_step_hops(instance) + none) / self.unit)

    def _gradients(self, stage: PipelineStage) -> Terms:
        """Less the units that a pipeline stage takes at the end of a step, for gradients and optimizer, as terms."""
        instance, menu = self.instance, self.menu
        found: Terms = []
        step_o = optimizer_seconds(instance, menu.tables.kernel_o, menu.by_option("weight_k")) / self.unit
        for number, times in stage.runs if step_o.any() else ():
            columns = self.y_op[:, self.stage_p == number]
            found.append((columns.reshape(1, -1), -np.repeat(times * step_o, columns.shape[1])[None, :]))
        adding = instance.adding if instance.assumptions.gradients == "exact" else ()
        ways = [(one, share_k) for dims, share_k in adding for one in exchanges(instance.plan, dims)]
        for way, (one, share_k) in enumerate(ways):
            word_k = instance.setting.weight_word_k if one.of == "weights" else np.ones_like(share_k)
            volume_o = menu.by_option("gradient_k") * (one.times * one.share * share_k * word_k)[menu.tables.kernel_o]
            if not volume_o.any():
                continue
            cost = affine(one.kind, one.dims, instance.system, instance.assumptions)
            fixed = one.times * (cost.fixed + instance.system.collective_overhead) if cost is not NOTHING else 0.0
            sources = np.unique(menu.tables.kernel_o[volume_o > 0])
            for number, times in stage.runs:
                mine, name = self.stage_p == number, f"some_gradients_{stage.number}_{number}_{way}"
                columns, per_o = self.y_op[:, mine], volume_o * (times * cost.per_byte / self.unit)
                found.append((columns.reshape(1, -1), -np.repeat(per_o, columns.shape[1])[None, :]))
                some = self.model.continuous(name, (1,), 0.0, 1.0)
                if mine.any():
                    here: Terms = [(np.full(len(sources), some[0]), 1.0), (self.A[np.ix_(sources, mine)], -1.0)]
                    self.model.rows(name, here, lower=0)
                found.append((some, -times * fixed / self.unit))
        return found

    def _hops(self) -> list[Terms]:
        """Seconds that every pipeline stage sends to its neighbours, as terms."""
        instance, model, plan = self.instance, self.model, self.instance.plan
        found: list[Terms] = [[] for _ in instance.pipeline]
        if plan.stages == 1:
            return found
        if self.stage_k is not None:
            assumptions, alone = instance.assumptions, len(instance.pipeline) == 1
            if assumptions.point_to_point == "per_step":
                return found
            if assumptions.point_to_point == "per_microbatch":
                return [self._handed_on("", (True, False), plan.interleave)] * len(found)
            ways = [self._handed_on(name, (name == "_on",), 1) for name in ("_on", "_back")]
            for terms, stage in zip(found, instance.pipeline, strict=True):
                often = messages(plan, assumptions, stage.number, all_alike=alone)
                for way, times in zip(ways, often, strict=True):
                    terms += [(columns, times * seconds) for columns, seconds in way if times]
            return found
        sharded, early = self.blocks.tables.sharded, np.arange(plan.stages - 1)[:, None] >= self.stage_p
        sent: dict[tuple[int, bool], Ints] = {}
        for t, (g, forward) in enumerate(
            zip(sharded.group_t.tolist(), (self.forward_t[0] | self.forward_t[1]).tolist(), strict=True)
        ):
            back = not forward
            if (g, back) not in sent:
                sent[g, back] = model.continuous(f"sent_{g}_{back:d}", (plan.stages - 1,), 0.0, 1.0)
                for cut, column in enumerate(sent[g, back]):
                    found[cut + back].append((column[None], np.array([self.hop_t[t]])))
            made, seen = (np.where(early, self.blocks.A[end], -1) for end in (sharded.src_t[t], sharded.dst_t[t]))
            sign = -1.0 if back else 1.0
            model.rows(f"sent_{t}", [(sent[g, back], 1.0), (made, -sign), (seen, sign)], lower=0)
        return found

    def _handed_on(self, name: str, ways: tuple[bool, ...], times: int) -> Terms:
        """Seconds that the layers of any kind hand on so often at most: forward, back, or both, as terms."""
        instance, menu, model, graph = self.instance, self.menu, self.model, self.instance.graph
        kinds = list[list[tuple[Ints, Floats]]]()
        for handed in graph.handed_on:
            kinds.append([])
            for tensor in handed:
                source = graph.index()[tensor.src]
                if bool(self.forward_k[source]) in ways:
                    options = menu.tables.of_kernel[source]
                    shares, whole = menu.by_option("output_k")[options], graph.bytes_of(tensor)
                    seconds = np.array([times * sent_s(instance, whole, float(share)) for share in shares])
                    kinds[-1].append((self.s[options], seconds))
        if len(kinds) == 1:
            return list(kinds[0])
        most = model.continuous(f"handed_on{name}", (1,), 0.0)  # the last layer of a stage may be of any kind
        for kind, terms in enumerate(kinds):
            less: Terms = [
                (columns[None, :], -np.reshape(seconds, (1, -1)) / self.unit_s) for columns, seconds in terms
            ]
            model.rows(f"handed_on{name}_most_{kind}", [(most[None, :], 1.0), *less], lower=0)
        return [(most, np.array([self.unit_s]))]

    # -- in and out ---------------------------------------------------------------------------
    def start(self, sharding: dict[str, Sharding], stage_k: Ints, partition_k: Ints) -> Floats:
        """A partial start from a mapping: the solver completes the continuous columns."""
        tables, first = self.menu.tables, np.searchsorted(self.stage_p, np.arange(len(self.limits)))
        names = [kernel.name for kernel in self.instance.graph.kernels]
        taken = [sharding[names[k]] == z for k, z in zip(tables.kernel_o, tables.scheme_o, strict=True)]
        place = (first[stage_k] + partition_k)[:, None] == np.arange(len(self.stage_p))
        return self.model.start({"A": place, "s": taken})

    def decode(self, x: Floats) -> tuple[dict[str, Sharding], Ints, Ints]:
        """Scheme of every kernel by name, its stage and its partition."""
        place_k = np.argmax(self.model.value("A", x), axis=1)
        taken, tables = self.model.value("s", x), self.menu.tables
        chosen = (tables.scheme_o[options[np.argmax(taken[options])]] for options in tables.of_kernel)
        stage_k = self.stage_p[place_k]
        sharding = dict(zip((kernel.name for kernel in self.instance.graph.kernels), chosen, strict=True))
        return sharding, stage_k, place_k - np.searchsorted(self.stage_p, stage_k)
