"""Which kernels no mapping puts beside others on a chip: where their heat is, is known."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dfopt.documents.graph import Graph
from dfopt.heat.balanced_power import crowding
from dfopt.physics.ops import flop
from dfopt.physics.token_blocks import takes_blocks
from dfopt.setting.instance import Instance
from dfopt.terms.chip import chip_of
from dfopt.terms.figures import Figures
from dfopt.terms.token_blocks import token_rows

_SLACK = 2e-6  # by which the judge lets SRAM be exceeded, and a little


class Together(NamedTuple):
    """Kernels that must be alone in their partitions, and a bound on the crowding of the others."""

    alone: frozenset[str]
    crowding: float


def together(instance: Instance, interleaved: bool = False) -> Together:
    """What holds for partitions under a plan, for every mapping: kernels alone, and crowding of the others.

    A kernel whose weights (and the gradients that it adds to) are more than SRAM under every sharding runs in parts,
    alone in its partition; one that may take its tokens in blocks needs no room. Of the others a partition holds no
    more than have room for theirs. Where all compute at one rate, and share the chip in balance, that bounds their
    crowding: `dfopt.heat.balanced_power`.

    Parameters
    ----------
    instance : Instance
        The plan in its setting.
    interleaved : bool
        Whether the stack spreads every kernel over all tiles.
    """
    graph, chip, figures = instance.graph, instance.system.chip, Figures(instance)
    if figures.layer.by_cycles:  # a kernel is on its own tiles, and may leave others idle
        return Together(frozenset(), 1.0 if interleaved else np.inf)
    names = [kernel.name for kernel in graph.kernels]
    if interleaved or not chip_of(instance.system, instance.assumptions).fused:
        return Together(frozenset(names), 1.0)
    stationary_o = figures.by_option("stationary_bytes")
    held_k = figures.least(stationary_o, np.ones(len(stationary_o), dtype=bool))
    if token_rows(figures.layer) is not None:
        held_k = np.where([takes_blocks(kernel) for kernel in graph.kernels], 0.0, held_k)
    room = chip.sram.capacity * (1 + _SLACK)
    alone = frozenset(name for name, size in zip(names, held_k.tolist(), strict=True) if size > room)
    kind_k, most = np.array([graph.kind_of(kernel) for kernel in graph.kernels]), 1
    for kind in np.unique(kind_k):
        sizes = np.sort(held_k[(kind_k == kind) & (held_k <= room)])
        most = max(most, int((np.cumsum(sizes) <= room).sum()))
    return Together(alone, crowding(most, chip.tiles) if figures.layer.one_rate else np.inf)


def part_of(graph: Graph, names: frozenset[str]) -> float:
    """Share of a graph's FLOP in some kernels."""
    parts = [graph.times_of(kernel) * flop(kernel) for kernel in graph.kernels if kernel.name in names]
    total = math.fsum(graph.times_of(kernel) * flop(kernel) for kernel in graph.kernels)
    return math.fsum(parts) / total if total > 0 else 0.0
