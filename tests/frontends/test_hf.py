"""Configs of Hugging Face models as graphs: the sizes of the zoo, and nothing that is taken for granted in silence.

``tests/golden/hf`` has four of them as published: meta-llama/Meta-Llama-3.1-8B, Qwen/Qwen3-8B, Qwen/Qwen3-30B-A3B and
mistralai/Mixtral-8x7B-v0.1.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hf_changes import altered
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from dfopt.cli import app
from dfopt.documents.dtypes import Dtypes
from dfopt.documents.graph import Graph
from dfopt.errors import DocumentError
from dfopt.frontends.hf import COSMETIC, FAMILIES, FIELDS, recipe
from dfopt.workloads import expand, load_graph

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "hf"
CONFIGS: dict[str, dict[str, Any]] = {
    name: json.loads((FOLDER / f"{name}.json").read_text())
    for name in ("llama-3.1-8b", "qwen3-8b", "mixtral-8x7b", "qwen3-30b-a3b")
}
# quantization_config of Qwen/Qwen3-30B-A3B-FP8, less the modules of all layers but the first
FP8 = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}
FP8 |= {
    "modules_to_not_convert": [
        "lm_head",
        "model.layers.0.input_layernorm",
        "model.layers.0.mlp.gate",
        "model.layers.0.post_attention_layernorm",
    ]
}
LLAMA, QWEN = CONFIGS["llama-3.1-8b"], CONFIGS["qwen3-8b"]


def refusal(data: dict[str, Any]) -> str:
    with pytest.raises(DocumentError) as caught:
        recipe(data, "model/config.json")
    return str(caught.value)


def sized(graph: Graph) -> tuple[object, ...]:
    return graph.kernels, graph.tensors, graph.carried, graph.repeat, graph.word_bytes


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("phase", [{}, {"phase": "decode", "context": 4096}])
def test_a_config_is_the_model_of_the_zoo(name: str, phase: dict[str, Any]) -> None:
    mine, known = (load_graph(path, seq=2048, **phase) for path in (FOLDER / f"{name}.json", name))
    assert sized(mine) == sized(known)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_parameters_are_those_that_were_published(name: str) -> None:
    words = recipe(CONFIGS[name], name)["description"].split()
    billions = [float(before) for before, word in itertools.pairwise(words) if word.startswith("billion")]
    # Active ones without the table of the embedding; with it, as published, those of Qwen3 30B are 3.3.
    published = {"mixtral-8x7b": [46.7, 12.9], "qwen3-30b-a3b": [30.5, 3.3 - 0.311], "llama-3.1-8b": [8.03]}
    published["qwen3-8b"] = [8.19]
    assert billions == pytest.approx(published[name], rel=0.02)


def test_what_a_file_leaves_out_is_said() -> None:
    found = recipe(LLAMA, "model/config.json")
    assert found["name"] == "model"
    counted = "llama with 8.03 billion parameters, all in bfloat16, 131072 B kept of a token"
    assert found["description"] == f"{counted}; the config leaves out head_dim 128"
    bare = {key: value for key, value in LLAMA.items() if key not in ("tie_word_embeddings", "mlp_bias")}
    assert "leaves out mlp_bias false, tie_word_embeddings false, head_dim 128" in recipe(bare, "x.json")["description"]


@given(st.sampled_from(sorted(CONFIGS)), st.data())
def test_nothing_is_taken_for_granted_in_silence(name: str, data: st.DataObject) -> None:
    """Of a file with a field removed, renamed or added nothing is read, or just what the field said and says so."""
    config, whole = dict(CONFIGS[name]), recipe(CONFIGS[name], "m.json")
    what, field, _ = altered(config, data)
    if config == CONFIGS[name]:
        return
    try:
        found = recipe(config, "m.json")
    except DocumentError:
        return
    said = found["description"]
    assert field in COSMETIC or what != "renamed"
    for parameters in (found["parameters"], whole["parameters"]):  # for files of other tools, of no cost
        parameters.pop("rotary_base", None), parameters.pop("rotary_scaling", None)
    same = found["parameters"] == whole["parameters"]
    assert same or what == "changed" or (what == "removed" and f"{field} " in said)  # its class may have another value
    if what == "removed" and field not in COSMETIC and same:
        spelled = f"{field} {str(CONFIGS[name][field]).lower()}"
        nothing = not FIELDS[field].needed and FIELDS[field].gives(CONFIGS[name][field]) == {}
        assert spelled in said or nothing or field in FAMILIES[CONFIGS[name]["model_type"]].words
    if what == "changed" and found["parameters"] != whole["parameters"]:
        assert field in FIELDS


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"model_type": "mixtrall"},
            "$.model_type: found 'mixtrall', which dfopt does not read yet (did you mean 'mixtral'",
        ),
        ({"model_type": None}, "$.model_type: missing"),
        (
            {"model_type": "zamba2"},
            "$.model_type: found 'zamba2', which has weights that several layers share: not drawn",
        ),
        ({"architectures": ["LlamaForSequenceClassification"]}, "expected a causal language model"),
        ({"num_local_experts": 8}, "$.num_local_experts: not understood, and could change a shape, a cost or a size"),
        ({"head_dims": 8}, "(did you mean 'head_dim'?)"),
        ({"vocab_size": 10**12}, "$.vocab_size: "),
        ({"quantization_config": {"quant_method": "fp8"}}, "$.quantization_config.fmt: missing (it has no default)"),
        ({"quantization_config": "fp8"}, "$.quantization_config: found 'fp8', expected null, or a mapping"),
        ({"quantization_config": FP8 | {"bits": 4}}, "$.quantization_config.bits: not understood"),
        ({"quantization_config": FP8 | {"quant_method": "hqq"}}, "$.quantization_config.quant_method: found 'hqq'"),
        (
            {"quantization_config": FP8 | {"weight_block_size": [64, 64]}},
            "weight_block_size: found a list of 2, expected [128, 128] or null",
        ),
        (
            {"quantization_config": FP8 | {"modules_to_not_convert": ["lm_head", "model.layers.0.self_attn.q_proj"]}},
            "modules_to_not_convert[1]: found attention of two types, as wide as all else (model.layers.0.self_attn",
        ),
        ({"num_nextn_predict_layers": 1}, "$.num_nextn_predict_layers: found 1, expected 0"),
        ({"hidden_size": "4096"}, "$.hidden_size: found '4096', expected a whole number from 1 on"),
        ({"hidden_size": True}, "$.hidden_size: found true"),
        (
            {"num_key_value_heads": 7},
            "$.num_key_value_heads: found 7 K/V heads, expected a divisor of the 32 query heads",
        ),
        ({"torch_dtype": "float8_e4m3fn"}, "$.torch_dtype: found 'float8_e4m3fn', expected bfloat16"),
        ({"attention_bias": True}, "$.attention_bias: found true, expected false"),
        ({"sliding_window": 4096}, "$.sliding_window: not understood"),
    ],
)
def test_what_is_not_understood_is_refused_by_its_name(change: dict[str, Any], said: str) -> None:
    assert said in refusal(LLAMA | change)


@pytest.mark.parametrize(
    ("change", "weights", "operands"),
    [
        ({}, "fp8_128x128", "fp8_1x128"),
        ({"scale_fmt": "ue8m0"}, "fp8_128x128_ue8m0", "fp8_1x128_ue8m0"),
        ({"weight_block_size": None, "activation_scheme": "static"}, "fp8", "fp8"),
    ],
)
@pytest.mark.parametrize("wide, name", [("bfloat16", "bf16"), ("float32", "fp32")])
def test_quantized_weights_are_types_of_the_graph(
    tmp_path: Path, change: dict[str, Any], weights: str, operands: str, wide: str, name: str
) -> None:
    config = CONFIGS["qwen3-30b-a3b"] | {"quantization_config": FP8 | change, "torch_dtype": wide}
    found = recipe(config, "m.json")
    types = {"weights": weights, "operands": operands, "activations": name, "ends": name}
    assert found["parameters"]["dtypes"] == types and "word_bytes" not in found["parameters"]
    assert f"weights in {weights}, with the routers" in found["description"]
    graph = expand(found | {"parameters": found["parameters"] | {"phase": "decode"}})
    assert graph.dtypes == Dtypes(**types)


def test_all_that_is_wrong_is_said_at_once() -> None:
    said = refusal(
        {key: value for key, value in LLAMA.items() if key not in ("vocab_size", "hidden_act")} | {"top_k": 2}
    )
    assert said.startswith("model/config.json: 3 problems")


def test_every_layer_has_experts_or_none() -> None:
    config = CONFIGS["qwen3-30b-a3b"]
    assert (
        recipe(config, "m.json")["parameters"]["ffn"] == config["moe_intermediate_size"] != config["intermediate_size"]
    )
    assert "every layer has experts" in refusal(config | {"decoder_sparse_step": 2})
    assert "every layer has experts" in refusal(config | {"mlp_only_layers": [0]})
    assert "$.shared_expert_intermediate_size: found 9, expected 0" in refusal(
        config | {"shared_expert_intermediate_size": 9}
    )
    for name in ("decoder_sparse_step", "num_experts", "moe_intermediate_size"):
        assert f"$.{name}: missing" in refusal({key: value for key, value in config.items() if key != name})


def test_windows_are_those_of_every_layer_or_of_none() -> None:
    mistral = {**LLAMA, "model_type": "mistral", "sliding_window": 4096}
    mistral = {key: value for key, value in mistral.items() if key not in ("mlp_bias", "attention_bias")}
    assert recipe(mistral, "m.json")["parameters"]["window"] == 4096
    assert recipe(mistral, "m.json")["parameters"]["seq"] == 4096
    assert (
        "window" not in recipe(QWEN | {"sliding_window": 4096}, "m.json")["parameters"]
    )  # use_sliding_window is false
    assert "layers would differ" in refusal(QWEN | {"use_sliding_window": True})
    local = ["full_attention", "sliding_attention"]
    assert "others are not drawn yet" in refusal(QWEN | {"layer_types": local})
    assert recipe(QWEN | {"layer_types": ["full_attention"] * 36}, "m.json")


def test_a_folder_of_a_model_is_read_and_written(tmp_path: Path) -> None:
    folder = tmp_path / "my-llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    run = CliRunner().invoke
    done = run(app, ["import", "hf", str(folder), "-o", str(tmp_path / "mine.yaml")])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("my-llama: llama with 8.03 billion parameters")
    assert sized(load_graph(tmp_path / "mine.yaml")) == sized(load_graph(folder)) == sized(load_graph("llama-3.1-8b"))
    solved = run(
        app, ["solve", str(folder), "h100-8", "--phase", "decode", "--batch", "4", "--tp", "8", "--no-sensitivity"]
    )
    assert solved.exit_code == 0 and "optimal: none of 2 plans" in solved.stdout, solved.output
    (tmp_path / "other.json").write_text(json.dumps(LLAMA | {"model_type": "rwkv"}))
    refused = run(app, ["solve", str(tmp_path / "other.json"), "h100-8"])
    assert refused.exit_code == 3 and "$.model_type: found 'rwkv'" in refused.stderr
    (folder / "hf_quant_config.json").write_text("{}")
    refused = run(app, ["import", "hf", str(folder), "-o", str(tmp_path / "mine.yaml")])
    assert "hf_quant_config.json: 1 problem\n  $.quantization: found no description" in refused.stderr
    assert run(app, ["import", "hf", str(tmp_path), "-o", str(tmp_path / "mine.yaml")]).exit_code == 3


def test_a_config_is_called_after_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tiny-llama"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for path in ("config.json", "./config.json", folder / "config.json", "../tiny-llama/config.json"):
        assert recipe(LLAMA, path)["name"] == "tiny-llama"
    assert recipe(LLAMA, "tiny.json")["name"] == "tiny"


def test_a_recipe_is_a_graph_file() -> None:
    assert expand(recipe(LLAMA, "m.json")).repeat == 32
