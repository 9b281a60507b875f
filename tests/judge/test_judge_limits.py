"""Mappings that break a limit are timed and told so; those that do not fit are refused with every reason."""

from __future__ import annotations

import ast
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from judge_cases import PLAIN, closed, gemm, machine, place, ring, simd

from dfopt import judge
from dfopt.documents.graph import Graph, Tensor
from dfopt.documents.mapping import KernelMapping, Mapping
from dfopt.documents.plan import Plan
from dfopt.errors import DocumentError, PlanError, SystemSpecError
from dfopt.judge import evaluate

GRAPH = closed(
    name="g",
    kernels=(simd("a", 10, 10), simd("b", 10, 10), simd("c", 10, 10, pass_="backward")),
    tensors=(Tensor(src="a", dst="b"), Tensor(src="b", dst="c")),
)


def broken(places: dict[str, Any], graph: Graph = GRAPH, **changes: Any) -> tuple[str, ...]:
    score = evaluate(place(graph, places), graph, machine(), PLAIN.with_(**changes))
    assert score.step_time_s > 0
    assert score.feasible == (not score.violations)
    return score.violations


def test_nothing_broken() -> None:
    assert broken({"a": 0, "b": 0, "c": 1}) == ()
    assert broken({"a": 0, "b": 3, "c": 7}) == ()


def test_order_inside_a_stage() -> None:
    assert broken({"a": 1, "b": 0, "c": 2}) == ("tensor a -> b goes back from partition 1 to partition 0 of stage 0",)


def test_separate_passes() -> None:
    assert broken({"a": 0, "b": 1, "c": 1}) == (
        "partition 1 of stage 0 mixes forward kernels with backward or update kernels",
    )
    loose = GRAPH.model_copy(update={"tensors": ()})
    (only,) = broken({"a": 0, "b": 2, "c": 1}, loose)
    assert "up to partition 2" in only and "from partition 1" in only
    assert broken({"a": 0, "b": 1, "c": 1}, forward_backward="shared") == ()


def with_d(graph: Graph) -> Graph:
    """One more backward kernel."""
    return graph.model_copy(update={"kernels": (*graph.kernels, simd("d", 10, 10, pass_="backward"))})


def test_halves() -> None:
    def halves(places: dict[str, int], empty: str = "forbid", graph: Graph = GRAPH) -> tuple[str, ...]:
        return broken(places, graph, forward_backward="halves", empty_partitions=empty)

    assert halves({"a": 0, "b": 0, "c": 1}) == ()
    assert halves({"a": 0, "b": 1, "c": 1}) == (
        "partition 1 of stage 0 holds a forward kernel, but of 2 partitions only the first 1 are for them",
    )
    assert halves({"a": 0, "b": 1, "c": 2}) == ()  # of three, both may use the middle one
    loose = GRAPH.model_copy(update={"tensors": ()})
    late, early = halves({"a": 0, "b": 1, "c": 0}, graph=loose)
    assert "partition 1 of stage 0 holds a forward kernel" in late
    assert "partition 0 of stage 0 holds a backward or update kernel" in early
    assert halves({"a": 0, "b": 0, "c": 2, "d": 1}, graph=with_d(loose)) == ()  # early, but not before the middle
    # With empty partitions allowed, the last ones do not show: 0 1 2 | 3 of six is fine.
    assert halves({"a": 0, "b": 2, "c": 3}, "allow") == ()
    assert halves({"a": 0, "b": 1, "c": 1}, "allow") == ()
    assert halves({"a": 0, "b": 2, "c": 1}, "allow", loose) != ()
    forward = loose.model_copy(update={"kernels": loose.kernels[:2]})
    assert halves({"a": 0, "b": 1}, graph=forward) == ()  # a rule between two passes


def test_empty_partitions() -> None:
    assert broken({"a": 0, "b": 2, "c": 4}, empty_partitions="forbid") == (
        "stage 0 has 2 empty partitions of 5, the assumptions forbid any",
    )


def test_tiles() -> None:
    mapping = place(GRAPH, {"a": 0, "b": 0, "c": 1}, tiles=5)
    score = evaluate(mapping, GRAPH, machine(tiles=8), PLAIN)
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
    graph = closed(name="g", kernels=(simd("a", 1000, 1000), simd("b", 1000, 1000)))
    graph = graph.model_copy(update={"tensors": (Tensor(src="a", dst="b"),)})
    score = evaluate(place(graph, {"a": 0, "b": 0}), graph, machine(sram=1.5e6), PLAIN)
    assert score.violations == ("partition 0 of stage 0 needs 4.0 MB of SRAM, the chip has 1.5 MB",)


def test_stage_order_and_company() -> None:
    kernels = (*GRAPH.kernels[:2], simd("c", 10, 10, pass_="backward", stage_with="b"), simd("d", 10, 10))
    kernels = (*kernels[:3], kernels[3].model_copy(update={"pass_": "backward"}))
    graph = GRAPH.model_copy(update={"kernels": kernels, "tensors": (*GRAPH.tensors, Tensor(src="c", dst="d"))})
    plan, system = Plan(pp=2, pp_dims=("p",)), machine(ring("p", 2))

    def judged(**stages: int) -> tuple[str, ...]:
        partition = {"a": 0, "b": 0, "c": 1, "d": 1}
        places = {name: ("none", partition[name], stage) for name, stage in stages.items()}
        return evaluate(place(graph, places, plan), graph, system, PLAIN).violations

    assert judged(a=0, b=1, c=1, d=0) == ()
    assert judged(a=1, b=0, c=0, d=0) == ("tensor a -> b goes back from stage 1 to stage 0",)
    (wrong,) = judged(a=0, b=0, c=0, d=1)
    assert wrong.startswith("tensor c -> d goes from stage 0 to stage 1")
    # From a backward kernel into a forward one (recomputation) the rule of the forward pass holds.
    back = graph.model_copy(update={"tensors": (Tensor(src="c", dst="a"),)})
    places = {"a": ("none", 0, 0), "b": ("none", 0, 1), "c": ("none", 1, 1), "d": ("none", 1, 0)}
    score = evaluate(place(back, places, plan), back, system, PLAIN)
    assert score.violations == ("tensor c -> a goes back from stage 1 to stage 0",)
    assert judged(a=0, b=1, c=0, d=0) == (
        "tensor b -> c goes back from stage 1 to stage 0",
        "kernel 'c' is in stage 0, but must be with 'b' in stage 1",
    )


