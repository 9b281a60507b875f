"""Types of builders: bf16 is two bytes, and what is kept, held and handed on has the bytes of its class."""

from __future__ import annotations

from typing import Any

import pytest
from graph_parts import by_name

from dfopt.documents.dtypes import Dtypes
from dfopt.documents.graph import Graph, Kernel
from dfopt.errors import DocumentError
from dfopt.workloads import WORKLOADS, expand, load_graph
from dfopt.workloads.backward import backward_of

SIZES: dict[str, Any] = {"hidden": 32, "heads": 4, "kv_heads": 2, "head_dim": 16, "ffn": 64, "vocab": 100, "seq": 8}
SIZES |= {"layers": 2, "microbatch": 3}
GPT: dict[str, Any] = {"hidden": 32, "heads": 4, "head_dim": 8, "seq": 16, "layers": 2}
SERVING: list[dict[str, Any]] = [{"phase": "decode", "context": 40}, {"phase": "prefill", "hit": 3}]
MIXTURE = {"experts": 4, "chosen": 2}
LINEAR = {"kind": "gated_delta_net", "key_heads": 2, "value_heads": 4, "key_dim": 8, "value_dim": 4}


@pytest.mark.parametrize(
    "workload, parameters",
    [
        *(("decoder", SIZES | more) for more in (*SERVING, {"mode": "training", "ends": True}, SERVING[0] | MIXTURE)),
        *(("transformer", GPT | {"mode": mode}) for mode in ("forward", "training")),
    ],
)
def test_bf16_throughout_draws_what_two_bytes_draw(workload: str, parameters: dict[str, Any]) -> None:
    words, typed = (WORKLOADS[workload](**parameters, **more) for more in ({}, {"dtypes": Dtypes()}))
    assert typed.dtypes == Dtypes() and words.dtypes is None
    kernels = tuple(kernel.model_copy(update={"output_class": None}) for kernel in typed.kernels)
    assert typed.model_copy(update={"dtypes": None, "kernels": kernels}) == words
    assert [k.name for k in typed.kernels if k.output_class] == [k.name for k in words.kernels if k.name == "Logits"]


@pytest.mark.parametrize("kv, bits", [("bf16", 16), ("fp8", 8), ("nvfp4", 4.5), ("fp8_1x128", 8.25)])
def test_cached_bytes_follow_kv(kv: str, bits: float) -> None:
    graph = WORKLOADS["decoder"](**SIZES, **SERVING[0], dtypes={"kv": kv})
    states = [state for kernel in graph.kernels for state in kernel.states or ()]
    assert [state.bytes_per_token for state in states] == [2 * 16 * bits / 8] * 2
    assert all(isinstance(state.bytes_per_token, int) for state in states)


def test_bytes_that_are_no_whole_number_are_rounded_up() -> None:
    graph = WORKLOADS["decoder"](**SIZES | {"head_dim": 3, "kv_heads": 1}, **SERVING[0], dtypes={"kv": "mxfp4"})
    assert {state.bytes_per_token for k in graph.kernels for state in k.states or ()} == {2}  # 3 x 17/32 of a byte


def test_tables_and_ends_have_the_types_of_their_classes() -> None:
    types = {"weights": "fp4", "ends": "fp8", "activations": "fp32", "logits": "fp16"}
    graph = by_name(made := WORKLOADS["decoder"](**SIZES, **SERVING[0], dtypes=types))
    tokens = 3
    assert graph["Embedding"].resident_bytes == 100 * 32 * 1
    assert graph["Embedding"].dram_bytes == tokens * 32 * 1 + tokens * 32 * 4  # a row for each token, and what it gives
    assert made.words.of_weight(graph["Logits"]) == 1 and made.words.of_weight(graph["Up_Proj"]) == 0.5
    assert graph["Logits"].output_class == "logits" and made.output_bytes("Logits") == tokens * 100 * 2


def test_gradients_of_tables_are_activations_and_those_of_logits_are_no_logits() -> None:
    types = {"weights": "fp8", "activations": "bf16", "logits": "fp32"}
    made = WORKLOADS["decoder"](**SIZES, mode="training", ends=True, dtypes=types)
    graph = by_name(made)
    assert graph["Embedding_bwd"].resident_bytes == 2 * graph["Embedding"].resident_bytes
    assert [name for name, kernel in graph.items() if kernel.output_class] == ["Logits"]
    assert made.output_bytes("Loss") == made.output_bytes("Logits") / 2


def test_a_backward_pass_keeps_no_class_of_an_output() -> None:
    gemm = Kernel(name="head", op="gemm", m=8, k=4, n=16, output_class="logits")
    loss = Kernel(name="loss", op="elementwise", m=8, n=16)
    graph = Graph(name="g", kernels=(gemm, loss), tensors=({"src": "head", "dst": "loss"},), dtypes={"logits": "fp32"})
    trained = backward_of(graph)
    assert [kernel.output_class for kernel in trained.kernels] == ["logits", *[None] * (len(trained.kernels) - 1)]


def test_a_recurrent_state_has_its_own_size_unless_a_type_is_stated() -> None:
    layer = {"mixer": LINEAR, "feed_forward": {"kind": "mlp", "ffn": 32}}
    fixed = {"hidden": 16, "vocab": 50, "seq": 8, "phase": "decode", "layers": {"layer": layer}}
    sections = ({"layers": ("layer",)},)

    def kept(dtypes: dict[str, str] | None) -> dict[str, int]:
        graph = WORKLOADS["stack"](**fixed, sections=sections, dtypes=dtypes)
        return {state.name: state.bytes_per_sequence for k in graph.kernels for state in k.states or ()}

    plain, same, small = kept(None), kept({"kv": "fp8"}), kept({"state": "fp8"})
    assert plain == same and plain["state"] == 4 * 8 * 4 * 4  # heads, keys, values and bytes of an element
    assert small == {"state": plain["state"] // 4, "convolution": plain["convolution"] // 2}


def test_parameters_inside_one_are_replaced_by_their_path() -> None:
    graph = load_graph("llama-3.1-8b", **{"dtypes.weights": "fp8", "dtypes.kv": "nvfp4"})
    assert graph.dtypes == Dtypes(weights="fp8", kv="nvfp4")
    assert graph.description.endswith("(loaded with dtypes.kv='nvfp4', dtypes.weights='fp8')")
    again = load_graph("llama-3.1-8b", dtypes={"kv": "fp8"}, **{"dtypes.weights": "fp8"})
    assert again.dtypes == Dtypes(weights="fp8", kv="fp8")


def test_words_beside_types_are_refused_with_their_path() -> None:
    recipe = {"schema": "dfopt/graph/3", "name": "g", "workload": "decoder"}
    with pytest.raises(DocumentError, match=r"\$\.parameters\.word_bytes: found 1, but dtypes say"):
        expand({**recipe, "parameters": {**SIZES, "word_bytes": 1, "dtypes": {"kv": "fp8"}}})
