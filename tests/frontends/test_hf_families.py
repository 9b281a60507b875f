"""Types of Hugging Face models: the sizes that were published, and nothing that is taken for granted in silence.

``tests/golden/hf`` has some configs as published, but for the order of their lines: XiaomiMiMo/MiMo-7B-Base,
MiniMaxAI/MiniMax-M3, nvidia/MiniMax-M2.5-NVFP4, meta-llama/Llama-4-Maverick-17B-128E-Instruct,
nvidia/Gemma-4-26B-A4B-NVFP4, nvidia/Gemma-4-31B-IT-NVFP4, Qwen/Qwen3-VL-2B-Instruct, moonshotai/Kimi-K2.5,
nvidia/Kimi-K2.6-NVFP4 and zai-org/GLM-5.2.
"""

from __future__ import annotations

import copy
import json
import time
from pathlib import Path
from typing import Any

import pytest
from by_path import module_at
from hf_changes import explains_a_change
from hypothesis import given
from hypothesis import strategies as st

from dfopt.errors import DocumentError
from dfopt.frontends.hf import FAMILIES, recipe
from dfopt.frontends.hf.families import SORTS
from dfopt.frontends.hf.layers import in_sections
from dfopt.frontends.hf.wrapped import WRAPPERS
from dfopt.workloads import expand
from dfopt.workloads.decoder import DecoderParameters, as_stack
from dfopt.workloads.stack import StackParameters, counts

hf_models = module_at(Path(__file__).with_name("hf_models.py"))
FOLDER = Path(__file__).resolve().parents[1] / "golden" / "hf"
FILES: dict[str, dict[str, Any]] = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
CONFIGS = FILES | {name: one.config for name, one in hf_models.MODELS.items()}
# parameters in billions of the text model, of one token without the table, and bytes kept of a token (fp8: half)
PUBLISHED = {
    "mimo-7b": (7.62, None, 36 * 2 * 8 * 128 * 2),  # 7.83 with the layer that predicts
    "minimax-m2.5-nvfp4": (229, 10.42, 62 * 2 * 8 * 128),  # 228.7 in its card; A10B
    "llama-4-maverick": (400.7, 17.17 - 1.03, 196608),
    "gemma-4-26b-a4b-nvfp4": (25.2, 3.8, 25 * 2 * 8 * 256 + 5 * 2 * 2 * 512),
    "gemma-4-31b-nvfp4": (30.7, None, 50 * 2 * 16 * 256 + 10 * 2 * 4 * 512),
    "qwen3-vl-2b": (1.72, None, 28 * 2 * 8 * 128 * 2),
    "kimi-k2.5": (1026, 32, 61 * 576 * 2),
    "kimi-k2.6-nvfp4": (1026, 32, 61 * 576),
    "glm-5.2": (744, 40, 78 * 576 * 2 + 21 * 128 * 2),
    "minimax-m3": (426.2, None, 60 * 2 * 4 * 128 * 2 + 57 * 128 * 2),
}


def stack(config: dict[str, Any]) -> StackParameters:
    found = recipe(config, "m.json")
    if found["workload"] == "decoder":
        return as_stack(DecoderParameters(**found["parameters"]))
    return StackParameters(**found["parameters"])


def refusal(config: dict[str, Any]) -> str:
    with pytest.raises(DocumentError) as caught:
        recipe(config, "model/config.json")
    return str(caught.value)


@pytest.mark.parametrize("name", hf_models.MODELS)
def test_a_model_is_as_large_as_published(name: str) -> None:
    model = hf_models.MODELS[name]
    found = counts(stack(model.config))
    assert found.parameters / 1e9 == pytest.approx(model.parameters, rel=0.015)
    assert found.active / 1e9 == pytest.approx(model.active or found.active / 1e9, rel=0.02)
    assert found.bytes_per_token == (model.kept or found.bytes_per_token)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_file_is_the_model_that_was_published(name: str) -> None:
    parameters, active, kept = PUBLISHED[name]
    found = counts(stack(FILES[name]))
    assert found.parameters / 1e9 == pytest.approx(parameters, rel=0.015)
    assert active is None or found.active / 1e9 == pytest.approx(active, rel=0.02)
    assert found.bytes_per_token == kept


