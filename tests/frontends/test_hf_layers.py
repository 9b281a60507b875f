"""What configs of Hugging Face models build: the layers, the parts that are left out, the types of weights."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hf_configs import CONFIGS, FILES, FOLDER, Config, inner, refusal, without
from hypothesis import given
from hypothesis import strategies as st

import dfopt as df
from dfopt.errors import DocumentError
from dfopt.frontends.hf import recipe
from dfopt.frontends.hf.layers import in_sections, put_together
from dfopt.search.verify import verify
from dfopt.workloads import expand
from dfopt.workloads.stack import StackParameters, counts


def layers(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    found = recipe(CONFIGS[name], "m.json")["parameters"]
    return found["layers"], found["sections"]


def order(name: str) -> list[str]:
    """Every layer by its kind, but for those that predict further tokens."""
    sections = [one for one in layers(name)[1] if "predicts" not in one]
    return [kind for one in sections for kind in one["layers"] * one.get("repeat", 1)]


def test_deepseek_v3_has_dense_layers_and_then_experts() -> None:
    graph = expand(recipe(FILES["deepseek-v3"], "m.json"))
    assert [(one.layers, one.repeat) for one in graph.sections or ()] == [(("dense",), 3), (("experts",), 58)]
    assert {kernel.experts.count for kernel in graph.kernels if kernel.experts} == {257}  # the shared one among them


def test_decode_of_deepseek_v3_on_eight_chips_is_proven_and_checked() -> None:
    graph = df.load_graph(FOLDER / "deepseek-v3.json", phase="decode", context=4096, microbatch=16, batch=16)
    result = df.optimize(graph, "h200-8", tp=8, sensitivity=False)
    assert result.status == "optimal" and result.gap == 0
    assert "layers of a kind alike" in result.proof
    assert [stage.runs for stage in result.score.stages] == [{0: 3, 1: 58, 2: 1, 3: 1}]
    found = verify(result)
    assert found.ok, found.problems
    assert found.verdict.startswith("verified optimal")


@pytest.mark.parametrize("kind", ["deepseek_v32", "glm_moe_dsa"])
def test_an_indexer_has_weights_and_keys_of_its_own(kind: str) -> None:
    """In each of 61 layers: queries of 64 heads, one key of 128 features and its norm, and a weight for each head."""
    indexer = {"index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048}
    known = without(FILES["deepseek-v3"], "auto_map") | {"model_type": kind}
    sparse, dense = (
        counts(StackParameters(**recipe(data, "m.json")["parameters"]))
        for data in (known | indexer, FILES["deepseek-v3"])
    )
    assert sparse.parameters - dense.parameters == 61 * (1536 * 64 * 128 + 7168 * (128 + 64) + 2 * 128)
    assert sparse.bytes_per_token - dense.bytes_per_token == 61 * 128 * 2
    assert "index_topk: missing" in refusal(known | without(indexer, "index_topk"))


def test_gpt_oss_has_a_window_of_128_tokens_in_every_other_layer_of_experts() -> None:
    found = recipe(FILES["gpt-oss-20b"], "gpt-oss-20b/config.json")
    assert found["parameters"]["sections"] == [{"layers": ["local", "global"], "repeat": 12}]
    assert found["parameters"]["dtypes"]["experts"] == "mxfp4"
    graph = df.load_graph(FOLDER / "gpt-oss-20b.json", phase="decode", context=4096, microbatch=8, batch=8)
    held = {s.tokens for kernel in graph.kernels for s in kernel.states or ()}
    assert min(held) <= 128 < max(held)


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
    turns = ["chunked_dense", "chunked_experts", "chunked_dense", "global_experts"]
    assert sections == [{"layers": turns, "repeat": 12}]
    assert kinds["chunked_dense"]["mixer"]["chunk"] == 8192 and kinds["chunked_dense"]["feed_forward"]["ffn"] == 16384
    assert kinds["global_experts"]["mixer"]["rotary_dim"] == 0
    assert kinds["global_experts"]["feed_forward"]["shared"] == 8192


def test_minimax_m3_reads_blocks_that_an_indexer_chooses() -> None:
    kinds, sections = layers("minimax-m3")
    assert sections == [{"layers": ["global_dense"], "repeat": 3}, {"layers": ["sparse_experts"], "repeat": 57}]
    indexer = {"heads": 4, "head_dim": 128, "top_k": 16, "block": 128, "reads": "hidden"}
    assert kinds["sparse_experts"]["mixer"]["sparse"] == indexer


def test_layers_share_what_an_indexer_chose() -> None:
    assert layers("glm-5.2")[0]["shared_experts"]["mixer"]["sparse"]["shared"] is True
    assert len(order("glm-5.2")) == 78
    turns = without(FILES["glm-5.2"], "indexer_types") | {"index_topk_freq": 4}
    assert "index_topk_freq or index_topk_pattern say that layers differ" in refusal(turns)


def test_layers_with_states_are_where_the_config_says() -> None:
    kimi = order("kimi-linear-48b")
    assert [place + 1 for place, name in enumerate(kimi) if name.startswith("latent")] == [4, 8, 12, 16, 20, 24, 27]
    assert kimi[0] == "kda_dense" and kimi[1:].count("kda_dense") == 0
    light = order("nemotron-3.5-lightning")
    assert (len(light), light.count("mamba"), light.count("experts"), light.count("attention")) == (52, 23, 23, 6)
    assert layers("nemotron-3.5-lightning")[1][-1] == {"layers": ["attention", "experts"], "predicts": True}
    every = ["mamba_dense", "mamba_experts"] * 2 + ["attention_dense", "mamba_experts", "mamba_dense", "mamba_experts"]
    assert layers("jamba-1.5-mini")[1] == [{"layers": every, "repeat": 4}]


def test_windows_of_modernbert_look_both_ways_in_two_of_three_layers() -> None:
    kinds, sections = layers("modernbert-base")
    assert sections == [{"layers": ["global", "local", "local"], "repeat": 7}, {"layers": ["global"]}]
    assert kinds["local"]["mixer"]["window"] == 64 + 1 + 64
    assert "window" not in kinds["global"]["mixer"]


@pytest.mark.parametrize(
    ("name", "tokens"), [("siglip-so400m", 27**2), ("clip-vit-large", 16**2 + 1), ("bge-m3", 8192)]
)
def test_an_image_is_its_patches_and_a_sentence_its_positions(name: str, tokens: int) -> None:
    assert recipe(CONFIGS[name], "config.json")["parameters"]["seq"] == tokens


def test_what_predicts_further_tokens_is_drawn_if_it_is_asked_for() -> None:
    """Super: attention and latent experts behind a projection of the embedding and of what the layers say."""
    asked = {"phase": "decode", "context": 4096, "predict": True}
    graph = df.load_graph(FOLDER / "nemotron-3-super.json", **asked)
    assert [one.layers for one in graph.sections or ()][-3:] == [
        ("predictor",), ("attention", "experts"), ("prediction",),
    ]  # fmt: skip


def test_modules_that_predict_are_a_section_of_their_own() -> None:
    """One layer of MiMo, with two norms and a projection more: 7.83 billion parameters with it."""
    p = recipe(FILES["mimo-7b"], "m.json")["parameters"]
    assert p["sections"][-1] == {"layers": ["layer"], "predicts": True}
    found = counts(StackParameters(**p, predict=True, phase="decode"))
    assert found.parameters == pytest.approx(7.834e9, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("deepseek-v3", "671 billion parameters, of which a token uses 36.63"),
        ("gpt-oss-20b", "experts in mxfp4, all else in bf16, 49152 B kept of a token"),
        ("gpt-oss-20b", "49152 B kept of a token; the config leaves out torch_dtype bfloat16"),
        ("qwen3.5-35b-a3b", "34.66 billion parameters of its text model, of which a token uses 2.946 billion"),
        ("qwen3.5-35b-a3b", "vision_config left out"),
        ("mimo-7b", "1 module that predicts further tokens not counted"),
        ("nemotron-3-super", "1 module that predicts further tokens not counted"),
        ("deepseek-v4-flash", "the table of experts by token of hashed layers left out"),
        ("nemotron-h-56b", "mamba_ssm_cache_dtype float32"),
        ("bert-base", "what a task adds left out (architectures ['BertForMaskedLM'])"),
        ("clip-vit-large", "0.3032 billion parameters of its image tower"),
        ("clip-vit-large", "text_config left out: only the image tower is drawn and counted"),
        ("whisper-large-v3", "the encoder, a model of its own, whose tokens the decoder attends to, left out"),
        ("siglip-so400m", "the attention that puts all patches together left out (vision_use_head True)"),
    ],
)
def test_what_is_drawn_and_what_is_left_out_is_said(name: str, said: str) -> None:
    assert said in recipe(CONFIGS[name], "config.json")["description"]


def test_the_text_model_alone_is_read_and_it_is_said() -> None:
    found = recipe(FILES["qwen3-vl-2b"], "qwen3-vl-2b/config.json")
    said = "qwen3_vl with 1.721 billion parameters of its text model, all in bfloat16, 114688 B kept of a token"
    assert found["description"].startswith(f"{said}; vision_config left out: only the text model is drawn and counted")
    assert found["parameters"] == recipe(FILES["qwen3-vl-2b"]["text_config"], "x.json")["parameters"]


def test_an_older_file_has_the_fields_of_its_text_model_beside_the_tower() -> None:
    """Qwen2.5-VL 7B: 7.6 billion parameters without the tower, which has 0.68."""
    sizes = inner(CONFIGS["internvl3-8b"]) | {"model_type": "qwen2_5_vl", "vocab_size": 152064}
    flat = sizes | {"vision_config": {"depth": 32}, "vision_start_token_id": 1, "use_sliding_window": False}
    found = recipe(flat, "m.json")
    assert found["description"].startswith("qwen2_5_vl with 7.616 billion parameters of its text model")
    assert "vision_config left out" in found["description"]
    assert "$.vision_tower: not understood" in refusal(flat | {"vision_tower": 1})


def test_a_wrapper_may_have_the_sizes_of_its_text_model_beside_the_tower() -> None:
    sizes = CONFIGS["glm-4-9b"] | {"model_type": "glm4v", "partial_rotary_factor": 0.5, "attention_bias": True}
    found = recipe(sizes | {"vision_config": {}}, "m.json")
    assert found["description"].startswith("glm4v with 9.4 billion parameters of its text model")
    phi = CONFIGS["phi-4-mini"] | {"model_type": "phi4mm", "embd_layer": {}, "vision_lora": {}, "speech_lora": {}}
    found = recipe(phi, "m.json")
    assert found["parameters"] == recipe(CONFIGS["phi-4-mini"], "m.json")["parameters"]
    assert "embd_layer and speech_lora and vision_lora left out" in found["description"]


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
        ("qwen3-30b-a3b", {"qkv_bias": False, "use_qk_norm": True, "shared_expert_intermediate_size": 0}),
    ],
)
def test_what_published_files_have_beside_their_sizes_changes_nothing(name: str, more: Config) -> None:
    config = CONFIGS[name]
    assert recipe(config | more, "m.json")["parameters"] == recipe(config, "m.json")["parameters"]


def test_types_of_two_bytes_are_as_wide_as_each_other() -> None:
    config = copy.deepcopy(CONFIGS["llava-1.5-7b"])
    config["torch_dtype"] = "bfloat16"
    assert recipe(config, "m.json")["parameters"]["word_bytes"] == 2
    assert "found 'float16', but 'float32' beside it" in refusal(config | {"torch_dtype": "float32"})


def test_types_of_experts_apart() -> None:
    """DeepSeek-V4-Flash: weights in fp8 with blocks, experts in fp4 with blocks of 32, shared ones as all else."""
    flash = FILES["deepseek-v4-flash"]
    found = recipe(flash, "config.json")["parameters"]
    assert found["dtypes"] == {
        "weights": "fp8_128x128_ue8m0", "experts": "mxfp4", "operands": "fp8_1x128_ue8m0", "activations": "bf16",
        "ends": "bf16",
    }  # fmt: skip
    assert all(layer["feed_forward"]["shared_apart"] for layer in found["layers"].values())
    bare = without(flash, "quantization_config")
    assert "$.expert_dtype: found a type of experts, but no quantization_config" in refusal(bare)


def test_descriptions_of_types_know_the_names_of_the_weights() -> None:
    """Experts alone are in nvfp4, as in nvidia/Qwen3.5-122B-A10B-NVFP4; or all that multiplies is in fp8."""
    config = FILES["qwen3.5-35b-a3b"]

    def types(said: Config) -> dict[str, str]:
        found: dict[str, str] = recipe(config | {"quantization_config": said}, "m.json")["parameters"]["dtypes"]
        return found

    places = [(place, "self_attn*" if place % 4 == 3 else "linear_attn*") for place in range(40)]
    kept = [name for place, own in places for name in (f"{place}.{own}", f"{place}.mlp.shared_expert*")]
    ignored = [f"model.language_model.layers.{name}" for name in kept]
    four = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
    groups = {"group_0": {"input_activations": four, "weights": four, "targets": ["Linear"]}}
    said = {"quant_method": "modelopt", "quant_algo": "NVFP4", "config_groups": groups}
    said |= {"ignore": ["lm_head", "model.visual*", "mtp*", *ignored], "producer": {"name": "modelopt"}}
    assert (types(said)["experts"], types(said)["weights"]) == ("nvfp4", "bf16")
    kept = [f"model.language_model.layers.{place}.linear_attn.in_proj_a" for place in range(40) if place % 4 != 3]
    fp8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    assert types(fp8 | {"modules_to_not_convert": ["lm_head", *kept]})["weights"] == "fp8_128x128"
    super_, named = FILES["nemotron-3-super"], ["backbone.layers.0.mixer.conv1d", "lm_head", "mtp*"]
    beside = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": named}}
    assert recipe(super_, "config.json", beside)["parameters"]["dtypes"]["weights"] == "fp8"
    named[0] = "backbone.layers.0.mixer.in_proj"
    with pytest.raises(DocumentError, match="attention of two types"):
        recipe(super_, "config.json", beside)


def test_layers_are_as_many_as_the_config_says() -> None:
    with pytest.raises(ValueError, match="types: found 2 of 3 layers"):
        put_together({"hidden": 8, "layers": 3}, {"a": {}, "b": {}}, "ab")


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


@given(st.text("abc", min_size=1, max_size=8))
def test_sections_say_the_layers_in_their_order_in_the_shortest_way(kinds: str) -> None:
    sections = in_sections(kinds)
    assert [name for one in sections for _ in range(one.get("repeat", 1)) for name in one["layers"]] == [*kinds]
    assert (sum(len(one["layers"]) for one in sections), len(sections)) == least(kinds)
