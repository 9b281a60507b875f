"""Interchangeable kernels: identical experts, embedding tables or heads drawn apart, as counted classes.

Colour refinement: kernels start with the colour of their own figures and take up, round by round, the
colours of their neighbours until nothing splits any more. All kernels of a class then have the same prices and
the same number of tensors of each kind to and from every other class, so rows of a model may be added
up over a class. Kernels that a symmetry of the graph exchanges share a class, unless a toll tells them apart: it
names the kernels that pay it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dfopt.arrays import Floats, Ints
from dfopt.bnb import UNLIMITED, Clock
from dfopt.fusion.blocks import StageTables

GOLDEN: Final = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio: multiples of it are spread evenly over words of 64 bits (Knuth, TAOCP 3, 6.4)."""
# The finalizer of SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
_MIX: Final = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_SHIFT: Final = 29, 32
_WORK: Final = 100.0  # units of work of one refinement, about as long as it takes


@dataclass(frozen=True)
class KernelClasses:
    """Classes of interchangeable kernels and fan-out groups.

    Attributes
    ----------
    class_k, group_g : int arrays, shapes (kernels,) and (groups,)
        Class of every kernel, and of every fan-out group.
    size_c, first_c : int arrays, shape (classes,)
        Number of kernels in each class, and one kernel of each.
    """

    class_k: Ints
    size_c: Ints
    first_c: Ints
    group_g: Ints

    def counts(self, kernels: Ints) -> Floats:
        """Number of kernels of each class in a set: float array, shape (classes,)."""
        return np.bincount(self.class_k[kernels], minlength=len(self.size_c)).astype(np.float64)


def distinct(tables: StageTables) -> KernelClasses:
    """Trivial classes: every kernel and every fan-out group on its own."""
    each = np.arange(tables.kernels)
    return KernelClasses(each, np.ones_like(each), each, np.arange(len(tables.bytes_g)))


def interchangeable(tables: StageTables, clock: Clock = UNLIMITED) -> KernelClasses:
    """The coarsest classes of interchangeable kernels, by colour refinement, in the order of their first kernels.

    When the clock is over, the search raises :class:`OutOfTime`.
    """
    sharded, n = tables.sharded, tables.kernels
    figures = [
        sharded.forward_k,
        sharded.compute_k,
        tables.sram_k,
        tables.mem_k,
        sharded.net_k,
        tables.parts_k,
        sharded.stationary_k,
        *tables.steady_rk,
        *sharded.payers_xk,
        *(tables.tiles_kl.T if sharded.menus else ()),
        *(sharded.sets_k.T if tables.chip.library else ()),
    ]
    colour_k = _numbered(np.array(figures, dtype=np.float64).T)
    src, dst, group = sharded.src_t, sharded.dst_t, sharded.group_t
    # reading one tensor twice costs less than reading two that are alike
    _, pair, often = np.unique(group * (n + 1) + dst, return_inverse=True, return_counts=True)
    edge = _numbered(np.array([sharded.depth_t, often[pair]], dtype=np.float64).T)
    own_g = _numbered(np.array([tables.bytes_g, tables.tile_g], dtype=np.float64).T)
    kinds = 0
    while True:
        clock.check(_WORK)
        colour = np.append(colour_k, -1)  # the last is whatever lies outside the stage
        group_g = own_g
        if len(src):
            heads = np.zeros(len(tables.bytes_g), dtype=np.uint64)
            np.add.at(heads, group, _mixed(colour[dst], edge))
            _, group_g = np.unique(np.stack([_mixed(colour[tables.src_g], own_g), heads]), axis=1, return_inverse=True)
        around = np.zeros((2, n + 1), dtype=np.uint64)
        if len(src):
            np.add.at(around[0], src, _mixed(group_g[group], edge, colour[dst]))
            np.add.at(around[1], dst, _mixed(group_g[group], edge, colour[src]))
        _, refined = np.unique(
            np.stack([colour_k.astype(np.uint64), around[0, :n], around[1, :n]]), axis=1, return_inverse=True
        )
        count = int(refined.max(initial=-1)) + 1
        if count == kinds:
            break
        kinds, colour_k = count, refined.astype(np.int64)
    _, first, class_k, size = np.unique(colour_k, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    rank = np.argsort(order)
    return KernelClasses(
        rank[class_k].astype(np.int64),
        size[order].astype(np.int64),
        first[order].astype(np.int64),
        group_g.astype(np.int64),
    )


def _numbered(rows: Floats) -> Ints:
    """Equal rows get equal numbers."""
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _mixed(*numbers: Ints) -> NDArray[np.uint64]:
    """One well-spread 64-bit number per entry, so that sums of them tell multisets apart."""
    hashes = np.full(len(numbers[0]), GOLDEN, dtype=np.uint64)
    for values in numbers:
        hashes = (hashes ^ values.astype(np.uint64)) * np.uint64(_MIX[0])
        hashes ^= hashes >> np.uint64(_SHIFT[0])
        hashes *= np.uint64(_MIX[1])
        hashes ^= hashes >> np.uint64(_SHIFT[1])
    return hashes