@pytest.mark.parametrize("name", CONFIGS)
def test_a_file_is_read_at_once_and_drawn(name: str) -> None:
    began = time.process_time()
    found = recipe(CONFIGS[name], "m.json")
    assert time.process_time() - began < 0.2
    graph = expand(found | {"parameters": found["parameters"] | {"phase": "decode", "context": 300}})
    assert graph.kernels


def test_every_type_is_tried() -> None:
    tried = {text_of(config)["model_type"] for config in CONFIGS.values()}
    alike = {"qwen2", "mistral", "gemma", "qwen2_5_vl_text", "qwen3_vl_moe_text", "deepseek_v32", "kimi_k2", "glm"}
    alike |= {"qwen2_vl_text", "glm4v_text", "glm4v_moe_text", "minimax_m3_vl_text"}
    mixed = {
        name for sort in ("delta", "mamba", "compressed", "encoders") for name in SORTS[sort]
    }  # in files of their own
    assert set(FAMILIES) - tried - mixed <= alike  # as another one is, or tried in another file
    assert {kind for wrapper in WRAPPERS.values() for kind in wrapper.texts} <= set(FAMILIES)


# --- what layers are ----------------------------------------------------------------------------------------


def layers(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    found = recipe(CONFIGS[name], "m.json")["parameters"]
    return found["layers"], found["sections"]


def test_gemma_4_has_global_layers_with_other_heads_and_experts_beside_an_mlp() -> None:
    kinds, sections = layers("gemma-4-26b-a4b-nvfp4")
    assert sections == [{"layers": ["local"] * 5 + ["global"], "repeat": 5}]
    assert (kinds["local"]["mixer"]["head_dim"], kinds["local"]["mixer"]["kv_heads"]) == (256, 8)
    wide = {"head_dim": 512, "kv_heads": 2, "values": "keys", "rotary_dim": 128}
    assert wide.items() <= kinds["global"]["mixer"].items() and "window" not in kinds["global"]["mixer"]
    inside = {"experts": 128, "chosen": 8, "ffn": 704, "shared": 2112, "shared_norms": True}
    assert inside.items() <= kinds["local"]["feed_forward"].items()


def test_llama_4_has_experts_in_every_other_layer_and_no_positions_in_every_fourth() -> None:
    kinds, sections = layers("llama-4-maverick")
    order = ["chunked_dense", "chunked_experts", "chunked_dense", "global_experts"]
    assert sections == [{"layers": order, "repeat": 12}]
    assert kinds["chunked_dense"]["mixer"]["chunk"] == 8192 and kinds["chunked_dense"]["feed_forward"]["ffn"] == 16384
    assert kinds["global_experts"]["mixer"]["rotary_dim"] == 0
    assert kinds["global_experts"]["feed_forward"]["shared"] == 8192


def test_minimax_m3_reads_blocks_that_an_indexer_chooses() -> None:
    kinds, sections = layers("minimax-m3")
    assert sections == [{"layers": ["global_dense"], "repeat": 3}, {"layers": ["sparse_experts"], "repeat": 57}]
    indexer = {"heads": 4, "head_dim": 128, "top_k": 16, "block": 128, "reads": "hidden"}
    assert kinds["sparse_experts"]["mixer"]["sparse"] == indexer


def test_layers_share_what_an_indexer_chose() -> None:
    kinds, sections = layers("glm-5.2")
    assert kinds["shared_experts"]["mixer"]["sparse"]["shared"] is True
    assert sum(one.get("repeat", 1) * len(one["layers"]) for one in sections if not one.get("predicts")) == 78
    turns = FILES["glm-5.2"] | {"index_topk_freq": 4}
    del turns["indexer_types"]
    assert "index_topk_freq or index_topk_pattern say that layers differ" in refusal(turns)


def test_modules_that_predict_are_a_section_of_their_own() -> None:
    """One layer of MiMo, with two norms and a projection more: 7.83 billion parameters with it."""
    p = recipe(FILES["mimo-7b"], "m.json")
    assert p["parameters"]["sections"][-1] == {"layers": ["layer"], "predicts": True}
    assert "1 module that predicts further tokens not counted" in p["description"]
    assert counts(StackParameters(**p["parameters"], predict=True, phase="decode")).parameters == pytest.approx(
        7.834e9, rel=1e-3
    )


def test_the_text_model_alone_is_read_and_it_is_said() -> None:
    found = recipe(FILES["qwen3-vl-2b"], "qwen3-vl-2b/config.json")
    said = "qwen3_vl with 1.721 billion parameters of its text model, all in bfloat16, 114688 B kept of a token"
    assert found["description"].startswith(f"{said}; vision_config left out: only the text model is drawn and counted")
    inside = FILES["qwen3-vl-2b"]["text_config"]
    assert found["parameters"] == recipe(inside, "x.json")["parameters"]


def least(kinds: str) -> tuple[int, int]:
    """Layers in patterns, and sections, of the shortest way to say some layers."""
    if not kinds:
        return 0, 0
    found = []
    for period in range(1, len(kinds) + 1):
        for times in range(1, len(kinds) // period + 1):
            if kinds.startswith(kinds[:period] * times):
                rest = least(kinds[period * times :])
                found.append((period + rest[0], 1 + rest[1]))
    return min(found)


def test_an_older_file_has_the_fields_of_its_text_model_beside_the_tower() -> None:
    """Qwen2.5-VL 7B: 7.6 billion parameters without the tower, which has 0.68."""
    sizes = hf_models.config("qwen2_5_vl", 28, 3584, 28, 4, 18944, 152064, tie_word_embeddings=False)
    flat = sizes | {"vision_config": {"depth": 32}, "vision_start_token_id": 1, "use_sliding_window": False}
    found = recipe(flat, "m.json")
    assert found["description"].startswith("qwen2_5_vl with 7.616 billion parameters of its text model")
    assert "vision_config left out" in found["description"]
    assert "$.vision_tower: not understood" in refusal(flat | {"vision_tower": 1})


@given(st.text("abc", min_size=1, max_size=8))
def test_sections_say_the_layers_in_their_order_in_the_shortest_way(kinds: str) -> None:
    sections = in_sections(kinds)
    assert [name for one in sections for _ in range(one.get("repeat", 1)) for name in one["layers"]] == [*kinds]
    assert (sum(len(one["layers"]) for one in sections), len(sections)) == least(kinds)


# --- nothing is taken for granted ---------------------------------------------------------------------------


def text_of(config: dict[str, Any]) -> dict[str, Any]:
    inside = next((name for name in ("text_config", "llm_config", "thinker_config") if name in config), None)
    return text_of(config[inside]) if inside else config


@given(st.sampled_from(sorted(CONFIGS)), st.data())
def test_nothing_is_taken_for_granted_in_silence(name: str, data: st.DataObject) -> None:
    config = copy.deepcopy(CONFIGS[name])
    inner = text_of(config)
    explains_a_change(config, config if data.draw(st.booleans()) else inner, inner["model_type"], data)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("falcon-40b", {"ff_factor": 4, "apply_residual_connection_post_layernorm": False}),
        ("command-r", {"model_max_length": 131072, "pretraining_tp": 1}),
        ("command-r7b", {"use_embedding_sharing": True, "rotary_pct": 1.0, "router_jitter_noise": 0.1}),
        ("phi-4-mini", {"full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": False, "mlp_bias": False}),
        ("gpt-neox-20b", {"attention_probs_dropout_prob": 0, "hidden_dropout_prob": 0, "rotary_emb_base": 10000}),
        ("opt-6.7b", {"activation_dropout": 0.0, "_attn_implementation_autoset": True}),
        ("dots.llm1", {"use_sliding_window": False, "sliding_window": None, "max_window_layers": 62}),
        ("hunyuan-7b", {"num_experts": 1, "use_mla": False, "kv_lora_rank": None, "dense_list": [4096, 0]}),
        ("gemma-2-9b", {"sliding_window_size": 4096, "sliding_window": 4096}),
    ],
)
def test_what_published_files_have_beside_their_sizes_changes_nothing(name: str, more: dict[str, Any]) -> None:
    config = CONFIGS[name]
    assert recipe(config | more, "m.json")["parameters"] == recipe(config, "m.json")["parameters"]


