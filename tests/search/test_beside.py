"""What a chip does beside its kernels, and what is gathered once for the backward pass: search, judge, brute force."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from given_plans import by_arrays, region_of
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import in_a_row, judged, kinds, mapping_of
from proven import check_proven
from strategies import World, busy, shardings, share, worlds

import dfopt as df
from dfopt.documents.assumptions import Assumptions
from dfopt.errors import PlanError
from dfopt.physics.beside import optimizer_s
from dfopt.terms.bounds import PlanBounds

NEW: dict[str, Any] = {
    "backward_gathers": [None, "layer"],
    "collective_work": [None, "every", "first", "first_adds"],
    "optimizer_step": [None, "adam", "adam_once"],
    "tensor_overlap": [None, "ring", "pipe", "waves"],
}
PLAIN: dict[str, Any] = {"empty_partitions": "allow", "gradients": "exact", "trains": True}


@share(0.3)
@given(
    worlds(most=4, max_pp=2, sharding_objective="joint", sequence_parallelism="allow", tile_rows=[1, 4], **PLAIN, **NEW)
)
def test_the_best_of_all_mappings(world: World) -> None:
    world = busy(world, 0.25)
    check_proven(world.graph, world.system, world.assumptions, {"zero": (0, 1)})


@share(0.3)
@given(
    worlds(
        most=4, max_pp=2, sharding_objective="joint", sequence_parallelism="allow", execution="kernel_by_kernel",
        operand_traffic=["own", "own_tiled"], overlap=["none", "compute_memory"], tile_rows=[1, 4], trains=None,
        empty_partitions="allow", gradients="exact",
    )
)  # fmt: skip
def test_the_best_where_kernels_move_what_is_theirs(world: World) -> None:
    check_proven(world.graph, world.system, world.assumptions, {})


def test_kernels_that_share_a_partition_have_no_traffic_of_their_own() -> None:
    graph, own = df.load_graph("gpt2-small"), Assumptions(operand_traffic="own")
    with pytest.raises(PlanError, match="operand_traffic: found own beside execution dataflow"):
        df.optimize(graph, df.load_system("sn10-8-ring"), assumptions=own)
    aware: dict[str, Any] = {"assumptions": own.with_(execution="kernel_by_kernel"), "heat": "aware"}
    with pytest.raises(PlanError, match="operand_traffic: found own beside heat"):
        df.optimize(graph, df.load_system("h100-8-hybrid"), **aware)


@share(0.6)
@given(
    world=worlds(
        roomy=True, zero=True, weight_tiling="forbid", compute_model=["fixed", "efficiency"], memory=True,
        gradient_overlap=[None, "backward"], **PLAIN, **NEW,
    ),
    data=st.data(),
)  # fmt: skip
def test_judge_search_and_bound_agree(world: World, data: st.DataObject) -> None:
    world = busy(world, 0.25)
    graph, chosen = world.graph, world.assumptions
    assume(graph.trains and (graph.folded or chosen.gradient_overlap is None))
    sharding, places = data.draw(shardings(graph, world.plan, chosen)), in_a_row(world)
    stage = {k.name: kinds(graph).index(k.layer or "layer") if graph.folded else 0 for k in graph.kernels}
    assume(graph.folded or world.plan.pp == 1)
    mapping = mapping_of(world, sharding, stage, places)
    assert mapping is not None
    score = judged(world, mapping)
    assert score.breakdown.total == pytest.approx(score.step_time_s, rel=1e-9)
    assert score.breakdown.optimizer_s == (score.optimizer_step_s or 0.0)
    region = region_of(world.instance.setting, mapping)
    assume(region is not None)
    priced = by_arrays(region, mapping)
    assume(priced is not None)
    assert priced.step_s == pytest.approx(score.step_time_s, rel=1e-9)
    if not score.violations:
        assert PlanBounds(world.instance.setting).seconds(world.instance) <= score.step_time_s * (1 + 1e-9)


CHIP = df.load_system("a100-8").chip
ADAM = Assumptions(overlap="none", compute_model="efficiency", optimizer_step="adam")


@pytest.mark.parametrize("step", ["adam", "adam_once"])
def test_fewer_parameters_never_take_longer(step: str) -> None:
    """Although the share of bandwidth rises with their bytes."""
    chosen = ADAM.with_(optimizer_step=step)
    seconds = [optimizer_s(float(count), 2.0, 2.0, CHIP, chosen) for count in np.geomspace(1, 1e10, 2000)]
    assert seconds == sorted(seconds)


def test_copies_share_the_step_out() -> None:
    graph = df.load_graph("gpt2-small", mode="training", batch=16)
    system, zero = df.load_system("a100-8"), []
    for level in (0, 1):
        fixed: dict[str, Any] = {"tp": 1, "pp": 1, "dp": 8, "zero": level}
        found = df.optimize(graph, system, assumptions=Assumptions(optimizer_step="adam"), **fixed)
        zero.append(found.score.breakdown.optimizer_s)
    assert zero[0] == pytest.approx(8 * zero[1], rel=0.01)
