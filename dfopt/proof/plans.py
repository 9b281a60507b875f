"""Which claims about the plans of a graph are shown by the judge's figures alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from collections.abc import Mapping as Dict
from dataclasses import dataclass, field
from typing import Final

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.certificate import Certificate, CertifiedPlans
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Mapping, Sharding
from dfopt.documents.plan import Plan
from dfopt.documents.system import System
from dfopt.documents.uncollected import uncollected
from dfopt.errors import DfoptError
from dfopt.judge.items import ItemCache, LayerItems, NotItems
from dfopt.judge.steps import NotSteps, PlanSteps
from dfopt.physics.identity import Same
from dfopt.proof.blocks import Component, TooManyBlocks
from dfopt.proof.layer import LayerBounds
from dfopt.proof.regions import LATE, ClassProof, Finding
from dfopt.proof.replay import Replay

_ROUNDED: Final = 1e-12
"""Share of a claim that is shown beyond it: so another machine, where sums are rounded in another way, shows it too."""

PlanClaim = tuple[Plan, int]
"""A plan, and the number of tiles of its mappings."""


@dataclass
class Proven:
    """Which claims about plans are proven, and how.

    Attributes
    ----------
    open : dict
        Claims that are not shown, each with the reason.
    below : dict
        Mappings of some of these that may be below the claim, for a judge to say.
    regions : int
        Number of regions of schemes that were examined.
    classes : list of CertifiedPlans
        Proof steps of the claims, for a certificate.
    refused : list of str
        Errors of the certificate, see :class:`~dfopt.proof.replay.Replay`.
    """

    open: dict[PlanClaim, str] = field(default_factory=dict)
    below: dict[PlanClaim, Mapping] = field(default_factory=dict)
    regions: int = 0
    classes: list[CertifiedPlans] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def proven(
    graph: Graph,
    system: System,
    assumptions: Assumptions,
    claims: Dict[PlanClaim, float],
    pins: Dict[str, Sharding] | None = None,
    over: Callable[[], bool] = lambda: False,
    certificate: Certificate | None = None,
) -> Proven:
    """Prove that no mapping of some plans is faster than claimed, without code of the search.

    Parameters
    ----------
    graph, system, assumptions
        Documents, as a mapping is judged by.
    claims : dict
        By plan and number of tiles the claimed lower bound on the step, s; infinite if no mapping is claimed to fit.
    pins : dict, optional
        Schemes of kernels that are fixed, by name.
    over : callable
        Function that tells whether time is over; claims not reached by then count as not shown.
    certificate : Certificate, optional
        Certificate that shows the claims; claims that it does not show are not proven in another way.

    Returns
    -------
    Proven
        A mapping that breaks other restrictions of the request, such as pinned partitions, may be below a claim without
        being a counterexample.
    """
    result, drawn = Proven(), (graph.microbatch, graph.variant)
    every = certificate.classes if certificate else ()
    followed = [way for way in every if (way.microbatch, way.variant) == drawn] if certificate else None
    prover = _Prover(graph, system, assumptions, pins or {}, over, followed)
    for lows, tiles in _alike(graph, assumptions, claims):
        for way, outcome in prover.outcomes(lows, tiles):
            plan = way.plan
            result.regions += outcome.regions
            result.open |= {(plan, count): why for plan, why in outcome.open.items() for count in way.tile_counts}
            result.below |= {(plan, mapping.tile_count): mapping for plan, mapping in outcome.below.items()}
            result.refused += [f"{plan.label}, tiles {way.tile_counts}: {outcome.refused}"] * bool(outcome.refused)
            if outcome.steps or outcome.open:
                left_open = tuple(number for number, plan in enumerate(lows) if plan in outcome.open)
                shown = {"left_open": left_open, "weights": tuple(outcome.weights), "regions": tuple(outcome.steps)}
                result.classes.append(way.model_copy(update=shown))
    return result


def _alike(
    graph: Graph, assumptions: Assumptions, claims: Dict[PlanClaim, float]
) -> Iterator[tuple[dict[Plan, float], tuple[int, ...]]]:
    """Claims about plans under which a layer pays the same, with the numbers of tiles in which they are the same."""
    lows_of = defaultdict[Hashable, dict[int, dict[Plan, float]]](dict)
    for (plan, tiles), low in claims.items():
        lows_of[LayerItems.alike(plan, graph, assumptions)].setdefault(tiles, {})[plan] = low
    for by_tiles in lows_of.values():
        while by_tiles:
            lows = next(iter(by_tiles.values()))
            same = sorted((tiles for tiles, each in by_tiles.items() if each == lows), reverse=True)
            yield lows, tuple(same)
            by_tiles = {tiles: each for tiles, each in by_tiles.items() if tiles not in same}


@dataclass
class _Prover:
    """Shows claims about plans on the same documents, class by class."""

    graph: Graph
    system: System
    assumptions: Assumptions
    pins: Dict[str, Sharding]
    over: Callable[[], bool]
    followed: Sequence[CertifiedPlans] | None
    components: dict[Same[Graph], list[Component]] = field(default_factory=dict)
    shared: ItemCache = field(default_factory=dict)

    def outcomes(self, claims: Dict[Plan, float], tiles: tuple[int, ...]) -> Iterator[tuple[CertifiedPlans, Finding]]:
        """What is shown of the plans of a class in all of some numbers of tiles together, or else in each.

        It is shown in the way of a certificate if there is one.
        """
        graph, plan = self.graph, next(iter(claims))
        way = CertifiedPlans(microbatch=graph.microbatch, variant=graph.variant, plan=plan, tile_counts=tiles)
        ways = [each for each in self.followed or () if each.plan == plan]
        follow = None if self.followed is None else way
        follow = next((each for each in ways if {*tiles} <= {*each.tile_counts}), follow)
        in_each = bool(ways) and follow is way and len(tiles) > 1
        outcome = None if in_each else self._outcome(claims, tiles, follow)
        if outcome is None:
            for count in tiles:
                yield from self.outcomes(claims, (count,))
        else:
            yield way, outcome

    @uncollected()
    def _outcome(self, claims: Dict[Plan, float], tiles: tuple[int, ...], way: CertifiedPlans | None) -> Finding | None:
        """What is shown in all of some numbers of tiles; nothing where more may be shown in each."""
        if self.over():
            return Finding(open=dict.fromkeys(claims, LATE))
        of, steps, left_out = (self.graph, self.system, self.assumptions), dict[Plan, PlanSteps](), dict[Plan, str]()
        for number, plan in enumerate(claims):
            try:
                steps[plan] = PlanSteps(*of, plan)
            except NotSteps as error:
                left_out[plan] = str(error)
            if way is not None and number in way.left_open:
                left_out[plan] = "the certificate leaves it open"
        lows = {plan: low for plan, low in claims.items() if plan not in left_out}
        try:
            least = LayerItems(*of, next(iter(claims)), *tiles, shared=self.shared)
            bounds = LayerBounds(least, self.pins, self.components)
            if way is None:
                above = {plan: low * (1 + _ROUNDED) for plan, low in lows.items()}
                outcome = ClassProof(bounds, steps, above).run(self.over)
            else:
                outcome = Replay(bounds, steps, lows, way).run(self.over)
        except (NotItems, TooManyBlocks, DfoptError) as error:  # a plan that the judge refuses has no mapping to show
            in_each = isinstance(error, NotItems) and len(tiles) > 1
            return None if in_each else Finding(open=dict.fromkeys(claims, str(error)))
        if outcome.open and way is None and len(tiles) > 1 and not least.is_exact and not self.over():
            return None
        outcome.open |= left_out
        return outcome
