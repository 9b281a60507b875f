"""Solutions from what relaxations attain: their options, the options that are best for their blocks, single changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.bnb import BRANCHING, Candidate, Clock, Heuristic, Node, View
from dfopt.regions.arcs import Arcs, chain_of
from dfopt.regions.classes import PlanClass
from dfopt.regions.dual import resources_of
from dfopt.regions.facts import FactCache, Facts
from dfopt.regions.fusing import best_fusions
from dfopt.regions.judged import JudgedMapping, cutoffs_of, judged
from dfopt.regions.pricing import Priced, best_of
from dfopt.regions.reductions import options_below
from dfopt.regions.region import Branch, Region, listed
from dfopt.regions.relaxations import PiecesOverOptions
from dfopt.solving.options import Options
from dfopt.terms.incidence import counts
from dfopt.terms.table import Domain

_SAME = 1 - 1e-12
"""A value that is less by a smaller share is the same one, added up in another order."""
_NEAR = 1.05
"""Length of paths whose blocks are looked at when an option of one kernel changes, relative to the shortest one."""
_SHARE = 0.2
"""Of the work that is left, at most, for the partitions of one vector of options."""
_ROUNDS = 4
"""Turns of options for blocks and blocks for options: later ones find nothing new."""


class Rounding(Heuristic[Branch, JudgedMapping]):
    """Rounding heuristic: best options for the blocks of a path, then the best path for them, then single changes."""

    def __init__(self, memory: FactCache, options: Options, after: str) -> None:
        self._memory, self._options, self._after = memory, options, after

    def due(self, node: Node[Branch], after: str) -> bool:
        """Whether a root region has all its bounds, or a smaller region is about to be divided."""
        if not isinstance(node.region, Region):
            return False
        return after == (self._after if node.region.is_whole else BRANCHING)

    def propose(self, node: Node[Branch], view: View) -> Iterator[Candidate]:
        """The best mapping that rounding finds below the cutoff; also mappings near it if several are requested."""
        [region] = listed([node.region])
        facts, cutoff_i = self._memory.of(region), cutoffs_of(view, region.of)
        cutoff = float(cutoff_i[region.plan_i].max(initial=-np.inf))
        if facts.arcs_k is None or node.bound.value >= cutoff:
            return
        thorough = region.is_whole or not np.isfinite(view.last)
        best = self._best_mapping(facts, cutoff, node.bound.value if thorough else np.inf)
        if best is None:
            return
        asked, several = self._options.request, [best]
        if asked.top > 1:
            vector_vk = np.array([best.option_k, *changes_of(best, facts.region.domain)], dtype=np.int64)
            within = region.of, facts.plan_i, facts.some, vector_vk, cutoff_i[facts.plan_i]
            several = best_of(*within, asked.top, asked.distinct_in, self._clock).kept
        for mapping in several:
            yield judged(region.of, mapping, self._options)
        if region.vectors > 1 and not region.complete and (region.is_whole or best.step_s < view.last):
            for mapping in self._fused(facts, best, cutoff_i):
                yield judged(region.of, mapping, self._options)

    def best(self, facts: Facts, cutoff: float) -> Candidate | None:
        """The best mapping of a region that rounding finds below ``cutoff`` (s), or None."""
        best = self._best_mapping(facts, cutoff, -np.inf)
        return None if best is None else judged(facts.region.of, best, self._options)

    def _best_mapping(self, facts: Facts, cutoff: float, enough: float) -> Priced | None:
        """The same, not judged; with changes of single options as long as it takes more than is enough."""
        best = self._best(facts, facts.rounded_vk, cutoff)
        good = np.isinf(enough) if best is None else best.step_s * _SAME <= enough
        return best if good else self._improved(facts, best, cutoff)

    def _fused(self, facts: Facts, best: Priced, cutoff_i: Floats) -> list[Priced]:
        """The same options with blocks that are not listed."""
        plan_i = np.array([best.plan])
        return best_fusions(facts.region.of, plan_i, best.option_k, cutoff_i[plan_i], self._clock)[0]

    @property
    def _clock(self) -> Clock:
        """A share of the work that is left."""
        return self._options.clock.share(_SHARE)

    def _improved(self, facts: Facts, best: Priced | None, cutoff: float) -> Priced | None:
        """Blocks for options, options for blocks, and options of single kernels changed, as long as that is better."""
        partition_k = partitions_of(facts)
        for _ in range(_ROUNDS):
            for_blocks = rounded_for(facts.region, partition_k)
            limit = cutoff if best is None else best.step_s * _SAME
            further = self._best(facts, for_blocks[None], limit) or best
            if further is None:
                return None
            changed = self._changed(facts, further)
            if best is not None and changed.step_s >= best.step_s * _SAME:
                return best
            best, numbers = changed, 1 + max(changed.partition_k)
            partition_k = np.array(changed.partition_k) + numbers * np.array(changed.stage_k)
        return best

    def _best(self, facts: Facts, option_vk: Ints, cutoff: float) -> Priced | None:
        return _best_of(facts.region.of, facts.plan_i, facts.some, option_vk, cutoff, self._clock)

    def _changed(self, facts: Facts, best: Priced) -> Priced:
        """The mapping with options of single kernels changed, as long as that is better."""
        of = facts.region.of
        while True:
            vectors = changes_of(best, options_below(facts, best.step_s * _SAME))
            if not vectors:
                return best
            arcs_k = [_near(of, arcs, best) for arcs in facts.some]
            vector_vk, limit = np.array(vectors, dtype=np.int64), best.step_s * _SAME
            other = _best_of(of, facts.plan_i, arcs_k, vector_vk, limit, self._clock)
            if other is None:
                return best
            best = other


class ChosenTogether(Heuristic[Branch, JudgedMapping]):
    """Proposes the options and blocks that attain the joint bound, where not all blocks are listed."""

    def __init__(self, memory: FactCache, options: Options) -> None:
        self._memory, self._options = memory, options

    def due(self, node: Node[Branch], after: str) -> bool:
        """Whether the joint bound of options and blocks has just been computed."""
        return after == PiecesOverOptions.name

    def propose(self, node: Node[Branch], view: View) -> Iterator[Candidate]:
        """The best mapping with the blocks that attain the joint bound, if it is below the cutoff."""
        [region] = listed([node.region])
        facts, cutoff_i, asked = self._memory.of(region), cutoffs_of(view, region.of), self._options.request
        if facts.arcs_k is None or not facts.together_k:
            return
        option_k = facts.rounded_vk[0].copy()
        for chosen in facts.together_k.values():
            option_k[[*chosen]] = [*chosen.values()]
        within = region.of, facts.plan_i, facts.attained, option_k[None], cutoff_i[facts.plan_i]
        for mapping in best_of(*within, asked.top, asked.distinct_in, self._options.clock).kept:
            yield judged(region.of, mapping, self._options)


def _best_of(
    of: PlanClass, plan_i: Ints, arcs_k: Sequence[Arcs], option_vk: Ints, cutoff: float, clock: Clock
) -> Priced | None:
    """The best mapping below one cutoff."""
    best = best_of(of, plan_i, arcs_k, option_vk, np.full(len(plan_i), cutoff), clock=clock)
    return next(iter(best.kept), None)


def changes_of(mapping: Priced, domain: Domain) -> list[tuple[int, ...]]:
    """Vectors of options that differ from those of a mapping in one kernel."""
    return [
        (*mapping.option_k[:k], option, *mapping.option_k[k + 1 :])
        for k, left in enumerate(domain)
        for option in left
        if option != mapping.option_k[k]
    ]


def _near(of: PlanClass, arcs: Arcs, best: Priced) -> Arcs:
    """Arcs on paths that are not much longer than the shortest one under the options of a mapping.

    Where not all arcs are listed, only those of its partitions: then there are many options to change.
    """
    if not arcs.complete:
        return chain_of(arcs, np.array(best.partition_k)[arcs.kernels])
    price_b = of.prices(arcs, of.table.exact(np.array([best.option_k])))[0]
    distance_j, through_a = arcs.through(price_b)
    few = arcs.kept(through_a <= distance_j[-1] * _NEAR)
    return arcs if few is None else few[0]


def partitions_of(facts: Facts) -> Ints:
    """Partition of every kernel on the shortest paths of a region, numbered through all kinds of layers."""
    partition_k = np.zeros(len(facts.region.domain), dtype=np.int64)
    number = 0
    for kind, arcs in enumerate(facts.some):
        if kind in facts.partition_ks:
            partition_k[arcs.kernels] = number + facts.partition_ks[kind]
            number = int(partition_k.max()) + 1
            continue
        for arc in facts.path(kind).tolist():
            partition_k[arcs.member_bk[arcs.block_a[arc]]] = number
            number += 1
    return partition_k


def rounded_for(region: Region, partition_k: Ints) -> Ints:
    """Options that attain the dual for given partitions, where each partition is a side of its own."""
    of, option_k = region.of, np.array([left[0] for left in region.domain], dtype=np.int64)
    table = of.table_of_blocks
    for arcs in region.arcs_k:
        side_k = np.full(len(partition_k), -1, dtype=np.int64)
        side_k[arcs.kernels] = np.unique(partition_k[arcs.kernels], return_inverse=True)[1]
        member_sk = np.arange(int(side_k.max()) + 1)[:, None] == side_k

        count_is = counts(table.incidences, member_sk).T.tolist()
        often = [{s: times for s, times in enumerate(count_s) if times} for count_s in count_is]
        paid_of = dict(zip(table.incidences, often, strict=True)).__getitem__
        dual = resources_of(of, region.domain, side_k, paid_of).dual()
        option_k[arcs.kernels] = (dual.option_k - of.first_k)[arcs.kernels]
    return option_k
