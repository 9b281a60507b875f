"""A certificate followed: its regions are bounded again, with the weights that it gives.

Nothing that it says is believed. Plans, schemes and members of regions are listed here; weights that are too large are
lowered; a scheme that is left out has to be excluded, or to be nowhere less than another one. So a certificate that was
forged shows less, and never what is not true.

Suffixes: k kernel, c component, r resource that takes time, o scheme that is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dfopt.arrays import Floats
from dfopt.documents.certificate import CertifiedPlans, CertifiedRegion
from dfopt.documents.plan import Plan
from dfopt.judge.steps import PlanSteps
from dfopt.proof.dual import Domain
from dfopt.proof.factors import Elimination, TooLarge
from dfopt.proof.layer import LayerBounds
from dfopt.proof.region import Region
from dfopt.proof.regions import LATE, ClassProof, Finding, Passes


class _Refused(Exception):
    """What a certificate does not show."""


class Replay(ClassProof):
    """Re-proves the claims of a class of plans by following a certificate.

    Parameters
    ----------
    bounds, steps, claims
        See :class:`ClassProof`.
    certificate : CertifiedPlans
        Proof steps of the claims.
    """

    def __init__(
        self,
        bounds: LayerBounds,
        steps: Mapping[Plan, PlanSteps],
        claims: Mapping[Plan, float],
        certificate: CertifiedPlans,
    ) -> None:
        super().__init__(bounds, steps, claims)
        self._certificate = certificate

    def run(self, over: Callable[[], bool] = lambda: False) -> Finding:
        """Prove the claims along the certificate, until ``over`` returns true or a step of the certificate fails."""
        outcome, domain = Finding(), self._bounds.domain
        if not all(domain):  # pins leave a kernel nothing
            return outcome
        plans = self._left_open(outcome)
        stack = [Region(domain, plans, self._bounds)]
        while any(region.plans for region in stack):
            reason = LATE if over() else ""
            try:
                parts = [] if reason else self._parts(outcome.regions, stack[-1])
            except (_Refused, TooLarge) as error:
                reason = outcome.refused = f"region {outcome.regions}: {error}"
            if reason:
                outcome.open |= {plan: reason for region in stack for plan in region.plans}
                break
            stack[-1:] = parts
            outcome.regions += 1
        return outcome

    def _parts(self, number: int, region: Region) -> list[Region]:
        """What a region is divided into; without plans where all of them are shown."""
        regions = self._certificate.regions
        _check(number < len(regions), "it is missing")
        how, shown = regions[number], region._replace(plans=[])
        _check(how.parts < len(regions), "parts of it are missing")
        left, seconds_c = self._by_paths(region) if region.plans else ([], [])
        if not left:
            return [shown] * how.parts
        passes, least_g = self._passes(seconds_c), self._eliminations(how, region)
        within = region.bounds if how.enough is None else self._within(how.enough, region, left, seconds_c, passes)
        for group, each in zip(self._groups, least_g, strict=False):  # none where the certificate says none
            passes = group.raised(passes, each.least)
        left = self._below(left, passes, self._schemes(region.domain))
        if not left:
            return [shown] * how.parts
        narrowed = self._undominated_by(how, self._unexcluded(how, region.domain, left, passes, least_g), left)
        if how.parts == 0 and all(narrowed):
            least = self._steps[left[0]].least(passes, self._schemes(region.domain))
            raise _Refused(f"it shows {least:.9g} s of {left[0].label}, {self._claims[left[0]]:.9g} s are claimed")
        parts = _divided(how, Region(narrowed, left, within)) if all(narrowed) else []
        _check(len(parts) == how.parts, f"it has {len(parts)} parts, not {how.parts}")
        return parts

    def _within(
        self,
        enough: Sequence[float | None],
        region: Region,
        plans: Sequence[Plan],
        seconds_c: Sequence[float],
        passes: Passes,
    ) -> LayerBounds:
        """The bounds of a region without blocks that take too long: so many seconds of a group have to be enough."""
        _check(len(enough) == len(self._groups), f"layers have {len(self._groups)} groups")
        enough_g = [math.inf if each is None else each for each in enough]
        for group, each in zip(self._groups, enough_g, strict=True):
            closed = math.isinf(each) or not self._below(
                plans, group.raised(passes, each), self._schemes(region.domain)
            )
            _check(closed, f"{each:.9g} s are not enough")
        return region.bounds.within(region.domain, self._most(seconds_c, enough_g))

    def _eliminations(self, how: CertifiedRegion, region: Region) -> list[Elimination]:
        """What every group takes at least: priced choice by choice, or bounded by weights; nothing without both."""
        if how.weights is None and not how.priced:
            return []
        weight_cr = None if how.weights is None else self._weights(how.weights, region)
        least_g = list[Elimination]()
        for number, group in enumerate(self._groups):
            if number in (how.priced or ()):
                each = region.bounds.each(region.domain, group.components)
                _check(each is not None, f"group {number} has too many choices to price them")
            else:
                _check(weight_cr is not None, f"there are no weights for group {number}")
                counts_c = region.bounds.duals.counts(group.kernels)
                each = region.bounds.duals.of(region.domain, np.asarray(weight_cr) * counts_c).elimination
            assert each is not None
            least_g.append(each)
        return least_g

    def _weights(self, number: int, region: Region) -> Floats:
        """Some weights of the certificate, lowered if they are too large: shape (components, resources)."""
        weights, resources = self._certificate.weights, len(self._bounds.weights.time)
        _check(number < len(weights), f"there are no weights {number}")
        components = len(region.bounds.duals.counts(()))
        same = [*map(len, weights[number])] == [resources] * components
        _check(same, f"weights {number} are of other kernels or resources")
        return self._bounds.weights.lowered(np.array(weights[number]))

    def _unexcluded(
        self,
        how: CertifiedRegion,
        domain: Domain,
        plans: Sequence[Plan],
        passes: Passes,
        least_g: Sequence[Elimination],
    ) -> Domain:
        """Schemes that are left without those that least sums exclude for all of some plans."""
        left, low = list(domain), set[tuple[float, ...]]()
        for k, o in how.excluded or ():
            left[k] = _without(left, k, o)
            low.add(tuple(float(each.marginals[k][domain[k].index(o)]) for each in least_g))
        excluded = not low or (bool(least_g) and not self._open(low, plans, passes, self._schemes(domain)))
        _check(excluded, "not all schemes that it leaves out are excluded")
        return tuple(left)

    def _undominated_by(self, how: CertifiedRegion, domain: Domain, plans: Sequence[Plan]) -> Domain:
        """Schemes that are left without those that others replace for all of some plans."""
        left = list(domain)
        for k, o, by in how.dominated or ():
            smaller, schemes = _without(left, k, o), self._bounds.items.schemes_k[k]
            replaces = by in smaller and self._replaces(k, by, o, tuple(left), plans, schemes)
            _check(replaces, f"scheme {by} of kernel {k} may be more than scheme {o}")
            left[k] = smaller
        return tuple(left)


def _divided(how: CertifiedRegion, region: Region) -> list[Region]:
    """The parts of a region: by schemes of a kernel, by its blocks, or all that is left."""
    if (k := how.kernel) is not None:
        _check(k < len(region.domain), f"there is no kernel {k}")
        return region.by_schemes(k)
    if (k := how.blocks_of) is not None:
        listed = any(k in of.kernels and of.is_listed for of in region.bounds.components)
        _check(listed, f"there are no blocks of a kernel {k}")
        return region.by_blocks(k)
    return [region]


def _without(left: Sequence[tuple[int, ...]], k: int, o: int) -> tuple[int, ...]:
    """The schemes that are left of a kernel without one of them."""
    _check(k < len(left) and o in left[k], f"kernel {k} has no scheme {o} here")
    return tuple(other for other in left[k] if other != o)


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise _Refused(otherwise)
