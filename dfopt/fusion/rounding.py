"""From fractional blocks to a partitioning: blocks as counts per class become an order of kernels to cut."""

from __future__ import annotations

from typing import Final

import numpy as np

from dfopt.arrays import LEAST_UNIT, Floats, Ints
from dfopt.bnb import UNLIMITED, Clock
from dfopt.fusion.classes import KernelClasses
from dfopt.milp import Model, solve

_WHOLE: Final = 1e-9  # a quotient of whole numbers that is below one by less is rounded
_GAP: Final = 1e-4  # of the choice: what it finds is a start, and its last digits are not worth the time


def whole_blocks(
    counts: Floats, seconds: Floats, size_c: Ints, p_max: int, exactly: bool, clock: Clock, seed: int
) -> list[int]:
    """Choose integral blocks that cover every kernel once, at the least cost over the given columns.

    Parameters
    ----------
    counts : float array, shape (blocks, classes)
        Kernels of each class in each block.
    seconds : float array
        Time of each block.
    size_c : int array
        Kernels per class.
    p_max, exactly : int, bool
        Blocks at most, or exactly.
    clock : Clock
        Limit on the choice; the list is empty if nothing was found in time.

    Returns
    -------
    list of int
        Columns, as often as they are taken.
    """
    model = Model("whole_blocks")
    with np.errstate(divide="ignore"):
        most = np.where(counts > 0, size_c / counts, np.inf).min(axis=1)
    x = model.integer("x", (len(seconds),), 0.0, np.floor(most + _WHOLE))
    model.rows("each_kernel", [(np.broadcast_to(x, counts.T.shape), counts.T)], size_c, size_c)
    if exactly or p_max < int(size_c.sum()):
        model.rows("partitions", [(x[None, :], 1.0)], float(p_max) if exactly else 1.0, float(p_max))
    unit = max(float(seconds.max(initial=0.0)), LEAST_UNIT)
    model.minimize([(x, seconds / unit)])
    solution = solve(model, gap=_GAP, clock=clock, seed=seed)
    if solution.x is None:
        return []
    taken = np.round(model.value("x", solution.x)).astype(np.int64)
    return [int(c) for c in np.repeat(np.arange(len(taken)), taken)]


def lined_up(
    patterns: list[Ints], classes: KernelClasses, before: list[list[int]], base: Ints, clock: Clock = UNLIMITED
) -> list[Ints]:
    """Assign kernels to blocks given as counts by class, such that the blocks form a topological order.

    Of each class, kernels with predecessors in the same block come first, then those in the order ``base``. A block
    that cannot be filled is filled as far as possible; remaining kernels, and those of patterns that the clock leaves
    out, are appended.

    Parameters
    ----------
    patterns : list of int arrays, shape (classes,)
        Kernels of each class in each block.
    classes : KernelClasses
        Classes of the kernels.
    before : list of lists of int
        Predecessors of every kernel.
    base : int array, shape (kernels,)
        A topological order.
    clock : Clock
        Ends the choice of the next block.
    """
    n, place = len(base), np.argsort(base)
    members: list[list[int]] = [[] for _ in classes.size_c]
    for k in base.tolist():
        members[classes.class_k[k]].append(k)
    first = [min((int(place[k]) for k in ks), default=n) for ks in members]
    done = np.zeros(n, dtype=bool)

    def filled(pattern: Ints) -> list[int]:
        """Kernels for a pattern among those that are left, as far as precedence lets it."""
        chosen = dict[int, None]()
        wanted = {int(c): int(pattern[c]) for c in np.flatnonzero(pattern)}
        moved = True
        while moved:
            moved = False
            for c in sorted(wanted, key=lambda c: first[c]):
                left = (k for k in members[c] if not done[k] and k not in chosen)
                ready = [k for k in left if all(done[b] or b in chosen for b in before[k])]
                ready.sort(key=lambda k: (-sum(b in chosen for b in before[k]), place[k]))
                for k in ready[: wanted[c]]:
                    chosen[k] = None
                    wanted[c] -= 1
                    moved = True
            wanted = {c: count for c, count in wanted.items() if count}
        return [*chosen]

    blocks: list[Ints] = []
    waiting = list(patterns)
    while waiting:
        best: tuple[float, int, list[int]] | None = None
        tried: set[bytes] = set()
        for at, pattern in enumerate(waiting):
            if pattern.tobytes() in tried:
                continue
            tried.add(pattern.tobytes())
            if clock.over:
                break
            kernels = filled(pattern)
            share = len(kernels) / int(pattern.sum())
            if best is None or share > best[0]:
                best = (share, at, kernels)
            if share == 1.0:
                break
        if best is None or not best[2]:
            break
        waiting.pop(best[1])
        blocks.append(np.array(best[2], dtype=np.int64))
        done[blocks[-1]] = True
    rest = base[~done[base]]
    if len(rest):
        blocks.append(rest)
    return blocks
