"""What blocks cost as rows of a MILP: the rule of :mod:`dfopt.fusion.blocks` over columns instead of memberships.

Suffixes: c class of interchangeable kernels, g class of fan-out groups, p block, m menu option.
``A_cp`` kernels of class c are in block p. For every kind of tensor a column counts those with both ends in the
block; fan-out groups that are stored once have a store, a read and a buffer column. Under the cycle model a kernel's
tiles are a menu (DFModel, section V, equations 1-4; formulation note, section 2a).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.bnb import UNLIMITED, Clock
from dfopt.fusion.blocks import StageTables
from dfopt.fusion.classes import KernelClasses
from dfopt.fusion.token_rows import Sum, TokenBlockRows, token_sums
from dfopt.milp import Model, Terms
from dfopt.terms.chip import CROSSING_TILES
from dfopt.terms.sram import FITS
from dfopt.terms.token_blocks import TokenCharges


@dataclass(frozen=True)
class TensorKind:
    """A class of equal tensors in a block MILP.

    Attributes
    ----------
    group, src, dst : int
        Classes of the fan-out group and of both ends; -1 for an end outside the stage.
    depth, count : float
        Tiles that wait inside a block, and number of tensors.
    inside : int array, optional
        Columns by block that count tensors with both ends inside; None for an end outside.
    example : int
        The first of the tensors.
    """

    group: int
    src: int
    dst: int
    depth: float
    count: float
    inside: Ints | None
    example: int


class BlockRows:
    """Rows and columns of a MILP for the traffic, buffers and seconds of blocks.

    Parameters
    ----------
    model : Model
        Gets the columns and rows.
    tables, classes : StageTables, KernelClasses
        The stage and the classes of its kernels.
    A : int array, shape (classes, blocks)
        Columns: kernels of each class in each block.
    units : (float, float)
        Seconds and bytes of SRAM that are one unit of the model.
    integral : bool
        Whether stores and reads are integers by themselves.
    clock : Clock
        When it is over, :class:`OutOfTime` is raised.
    precede : callable, optional
        Called with (source class, destination class, tensors per kernel of each) for every pair that a tensor joins.

    Attributes
    ----------
    alone : dict of int to int array, shape (blocks,)
        For kernels whose weight may be in parts, columns that are 1 where it is; such kernels are alone in the block.
    """

    def __init__(
        self,
        model: Model,
        tables: StageTables,
        classes: KernelClasses,
        A: Ints,
        units: tuple[float, float],
        integral: bool = False,
        clock: Clock = UNLIMITED,
        precede: Callable[[int, int, float, float], None] | None = None,
    ) -> None:
        self.model, self.tables, self.classes, self.A, self.integral = model, tables, classes, A, integral
        self.unit_s, self.unit_b = units
        self.rate, self.clock = tables.chip.dram_bandwidth * self.unit_s, clock
        self.blocks: int = A.shape[1]
        first = classes.first_c
        self.memory: Terms = [(A.T, (tables.mem_k[first] / self.rate)[None, :])]
        self.sram: Terms = [(A.T, (tables.sram_k[first] / self.unit_b)[None, :])]
        self.steady = list(map(self._of_kernels, tables.steady_rk))
        self.kinds = self._tensors(precede)
        self._groups()
        self.alone = {k: A[classes.class_k[k]] for k in np.flatnonzero(tables.parts_k > 1).tolist()}
        if tables.sharded.token_charges is None:
            model.rows("sram", self.sram, upper=1.0 + FITS)
        else:
            self._in_token_blocks(tables.sharded.token_charges)

    def separate(self, cut_t: Bools) -> None:
        """Add rows that keep the two ends of these tensors in different blocks."""
        never = [kind.inside for kind in self.kinds if kind.inside is not None and cut_t[kind.example]]
        if never:
            self.model.bound(np.concatenate(never), upper=0.0)

    def _tensors(self, precede: Callable[[int, int, float, float], None] | None) -> list[TensorKind]:
        """One kind of tensor after another: how many have both ends inside."""
        sharded, classes, model, A = self.tables.sharded, self.classes, self.model, self.A
        outside = np.append(classes.class_k, -1)
        depth_t = sharded.depth_t.astype(np.int64)
        keys = np.stack([classes.group_g[sharded.group_t], outside[sharded.src_t], outside[sharded.dst_t], depth_t])
        if not keys.size:
            return []
        kinds, example, count = np.unique(keys, axis=1, return_index=True, return_counts=True)
        width_g = np.zeros(int(classes.group_g.max()) + 1, dtype=np.int64)
        width_g[classes.group_g] = self.tables.width_g
        joined: set[tuple[int, int]] = set()
        tensor_kinds = []
        each = zip(kinds.T.tolist(), example.tolist(), count.tolist(), strict=True)
        for (g, a, b, depth), example_t, tensors in each:
            self.clock.check()
            inside = None
            if a >= 0 and b >= 0:
                # per kernel of the class: how many such tensors it has
                per_a, per_b = tensors / classes.size_c[a], tensors / classes.size_c[b]
                if precede is not None and (a, b) not in joined:
                    joined.add((a, b))
                    precede(a, b, per_a, per_b)
                name = f"{g}_{a}_{b}_{depth}"
                inside = model.continuous(f"B_{name}", (self.blocks,), 0.0, float(tensors))
                for which, end, per in (("src", a, per_a), ("dst", b, per_b)):
                    model.rows(f"B_{which}_{name}", [(inside, 1.0), (A[end], -per)], upper=0)
                if classes.size_c[a] == classes.size_c[b] == 1 and depth > CROSSING_TILES * (1 + (width_g[g] == 1)):
                    # else a deep buffer could be passed off as a cut, which takes less SRAM
                    both = [(A[end], -float(tensors)) for end in (a, b)]
                    model.rows(f"B_both_{name}", [(inside, 1.0), *both], lower=-float(tensors))
            tensor_kinds.append(TensorKind(g, a, b, float(depth), float(tensors), inside, example_t))
        return tensor_kinds

    def _groups(self) -> None:
        """What every class of fan-out groups adds to DRAM traffic and SRAM."""
        members: dict[int, list[TensorKind]] = {}
        for kind in self.kinds:
            members.setdefault(kind.group, []).append(kind)
        _, first_g, many = np.unique(self.classes.group_g, return_index=True, return_counts=True)
        for g, kinds in members.items():
            self.clock.check()
            group = int(first_g[g])
            seconds, tile = self.tables.moved_g[group] / self.rate, self.tables.tile_g[group] / self.unit_b
            if self.tables.width_g[group] == 1:
                self._single(kinds[0], seconds, tile)
            else:
                self._shared(kinds, float(many[g]), seconds, tile)

    def _in_token_blocks(self, charges: TokenCharges) -> None:
        """Blocks take their tokens in blocks, or hold their weights and fit; each kernel is a class of its own."""
        tables, sharded, blocks = self.tables, self.tables.sharded, self.blocks
        whole_k = np.maximum(sharded.stationary_k + sharded.fixed_buffer_k, tables.sram_k)
        deepest = float(sharded.depth_t.max(initial=0.0))
        most = np.full(blocks, whole_k.sum() + tables.tile_g.sum() * (2 * CROSSING_TILES + deepest))
        by_resource = token_sums(self.model, charges, self.A)
        token_rows = TokenBlockRows(self.model, tables.chip, charges.rows, Sum([], most), by_resource)
        token_rows.fits("sram", self.sram, most)
        for resource, held_up, rate in (
            ("block_reread_bytes", [self.memory], self.rate),
            ("block_access_bytes", self.steady, tables.chip.sram_bandwidth * self.unit_s),
        ):
            if (again := token_rows.again(resource)) is not None:
                for terms in held_up:
                    terms.append((again[0], again[1] / rate))
        for k in self.alone:  # in parts only where it holds its weight
            self.alone[k] = token_rows.where_held(f"in_parts_{k}", self.A[k][None])[0]
            again_s = (tables.mem_k[k] - sharded.mem_k[k]) / self.rate
            self.memory += [(self.A[k], -again_s), (self.alone[k], again_s)]

    def _single(self, kind: TensorKind, seconds: float, tile: float) -> None:
        """A tensor with one consumer: stored or read when one end is in the block, buffered when both are."""
        for end in (kind.src, kind.dst):
            if end >= 0:
                per = kind.count / self.classes.size_c[end]
                self.memory.append((self.A[end], per * seconds))
                self.sram.append((self.A[end], per * CROSSING_TILES * tile))
        if kind.inside is not None:
            self.memory.append((kind.inside, -2.0 * seconds))
            self.sram.append((kind.inside, (kind.depth - 2 * CROSSING_TILES) * tile))

    def _shared(self, kinds: list[TensorKind], groups: float, seconds: float, tile: float) -> None:
        """Tensors that are stored once for several consumers: stored if one is outside, read if one is inside."""
        model, g, shape = self.model, kinds[0].group, (self.blocks,)
        count = model.integer if self.integral else model.continuous
        store, read = count(f"store_{g}", shape, 0.0, groups), count(f"read_{g}", shape, 0.0, groups)
        deep = model.continuous(f"deep_{g}", shape, 0.0)
        for number, kind in enumerate(kinds):
            # summed over the tensors of this kind; every group has as many of them
            per_group = kind.count / groups
            within: Terms = [] if kind.inside is None else [(kind.inside, 1.0)]
            for end, column, what in ((kind.src, store, "store"), (kind.dst, read, "read")):
                if end >= 0:
                    per = kind.count / self.classes.size_c[end]
                    terms: Terms = [(column, per_group), (self.A[end], -per), *within]
                    model.rows(f"{what}_{g}_{number}", terms, lower=0)
            if kind.inside is not None:
                model.rows(f"deep_{g}_{number}", [(deep, per_group), (kind.inside, -kind.depth)], lower=0)
        for column in (store, read):
            self.memory.append((column, seconds))
            self.sram.append((column, CROSSING_TILES * tile))
        self.sram.append((deep, tile))

    def times(self) -> Ints:
        """Add columns for the seconds of blocks, with the rows that bound them from below; shape (blocks,)."""
        model, tables, shape, names = self.model, self.tables, (self.blocks,), self.tables.chip.resources
        columns = [model.continuous(name, shape, 0.0) for name in names]
        if tables.sharded.menus:
            self._menus(columns[0])
        used = self._of_kernels(tables.sharded.compute_k), self.memory, self._network(), *self.steady
        for name, column, terms in zip(names, columns, used, strict=True):
            model.rows(f"{name}_time", [(column, 1.0), *((c, -np.asarray(v)) for c, v in terms)], lower=0)
        time = model.continuous("time", shape, 0.0)
        for summed in tables.chip.rule.serial_sets:
            name = f"time_{names[summed[0]]}" if tables.chip.rule.hidden else "sum"
            model.rows(name, [(time, 1.0), *((columns[each], -1.0) for each in summed)], lower=0)
        return time

    def _of_kernels(self, seconds_k: Floats) -> Terms:
        """What kernels of blocks take, each by itself."""
        return [(self.A.T, (seconds_k[self.classes.first_c] / self.unit_s)[None, :])]

    def _network(self) -> Terms:
        """Communication of the kernels, and the tolls of blocks that hold some of their payers."""
        sharded, classes, model = self.tables.sharded, self.classes, self.model
        terms = self._of_kernels(sharded.net_k)
        for x, toll in enumerate(sharded.toll_x.tolist()):
            self.clock.check()
            paid = (model.integer if self.integral else model.continuous)(f"toll_{x}", (self.blocks,), 0.0, 1.0)
            for c in np.unique(classes.class_k[sharded.payers_xk[x]]).tolist():
                some = self.A[c], -1.0 / classes.size_c[c]
                model.rows(f"toll_{x}_{c}", [(paid, 1.0), some], lower=0)
            terms.append((paid, toll / self.unit_s))
        return terms

    def _menus(self, compute: Ints) -> None:
        """Compute tiles: kernels of a class take the same option, the slowest class sets the pace."""
        model, tables, classes, unit = self.model, self.tables, self.classes, self.unit_s
        used: Terms = []
        work: Terms = [(compute, 1.0)]
        chip = float(tables.chip.tiles)
        for c, k in enumerate(classes.first_c.tolist()):
            self.clock.check()
            tiles, seconds = tables.sharded.menus[k]
            size, shape = float(classes.size_c[c]), (self.blocks, len(tiles))
            chosen = model.binary(f"option_{c}", shape)
            count = chosen if size == 1 else model.integer(f"count_{c}", shape, 0.0, size)
            model.rows(f"menu_{c}", [(count, 1.0), (self.A[c], -1.0)], 0, 0)
            model.rows(f"pace_{c}", [(compute, 1.0), (chosen, -(seconds / unit)[None, :])], lower=0)
            if size > 1:
                model.rows(f"one_option_{c}", [(chosen, 1.0)], upper=1)
                model.rows(f"counted_{c}", [(count.ravel(), 1.0), (chosen.ravel(), -size)], upper=0)
            used.append((count, (tiles / chip)[None, :]))
            work.append((count, -(tiles * seconds / (chip * unit))[None, :]))
        model.rows("tiles", used, upper=1.0)
        # over the whole chip: a bound on the pace that tightens the relaxation
        model.rows("work", work, lower=0)
