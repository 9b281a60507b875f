"""The pricing problem of column generation: the one block of kernels that a set of prices favours most.

Suffixes: c class of interchangeable kernels, g class of fan-out groups, m menu option. Integer counts
stand for kernels: ``I_c`` of class c run before the block, ``A_c`` in it; kernels that are alike are
not told apart, so the model does not grow with their number. Where every class holds one kernel it is exact;
else every block is still one of its points, at no more than its true time, so that its bounds hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dfopt.fusion.blocks import StageTables
from dfopt.fusion.classes import Classes
from dfopt.fusion.clock import look
from dfopt.fusion.partitioning import IntraChipLimits, lower_bound
from dfopt.milp import Model, Solution, solve
from dfopt.setting.tables import Bools, Floats, Ints

Terms = list[tuple[Ints, Floats | float]]
TOLERANCE = 1e-8  # of `unit_s`: what a block must be worth more than its time


@dataclass(frozen=True)
class Found:
    """A block as counts: kernels of each class in it and before it, and its seconds (a lower bound of them)."""

    inside_c: Ints
    before_c: Ints
    seconds: float


class OneBlock:
    """The model of one block; its objective changes with the prices.

    Raises
    ------
    OutOfTime
        The deadline (``time.perf_counter``) came before the model was built.
    """

    def __init__(
        self, tables: StageTables, limits: IntraChipLimits, classes: Classes, deadline: float = np.inf
    ) -> None:
        self.tables, self.limits, self.classes, self.deadline = tables, limits, classes, deadline
        self.unit_s = max(lower_bound(tables, limits), 1e-30) / 10
        self.unit_b = tables.chip.sram
        self.model = model = Model("one_block")
        size, first = classes.size_c, classes.first_c
        free = tables.parts_k[first] == 1  # a kernel whose weight is cut into parts is a block of its own
        self.A = model.integer("A", (len(size),), 0.0, size * free)
        self.I = model.integer("I", (len(size),), 0.0, size)
        model.rows("within_class", [(self.I[:, None], 1.0), (self.A[:, None], 1.0)], upper=size)
        model.rows("some_kernel", [(self.A[None, :], 1.0)], lower=1)
        model.rows("compute_tiles", [(self.A[None, :], 1.0)], upper=float(tables.chip.tiles))
        self.memory: Terms = [(self.A[None, :], (tables.mem_k[first] / self._rate)[None, :])]
        self.sram: Terms = [(self.A[None, :], (tables.sram_k[first] / self.unit_b)[None, :])]
        self._tensors(free)
        model.rows("sram", self.sram, upper=1.0 + 1e-9)  # the tolerance of price_blocks
        self._one_pass()
        self.time = self._time()

    @property
    def _rate(self) -> float:
        return self.tables.chip.dram_bandwidth * self.unit_s

    def search(self, price_c: Floats, fixed: float, time_limit: float, seed: int = 0) -> tuple[Solution, Found | None]:
        """Look for a block whose kernels are worth more than its time.

        Parameters
        ----------
        price_c : float array
            Seconds that a kernel of each class is worth.
        fixed : float
            Seconds that any block costs beside its time: what one more partition is worth less.
        time_limit : float
            Seconds.

        Returns
        -------
        (solution, block)
            INFEASIBLE is the proof that there is none, to ``TOLERANCE`` times ``unit_s``.
        """
        # the fixed seconds as offset: the cutoff stays near 0, where its own slack is far below the tolerance
        self.model.minimize([(self.time, 1.0), (self.A, -price_c / self.unit_s)], offset=fixed / self.unit_s)
        # any good block helps; only the proof that there is none must be exact
        solution = solve(self.model, gap=0.5, time_limit=time_limit, cutoff=-TOLERANCE, seed=seed)
        if solution.x is None:
            return solution, None
        inside, before = (np.round(self.model.value(name, solution.x)).astype(np.int64) for name in ("A", "I"))
        return solution, Found(inside, before, float(self.model.value("time", solution.x)[0]) * self.unit_s)

    def _tensors(self, free: Bools) -> None:
        """Precedence, and what tensors add to DRAM traffic and SRAM, one kind of tensor after another."""
        tables, sharded, classes, model = self.tables, self.tables.sharded, self.classes, self.model
        outside = np.append(classes.class_k, -1)
        kinds = np.stack(
            [
                classes.group_g[sharded.group_t],
                outside[sharded.src_t],
                outside[sharded.dst_t],
                sharded.depth_t.astype(np.int64),
            ]
        )
        found, count = np.unique(kinds, axis=1, return_counts=True) if kinds.size else (kinds, np.zeros(0, int))
        groups, first_g = np.unique(classes.group_g, return_index=True)
        many = np.bincount(classes.group_g, minlength=len(groups)) if len(groups) else np.zeros(0, int)
        ordered: set[tuple[int, int]] = set()
        members: dict[int, list[tuple[int, int, float, float, Ints | None]]] = {}
        for (g, a, b, depth), tensors in zip(found.T.tolist(), count.tolist(), strict=True):
            look(self.deadline)
            inside = None
            if a >= 0 and b >= 0:
                # per kernel of the class: how many such tensors it has
                per_a, per_b = tensors / classes.size_c[a], tensors / classes.size_c[b]
                if (a, b) not in ordered:
                    ordered.add((a, b))
                    before = [(self._at(self.I, b), per_b), (self._at(self.I, a), -per_a)]
                    model.rows(f"precedence_{a}_{b}", before, upper=0)
                    now = [(self._at(self.A, b), per_b), (self._at(self.A, a), -per_a)]
                    model.rows(f"precedence_done_{a}_{b}", before + now, upper=0)
                inside = model.continuous(f"B_{g}_{a}_{b}_{depth}", (1,), 0.0, float(tensors))
                if not (free[a] and free[b]):
                    model.bound(inside, upper=0.0)
                for which, end, per in (("src", a, per_a), ("dst", b, per_b)):
                    name = f"B_{which}_{g}_{a}_{b}_{depth}"
                    model.rows(name, [(inside[None, :], 1.0), (self._at(self.A, end), -per)], upper=0)
                if classes.size_c[a] == classes.size_c[b] == 1 and depth > (
                    4 if tables.width_g[first_g[g]] == 1 else 2
                ):
                    # else a deep buffer could be passed off as a cut, which takes less SRAM
                    both = [(self._at(self.A, end), -float(tensors)) for end in (a, b)]
                    model.rows(f"B_both_{g}_{a}_{b}_{depth}", [(inside[None, :], 1.0), *both], lower=-float(tensors))
            members.setdefault(g, []).append((a, b, float(depth), float(tensors), inside))
        for g, parts in members.items():
            look(self.deadline)
            one = int(first_g[g])
            price = float(tables.bytes_g[one]) / self._rate, float(tables.tile_g[one]) / self.unit_b
            if tables.width_g[one] == 1:
                self._single(parts[0], *price)
            else:
                self._shared(g, parts, float(many[g]), *price)

    def _at(self, column: Ints, c: int) -> Ints:
        return column[c : c + 1][None, :]

    def _single(self, tensor: tuple[int, int, float, float, Ints | None], seconds: float, tile: float) -> None:
        """A tensor with one consumer: stored or read when one end is in the block, buffered when both are."""
        a, b, depth, tensors, inside = tensor
        for end in (a, b):
            if end >= 0:
                per = tensors / self.classes.size_c[end]
                self.memory.append((self._at(self.A, end), per * seconds))
                self.sram.append((self._at(self.A, end), per * 2.0 * tile))
        if inside is not None:
            self.memory.append((inside[None, :], -2.0 * seconds))
            self.sram.append((inside[None, :], (depth - 4.0) * tile))

    def _shared(
        self,
        g: int,
        parts: list[tuple[int, int, float, float, Ints | None]],
        groups: float,
        seconds: float,
        tile: float,
    ) -> None:
        """Tensors that are stored once for several consumers: stored if one is outside, read if one is inside."""
        model = self.model
        store = model.integer(f"store_{g}", (1,), 0.0, groups)
        read = model.integer(f"read_{g}", (1,), 0.0, groups)
        deep = model.continuous(f"deep_{g}", (1,), 0.0)
        for number, (a, b, depth, tensors, inside) in enumerate(parts):
            # summed over the tensors of this kind; every group has as many of them
            per_group = tensors / groups
            within: Terms = [] if inside is None else [(inside[None, :], 1.0)]
            for end, column, what in ((a, store, "store"), (b, read, "read")):
                if end >= 0:
                    per = tensors / self.classes.size_c[end]
                    terms: Terms = [(column[None, :], per_group), (self._at(self.A, end), -per), *within]
                    model.rows(f"{what}_{g}_{number}", terms, lower=0)
            if inside is not None:
                model.rows(f"deep_{g}_{number}", [(deep[None, :], per_group), (inside[None, :], -depth)], lower=0)
        for column in (store, read):
            self.memory.append((column[None, :], seconds))
            self.sram.append((column[None, :], 2.0 * tile))
        self.sram.append((deep[None, :], tile))

    def _one_pass(self) -> None:
        """Under ``separate`` a block holds forward kernels or others, never both."""
        classes, model = self.classes, self.model
        forward = self.tables.sharded.forward_k[classes.first_c]
        if self.limits.forward_backward != "separate" or forward.all() or not forward.any():
            return
        which = model.binary("forward", (1,))
        size = classes.size_c.astype(np.float64)
        model.rows("forward_only", [(self.A[forward], 1.0), (np.repeat(which, forward.sum()), -size[forward])], upper=0)
        model.rows(
            "backward_only",
            [(self.A[~forward], 1.0), (np.repeat(which, (~forward).sum()), size[~forward])],
            upper=size[~forward],
        )

    def _time(self) -> Ints:
        model, tables, first, unit = self.model, self.tables, self.classes.first_c, self.unit_s
        compute = model.continuous("compute", (1,), 0.0)
        memory = model.continuous("memory", (1,), 0.0)
        network = model.continuous("network", (1,), 0.0)
        if tables.sharded.menus:
            self._menus(compute)
        else:
            model.rows(
                "compute_time",
                [(compute[None, :], 1.0), (self.A[None, :], -(tables.compute_k[first] / unit)[None, :])],
                lower=0,
            )
        model.rows("memory_time", [(memory[None, :], 1.0), *((c, -np.asarray(v)) for c, v in self.memory)], lower=0)
        model.rows(
            "network_time",
            [(network[None, :], 1.0), (self.A[None, :], -(tables.sharded.net_k[first] / unit)[None, :])],
            lower=0,
        )
        time = model.continuous("time", (1,), 0.0)
        overlap = tables.chip.overlap
        if overlap == "none":
            model.rows("sum", [(time, 1.0), (compute, -1.0), (memory, -1.0), (network, -1.0)], lower=0)
            return time
        for name, column in (("compute", compute), ("memory", memory)):
            beside: Terms = [] if overlap == "perfect" else [(network, -1.0)]
            model.rows(f"time_{name}", [(time, 1.0), (column, -1.0), *beside], lower=0)
        if overlap == "perfect":
            model.rows("time_network", [(time, 1.0), (network, -1.0)], lower=0)
        return time

    def _menus(self, compute: Ints) -> None:
        """Compute tiles: kernels of a class take the same option, the slowest class sets the pace."""
        model, tables, classes, unit = self.model, self.tables, self.classes, self.unit_s
        used: Terms = []
        work: Terms = [(compute, 1.0)]
        chip = float(tables.chip.tiles)
        for c, k in enumerate(classes.first_c.tolist()):
            look(self.deadline)
            tiles, seconds = tables.sharded.menus[k]
            size = float(classes.size_c[c])
            chosen = model.binary(f"option_{c}", (len(tiles),))
            count = chosen if size == 1 else model.integer(f"count_{c}", (len(tiles),), 0.0, size)
            model.rows(f"menu_{c}", [(count[None, :], 1.0), (self._at(self.A, c), -1.0)], 0, 0)
            model.rows(f"pace_{c}", [(compute, 1.0), (chosen[None, :], -(seconds / unit)[None, :])], lower=0)
            if size > 1:
                model.rows(f"one_option_{c}", [(chosen[None, :], 1.0)], upper=1)
                model.rows(f"counted_{c}", [(count, 1.0), (chosen, -size)], upper=0)
            used.append((count[None, :], (tiles / chip)[None, :]))
            work.append((count[None, :], -(tiles * seconds / (chip * unit))[None, :]))
        model.rows("tiles", used, upper=1.0)
        # over the whole chip: a bound on the pace that tightens the relaxation
        model.rows("work", work, lower=0)
