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
from typing import Final, NamedTuple

import numpy as np

from dfopt.arrays import Floats
from dfopt.documents.mapping import Mapping, Sharding
from dfopt.documents.plan import Plan
from dfopt.judge.steps import PlanSteps
from dfopt.proof.blocks import TooMany
from dfopt.proof.dual import Domain
from dfopt.proof.factors import Elimination, TooLarge
from dfopt.proof.layer import LayerBounds

__all__ = ["LATE", "ClassProof", "Outcome"]

Schemes = tuple[tuple[Sharding, ...], ...]
Passes = dict[tuple[int, bool], float]
"""Seconds by stage of the mapping, and whether of the forward pass."""
LATE: Final = "there was no time to look at it"
_PROBED: Final = 5
"""Kernels of which each scheme is tried before a region is divided."""
_WORK: Final = 500
"""Units of work for a class of plans, at most, see :attr:`~dfopt.proof.layer.LayerBounds.work`."""


@dataclass
class Outcome:
    """What is shown of the plans of a class.

    Attributes
    ----------
    regions : int
        Regions that were looked at.
    open : dict
        Plans of which not all is shown, each with the reason.
    below : dict
        A mapping of some of these that may be below what is claimed: nobody has judged it.
    """

    regions: int = 0
    open: dict[Plan, str] = field(default_factory=dict)
    below: dict[Plan, Mapping] = field(default_factory=dict)


