"""What no mapping under some plans is below, shown region by region: the schemes of kernels are divided until it is.

A region has some schemes of every kernel. It is closed for a plan where a step takes at least what is claimed, with the
seconds of its layers at least, or where what a chip has to hold does not fit. What is left is divided by the schemes of
one kernel. The children of a region have all of its schemes between them, so no mapping is left out.

Suffixes: k kernel, c component, o scheme that is left.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Mapping as Dict
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np

from dfopt.arrays import Floats
from dfopt.documents.certificate import CertifiedRegion
from dfopt.documents.mapping import Mapping, Sharding
from dfopt.documents.plan import Plan
from dfopt.judge.steps import PlanSteps
from dfopt.proof.blocks import TooManyBlocks
from dfopt.proof.dual import Domain
from dfopt.proof.factors import Elimination, TooLarge
from dfopt.proof.layer import LayerBounds
from dfopt.proof.region import Region

Schemes = tuple[tuple[Sharding, ...], ...]
Passes = dict[tuple[int, bool], float]
"""Seconds by stage of the mapping, and whether of the forward pass."""
LATE: Final = "there was no time to look at it"
_PROBED: Final = 5
"""Kernels of which each scheme is tried before a region is divided."""
_WORK: Final = 100
"""Units of work for a class of plans, at most: a region is one, and one more for every so many blocks, that is:"""
_BLOCKS: Final = 4000
"""Blocks whose prices take about as long as all else that a region needs."""
_FEW: Final = 64
"""Blocks of a component up to which a region is first divided by them, and then by schemes."""
_FAR: Final = 1000.0
"""Times what layers take at least up to which it is looked for how long they would have to take."""
_HALVED: Final = 12
"""How often what is looked for there is halved."""
_FEWER: Final = 0.9
"""Share of its blocks down to which a region is not looked at again with what is left of them."""


@dataclass
class Finding:
    """Outcome of a proof for a class of plans: what is proven, what is open, and the steps taken.

    Attributes
    ----------
    regions : int
        Number of regions that were examined.
    open : dict
        Plans whose claims are not all shown, each with the reason.
    below : dict
        A mapping under one of the plans that may be below its claim; the judge has not scored it.
    steps : list of CertifiedRegion
        Proof or division of every region, in order.
    weights : dict
        Weights that bound regions, with their numbers.
    refused : str
        Errors of the certificate that was followed, if any.
    """

    regions: int = 0
    open: dict[Plan, str] = field(default_factory=dict)
    below: dict[Plan, Mapping] = field(default_factory=dict)
    steps: list[CertifiedRegion] = field(default_factory=list)
    weights: dict[tuple[tuple[float, ...], ...], int] = field(default_factory=dict)
    refused: str = ""

    def note(self, **fields: Any) -> None:
        """Add fields to the certificate entry of the last region."""
        self.steps[-1] = self.steps[-1].model_copy(update=fields)

    def number_of(self, weight_cr: Floats) -> int:
        """Register a weight matrix and return its number in the certificate."""
        return self.weights.setdefault(tuple(map(tuple, weight_cr.tolist())), len(self.weights))


class ClassProof:
    """Proves the claims of plans whose layers cost the same, with a given number of tiles.

    Parameters
    ----------
    bounds : LayerBounds
        Lower bounds on the layer.
    steps : dict
        For every plan, the function from layer seconds to the step.
    claims : dict
        By plan the claimed lower bound on the step, s; infinite if no mapping is claimed to fit.
    """

    def __init__(self, bounds: LayerBounds, steps: Dict[Plan, PlanSteps], claims: Dict[Plan, float]) -> None:
        self._bounds, self._steps, self._claims = bounds, steps, claims

    def run(self, over: Callable[[], bool] = lambda: False) -> Finding:
        """Prove as many claims as possible until ``over`` returns true."""
        outcome, domain, work = Finding(), self._bounds.domain, 0
        if not all(domain):  # pins leave a kernel nothing
            return outcome
        left = self._left_open(outcome)
        stack = [Region(domain, left, self._bounds)] if left else []
        while stack:
            region = stack.pop()
            outcome.steps.append(CertifiedRegion())
            left = [plan for plan in region.plans if plan not in outcome.open]
            if over():
                outcome.open |= dict.fromkeys(left, LATE)
            elif work >= _WORK:
                outcome.open |= dict.fromkeys(left, f"more than {outcome.regions} regions would have to be looked at")
            elif left:
                outcome.regions += 1
                work += 1 + region.bounds.blocks // _BLOCKS
                parts = [*self._children(region._replace(plans=left), outcome)]
                outcome.note(parts=len(parts))
                stack += parts
        return outcome

    def _left_open(self, outcome: Finding) -> list[Plan]:
        """Plans that fit, and are left by what takes little time to bound; of some nothing can be shown."""
        plans = [plan for plan in self._claims if self._steps[plan].by_total or not self._bounds.items.mixes_passes]
        told_apart = self._claims.keys() - {*plans}
        outcome.open |= dict.fromkeys(told_apart, "passes share blocks, and a step tells them apart")
        domain, schemes_k = self._bounds.domain, self._schemes(self._bounds.domain)
        left = self._below(plans, self._bounds.own(), schemes_k)
        left = [plan for plan in left if self._steps[plan].may_fit(schemes_k)]
        return self._below(left, self._passes(self._bounds.alone(domain)), schemes_k) if left else left

    def _children(self, region: Region, outcome: Finding) -> Iterator[Region]:
        """What is left of a region, divided; nothing where all is shown."""
        domain, _, bounds, _ = region
        schemes_k = self._schemes(domain)
        left, seconds_c = self._by_paths(region)
        listed = all(of.is_listed for of in bounds.components)
        decided = all(len(schemes) == 1 for schemes in domain)
        if not left or (decided and listed):
            outcome.open |= dict.fromkeys(left, "a mapping may be below what is claimed")
            mappings = ((plan, bounds.mapping(plan, domain)) for plan in left)
            outcome.below |= {plan: mapping for plan, mapping in mappings if mapping is not None}
            return
        passes = self._passes(seconds_c)
        enough_g = [self._enough(group, left, passes, schemes_k) for group in self._groups]
        try:
            least_g = [
                self._least_sum(region, group, enough, number)
                for number, (group, enough) in enumerate(zip(self._groups, enough_g, strict=True))
            ]
        except TooLarge as error:
            outcome.open |= dict.fromkeys(left, str(error))
            return
        outcome.note(**self._bounded_by(least_g, outcome))
        for group, each in zip(self._groups, least_g, strict=True):
            passes = group.raised(passes, each.elimination.least)
        left = self._below(left, passes, schemes_k)
        if decided:
            outcome.open |= dict.fromkeys(left, "too many blocks to list them")
        elif left:
            outcome.note(enough=tuple(enough if math.isfinite(enough) else None for enough in enough_g))
            within = bounds.within(domain, self._most(seconds_c, enough_g))
            narrowed = self._narrowed(domain, left, passes, [each.elimination for each in least_g], outcome)
            smaller = Region(narrowed, left, within, [each.weight_kr for each in least_g])
            yield from self._divided(region, smaller, math.fsum(seconds_c), math.fsum(enough_g), least_g, outcome)

    def _by_paths(self, region: Region) -> tuple[list[Plan], list[float]]:
        """Plans that are left where paths bound a region, and where memories may hold it; with what paths take."""
        seconds_c, schemes_k = region.bounds.seconds(region.domain), self._schemes(region.domain)
        if not np.isfinite(seconds_c).all():
            return [], seconds_c
        left = self._below(region.plans, self._passes(seconds_c), schemes_k)
        return [plan for plan in left if self._steps[plan].may_fit(schemes_k)], seconds_c

    @staticmethod
    def _least_sum(region: Region, group: _Group, enough: float, number: int) -> _LeastSum:
        """What a group takes at least under any schemes of a region together."""
        domain, _, bounds, weights = region
        weight_kr = weights[number] if weights else None
        if (each := bounds.each(domain, group.components)) is not None:
            return _LeastSum(each, None, weight_kr)
        dual = bounds.duals.best(domain, group.kernels, enough, weight_kr)
        return _LeastSum(dual.elimination, dual.weight_cr, dual.weight_kr)

    @staticmethod
    def _bounded_by(least_g: Sequence[_LeastSum], outcome: Finding) -> dict[str, Any]:
        """Which groups are priced choice by choice, and by which weights duals bound the others."""
        weights = [each.weight_cr for each in least_g if each.weight_cr is not None]
        priced = tuple(number for number, each in enumerate(least_g) if each.weight_cr is None)
        number = outcome.number_of(np.sum(weights, axis=0)) if weights else None
        return {"weights": number, "priced": priced or None}

    def _divided(
        self, region: Region, smaller: Region, by_paths: float, enough: float, least_g: Sequence[_LeastSum],
        outcome: Finding,
    ) -> Iterator[Region]:  # fmt: skip
        """What is left of a region, by the blocks of a kernel, by its schemes, or as it is where it is smaller now."""
        domain, _, bounds, _ = region
        if not all(smaller.domain):
            return
        paths_say_more = by_paths > math.fsum(each.elimination.least for each in least_g)
        if paths_say_more and (k := smaller.bounds.with_few_blocks(_FEW)) is not None:
            outcome.note(blocks_of=k)
            yield from smaller.by_blocks(k)
        elif smaller.domain != domain or smaller.bounds.blocks < _FEWER * bounds.blocks:
            yield smaller
        else:
            k = self._kernel(smaller, enough, [each.elimination for each in least_g])
            outcome.note(kernel=k)
            yield from smaller.by_schemes(k)

    def _most(self, seconds_c: Sequence[float], enough_g: Sequence[float]) -> list[float]:
        """By component seconds from which on its group takes enough, if the others take so many at least."""
        most_c = [math.inf] * len(seconds_c)
        for group, enough in zip(self._groups, enough_g, strict=True):
            together = math.fsum(seconds_c[c] for c in group.components)
            for c in group.components:
                most_c[c] = enough - (together - seconds_c[c])
        return most_c

    def _narrowed(
        self, domain: Domain, plans: Sequence[Plan], passes: Passes, least_g: Sequence[Elimination], outcome: Finding
    ) -> Domain:
        """A region without the schemes that least sums exclude, or of which another one is nowhere more."""
        gone = set[tuple[int, int]]()
        if excluded := self._excluded(domain, plans, passes, least_g):
            outcome.note(excluded=excluded)
            gone = {*excluded}
        elif dominated := self._dominated(domain, plans):
            outcome.note(dominated=dominated)
            gone = {(k, o) for k, o, _ in dominated}
        return tuple(tuple(o for o in left if (k, o) not in gone) for k, left in enumerate(domain))

    def _excluded(
        self, domain: Domain, plans: Sequence[Plan], passes: Passes, least_g: Sequence[Elimination]
    ) -> tuple[tuple[int, int], ...]:
        """Kernels, each with a scheme that least sums exclude."""
        marginals = [each.marginals for each in least_g]
        marginal_ko = [[*zip(*(each[k].tolist() for each in marginals), strict=True)] for k in range(len(domain))]
        still_open = self._open(set(chain(*marginal_ko)), plans, passes, self._schemes(domain))
        return tuple(
            (k, o)
            for k, (left, marginal_o) in enumerate(zip(domain, marginal_ko, strict=True))
            for o, marginal in zip(left, marginal_o, strict=True)
            if marginal not in still_open
        )

    def _enough(self, group: _Group, plans: Sequence[Plan], passes: Passes, schemes_k: Schemes) -> float:
        """Seconds of a group from which on no plan is below what is claimed, if all others take so many at least."""

        def is_open(plan: Plan, seconds: float) -> bool:
            return bool(self._below([plan], group.raised(passes, seconds), schemes_k))

        least = enough = math.fsum(passes[key] for key in group.keys)
        for plan in plans:
            if not is_open(plan, enough):
                continue
            low, high = enough, 2 * enough
            while is_open(plan, high):
                low, high = high, 2 * high
                if high >= _FAR * least:
                    return math.inf
            for _ in range(_HALVED):
                middle = (low + high) / 2
                low, high = (middle, high) if is_open(plan, middle) else (low, middle)
            enough = high
        return enough

    def _kernel(self, region: Region, enough: float, least_g: Sequence[Elimination]) -> int:
        """The kernel whose schemes raise the paths most, each by itself, among those whose marginals differ most.

        Beyond seconds that are enough no more counts.
        """
        domain, _, bounds, _ = region
        free = [k for k, left in enumerate(domain) if len(left) > 1]
        marginals = [each.marginals for each in least_g]
        likely = sorted(free, key=lambda k: (-sum(_spread(each[k]) for each in marginals), k))[:_PROBED]

        def raised(k: int) -> float:
            parts = ((*domain[:k], (o,), *domain[k + 1 :]) for o in domain[k])
            seconds = (math.fsum(bounds.seconds(part)) for part in parts)
            return math.fsum(min(each, enough) for each in seconds) / len(domain[k])

        return max(likely, key=lambda k: (raised(k), -k))

    def _dominated(self, domain: Domain, plans: Sequence[Plan]) -> tuple[tuple[int, int, int], ...]:
        """Kernels, each with a scheme, and with another one that is nowhere more under any of some plans."""
        left, dominated = list(domain), list[tuple[int, int, int]]()
        for k, schemes in enumerate(self._bounds.items.schemes_k):
            for o in domain[k]:
                others = tuple(other for other in left[k] if other != o)
                replace = (other for other in others if self._replaces(k, other, o, tuple(left), plans, schemes))
                if (by := next(replace, None)) is not None:
                    dominated.append((k, o, by))
                    left[k] = others
        return tuple(dominated)

    def _replaces(
        self, k: int, o: int, other: int, domain: Domain, plans: Sequence[Plan], schemes: Sequence[Sharding]
    ) -> bool:
        in_step = all(self._steps[plan].replaces(k, schemes[o], schemes[other]) for plan in plans)
        return in_step and self._bounds.replaces(k, o, other, domain)

    def _open(
        self, lows: Iterable[tuple[float, ...]], plans: Sequence[Plan], passes: Passes, schemes_k: Schemes
    ) -> set[tuple[float, ...]]:
        """Which seconds of groups, if they take no less, leave some plan below what is claimed of it."""

        def closes(low: tuple[float, ...]) -> bool:
            raised = passes
            for group, seconds in zip(self._groups, low, strict=True):
                raised = group.raised(raised, seconds)
            return not self._below(plans, raised, schemes_k)

        finite = sorted(low for low in lows if np.isfinite(low).all())
        if len(self._groups) > 1:
            return {low for low in finite if not closes(low)}
        return {*finite[: bisect.bisect_left(finite, True, key=closes)]}  # what closes it at some seconds does at more

    def _below(self, plans: Sequence[Plan], passes: Passes, schemes_k: Schemes) -> list[Plan]:
        """Plans under which a step may take less than is claimed, with so many seconds of layers at least."""
        return [plan for plan in plans if self._steps[plan].least(passes, schemes_k) < self._claims[plan]]

    def _schemes(self, domain: Domain) -> Schemes:
        pairs = zip(self._bounds.items.schemes_k, domain, strict=True)
        return tuple(tuple(schemes[o] for o in left) for schemes, left in pairs)

    def _passes(self, seconds_c: Sequence[float]) -> Passes:
        """Seconds of the passes of every kind of layer, from those of components."""
        seconds_of = defaultdict[tuple[int, bool], float](float)
        for key, seconds in zip(self._keys, seconds_c, strict=True):
            seconds_of[key] += seconds
        return dict(seconds_of)

    @cached_property
    def _keys(self) -> list[tuple[int, bool]]:
        """By component the kind of layer that it belongs to, and whether to the forward pass."""
        key_c = list[tuple[int, bool]]()
        for component in self._bounds.components:
            keys = {self._bounds.key_k[k] for k in component.kernels}
            if len(keys) > 1:
                raise TooManyBlocks("kernels of several kinds of layers may share blocks")
            key_c += keys
        return key_c

    @cached_property
    def _groups(self) -> list[_Group]:
        """Components whose seconds count together: of a layer, or of a pass where that makes a difference to a step."""
        by_total = all(steps.by_total for steps in self._steps.values())
        members = defaultdict[tuple[int, ...], list[int]](list)
        for c, (kind, forward) in enumerate(self._keys):
            members[(kind,) if by_total else (kind, forward)].append(c)
        of = self._bounds.components
        return [
            _Group(tuple(cs), frozenset(k for c in cs for k in of[c].kernels), tuple({self._keys[c]: None for c in cs}))
            for cs in members.values()
        ]


class _LeastSum(NamedTuple):
    """What a group takes at least: by weights of a dual, or where these are none by pricing every choice of schemes."""

    elimination: Elimination
    weight_cr: Floats | None
    weight_kr: Floats | None


class _Group(NamedTuple):
    """Components whose seconds count together, their kernels, and the passes that they are of."""

    components: tuple[int, ...]
    kernels: frozenset[int]
    keys: tuple[tuple[int, bool], ...]

    def raised(self, passes: Passes, low: float) -> Passes:
        """Seconds of passes where those of the group come to no less than so many."""
        more = low - math.fsum(passes[key] for key in self.keys)
        return passes | {self.keys[0]: passes[self.keys[0]] + more} if more > 0 else passes


def _spread(low_o: Floats) -> float:
    """How far the schemes of a kernel raise a bound together."""
    finite = low_o[np.isfinite(low_o)]
    return math.inf if len(finite) < len(low_o) else float((finite - finite.min()).sum())
