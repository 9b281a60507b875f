"""The pricing problem of column generation: the one block of kernels that a set of prices favours most.

Suffixes: c class of interchangeable kernels, g class of fan-out groups, m menu option. Integer counts
stand for kernels: ``I_c`` of class c run before the block, ``A_c`` in it; kernels that are alike are
not told apart, so the model does not grow with their number. Where every class holds one kernel it is exact;
else every block is still one of its points, at no more than its true time, so that its bounds hold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dfopt.arrays import LEAST_UNIT, Floats, Ints
from dfopt.bnb import UNLIMITED, Clock
from dfopt.fusion import library
from dfopt.fusion.blocks import StageTables, price_each, singles
from dfopt.fusion.classes import KernelClasses
from dfopt.fusion.partitioning import IntraChipLimits, always_cut, lower_bound
from dfopt.fusion.rows import BlockRows
from dfopt.milp import Model, Solution, Termination, Terms, closed_form, solve

TOLERANCE = 1e-8  # of a unit of seconds: what a block must be worth more than its time
_SCALE: Final = 10  # units of the lower bound of a stage: a block is a small part of it, and its times are some units


@dataclass(frozen=True)
class CountedBlock:
    """A block as counts by class of kernels.

    Attributes
    ----------
    inside_c, before_c : int arrays, shape (classes,)
        Kernels in the block, and before it.
    seconds : float, s
        Lower bound on its time.
    """

    inside_c: Ints
    before_c: Ints
    seconds: float


class OneBlock:
    """Pricing MILP for one block; only its objective changes with the dual prices.

    When the clock is over, building it raises :class:`OutOfTime`.
    """

    def __init__(
        self, tables: StageTables, limits: IntraChipLimits, classes: KernelClasses, clock: Clock = UNLIMITED
    ) -> None:
        self.tables, self.limits, self.classes = tables, limits, classes
        self.unit_s = max(lower_bound(tables, limits), LEAST_UNIT) / _SCALE
        self.model = model = Model("one_block")
        size, first = classes.size_c, classes.first_c
        free = tables.parts_k[first] == 1  # a kernel whose weight is cut into parts is a block of its own
        self.A = model.integer("A", (len(size),), 0.0, size * free)
        self.I = model.integer("I", (len(size),), 0.0, size)
        model.rows("within_class", [(self.I[:, None], 1.0), (self.A[:, None], 1.0)], upper=size)
        model.rows("some_kernel", [(self.A[None, :], 1.0)], lower=1)
        model.rows("compute_tiles", [(self.A[None, :], 1.0)], upper=float(tables.chip.tiles))
        units = (self.unit_s, tables.chip.sram)
        blocks = BlockRows(model, tables, classes, self.A[:, None], units, True, clock, self._precede)
        blocks.separate(always_cut(tables, "shared"))  # the passes have rows of their own
        self._one_pass()
        self.time = blocks.times()

    def _precede(self, a: int, b: int, per_a: float, per_b: float) -> None:
        """No kernel before what it needs; per kernel of the two classes so many tensors."""
        before = [(self.I[b : b + 1], per_b), (self.I[a : a + 1], -per_a)]
        now = [(self.A[b : b + 1], per_b), (self.A[a : a + 1], -per_a)]
        self.model.rows(f"precedence_{a}_{b}", before, upper=0)
        self.model.rows(f"precedence_done_{a}_{b}", before + now, upper=0)

    def search(
        self, price_c: Floats, fixed: float, clock: Clock, seed: int = 0
    ) -> tuple[Solution, CountedBlock | None]:
        """Find a block of negative reduced cost: its kernels are worth more than its time.

        Parameters
        ----------
        price_c : float array
            Seconds that a kernel of each class is worth.
        fixed : float
            Seconds that any block costs in addition to its time: the dual price of the number of partitions.
        clock : Clock
            Limit on the search.

        Returns
        -------
        (solution, block)
            INFEASIBLE is the proof that there is none, to ``TOLERANCE`` times ``unit_s``.
        """
        # the fixed seconds as offset: the cutoff stays near 0, where its own slack is far below the tolerance
        self.model.minimize([(self.time, 1.0), (self.A, -price_c / self.unit_s)], offset=fixed / self.unit_s)
        # any good block helps; only the proof that there is none must be exact
        solution = solve(self.model, gap=0.5, clock=clock, cutoff=-TOLERANCE, seed=seed)
        if solution.x is None:
            return solution, None
        inside, before = (np.round(self.model.value(name, solution.x)).astype(np.int64) for name in ("A", "I"))
        return solution, CountedBlock(inside, before, float(self.model.value("time", solution.x)[0]) * self.unit_s)

    def _one_pass(self) -> None:
        """Under ``separate`` a block holds forward kernels or others, never both."""
        classes, model = self.classes, self.model
        forward = self.tables.sharded.forward_k[classes.first_c]
        if self.limits.forward_backward != "separate" or forward.all() or not forward.any():
            return
        which = model.binary("forward", (1,))
        size = classes.size_c.astype(np.float64)
        for name, side, sign, upper in (("forward_only", forward, -1.0, 0.0), ("backward_only", ~forward, 1.0, 1.0)):
            terms: Terms = [(self.A[side], 1.0), (np.repeat(which, side.sum()), sign * size[side])]
            model.rows(name, terms, upper=upper * size[side])


class Listed:
    """Pricing by a list of all blocks: single kernels, and those that a library fuses."""

    def __init__(self, tables: StageTables, limits: IntraChipLimits, classes: KernelClasses, clock: Clock) -> None:
        self.tables, self.limits = tables, limits
        self.unit_s = max(lower_bound(tables, limits), LEAST_UNIT) / _SCALE
        self.blocks = [*singles(tables), *library.several(tables.sharded, clock)]
        prices = price_each(tables, self.blocks)
        self.seconds = np.where(prices.legal, prices.time, np.inf)
        self.counts = np.array([classes.counts(kernels) for kernels in self.blocks])

    def search(
        self, price_c: Floats, fixed: float, clock: Clock, seed: int = 0
    ) -> tuple[Solution, CountedBlock | None]:
        """Find a block of negative reduced cost; by looking at each.

        Parameters
        ----------
        price_c, fixed, clock, seed
            As for :meth:`OneBlock.search`.
        """
        worth = (self.counts @ price_c - self.seconds - fixed) / self.unit_s
        best = int(np.argmax(worth))
        solution = closed_form(-float(worth[best]), 0.0, f"{len(self.blocks)} blocks looked at")
        if worth[best] <= TOLERANCE:
            return replace(solution, termination=Termination.INFEASIBLE), None
        inside = self.counts[best].astype(np.int64)
        return solution, CountedBlock(inside, np.zeros_like(inside), float(self.seconds[best]))


def pricing(tables: StageTables, limits: IntraChipLimits, classes: KernelClasses, clock: Clock) -> OneBlock | Listed:
    """The pricing problem of a stage: a list where a library allows few blocks, else a MILP.

    Parameters
    ----------
    tables, limits
        The stage, and the limits on its partitions.
    classes, clock
        Classes of like kernels, and the clock of the search.
    """
    return (Listed if tables.chip.library else OneBlock)(tables, limits, classes, clock)


def slack(model: OneBlock | Listed) -> float:
    """Seconds by which a bound may be too high, because the MILP ignores blocks of nearly zero reduced cost."""
    most = min(model.limits.p_max, model.tables.kernels)
    return TOLERANCE * model.unit_s * most