class ClassProof:
    """Plans under which a layer pays the same, in one number of tiles.

    Parameters
    ----------
    bounds : LayerBounds
        Of the layer.
    steps : dict
        By plan what a step takes from seconds of layers.
    claims : dict
        By plan the seconds that no mapping is said to be below; infinite where none is said to fit.
    """

    def __init__(self, bounds: LayerBounds, steps: Dict[Plan, PlanSteps], claims: Dict[Plan, float]) -> None:
        self._bounds, self._steps, self._claims = bounds, steps, claims

    def run(self, over: Callable[[], bool] = lambda: False) -> Outcome:
        """Show the claims of all plans, as far as that is possible, until there is no time left."""
        outcome, whole = Outcome(), self._bounds.domain
        if not all(whole):  # pins leave a kernel nothing
            return outcome
        plans = [plan for plan in self._claims if self._steps[plan].by_total or not self._bounds.items.mixes_passes]
        outcome.open |= dict.fromkeys(
            self._claims.keys() - {*plans}, "passes share blocks, and a step tells them apart"
        )
        left = self._below(plans, self._bounds.own(), self._schemes(whole))
        stack = [_Region(whole, left)] if left else []
        while stack:
            region = stack.pop()
            left = [plan for plan in region.plans if plan not in outcome.open]
            if over():
                outcome.open |= dict.fromkeys(left, LATE)
            elif outcome.regions * self._bounds.work >= _WORK:
                outcome.open |= dict.fromkeys(left, f"more than {outcome.regions} regions would have to be looked at")
            elif left:
                outcome.regions += 1
                stack += self._children(region._replace(plans=left), outcome)
        return outcome

    def _children(self, region: _Region, outcome: Outcome) -> Iterator[_Region]:
        """What is left of a region, divided; nothing where all is shown."""
        domain, plans, weights = region
        schemes_k = self._schemes(domain)
        seconds_c = self._bounds.seconds(domain)
        if not np.isfinite(seconds_c).all():
            return
        passes = self._passes(seconds_c)
        left = [plan for plan in self._below(plans, passes, schemes_k) if self._steps[plan].may_fit(schemes_k)]
        listed = all(of.is_listed for of in self._bounds.components)
        decided = all(len(schemes) == 1 for schemes in domain)
        if not left or (decided and listed):
            outcome.open |= dict.fromkeys(left, "a mapping may be below what is claimed")
            mappings = ((plan, self._bounds.mapping(plan, domain)) for plan in left)
            outcome.below |= {plan: mapping for plan, mapping in mappings if mapping is not None}
            return
        try:
            duals = [
                self._bounds.duals.best(domain, group.components, weights[number] if weights else None)
                for number, group in enumerate(self._groups)
            ]
        except TooLarge as error:
            outcome.open |= dict.fromkeys(left, str(error))
            return
        for group, dual in zip(self._groups, duals, strict=True):
            passes = group.raised(passes, dual.least)
        left = self._below(left, passes, schemes_k)
        if decided:
            outcome.open |= dict.fromkeys(left, "too many blocks to list them")
        elif left:
            weights = tuple(dual.weight_cr for dual in duals)
            for smaller, some in self._divided(domain, left, passes, [dual.elimination for dual in duals]):
                yield _Region(smaller, some, weights)

    def _divided(
        self, domain: Domain, plans: list[Plan], passes: Passes, duals: Sequence[Elimination]
    ) -> Iterator[tuple[Domain, list[Plan]]]:
        """A region without the schemes that a dual excludes, or divided by the kernel whose schemes differ most."""
        marginal_ko = [[*zip(*(dual.marginals[k].tolist() for dual in duals), strict=True)] for k in range(len(domain))]
        still_open = self._open(set(chain(*marginal_ko)), plans, passes, self._schemes(domain))
        smaller = tuple(
            tuple(o for o, marginal in zip(left, marginal_o, strict=True) if marginal in still_open)
            for left, marginal_o in zip(domain, marginal_ko, strict=True)
        )
        if not all(smaller):
            return
        if smaller != domain:
            yield smaller, plans
            return
        if (smaller := self._undominated(domain, plans)) != domain:
            yield smaller, plans
            return
        k = self._kernel(domain, plans, passes, duals)
        for o in domain[k]:
            yield (*domain[:k], (o,), *domain[k + 1 :]), plans

    def _kernel(self, domain: Domain, plans: Sequence[Plan], passes: Passes, duals: Sequence[Elimination]) -> int:
        """The kernel whose schemes raise the paths most, each by itself, among those of which the duals differ most."""
        free = [k for k, left in enumerate(domain) if len(left) > 1]
        likely = sorted(free, key=lambda k: (-sum(_spread(dual.marginals[k]) for dual in duals), k))[:_PROBED]
        schemes_k = self._schemes(domain)
        pairs = [(self._claims[plan], self._steps[plan].least(passes, schemes_k)) for plan in plans]
        ratio = max(claim / low if low > 0 else math.inf for claim, low in pairs)
        layer_s = math.fsum(passes.values())
        enough = layer_s * ratio if layer_s > 0 else math.inf

        def raised(k: int) -> float:
            parts = ((*domain[:k], (o,), *domain[k + 1 :]) for o in domain[k])
            seconds = (math.fsum(self._bounds.seconds(part)) for part in parts)
            return math.fsum(min(each, enough) for each in seconds) / len(domain[k])

        return max(likely, key=lambda k: (raised(k), -k))

    def _undominated(self, domain: Domain, plans: Sequence[Plan]) -> Domain:
        """A region without schemes of which another one is nowhere more, under any of some plans."""
        left = list(domain)
        for k, schemes in enumerate(self._bounds.items.schemes_k):
            for o in domain[k]:
                others = (other for other in left[k] if other != o)
                if any(self._replaces(k, other, o, tuple(left), plans, schemes) for other in others):
                    left[k] = tuple(other for other in left[k] if other != o)
        return tuple(left)

    def _replaces(
        self, k: int, o: int, other: int, domain: Domain, plans: Sequence[Plan], schemes: Sequence[Sharding]
    ) -> bool:
        beside = all(self._steps[plan].replaces(k, schemes[o], schemes[other]) for plan in plans)
        return beside and self._bounds.replaces(k, o, other, domain)

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
                raise TooMany("kernels of several kinds of layers may share blocks")
            key_c += keys
        return key_c

    @cached_property
    def _groups(self) -> list[_Group]:
        """Components whose seconds count together: of a layer, or of a pass where that makes a difference to a step."""
        by_total = all(steps.by_total for steps in self._steps.values())
        members = defaultdict[tuple[int, ...], list[int]](list)
        for c, (kind, forward) in enumerate(self._keys):
            members[(kind,) if by_total else (kind, forward)].append(c)
        return [_Group(tuple(cs), tuple(dict.fromkeys(self._keys[c] for c in cs))) for cs in members.values()]


class _Region(NamedTuple):
    """Schemes that are left, plans of which not all is shown, and weights of duals to begin with."""

    domain: Domain
    plans: list[Plan]
    weights: tuple[Floats, ...] = ()


class _Group(NamedTuple):
    """Components whose seconds count together, and the passes that they are of."""

    components: tuple[int, ...]
    keys: tuple[tuple[int, bool], ...]

    def raised(self, passes: Passes, low: float) -> Passes:
        """Seconds of passes where those of the group come to no less than so many."""
        more = low - math.fsum(passes[key] for key in self.keys)
        return passes | {self.keys[0]: passes[self.keys[0]] + more} if more > 0 else passes


def _spread(low_o: Floats) -> float:
    """How far the schemes of a kernel raise a bound together."""
    finite = low_o[np.isfinite(low_o)]
    return math.inf if len(finite) < len(low_o) else float((finite - finite.min()).sum())