def test_what_qwen3_has_anyway_may_be_said() -> None:
    config = json.loads((FOLDER / "qwen3-30b-a3b.json").read_text())
    more = {"qkv_bias": False, "use_qk_norm": True, "shared_expert_intermediate_size": 0}
    assert recipe(config | more, "m.json")["parameters"] == recipe(config, "m.json")["parameters"]
    assert "$.qkv_bias: found true, expected false" in refusal(config | {"qkv_bias": True})


def test_types_of_two_bytes_are_as_wide_as_each_other() -> None:
    config = copy.deepcopy(CONFIGS["llava-1.5-7b"])
    config["torch_dtype"] = "bfloat16"
    assert recipe(config, "m.json")["parameters"]["word_bytes"] == 2
    assert "found 'float16', but 'float32' beside it" in refusal(config | {"torch_dtype": "float32"})


def test_a_wrapper_may_have_the_sizes_of_its_text_model_beside_the_tower() -> None:
    sizes = hf_models.config("glm4v", 40, 4096, 32, 2, 13696, 151552, partial_rotary_factor=0.5, attention_bias=True)
    found = recipe(sizes | {"vision_config": {}}, "m.json")
    assert found["description"].startswith("glm4v with 9.4 billion parameters of its text model")
    phi = CONFIGS["phi-4-mini"] | {"model_type": "phi4mm", "embd_layer": {}, "vision_lora": {}, "speech_lora": {}}
    found = recipe(phi, "m.json")
    assert found["parameters"] == recipe(CONFIGS["phi-4-mini"], "m.json")["parameters"]
    assert "embd_layer and speech_lora and vision_lora left out" in found["description"]


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
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
    ],
)
def test_what_is_not_understood_is_refused_by_its_path(name: str, change: dict[str, Any], said: str) -> None:
    assert said in refusal(CONFIGS[name] | change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_kv_shared_layers": 10}, "$.text_config.num_kv_shared_layers: found 10, expected 0"),
        ({"hidden_size_per_layer_input": 256}, "$.text_config.hidden_size_per_layer_input: found 256, expected 0"),
        ({"num_experts": None}, "$.text_config.num_experts: found none, but enable_moe_block is true"),
        ({"use_double_wide_mlp": True}, "$.text_config.use_double_wide_mlp: found true, expected false"),
        ({"layer_types": ["chunked_attention"] * 30}, "$.text_config.layer_types: found a list of 30, expected"),
        ({"add_cross_attention": True}, "$.text_config.add_cross_attention: found true, expected false"),
        ({"num_key_value_heads": 5}, "$.text_config.num_key_value_heads: found 5 K/V heads"),
    ],
)
def test_what_a_text_model_has_is_refused_by_its_path_inside(change: dict[str, Any], said: str) -> None:
    config = copy.deepcopy(FILES["gemma-4-26b-a4b-nvfp4"])
    config["text_config"] |= change
    assert said in refusal(config)
