"""Copies of the batch share out optimizer states, gradients and weights: bytes, seconds, legality, and what wins."""

from __future__ import annotations

from typing import Any

import pytest

import dfopt as df
from dfopt.documents.hybrid import Hybrid
from dfopt.documents.mapping import Mapping
from dfopt.documents.plan import Plan
from dfopt.errors import Infeasible, PlanError
from dfopt.judge import evaluate
from dfopt.library import as_system
from dfopt.physics.collectives import Collective
from dfopt.physics.copies import exchanges
from dfopt.physics.network import communication_seconds
from dfopt.search.verify import verify

BATCH, LEVELS = 16, (0, 1, 2, 3)


def trained(batch: int = 64, **more: Any) -> df.Graph:
    return df.load_graph("gpt2-small", mode="training", batch=batch, **more)


def solved(graph: df.Graph, system: Any = "a100-8", **asked: Any) -> df.Result:
    """The best step of copies alone, unless other degrees are asked for."""
    fixed = {"assumptions": "ideal", "tp": 1, "pp": 1, "sensitivity": False}
    return df.optimize(graph, system, **fixed | asked)


def seconds(graph: df.Graph, system: df.System, **asked: Any) -> float:
    """Seconds of that step, infinitely many if it does not fit."""
    try:
        return solved(graph, system, **asked).step_time_s
    except Infeasible:
        return float("inf")


@pytest.fixture(scope="module")
def results() -> dict[int, df.Result]:
    return {level: solved(trained(BATCH), zero=level) for level in LEVELS}


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
        assert result.score.breakdown.data_parallel_s == result.score.gradient_reduction_s
        assert (result.plan.zero, result.status) == (level or None, "optimal")


def test_what_is_exchanged_is_whole_for_a_while(results: dict[int, df.Result]) -> None:
    """Of one layer or two of 7,077,888 parameters, weights and gradients are there in bf16 beside a chip's share."""
    layer, system, buckets = 2.0 * 7_077_888, as_system("a100-8"), 1e9
    for level, result in results.items():
        graph, before = result.graph, result.score.stages[0].states["dram"]
        for layers in (None, 1, 2):
            rules = df.Assumptions(layers_exchanged=layers, exchange_buffers=buckets)
            score = evaluate(result.mapping, graph, system, rules)
            after = score.stages[0].states["dram"]
            weights = layer * ((layers or 1) - 1) if level == 3 else 0.0
            gradients = layer * (layers or 0) if level >= 2 else 0.0
            more = {"weights": weights, "gradients": gradients + buckets}
            assert {name: after[name] - before[name] for name in more} == pytest.approx(more, rel=1e-12)
            assert score.step_time_s == result.score.step_time_s
            parts = score.memory[0], result.score.memory[0]
            assert parts[0].weights_b - parts[1].weights_b == pytest.approx(weights)
            assert parts[0].weight_gradients_b - parts[1].weight_gradients_b == pytest.approx(more["gradients"])
    alone = df.Assumptions(exchange_buffers=buckets)  # a chip has them only where there are copies
    for degrees in ({"tp": 1, "pp": 1}, {"tp": 8, "pp": 1}):
        assert memory_of(alone, degrees) - memory_of(df.Assumptions(), degrees) == (
            buckets if degrees["tp"] == 1 else 0
        )


def memory_of(rules: df.Assumptions, degrees: dict[str, int]) -> float:
    """Bytes of gradients that a chip holds."""
    found = df.optimize(trained(BATCH), "a100-8", assumptions=rules, **degrees)
    return found.score.stages[0].states["dram"]["gradients"]


LAYER = 2.0 * 7_077_888


@pytest.mark.parametrize(
    ("changes", "more"), [({"layers_exchanged": 2}, 3 * LAYER), ({"exchange_buffers": 64e6}, 64e6)]
)
def test_what_just_fits_is_found_and_what_does_not_is_refused(
    results: dict[int, df.Result], changes: dict[str, float], more: float
) -> None:
    """At ZeRO-3 two layers' weights and gradients instead of one's weights; or buckets."""
    result = results[3]
    held = sum(result.score.stages[0].states["dram"].values()) + more
    chosen = df.Assumptions(memory_reserve=0, **changes)
    for capacity, fits in ((held + 1e4, True), (held - 1e4, False)):
        system = df.load_system("a100-8", {"chip.dram.capacity": f"{capacity:.0f} B"})
        mapping = {one.name: one.sharding for one in result.mapping.kernels}
        if fits:
            asked = {"assumptions": chosen, "zero": 3, "pin_sharding": mapping}
            assert solved(result.graph, system, **asked).status == "optimal"
        else:
            score = evaluate(result.mapping, result.graph, system, chosen)
            assert any("DRAM" in one for one in score.violations)


