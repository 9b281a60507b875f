"""What a stage takes at least by each resource for itself: a Lagrangean dual, found by eliminating kernels.

Kernels of two *sides* share no block: passes, or kernels that always run alone. A stage takes no less than the sum over
its sides s of the largest of some sums R_sq of resources q: all compute, all DRAM traffic that no partitioning avoids,
with the communication that adds to either. For any weights w_sq >= 0 that add up to 1 in every side

    T  >=  sum_s max_q R_sq(z)  >=  sum_s,q w_sq R_sq(z)    for every vector z of options,

and the least of the right side over all vectors is exact by elimination (:mod:`dfopt.terms.elimination`). The first
weights are on what is largest anyway. The vector that is met says which sums are largest under it; the next weights are
the best for the last two vectors that were met. One or two eliminations mostly do, as one resource decides in a side.

Suffixes: k kernel, o option, s side, q sum, r resource, c charge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.regions.classes import PlanClass
from dfopt.regions.factors import SideFactor, least_by_side, parts_of_charges, parts_of_sides
from dfopt.solving.menu import Menu
from dfopt.terms.chip import ChipModel
from dfopt.terms.elimination import Elimination, Factor, eliminated
from dfopt.terms.incidence import Incidence
from dfopt.terms.table import Domain

ROUNDS: Final = 5
"""Most eliminations for one dual: later ones add little."""
CLOSE: Final = 1e-4
"""Share of the dual's value that better weights could add at most where it ends: far below what bounds leave open."""
HIDDEN: Final = 1e-3
"""Weight of what is hidden where options are taken: it decides between those that are as good otherwise."""
_STEP: Final = 1e-9
"""How far beside a share its two sides are looked at: far above rounding, far below what lies between bends."""


@dataclass(frozen=True, eq=False)
class Resources:
    """Least seconds of each resource on every side of a stage, as factors over the remaining options.

    Attributes
    ----------
    left_ko : tuple of int array, by kernel
        Options that are left, as numbers of the menu.
    chip : ChipModel
        Its resources, and which of these add up: the largest of these sums is the time.
    """

    left_ko: tuple[Ints, ...]
    chip: ChipModel
    _parts: tuple[SideFactor, ...]
    _fixed: tuple[Factor, ...]  # infinite where options cannot be together

    def dual(self, extra_o: Floats | None = None) -> Dual:
        """The Lagrangean dual of the stage at its best weights.

        Parameters
        ----------
        extra_o : float array, shape (options of the menu,), s, optional
            Seconds that each option adds and that overlap with nothing.
        """
        weight_sq, sums_of_rounds = _largest(self._sums_of_sides(None)), list[Floats]()
        best: Dual | None = None
        for _ in range(ROUNDS):
            dual = Dual(self.eliminated(weight_sq, extra_o), self, weight_sq, extra_o)
            if best is None or dual.seconds > best.seconds:
                best = dual
            if not np.isfinite(dual.seconds) or len(self._of_sums) == 1:
                break
            met_sq = self._sums_of_sides(dual.elimination.options_k)
            hidden = met_sq.max(axis=1).sum() - (met_sq * weight_sq).sum()
            if hidden <= CLOSE * best.seconds:
                break
            sums_of_rounds.append(met_sq)
            weight_sq = _largest(met_sq) if len(sums_of_rounds) == 1 else between(*sums_of_rounds[-2:])
        assert best is not None
        return best

    def eliminated(self, weight_sq: Floats, extra_o: Floats | None) -> Elimination:
        """The least weighted sum of all sides, found by eliminating kernels.

        Parameters
        ----------
        weight_sq : float array, shape (sides, sums)
            Weights of the sums.
        extra_o : float array, shape (options of the menu,), s, optional
            Seconds that each option adds to the sum.
        """
        factors = *self._fixed, *self._by_kernel(extra_o), *_weighted(self._parts, weight_sq @ self._of_sums)
        return eliminated(factors, self._sizes)

    @cached_property
    def _sizes(self) -> list[int]:
        """How many options of each kernel are left."""
        return [len(left) for left in self.left_ko]

    @cached_property
    def _of_sums(self) -> Floats:
        """Whether each sum has each resource, shape (sums, resources)."""
        resources = range(len(self.chip.resources))
        return np.array([[r in together for r in resources] for together in self.chip.rule.serial_sets], dtype=float)

    def _by_kernel(self, extra_o: Floats | None) -> list[Factor]:
        if extra_o is None:
            return []
        return [((k,), extra_o[left]) for k, left in enumerate(self.left_ko) if extra_o[left].any()]

    def _sums_of_sides(self, place_k: Ints | None) -> Floats:
        """The sums of all sides under options, as places among those left; without any the least of each charge."""
        count = 1 + max((part.side for part in self._parts), default=-1)
        met_sr = np.zeros((count, len(self.chip.resources)))
        for part in self._parts:
            amount = part.amount.min() if place_k is None else part.amount[tuple(place_k[list(part.scope)])]
            met_sr[part.side, part.resource] += amount
        return np.asarray(met_sr @ self._of_sums.T)


