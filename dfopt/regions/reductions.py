"""What of a region cannot matter: options, blocks and plans above the cutoff, and options that others dominate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dfopt.arrays import Floats
from dfopt.bnb import Bound, Reduction, View
from dfopt.regions.arcs import Arcs
from dfopt.regions.facts import FactCache, Facts
from dfopt.regions.judged import cutoffs_of
from dfopt.regions.region import Branch, Region
from dfopt.terms.blocks import OF_DRAM
from dfopt.terms.table import Domain

_MORE = 1 + 1e-12
"""Of a kernel whose options all reach the cutoff, those with the least bound stay: what is left is never nothing."""
_FEWER = 0.8
"""Share of the blocks of a layer up to which it is worth numbering them anew and bounding the region again."""


class AboveCutoff(Reduction[Branch]):
    """Reduced-cost fixing: removes options, blocks and plans whose bounds reach the cutoff."""

    name = "above the cutoff"

    def __init__(self, memory: FactCache) -> None:
        self._memory = memory

    def reduce(self, region: Branch, bound: Bound, view: View) -> Branch | None:
        """The region with fewer options or far fewer blocks; None if little can be removed.

        Parameters
        ----------
        region, bound, view
            As for :meth:`dfopt.bnb.entries.Reduction.reduce`.
        """
        if not isinstance(region, Region):
            return None
        facts = self._memory.of(region)
        smaller = below(facts, cutoffs_of(view, region.of))
        fewer = not smaller.plans or any(
            len(after) < len(before) for after, before in zip(smaller.domain, region.domain, strict=True)
        )
        pairs = zip(smaller.arcs_k, region.arcs_k, strict=True)
        fewer |= any(len(after.before_a) <= _FEWER * len(before.before_a) for after, before in pairs)
        return smaller if fewer else None


def below(facts: Facts, cutoff_i: Floats) -> Region:
    """The part of a region that may be below given cutoffs.

    At least one option of every kernel, and one path of every kind of layer, are left.

    Parameters
    ----------
    facts : Facts
        Bounds of the region.
    cutoff_i : float array, s, shape (plans of the class,)
        Value from which on a mapping does not matter, by plan.
    """
    region, step_i = facts.region, facts.steps(facts.layer_k)
    plan_i = facts.plan_i[(step_i < cutoff_i[facts.plan_i]) | np.isinf(cutoff_i[facts.plan_i])]
    most = float(cutoff_i[plan_i].max(initial=-np.inf))
    if not len(plan_i):
        return replace(region, plans=())
    most_k = facts.most_k(most)
    arcs_k = tuple(_kept(facts, kind, most_k[kind]) for kind in range(len(facts.some)))
    return Region(region.of, options_below(facts, most), tuple(plan_i.tolist()), arcs_k)


def options_below(facts: Facts, cutoff: float) -> Domain:
    """Options under which some mapping may be below ``cutoff`` (s), at least one for every kernel."""
    domain = list(facts.region.domain)
    for k, step_o in enumerate(facts.step_ko):
        keep_o = np.isfinite(step_o) & (step_o < max(cutoff, step_o.min() * _MORE))
        if keep_o.any() and not keep_o.all():
            domain[k] = tuple(option for option, kept in zip(domain[k], keep_o.tolist(), strict=True) if kept)
    return tuple(domain)


def _kept(facts: Facts, kind: int, most: float) -> Arcs:
    """The arcs that may be on a path of so many seconds; all where hardly any can go, or others are not listed."""
    arcs = facts.some[kind]
    if not arcs.complete:
        return arcs
    keep_a = facts.kept_a(kind, most)
    few = arcs.kept(keep_a) if keep_a.sum() <= _FEWER * len(keep_a) else None
    return arcs if few is None else few[0]


class Dominated(Reduction[Branch]):
    """Removes dominated options: another option of the same kernel is never worse, for any options of other kernels.

    The replacing option keeps the plan, so that the reduction is valid if mappings must differ in plan. It does not
    apply in these cases: a step may be shorter with more seconds of layers; an option belongs to a kernel whose output
    is sent to another pipeline stage (a larger share may then take less time, as chips that store a whole tensor may
    send parts); bandwidth depends on bytes (more bytes may then take less time); or the table of charges has only lower
    bounds. In an unrolled graph every kernel may send messages, so their times are compared as well.
    """

    name = "dominated options"

    def __init__(self, distinct: str = "plan") -> None:
        self.dominance = distinct != "plan"

    def reduce(self, region: Branch, bound: Bound, view: View) -> Branch | None:
        """The region without dominated options; None if there are none.

        Parameters
        ----------
        region, bound, view
            As for :meth:`dfopt.bnb.entries.Reduction.reduce`.
        """
        if not isinstance(region, Region) or not region.of.monotone or not region.of.is_exact:
            return None
        domain = undominated(region)
        return None if domain == region.domain else replace(region, domain=domain)


def undominated(region: Region) -> Domain:
    """The remaining options of a region that no other option dominates.

    Where an option has to be taken under which chips share tiles, one that they do not share replaces no such option.
    """
    of, table, sharing_ko = region.of, region.of.table, region.of.sharing_ko
    same, messages = OF_DRAM if of.chip.memory_rows else (), of.steps.messages

    def kept_of(kernel: int, domain: Domain) -> list[int]:
        sent_ox = of.sent_by_option(kernel)
        kept = table.undominated_of(kernel, domain, same, sent_ox)
        sharing = [] if sharing_ko is None else [option for option in domain[kernel] if sharing_ko[kernel][option]]
        if sharing:
            among = (*domain[:kernel], tuple(sharing), *domain[kernel + 1 :])
            kept = sorted({*kept, *table.undominated_of(kernel, among, same, sent_ox)})
        return kept

    return table.undominated(region.domain, kept_of, messages.handed.tolist() if messages.sends else ())