def test_copies_that_hold_less_fit_where_others_do_not() -> None:
    graph, system = trained(8), df.load_system("a100-8", {"chip.dram.capacity": "1.6 GB"})
    alone = {level: seconds(graph, system, zero=level) for level in LEVELS}
    assert alone[0] == float("inf") > min(alone.values())
    found = solved(graph, system, zero=LEVELS)
    assert found.step_time_s == min(alone.values()) == alone[found.plan.zero or 0]
    assert verify(found).verdict == "verified optimal"


def test_a_level_that_was_edited_is_caught(results: dict[int, df.Result]) -> None:
    told = results[1].to_data()
    told["plan"]["zero"] = told["mapping"]["plan"]["zero"] = 2
    assert not verify(df.Result.from_data(told)).ok


def test_what_cannot_be_shared_out() -> None:
    serving, training = df.load_graph("gpt2-small"), trained()
    with pytest.raises(PlanError, match=r"zero: gpt2-small keeps no gradients .* drop ZeRO-1"):
        solved(serving, zero=1, tp=None, pp=None)
    with pytest.raises(PlanError, match="ZeRO-3: gradients of every microbatch would be exchanged in PP 4"):
        solved(training, zero=3, tp=None, dp=2, pp=4)
    with pytest.raises(PlanError, match=r"zero: found 4, expected 0, 1, 2 or 3$"):
        df.Request.of(zero=4)
    result = solved(training, pp=4, dp=2, zero=1)
    assert "ZeRO-1" in result.plan.label
    mapping = result.mapping.model_copy(update={"plan": result.plan.model_copy(update={"zero": 2})})
    with pytest.raises(PlanError, match=r"\$\.plan\.zero: found 2, but gradients of every microbatch"):
        evaluate(Mapping.from_data(mapping.to_data()), training, as_system("a100-8"))


def test_chips_of_a_second_axis_share_out_what_they_all_have() -> None:
    plan = Plan(mp=2, dp=4, mp_dims=("m",), dp_dims=("d",), zero=1, microbatches=3)
    found = [(one.kind.value, one.of, one.dims, one.share, one.times) for one in exchanges(plan, ("m", "d"))]
    both = ("m", "d")
    assert found == [("reduce_scatter", "gradients", both, 1.0, 1), ("all_gather", "weights", both, 1.0, 1)]
    groups = plan.model_copy(update={"hybrid": Hybrid(replicas=2, over=("d[2]",), across=("d[2@2]",))})
    found = [(one.kind.value, one.dims, one.share) for one in exchanges(groups, ("m", "d"))]
    assert found[1] == ("all_reduce", ("d[2@2]",), 1 / 4)  # two chips of each axis have a share of it


