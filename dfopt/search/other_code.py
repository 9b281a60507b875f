"""What is shown of the claims of a result by other code than that of the search, and what is not."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from dfopt.bnb import Clock
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.certificate import Certificate, CertifiedPlans
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.result import Result
from dfopt.errors import PlanError
from dfopt.physics.identity import Same
from dfopt.proof.plans import PlanClaim, Proven, proven
from dfopt.regions.variants import Variants
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.terms.sharded_graph import tile_counts

_GIVEN_UP: Final = 3000
"""Plans of graphs that were given up as a whole, about, up to which they are listed: that takes a few seconds."""


@dataclass
class TrustedCounts:
    """How much of a proof relies on the search's own code.

    Attributes
    ----------
    plans, of_plans : int
        Plans that only it shows, and all plans.
    regions, of_regions : int
        Regions that only it shows, and all regions.
    graphs : int
        Graphs without listed plans that were excluded by the work of all chips.
    """

    plans: int = 0
    of_plans: int = 0
    regions: int = 0
    of_regions: int = 0
    graphs: int = 0

    def __str__(self) -> str:
        regions = f", {self.regions} of {self.regions + self.of_regions} regions" * bool(self.plans)
        graphs = f", and {self.graphs} graphs as a whole," * bool(self.graphs)
        return f"{self.plans} of {self.of_plans} plans{regions}{graphs} rest on the search's own code"

    @property
    def condition(self) -> str:
        """The condition of a verdict, in words; empty where independent code proved everything."""
        what = [f"{self.plans} of {self.of_plans} plans"] * bool(self.plans)
        what += [f"{self.graphs} graphs as a whole"] * bool(self.graphs)
        return f", if the search's own code is right about {' and '.join(what)}" if what else ""


class OtherCode:
    """Proves claims of a result by code independent of the search (:mod:`dfopt.proof`), as far as the clock allows.

    Parameters
    ----------
    result : Result
        The result.
    clock : Clock
        Limit of the proof; claims not reached by then are not shown.
    certificate : Certificate, optional
        Proof of the claims from an earlier check.

    Attributes
    ----------
    classes : list of CertifiedPlans
        Proof steps of the claims, for a certificate.
    refused : list of str
        Errors of the certificate.
    """

    def __init__(self, result: Result, clock: Clock, certificate: Certificate | None = None) -> None:
        self._result, self._clock, self._certificate = result, clock, certificate
        self.classes, self.refused = list[CertifiedPlans](), list[str]()

    def shown(self, setting: Setting, claims: Mapping[PlanClaim, float]) -> Proven:
        """Which claims about the plans of a graph are proven."""
        of = setting.graph, setting.system, setting.assumptions
        pins, over = self._result.request.pin_sharding, lambda: self._clock.over
        shown = proven(*of, claims, pins, over, self._certificate)
        self.classes += shown.classes
        self.refused += shown.refused
        return shown

    def excludes(self, setting: Setting, low: float) -> bool:
        """Whether all mappings of a graph without listed plans are proven to be at ``low`` (s) or above."""
        if len(self._result.apart or ()) * self._result.plan_counts.total() > _GIVEN_UP:
            return False
        try:
            legal, _ = asked_plans(setting.graph, setting.system, self._result.request, setting.assumptions)
        except PlanError:  # a microbatch that no plan can use
            return True
        variants = Variants(setting, self._result.request)
        ways = itertools.chain.from_iterable(map(variants.of, legal))
        return not self.shown(setting, {(way, tiles): low for way in ways for tiles in tiles_of(setting, way)}).open


def tiles_of(setting: Setting, plan: Plan) -> frozenset[int]:
    """Numbers of tiles that mappings of a plan may have."""
    return _tiles_of(Same(setting.under(plan).graph), Same(setting.assumptions), plan.shards)


@lru_cache(maxsize=64)
def _tiles_of(graph: Same[Graph], assumptions: Same[Assumptions], shards: int) -> frozenset[int]:
    each = (tile_counts(graph.document, assumptions.document, least) for least in (1, shards))
    return frozenset(itertools.chain(*each))
