"""Intra-chip problem: which kernels are fused into which on-chip partition (the ``assignment`` form).

Suffixes: k kernel, t tensor, g fan-out group, p partition.

The paper's matrices, with ``A_kp`` the only binary: precedence as prefix sums, ``B_tp`` (tensor
inside a partition) continuous up to ``A_src`` and ``A_dst``, ``D = A_src + A_dst - 2 B`` (tensor
cut), L from the prefix sums; what a partition costs is said by :mod:`dfopt.fusion.rows`. Times and bytes
are scaled to about 1.
"""

from __future__ import annotations

import numpy as np

from dfopt.fusion import library
from dfopt.fusion.blocks import StageTables
from dfopt.fusion.classes import distinct
from dfopt.fusion.clock import look
from dfopt.fusion.partitioning import IntraChipLimits, always_cut, lower_bound, unsaved
from dfopt.fusion.rows import BlockRows, Terms
from dfopt.milp import Model
from dfopt.setting.tables import Floats, Ints


class Assignment:
    """The assignment model of one stage.

    Past the deadline (``time.perf_counter``) building it is given up (:class:`OutOfTime`).
    """

    def __init__(self, tables: StageTables, limits: IntraChipLimits, deadline: float = np.inf) -> None:
        self.tables, self.limits, self.deadline = tables, limits, deadline
        look(deadline)
        self.unit_s = max(lower_bound(tables, limits), 1e-30) / 4
        self.unit_b = tables.chip.sram
        self.model = model = Model("intrachip")
        n, p = tables.kernels, limits.p_max
        self.A = model.binary("A", (n, p))
        model.rows("one_partition", [(self.A, 1.0)], 1, 1)
        self._order()
        cut_t, units = always_cut(tables, limits.forward_backward), (self.unit_s, self.unit_b)
        self.blocks = BlockRows(model, tables, distinct(tables), self.A, cut_t, units, deadline=deadline)
        if not np.isinf(limits.dram_left):
            self._dram()
        model.minimize([(self.blocks.times(), 1.0)])
        for k, partition in limits.pins:  # as rows: the rule for the passes, or p_max, may not allow them
            model.rows(f"pin_{k}_{partition}", [(self.A[k, partition : partition + 1][None, :], 1.0)], lower=1)
        if n > tables.chip.tiles:
            model.rows("kernels_per_partition", [(self.A.T, 1.0)], upper=tables.chip.tiles)
        if tables.chip.library:
            self._library()
        tiled = np.flatnonzero(tables.parts_k > 1)
        for k in tiled.tolist():  # its weight streams through the whole chip: nobody else in that partition
            look(deadline)
            others = np.delete(self.A, k, axis=0).T
            model.rows(f"alone_{k}", [(others, 1.0), (self.A[k], float(n - 1))], upper=n - 1)

    def _order(self) -> None:
        model, sharded, limits, A = self.model, self.tables.sharded, self.limits, self.A
        n, p = A.shape
        own = (sharded.src_t < n) & (sharded.dst_t < n)
        edges = np.unique(np.stack([sharded.src_t[own], sharded.dst_t[own]], axis=1), axis=0)
        if len(edges) and p > 1:
            width = np.arange(p - 1)[:, None] >= np.arange(p)[None, :]
            early = np.where(width, A[edges[:, 0]][:, None, :], -1).reshape(-1, p)
            late = np.where(width, A[edges[:, 1]][:, None, :], -1).reshape(-1, p)
            model.rows("precedence", [(late, 1.0), (early, -1.0)], upper=0)
        forward = sharded.forward_k
        if limits.forward_backward == "halves" and not forward.all() and forward.any():
            model.bound(A[forward, (p + 1) // 2 :], upper=0.0)
            model.bound(A[~forward, : p // 2], upper=0.0)
        elif limits.forward_backward == "separate" and not forward.all() and forward.any():
            backward = model.binary("backward", (p,))
            model.rows("backward_last", [(backward[:-1], 1.0), (backward[1:], -1.0)], upper=0)
            for side, sign, upper in ((forward, 1.0, 1.0), (~forward, -1.0, 0.0)):
                columns = A[side].ravel()
                model.rows(
                    f"separate_{int(sign)}",
                    [(columns, 1.0), (np.tile(backward, int(side.sum())), sign)],
                    upper=upper,
                )
        if limits.exactly:
            model.rows("no_empty_partition", [(A.T, 1.0)], lower=1)
        elif p > 1 and limits.forward_backward != "halves":  # empty partitions last: a symmetry that only costs time
            used = model.binary("used", (p,))
            model.rows("used_kernel", [(A.ravel(), 1.0), (np.tile(used, n), -1.0)], upper=0)
            model.rows("used_first", [(used[1:], 1.0), (used[:-1], -1.0)], upper=0)
            model.rows("used_means_kernel", [(used, 1.0), (A.T, -1.0)], upper=0)

    def _library(self) -> None:
        """A partition is one kernel alone or a block that a kernel of the library does; by ``A`` these are 0 or 1."""
        n, p = self.A.shape
        blocks = [np.array([k]) for k in range(n)] + library.several(self.tables.sharded, self.deadline)
        block = self.model.continuous("block", (len(blocks), p), 0.0, 1.0)
        self.model.rows("one_block", [(block.T, 1.0)], upper=1)
        for k in range(n):
            mine = [number for number, kernels in enumerate(blocks) if k in kernels]
            self.model.rows(f"whole_{k}", [(self.A[k][:, None], 1.0), (block[mine].T, -1.0)], 0, 0)

    def _dram(self) -> None:
        """Bytes alive while a partition runs: of every group born by then whose last consumer has not run before."""
        tables, limits, A, left = self.tables, self.limits, self.A, self.limits.dram_left
        counted = unsaved(tables) if limits.saved_in_dram else np.ones(len(tables.sharded.src_t), dtype=bool)
        groups = np.unique(tables.sharded.group_t[counted])
        if tables.bytes_g[groups].sum() <= left:
            return
        P = limits.p_max
        L = self.model.continuous("L", (len(groups), P), 0.0, 1.0)
        row_of = {g: row for row, g in enumerate(groups.tolist())}
        until, before = np.tri(P, dtype=bool), np.tri(P, k=-1, dtype=bool)
        for number, kind in enumerate(self.blocks.kinds):
            look(self.deadline)
            if kind.group not in row_of:
                continue
            terms: Terms = [(L[row_of[kind.group]], 1.0)]
            if kind.src >= 0:
                terms.append((np.where(until, A[kind.src], -1), -1.0))
            if kind.dst >= 0:
                terms.append((np.where(before, A[kind.dst], -1), 1.0))
            if kind.inside is not None:
                terms.append((kind.inside, 1.0 / kind.count))
            # from outside: alive from the first partition
            self.model.rows(f"alive_{number}", terms, lower=0.0 if kind.src >= 0 else 1.0)
        unit = left if left > 0 else float(tables.bytes_g[groups].sum())  # nothing may be left at all
        self.model.rows("dram_capacity", [(L.T, (tables.bytes_g[groups] / unit)[None, :])], upper=left / unit)

    def start(self, partition_k: Ints) -> Floats:
        """A partial start from a partitioning: the solver completes the continuous columns."""
        return self.model.start({"A": partition_k[:, None] == np.arange(self.limits.p_max)})
