"""What the judge's figures alone show of plans: no claim above the best mapping, nor by a forged certificate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import TypeVar

import pytest
from brute import joint_optimum
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from small_systems import small_system
from strategies import World, with_dram, worlds

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.certificate import Certificate, CertifiedRegion
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.mapping import KernelMapping, Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.score import Score
from dfopt.documents.system import System
from dfopt.errors import PlanError
from dfopt.judge import evaluate
from dfopt.physics.pipeline import resolve
from dfopt.proof import blocks
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


WORLDS = {
    "of any kind": worlds(most=4),
    "in blocks of tokens": worlds(most=4, execution="dataflow", token_blocks="allow", weights_from_dram=True),
}


@pytest.mark.parametrize("drawn", WORLDS.values(), ids=WORLDS)
@settings(deadline=None)
@given(st.data(), st.randoms(use_true_random=False))
def test_no_claim_above_the_best_mapping_is_shown(
    drawn: st.SearchStrategy[World], data: st.DataObject, dice: Random
) -> None:
    _check(data.draw(drawn), dice)


@settings(deadline=None)
@given(worlds(most=4), st.sampled_from([0.5, 1.0, 1.5]), st.randoms(use_true_random=False))
def test_none_where_memories_are_tight(world: World, share: float, dice: Random) -> None:
    chosen = world.assumptions.with_(sharding_objective="joint")
    best = joint_optimum(world.graph, world.system, resolve(chosen, world.system.chip.execution, 1.0))
    assume(best is not None)
    assert best is not None
    need = max((sum(states.values()) for stage in best.score.stages for states in stage.states.values()), default=0.0)
    _check(World(world.graph, with_dram(world.system, max(share * need, 1.0)), world.plan, world.assumptions), dice)


# -- one or two kernels: passes that share blocks, and a memory that is full to the last byte --


KERNELS = (  # much work on few weights, and much to read for little work
    Kernel(name="a", op="gemm", m=400, k=400, n=400),
    Kernel(name="b", op="gemm", m=2000, k=500, n=1, pass_="backward"),
)
BOTH = Graph(name="g", kernels=KERNELS, tensors=(Tensor(src="a", dst="b", bytes=1.0),))
LAYERS = Graph(name="g", kernels=(Kernel(name="a", op="gemm", m=400, k=400, n=40),), repeat=2)


def machine(capacity: float) -> System:
    return small_system(tiles=2, peak=1e8, bandwidth=2e6, capacity=capacity)


def score_of(graph: Graph, partitions: tuple[int, ...], system: System, chosen: Assumptions, plan: Plan) -> Score:
    """The judge's word on a mapping with these partitions."""
    pairs = zip(graph.kernels, partitions, strict=True)
    places = tuple(KernelMapping(name=kernel.name, partition=number) for kernel, number in pairs)
    return evaluate(Mapping(graph="g", system="s", plan=plan, kernels=places), graph, system, chosen)


@pytest.mark.parametrize("sets", [1500, 2])  # with 2 no blocks of several kernels are listed
@pytest.mark.parametrize("rule", ["shared", "halves", "separate"])
def test_passes_that_share_blocks_are_bounded_together(rule: str, sets: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of both takes as long as its work; apart, one waits for compute and the other for memory.

    What hides behind what is no matter of one pass.
    """
    monkeypatch.setattr(blocks, "_SETS", sets)
    system = machine(1e9)
    chosen = Assumptions(
        execution="dataflow", overlap="perfect", compute_utilization=1.0, forward_backward=rule, weights_from_dram=True
    )
    values = []
    for partitions in ((0, 0), (0, 1)):
        score = score_of(BOTH, partitions, system, chosen, Plan())
        values.append(math.inf if score.violations else score.step_time_s)
    best, claim = min(values), (Plan(), 1)
    assert (values[0] < 0.9 * values[1]) == (rule != "separate")
    assert claim in proven(BOTH, system, chosen, {claim: best * (1 + 1e-6)}).open
    assert not proven(BOTH, system, chosen, {claim: best * (1 - 1e-6)}).open


def test_a_full_memory_is_large_enough_and_a_little_less_is_not() -> None:
    plan, chosen = (
        Plan(layers_per_stage=2),
        Assumptions(execution="dataflow", compute_utilization=1.0, memory_reserve=0.0),
    )
    [stage] = score_of(LAYERS, (0,), machine(1e9), chosen, plan).stages
    need = sum(stage.states["dram"].values())
    assert need > 0 and not score_of(LAYERS, (0,), machine(need), chosen, plan).violations
    claims = {(plan, 1): math.inf}
    for share in (1.0, 1.005):
        assert (plan, 1) in proven(LAYERS, machine(share * need), chosen, claims).open
    assert not proven(LAYERS, machine(0.995 * need), chosen, claims).open
