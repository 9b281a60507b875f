"""Mappings that break a limit are timed and told so; those that do not fit are refused with every reason."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import pytest
from judge_cases import PLAIN, arrows, closed, gemm, judged, machine, place, ring, simd

from dfopt.documents.graph import Graph, Tensor
from dfopt.documents.plan import Plan
from dfopt.errors import DocumentError, PlanError, SystemSpecError
from dfopt.judge import evaluate

KERNELS = simd("a", 10, 10), simd("b", 10, 10), simd("c", 10, 10, pass_="backward")
GRAPH = closed(name="g", kernels=KERNELS, tensors=arrows("ab", "bc"))


def broken(places: dict[str, Any], graph: Graph = GRAPH, **changes: Any) -> tuple[str, ...]:
    score = judged(graph, places, **changes)
    assert score.step_time_s > 0
    assert score.feasible == (not score.violations)
    return score.violations


LOOSE = GRAPH.model_copy(update={"tensors": ()})


@pytest.mark.parametrize(
    ("places", "changes", "said"),
    [
        ((0, 0, 1), {}, ""),
        ((0, 3, 7), {}, ""),
        ((1, 0, 2), {}, "tensor a -> b goes back from partition 1 to partition 0 of stage 0"),
        ((0, 1, 1), {}, "partition 1 of stage 0 mixes forward kernels with backward or update kernels"),
        ((0, 1, 1), {"forward_backward": "shared"}, ""),
        ((0, 2, 4), {"empty_partitions": "forbid"}, "stage 0 has 2 empty partitions of 5, the assumptions forbid any"),
    ],
)
def test_a_limit_of_partitions(places: tuple[int, ...], changes: dict[str, Any], said: str) -> None:
    assert broken(dict(zip("abc", places, strict=True)), **changes) == ((said,) if said else ())


def test_separate_passes() -> None:
    (only,) = broken({"a": 0, "b": 2, "c": 1}, LOOSE)
    assert "up to partition 2" in only and "from partition 1" in only


def test_halves() -> None:
    def halves(places: dict[str, int], empty: str = "forbid", graph: Graph = GRAPH) -> tuple[str, ...]:
        return broken(places, graph, forward_backward="halves", empty_partitions=empty)

    assert halves({"a": 0, "b": 0, "c": 1}) == ()
    assert halves({"a": 0, "b": 1, "c": 1}) == (
        "partition 1 of stage 0 holds a forward kernel, but of 2 partitions only the first 1 are for them",
    )
    assert halves({"a": 0, "b": 1, "c": 2}) == ()  # of three, both may use the middle one
    late, early = halves({"a": 0, "b": 1, "c": 0}, graph=LOOSE)
    assert "partition 1 of stage 0 holds a forward kernel" in late
    assert "partition 0 of stage 0 holds a backward or update kernel" in early
    more = LOOSE.model_copy(update={"kernels": (*GRAPH.kernels, simd("d", 10, 10, pass_="backward"))})
    assert halves({"a": 0, "b": 0, "c": 2, "d": 1}, graph=more) == ()  # early, but not before the middle
    # With empty partitions allowed, the last ones do not show: 0 1 2 | 3 of six is fine.
    assert halves({"a": 0, "b": 2, "c": 3}, "allow") == ()
    assert halves({"a": 0, "b": 1, "c": 1}, "allow") == ()
    assert halves({"a": 0, "b": 2, "c": 1}, "allow", LOOSE) != ()
    forward = LOOSE.model_copy(update={"kernels": LOOSE.kernels[:2]})
    assert halves({"a": 0, "b": 1}, graph=forward) == ()  # a rule between two passes


def test_tiles() -> None:
    score = judged(GRAPH, {"a": 0, "b": 0, "c": 1}, system=machine(tiles=8), tiles=5)
    assert score.violations == ("partition 0 of stage 0 uses 10 tiles, the chip has 8",)


def test_sram_and_dram() -> None:
    """Level depth 2 of 200 B inside partition 0, 400 B for b -> c at both ends; b -> c is saved in DRAM."""
    mapping = place(GRAPH, {"a": 0, "b": 0, "c": 1})
    score = evaluate(mapping, GRAPH, machine(sram=799.0, dram_capacity=199.0), PLAIN)
    assert score.violations == (
        "partition 0 of stage 0 needs 800 B of SRAM, the chip has 799 B",
        "stage 0 needs 200 B of DRAM per chip, the chip has 199 B",
    )
    assert evaluate(mapping, GRAPH, machine(sram=800.0, dram_capacity=200.0), PLAIN).violations == ()


def test_a_sentence_in_megabytes() -> None:
    graph = closed(name="g", kernels=(simd("a", 1000, 1000), simd("b", 1000, 1000)), tensors=arrows("ab"))
    score = judged(graph, {"a": 0, "b": 0}, system=machine(sram=1.5e6))
    assert score.violations == ("partition 0 of stage 0 needs 4.0 MB of SRAM, the chip has 1.5 MB",)


def test_stage_order_and_company() -> None:
    late = simd("c", 10, 10, pass_="backward", stage_with="b"), simd("d", 10, 10, pass_="backward")
    graph = closed(name="g", kernels=(*KERNELS[:2], *late), tensors=arrows("ab", "bc", "cd"))

    def violations(drawn: Graph = graph, **stages: int) -> tuple[str, ...]:
        partition = {"a": 0, "b": 0, "c": 1, "d": 1}
        places = {name: ("none", partition[name], stage) for name, stage in stages.items()}
        return judged(drawn, places, Plan(pp=2, pp_dims=("p",)), machine(ring("p", 2))).violations

    assert violations(a=0, b=1, c=1, d=0) == ()
    assert violations(a=1, b=0, c=0, d=0) == ("tensor a -> b goes back from stage 1 to stage 0",)
    (wrong,) = violations(a=0, b=0, c=0, d=1)
    assert wrong.startswith("tensor c -> d goes from stage 0 to stage 1")
    # From a backward kernel into a forward one (recomputation) the rule of the forward pass holds.
    back = graph.model_copy(update={"tensors": arrows("ca")})
    assert violations(back, a=0, b=1, c=1, d=0) == ("tensor c -> a goes back from stage 1 to stage 0",)
    assert violations(a=0, b=1, c=0, d=0) == (
        "tensor b -> c goes back from stage 1 to stage 0",
        "kernel 'c' is in stage 0, but must be with 'b' in stage 1",
    )


def test_everything_that_does_not_fit_is_told_at_once() -> None:
    graph = closed(name="mine.yaml", kernels=[gemm(name, 4, 8, 16) for name in ("left", "right", "up")])
    places = {"left": ("n", 0), "rigth": ("m", 0), "up": ("m", 0, 1)}
    with pytest.raises(DocumentError) as caught:
        judged(graph, places, Plan(tp=2, tp_dims=("x",)), machine(ring("x", 2)))
    assert caught.value.path == "mine.yaml"
    found = {issue.where: issue for issue in caught.value.issues}
    assert set(found) == {"$.kernels", "$.kernels[0].sharding", "$.kernels[1].name", "$.kernels[2].stage"}
    assert found["$.kernels[0].sharding"].remedy == "choose m or k"
    assert "'right'" in found["$.kernels"].message and "'right'" in found["$.kernels[1].name"].remedy
    assert all(issue.remedy for issue in caught.value.issues)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"tp": 4}, ["$.plan: tp x pp x dp is 4 x 1 x 2 = 8", "$.plan.tp_dims: x 2 give 2 chips, but tp is 4"]),
        ({"tp_dims": ("q",)}, ["$.plan.tp_dims[0]: no network dim is called 'q'"]),
        ({"tp_dims": ("y",)}, ["$.plan.dp_dims[0]: dim 'y' already carries tp"]),
        ({"tp_dims": ()}, ["$.plan.tp_dims: no dims give 1 chips, but tp is 2"]),
        ({"microbatches": 7}, ["$.plan.microbatches: found 7, but batch / (microbatch x dp) is 3"]),
        ({"layers_per_stage": 2}, ["$.plan.layers_per_stage: found 2"]),
    ],
)
def test_plans_that_do_not_fit(changes: dict[str, Any], wanted: list[str]) -> None:
    graph = closed(name="g", batch=6, kernels=(gemm("a", 4, 8, 16),))
    good = Plan(tp=2, dp=2, tp_dims=("x",), dp_dims=("y",), microbatches=3)
    system = machine(ring("x", 2), ring("y", 2))
    assert judged(graph, {"a": ("m", 0)}, good, system).violations == ()
    plan = good.model_copy(update=changes)
    with pytest.raises(PlanError) as caught:
        judged(graph, {"a": ("m", 0)}, plan, system)
    assert all(text in str(caught.value) for text in wanted), str(caught.value)
    assert len(str(caught.value).splitlines()) == len(wanted) + 1
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_batch_that_cannot_be_shared_out_and_a_bad_kernel_in_one_message() -> None:
    graph = closed(name="g", batch=5, kernels=(gemm("a", 4, 8, 16),))
    plan = Plan(tp=2, dp=2, tp_dims=("x",), dp_dims=("y",))
    with pytest.raises(PlanError, match="multiple of microbatch x dp = 2") as caught:
        judged(graph, {"a": ("none", 0)}, plan, machine(ring("x", 2), ring("y", 2)))
    assert "$.kernels[0].sharding" in str(caught.value)


def test_a_folded_layer_has_no_stages_to_choose() -> None:
    graph = closed(name="g", repeat=4, kernels=(gemm("a", 4, 8, 16),))
    plan = Plan(pp=2, pp_dims=("p",), layers_per_stage=2)
    with pytest.raises(DocumentError, match=r"\$\.kernels\[0\]\.stage"):
        judged(graph, {"a": ("none", 0, 1)}, plan, machine(ring("p", 2)))


@pytest.mark.parametrize(
    ("model", "said"),
    [("cycle", r"\$\.chip\.lanes"), ("efficiency", r"\$\.chip\.efficiency: the key is missing.*compute_model: fixed")],
)
def test_a_model_of_compute_needs_its_figures(model: str, said: str) -> None:
    with pytest.raises(SystemSpecError, match=said):
        judged(GRAPH, {"a": 0, "b": 0, "c": 1}, compute_model=model)


def test_a_chain_of_two_thousand_kernels_is_judged() -> None:
    names = [f"k{number}" for number in range(2000)]
    tensors = [Tensor(src=one, dst=two) for one, two in pairwise(names)]
    graph = closed(name="deep", kernels=[simd(name, 8, 8) for name in names], tensors=tensors)
    assert len(judged(graph, {name: at // 7 for at, name in enumerate(names)}).partitions) == 286