def test_everything_that_does_not_fit_is_told_at_once() -> None:
    graph = closed(name="g", kernels=(gemm("left", 4, 8, 16), gemm("right", 4, 8, 16), gemm("up", 4, 8, 16)))
    mapping = Mapping(
        graph="mine.yaml",
        system="toy",
        plan=Plan(tp=2, tp_dims=("x",)),
        kernels=(
            KernelMapping(name="left", sharding="n", partition=0),
            KernelMapping(name="rigth", sharding="m", partition=0),
            KernelMapping(name="up", sharding="m", partition=0, stage=1),
        ),
    )
    with pytest.raises(DocumentError) as caught:
        evaluate(mapping, graph, machine(ring("x", 2)), PLAIN)
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
    assert evaluate(place(graph, {"a": ("m", 0)}, good), graph, system, PLAIN).violations == ()
    plan = good.model_copy(update=changes)
    with pytest.raises(PlanError) as caught:
        evaluate(place(graph, {"a": ("m", 0)}, plan), graph, system, PLAIN)
    assert all(text in str(caught.value) for text in wanted), str(caught.value)
    assert len(str(caught.value).splitlines()) == len(wanted) + 1
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_batch_that_cannot_be_shared_out_and_a_bad_kernel_in_one_message() -> None:
    graph = closed(name="g", batch=5, kernels=(gemm("a", 4, 8, 16),))
    plan = Plan(tp=2, dp=2, tp_dims=("x",), dp_dims=("y",))
    with pytest.raises(PlanError, match="multiple of microbatch x dp = 2") as caught:
        evaluate(place(graph, {"a": ("none", 0)}, plan), graph, machine(ring("x", 2), ring("y", 2)), PLAIN)
    assert "$.kernels[0].sharding" in str(caught.value)


def test_a_folded_layer_has_no_stages_to_choose() -> None:
    graph = closed(name="g", repeat=4, kernels=(gemm("a", 4, 8, 16),))
    plan = Plan(pp=2, pp_dims=("p",), layers_per_stage=2)
    with pytest.raises(DocumentError, match=r"\$\.kernels\[0\]\.stage"):
        evaluate(place(graph, {"a": ("none", 0, 1)}, plan), graph, machine(ring("p", 2)), PLAIN)


def test_the_cycle_model_needs_to_know_the_tiles() -> None:
    with pytest.raises(SystemSpecError, match=r"\$\.chip\.lanes"):
        evaluate(place(GRAPH, {"a": 0, "b": 0, "c": 1}), GRAPH, machine(), PLAIN.with_(compute_model="cycle"))


def test_the_efficiency_model_needs_a_table() -> None:
    with pytest.raises(SystemSpecError, match=r"\$\.chip\.efficiency: the key is missing.*compute_model: fixed"):
        evaluate(place(GRAPH, {"a": 0, "b": 0, "c": 1}), GRAPH, machine(), PLAIN.with_(compute_model="efficiency"))


def test_two_thousand_kernels_in_a_blink() -> None:
    kernels, tensors = [], []
    for i in range(500):
        names = [f"{op}{i}" for op in "gsmr"]
        kernels += [gemm(names[0], 64, 64, 64), simd(names[1], 64, 64)]
        kernels += [gemm(names[2], 64, 64, 64).model_copy(update={"op": "matmul"}), simd(names[3], 64, 64)]
        ends = [(0, 1), (0, 2), (1, 2), (2, 3), (0, 3)]
        tensors += [Tensor(src=names[a], dst=names[b]) for a, b in ends]
        if i:
            tensors.append(Tensor(src=f"r{i - 1}", dst=names[0]))
    graph = closed(name="deep", kernels=tuple(kernels), tensors=tuple(tensors))
    plan = Plan(tp=2, tp_dims=("x",))
    places = {k.name: ("m" if k.op == "gemm" else "none", i // 7) for i, k in enumerate(kernels)}
    mapping, system = place(graph, places, plan), machine(ring("x", 2))
    score = evaluate(mapping, graph, system, PLAIN)
    assert len(score.partitions) == 286


def test_the_judge_imports_only_documents_physics_and_errors() -> None:
    """Independence is the point: the judge must not share a table or a model with what it judges."""
    folder = Path(str(judge.__file__)).parent
    modules = set()
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0
                modules.add(str(node.module))
    ours = {".".join(name.split(".")[:2]) for name in modules if name.startswith("dfopt")}
    rooms = {"dfopt.documents", "dfopt.errors", "dfopt.judge", "dfopt.physics", "dfopt.technology"}
    assert ours == {*rooms, "dfopt.arrays"}  # types of arrays
    assert {name.split(".")[0] for name in modules} <= {*sys.stdlib_module_names, "dfopt", "numpy"}
