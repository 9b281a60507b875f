"""Configs of Hugging Face models: how files and folders are read, what is said, and what is refused by its path."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from hf_configs import CONFIGS, FILES, FOLDER, Config, refusal, without
from typer.testing import CliRunner

import dfopt as df
from dfopt.cli import app
from dfopt.documents.graph import Graph
from dfopt.errors import DocumentError
from dfopt.frontends.hf import read, recipe
from dfopt.workloads import expand, load_graph

LLAMA, QWEN = FILES["llama-3.1-8b"], FILES["qwen3-8b"]


def sized(graph: Graph) -> tuple[object, ...]:
    return graph.kernels, graph.tensors, graph.carried, graph.repeat, graph.word_bytes


def test_what_a_file_leaves_out_is_said() -> None:
    found = recipe(LLAMA, "model/config.json")
    assert found["name"] == "model"
    counted = "llama with 8.03 billion parameters, all in bfloat16, 131072 B kept of a token"
    assert found["description"] == f"{counted}; the config leaves out head_dim 128"
    bare = without(LLAMA, "tie_word_embeddings", "mlp_bias")
    assert "leaves out mlp_bias false, tie_word_embeddings false, head_dim 128" in recipe(bare, "x.json")["description"]


def test_every_layer_has_experts_of_the_size_that_is_said() -> None:
    config = FILES["qwen3-30b-a3b"]
    ffn = recipe(config, "m.json")["parameters"]["ffn"]
    assert ffn == config["moe_intermediate_size"] != config["intermediate_size"]


def test_windows_are_those_of_every_layer_or_of_none() -> None:
    mistral = without(LLAMA, "mlp_bias", "attention_bias") | {"model_type": "mistral", "sliding_window": 4096}
    found = recipe(mistral, "m.json")["parameters"]
    assert (found["window"], found["seq"]) == (4096, 4096)
    unused = recipe(QWEN | {"sliding_window": 4096}, "m.json")["parameters"]
    assert "window" not in unused  # use_sliding_window is false
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
    for words in (["import", "hf", str(folder), "-o", str(tmp_path / "mine.yaml")], ["solve", str(folder), "h100-8"]):
        refused = run(app, words)  # a quantized model says its types in a file of its own
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


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("llama-3.1-8b", {"model_type": "mixtrall"}, "which dfopt does not read yet (did you mean 'mixtral'"),
        ("llama-3.1-8b", {"model_type": "mixtrall"}, "$.model_type: found 'mixtrall', which dfopt does not read yet"),
        ("llama-3.1-8b", {"model_type": None}, "$.model_type: missing"),
        ("llama-3.1-8b", {"model_type": "zamba2"}, "$.model_type: found 'zamba2', which has weights that several"),
        ("llama-3.1-8b", {"model_type": "zamba2"}, "which has weights that several layers share: not drawn"),
        ("llama-3.1-8b", {"architectures": ["LlamaForSequenceClassification"]}, "expected a causal language model"),
        ("llama-3.1-8b", {"num_local_experts": 8}, "$.num_local_experts: not understood, and could change a shape, a"),
        ("llama-3.1-8b", {"head_dims": 8}, "(did you mean 'head_dim'?)"),
        ("llama-3.1-8b", {"vocab_size": 10**12}, "$.vocab_size: "),
        ("llama-3.1-8b", {"num_nextn_predict_layers": 1}, "$.num_nextn_predict_layers: found 1, expected 0"),
        ("llama-3.1-8b", {"hidden_size": "4096"}, "$.hidden_size: found '4096', expected a whole number from 1 on"),
        ("llama-3.1-8b", {"hidden_size": True}, "$.hidden_size: found true"),
        ("llama-3.1-8b", {"hidden_size": None}, "$.hidden_size: found nothing"),
        ("llama-3.1-8b", {"hidden_size": {"of": 3}}, "$.hidden_size: found a mapping of 1 key"),
        ("llama-3.1-8b", {"num_key_value_heads": 7}, "$.num_key_value_heads: found 7 K/V heads, expected a divisor of"),
        ("llama-3.1-8b", {"num_key_value_heads": 7}, "K/V heads, expected a divisor of the 32 query heads"),
        ("llama-3.1-8b", {"torch_dtype": "float8_e4m3fn"}, "$.torch_dtype: found 'float8_e4m3fn', expected bfloat16"),
        ("llama-3.1-8b", {"attention_bias": True}, "$.attention_bias: found true, expected false"),
        ("llama-3.1-8b", {"sliding_window": 4096}, "$.sliding_window: not understood"),
        ("qwen3-8b", {"use_sliding_window": True}, "layers would differ"),
        ("qwen3-8b", {"layer_types": ["full_attention", "sliding_attention"]}, "others are not drawn yet"),
        ("qwen3-30b-a3b", {"decoder_sparse_step": 2}, "every layer has experts"),
        ("qwen3-30b-a3b", {"mlp_only_layers": [0]}, "every layer has experts"),
        (
            "qwen3-30b-a3b",
            {"shared_expert_intermediate_size": 9},
            "$.shared_expert_intermediate_size: found 9, expected 0",
        ),
        ("qwen3-30b-a3b", {"qkv_bias": True}, "$.qkv_bias: found true, expected false"),
        ("deepseek-v3", {"moe_layer_freq": 2}, "$.moe_layer_freq: found 2, expected 1"),
        ("deepseek-v3", {"q_lora_rank": 0}, "$.q_lora_rank: found 0, expected null, or a whole number"),
        ("deepseek-v3", {"first_k_dense_replace": -1}, "$.first_k_dense_replace: found -1"),
        ("deepseek-v3", {"n_routed_experts": "256"}, "$.n_routed_experts: found '256'"),
        (
            "deepseek-v3",
            {"num_nextn_predict_layers": -1},
            "$.num_nextn_predict_layers: found -1, expected a whole number from 0 on",
        ),
        ("deepseek-v3", {"index_topk": 2048}, "$.index_topk: not understood"),
        ("gpt-oss-20b", {"layer_types": ["full_attention"]}, "$.layer_types: found 1 of 24 layers"),
        ("gpt-oss-20b", {"layer_types": ["linear_attention"] * 24}, "$.layer_types: found a list of 24, expected"),
        ("gpt-oss-20b", {"experts_per_token": 8}, "$.num_experts_per_tok: found 4, but experts_per_token says 8"),
        ("gpt-oss-20b", {"attention_bias": False}, "$.attention_bias: found false, expected true"),
        ("qwen3-vl-2b", {"text_config": None}, "$.text_config: missing, expected the config of qwen3_vl_text"),
        ("qwen3-vl-2b", {"text_config": {"model_type": "qwen3"}}, "$.text_config.model_type: found 'qwen3', expected"),
        ("qwen3-vl-2b", {"tower": {}}, "$.tower: not understood, and could change a shape, a cost or a size"),
        ("qwen3-vl-2b", {"tie_word_embeddings": False}, "$.text_config.tie_word_embeddings: found true, but false"),
        ("qwen3-vl-2b", {"vision_config": 3}, "$.vision_config: found 3, expected null, or a mapping"),
        ("mimo-7b", {"attention_bias": False}, "$.attention_bias: found false, expected true"),
        ("minimax-m3", {"moe_layer_freq": "x"}, "$.moe_layer_freq: found 'x', expected a list of 0 and 1"),
        ("minimax-m3", {"moe_layer_freq": [1] * 60}, "$.first_k_dense_replace: found 3, but the kinds of layers"),
        ("minimax-m3", {"sparse_attention_config": {}}, "$.sparse_attention_config: found"),
        ("minimax-m3", {"attention_output_gate": True}, "$.attention_output_gate: found true, expected false"),
        ("gemma-2-9b", {"sliding_window": None, "layer_types": ["full_attention"]}, "layer_types say otherwise"),
        ("phi-3-mini", {"partial_rotary_factor": 2}, "$.partial_rotary_factor: found 2, expected a number above 0"),
        ("command-r7b", {"use_parallel_block": False}, "$.use_parallel_block: found false, expected true"),
        ("ernie-4.5-21b-a3b", {"moe_layer_end_index": 5}, "$.moe_layer_end_index: found 5 of 28 layers"),
        ("opt-6.7b", {"word_embed_proj_dim": 512}, "$.word_embed_proj_dim: found 512, expected 4096"),
        ("opt-6.7b", {"do_layer_norm_before": False}, "$.do_layer_norm_before: found false, expected true"),
        ("gpt2", {"add_cross_attention": True}, "$.add_cross_attention: found true, expected false"),
        ("smollm3-3b", {"use_sliding_window": True}, "$.use_sliding_window: found true, expected false"),
        ("laguna-s-2.1", {"mlp_only_layers": [1]}, "$.mlp_only_layers: found other layers than mlp_layer_types says"),
        (
            "laguna-s-2.1",
            {"gating": True, "gating_types": ["per_element"] * 48},
            "$.gating_types: found gates of every",
        ),
        ("laguna-s-2.1", {"num_attention_heads_per_layer": [48, 72] * 24}, "found 48 and 72 heads of local layers"),
        ("step-3.5-flash", {"moe_layers_enum": "3, x"}, "$.moe_layers_enum: found '3, x', expected numbers of layers"),
        ("step-3.5-flash", {"num_sliding_attention_heads": 72}, "but attention_other_setting says 96"),
        ("olmo-2-7b", {"num_key_value_heads": 7}, "$.num_key_value_heads: found 7 K/V heads, expected a divisor"),
        ("qwen3-next-80b", {"full_attention_interval": 0}, "$.full_attention_interval: found 0"),
        ("qwen3-next-80b", {"mlp_only_layers": [3]}, "$.mlp_only_layers: found a list of 1, expected []"),
        ("qwen3-next-80b", {"layer_types": ["full_attention"] * 48}, "$.full_attention_interval: found 4, but"),
        ("kimi-linear-48b", {"linear_attn_config": {"head_dim": 1}}, "$.linear_attn_config: found a mapping"),
        ("kimi-linear-48b", {"num_hidden_layers": 28}, "$.linear_attn_config: found 27 places of layers"),
        ("kimi-linear-48b", {"moe_layer_freq": 2}, "$.moe_layer_freq: found 2, expected 1"),
        ("mamba-130m", {"intermediate_size": 9}, "$.intermediate_size: found 9, expected expand x hidden_size, 1536"),
        ("mamba-codestral-7b", {"num_heads": 3}, "$.num_heads: found 3 of 64 features, expected 8192 together"),
        ("nemotron-h-56b", {"hybrid_override_pattern": "MxM"}, "$.hybrid_override_pattern: found 'MxM'"),
        ("nemotron-h-56b", {"hybrid_override_pattern": "M*"}, "$.hybrid_override_pattern: found 2 of 118 layers"),
        ("nemotron-h-56b", {"hybrid_override_pattern": "E" * 118}, "missing, but there are layers of experts"),
        ("nemotron-h-56b", {"mlp_hidden_act": "silu"}, "$.mlp_hidden_act: found 'silu', expected relu2"),
        ("nemotron-3-super", {"residual_in_fp32": True}, "$.residual_in_fp32: found true, expected false"),
        ("nemotron-3-super", {"n_shared_experts": 2}, "$.n_shared_experts: found 2, expected 1"),
        ("jamba-1.5-mini", {"sliding_window": 4096}, "$.sliding_window: found 4096, expected null"),
        ("deepseek-v4-flash", {"compress_ratios": [4, 128]}, "$.compress_ratios: found 2, expected one for each of 43"),
        ("deepseek-v4-flash", {"num_key_value_heads": 8}, "$.num_key_value_heads: found 8, expected 1"),
        ("deepseek-v4-flash", {"expert_dtype": "int3"}, "$.expert_dtype: found 'int3', expected fp4, or null"),
        ("deepseek-v4-flash", {"hc_mult": 1}, "$.hc_mult: found 1, expected a whole number from 2 on"),
        ("bert-base", {"num_attention_heads": 7}, "$.num_attention_heads: found 7, expected a divisor of the 768"),
        ("bert-base", {"is_decoder": True}, "$.is_decoder: found true, expected false: an encoder"),
        ("bert-base", {"position_embedding_type": "relative_key"}, "expected absolute: learned ones"),
        ("bge-m3", {"max_position_embeddings": 2}, "$.max_position_embeddings: found 2, expected more than the 2"),
        ("vit-b-16", {"patch_size": 300}, "$.patch_size: found 300, expected 224 at most"),
        ("whisper-large-v3", {"is_encoder_decoder": False}, "$.is_encoder_decoder: found false, expected true"),
    ],
)
def test_what_is_not_understood_is_refused_by_its_path(name: str, change: Config, said: str) -> None:
    assert said in refusal(CONFIGS[name] | change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_kv_shared_layers": 10}, "num_kv_shared_layers: found 10, expected 0"),
        ({"hidden_size_per_layer_input": 256}, "hidden_size_per_layer_input: found 256, expected 0"),
        ({"num_experts": None}, "num_experts: found none, but enable_moe_block is true"),
        ({"use_double_wide_mlp": True}, "use_double_wide_mlp: found true, expected false"),
        ({"layer_types": ["chunked_attention"] * 30}, "layer_types: found a list of 30, expected"),
        ({"add_cross_attention": True}, "add_cross_attention: found true, expected false"),
        ({"num_key_value_heads": 5}, "num_key_value_heads: found 5 K/V heads"),
    ],
)
def test_what_a_text_model_has_is_refused_by_its_path_inside(change: Config, said: str) -> None:
    config = copy.deepcopy(FILES["gemma-4-26b-a4b-nvfp4"])
    config["text_config"] |= change
    assert f"$.text_config.{said}" in refusal(config)


@pytest.mark.parametrize("field", ["decoder_sparse_step", "num_experts", "moe_intermediate_size"])
def test_sizes_of_experts_that_are_missing_are_named(field: str) -> None:
    assert f"$.{field}: missing" in refusal(without(FILES["qwen3-30b-a3b"], field))


def test_all_that_is_wrong_is_said_at_once() -> None:
    said = refusal(without(FILES["llama-3.1-8b"], "vocab_size", "hidden_act") | {"top_k": 2})
    assert said.startswith("model/config.json: 3 problems")


def test_configs_may_have_numbers_without_a_limit(tmp_path: Path) -> None:
    """As of time steps; other documents have none."""
    assert "Infinity" in (FOLDER / "nemotron-h-56b.json").read_text()
    assert read(FOLDER / "nemotron-h-56b.json")["name"] == "nemotron-h-56b"
    (tmp_path / "g.json").write_text(json.dumps({"schema": "dfopt/graph/3", "name": "g", "x": float("inf")}))
    with pytest.raises(DocumentError, match="found Infinity, expected a finite number"):
        df.load_graph(tmp_path / "g.json")
