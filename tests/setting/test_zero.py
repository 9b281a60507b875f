"""Copies of the batch share out optimizer states, gradients and weights: bytes, seconds, legality, and what wins."""

from __future__ import annotations

import pytest

import dfopt as df
from dfopt.documents.mapping import Mapping
from dfopt.documents.plan import Plan
from dfopt.errors import Infeasible, PlanError
from dfopt.judge import evaluate
from dfopt.library import as_graph, as_system
from dfopt.physics.collectives import Collective
from dfopt.physics.copies import exchanges
from dfopt.physics.network import communication_seconds
from dfopt.search.verify import verify

BATCH, LEVELS = 16, (0, 1, 2, 3)


@pytest.fixture(scope="module")
def results() -> dict[int, df.Result]:
    graph = df.load_graph("gpt2-small", mode="training", batch=BATCH)
    return {level: df.optimize(graph, "a100-8", zero=level, tp=1, pp=1) for level in LEVELS}


def test_what_a_chip_holds_and_sends(results: dict[int, df.Result]) -> None:
    """12 layers of 7,077,888 parameters in bf16, gradients in fp32, on 8 copies, each of which takes 2 microbatches."""
    parameters, layer, copies, microbatches = 12 * 7_077_888, 7_077_888, 8, BATCH / 8
    whole = {"weights": 2.0 * parameters, "gradients": 4.0 * parameters, "optimizer": 12.0 * parameters}
    expected = {0: whole, 1: whole | {"optimizer": whole["optimizer"] / copies}}
    expected[2] = expected[1] | {"gradients": whole["gradients"] / copies}
    expected[3] = expected[2] | {"weights": whole["weights"] / copies + 2.0 * layer}
    system, rules = as_system("a100-8"), df.Assumptions()

    def once(kind: Collective) -> float:
        return communication_seconds(kind, whole["weights"] / 12, ["nvlink"], system, rules) * 12

    added, brought = once(Collective.REDUCE_SCATTER), once(Collective.ALL_GATHER)
    seconds = {0: once(Collective.ALL_REDUCE), 1: added + brought, 2: microbatches * added + brought}
    seconds[3] = microbatches * (added + 2 * brought)
    for level, result in results.items():
        states = result.score.stages[0].states["dram"]
        assert {name: states[name] for name in whole} == pytest.approx(expected[level], rel=1e-12)
        assert result.score.gradient_reduction_s == pytest.approx(seconds[level], rel=1e-9)
        assert result.score.breakdown is not None
        assert result.score.breakdown.data_parallel_s == result.score.gradient_reduction_s
        assert (result.plan.zero, result.status) == (level or None, "optimal")


def test_copies_that_hold_less_fit_where_others_do_not() -> None:
    graph = df.load_graph("gpt2-small", mode="training", batch=8)
    system = df.load_system("a100-8", {"chip.dram.capacity": "1.6 GB"})
    alone = {}
    for level in LEVELS:
        try:
            alone[level] = df.optimize(graph, system, zero=level, tp=1, pp=1).step_time_s
        except Infeasible:
            alone[level] = float("inf")
    assert alone[0] == float("inf") > min(alone.values())
    found = df.optimize(graph, system, zero=LEVELS, tp=1, pp=1)
    assert found.step_time_s == min(alone.values()) == alone[found.plan.zero or 0]
    assert verify(found).verdict == "verified optimal"


def test_a_level_that_was_edited_is_caught(results: dict[int, df.Result]) -> None:
    told = results[1].to_data()
    told["plan"]["zero"] = told["mapping"]["plan"]["zero"] = 2
    assert not verify(df.Result.from_data(told)).ok


def test_what_cannot_be_shared_out() -> None:
    serving, training = as_graph("gpt2-small"), df.load_graph("gpt2-small", mode="training", batch=64)
    with pytest.raises(PlanError, match=r"zero: gpt2-small keeps no gradients .* drop ZeRO-1"):
        df.optimize(serving, "a100-8", zero=1)
    with pytest.raises(PlanError, match="ZeRO-3: gradients of every microbatch would be exchanged in PP 4"):
        df.optimize(training, "a100-8", zero=3, dp=2, pp=4)
    with pytest.raises(PlanError, match=r"zero: found 4, expected 0, 1, 2 or 3$"):
        df.Request.of(zero=4)
    result = df.optimize(training, "a100-8", pp=4, dp=2, zero=1, tp=1)
    assert "ZeRO-1" in result.plan.label
    mapping = result.mapping.model_copy(update={"plan": result.plan.model_copy(update={"zero": 2})})
    with pytest.raises(PlanError, match=r"\$\.plan\.zero: found 2, but gradients of every microbatch"):
        evaluate(Mapping.from_data(mapping.to_data()), training, as_system("a100-8"))


def test_chips_of_a_second_axis_add_up_shares() -> None:
    plan = Plan(mp=2, dp=4, mp_dims=("m",), dp_dims=("d",), zero=1, microbatches=3)
    found = [(one.kind.value, one.of, one.dims, one.share, one.times) for one in exchanges(plan, ("m", "d"))]
    assert found == [
        ("reduce_scatter", "gradients", ("d",), 1.0, 1),
        ("all_reduce", "gradients", ("m",), 0.25, 1),
        ("all_gather", "weights", ("d",), 1.0, 1),
    ]
