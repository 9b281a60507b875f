"""The down-sets of a stage: sets of kernels that hold every predecessor of their kernels.

Partitions that run one after another visit down-sets ``{} = I_0 < I_1 < ... < I_P = all``. Layer graphs are
nearly chains and have few: 26 for a GPT layer forward, 2401 for 96 of them drawn one after another.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dfopt.fusion.blocks import StageTables
from dfopt.setting.tables import Bools, Ints


@dataclass(frozen=True)
class Lattice:
    """Down-sets as rows of a membership matrix, by size; the first is empty, the last holds all kernels."""

    member: Bools
    size: Ints

    @cached_property
    def words(self) -> NDArray[np.uint64]:
        """The rows of ``member`` as bits."""
        bits = np.packbits(self.member, axis=1)
        padded = np.zeros((len(bits), -(-bits.shape[1] // 8) * 8), dtype=np.uint8)
        padded[:, : bits.shape[1]] = bits
        return padded.view(np.uint64)


def down_sets(tables: StageTables, forward_backward: str, budget: int) -> Lattice | None:
    """Enumerate the down-sets of a stage, or None when there are more than ``budget``.

    Under ``forward_backward: separate`` every forward kernel precedes every other one, which is what
    the rule says and what keeps the lattice small.
    """
    sharded, n = tables.sharded, tables.kernels
    own = (sharded.src_t < n) & (sharded.dst_t < n)
    edges = {(int(a), int(b)) for a, b in zip(sharded.src_t[own], sharded.dst_t[own], strict=True)}
    after: list[list[int]] = [[] for _ in range(n)]
    waits = np.zeros(n, dtype=np.int32)
    for a, b in sorted(edges):
        after[a].append(b)
        waits[b] += 1
    forward = sharded.forward_k
    barrier = forward_backward == "separate" and bool(forward.any()) and not forward.all()
    if barrier:  # one more predecessor: the whole forward pass
        waits[~forward] += 1
    # a random number per kernel: sums of them tell sets apart
    names = np.random.default_rng(0).integers(1, 2**63, n, dtype=np.uint64)
    member, wait, name = np.zeros((1, n), dtype=bool), waits[None, :], np.zeros(1, dtype=np.uint64)
    found, count = [member], 1
    for _ in range(n):
        parent, kernel = np.nonzero((wait == 0) & ~member)
        name, first = np.unique(name[parent] + names[kernel], return_index=True)
        count += len(first)
        if count > budget:
            return None
        parent, kernel = parent[first], kernel[first]
        member, wait = member[parent], wait[parent]
        rows = np.arange(len(first))
        member[rows, kernel] = True
        for k in np.unique(kernel).tolist():
            mine = rows[kernel == k]
            for b in after[k]:
                wait[mine, b] -= 1
        if barrier:
            crossing = rows[forward[kernel] & (member[:, forward].all(axis=1))]
            wait[np.ix_(crossing, np.flatnonzero(~forward))] -= 1
        found.append(member)
    everything = np.concatenate(found)
    return Lattice(everything, everything.sum(axis=1).astype(np.int64))