@dataclass(frozen=True, eq=False)
class Dual:
    """A Lagrangean bound on the seconds of a stage, with options that attain it.

    Attributes
    ----------
    elimination : Elimination
        Dual function at the best weights. Its marginals are lower bounds on the stage under each remaining option.
    resources : Resources
        Resources of the stage.
    weight_sq : float array, shape (sides, sums)
        The weights.
    extra_o : float array, shape (options of the menu,), s, optional
        Seconds that each option adds and that overlap with nothing.
    """

    elimination: Elimination
    resources: Resources
    weight_sq: Floats
    extra_o: Floats | None

    @property
    def seconds(self) -> float:
        """Lower bound on the seconds of the stage for one evaluation; infinite where no options are compatible."""
        return self.elimination.least

    @cached_property
    def option_k(self) -> Ints:
        """An option of each kernel that attains the bound: int array, shape (kernels,).

        Hidden seconds have a small weight here, so that among options with equal bounds the one with less work is
        chosen.
        """
        elimination, left_ko = self.elimination, self.resources.left_ko
        if self.weight_sq.shape[1] > 1 and np.isfinite(elimination.least):
            elimination = self.resources.eliminated(self.weight_sq + HIDDEN, self.extra_o)
        places = zip(left_ko, elimination.options_k.tolist(), strict=True)
        return np.array([left[place] for left, place in places], dtype=np.int64)


def _weighted(parts: Iterable[SideFactor], weight_sr: Floats) -> Iterator[Factor]:
    """Amounts of the resources of all sides that have any weight."""
    for part in parts:
        if (weight := float(weight_sr[part.side, part.resource])) > 0:
            yield part.scope, part.amount * weight


def _largest(met_sq: Floats) -> Floats:
    """All weight of each side on its largest sum."""
    return np.asarray(np.eye(met_sq.shape[1])[met_sq.argmax(axis=1)])


def between(one_sq: Floats, other_sq: Floats) -> Floats:
    """The weights that maximize the lesser weighted sum of two vectors of options.

    With a share t of one vector and 1 - t of the other, the largest sums of all sides come to a convex function of t
    that bends where two sums of a side are equal. At its least the sums of one side change places there: their weights
    are such that both vectors have the same weighted sum, as far as that is possible.

    Parameters
    ----------
    one_sq, other_sq : float array, shape (sides, sums), s
        Sums of each vector, by resource.

    Returns
    -------
    float array, shape (sides, sums)
        Weights that add up to 1 in every side.
    """
    apart_sq = one_sq - other_sq
    left, right = np.triu_indices(one_sq.shape[1], 1)
    rate = apart_sq[:, left] - apart_sq[:, right]
    with np.errstate(divide="ignore", invalid="ignore"):
        bends = (other_sq[:, right] - other_sq[:, left]) / rate
    shares = np.sort(np.concatenate([bends[(bends > 0) & (bends < 1)], [0.0, 1.0]]))
    totals = (other_sq + shares[:, None, None] * apart_sq).max(axis=2).sum(axis=1)
    share = float(shares[totals.argmin()])
    low_sq, high_sq = (_largest(other_sq + at * apart_sq) for at in (share - _STEP, share + _STEP))
    slope, change = float((low_sq * apart_sq).sum()), float(((high_sq - low_sq) * apart_sq).sum())
    part = min(max(-slope / change, 0.0), 1.0) if change > 0 else 0.5
    return low_sq + part * (high_sq - low_sq)


def resources_of(
    of: PlanClass, domain: Domain, side_k: Ints, counts: Callable[[Incidence], Mapping[int, float]]
) -> Resources:
    """The resource factors of a kind of layer, valid for every way to form blocks.

    Parameters
    ----------
    of : PlanClass
        The class of plans.
    domain : Domain
        Remaining options of every kernel.
    side_k : int array, shape (kernels of the graph,)
        Side of each kernel: kernels of two sides share no block. Negative for kernels of other layers.
    counts : callable
        Function from an incidence to the least number of times that the blocks of each side pay it: a shortest path for
        each.
    """
    parts = parts_of_sides(of.layer, of.table_of_blocks, domain, side_k, of.chip, counts)
    return _resources(of.menu, of.chip, domain, parts)


def untiled(menu: Menu, chip: ChipModel, side_kinds: Iterable[Ints]) -> Floats:
    """Lower bound on the seconds of each kind of layer from charges that do not depend on the number of tiles.

    Parameters
    ----------
    menu : Menu
        Options and figures of the layer.
    chip : ChipModel
        Limits and rates.
    side_kinds : iterable of int array, shape (kernels of the graph,)
        Side of each kernel, by kind of layer, see :func:`resources_of`.

    Returns
    -------
    float array, s, shape (kinds,)
    """
    seconds = list[float]()
    for side_k in side_kinds:
        counts = partial(least_by_side, side_k=side_k)
        parts = parts_of_charges(menu.untiled, menu.domain, side_k, chip, counts)
        seconds.append(_resources(menu, chip, menu.domain, [*parts]).dual().seconds)
    return np.array(seconds)


def _resources(menu: Menu, chip: ChipModel, domain: Domain, parts: Sequence[SideFactor]) -> Resources:
    """Resources from factors of all sides."""
    left_ko = tuple(first + np.array(left) for first, left in zip(menu.figures.first_k, domain, strict=True))
    fixed = tuple((part.scope, part.amount) for part in parts if part.side < 0)
    return Resources(left_ko, chip, tuple(part for part in parts if part.side >= 0), fixed)
