"""Configs of Hugging Face models as graphs: how files and folders are read, and what is said of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hf_configs import FILES, without
from typer.testing import CliRunner

from dfopt.cli import app
from dfopt.documents.graph import Graph
from dfopt.frontends.hf import recipe
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
