"""What the schemes of a stage's kernels add to its relaxed price.

Figures of a choice: compute seconds, DRAM bytes, network seconds, seconds of SRAM traffic (none where it is unlimited),
weighted seconds of gradients, SRAM bytes that are held; bytes of output buffers and bytes that every further part of a
weight reads again, for kernels whose weight may not fit whole; sums of blocks of tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from dfopt.fusion.blocks import StageTables
from dfopt.joint.couplings import Group, groups_of
from dfopt.joint.menu import Menu
from dfopt.terms.chip import Chip
from dfopt.terms.sharded_graph import Bools, Floats, Ints
from dfopt.terms.token_blocks import TOKEN_SUMS, TokenRows

COMPUTE, DRAM, NETWORK, ACCESS, GRADIENT, SRAM, OUTPUTS, AGAIN = range(8)
TOKENS = slice(8, 12)
FIGURES = 12
TOKEN_FIGURE: Final = {name: TOKENS.start + place for place, name in enumerate(TOKEN_SUMS)}
"""Figure of each resource of blocks of tokens."""


@dataclass(frozen=True, eq=False)
class Choices:
    """The schemes of a stage's kernels and what they add to the relaxed stage.

    Attributes
    ----------
    figures_kz : tuple of float arrays, shape (schemes, figures)
        What each scheme of a kernel adds to the least of all: compute seconds, DRAM bytes, network seconds (less the
        relaxed ones, which hold conversions), seconds of SRAM traffic, weighted seconds of gradients, SRAM bytes; then
        nothing, and bytes that are read again by each part of a weight.
    stationary_kz : tuple of float arrays
        Bytes that stay in SRAM.
    order_k : int
        Place of each kernel in a topological order.
    groups : tuple of Group
        Those that are not plain.
    """

    chip: Chip
    figures_kz: tuple[Floats, ...]
    stationary_kz: tuple[Floats, ...]
    order_k: Ints
    groups: tuple[Group, ...]
    of_k: tuple[tuple[int, ...], ...]  # groups that touch a kernel
    touches_g: tuple[Ints, ...]  # and the other way round
    relevant_k: Bools  # kernels whose choice, or whose groups, may change the price of a block
    token_rows: TokenRows | None = None  # what blocks of tokens are cut from, if there may be any

    @cached_property
    def _most(self) -> tuple[Floats, Floats, Floats]:
        """SRAM bytes that each kernel and each group may add to a relaxed price, and which kernels a group touches."""
        touch_kg = np.zeros((len(self.order_k), len(self.groups)))
        most_g = np.zeros(len(self.groups))
        for g, group in enumerate(self.groups):
            touch_kg[self.touches_g[g], g] = 1.0
            deepest = max((depth for _, depth, _ in group.readers), default=0.0)
            most_g[g] = (4.0 + deepest) * group.tile * group.full * float(np.ptp(group.share_c))
        return np.array([figures[:, SRAM].max() for figures in self.figures_kz]), most_g, touch_kg

    def most_sram(self, member: Bools) -> Floats:
        """SRAM bytes that no choice of schemes in blocks adds more than to their relaxed prices."""
        most_k, most_g, touch_kg = self._most
        if not most_g.any() and not most_k.any():
            return np.zeros(len(member))
        block = (member & self.relevant_k).astype(float)
        return np.asarray(block @ most_k + (block @ touch_kg > 0) @ most_g)


def choices_of(
    menu: Menu, allowed_o: Bools, members: Ints, tables: StageTables, weighed_o: Floats | None
) -> tuple[Choices, list[Ints]]:
    """What schemes add to a relaxed stage, and the options that its kernels are left with.

    Parameters
    ----------
    menu : Menu
        Figures of all options.
    allowed_o : bool array
        Options that are left.
    members : int array
        Kernels of the stage.
    tables : StageTables
        The relaxed stage.
    weighed_o : float array, optional
        Seconds of the stage that the gradient of every option is worth.
    """
    tiles, sharded = tables.sharded.tile_count, tables.sharded
    every = groups_of(menu, allowed_o, members, tiles)
    groups = tuple(group for group in every if not group.plain)
    of_k: list[list[int]] = [[] for _ in range(len(members))]
    for g, group in enumerate(groups):
        for k in group.kernels():
            of_k[k].append(g)
    least_k = np.zeros((len(menu.first_k), FIGURES))
    figures_o = np.zeros((len(menu.tables.kernel_o), FIGURES))
    for figure, of in (
        (COMPUTE, np.zeros(len(figures_o)) if sharded.menus else menu.by_option("compute_s")),
        (DRAM, menu.by_option("dram_bytes")),
        (ACCESS, menu.accessed_o / tables.chip.sram_bandwidth),
        (GRADIENT, np.zeros(len(figures_o)) if weighed_o is None else weighed_o),
        (SRAM, menu.by_option("stationary_bytes")),
        (SRAM, menu.buffer_o(tiles)),
        (AGAIN, menu.by_option("reread_bytes")),
        *((figure, menu.by_option(name)) for name, figure in TOKEN_FIGURE.items()),
    ):
        figures_o[:, figure] += of
        least_k[:, figure] += menu.least(of, allowed_o)
    figures_o[:, NETWORK] = menu.network_o
    least_k[members, NETWORK] = sharded.net_k
    for group in every:
        if group.plain:  # in the relaxed price, whatever the schemes
            least_k[members[group.src], NETWORK] -= group.sure
    options = [np.flatnonzero((menu.tables.kernel_o == kernel) & allowed_o) for kernel in members.tolist()]
    figures_kz = [figures_o[mine] - least_k[kernel] for kernel, mine in zip(members.tolist(), options, strict=True)]
    relevant = [len(mine) > 1 or bool(of) for mine, of in zip(options, of_k, strict=True)]
    stationary_o = menu.by_option("stationary_bytes")
    level, names = menu.instance.graph.levels(), sharded.names
    order = np.argsort(np.argsort([level[name] for name in names], kind="stable"), kind="stable")
    choices = Choices(
        chip=tables.chip,
        figures_kz=tuple(figures_kz),
        stationary_kz=tuple(stationary_o[mine] for mine in options),
        order_k=order.astype(np.int64),
        groups=groups,
        of_k=tuple(map(tuple, of_k)),
        touches_g=tuple(np.array(sorted(group.kernels())) for group in groups),
        relevant_k=np.array(relevant, dtype=bool),
        token_rows=None if sharded.token_charges is None else sharded.token_charges.rows,
    )
    return choices, options
