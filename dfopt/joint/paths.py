"""Shortest paths over a list of blocks whose down-sets before are in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dfopt.fusion.downsets import Lattice
from dfopt.terms.sharded_graph import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks between down-sets, sorted by the one before.

    Parameters
    ----------
    lattice : Lattice
        The down-sets, the smaller first.
    before, after : int array
        Down-sets of every block.
    """

    lattice: Lattice
    before: Ints
    after: Ints

    def __len__(self) -> int:
        return len(self.before)

    def part(self, keep: Bools) -> Blocks:
        """Some of them."""
        return Blocks(self.lattice, self.before[keep], self.after[keep])

    @property
    def member(self) -> Bools:
        """Kernels of every block."""
        return self.lattice.member[self.after] & ~self.lattice.member[self.before]

    def distances(self, seconds: Floats) -> tuple[Floats, Floats]:
        """Least seconds from the empty down-set to each, and from each to the full one."""
        count = len(self.lattice.size)
        ahead, rest = np.full(count, np.inf), np.full(count, np.inf)
        ahead[0], rest[-1] = 0.0, 0.0
        size = self.lattice.size[self.before]  # blocks that leave sets of one size do not follow each other
        cuts = np.append(np.flatnonzero(np.diff(size, prepend=-1)), len(size))
        levels = [slice(low, high) for low, high in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)]
        for part in levels:
            np.minimum.at(ahead, self.after[part], ahead[self.before[part]] + seconds[part])
        for part in reversed(levels):
            np.minimum.at(rest, self.before[part], seconds[part] + rest[self.after[part]])
        return ahead, rest

    def within(self, seconds: Floats, room: float) -> tuple[Bools, Floats]:
        """Which of them lie on a path that takes no more, and the least seconds from each down-set to the full one."""
        ahead, rest = self.distances(seconds)
        return within(self.through(seconds, ahead, rest), room), rest

    def through(self, seconds: Floats, ahead: Floats, rest: Floats) -> Floats:
        """Seconds of the shortest path through every block."""
        return np.asarray(ahead[self.before] + seconds + rest[self.after])

    def shortest(self, seconds: Floats, rest: Floats, rather: Bools) -> Ints:
        """The blocks of a shortest path, some of them rather than others."""
        path, here = [], 0
        while here != len(self.lattice.size) - 1:
            out = np.arange(*np.searchsorted(self.before, [here, here + 1]))
            total = seconds[out] + rest[self.after[out]]
            path.append(int(out[np.argmin(np.where(rather[out], total * (1 - SAME), total))]))
            here = int(self.after[path[-1]])
        return np.array(path)


SAME = 1e-9  # values that differ by less are one value


def within(total: Floats, room: float) -> Bools:
    """Whether paths end below a value, which may have no end."""
    return np.asarray(np.isfinite(total) & (total <= room))
