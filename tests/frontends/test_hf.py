"""Configs of Hugging Face models: how files and folders are read, what is said, and what is refused by its path."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from golden_files import golden, rows
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


REFUSED = [
    *((name, *row) for name, found in golden("hf/refused.yaml").items() for row in rows(found, "change", "says")),
    ("gpt-oss-20b", {"layer_types": ["linear_attention"] * 24}, "$.layer_types: found a list of 24, expected"),
    ("minimax-m3", {"moe_layer_freq": [1] * 60}, "$.first_k_dense_replace: found 3, but the kinds of layers"),
    ("laguna-s-2.1", {"gating": True, "gating_types": ["per_element"] * 48}, "$.gating_types: found gates of every"),
    ("laguna-s-2.1", {"num_attention_heads_per_layer": [48, 72] * 24}, "found 48 and 72 heads of local layers"),
    ("qwen3-next-80b", {"layer_types": ["full_attention"] * 48}, "$.full_attention_interval: found 4, but"),
    ("nemotron-h-56b", {"hybrid_override_pattern": "E" * 118}, "missing, but there are layers of experts"),
]


@pytest.mark.parametrize(("name", "change", "said"), REFUSED)
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
