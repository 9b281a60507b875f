"""Intra-chip problem: which kernels are fused into which on-chip partition (the ``assignment`` form).

Suffixes: k kernel, t tensor, g fan-out group, p partition, m menu option (compute tiles, seconds).

The paper's matrices, with ``A_kp`` the only binary: precedence as prefix sums, ``B_tp`` (tensor
inside a partition) continuous between ``A_src + A_dst - 1`` and both, ``D = A_src + A_dst - 2 B`` (tensor
cut), L from the prefix sums. Fan-out groups that are stored once get a store and a read variable
per partition. Under the cycle model a kernel's tiles are a menu: ``A_kp = sum_m y_kmp`` (DFModel, section V,
equations 1-4; formulation note, section 2a). Times and bytes are scaled to about 1.
"""

from __future__ import annotations

import numpy as np

from dfopt.fusion.blocks import StageTables
from dfopt.fusion.clock import look
from dfopt.fusion.partitioning import (
    Floats,
    IntraChipLimits,
    Ints,
    always_cut,
    lower_bound,
    membership,
    unsaved,
    without_saved,
)
from dfopt.milp import Model

Terms = list[tuple[Ints, Floats | float]]


class Assignment:
    """The assignment model of one stage.

    Raises
    ------
    OutOfTime
        The deadline (``time.perf_counter``) came before the model was built.
    """

    def __init__(self, tables: StageTables, limits: IntraChipLimits, deadline: float = np.inf) -> None:
        self.tables, self.limits, self.deadline = tables, limits, deadline
        look(deadline)
        self.unit_s = max(lower_bound(tables, limits), 1e-30) / 4
        self.unit_b = tables.chip.sram
        self.model = model = Model("intrachip")
        n, p = tables.kernels, limits.p_max
        self.A = model.binary("A", (n, p))
        self.A_pad = np.concatenate([self.A, np.full((1, p), -1, dtype=np.int64)])  # the virtual kernel is nowhere
        model.rows("one_partition", [(self.A, 1.0)], 1, 1)
        self._order()
        self.B = self._inside()
        self.S, self.R, self.I = self._groups()
        self._sram()
        if not np.isinf(limits.dram_left):
            self._dram()
        self._times()
        for k, partition in limits.pins:  # as rows: the rule for the passes, or p_max, may not allow them
            model.rows(f"pin_{k}_{partition}", [(self.A[k, partition : partition + 1][None, :], 1.0)], lower=1)
        if n > tables.chip.tiles:
            model.rows("kernels_per_partition", [(self.A.T, 1.0)], upper=tables.chip.tiles)
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

    def _inside(self) -> Ints:
        """B: a tensor inside a partition. Two kernels that never share one have B fixed at 0."""
        model, sharded, p = self.model, self.tables.sharded, self.limits.p_max
        tensors = len(sharded.src_t)
        B = model.continuous("B", (tensors, p), 0.0, 1.0)
        if not tensors:
            return B
        src, dst = self.A_pad[sharded.src_t], self.A_pad[sharded.dst_t]
        model.rows("B_src", [(B.ravel(), 1.0), (src.ravel(), -1.0)], upper=0)
        model.rows("B_dst", [(B.ravel(), 1.0), (dst.ravel(), -1.0)], upper=0)
        model.rows("B_both", [(B.ravel(), 1.0), (src.ravel(), -1.0), (dst.ravel(), -1.0)], lower=-1)
        model.bound(B[always_cut(self.tables, self.limits)], upper=0.0)
        return B

    def _groups(self) -> tuple[dict[int, Ints], dict[int, Ints], dict[int, Ints]]:
        """Store, read and inside-buffer variables of fan-out groups with several consumers."""
        model, tables, p = self.model, self.tables, self.limits.p_max
        sharded = tables.sharded
        store: dict[int, Ints] = {}
        read: dict[int, Ints] = {}
        inside: dict[int, Ints] = {}
        for g in (int(g) for g in np.flatnonzero(tables.width_g > 1)):
            look(self.deadline)
            members = np.flatnonzero(sharded.group_t == g)
            store[g] = model.continuous(f"store_{g}", (p,), 0.0, 1.0)
            read[g] = model.continuous(f"read_{g}", (p,), 0.0, 1.0)
            inside[g] = model.continuous(f"inside_{g}", (p,), 0.0, float(sharded.depth_t[members].max()))
            for t in members:
                src, dst = self.A_pad[sharded.src_t[t]], self.A_pad[sharded.dst_t[t]]
                model.rows(f"store_{g}_{t}", [(store[g], 1.0), (src, -1.0), (self.B[t], 1.0)], lower=0)
                model.rows(f"read_{g}_{t}", [(read[g], 1.0), (dst, -1.0), (self.B[t], 1.0)], lower=0)
                model.rows(f"inside_{g}_{t}", [(inside[g], 1.0), (self.B[t], -float(sharded.depth_t[t]))], lower=0)
        return store, read, inside

    def _cut(self, p: int) -> list[tuple[Ints, Floats, Floats, float]]:
        """What is stored or read in partition p: (columns, bytes, tile bytes, sign)."""
        tables, sharded = self.tables, self.tables.sharded
        single = tables.width_g[sharded.group_t] == 1
        size, tile = sharded.b_t[single], sharded.tile_t[single]
        src, dst = self.A_pad[sharded.src_t[single], p], self.A_pad[sharded.dst_t[single], p]
        found = [(src, size, tile, 1.0), (dst, size, tile, 1.0), (self.B[single, p], size, tile, -2.0)]
        if self.S:
            groups = np.array(sorted(self.S), dtype=np.int64)
            for variables in (self.S, self.R):
                columns = np.array([variables[g][p] for g in groups])
                found.append((columns, tables.bytes_g[groups], tables.tile_g[groups], 1.0))
        return found

    def _sram(self) -> None:
        tables, sharded, unit = self.tables, self.tables.sharded, self.unit_b
        single = tables.width_g[sharded.group_t] == 1
        for p in range(self.limits.p_max):
            look(self.deadline)
            terms = [(self.A[:, p][None, :], (tables.sram_k / unit)[None, :])]
            terms += [(c[None, :], (sign * 2.0 * tile / unit)[None, :]) for c, _, tile, sign in self._cut(p)]
            depth = (sharded.depth_t * sharded.tile_t)[single]
            terms.append((self.B[single, p][None, :], (depth / unit)[None, :]))
            for g, column in self.I.items():
                terms.append((column[p].reshape(1, 1), np.full((1, 1), tables.tile_g[g] / unit)))
            self.model.rows(f"sram_{p}", terms, upper=tables.chip.sram / unit)

    def _dram(self) -> None:
        tables = without_saved(self.tables) if self.limits.saved_in_dram else self.tables
        if tables.bytes_g.sum() <= self.limits.dram_left:
            return
        sharded, P = tables.sharded, self.limits.p_max
        n = tables.kernels
        B = self.B[unsaved(self.tables)] if self.limits.saved_in_dram else self.B
        groups = np.unique(sharded.group_t)
        L = self.model.continuous("L", (len(groups), P), 0.0, 1.0)
        row_of = {int(g): i for i, g in enumerate(groups)}
        for t, g in enumerate(sharded.group_t):
            look(self.deadline)
            src, dst = int(sharded.src_t[t]), int(sharded.dst_t[t])
            for p in range(P):
                born, dead = self.A_pad[src, : p + 1][None, :], self.A_pad[dst, :p][None, :]
                lower = -1.0 + 1.0 if src < n else 1.0  # from outside: alive from the first partition
                terms = [
                    (L[row_of[int(g)], p].reshape(1, 1), 1.0),
                    (born, -1.0),
                    (B[t, p].reshape(1, 1), 1.0),
                ]
                if p:
                    terms.append((dead, 1.0))
                self.model.rows(f"alive_{t}_{p}", terms, lower=lower)
        left = self.limits.dram_left
        self.model.rows("dram_capacity", [(L.T, (tables.bytes_g[groups] / left)[None, :])], upper=1.0)

    def _times(self) -> None:
        model, tables, p = self.model, self.tables, self.limits.p_max
        sharded, chip, unit = tables.sharded, tables.chip, self.unit_s
        self.y: list[Ints] = []
        compute = model.continuous("compute", (p,), 0.0)
        if sharded.menus:
            self._menus(compute)
        else:
            model.rows("compute_time", [(self.A.T, tables.compute_k[None, :] / unit), (compute, -1.0)], 0, 0)
        memory = model.continuous("memory", (p,), 0.0)
        rate = chip.dram_bandwidth * unit
        for q in range(p):
            look(self.deadline)
            terms: Terms = [(self.A[:, q][None, :], tables.mem_k[None, :] / rate), (memory[q : q + 1], -1.0)]
            terms += [(c[None, :], (sign * size / rate)[None, :]) for c, size, _, sign in self._cut(q)]
            model.rows(f"memory_time_{q}", terms, 0, 0)
        network = model.continuous("network", (p,), 0.0)
        model.rows("network_time", [(self.A.T, sharded.net_k[None, :] / unit), (network, -1.0)], 0, 0)
        if chip.overlap == "none":
            model.minimize([(compute, 1.0), (memory, 1.0), (network, 1.0)])
            return
        slowest = model.continuous("T", (p,), 0.0)
        bounded = (compute, memory, network) if chip.overlap == "perfect" else (compute, memory)
        for name, column in zip(("compute", "memory", "network"), bounded, strict=False):
            model.rows(f"T_{name}", [(slowest, 1.0), (column, -1.0)], lower=0)
        extra = [] if chip.overlap == "perfect" else [(network, 1.0)]
        model.minimize([(slowest, 1.0), *extra])

    def _menus(self, compute: Ints) -> None:
        """Tile menus: one option per kernel and partition; the slowest kernel sets the pace."""
        model, tables, p = self.model, self.tables, self.limits.p_max
        for k, (tiles, seconds) in enumerate(tables.sharded.menus):
            look(self.deadline)
            y = model.binary(f"y_{k}", (p, len(tiles)))
            model.rows(f"menu_{k}", [(y, 1.0), (self.A[k], -1.0)], 0, 0)
            model.rows(f"pace_{k}", [(compute, 1.0), (y, -seconds[None, :] / self.unit_s)], lower=0)
            self.y.append(y)
        used = [
            (y, np.broadcast_to(tiles / tables.chip.tiles, y.shape))
            for y, (tiles, _) in zip(self.y, tables.sharded.menus, strict=True)
        ]
        model.rows("tiles", used, upper=1.0)
        share = tables.chip.tiles * self.unit_s
        work: list[tuple[Ints, Floats]] = [
            (y, -np.broadcast_to(tiles * seconds / share, y.shape))
            for y, (tiles, seconds) in zip(self.y, tables.sharded.menus, strict=True)
        ]
        # over the whole chip: the work of a partition bounds its pace, which tightens the relaxation
        columns: list[tuple[Ints, Floats | float]] = [(compute, 1.0), *work]
        model.rows("work", columns, lower=0)

    def start(self, partition_k: Ints) -> Floats:
        """A partial start from a partitioning: the solver completes the continuous columns."""
        return self.model.start({"A": membership(partition_k, self.limits.p_max).T.astype(float)})
