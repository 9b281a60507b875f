"""Blocks of a MILP that also chooses schemes: what every option adds to the partition that it is in.

Suffixes: k kernel, o option (a kernel with one of its schemes), c class of a source (schemes under which a chip holds
the same share of its output), t tensor, e end, p partition, f all that decides into how many parts a weight is cut.

What depends on two choices is carried by continuous columns with marginal rows: an option in a partition, a consumer in
a partition with the class of its source, and where weights may be cut into parts all that decides how many. Each of
them is a row of figures to :class:`dfopt.fusion.rows.BlockRows`, which prices blocks of them as it does blocks of
kernels; a tensor is there once for every class of its source.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from dfopt.fusion.blocks import StageTables, derived, weight_parts
from dfopt.fusion.classes import distinct
from dfopt.fusion.clock import look
from dfopt.fusion.rows import BlockRows, Terms
from dfopt.joint.menu import Menu
from dfopt.milp import Model
from dfopt.physics import ops
from dfopt.setting.conversions import overhead_of_kernels
from dfopt.setting.tables import Floats, Ints
from dfopt.sharding.layouts import padded
from dfopt.terms.chip import Chip

_MOST_ALONE = 400  # choices of a kernel and its sources: beyond it a kernel is priced at the rate of most bytes


class Figures:
    """Rows of figures, and the blocks that are made of them.

    Parameters
    ----------
    model : Model
        Gets the columns and rows.
    menu : Menu
        Options of the kernels.
    chip : Chip
        What runs them.
    tiles : int
        Tiles that the streamed axis is cut into.
    A, s_o : int arrays
        Columns of kernels in partitions, shape (kernels, partitions), and of options.
    deadline : float
        Of ``time.perf_counter``; past it building is given up (:class:`dfopt.fusion.clock.OutOfTime`).
    slower : Chip, optional
        The chip whose memory is slower where fewer bytes are moved, which ``chip`` bounds: then the first blocks are
        every kernel alone, and have the seconds that those bytes take.
    """

    def __init__(
        self,
        model: Model,
        menu: Menu,
        chip: Chip,
        tiles: int,
        A: Ints,
        s_o: Ints,
        deadline: float = np.inf,
        slower: Chip | None = None,
    ) -> None:
        self.model, self.menu, self.chip, self.tiles = model, menu, chip, tiles
        self.slower, self.alone = slower, list[tuple[int, Ints, Floats]]()
        self.A, self.s_o, self.deadline = A, s_o, deadline
        self.rows: list[Ints] = []
        self.mem: list[float] = []
        self.accessed: list[float] = []
        self.sram: list[float] = []
        of_kernel, output_o = menu.tables.of_kernel, menu.by_option("output_k")
        self.y_op: Ints = np.concatenate(
            [self._beside(f"pair_{k}", k, list(of[:, None])) for k, of in enumerate(of_kernel)]
        )
        own = menu.own_bytes_o, menu.by_option("stationary_k"), menu.own_accessed_o
        for columns, *figures in zip(self.y_op, *own, strict=True):
            self._add(columns, *map(float, figures))
        self.place_k = [int(of[0]) if len(of) == 1 else self._add(A[k]) for k, of in enumerate(of_kernel)]
        shares = [np.unique(output_o[of]) for of in of_kernel]
        self.options_kc = [
            [of[output_o[of] == one] for one in mine] for of, mine in zip(of_kernel, shares, strict=True)
        ]
        self.share_kc = shares
        self.made_kc = [[self._together(k, one) for one in mine] for k, mine in enumerate(self.options_kc)]
        self.seen_kk: dict[tuple[int, int], list[int]] = {}

    def _add(self, columns: Ints, mem: float = 0.0, sram: float = 0.0, accessed: float = 0.0) -> int:
        """A further row: columns by partition, with bytes that each adds to its partition; its number."""
        self.rows.append(columns)
        self.mem.append(mem)
        self.sram.append(sram)
        self.accessed.append(accessed)
        return len(self.rows) - 1

    def _beside(self, name: str, k: int, choices: list[Ints]) -> Ints:
        """Columns (choices, partitions): 1 where kernel k is in a partition and one option of a choice is taken."""
        if len(choices) == 1:
            alone: Ints = self.A[k][None, :]
            return alone
        columns = self.model.continuous(name, (len(choices), self.A.shape[1]), 0.0, 1.0)
        self.model.rows(f"{name}_of", [(columns.T, 1.0), (self.A[k], -1.0)], 0, 0)
        chosen = padded([self.s_o[options] for options in choices])
        self.model.rows(f"{name}_by", [(columns, 1.0), (chosen, -1.0)], 0, 0)
        return columns

    def _together(self, k: int, options: Ints) -> int:
        """Row of a kernel with one of some of its options."""
        if len(options) == 1:
            return int(options[0])
        if len(options) == len(self.menu.tables.of_kernel[k]):
            return self.place_k[k]
        columns = self.model.continuous(f"class_{options[0]}", (self.A.shape[1],), 0.0, 1.0)
        self.model.rows(f"class_{options[0]}", [(columns, 1.0), (self.y_op[options].T, -1.0)], 0, 0)
        return self._add(columns)

    def seen(self, k: int, src: int) -> list[int]:
        """Rows of a kernel beside each class of a source of its operands."""
        if k == src:
            return self.made_kc[k]
        if len(self.options_kc[src]) == 1:
            return [self.place_k[k]]
        if (k, src) not in self.seen_kk:
            columns = self._beside(f"seen_{k}_{src}", k, self.options_kc[src])
            self.seen_kk[k, src] = [self._add(one) for one in columns]
        return self.seen_kk[k, src]

    def blocks(self, separate: bool, units: tuple[float, float]) -> BlockRows:
        """The blocks, one by partition; ``separate``: whether none holds kernels of two passes.

        ``units``: seconds and bytes of SRAM that are one unit of the model.
        """
        menu, first = self.menu, self.menu.sharded[0]
        tile_k = menu.tile_k(self.tiles)
        full_t = menu.full_t
        listed = [
            (t, c, made, seen)
            for t, (a, b) in enumerate(zip(first.src_t.tolist(), first.dst_t.tolist(), strict=True))
            for c, (made, seen) in enumerate(zip(self.made_kc[a], self.seen(b, a), strict=True))
        ]
        t, c, made, seen = np.array(listed, dtype=np.int64).reshape(-1, 4).T
        self._parts(full_t, tile_k, self._ends())
        src, count = first.src_t[t], len(self.rows)
        self.whole_t = full_t[t]
        self.share_t = np.array([self.share_kc[a][of] for a, of in zip(src, c, strict=True)], dtype=float)
        size = self.whole_t * self.share_t
        group = np.unique(first.group_t[t] * len(ops.SCHEMES) + c, return_inverse=True)[1].astype(np.int64)
        self.forward_t = menu.sharded[0].forward_k[np.stack([src, first.dst_t[t]])]
        nothing = [(np.zeros(0, dtype=np.int64), np.zeros(0))] * (count - len(self.y_op))
        once = menu.instance.assumptions.kernel_overhead or 0.0
        once = 0.0 if overhead_of_kernels(menu.instance.assumptions) else once  # of blocks, not of kernels
        sharded = replace(
            first,
            names=tuple(map(str, range(count))),
            compute_k=self._by_row(menu.by_option("compute_k")),
            accessed_k=np.array(self.accessed),
            net_k=self._by_row(menu.network_o),
            src_t=made,
            dst_t=seen,
            b_t=size,
            moved_t=size * (menu.instance.assumptions.operand_traffic is None),
            tile_t=size * tile_k[src],
            depth_t=first.depth_t[t],
            group_t=group,
            saved_t=first.saved_t[t],
            kept_t=first.kept_t[t],
            menus=(*menu.menu_o(self.tiles), *nothing) if first.menus else (),
            toll_x=np.full(int(once > 0), once),  # pairs of layouts have the others
            sent_x=np.zeros(int(once > 0)),
            payers_xk=np.arange(count)[None, :].repeat(int(once > 0), axis=0) < len(self.y_op),
        )
        whole, none = np.ones(count, dtype=np.int64), np.zeros(0)
        figures = StageTables(
            sharded, self.chip, whole, np.array(self.sram), np.array(self.mem), latency_l=none,
            tiles_kl=np.zeros((0, 0), dtype=np.int64), **derived(sharded, self.chip),
        )  # fmt: skip
        cut_t = self.forward_t[0] & ~self.forward_t[1] & separate
        made_of = BlockRows(
            self.model, figures, distinct(figures), np.array(self.rows), cut_t, units, deadline=self.deadline
        )
        if self.alone:
            more = max(len(columns) for _, columns, _ in self.alone)
            columns_p, more_p = np.full((made_of.blocks, more), -1), np.zeros((made_of.blocks, more))
            for p, columns, figures_f in self.alone:
                columns_p[p, : len(columns)], more_p[p, : len(columns)] = columns, figures_f
            made_of.memory.append((columns_p, more_p / made_of.rate))
        return made_of

    def _by_row(self, figures_o: Floats) -> Floats:
        """Figures of options, and nothing of the rows beside them."""
        return np.concatenate([figures_o, np.zeros(len(self.rows) - len(figures_o))])

    def _ends(self) -> list[tuple[int, int, Floats, Floats, Floats]]:
        """Add inputs, outputs and carried tensors where they are moved.

        Returns
        -------
        list of (kernel, source, bytes read, bytes of buffers, bytes moved)
            By option of the kernel where it is its own source, else by class of the source.
        """
        menu, found = self.menu, []
        kernel_e, of_e, write_e, bytes_oe = menu.ends
        for e, buffer in enumerate(menu.buffer_e(self.tiles).tolist()):
            k, of = int(kernel_e[e]), int(of_e[e])
            options = menu.tables.of_kernel[k] if k == of else np.array([one[0] for one in self.options_kc[of]])
            size = bytes_oe[options, e]
            for row, moved in zip(options if k == of else self.seen(k, of), size.tolist(), strict=True):
                self.mem[row] += moved
                self.accessed[row] += moved
                self.sram[row] += buffer * moved
            found.append((k, of, size * (not write_e[e]), buffer * size, size))
        return found

    def _parts(self, full_t: Floats, tile_k: Floats, ends: list[tuple[int, int, Floats, Floats, Floats]]) -> None:
        """Add kernels whose weights are cut into parts under some schemes of theirs and of their sources."""
        menu, first, chip, output_o = self.menu, self.menu.sharded[0], self.chip, self.menu.by_option("output_k")
        one_t = np.unique(first.group_t, return_index=True)[1]
        read_t = np.unique(np.stack([first.dst_t, first.group_t]), axis=1, return_index=True)[1]
        moved = menu.instance.assumptions.operand_traffic is None
        ends = ends + [
            (int(first.dst_t[t]), a, size_c, 2 * tile_k[a] * size_c, moved * size_c)
            for t, a in zip(read_t.tolist(), first.src_t[read_t].tolist(), strict=True)
            for size_c in (full_t[t] * self.share_kc[a],)
        ]
        again, all_again = "reread" in chip.weight_tiling, chip.weight_tiling == "reread_all"
        for k, options in enumerate(menu.tables.of_kernel):
            look(self.deadline)
            # bytes read, of buffers and moved, by option of the kernel and by class of each of its sources
            given = {k: np.zeros((3, len(options)))}
            for _, src, *both in (end for end in ends if end[0] == k):
                given[src] = given.get(src, 0.0) + np.stack(both)
            place = np.array(list(itertools.product(*(range(one.shape[1]) for one in given.values())))).T
            sums = np.sum([one[:, at] for one, at in zip(given.values(), place, strict=True)], axis=0)
            read_f, buffer_f, moved_f = sums
            stationary_f = menu.by_option("stationary_k")[options][place[0]]
            made_f = (output_o[options] * full_t[one_t][first.src_t[one_t] == k].sum())[place[0]]
            outputs_f = 2 * tile_k[k] * made_f
            parts_f = weight_parts(chip, stationary_f, outputs_f, buffer_f)
            more_f = (parts_f - 1) * (read_f * again + made_f * all_again)
            moved_f = moved_f + menu.own_bytes_o[options][place[0]] + moved * made_f + np.maximum(more_f, 0.0)
            self._slower(k, dict(zip(given, place, strict=True)), moved_f)
            if (parts_f == 1).all():
                continue
            columns = self.A[k][None, :]
            if len(parts_f) > 1:
                columns = self.model.continuous(f"parts_{k}", (len(parts_f), len(columns[0])), 0.0, 1.0)
                for src, at in zip(given, place, strict=True):
                    of_row = options if src == k else self.seen(k, src)
                    for choice, row in enumerate(of_row):
                        terms: Terms = [(columns[at == choice].T, 1.0), (self.rows[row], -1.0)]
                        self.model.rows(f"parts_{k}_{src}_{choice}", terms, 0, 0)
            self.model.bound(columns[parts_f == 0], upper=0.0)
            less_f = (stationary_f + outputs_f) * (1 - 1 / np.maximum(parts_f, 1))
            others = np.delete(self.A, k, axis=0).T
            for f in np.flatnonzero(parts_f > 1).tolist():
                self._add(columns[f], float(more_f[f]), -float(less_f[f]))
                if others.size:  # its weight streams through the whole chip
                    alone: Terms = [(others, 1.0), (columns[f], float(others.shape[1]))]
                    self.model.rows(f"alone_{k}_{f}", alone, upper=others.shape[1])

    def _slower(self, k: int, place: dict[int, Ints], moved_f: Floats) -> None:
        """Note what a kernel alone takes of the memory beyond the rate that most bytes sustain, as bytes at that rate.

        ``place``: by source, and of the kernel itself by option, which of its classes each of all choices has.
        """
        if self.slower is None or len(moved_f) > _MOST_ALONE:
            return
        more_f = self.slower.dram_seconds(moved_f) * self.chip.dram_bandwidth - moved_f
        if not (more_f > 0).any():
            return
        columns = self.A[k, k][None]
        if len(moved_f) > 1:
            columns = self.model.continuous(f"slower_{k}", (len(moved_f),), 0.0, 1.0)
            for src, at in place.items():
                of_row = self.menu.tables.of_kernel[k] if src == k else self.seen(k, src)
                for choice, row in enumerate(of_row):
                    terms: Terms = [(columns[at == choice][None, :], 1.0), (self.rows[row][[k]], -1.0)]
                    self.model.rows(f"slower_{k}_{src}_{choice}", terms, 0, 0)
        self.alone.append((k, columns, more_f))
