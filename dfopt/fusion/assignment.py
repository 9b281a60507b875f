"""Intra-chip problem: which kernels are fused into which on-chip partition (the ``assignment`` form).

Suffixes: k kernel, t tensor, g fan-out group, p partition.

The paper's matrices, with ``A_kp`` the only binary: precedence as prefix sums, ``B_tp`` (tensor
inside a partition) continuous up to ``A_src`` and ``A_dst``, ``D = A_src + A_dst - 2 B`` (tensor
cut), L from the prefix sums; what a partition costs is said by :mod:`dfopt.fusion.rows`. Times and bytes
are scaled to about 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dfopt.arrays import LEAST_UNIT, Bools, Floats, Ints
from dfopt.bnb import UNLIMITED, Clock
from dfopt.fusion import library
from dfopt.fusion.blocks import StageTables
from dfopt.fusion.classes import distinct
from dfopt.fusion.partitioning import SCALE, IntraChipLimits, always_cut, lower_bound, unsaved
from dfopt.fusion.rows import BlockRows
from dfopt.milp import Model, Terms


class Assignment:
    """Assignment MILP of one stage: binary variables place every kernel in a partition (matrix A of DFModel).

    When the clock is over, building it raises :class:`OutOfTime`.
    """

    def __init__(self, tables: StageTables, limits: IntraChipLimits, clock: Clock = UNLIMITED) -> None:
        self.tables, self.limits, self.clock = tables, limits, clock
        clock.check()
        self.unit_s = max(lower_bound(tables, limits), LEAST_UNIT) / SCALE
        self.unit_b = tables.chip.sram
        self.model = model = Model("intrachip")
        n, p = tables.kernels, limits.p_max
        self.A = model.binary("A", (n, p))
        model.rows("one_partition", [(self.A, 1.0)], 1, 1)
        forward, sharded = tables.sharded.forward_k, tables.sharded
        own = (sharded.src_t < n) & (sharded.dst_t < n)
        order(model, self.A, np.unique(np.stack([sharded.src_t[own], sharded.dst_t[own]], axis=1), axis=0))
        passes(model, self.A, forward, limits)
        self.blocks = BlockRows(model, tables, distinct(tables), self.A, (self.unit_s, self.unit_b), clock=clock)
        self.blocks.separate(always_cut(tables, limits.forward_backward))
        if not np.isinf(limits.dram_left):
            self._dram()
        model.minimize([(self.blocks.times(), 1.0)])
        for k, partition in limits.pins:  # as rows: the rule for the passes, or p_max, may not allow them
            model.rows(f"pin_{k}_{partition}", [(self.A[k, partition : partition + 1][None, :], 1.0)], lower=1)
        if n > tables.chip.tiles:
            model.rows("kernels_per_partition", [(self.A.T, 1.0)], upper=tables.chip.tiles)
        if tables.chip.library:
            at_once(model, self.A, library.several(tables.sharded, clock))
        for k, tiled in self.blocks.alone.items():  # its weight streams through the whole chip: nobody else there
            clock.check()
            others = np.delete(self.A, k, axis=0).T
            model.rows(f"alone_{k}", [(others, 1.0), (tiled, float(n - 1))], upper=n - 1)

    def _dram(self) -> None:
        """Bytes alive while a partition runs: of every group born by then whose last consumer has not run before."""
        tables, limits, left = self.tables, self.limits, self.limits.dram_left
        counted = unsaved(tables) if limits.saved_in_dram else np.ones(len(tables.sharded.src_t), dtype=bool)
        groups = np.unique(tables.sharded.group_t[counted])
        if tables.bytes_g[groups].sum() <= left:
            return
        L = alive(self.model, self.blocks, groups, self.clock)
        unit = left if left > 0 else float(tables.bytes_g[groups].sum())  # nothing may be left at all
        self.model.rows("dram_capacity", [(L.T, (tables.bytes_g[groups] / unit)[None, :])], upper=left / unit)

    def start(self, partition_k: Ints) -> Floats:
        """A partial MIP start from a partitioning, shape (kernels,); the solver completes the other columns."""
        return self.model.start({"A": partition_k[:, None] == np.arange(self.limits.p_max)})


def order(model: Model, A: Ints, edges: Ints, name: str = "precedence") -> None:
    """Add precedence rows: no kernel is in an earlier partition than a kernel that it reads from.

    Parameters
    ----------
    model : Model
        The MILP.
    A : int array, shape (kernels, partitions)
        Columns that are 1 where a kernel is in a partition.
    edges : int array, shape (tensors, 2)
        Source and reader of every tensor.
    name : str
        Prefix of the rows.
    """
    p = A.shape[1]
    if not len(edges) or p < 2:
        return
    width = np.arange(p - 1)[:, None] >= np.arange(p)[None, :]
    early = np.where(width, A[edges[:, 0]][:, None, :], -1).reshape(-1, p)
    late = np.where(width, A[edges[:, 1]][:, None, :], -1).reshape(-1, p)
    model.rows(name, [(late, 1.0), (early, -1.0)], upper=0)


def at_once(model: Model, A: Ints, several: Sequence[Ints]) -> None:
    """Add rows by which a partition holds one kernel or a set of kernels that the library fuses.

    Parameters
    ----------
    model : Model
        The MILP.
    A : int array, shape (kernels, partitions)
        Columns that are 1 where a kernel is in a partition, else 0.
    several : sequence of int array
        Kernels of every block that the library fuses.
    """
    n, p = A.shape
    blocks = [*np.arange(n)[:, None], *several]
    block = model.continuous("block", (len(blocks), p), 0.0, 1.0)
    model.rows("one_block", [(block.T, 1.0)], upper=1)
    for k in range(n):
        holders = [number for number, kernels in enumerate(blocks) if k in kernels]
        model.rows(f"whole_{k}", [(A[k][:, None], 1.0), (block[holders].T, -1.0)], 0, 0)


def passes(
    model: Model, A: Ints, forward: Bools, limits: IntraChipLimits, name: str = "", here: Ints | None = None
) -> None:
    """Add rows on which passes may share a partition, and which partitions may stay empty.

    Parameters
    ----------
    model : Model
        Gets columns and rows.
    A : int array, shape (kernels, partitions)
        Columns that are 1 where a kernel is in a partition.
    forward : bool array, shape (kernels,)
        Kernels of the forward pass.
    limits : IntraChipLimits
        Rule for the passes, and whether partitions may be empty.
    name : str
        End of the names of columns and rows.
    here : int array, shape (2,), optional
        Columns that are 1 if the stage has kernels of the forward pass, and if it has others. Left out, it has those
        that are given.
    """
    n, p = A.shape
    both = here is not None or bool(forward.any() and not forward.all())
    if limits.forward_backward == "halves" and both:
        for side, places, other in ((forward, slice((p + 1) // 2, p), 1), (~forward, slice(0, p // 2), 0)):
            columns = A[side, places].reshape(-1, 1)
            if here is None:
                model.bound(columns, upper=0.0)
            else:
                model.rows(
                    f"halves_{other}{name}", [(columns, 1.0), (np.full_like(columns, here[other]), 1.0)], upper=1
                )
    elif limits.forward_backward == "separate" and both:
        backward = model.binary(f"backward{name}", (p,))
        model.rows(f"backward_last{name}", [(backward[:-1], 1.0), (backward[1:], -1.0)], upper=0)
        for side, sign, upper in ((forward, 1.0, 1.0), (~forward, -1.0, 0.0)):
            terms = [(A[side].ravel(), 1.0), (np.tile(backward, int(side.sum())), sign)]
            model.rows(f"separate_{int(sign)}{name}", terms, upper=upper)
    if limits.exactly:
        for of in range(1 if here is None else 2):
            some: Terms = [] if here is None else [(np.full((p, 1), here[of]), -1.0)]
            model.rows(f"no_empty_partition{of or ''}{name}", [(A.T, 1.0), *some], lower=1 if here is None else 0)
    elif p > 1 and limits.forward_backward != "halves":  # empty partitions last: a symmetry that only costs time
        used = model.binary(f"used{name}", (p,))
        model.rows(f"used_kernel{name}", [(A.ravel(), 1.0), (np.tile(used, n), -1.0)], upper=0)
        model.rows(f"used_first{name}", [(used[1:], 1.0), (used[:-1], -1.0)], upper=0)
        model.rows(f"used_means_kernel{name}", [(used, 1.0), (A.T, -1.0)], upper=0)


def alive(model: Model, blocks: BlockRows, groups: Ints, clock: Clock) -> Ints:
    """Add columns that are 1 where a fan-out group occupies DRAM while a partition runs (matrix L of DFModel).

    Parameters
    ----------
    model : Model
        Gets columns and rows.
    blocks : BlockRows
        The partitions, in the order in which they run.
    groups : int array
        Classes of the fan-out groups that count.
    clock : Clock
        When it is over, :class:`OutOfTime` is raised.

    Returns
    -------
    int array, shape (groups, partitions)
    """
    p = blocks.blocks
    L = model.continuous("L", (len(groups), p), 0.0, 1.0)
    row_of = {g: row for row, g in enumerate(groups.tolist())}
    until, before = np.tri(p, dtype=bool), np.tri(p, k=-1, dtype=bool)
    for number, kind in enumerate(blocks.kinds):
        clock.check()
        if kind.group not in row_of:
            continue
        terms: Terms = [(L[row_of[kind.group]], 1.0)]
        if kind.inside is not None:
            terms.append((kind.inside, 1.0 / kind.count))
        if kind.src >= 0:
            terms.append((np.where(until, blocks.A[kind.src], -1), -1.0))
        if kind.dst >= 0:
            terms.append((np.where(before, blocks.A[kind.dst], -1), 1.0))
        # from outside: alive from the first partition
        model.rows(f"alive_{number}", terms, lower=0.0 if kind.src >= 0 else 1.0)
    return L
