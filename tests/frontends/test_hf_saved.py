"""Configs that transformers 5 loaded and saved again: the graph of the published file, or a refusal by name.

``tests/golden/hf/saved`` has files of ``AutoConfig.from_pretrained(...).save_pretrained(...)`` by transformers 5.24,
of the files in ``tests/golden/hf``. What it makes of others is written here, as changes of the published file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hf_configs import CONFIGS, FILES, FOLDER, Config
from hypothesis import given
from hypothesis import strategies as st

from dfopt.errors import DocumentError
from dfopt.frontends.hf import recipe


def graph(config: Config) -> Any:
    found = recipe(config, "model/config.json")
    return found["workload"], found["parameters"]


def changed(config: Config, change: Config) -> Config:
    """A config with other fields; of those that are null, without."""
    return {name: value for name, value in {**config, **change}.items() if name not in change or value is not None}


def of_layers(kinds: list[str], kind: str, sizes: Config) -> Config:
    return {f"{place:02d}": dict(sizes) for place, name in enumerate(kinds) if name == kind}


@pytest.mark.parametrize("path", sorted((FOLDER / "saved").glob("*.json")), ids=lambda path: path.stem)
def test_a_saved_file_is_the_published_one(path: Path) -> None:
    assert graph(json.loads(path.read_text())) == graph(CONFIGS[path.stem])


def gemma() -> tuple[Config, Config]:
    config = CONFIGS["gemma-4-26b-a4b-nvfp4"]
    sizes = of_layers(
        config["text_config"]["layer_types"], "full_attention", {"head_dim": 512, "num_key_value_heads": 2}
    )
    inner = {"global_head_dim": None, "num_global_key_value_heads": None, "per_layer_config": sizes}
    return config, {"text_config": changed(config["text_config"], inner)}


def deepseek() -> tuple[Config, Config]:
    config = CONFIGS["deepseek-v4-flash"]
    rates = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
    kinds = {0: "sliding_attention"} | {rate: name for name, rate in rates.items()}
    return config, {
        "compress_ratios": None,
        "compress_rates": rates,
        "layer_types": [kinds[ratio] for ratio in config["compress_ratios"][: config["num_hidden_layers"]]],
        "num_hash_layers": None,
        "mlp_layer_types": ["hash_moe"] * 3 + ["moe"] * (config["num_hidden_layers"] - 3),
        "expert_dtype": None,
        "quantization_config": {**config["quantization_config"], "expert_dtype": config["expert_dtype"]},
        "partial_rotary_factor": 0.125,
        "mlp_bias": False,
    }


def minimax() -> tuple[Config, Config]:
    config = changed(CONFIGS["minimax-m3"], {"architectures": None, "num_mtp_modules": None})
    config["model_type"] = "minimax_m3_vl_text"
    sparse = config["moe_layer_freq"]
    return config, {
        "sparse_attention_config": None,
        "layer_types": [["full_attention", "minimax_m3_sparse"][routed] for routed in sparse],
        "index_n_heads": 4,
        "index_head_dim": 128,
        "index_block_size": 128,
        "index_topk_blocks": 16,
        "index_local_blocks": 1,
        "moe_layer_freq": None,
        "mlp_layer_types": [["dense", "sparse"][routed] for routed in sparse],
        "n_shared_experts": None,
        "hidden_act": "silu",
    }


def kimi() -> tuple[Config, Config]:
    config = CONFIGS["kimi-linear-48b"]
    full = config["linear_attn_config"]["full_attn_layers"]
    places = range(1, config["num_hidden_layers"] + 1)
    return config, {
        "linear_attn_config": None,
        "linear_head_dim": 128,
        "linear_num_heads": 32,
        "linear_conv_kernel_dim": 4,
        "layer_types": ["full_attention" if place in full else "linear_attention" for place in places],
        "first_k_dense_replace": None,
        "mlp_layer_types": ["dense"] + ["sparse"] * (config["num_hidden_layers"] - 1),
        "attention_bias": False,
        "qk_head_dim": 192,
    }


def step() -> tuple[Config, Config]:
    config = CONFIGS["step-3.5-flash"]
    kinds = config["layer_types"][: config["num_hidden_layers"]]
    return config, {
        "attention_other_setting": None,
        "layer_types": kinds,
        "per_layer_config": of_layers(kinds, "sliding_attention", {"num_attention_heads": 96}),
    }


def nested(name: str) -> tuple[Config, Config]:
    config = CONFIGS[name]
    common = {"_name_or_path": "", "architectures": None, "chunk_size_feed_forward": 0, "dtype": None, "id2label": {}}
    inner = {part: {**config[part], **common} for part in ("attn_config", "ffn_config") if part in config}
    return config, inner | ({"num_key_value_heads": 8} if name == "dbrx" else {})


SAVED = {
    "gemma 4: sizes of single layers": gemma(),
    "step 3.5: heads of single layers": step(),
    "deepseek v4: kinds of layers for ratios": deepseek(),
    "minimax m3: an indexer's sizes beside the others": minimax(),
    "kimi linear: kinds of layers for their places": kimi(),
    "dbrx: a config inside": nested("dbrx"),
    "mpt: a config inside": nested("mpt-7b"),
    "phi 2: a share of features among those of positions": (
        CONFIGS["phi-2"],
        {"partial_rotary_factor": None, "rope_parameters": {"partial_rotary_factor": 0.4}},
    ),
    "dots: a window that no layer has": (
        CONFIGS["dots.llm1"],
        {"sliding_window": 4096, "layer_types": ["full_attention"] * 62},
    ),
    "qwen 2.5 omni: tied inside, and not outside": (
        CONFIGS["qwen2.5-omni-7b"],
        {"transformers_version": "5.24.0", "tie_word_embeddings": False},
    ),
}


@pytest.mark.parametrize("name", SAVED)
def test_what_is_saved_says_what_was_published(name: str) -> None:
    config, change = SAVED[name]
    assert graph(changed(config, change)) == graph(config)


def test_a_field_that_is_null_says_nothing_beside_its_other_name() -> None:
    config = CONFIGS["hunyuan-a13b"]
    assert graph({"head_dim": None, **config}) == graph({**config, "head_dim": None}) == graph(config)


def test_ties_that_differ_are_none_in_saved_files_and_it_is_said() -> None:
    config = FILES["qwen3-vl-2b"]
    inner = {**config["text_config"], "tie_word_embeddings": True}
    apart = {**config, "text_config": inner, "tie_word_embeddings": False}
    with pytest.raises(DocumentError, match="found true, but false beside it"):
        recipe({**apart, "transformers_version": "4.57.0"}, "config.json")
    found = recipe({**apart, "transformers_version": "5.24.0"}, "config.json")
    assert found["parameters"]["tie_embeddings"] is False
    assert "tie_word_embeddings false: of two that differ" in found["description"]


@given(st.data())
def test_what_contradicts_itself_is_refused(data: st.DataObject) -> None:
    """One layer of a kind with another size, a size that is not known, a kind that has none: each by its path."""
    config, change = SAVED["step 3.5: heads of single layers"]
    saved = changed(config, change)
    sizes = {name: dict(value) for name, value in saved["per_layer_config"].items()}
    name = data.draw(st.sampled_from([f"{place:02d}" for place in range(saved["num_hidden_layers"])]))
    sizes[name] = data.draw(st.sampled_from([{"num_attention_heads": 48}, {"skip": ["mlp"]}, {"head_dim": 64}]))
    with pytest.raises(DocumentError, match=r"\$\.per_layer_config: not understood"):
        recipe({**saved, "per_layer_config": sizes}, "config.json")


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("deepseek v4: kinds of layers for ratios", {"compress_ratios": [0] * 44}, r"compress_rates: not understood"),
        ("deepseek v4: kinds of layers for ratios", {"mlp_layer_types": ["dense"]}, "mlp_layer_types"),
        ("minimax m3: an indexer's sizes beside the others", {"index_topk_blocks": 0}, r"\$\.layer_types: found"),
        ("kimi linear: kinds of layers for their places", {"linear_num_heads": None}, r"layer_types: not understood"),
        ("dbrx: a config inside", {"num_key_value_heads": 4}, r"\$\.num_key_value_heads: not understood"),
        ("dots: a window that no layer has", {"layer_types": None}, r"\$\.sliding_window: found 4096"),
        ("phi 2: a share of features among those of positions", {"rope_parameters": {"partial_rotary_factor": 2}},
         r"\$\.rope_parameters\.partial_rotary_factor: found 2"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_by_its_path(name: str, change: Config, said: str) -> None:
    config, saved = SAVED[name]
    with pytest.raises(DocumentError, match=said):
        recipe(changed(changed(config, saved), change), "config.json")
