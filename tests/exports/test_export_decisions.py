"""What is read off a result: one solved step, changed by hand in one decision at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import dfopt as df
from dfopt.documents.architecture import Architecture
from dfopt.documents.dtypes import Dtypes
from dfopt.documents.mapping import Pause, TokenBlocks
from dfopt.documents.modules import Modules
from dfopt.documents.plan import Plan
from dfopt.exports.decisions import RunDecisions, decisions_of
from dfopt.exports.folder import export
from dfopt.exports.sizes import sizes_of
from dfopt.exports.tool import exported
from dfopt.exports.tools import TOOLS
from dfopt.frontends.megatron.shardings import megatron_shardings
from dfopt.workloads import load_graph


@pytest.fixture(scope="module")
def result() -> df.Result:
    """GPT-2 on eight chips, split as by Megatron-LM with sequence parallelism, kernel by kernel."""
    graph = load_graph("gpt2-small", mode="training", batch=8, microbatch=4)
    return df.optimize(
        graph, "a100-8", assumptions=df.Assumptions(execution="kernel_by_kernel"), tp=4, pp=1, interleave=1,
        pin_sharding=megatron_shardings(graph, 4, True), sensitivity=False,
    )  # fmt: skip


def decided(result: df.Result, **changes: Any) -> RunDecisions:
    return decisions_of(result.model_copy(update=changes), "r.json")


def test_what_a_plan_says(result: df.Result) -> None:
    found = decided(result)
    assert (found.tensor, found.pipeline, found.data, found.chips, found.zero) == (4, 1, 2, 8, 0)
    assert (found.microbatch, found.microbatches, found.batch) == (4, 1, 8)
    assert (found.sequence_parallel, found.recompute, found.one_attention, found.even) == (True, "none", False, True)
    assert "shardings" not in found.words and "partitions" not in found.words


def test_shardings_of_ones_own_are_listed(result: df.Result) -> None:
    graph, mapping = result.graph, result.mapping
    name = next(kernel.name for kernel in graph.kernels if kernel.role == "norm")
    kernels = tuple(k.model_copy(update={"sharding": "none"}) if k.name == name else k for k in mapping.kernels)
    found = decided(result, mapping=mapping.model_copy(update={"kernels": kernels}))
    assert found.sequence_parallel
    assert found.words["shardings"] == f"none, not n: {name}"
    whole = megatron_shardings(graph, 4, False)
    kernels = tuple(k.model_copy(update={"sharding": whole[k.name]}) for k in mapping.kernels)
    found = decided(result, mapping=mapping.model_copy(update={"kernels": kernels}))
    assert not found.sequence_parallel and "shardings" not in found.words


@pytest.mark.parametrize(
    ("schemes", "degrees", "listed"),
    [
        ({"stream": "n", "mixer": "n", "dense": "n"}, (1, 1, 4, 2), None),
        ({"stream": "n", "mixer": "n", "dense": "n", "experts": "outer"}, (1, 2, 4, 2), None),
        ({"stream": "context", "mixer": "context", "dense": "n"}, (2, 1, 2, 4), None),
        ({"stream": "context", "mixer": "context", "dense": "n", "experts": "outer"}, (2, 2, 2, 4), None),
        ({"stream": "n", "mixer": "n", "dense": "n", "experts": "m"}, (1, 1, 4, 2), "experts: m"),
        ({"stream": "context", "mixer": "context", "dense": "m", "ends": "m"}, (2, 1, 2, 4), "dense: m; ends: m"),
        ({"stream": "none", "mixer": "outer"}, (1, 1, 2, 4), "none: stream; outer: mixer"),
        ({"stream": "n", "mixer": "outer"}, (1, 1, 2, 4), "n: stream; outer: mixer"),
    ],
)
def test_schemes_of_modules_are_context_and_expert_parallelism(
    result: df.Result, schemes: dict[str, Any], degrees: tuple[int, int, int, int], listed: str | None
) -> None:
    """Degrees of context, expert and data parallelism, and the microbatch of each copy."""
    found = decided(result, plan=Plan(tp=4, mp=2, dp=2, modules=Modules(**schemes)))
    assert (found.context, found.expert, found.data, found.microbatch) == degrees
    assert found.words.get("second axis") == listed
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
    found = decided(result, plan=Plan(tp=4, **fields)).words.get(name)
    assert found is told if told is None else found is not None and found.startswith(told)


def test_partitions_that_read_weights_again_are_counted(result: df.Result) -> None:
    blocks = (TokenBlocks(partition=0, blocks=4),)
    found = decided(result, mapping=result.mapping.model_copy(update={"token_blocks": blocks}))
    count = len({kernel.partition for kernel in result.mapping.kernels})
    assert found.words["partitions"] == f"1 of {count} read their weights again for each block of tokens"


def test_pauses_and_orders_of_the_pipeline_are_listed(result: df.Result) -> None:
    paused = result.mapping.model_copy(update={"pauses": (Pause(time=1e-3),)})
    assert "clocks" in decided(result, mapping=paused).words
    gpipe = result.assumptions.with_(schedule="gpipe")
    assert "schedule" not in decided(result, assumptions=gpipe).words
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


def exported_of(name: str, decided_here: RunDecisions, tool: str = "megatron", **changes: Any) -> dict[str, Any]:
    """Arguments of a model of the zoo, solved in the same way."""
    graph = load_graph(name, mode="training")
    fields = {"sizes": sizes_of(graph), "architecture": graph.architecture or Architecture(), "words": {}}
    return dict(exported(TOOLS[tool], replace(decided_here, **fields | changes)).arguments)


def test_what_a_graph_knows_of_a_model_is_written(result: df.Result) -> None:
    found = exported_of("llama-3.1-70b", decided(result))
    expected = {
        "normalization": "RMSNorm", "disable-bias-linear": True, "untie-embeddings-and-output-weights": True,
        "rotary-base": 500000, "use-rope-scaling": True, "rope-scaling-factor": 8.0, "swiglu": True,
    }  # fmt: skip
    assert expected.items() <= found.items()
    assert exported_of("qwen3-235b-a22b", decided(result))["qk-layernorm"] is True
    qwen = exported_of("qwen2.5-7b", decided(result))
    assert qwen["add-qkv-bias"] is qwen["disable-bias-linear"] is True
    nemo = exported_of("llama-3.1-70b", decided(result), "nemo")
    assert (nemo["model.normalization"], nemo["model.rotary_base"]) == ("RMSNorm", 500000)
    assert nemo["model.add_bias_linear"] is nemo["model.share_embeddings_and_output_weights"] is False


def test_what_a_graph_does_not_know_is_said(result: df.Result) -> None:
    """DFModel's layers draw LayerNorm, and say nothing of biases."""
    told = decided(result).words["norms and biases"]
    assert told == "not in the graph: biases, tied embeddings, norms of queries and keys"


