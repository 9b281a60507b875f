"""Exports against each tool's own options, and round trips through Megatron-LM's arguments."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, get_args, get_origin

import pytest
from graph_parts import RECOMPUTES
from hypothesis import given, settings
from hypothesis import strategies as st

import dfopt as df
from dfopt.documents.architecture import Architecture
from dfopt.documents.placement import TRAINED
from dfopt.documents.strict_yaml import load_strict
from dfopt.exports.decisions import NAMES, RunDecisions, decisions_of
from dfopt.exports.megatron import FP8
from dfopt.exports.nested import nested
from dfopt.exports.sizes import ModelSizes, Unlike, sizes_of
from dfopt.exports.tool import Lacks, exported
from dfopt.exports.tools import TOOLS
from dfopt.frontends.megatron.arguments import Arguments
from dfopt.frontends.megatron.launch_files import FLAGS, REFUSED, UNPRICED, VALUES, option
from dfopt.frontends.megatron.shardings import megatron_shardings
from dfopt.frontends.megatron.training_run import load_run
from dfopt.workloads import load_graph

GOLDEN = Path(__file__).parents[1] / "golden/exports"
OPTIONS: dict[str, dict[str, str]] = {tool: load_strict(GOLDEN / f"{tool}.yaml")["options"] for tool in TOOLS}
SOME = ("full/none", "full/attention", "full+attention/attention")
AGAIN = (*RECOMPUTES, *SOME, "layernorm", "layernorm+attention")
BY_KERNEL = df.Assumptions(execution="kernel_by_kernel", memory_reserve=0)
KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,), "float": (int, float), "bool": (bool,), "flag": (bool,), "str": (str,), "list": (list,),
}  # fmt: skip


@st.composite
def sizes(draw: st.DrawFn) -> ModelSizes:
    """Sizes of a model."""
    groups, each = draw(st.sampled_from([1, 2, 8])), draw(st.sampled_from([1, 4]))
    experts = draw(st.sampled_from([None, 8, 64]))
    return ModelSizes(
        layers=draw(st.sampled_from([48, 96])),
        hidden=draw(st.integers(1, 64)) * groups * each,
        heads=groups * each,
        kv_heads=groups,
        head_dim=draw(st.integers(1, 128)),
        ffn=8 * draw(st.integers(1, 512)),
        seq=32 * draw(st.integers(1, 512)),
        gated=draw(st.booleans()),
        rotary=draw(st.booleans()),
        attention_dropout=draw(st.booleans()),
        hidden_dropout=draw(st.booleans()),
        vocab=draw(st.sampled_from([None, 1000])),
        experts=experts,
        chosen=1 if experts is None else draw(st.integers(1, 4)),
    )


def architectures() -> st.SearchStrategy[Architecture]:
    """What a graph may know of a model."""
    fields = {
        "norm": st.sampled_from([None, "rmsnorm", "layernorm"]),
        "bias": st.sampled_from([None, "none", "qkv", "all"]),
        "tied_embeddings": st.sampled_from([None, True, False]),
        "qk_norm": st.sampled_from([None, "none", "head", "all"]),
        "rotary_base": st.sampled_from([None, 10000.0, 5e5]),
        "rotary_scaling": st.sampled_from([None, 8.0]),
    }
    return st.builds(Architecture, **fields)


@st.composite
def decisions(draw: st.DrawFn) -> RunDecisions:
    """Any decisions, also those that no tool expresses."""
    model = draw(sizes())
    data, micro, count = draw(st.sampled_from([1, 8])), draw(st.integers(1, 4)), draw(st.integers(1, 8))
    pipeline = draw(st.sampled_from([1, 4, 8]))
    tensor = draw(st.sampled_from([size for size in (1, 2, 8) if model.heads % size == 0]))
    first, last = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    weights = draw(st.sampled_from(["bf16", "fp16", "fp32", ""]))
    axis = draw(st.sampled_from(["none", "context", "expert"]))
    virtual, again = draw(st.sampled_from([1, 2])) if pipeline > 1 else 1, draw(st.sampled_from(AGAIN))
    zero = draw(st.integers(0, 3))
    expert = 8 if axis == "expert" and model.experts else 1
    context = 4 if axis == "context" else 1
    return RunDecisions(
        architecture=draw(architectures()),
        sizes=draw(st.sampled_from([model, model, None])),
        chips=tensor * pipeline * data * max(context, expert),
        tensor=tensor,
        sequence_parallel=tensor > 1 and draw(st.booleans()),
        tensor_overlap=tensor > 1 and draw(st.booleans()),
        gradient_overlap=draw(st.booleans()),
        parameter_overlap=zero == 1 and draw(st.booleans()),
        sends_behind=pipeline > 1 and draw(st.booleans()),
        sends_in_parts=pipeline > 1 and draw(st.booleans()),
        pipeline=pipeline,
        virtual=virtual,
        layers_per_stage=model.layers // pipeline,
        stages=(first, 6, last) if pipeline > 1 and draw(st.booleans()) else None,
        even=draw(st.booleans()),
        data=data * expert,
        context=context,
        expert=expert,
        microbatch=micro,
        microbatches=count,
        batch=micro * count * data * expert,
        gpipe=draw(st.booleans()),
        recompute=again,
        every=1,
        recomputed=virtual * draw(st.integers(1, model.layers // pipeline // virtual - 1)) if again in SOME else 0,
        one_attention=draw(st.booleans()),
        zero=zero,
        away=tuple(draw(st.sets(st.sampled_from(TRAINED)))),
        replicas=draw(st.sampled_from([1, 2, 4])) if zero and data > 1 else 1,
        weights=weights,
        operands=draw(st.sampled_from([weights, "fp8", "mxfp8", "fp8_1x128", "nvfp4"])),
        saved=draw(st.sampled_from(["", "fp8", "mxfp8"])),
        products=draw(st.sampled_from(["", "tf32"])),
        held=draw(st.sampled_from(["fp32", "bf16", "fp16"])),
        reduced=draw(st.sampled_from(["fp32", "bf16", "fp16", "fp8"])),
        main_weights=draw(st.sampled_from(["", "fp32", "bf16", "fp16"])),
        moments=draw(st.sampled_from(["", "fp32", "bf16", "fp8"])),
        words=draw(st.dictionaries(st.sampled_from(list(NAMES)), st.just("so"))),
    )


def misfits(tool: str, arguments: Mapping[str, Any]) -> list[str]:
    """Arguments that a tool does not have, or whose values it cannot have."""
    wrong = []
    for name, value in arguments.items():
        kind = OPTIONS[tool].get(name)
        several = value if isinstance(value, list) else [value]
        if kind is None:
            wrong.append(f"{name} is no option")
        elif "|" in kind or kind not in (*KINDS, "other"):  # words, or one
            wrong += [f"{name} {one}" for one in several if str(one) not in kind.split("|")]
        elif kind != "other" and (
            not isinstance(value, KINDS[kind]) or (isinstance(value, bool) and kind not in ("bool", "flag"))
        ):
            wrong.append(f"{name} {value!r} is no {kind}")
    return wrong


@pytest.mark.parametrize(
    ("zero", "away", "said", "left"),
    [
        (1, ("optimizer", "gradients"), {"offload_optimizer": {"device": "cpu"}}, ""),
        (1, ("weights", "optimizer"), {"offload_optimizer": {"device": "cpu"}}, "no weights in another memory under"),
        (3, ("weights",), {"offload_param": {"device": "cpu"}}, ""),
        (0, ("optimizer", "activations"), {}, "no optimizer, activations in another memory under ZeRO-0"),
    ],
)
def test_what_lies_in_the_memory_of_the_host(zero: int, away: tuple[str, ...], said: Any, left: str) -> None:
    """Of DeepSpeed's arguments, by its levels of ZeRO."""
    found = TOOLS["deepspeed"].says["placement"](SimpleNamespace(zero=zero, away=away))
    told = dict(found.arguments or {}) if isinstance(found, Lacks) else found
    assert nested(told).get("zero_optimization", {}) == said
    assert left in (found.why if isinstance(found, Lacks) else "")


