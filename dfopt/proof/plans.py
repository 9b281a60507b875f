"""Which claims about the plans of a graph are shown by the judge's figures alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from collections.abc import Mapping as Dict
from dataclasses import dataclass, field

from dfopt.documents.assumptions import Assumptions
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
from dfopt.proof.regions import LATE, ClassProof

__all__ = ["Claim", "Proven", "proven"]

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
    """

    open: dict[Claim, str] = field(default_factory=dict)
    below: dict[Claim, Mapping] = field(default_factory=dict)
    regions: int = 0


def proven(
    graph: Graph,
    system: System,
    assumptions: Assumptions,
    claims: Dict[Claim, float],
    pins: Dict[str, Sharding] | None = None,
    over: Callable[[], bool] = lambda: False,
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

    Returns
    -------
    Proven
        Nothing is said of a mapping that breaks what is asked for beside the claims, such as partitions that are
        pinned: it may be below a claim and is no counterexample.
    """
    result, classes = Proven(), defaultdict[tuple[int, Hashable], list[Plan]](list)
    components, known = dict[Same[Graph], list[Component]](), Shared()
    for plan, tiles in claims:
        classes[tiles, LayerItems.alike(plan, graph, assumptions)].append(plan)
    for (tiles, _), plans in classes.items():
        if over():
            result.open |= dict.fromkeys(((plan, tiles) for plan in plans), LATE)
            continue
        steps = dict[Plan, PlanSteps]()
        for plan in plans:
            try:
                steps[plan] = PlanSteps(graph, system, assumptions, plan, tiles)
            except NotSteps as error:
                result.open[plan, tiles] = str(error)
        try:
            items = LayerItems(graph, system, assumptions, plans[0], tiles, known)
            bounds = LayerBounds(items, pins or {}, components)
            outcome = ClassProof(bounds, steps, {plan: claims[plan, tiles] for plan in steps}).run(over)
        except (NotItems, TooMany, DfoptError) as error:  # a plan that the judge refuses has no mapping to show
            result.open |= dict.fromkeys(((plan, tiles) for plan in plans), str(error))
        else:
            result.regions += outcome.regions
            result.open |= {(plan, tiles): reason for plan, reason in outcome.open.items()}
            result.below |= {(plan, tiles): mapping for plan, mapping in outcome.below.items()}
    return result