@pytest.mark.parametrize(("vocab", "tensor", "rows"), [(50257, 8, 51200), (50257, 1, 50304), (128256, 2, 128256)])
def test_a_vocabulary_is_written_as_it_is_padded(vocab: int, tensor: int, rows: int, result: df.Result) -> None:
    graph = load_graph("llama-3.1-70b", mode="training", vocab=vocab)
    taken = replace(decided(result), sizes=sizes_of(graph), tensor=tensor)
    for tool, option in (("megatron", "vocab-size"), ("nemo", "model.vocab_size")):
        made = exported(TOOLS[tool], taken)
        assert made.arguments[option] == rows
        assert ("vocabulary" in made.left_out) == (rows != vocab)


@pytest.mark.parametrize(
    ("tool", "changes", "sizes", "names"),
    [
        ("megatron", {"pipeline": 4, "layers_per_stage": 3}, {}, set()),
        ("megatron", {"pipeline": 8, "virtual": 4, "even": False, "microbatches": 8}, {"layers": 28}, {"num-layers"}),
        ("megatron", {"pipeline": 8, "virtual": 2, "even": False, "microbatches": 8}, {"layers": 94}, {"num-layers"}),
        ("nemo", {"pipeline": 8, "virtual": 2, "even": False, "microbatches": 8}, {"layers": 94}, {"num-layers"}),
        ("megatron", {"pipeline": 4, "virtual": 3, "layers_per_stage": 3, "microbatches": 6, "sends_behind": True}, {},
         {"global-batch-size"}),
        ("megatron", {"tensor": 8}, {}, {"num-attention-heads"}),
        ("megatron", {"tensor": 4, "sequence_parallel": False}, {"experts": 8}, {"num-experts"}),
        ("deepspeed", {"pipeline": 2, "zero": 2}, {}, {"zero_optimization.stage"}),
        ("deepspeed", {"pipeline": 2, "zero": 1}, {}, set()),
        ("torchtitan", {"context": 3}, {}, {"training.seq_len"}),
        ("torchtitan", {"tensor": 4, "context": 2}, {}, set()),
        ("torchtitan", {"pipeline": 8, "virtual": 4, "even": False}, {"layers": 28}, set()),
        ("torchtitan", {"pipeline": 16, "virtual": 4, "even": False}, {"layers": 28},
         {"parallelism.pipeline_parallel_degree"}),
    ],
)  # fmt: skip
def test_what_would_not_start_is_an_error(
    tool: str, changes: dict[str, Any], sizes: dict[str, Any], names: set[str], result: df.Result
) -> None:
    before = decided(result)
    assert before.sizes is not None
    taken = replace(before, **{"pipeline": 1, "sizes": replace(before.sizes, **sizes)} | changes)
    assert {issue.where.removeprefix("$.") for issue in TOOLS[tool].refuses(taken)} == names


def test_chunks_that_torchtitan_cannot_be_told_are_listed(result: df.Result) -> None:
    """It makes two chunks of every stage where no layers are given; and an end has at most a chunk less."""
    titan, whole = TOOLS["torchtitan"], replace(decided(result), pipeline=8, layers_per_stage=4, even=True)
    uneven = replace(whole, even=False, stages=(3, 4, 3))
    assert "virtual stages" in exported(titan, replace(uneven, virtual=4)).left_out
    assert "virtual stages" not in exported(titan, replace(uneven, virtual=2)).left_out
    assert "stages" not in exported(titan, replace(whole, virtual=4, stages=(3, 4, 4))).left_out
    assert "stages" in exported(titan, replace(whole, virtual=4, stages=(2, 4, 4))).left_out


def test_a_tool_that_would_not_start_is_named(result: df.Result) -> None:
    changed = result.model_copy(update={"plan": Plan(tp=4, pp=5, layers_per_stage=3)})
    with pytest.raises(df.DocumentError, match=r"Megatron-LM would not start: num-layers: found 12 of 12 on 5 stages"):
        export(changed, "megatron", "r.json")
    assert export(changed, "torchtitan").arguments


def test_lines_begin_with_what_weighs_most(result: df.Result) -> None:
    lines = export(result, "megatron").lines
    headings = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["of what is trained:", "of what a step costs:", "left to the tool:"]
    assert lines.index("left to the tool:") < next(i for i, line in enumerate(lines) if "network dims" in line)