@pytest.mark.parametrize("tool", TOOLS)
@given(decisions())
@settings(max_examples=25)
def test_every_argument_is_one_of_the_tool(tool: str, taken: RunDecisions) -> None:
    made = exported(TOOLS[tool], taken)
    assert not misfits(tool, made.arguments)
    assert set(TOOLS[tool].says) <= set(NAMES)
    # what is decided and has no entry is listed
    assert {name for name in taken.words if name not in TOOLS[tool].says} <= set(made.left_out)


def test_the_check_sees_wrong_arguments() -> None:
    wrong = {"tensor-parallel-size": 8, "num-layers": "96", "recompute-granularity": "some", "swiglu": 1}
    assert len(misfits("megatron", wrong)) == 4


@given(decisions())
@settings(max_examples=20)
def test_files_say_the_arguments(taken: RunDecisions) -> None:
    texts = {name: tool.write(exported(tool, taken).arguments, "first") for name, tool in TOOLS.items()}
    assert json.loads(texts["deepspeed"]) == nested(exported(TOOLS["deepspeed"], taken).arguments)
    assert tomllib.loads(texts["torchtitan"]) == nested(exported(TOOLS["torchtitan"], taken).arguments)
    assert load_strict(texts["nemo"]) == nested(exported(TOOLS["nemo"], taken).arguments)


