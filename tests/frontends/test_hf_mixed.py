"""Configs of layers with states, and of compressed attention: what they build, and what is refused.

``tests/golden/hf`` has some as published: Qwen/Qwen3.5-35B-A3B, nvidia/Nemotron-H-56B-Base-8K,
nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8, nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4 and
deepseek-ai/DeepSeek-V4-Flash. The sizes of the others: the config classes of transformers 5.23 and
``configuration_kimi.py``; of Kimi Linear the technical report (arXiv 2510.26692), of Jamba 1.5 Mini its model card.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hf_changes import altered
from hypothesis import given
from hypothesis import strategies as st

import dfopt as df
from dfopt.documents.kinds import is_model_config
from dfopt.documents.strict_yaml import load_strict
from dfopt.errors import DocumentError
from dfopt.frontends.hf import COSMETIC, FAMILIES, read, recipe
from dfopt.frontends.hf.families import SORTS
from dfopt.frontends.hf.layers import put_together
from dfopt.workloads.stack import StackParameters, counts

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "hf"
Config = dict[str, Any]
PUBLISHED = {
    name: load_strict(FOLDER / f"{name}.json", unbounded=is_model_config)
    for name in (
        "qwen3.5-35b-a3b", "nemotron-h-56b", "nemotron-3-super", "nemotron-3.5-lightning", "deepseek-v4-flash",
    )
}  # fmt: skip
NEXT: Config = {
    "model_type": "qwen3_next", "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5120, "head_dim": 256,
    "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2, "hidden_act": "silu",
    "max_position_embeddings": 262144, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "partial_rotary_factor": 0.25, "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    "decoder_sparse_step": 1, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
    "num_experts_per_tok": 10, "num_experts": 512, "mlp_only_layers": [], "rope_theta": 10000000,
}  # fmt: skip
KIMI: Config = {
    "model_type": "kimi_linear", "vocab_size": 163840, "hidden_size": 2304, "head_dim": 72, "intermediate_size": 9216,
    "num_hidden_layers": 27, "num_attention_heads": 32, "num_key_value_heads": 32, "hidden_act": "silu",
    "tie_word_embeddings": False, "dtype": "bfloat16", "moe_intermediate_size": 1024, "num_experts": 256,
    "num_experts_per_token": 8, "num_shared_experts": 1, "first_k_dense_replace": 1, "moe_layer_freq": 1,
    "q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "mla_use_nope": True, "num_nextn_predict_layers": 0, "model_max_length": 1048576, "moe_renormalize": True,
    "linear_attn_config": {
        "head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4, "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
        "kda_layers": [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25, 26],
    },
}  # fmt: skip
MAMBA: Config = {
    "model_type": "mamba", "vocab_size": 50280, "hidden_size": 768, "num_hidden_layers": 24, "state_size": 16,
    "conv_kernel": 4, "expand": 2, "intermediate_size": 1536, "time_step_rank": 48, "use_bias": False,
    "use_conv_bias": True, "hidden_act": "silu", "torch_dtype": "float32", "residual_in_fp32": True, "rms_norm": True,
}  # fmt: skip
MAMBA2: Config = {
    "model_type": "mamba2", "vocab_size": 32768, "hidden_size": 4096, "num_hidden_layers": 64, "state_size": 128,
    "conv_kernel": 4, "expand": 2, "num_heads": 128, "head_dim": 64, "n_groups": 8, "chunk_size": 256,
    "use_bias": False, "use_conv_bias": True, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
    "hidden_act": "silu", "time_step_limit": [0.0, float("inf")], "norm_before_gate": True,
}  # fmt: skip
JAMBA: Config = {
    "model_type": "jamba", "vocab_size": 65536, "hidden_size": 4096, "intermediate_size": 14336, "num_experts": 16,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_act": "silu",
    "max_position_embeddings": 262144, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "num_experts_per_tok": 2, "attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2,
    "expert_layer_offset": 1, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 256,
    "mamba_conv_bias": True, "mamba_proj_bias": False, "sliding_window": None,
}  # fmt: skip
CONFIGS: dict[str, Config] = {
    **PUBLISHED, "qwen3-next-80b": NEXT, "kimi-linear-48b": KIMI, "mamba-130m": MAMBA, "mamba-codestral-7b": MAMBA2,
    "jamba-1.5-mini": JAMBA,
}  # fmt: skip
SIZES = {  # in billions, and bytes of a token at two bytes a number
    "qwen3.5-35b-a3b": (35, 10 * 2 * 2 * 256 * 2),
    "nemotron-h-56b": (56, 10 * 2 * 8 * 128 * 2),
    "nemotron-3-super": (120, 8 * 2 * 2 * 128 * 2),
    "nemotron-3.5-lightning": (31.6, 6 * 2 * 2 * 128 * 2),
    "deepseek-v4-flash": (284, 6880),
    "qwen3-next-80b": (80, 12 * 2 * 2 * 256 * 2),
    "kimi-linear-48b": (49, 7 * (512 + 64) * 2),
    "mamba-130m": (0.1291, 0),
    "mamba-codestral-7b": (7.28, 0),
    "jamba-1.5-mini": (51.6, 4 * 2 * 8 * 128 * 2),
}


TWICE = (
    "num_hidden_layers",
    "intermediate_size",
    "layer_types",
    "full_attention_interval",
    "mtp_hybrid_override_pattern",
)
"""Fields that others say too: a pattern of layers, or how often they repeat."""


def refusal(data: Config) -> str:
    with pytest.raises(DocumentError) as caught:
        recipe(data, "model/config.json")
    return str(caught.value)


@pytest.mark.parametrize("name", CONFIGS)
def test_counts_are_those_that_were_published(name: str) -> None:
    billions, kept = SIZES[name]
    found = counts(StackParameters(**recipe(CONFIGS[name], "config.json")["parameters"]))
    assert found.parameters == pytest.approx(billions * 1e9, rel=0.015)
    assert found.bytes_per_token == kept


def test_every_type_is_tried() -> None:
    tried = {config.get("text_config", config)["model_type"] for config in CONFIGS.values()}
    alike = {"qwen3_5_text", "falcon_mamba", "deepseek_ref"}  # as with experts, as Mamba, and as DeepSeek-V4
    assert {*SORTS["delta"], *SORTS["mamba"], *SORTS["compressed"]} == tried | alike


@pytest.mark.parametrize("name", ["qwen3.5-35b-a3b", "nemotron-h-56b", "nemotron-3-super", "deepseek-v4-flash"])
@pytest.mark.parametrize("phase", [{"phase": "prefill"}, {"phase": "decode", "context": 4096}])
def test_a_config_is_the_model_of_the_zoo(name: str, phase: Config) -> None:
    mine, known = (df.load_graph(path, seq=2048, **phase) for path in (FOLDER / f"{name}.json", name))
    assert (mine.kernels, mine.tensors, mine.sections) == (known.kernels, known.tensors, known.sections)


def test_what_is_left_out_is_said() -> None:
    def said(name: str) -> str:
        return str(recipe(CONFIGS[name], "config.json")["description"])

    assert "34.66 billion parameters of its text model, of which a token uses 2.946 billion" in said("qwen3.5-35b-a3b")
    assert "vision_config left out" in said("qwen3.5-35b-a3b")
    assert "1 module that predicts further tokens not counted" in said("nemotron-3-super")
    assert "the table of experts by token of hashed layers left out" in said("deepseek-v4-flash")
    assert "mamba_ssm_cache_dtype float32" in said("nemotron-h-56b")


def test_layers_are_where_the_config_says() -> None:
    kimi = recipe(KIMI, "config.json")["parameters"]
    order = [name for one in kimi["sections"] for name in one["layers"] * one.get("repeat", 1)]
    assert [place + 1 for place, name in enumerate(order) if name.startswith("latent")] == [4, 8, 12, 16, 20, 24, 27]
    assert order[0] == "kda_dense" and order[1:].count("kda_dense") == 0
    light = recipe(CONFIGS["nemotron-3.5-lightning"], "config.json")["parameters"]
    order = [
        name for one in light["sections"] if "predicts" not in one for name in one["layers"] * one.get("repeat", 1)
    ]
    assert (len(order), order.count("mamba"), order.count("experts"), order.count("attention")) == (52, 23, 23, 6)
    assert light["sections"][-1] == {"layers": ["attention", "experts"], "predicts": True}
    every = ["mamba_dense", "mamba_experts"] * 2 + ["attention_dense", "mamba_experts", "mamba_dense", "mamba_experts"]
    assert recipe(JAMBA, "config.json")["parameters"]["sections"] == [{"layers": every, "repeat": 4}]


def test_what_predicts_further_tokens_is_drawn_if_it_is_asked_for() -> None:
    """Super: attention and latent experts behind a projection of the embedding and of what the layers say."""
    asked = {"phase": "decode", "context": 4096, "predict": True}
    graph = df.load_graph(FOLDER / "nemotron-3-super.json", **asked)
    assert [one.layers for one in graph.sections or ()][-3:] == [
        ("predictor",), ("attention", "experts"), ("prediction",),
    ]  # fmt: skip


def test_types_of_experts_apart() -> None:
    """DeepSeek-V4-Flash: weights in fp8 with blocks, experts in fp4 with blocks of 32, shared ones as all else."""
    found = recipe(PUBLISHED["deepseek-v4-flash"], "config.json")["parameters"]
    assert found["dtypes"] == {
        "weights": "fp8_128x128_ue8m0", "experts": "mxfp4", "operands": "fp8_1x128_ue8m0", "activations": "bf16",
        "ends": "bf16",
    }  # fmt: skip
    assert all(layer["feed_forward"]["shared_apart"] for layer in found["layers"].values())
    bare = {key: value for key, value in PUBLISHED["deepseek-v4-flash"].items() if key != "quantization_config"}
    assert "$.expert_dtype: found a type of experts, but no quantization_config" in refusal(bare)


def test_descriptions_of_types_know_the_names_of_the_weights() -> None:
    """Experts alone are in nvfp4, as in nvidia/Qwen3.5-122B-A10B-NVFP4; or all that multiplies is in fp8."""
    config = PUBLISHED["qwen3.5-35b-a3b"]
    places = [(place, "self_attn*" if place % 4 == 3 else "linear_attn*") for place in range(40)]
    kept = [name for place, own in places for name in (f"{place}.{own}", f"{place}.mlp.shared_expert*")]
    ignored = [f"model.language_model.layers.{name}" for name in kept]
    four = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
    groups = {"group_0": {"input_activations": four, "weights": four, "targets": ["Linear"]}}
    said = {"quant_method": "modelopt", "quant_algo": "NVFP4", "config_groups": groups}
    said |= {"ignore": ["lm_head", "model.visual*", "mtp*", *ignored], "producer": {"name": "modelopt"}}
    found = recipe(config | {"quantization_config": said}, "config.json")
    assert (found["parameters"]["dtypes"]["experts"], found["parameters"]["dtypes"]["weights"]) == ("nvfp4", "bf16")
    kept = [f"model.language_model.layers.{place}.linear_attn.in_proj_a" for place in range(40) if place % 4 != 3]
    fp8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    found = recipe(
        config | {"quantization_config": fp8 | {"modules_to_not_convert": ["lm_head", *kept]}}, "config.json"
    )
    assert found["parameters"]["dtypes"]["weights"] == "fp8_128x128"
    super_, named = PUBLISHED["nemotron-3-super"], ["backbone.layers.0.mixer.conv1d", "lm_head", "mtp*"]
    beside = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": named}}
    assert recipe(super_, "config.json", beside)["parameters"]["dtypes"]["weights"] == "fp8"
    named[0] = "backbone.layers.0.mixer.in_proj"
    with pytest.raises(DocumentError, match="attention of two types"):
        recipe(super_, "config.json", beside)


@given(st.sampled_from(sorted(CONFIGS)), st.data())
def test_nothing_is_taken_for_granted_in_silence(name: str, data: st.DataObject) -> None:
    """Of a file with a field removed, renamed or added nothing is read, or just what the field said, and says so."""
    whole = CONFIGS[name]
    inside = data.draw(st.booleans()) and "text_config" in whole
    part = dict(whole["text_config"] if inside else whole)
    what, field, value = altered(part, data)
    known = recipe(whole, "m.json")
    try:
        found = recipe({**whole, "text_config": part} if inside else part, "m.json")
    except DocumentError:
        return
    assert what != "added"
    family = FAMILIES[(whole.get("text_config") or whole)["model_type"]]
    free = field in COSMETIC or field in family.words or field in ("vision_config",)
    assert what != "renamed"  # which is an unknown field, whatever it says
    if what == "changed":
        return  # what is understood may be anything
    spelled = family.names.get(field, {"dtype": "torch_dtype"}.get(field, field))
    other = not inside and "text_config" in whole  # tokens of images and the like, beside the text model
    same = field in TWICE and found["parameters"] == known["parameters"]
    harmless = other or (not free and family.fields[spelled].gives(value) == {})
    assert free or same or harmless or f"{spelled} " in found["description"]


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
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
    ],
)
def test_what_is_not_understood_is_refused(name: str, change: Config, said: str) -> None:
    assert said in refusal(CONFIGS[name] | change)


def test_configs_may_have_numbers_without_a_limit(tmp_path: Path) -> None:
    """As of time steps; other documents have none."""
    assert "Infinity" in (FOLDER / "nemotron-h-56b.json").read_text()
    assert read(FOLDER / "nemotron-h-56b.json")["name"] == "nemotron-h-56b"
    (tmp_path / "g.json").write_text(json.dumps({"schema": "dfopt/graph/3", "name": "g", "x": float("inf")}))
    with pytest.raises(DocumentError, match="found Infinity, expected a finite number"):
        df.load_graph(tmp_path / "g.json")


def test_layers_are_as_many_as_the_config_says() -> None:
    with pytest.raises(ValueError, match="types: found 2 of 3 layers"):
        put_together({"hidden": 8, "layers": 3}, {"a": {}, "b": {}}, "ab")
