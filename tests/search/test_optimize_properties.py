"""`optimize` on whole random problems: judge and MILP agree, bounds hold, pruning loses nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from given_plans import check_bound, drawn_mapping
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import judged
from problem_cases import close, dense
from strategies import World, share, worlds

import dfopt.search as optimizer
from dfopt.documents.result import Result
from dfopt.errors import Infeasible


def solved(world: World, *, one_plan: bool = False, **more) -> Result | None:
    """What optimize finds; None when it proves that nothing fits. Any other error is a bug."""
    fixed = {}
    if one_plan:
        plan = world.plan
        fixed = {f"{kind}_dims": getattr(plan, f"{kind}_dims") for kind in ("tp", "pp", "dp")}
        fixed |= {"interleave": plan.interleave, "zero": plan.zero or 0}
        if len(world.graph.layers.kinds) > 1 and plan.pp > 1:  # how many layers its stages have cannot be asked for
            with mock.patch("dfopt.search.graph_search.asked_plans", return_value=([plan], [])):
                return solved(world, **more)
    if world.assumptions.execution == "kernel_by_kernel":
        more.pop("p_max", None)  # refused there: every kernel has a partition of its own
    try:
        return optimizer.solve(world.graph, world.system, assumptions=world.assumptions, **fixed, **more)
    except Infeasible:
        return None


def p_max_for(world: World, data: st.DataObject) -> int | None:
    """Exactly p_max partitions must be given; at most may be left out."""
    forbid = world.assumptions.empty_partitions == "forbid" and world.assumptions.execution != "kernel_by_kernel"
    return data.draw(st.sampled_from([1, 2, 3] if forbid else [None, 1, 2, 3]))


def check_result(world: World, result: Result) -> None:
    score = judged(replace(world, plan=result.plan), result.mapping)
    assert score == result.score and not score.violations
    assert result.level_gap == 0.0
    assert result.level_bound <= result.step_time_s * (1 + 1e-9)
    assert close(result.step_time_s, score.step_time_s)
    for record in result.plans:
        if record.value is not None:
            assert record.level_bound is not None
            assert record.level_bound <= record.value * (1 + 1e-9)
            assert record.value >= result.step_time_s * (1 - 1e-9)
        if record.status.startswith("pruned"):
            assert record.level_bound is not None and record.level_bound >= result.value * (1 - 1e-9)
        if record.status == "pruned_by_bound":
            assert record.bound is not None and record.bound >= result.value * (1 - 1e-9)
        assert (record.bound is None) == (record.status == "infeasible")
        assert record.status not in ("limit", "not_reached")
    assert result.bound <= result.level_bound and (result.gap == 0.0) == (result.status == "optimal")
    check_matrices(world, result)
    assert Result.from_data(result.model_dump(mode="json"), "again") == result


def check_matrices(world: World, result: Result) -> None:
    """A, B, D, L, H of the result against their definitions (DFModel, equations 1-4), densely from A."""
    tensors = world.graph.tensors
    where = {k.name: (k.stage, k.partition) for k in result.mapping.kernels}
    for found in result.matrices:
        row = {name: i for i, name in enumerate(found.kernels)}
        count, size = found.partitions, len(found.tensors)
        assert set(found.tensors) == {i for i, t in enumerate(tensors) if t.src in row or t.dst in row}
        A = dense(found.A, (len(found.kernels), count))
        assert (A.sum(axis=1) == 1).all()
        for name, i in row.items():
            assert where[name][0] == found.stage and A[i, where[name][1]] == 1
        padded = np.vstack([A, np.zeros((1, count), dtype=int)])  # an end in another stage is in no partition here
        ends = [(row.get(tensors[t].src, -1), row.get(tensors[t].dst, -1)) for t in found.tensors]
        src = padded[[a for a, _ in ends]].reshape(size, count)
        dst = padded[[b for _, b in ends]].reshape(size, count)
        B = src * dst  # both ends in the partition
        D = src ^ dst  # one end in it: stored or loaded
        began = np.array([[1] * count if a < 0 else np.cumsum(s) for (a, _), s in zip(ends, src, strict=True)])
        over = np.array([[0] * count if b < 0 else np.cumsum(d) - d for (_, b), d in zip(ends, dst, strict=True)])
        cut = 1 - B.sum(axis=1, keepdims=True)
        L = (began * (1 - over)).reshape(size, count) * cut  # from the source's partition to the consumer's
        for name, wanted in (("B", B), ("D", D), ("L", L), ("H", src)):
            assert (dense(getattr(found, name), (size, count)) == wanted).all(), name


@share(1)
@given(worlds(most=5), st.data())
def test_results_hold_what_they_say(world: World, data: st.DataObject) -> None:
    """Over all plans of the system: never a ScoreMismatch, and every record is true."""
    result = solved(world, p_max=p_max_for(world, data))
    if result is not None:
        check_result(world, result)


@share(1)
@given(worlds(most=4, max_pp=2), st.data())
def test_no_mapping_beats_the_bound_of_its_plan(world: World, data: st.DataObject) -> None:
    level = world.graph.levels()
    cut = data.draw(st.integers(0, 3))
    partition = {n: 0 if one < cut else 1 for n, one in level.items()}
    if data.draw(st.booleans()):
        partition = {n: 0 for n in level}
    _, score = drawn_mapping(world, data, partition)
    assume(not score.violations)
    check_bound(world, score)


@share(0.5)
@given(
    worlds(most=4, max_pp=1, execution="dataflow", empty_partitions="allow", forward_backward=["separate", "shared"]),
    st.data(),
)
def test_pins_hold_in_the_result(world: World, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([k.name for k in world.graph.kernels]))
    partition = data.draw(st.integers(0, 1))
    result = solved(world, one_plan=True, p_max=2, pin_partition={name: partition})
    if result is not None:
        assert {k.name: k.partition for k in result.mapping.kernels}[name] == partition


@share(0.5)
@given(worlds(most=4, max_pp=1, dims=1, empty_partitions="allow"))
def test_more_of_a_resource_never_hurts_by_the_sensitivities(world: World) -> None:
    """Sharding stays as it is in a sensitivity, so a faster machine is never slower."""
    assume(world.assumptions.forward_backward != "halves")
    result = solved(world, one_plan=True, p_max=2, sensitivity=True)
    if result is None:
        return
    limited = {"sram_bandwidth"} if world.system.chip.sram.bandwidth else set()
    wanted = {"compute", "dram_bandwidth", "link_bandwidth", "sram"} | limited
    assert {s.resource for s in result.sensitivity} == wanted
    for one in result.sensitivity:
        assert one.proven and one.value <= result.step_time_s * (1 + 1e-6)


@pytest.mark.nightly
@pytest.mark.skipif(os.environ.get("HYPOTHESIS_PROFILE") != "nightly", reason="needs HYPOTHESIS_PROFILE=nightly")
@share(1)
@given(worlds(most=6), st.data())
def test_results_hold_what_they_say_nightly(world: World, data: st.DataObject) -> None:
    result = solved(world, p_max=p_max_for(world, data))
    if result is not None:
        check_result(world, result)