def test_what_is_read_are_options_of_megatron() -> None:
    for name, field in Arguments.model_fields.items():
        kind = OPTIONS["megatron"][option(name).removeprefix("--")]
        parts = [field.annotation, *get_args(field.annotation)]
        words = {str(word) for part in parts if get_origin(part) is Literal for word in get_args(part)}
        if "|" in kind:
            assert words <= set(kind.split("|")), name
            assert name == "recompute_modules" or len(set(kind.split("|")) - words) <= 1, name
        else:
            assert (kind == "flag") == (field.annotation is bool), name
    groups = [{option(name).removeprefix("--") for name in Arguments.model_fields}, FLAGS, VALUES, UNPRICED, REFUSED]
    assert OPTIONS["megatron"].keys() <= set().union(*groups)
    assert len(set().union(*groups)) == sum(map(len, groups))  # each in one of them
    flags = {name for name, kind in OPTIONS["megatron"].items() if kind == "flag"}
    assert flags & VALUES == set() == (OPTIONS["megatron"].keys() - flags) & FLAGS


@given(decisions())
@settings(max_examples=20, deadline=None)
def test_megatron_reads_back_what_was_exported(tmp_path_factory: pytest.TempPathFactory, taken: RunDecisions) -> None:
    """Whatever the arguments can say comes back, as far as importing knows it: sizes, degrees, schedule, sharding."""
    model = taken.sizes
    if model is None:
        return
    if taken.context > 1 and taken.expert > 1:
        return
    weights = taken.weights or "bf16"
    if model.experts is not None:  # which that tool has in bf16 alone, and never whole on tensor-parallel chips
        weights, taken = "bf16", replace(taken, sequence_parallel=taken.tensor > 1)
    operands = taken.operands if weights == "bf16" and taken.operands != "nvfp4" else weights
    stages = (taken.layers_per_stage - 1, taken.layers_per_stage, taken.layers_per_stage - 1)
    uneven = taken.stages is not None and model.vocab is not None
    if uneven:  # then the model has two layers less than stages of one size
        model = replace(model, layers=model.layers - 2)
    behind = taken.parameter_overlap and taken.gradient_overlap
    taken = replace(
        taken,
        parameter_overlap=behind,
        sizes=model,
        weights=weights,
        operands=operands,
        stages=stages if uneven else None,
        even=True,
    )
    path = tmp_path_factory.mktemp("run") / "run.args"
    path.write_text(TOOLS["megatron"].write(exported(TOOLS["megatron"], taken).arguments, "first"))
    run = load_run(path)
    axis = max(taken.context, taken.expert)
    assert run.pins.on_axes == {"tp": taken.tensor, "pp": taken.pipeline, "mp": axis}
    assert run.fixed["interleave"] == taken.virtual
    assert (run.fixed.get("first_layers"), run.fixed.get("last_layers")) == (
        (stages[0], stages[2]) if uneven else (None,) * 2
    )
    assert run.fixed["zero"] == (taken.zero,)
    assert run.fixed["gradient_overlap"] == ("backward" if taken.gradient_overlap else "none")
    gathers = ("forward" if taken.parameter_overlap else "none") if taken.gradient_overlap and taken.zero else None
    assert run.fixed.get("parameter_overlap") == gathers
    sends = None if taken.virtual == 1 else "interleaved" if taken.sends_behind else "none"
    assert run.fixed.get("point_to_point_overlap") == sends
    if taken.tensor > 1:
        assert run.fixed.get("sequence_parallelism") == (
            "force" if taken.sequence_parallel and model.experts is None else None
        )
        hidden = taken.tensor_overlap and taken.sequence_parallel
        assert run.fixed["tensor_overlap"] == ("ring" if hidden else "none")
    assert run.fixed.get("zero_replicas", (1,)) == (taken.replicas,)
    assert run.graph.batch == taken.batch
    assert run.graph.microbatch == taken.microbatch * taken.expert
    expected = {("none", True): "none", ("full+attention", False): "full", ("full", True): "full"}
    again = expected.get((taken.recompute, taken.one_attention), taken.recompute)
    if taken.recompute in SOME:
        fused = taken.one_attention and taken.recompute != "full/none"
        again = "full+attention/attention" if fused else "full/none"
    assert run.fixed.get("recomputed", 0) == taken.recomputed
    assert run.recipe["parameters"]["recompute"] == again
    assert run.graph.words.weights == {"bf16": 2, "fp16": 2, "fp32": 4}[weights]
    told = run.graph.trained.reduced if run.graph.trained is not None else None
    if taken.held == taken.reduced and taken.held in ("fp32", weights):
        assert (run.graph.main_gradients, told or weights) == (taken.held, taken.reduced)
    if operands in FP8 and weights == "bf16":
        types = run.graph.dtypes
        assert types is not None and types.operands == types.saved == operands
    each = 128 * taken.tensor
    assert sizes_of(run.graph) == replace(model, vocab=model.vocab and -(-model.vocab // each) * each)


@pytest.mark.parametrize(
    ("name", "more", "by_tokens"),
    [("gpt3-175b", {}, True), ("llama-3.1-8b", {"ends": False}, False), ("mixtral-8x7b", {"ends": False}, True)],
)
def test_shardings_send_what_megatron_sends(name: str, more: dict[str, bool], by_tokens: bool) -> None:
    """Two all-reduces in the forward pass of a layer, or two reduce-scatters and two gathers (Korthikanti et al.)."""
    graph = load_graph(name, mode="training", batch=64, **more)
    pins = megatron_shardings(graph, 8, by_tokens)
    assert set(pins) == set(graph.index())
    found = df.optimize(
        graph, "a100-512", assumptions=BY_KERNEL, tp=8, tp_dims=("node",), pp=8, pp_dims=("cluster[8]",), dp=8,
        dp_dims=("cluster[8@8]",),
        interleave=1, pin_sharding=pins, sensitivity=False,
    )  # fmt: skip
    sent = {kind: count for kind, count in found.score.collectives.items() if kind.endswith(".forward")}
    usual = {"reduce_scatter": 2, "all_gather": 2} if by_tokens else {"all_reduce": 2}
    assert sent == {f"{kind}.forward": count for kind, count in usual.items()}


def test_a_graph_of_unlike_layers_has_no_sizes() -> None:
    with pytest.raises(Unlike, match="latent attention"):
        sizes_of(load_graph("deepseek-v3", mode="training"))
    with pytest.raises(Unlike, match="no attention"):
        sizes_of(load_graph("hpl-5m"))


def test_layers_behind_a_checkpoint_go_to_megatron_and_come_back(tmp_path: Path) -> None:
    sizes = "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --vocab-size 512 --swiglu --bf16"
    run = "--micro-batch-size 1 --global-batch-size 16 --pipeline-model-parallel-size 2 --attention-backend flash"
    again = "--recompute-granularity full --recompute-method uniform --recompute-num-layers"
    path = tmp_path / "run.args"
    path.write_text(f"{sizes} {run} {again} 2\n", encoding="utf-8")
    read = load_run(path)
    assert (read.graph.repeat, read.graph.variant) == (4, "recompute: full+attention, every 2 layers")
    pins = {"pin_sharding": read.pins.sharding, "tp": 1, "pp": 2, "dp": 4, "interleave": 1}
    found = df.optimize(read.graph, "h100-8", assumptions="ideal", sensitivity=False, gap=1.0, **pins)
    made = exported(TOOLS["megatron"], decisions_of(found, "r"))
    assert "recomputation" not in made.left_out
    path.write_text(TOOLS["megatron"].write(made.arguments, "first"), encoding="utf-8")
    back = load_run(path)
    assert (back.graph.repeat, back.graph.variant) == (read.graph.repeat, read.graph.variant)
    path.write_text(f"{sizes} {run} {again} 3\n", encoding="utf-8")
    with pytest.raises(df.DocumentError, match="3 layers behind a checkpoint, where chunks of stages have 4 at most"):
        load_run(path)
