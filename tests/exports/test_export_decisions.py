"""What is read off a result: one solved step, changed by hand in one decision at a time."""

from __future__ import annotations

from typing import Any

import pytest

import dfopt as df
from dfopt.documents.dtypes import Dtypes
from dfopt.documents.mapping import Pause
from dfopt.documents.modules import Modules
from dfopt.documents.plan import Plan
from dfopt.exports.decisions import Decisions, decisions_of
from dfopt.exports.folder import export
from dfopt.frontends.megatron import megatron_shardings
from dfopt.workloads import load_graph


@pytest.fixture(scope="module")
def result() -> df.Result:
    """GPT-2 on eight chips, split as by Megatron-LM with sequence parallelism, kernel by kernel."""
    graph = load_graph("gpt2-small", mode="training", batch=8, microbatch=4)
    return df.optimize(
        graph, "a100-8", assumptions=df.Assumptions(execution="kernel_by_kernel"), tp=4, pp=1, interleave=1,
        pin_sharding=megatron_shardings(graph, 4, True), sensitivity=False,
    )  # fmt: skip


def decided(result: df.Result, **changes: Any) -> Decisions:
    return decisions_of(result.model_copy(update=changes), "r.json")


def test_what_a_plan_says(result: df.Result) -> None:
    found = decided(result)
    assert (found.tensor, found.pipeline, found.data, found.chips, found.zero) == (4, 1, 2, 8, 0)
    assert (found.microbatch, found.microbatches, found.batch) == (4, 1, 8)
    assert (found.sequence_parallel, found.recompute, found.one_attention, found.even) == (True, "none", False, True)
    assert "shardings" not in found.said and "partitions" not in found.said


def test_shardings_of_ones_own_are_listed(result: df.Result) -> None:
    graph, mapping = result.graph, result.mapping
    name = next(kernel.name for kernel in graph.kernels if kernel.role == "norm")
    kernels = tuple(k.model_copy(update={"sharding": "none"}) if k.name == name else k for k in mapping.kernels)
    found = decided(result, mapping=mapping.model_copy(update={"kernels": kernels}))
    assert found.sequence_parallel
    assert found.said["shardings"] == f"none, not n: {name}"
    whole = megatron_shardings(graph, 4, False)
    kernels = tuple(k.model_copy(update={"sharding": whole[k.name]}) for k in mapping.kernels)
    found = decided(result, mapping=mapping.model_copy(update={"kernels": kernels}))
    assert not found.sequence_parallel and "shardings" not in found.said


@pytest.mark.parametrize(
    ("schemes", "context", "expert", "data", "microbatch", "listed"),
    [
        ({"stream": "n", "mixer": "n", "dense": "n"}, 1, 1, 4, 2, None),
        ({"stream": "n", "mixer": "n", "dense": "n", "experts": "outer"}, 1, 2, 4, 2, None),
        ({"stream": "context", "mixer": "context", "dense": "n"}, 2, 1, 2, 4, None),
        ({"stream": "context", "mixer": "context", "dense": "n", "experts": "outer"}, 2, 2, 2, 4, None),
        ({"stream": "n", "mixer": "n", "dense": "n", "experts": "m"}, 1, 1, 4, 2, "experts: m"),
        ({"stream": "context", "mixer": "context", "dense": "m", "ends": "m"}, 2, 1, 2, 4, "dense: m; ends: m"),
        ({"stream": "none", "mixer": "outer"}, 1, 1, 2, 4, "none: stream; outer: mixer"),
        ({"stream": "n", "mixer": "outer"}, 1, 1, 2, 4, "n: stream; outer: mixer"),
    ],
)
def test_schemes_of_modules_are_context_and_expert_parallelism(
    result: df.Result,
    schemes: dict[str, Any],
    context: int,
    expert: int,
    data: int,
    microbatch: int,
    listed: str | None,
) -> None:
    plan = Plan(tp=4, mp=2, dp=2, modules=Modules(**schemes))
    found = decided(result, plan=plan)
    assert (found.context, found.expert, found.data, found.microbatch) == (context, expert, data, microbatch)
    assert found.said.get("second axis") == listed
    assert found.chips == 16


@pytest.mark.parametrize(
    ("fields", "name", "told"),
    [
        ({"two_batch_overlap": True}, "two microbatches at once", "yes"),
        ({"pp": 3, "layers_per_stage": 5, "first_layers": 4, "last_layers": 3}, "stages", "4 in the first, 5 in each"),
        ({"pp": 5, "layers_per_stage": 3}, "stages", "at most 3 in each, fewer in some"),
        ({"pp": 4, "layers_per_stage": 3}, "stages", None),
        ({"dp": 2, "zero": 3}, "zero", "3"),
    ],
)
def test_what_else_a_plan_says(result: df.Result, fields: dict[str, Any], name: str, told: str | None) -> None:
    found = decided(result, plan=Plan(tp=4, **fields)).said.get(name)
    assert found is told if told is None else found is not None and found.startswith(told)


def test_pauses_and_orders_of_the_pipeline_are_listed(result: df.Result) -> None:
    paused = result.mapping.model_copy(update={"pauses": (Pause(time=1e-3),)})
    assert "clocks" in decided(result, mapping=paused).said
    gpipe = result.assumptions.with_(schedule="gpipe")
    assert "schedule" not in decided(result, assumptions=gpipe).said
    staged = {"plan": Plan(tp=4, pp=2, layers_per_stage=6), "assumptions": gpipe}
    assert decided(result, **staged).gpipe
    changed = result.model_copy(update=staged)
    assert "schedule" in export(changed, "megatron").left_out
    assert export(changed, "torchtitan").arguments["parallelism.pipeline_parallel_schedule"] == "GPipe"


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (None, {"bf16", "grad-reduce-in-bf16"}),
        (Dtypes(), {"bf16", "grad-reduce-in-bf16"}),
        (Dtypes(weights="fp16", activations="fp16"), {"fp16"}),
        (Dtypes(weights="fp32", activations="fp32"), set()),
        (Dtypes(operands="mxfp8", saved="mxfp8"), {"bf16", "grad-reduce-in-bf16", "fp8-format", "fp8-recipe"}),
        (Dtypes(operands="mxfp8"), None),  # it keeps what products take
        (Dtypes(weights="fp8"), None),
        (Dtypes(operands="int8"), None),
    ],
)
def test_types(result: df.Result, types: Dtypes | None, expected: set[str] | None) -> None:
    graph = result.graph.model_copy(update={"dtypes": types})
    made = export(result.model_copy(update={"graph": graph}), "megatron")
    if expected is None:
        assert "precision" in made.left_out
    else:
        usual = {"fp16", "bf16", "grad-reduce-in-bf16", "fp8-format", "fp8-recipe"}
        assert "precision" not in made.left_out and usual & made.arguments.keys() == expected


@pytest.mark.parametrize("recompute", ["none", "attention", "full", "full+attention"])
def test_recomputation_is_that_of_the_graph(result: df.Result, recompute: str) -> None:
    graph = load_graph("gpt2-small", mode="training", recompute=recompute)
    assert decided(result, graph=result.graph.model_copy(update={"variant": graph.variant})).recompute == recompute
