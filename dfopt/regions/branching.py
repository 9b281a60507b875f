"""How a region is divided: plans whose capacity binds go apart, else the options of one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from dfopt.arrays import Floats
from dfopt.bnb import Bound, BranchingRule, View
from dfopt.regions.facts import FactCache, Facts
from dfopt.regions.judged import cutoffs_of
from dfopt.regions.region import Branch, Unclassed, Unlisted, Unsharded, listed

_FIRST = 4
"""Groups of plans under which a chip has the same layers that are put in classes first."""
_EACH = 4
"""Plans up to which each goes apart; of more only the one with the least step."""


class Listing(BranchingRule[Branch]):
    """Divides a graph into classes of its plans, those with the least bounds first.

    The work of a chip under a plan is expensive to compute, and most plans are never needed. Each call takes twice as
    many groups of plans as the one before, so that there are few calls.
    """

    def children(self, region: Branch, bound: Bound, view: View) -> Sequence[tuple[Branch, float]] | None:
        """Regions of the plan classes with the least bounds, and one of all other plans; None if all are in classes.

        A graph with more plans than may be listed has no such regions: the result is empty, and it keeps its bound.

        Parameters
        ----------
        region, bound, view
            As for :meth:`dfopt.bnb.entries.BranchingRule.children`.
        """
        if isinstance(region, Unclassed):
            return self._classes(region, bound, view)
        if not isinstance(region, Unlisted):
            return None
        if not region.space.listable:
            return []
        plans = region.space.unclassed
        return [(region, np.inf)] if plans is None else [(plans, max(bound.value, plans.least))]

    def _classes(self, plans: Unclassed, bound: Bound, view: View) -> list[tuple[Branch, float]]:
        """The classes of the first groups that may be below the cutoff, and all other groups.

        The group of the best mapping is among the first.
        """
        below = sum(min(group.values()) < view.cutoff for group in plans.groups)
        most, best = min(max(_FIRST, plans.opened), below), [candidate.solution.solved for candidate in view.kept[:1]]
        of_best = [each.plan for each in best if each is not None and each.graph is plans.space.setting.model]
        groups = sorted(plans.groups, key=lambda group: not any(plan in group for plan in of_best))
        first, rest = tuple(groups[:most]), tuple(groups[most:])
        roots = plans.space.in_classes(dict(chain.from_iterable(group.items() for group in first)))
        parts: list[tuple[Branch, float]] = [
            (root, root.least if isinstance(root, Unsharded) else bound.value) for root in roots
        ]
        if rest:
            later = Unclassed(plans.space, rest, plans.opened + most)
            parts.append((later, later.least))
        return parts or [(plans, np.inf)]


class StagesOpen(BranchingRule[Branch]):
    """Halves plans with open pipeline stages by their bounds; a single plan is divided by its numbers of tiles."""

    def children(self, region: Branch, bound: Bound, view: View) -> Sequence[tuple[Branch, float]] | None:
        """Both halves, or the regions of a single plan; None where stages are not open or the plan has its options.

        Parameters
        ----------
        region, bound, view
            As for :meth:`dfopt.bnb.entries.BranchingRule.children`.
        """
        if not isinstance(region, Unsharded) or region.menu is not None:
            return None
        plans = region.plans.plans
        if len(plans) == 1:
            return [(part, bound.value) for part in region.space.of_plan(region.plans)]
        order = np.argsort(region.plans.least_i, kind="stable").tolist()
        halves = order[: len(plans) // 2], order[len(plans) // 2 :]
        parts = [Unsharded(region.space, region.plans.of_some(half)) for half in halves]
        return [(part, max(bound.value, part.least)) for part in parts]


class PlansApart(BranchingRule[Branch]):
    """Separates the plan with the least step if its capacity binds, or if one of its mappings is among several to keep.

    Plans of a class share bounds, but an option that does not fit the memory of one plan may fit that of another, so
    that capacity is decided plan by plan. The cutoff of a plan with a kept solution is that solution; all others share
    the last kept one. If leaf solvers decide one plan each, every plan is separated.
    """

    def __init__(self, memory: FactCache, *, every: bool = False) -> None:
        self._memory, self._every = memory, every

    def children(self, region: Branch, bound: Bound, view: View) -> Sequence[tuple[Branch, float]] | None:
        """The plan and all others, or every plan of a few; None for a single plan or without a reason to divide.

        Parameters
        ----------
        region, bound, view
            As for :meth:`dfopt.bnb.entries.BranchingRule.children`.
        """
        [region] = listed([region])
        facts = self._memory.of(region)
        step_i = facts.steps(facts.layer_k)
        order = np.argsort(step_i, kind="stable")
        first = int(facts.plan_i[order[0]])
        is_kept = cutoffs_of(view, region.of)[first] < view.cutoff
        if len(order) < 2 or not (self._every or is_kept or first in facts.cuts):
            return None
        alone = len(order) if self._every or len(order) <= _EACH else 1
        groups = [order[[place]] for place in range(alone)]
        groups += [np.sort(order[alone:])] if alone < len(order) else []
        children = [
            (replace(region, plans=tuple(sorted(facts.plan_i[group].tolist()))), float(step_i[group].min()))
            for group in groups
        ]
        gone = sorted(set(region.plans) - set(facts.plan_i.tolist()))  # what they must hold does not fit
        return [*children, (replace(region, plans=tuple(gone)), np.inf)] if gone else children


class Probing(BranchingRule[Branch]):
    """Branches on the options of the kernel of which most reach the cutoff, or else which raises the bound most."""

    def __init__(self, memory: FactCache) -> None:
        self._memory = memory

    def children(self, region: Branch, bound: Bound, view: View) -> Sequence[tuple[Branch, float]] | None:
        """One region for each option of that kernel, each with its path bound or its min-marginal.

        Parameters
        ----------
        region, bound, view
            As for :meth:`dfopt.bnb.entries.BranchingRule.children`.
        """
        [region] = listed([region])
        facts = self._memory.of(region)
        low_ko = probed(facts)
        likely_ko = low_ko if region.complete else probed(facts, likely=True)
        cutoff = float(cutoffs_of(view, region.of)[region.plan_i].max())
        capped = 2 * cutoff if np.isfinite(cutoff) else np.inf
        free = [k for k, left in enumerate(region.domain) if len(left) > 1]

        def worth(k: int) -> tuple[float, float, float]:
            low_o = np.minimum(likely_ko[k], capped)
            finite = np.where(np.isfinite(low_o), low_o, 0.0)
            return float((low_o >= cutoff).sum()), float(low_o.min()), float(finite.sum())

        kernel = max(free, key=worth)
        return [
            (replace(region, domain=(*region.domain[:kernel], (option,), *region.domain[kernel + 1 :])), float(low))
            for option, low in zip(region.domain[kernel], low_ko[kernel].tolist(), strict=True)
        ]


def probed(facts: Facts, *, likely: bool = False) -> list[Floats]:
    """Lower bounds on a step, s, under each option that is left: by kernel, float array of shape (options,).

    Parameters
    ----------
    facts : Facts
        Bounds of the region.
    likely : bool
        If not all blocks are listed: whether to estimate with the blocks that attain the bound. The values are then no
        bounds.
    """
    region = facts.region
    of, domain = region.of, region.domain
    least = facts.least_step(facts.layer_k)
    step_ko = [np.maximum(step_o, least) for step_o in facts.step_ko]
    free = [k for k, left in enumerate(domain) if len(left) > 1]
    amounts = [of.table.least_by_option(domain, facts.least_c, k) for k in free]
    for kind, arcs in enumerate(facts.attained if likely else facts.some):
        places = [place for place, k in enumerate(free) if of.kind_k[k] == kind]
        if not places or not (arcs.complete or likely):
            continue
        by_path_v = of.least_paths(arcs, np.concatenate([amounts[place] for place in places]))
        layer_kv = np.repeat(facts.layer_k[:, None], len(by_path_v), axis=1)
        layer_kv[kind] = np.maximum(by_path_v, layer_kv[kind])
        step_v = of.steps.of(layer_kv, facts.beside_layers)[facts.plan_i].min(axis=0, initial=np.inf)
        sizes = [len(domain[free[place]]) for place in places]
        for place, low_o in zip(places, np.split(step_v, np.cumsum(sizes)[:-1]), strict=True):
            step_ko[free[place]] = np.maximum(step_ko[free[place]], low_o)
    return step_ko
