"""What the judge's figures alone show of plans, against brute force: a claim above the best mapping is never shown.

Nor by a certificate that was forged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import TypeVar

from brute import joint_optimum
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import World, with_dram, worlds

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.certificate import Certificate, CertifiedRegion
from dfopt.documents.graph import Graph
from dfopt.documents.request import Request
from dfopt.documents.system import System
from dfopt.errors import PlanError
from dfopt.physics.pipeline import resolve
from dfopt.proof.plans import PlanClaim, proven
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.terms.sharded_graph import tile_counts

T = TypeVar("T")


def _claims(graph: Graph, system: System, chosen: Assumptions, seconds: float) -> dict[PlanClaim, float]:
    """The same claim about every plan, in each of its numbers of tiles."""
    found = dict[PlanClaim, float]()
    for plan in asked_plans(graph, system, Request(), chosen)[0]:
        drawn = Setting(graph, system, chosen).under(plan).graph
        for tiles in {count for least in (1, plan.shards) for count in tile_counts(drawn, chosen, least)}:
            found[plan, tiles] = seconds
    return found


def _forged(certificate: Certificate, dice: Random) -> Certificate:
    """A certificate with regions and weights swapped, doubled, left out and changed; plans are no longer left open."""

    def some(listed: Sequence[T]) -> list[T]:
        kept = [each for each in listed for _ in range(dice.choice((0, 1, 1, 1, 1, 1, 2)))]
        return dice.sample(kept, len(kept)) if dice.random() < 0.3 else kept

    def region(true: CertifiedRegion) -> CertifiedRegion:
        other = dice.choice(regions)
        return (
            true.model_copy(update={dice.choice(("weights", "excluded", "dominated", "kernel", "none")): None})
            if dice.random() < 0.3
            else dice.choice((true, true, other))
        )

    classes = []
    for each in certificate.classes:
        regions = each.regions or (CertifiedRegion(),)
        weights = tuple(
            tuple(tuple(w * dice.choice((1, 1, 3)) for w in row) for row in matrix) for matrix in some(each.weights)
        )
        changed = {"left_open": (), "weights": weights, "regions": tuple(map(region, some(regions)))}
        classes.append(each.model_copy(update=changed))
    return certificate.model_copy(update={"classes": tuple(classes)})


def _check(world: World, dice: Random) -> None:
    graph, system = world.graph, world.system
    chosen = resolve(
        world.assumptions.with_(sharding_objective="joint"), system.chip.execution, system.chip.compute_utilization
    )
    try:
        # of dims that are alike in both orders only one is listed
        best = joint_optimum(graph, system, chosen, plans=asked_plans(graph, system, Request(), chosen)[0])
    except PlanError:
        assume(False)
        raise
    if best is None:
        return
    own = best.plan, best.mapping.tile_count
    for above in (1 + 1e-6, 1.01, math.inf):
        assert own in proven(graph, system, chosen, _claims(graph, system, chosen, best.value * above)).open
    # below it, what is open says why
    shown = proven(graph, system, chosen, _claims(graph, system, chosen, best.value * (1 - 1e-6)))
    assert all(shown.open.values())
    certificate = Certificate(result="", classes=tuple(shown.classes))
    again = proven(
        graph, system, chosen, _claims(graph, system, chosen, best.value * (1 - 1e-6)), certificate=certificate
    )
    assert again.open.keys() == shown.open.keys() and not again.refused
    for of in (certificate, _forged(certificate, dice), _forged(certificate, dice)):
        for above in (1 + 1e-6, 1.01, math.inf):
            claims = _claims(graph, system, chosen, best.value * above)
            assert own in proven(graph, system, chosen, claims, certificate=of).open


@settings(deadline=None)
@given(worlds(most=4), st.randoms(use_true_random=False))
def test_no_claim_above_the_best_mapping_is_shown(world: World, dice: Random) -> None:
    _check(world, dice)


@settings(deadline=None)
@given(
    worlds(most=4, execution="dataflow", token_blocks="allow", weights_from_dram=True),
    st.randoms(use_true_random=False),
)
def test_none_in_blocks_of_tokens(world: World, dice: Random) -> None:
    _check(world, dice)


@settings(deadline=None)
@given(worlds(most=4), st.sampled_from([0.5, 1.0, 1.5]), st.randoms(use_true_random=False))
def test_none_where_memories_are_tight(world: World, share: float, dice: Random) -> None:
    chosen = world.assumptions.with_(sharding_objective="joint")
    best = joint_optimum(world.graph, world.system, resolve(chosen, world.system.chip.execution, 1.0))
    assume(best is not None)
    assert best is not None
    need = max((sum(states.values()) for stage in best.score.stages for states in stage.states.values()), default=0.0)
    _check(World(world.graph, with_dram(world.system, max(share * need, 1.0)), world.plan, world.assumptions), dice)
