"""Which claims about the plans of a graph are shown by the judge's figures alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from collections.abc import Mapping as Dict
from dataclasses import dataclass, field
from typing import Final

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.certificate import Certificate, CertifiedPlans
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Mapping, Sharding
from dfopt.documents.plan import Plan
from dfopt.documents.system import System
from dfopt.errors import DfoptError
from dfopt.judge.items import LayerItems, NotItems, Shared
from dfopt.judge.steps import NotSteps, PlanSteps
from dfopt.physics.identity import Same
from dfopt.proof.blocks import Component, TooMany
from dfopt.proof.layer import LayerBounds
from dfopt.proof.regions import LATE, ClassProof, Outcome
from dfopt.proof.replay import Replay

__all__ = ["Claim", "Proven", "proven"]

_ROUNDED: Final = 1e-12
"""Share of a claim that is shown beyond it: so another machine, where sums are rounded in another way, shows it too."""

Claim = tuple[Plan, int]
"""A plan, and the number of tiles of its mappings."""


@dataclass
class Proven:
    """What is shown of some claims.

    Attributes
    ----------
    open : dict
        Claims that are not shown, each with the reason.
    below : dict
        Mappings of some of these that may be below the claim, for a judge to say.
    regions : int
        Regions of schemes that were looked at.
    classes : list of CertifiedPlans
        How claims are shown, for a certificate.
    refused : list of str
        What is wrong with a certificate, see :class:`~dfopt.proof.replay.Replay`.
    """

    open: dict[Claim, str] = field(default_factory=dict)
    below: dict[Claim, Mapping] = field(default_factory=dict)
    regions: int = 0
    classes: list[CertifiedPlans] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def proven(
    graph: Graph,
    system: System,
    assumptions: Assumptions,
    claims: Dict[Claim, float],
    pins: Dict[str, Sharding] | None = None,
    over: Callable[[], bool] = lambda: False,
    certificate: Certificate | None = None,
) -> Proven:
    """Show that no mapping of some plans is below what is claimed.

    Parameters
    ----------
    graph, system, assumptions
        Documents, as a mapping is judged by.
    claims : dict
        By plan and number of tiles the seconds of a step that no mapping is said to be below; infinite where none is
        said to fit.
    pins : dict, optional
        Schemes of kernels that are fixed, by name.
    over : callable
        Whether there is no time left: what is not reached then counts as not shown.
    certificate : Certificate, optional
        How the claims are shown: what it does not show is not looked for in another way.

    Returns
    -------
    Proven
        Nothing is said of a mapping that breaks what is asked for beside the claims, such as partitions that are
        pinned: it may be below a claim and is no counterexample.
    """
    result, classes = Proven(), defaultdict[tuple[int, Hashable], list[Plan]](list)
    drawn, followed = (graph.microbatch, graph.variant), certificate.classes if certificate else ()
    ways = {(way.plan, way.tile_count): way for way in followed if (way.microbatch, way.variant) == drawn}
    prover = _Prover(graph, system, assumptions, pins or {}, over)
    for plan, tiles in claims:
        classes[tiles, LayerItems.alike(plan, graph, assumptions)].append(plan)
    for (tiles, _), plans in classes.items():
        way = CertifiedPlans(microbatch=drawn[0], variant=drawn[1], plan=plans[0], tile_count=tiles)
        follow = None if certificate is None else ways.get((plans[0], tiles), way)
        outcome = prover.outcome({plan: claims[plan, tiles] for plan in plans}, tiles, follow)
        result.regions += outcome.regions
        result.open |= {(plan, tiles): reason for plan, reason in outcome.open.items()}
        result.below |= {(plan, tiles): mapping for plan, mapping in outcome.below.items()}
        result.refused += [f"{plans[0].label}, tiles {tiles}: {outcome.refused}"] * bool(outcome.refused)
        if outcome.steps or outcome.open:
            left_open = tuple(number for number, plan in enumerate(plans) if plan in outcome.open)
            shown = {"left_open": left_open, "weights": tuple(outcome.weights), "regions": tuple(outcome.steps)}
            result.classes.append(way.model_copy(update=shown))
    return result


@dataclass
class _Prover:
    """Shows claims about plans on the same documents, class by class."""

    graph: Graph
    system: System
    assumptions: Assumptions
    pins: Dict[str, Sharding]
    over: Callable[[], bool]
    components: dict[Same[Graph], list[Component]] = field(default_factory=dict)
    known: Shared = field(default_factory=dict)

    def outcome(self, claims: Dict[Plan, float], tiles: int, way: CertifiedPlans | None) -> Outcome:
        """What is shown of the plans of a class, in the way of a certificate if there is one."""
        if self.over():
            return Outcome(open=dict.fromkeys(claims, LATE))
        of, first = (self.graph, self.system, self.assumptions), next(iter(claims))
        steps, left_out = dict[Plan, PlanSteps](), dict[Plan, str]()
        for number, plan in enumerate(claims):
            try:
                steps[plan] = PlanSteps(*of, plan, tiles)
            except NotSteps as error:
                left_out[plan] = str(error)
            if way is not None and number in way.left_open:
                left_out[plan] = "the certificate leaves it open"
        lows = {plan: low for plan, low in claims.items() if plan not in left_out}
        try:
            bounds = LayerBounds(LayerItems(*of, first, tiles, self.known), self.pins, self.components)
            if way is None:
                above = {plan: low * (1 + _ROUNDED) for plan, low in lows.items()}
                outcome = ClassProof(bounds, steps, above).run(self.over)
            else:
                outcome = Replay(bounds, steps, lows, way).run(self.over)
        except (NotItems, TooMany, DfoptError) as error:  # a plan that the judge refuses has no mapping to show
            return Outcome(open=dict.fromkeys(claims, str(error)))
        outcome.open |= left_out
        return outcome