@pytest.mark.parametrize("level", LEVELS[1:])
@pytest.mark.parametrize("mp", [8, 4])
def test_sequences_over_a_second_axis_are_copies(level: int, mp: int) -> None:
    """Chips that have some of the sequences each hold, and exchange, what copies of the batch do; of one copy, too."""
    small = {"mode": "training", "batch": 16, "seq": 64, "recompute": "full"}
    by_sequences = {"stream": "n", "mixer": "n", "dense": "n"}
    graphs = [df.load_graph("qwen3-0.6b", microbatch=size, **small) for size in (mp, 1)]
    found = solved(graphs[0], zero=level, mp=mp, modules=by_sequences)
    copies = solved(graphs[1], zero=level, mp=1)
    assert (found.plan.zero, found.plan.copies, verify(found).ok) == (level, 8 // mp, True)
    states = [one.score.stages[0].states["dram"] for one in (found, copies)]
    held = [{name: each[name] for name in ("weights", "gradients", "optimizer")} for each in states]
    assert held[0] == pytest.approx(held[1], rel=1e-12)
    if mp == 8:
        assert found.score.gradient_reduction_s == pytest.approx(copies.score.gradient_reduction_s, rel=1e-9)


def test_experts_of_one_chip_are_its_own() -> None:
    """Of two layers: attention, router and ends are on all eight chips, an eighth of the experts on each."""
    graph = df.load_graph(
        "mixtral-8x7b", mode="training", batch=8, microbatch=8, seq=64, layers=2, ends=True, recompute="full"
    )
    asked = {"assumptions": "ideal", "mp": 8, "time_limit": 20, "sensitivity": False}
    schemes = {"stream": "n", "mixer": "n", "dense": "n", "ends": "n", "experts": "outer"}
    found = df.optimize(graph, "h100-8", zero=1, modules=schemes, **asked)
    states = found.score.stages[0].states["dram"]
    experts = 2 * 3 * 4096 * 14336  # one of each layer, on its chip
    alike = 2 * (4096 * 128 * (2 * 32 + 2 * 8) + 8 * 4096) + 2 * 32000 * 4096
    assert states["optimizer"] == pytest.approx(12 * (experts + alike / 8), rel=1e-9)
    assert states["weights"] + states.get("tables", 0.0) == pytest.approx(2 * (experts + alike), rel=1e-9)


# -- groups of copies -----------------------------------------------------------------------------


def test_groups_share_out_and_add_up_over_groups() -> None:
    """HSDP by hand: shards within a node of four, the same in both groups; the sums of shards go across once."""
    graph, rules = trained(BATCH, main_gradients="bf16"), df.Assumptions()
    system, parameters = as_system("a100-8"), 12 * 7_077_888
    for level in (1, 2, 3):
        result = solved(graph, system, zero=level, zero_replicas=2)
        plan, states = result.plan, result.score.stages[0].states["dram"]
        assert plan.hybrid is not None and f"ZeRO-{level}x2" in plan.label
        assert (plan.hybrid.over, plan.hybrid.across) == (("nvlink[4]",), ("nvlink[2@4]",))
        held = {"optimizer": 3.0 * parameters, "gradients": (2.0, 0.5)[level > 1] * parameters}
        held["weights"] = (2.0 if level < 3 else 0.5 + 2.0 / 12) * parameters
        assert {name: states[name] for name in held} == pytest.approx(held, rel=1e-12)

        def once(kind: Collective, dims: str, share: float = 1.0) -> float:
            return 12 * communication_seconds(kind, share * 2.0 * parameters / 12, [dims], system, rules)

        added = once(Collective.REDUCE_SCATTER, "nvlink[4]") * (1 if level == 1 else BATCH / 8)
        brought = once(Collective.ALL_GATHER, "nvlink[4]") * (1 if level < 3 else 2 * BATCH / 8)
        across = once(Collective.ALL_REDUCE, "nvlink[2@4]", 0.25)
        assert result.score.gradient_reduction_s == pytest.approx(added + brought + across, rel=1e-9)
        assert verify(result).ok and result.status == "optimal"


def test_groups_are_a_menu_of_which_the_best_is_found() -> None:
    """Between nodes exchanges are slow: to share out within a node is the fastest that fits, and neither extreme is."""
    graph, chip = trained(microbatch=1, main_gradients="bf16"), {"chip.dram.capacity": "1.45 GB"}
    system = df.load_system("a100-512", {"network.node.size": 8, "network.cluster.size": 4, **chip})
    found = solved(graph, system, zero=(2, 3), zero_replicas="all")
    values = {count: seconds(graph, system, zero=(2, 3), zero_replicas=count) for count in (1, 2, 4, 8, 16)}
    assert found.step_time_s == min(values.values()) and verify(found).ok
    assert found.plan.hybrid is not None and found.step_time_s < values[1]
    assert len(found.plans) >= 2 * 5 and found.space is not None and found.space.plans == 2 * 5


def test_groups_that_cannot_be() -> None:
    graph = trained()
    with pytest.raises(PlanError, match="zero_replicas: found 2, but no level of ZeRO"):
        solved(graph, zero=0, zero_replicas=2)
    with pytest.raises(PlanError, match=r"ZeRO-1: DP 8 cannot be cut into 3 groups"):
        solved(graph, zero=1, zero_replicas=3)
    result = solved(graph, zero=1, zero_replicas=2)
    assert result.plan.hybrid is not None
    other = result.plan.hybrid.model_copy(update={"over": ("nvlink[4@2]",), "across": ("nvlink[2]",)})
    for changes, told in (
        ({"hybrid": other}, r"found groups over nvlink\[4@2\]"),
        ({"zero": None}, "share nothing out"),
    ):
        mapping = result.mapping.model_copy(update={"plan": result.plan.model_copy(update=changes)})
        with pytest.raises(PlanError, match=told):
            evaluate(mapping, graph, as_system("a100-8"))
