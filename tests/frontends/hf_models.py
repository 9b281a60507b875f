"""Configs of published models, each with what its makers publish of it: parameters in billions, and of one token.

Sizes: the config.json of each model on the Hugging Face hub; counts: model cards, and the checkpoints' own. From
CodeGen on both are recalled, unconfirmed by the hub. Of those for which transformers 5.23 has a class that can be built
from these fields, what it counts was compared, and is the same to 0.01 %: not of Hunyuan A13B, K-EXAONE, Step, Mistral
Small 4, of types without a class, and of text models inside others. What is marked "as counted" is of no card, but what
transformers itself counts. Of what a token uses no table counts in which it looks up a row, see
``dfopt.workloads.stack.Counts``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Config = dict[str, Any]


class Published(NamedTuple):
    """A config, its parameters in billions, those of one token, and bytes kept of a token in 16 bits."""

    config: Config
    parameters: float
    active: float | None = None
    kept: int | None = None


def config(
    kind: str, layers: int, hidden: int, heads: int, kv_heads: int | None, ffn: int, vocab: int, **more: Any
) -> Config:
    """A config with the usual names of sizes; those that are none are left out."""
    sizes = {
        "model_type": kind,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        "max_position_embeddings": 4096,
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
    } | more
    return {name: value for name, value in sizes.items() if value is not None}


def gpt(kind: str, layers: int, hidden: int, heads: int, vocab: int, **more: Any) -> Config:
    sizes = {"n_layer": layers, "n_embd": hidden, "n_head": heads, "n_positions": 2048, "n_inner": None}
    return {"model_type": kind, "vocab_size": vocab, "activation_function": "gelu_new", **sizes, **more}


_LATENT = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
_LETTERS = {"L": "sliding_attention", "G": "full_attention", "C": "chunked_attention"}


def kinds(pattern: str, layers: int) -> list[str]:
    return [_LETTERS[pattern[place % len(pattern)]] for place in range(layers)]


def places(layers: int, attention: tuple[int, ...], usual: str, other: str) -> list[str]:
    return [other if place in attention else usual for place in range(layers)]


def mamba(heads: int, dim: int | str, state: int, **more: Any) -> Config:
    sizes = {"mamba_n_heads": heads, "mamba_d_head": dim, "mamba_d_state": state, "mamba_n_groups": 1}
    return {**sizes, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 256, **more}


def wrapped(kind: str, inner: Config, inside: str = "text_config", **more: Any) -> Config:
    return {"model_type": kind, inside: inner, "vision_config": {"hidden_size": 1024}, **more}


def thinking(kind: str, inner: Config) -> Config:
    parts = {"audio_config": {}, "vision_config": {}, "audio_token_id": 1, "position_id_per_seconds": 25}
    thinker = {"model_type": f"{kind}_thinker", "text_config": inner, **parts}
    return {"model_type": kind, "thinker_config": thinker, "talker_config": {}, "enable_audio_output": True}


MODELS: dict[str, Published] = {
    "phi-3-mini": Published(config("phi3", 32, 3072, 32, 32, 8192, 32064, sliding_window=2047), 3.82),
    "phi-4": Published(config("phi3", 40, 5120, 40, 10, 17920, 100352), 14.66),
    "phi-4-mini": Published(
        config("phi3", 32, 3072, 24, 8, 8192, 200064, tie_word_embeddings=True, partial_rotary_factor=0.75), 3.84
    ),
    "olmo-2-7b": Published(config("olmo2", 32, 4096, 32, None, 11008, 100352), 7.3),
    "olmo-3-7b": Published(config("olmo3", 32, 4096, 32, 32, 11008, 100278), 7.3),
    "qwen1.5-moe-a2.7b": Published(
        config(
            "qwen2_moe", 24, 2048, 16, 16, 5632, 151936, num_experts=60, num_experts_per_tok=4,
            moe_intermediate_size=1408, shared_expert_intermediate_size=5632, decoder_sparse_step=1,
        ), 14.3, 2.7 - 0.311,
    ),
    "qwen2-57b-a14b": Published(
        config(
            "qwen2_moe", 28, 3584, 28, 4, 18944, 151936, num_experts=64, num_experts_per_tok=8,
            moe_intermediate_size=2560, shared_expert_intermediate_size=20480, decoder_sparse_step=1,
        ), 57.4, 14.2 - 0.545,
    ),
    "granite-3.1-8b": Published(
        config("granite", 40, 4096, 32, 8, 12800, 49155, tie_word_embeddings=True, logits_scaling=16.0), 8.17
    ),
    "command-r": Published(config("cohere", 40, 8192, 64, 64, 22528, 256000), 34.98),
    "command-r-plus": Published(config("cohere", 64, 12288, 96, 8, 33792, 256000, use_qk_norm=True), 103.8),
    "command-r7b": Published(config("cohere2", 32, 4096, 32, 8, 14336, 256000), 8.03),
    "starcoder2-3b": Published(config("starcoder2", 30, 3072, 24, 2, 12288, 49152, hidden_act="gelu"), 3.03),
    "starcoder2-7b": Published(
        config("starcoder2", 32, 4608, 36, 4, 18432, 49152, hidden_act="gelu", sliding_window=4096), 7.17
    ),
    "glm-4-9b": Published(config("glm4", 40, 4096, 32, 2, 13696, 151552), 9.4),
    "glm-4.5": Published(
        config(
            "glm4_moe", 92, 5120, 96, 8, 12288, 151552, head_dim=128, n_routed_experts=160, num_experts_per_tok=8,
            moe_intermediate_size=1536, first_k_dense_replace=3, use_qk_norm=True, attention_bias=True,
            num_nextn_predict_layers=1,
        ), 353,
    ),
    "glm-4.5-air": Published(
        config(
            "glm4_moe", 46, 4096, 96, 8, 10944, 151552, head_dim=128, n_routed_experts=128, num_experts_per_tok=8,
            moe_intermediate_size=1408, attention_bias=True,
        ), 106.85,
    ),
    "glm-4.7-flash": Published(
        config(
            "glm4_moe_lite", 47, 2048, 20, 20, 10240, 154880, n_routed_experts=64, num_experts_per_tok=4,
            n_shared_experts=1, first_k_dense_replace=1, moe_intermediate_size=1536, q_lora_rank=768,
            **(_LATENT | {"qk_nope_head_dim": 192, "v_head_dim": 256}),
        ), 29.9,
    ),
    "ernie-4.5-0.3b": Published(config("ernie4_5", 18, 1024, 16, 2, 3072, 103424), 0.361),
    "ernie-4.5-21b-a3b": Published(
        config(
            "ernie4_5_moe", 28, 2560, 20, 4, 12288, 103424, moe_num_experts=64, moe_k=6, moe_intermediate_size=1536,
            moe_layer_start_index=1,
        ), 21.8,
    ),
    "smollm3-3b": Published(config("smollm3", 36, 2048, 16, 4, 11008, 128256), 3.08),
    "exaone-4.0-32b": Published(
        config("exaone4", 64, 5120, 40, 8, 27392, 102400, sliding_window_pattern="LLLG", layer_types=kinds("LLLG", 64)),
        32.0,
    ),
    "hunyuan-7b": Published(
        config("hunyuan_v1_dense", 32, 4096, 32, 8, 14336, 128167, tie_word_embeddings=True, use_qk_norm=True), 7.5
    ),
    "dots.llm1": Published(
        config(
            "dots1", 62, 4096, 32, 32, 10944, 152064, n_routed_experts=128, n_shared_experts=2, num_experts_per_tok=6,
            first_k_dense_replace=1, moe_intermediate_size=1408,
        ), 142.8, 14 - 0.623,
    ),
    "seed-oss-36b": Published(config("seed_oss", 64, 5120, 80, 8, 27648, 155136, head_dim=128), 36.15),
    "ministral-3-8b": Published(config("ministral3", 34, 4096, 32, 8, 14336, 131072, head_dim=128), 8.49),
    "apertus-8b": Published(config("apertus", 32, 4096, 32, 8, 21504, 131072, hidden_act="xielu"), 8.05),
    "afm-4.5b": Published(config("arcee", 36, 2560, 20, 4, 18432, 128004, head_dim=128, hidden_act="relu2"), 4.62),
    "nemotron-mini-4b": Published(config("nemotron", 32, 3072, 24, 8, 9216, 256000, hidden_act="relu2"), 4.19),
    "stablelm-2-12b": Published(
        config("stablelm", 40, 5120, 32, 8, 13824, 100352, qk_layernorm=True, use_parallel_residual=True), 12.14
    ),
    "granite-3.1-3b-a800m": Published(
        config(
            "granitemoe", 32, 1536, 24, 8, 512, 49155, num_local_experts=40, num_experts_per_tok=8,
            tie_word_embeddings=True,
        ), 3.3,
    ),
    "olmoe-1b-7b": Published(
        config("olmoe", 16, 2048, 16, 16, 1024, 50304, num_experts=64, num_experts_per_tok=8), 6.92, 1.28 - 0.103
    ),
    "phi-3.5-moe": Published(
        config(
            "phimoe", 32, 4096, 32, 8, 6400, 32064, num_local_experts=16, num_experts_per_tok=2, attention_bias=True,
            lm_head_bias=True,
        ), 41.9, 6.6 - 0.131,
    ),
    "internlm2-7b": Published(config("internlm2", 32, 4096, 32, 8, 14336, 92544, bias=False), 7.74),
    "deepseek-v2-lite": Published(
        config(
            "deepseek_v2", 27, 2048, 16, 16, 10944, 102400, n_routed_experts=64, n_shared_experts=2,
            num_experts_per_tok=6, first_k_dense_replace=1, moe_intermediate_size=1408, q_lora_rank="null", **_LATENT,
        ), 15.706, None, 31104,
    ),
    "deepseek-v2": Published(
        config(
            "deepseek_v2", 60, 5120, 128, 128, 12288, 102400, n_routed_experts=160, n_shared_experts=2,
            num_experts_per_tok=6, first_k_dense_replace=1, moe_intermediate_size=1536, q_lora_rank=1536, **_LATENT,
        ), 235.7, 21 - 0.2,
    ),
    "gemma-2-9b": Published(
        config("gemma2", 42, 3584, 16, 8, 14336, 256000, head_dim=256, hidden_act=None), 9.241, None, 344064
    ),
    "gemma-2-27b": Published(
        config("gemma2", 46, 4608, 32, 16, 36864, 256000, head_dim=128, hidden_act=None), 27.23, None, 376832
    ),
    "gemma-3-27b": Published(
        config("gemma3_text", 62, 5376, 32, 16, 21504, 262144, head_dim=128, hidden_act=None, sliding_window=1024),
        27.01, None, 507904,
    ),
    "llama-4-scout": Published(
        config(
            "llama4_text", 48, 5120, 40, 8, 8192, 202048, intermediate_size_mlp=16384, num_local_experts=16,
            num_experts_per_tok=1,
        ), 107.8, None, 196608,
    ),
    "gpt2": Published(gpt("gpt2", 12, 768, 12, 50257, n_positions=1024), 0.1244, None, 2 * 36864),
    "gpt-j-6b": Published(gpt("gptj", 28, 4096, 16, 50400, rotary_dim=64, torch_dtype="float16"), 6.05, None, 458752),
    "gpt-neox-20b": Published(config("gpt_neox", 44, 6144, 64, None, 24576, 50432, hidden_act="gelu_fast"), 20.55),
    "opt-6.7b": Published(
        config("opt", 32, 4096, 32, None, None, 50272, ffn_dim=16384, hidden_act=None, activation_function="relu"), 6.66
    ),
    "bloom-7b1": Published(
        {"model_type": "bloom", "n_layer": 30, "n_embed": 4096, "num_attention_heads": 32, "vocab_size": 250880}
        | {"torch_dtype": "float16", "seq_length": 2048}, 7.07,
    ),
    "falcon-7b": Published(
        {"model_type": "falcon", "num_hidden_layers": 32, "hidden_size": 4544, "num_attention_heads": 71}
        | {"vocab_size": 65024, "torch_dtype": "bfloat16", "alibi": False, "new_decoder_architecture": False}, 6.92,
    ),
    "falcon-40b": Published(
        {"model_type": "falcon", "num_hidden_layers": 60, "hidden_size": 8192, "num_attention_heads": 128}
        | {"vocab_size": 65024, "torch_dtype": "bfloat16", "num_kv_heads": 8, "new_decoder_architecture": True}, 41.3,
    ),
    "codegen-6b": Published(gpt("codegen", 33, 4096, 16, 51200, rotary_dim=64, torch_dtype="float16"), 7.07),
    # counted of the checkpoint
    "gpt-neo-1.3b": Published(
        {"model_type": "gpt_neo", "num_layers": 24, "hidden_size": 2048, "num_heads": 16, "vocab_size": 50257}
        | {"max_position_embeddings": 2048, "intermediate_size": None, "activation_function": "gelu_new"}
        | {"attention_types": [[["global", "local"], 12]], "attention_layers": ["global", "local"] * 12}
        | {"window_size": 256, "embed_dropout": 0, "resid_dropout": 0}, 1.3156,
    ),
    "starcoder": Published(gpt("gpt_bigcode", 40, 6144, 48, 49152, n_positions=8192, n_inner=24576), 15.5),
    "mpt-7b": Published(
        {"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "vocab_size": 50432, "no_bias": True}
        | {"attn_config": {"attn_type": "multihead_attention", "alibi": True, "qk_ln": False, "prefix_lm": False}}
        | {"expansion_ratio": 4, "max_seq_len": 2048, "torch_dtype": "bfloat16"}, 6.65,
    ),
    "phi-2": Published(config("phi", 32, 2560, 32, 32, 10240, 51200, partial_rotary_factor=0.4), 2.78),
    # keys and values of a token in three layers
    "bamba-9b": Published(
        config("bamba", 32, 4096, 32, 8, 14336, 128256, attn_layer_indices=[9, 18, 27], **mamba(128, 64, 128)),
        9.78, None, 3 * 4096,
    ),
    "granite-4.0-h-small": Published(
        config(
            "granitemoehybrid", 40, 4096, 32, 8, 768, 100352, num_local_experts=72, num_experts_per_tok=10,
            shared_intermediate_size=1536, tie_word_embeddings=True, position_embedding_type="nope",
            layer_types=places(40, (5, 15, 25, 35), "mamba", "attention"), **mamba(128, 64, 128),
        ), 32.2, None, 4 * 4096,  # 8.8 of a token, which its card rounds to 9
    ),
    "granite-4.0-h-micro": Published(
        config(
            "granitemoehybrid", 40, 2048, 32, 8, 8192, 100352, num_local_experts=0, num_experts_per_tok=0,
            shared_intermediate_size=8192, tie_word_embeddings=True, position_embedding_type="nope",
            layer_types=places(40, (5, 15, 25, 35), "mamba", "attention"), **mamba(64, "auto", 128),
        ), 3.19, None, 4 * 2048,
    ),
    "falcon-h1-7b": Published(
        config(
            "falcon_h1", 44, 3072, 12, 2, 12288, 130048, head_dim=128, mamba_rms_norm=False, attn_layer_indices="null",
            **mamba(24, 128, 256, mamba_d_ssm=3072),
        ), 7.59, None, 44 * 1024,
    ),
    "lfm2-1.2b": Published(
        config(
            "lfm2", 16, 2048, 32, 8, None, 65536, hidden_act=None, block_ff_dim=12288, block_auto_adjust_ff_dim=True,
            block_ffn_dim_multiplier=1.0, block_multiple_of=256, conv_L_cache=3, conv_bias=False, conv_dim=2048,
            full_attn_idxs=[2, 5, 8, 10, 12, 14], num_heads=32, use_pos_enc=True,
        ), 1.17, None, 6 * 2048,
    ),
    "lfm2-8b-a1b": Published(
        config(
            "lfm2_moe", 24, 2048, 32, 8, 7168, 65536, hidden_act=None, conv_L_cache=3, conv_bias=False, num_experts=32,
            num_experts_per_tok=4, moe_intermediate_size=1792, num_dense_layers=2, use_expert_bias=True,
            layer_types=places(24, (2, 6, 10, 14, 18, 21), "conv", "full_attention"),
        ), 8.34, None, 6 * 2048,  # 1.56 of a token, of which its card says 1.5
    ),
    "ling-mini-2.0": Published(
        config(
            "bailing_moe_v2", 20, 2048, 16, 4, 5120, 157184, head_dim=128, num_experts=256, num_experts_per_tok=8,
            num_shared_experts=1, moe_intermediate_size=512, moe_shared_expert_intermediate_size=512,
            first_k_dense_replace=1, use_qk_norm=True, use_qkv_bias=False, use_bias=False, partial_rotary_factor=0.5,
            moe_router_enable_expert_bias=True, n_group=8, topk_group=4,
        ), 16.26, 0.789 + 0.322, 20 * 2048,  # "789M" without the two tables
    ),
    "ling-lite": Published(
        config(
            "bailing_moe", 28, 2048, 16, 4, 5632, 126464, head_dim=128, num_experts=64, num_experts_per_tok=6,
            num_shared_experts=2, moe_intermediate_size=1408, first_k_dense_replace=0, use_qkv_bias=False,
        ), 16.8, 2.75 - 0.259,
    ),
    "deepseek-moe-16b": Published(
        config(
            "deepseek", 28, 2048, 16, 16, 10944, 102400, n_routed_experts=64, num_experts_per_tok=6, n_shared_experts=2,
            moe_intermediate_size=1408, first_k_dense_replace=1, moe_layer_freq=1,
        ), 16.4, 2.83 - 0.21,
    ),
    "dbrx": Published(
        {"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "max_seq_len": 32768}
        | {"vocab_size": 100352, "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500000}}
        | {"torch_dtype": "bfloat16"}
        | {"ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4, "moe_loss_weight": 0.05}},
        131.6, 36,
    ),
    "hunyuan-a13b": Published(
        config(
            "hunyuan_v1_moe", 32, 4096, 32, 8, 3072, 128167, attention_head_dim=128, num_experts=64,
            moe_topk=[8] * 32, num_shared_expert=[1] * 32, moe_intermediate_size=[3072] * 32, moe_layer_num_skipped=0,
            tie_word_embeddings=True, use_qk_norm=True, use_mixed_mlp_moe=True, use_cla=False, use_mla=False,
        ), 80.4, 13,
    ),
    "k-exaone-236b": Published(
        config(
            "exaone_moe", 48, 6144, 64, 8, 18432, 153600, head_dim=128, num_experts=128, num_experts_per_tok=8,
            num_shared_experts=1, moe_intermediate_size=2048, first_k_dense_replace=1, sliding_window=128,
            sliding_window_pattern="LLLG", num_nextn_predict_layers=1,
        ), 236, 23,
    ),
    "hy-3": Published(
        config(
            "hy_v3", 80, 4096, 64, 8, 13312, 120832, head_dim=128, num_experts=192, num_experts_per_tok=8,
            num_shared_experts=1, moe_intermediate_size=1536, first_k_dense_replace=1, router_scaling_factor=2.826,
        ), 295, 21 - 0.495,
    ),
    "solar-open-100b": Published(
        config(
            "solar_open", 48, 4096, 64, 8, 10240, 196608, head_dim=128, n_routed_experts=128, num_experts_per_tok=8,
            n_shared_experts=1, moe_intermediate_size=1280, first_k_dense_replace=0, partial_rotary_factor=1.0,
        ), 102.6, 12 - 0.805,
    ),
    "trinity-mini": Published(
        config(
            "afmoe", 32, 2048, 32, 4, 6144, 200192, head_dim=128, num_experts=128, num_experts_per_tok=8,
            num_shared_experts=1, moe_intermediate_size=1024, num_dense_layers=2, sliding_window=2048,
            global_attn_every_n_layers=4, route_scale=2.826,
        ), 26.1,
    ),
    # as counted
    "flex-olmo-7x7b": Published(
        config("flex_olmo", 32, 4096, 32, 32, 11008, 100352, num_experts=7, num_experts_per_tok=5), 33.3
    ),
    "granite-moe-shared": Published(
        config(
            "granitemoeshared", 32, 1536, 24, 8, 512, 49155, num_local_experts=62, num_experts_per_tok=6,
            shared_intermediate_size=1024, tie_word_embeddings=True,
        ), 5.112,  # as counted
    ),
    "qwen-7b": Published(
        config(
            "qwen", 32, 4096, 32, None, 22016, 151936, hidden_act=None, kv_channels=128, no_bias=True, seq_length=8192,
            bf16=True, fp16=False, torch_dtype=None, rotary_pct=1.0,
        ), 7.72,
    ),
    "baichuan2-7b": Published(config("baichuan", 32, 4096, 32, None, 11008, 125696, model_max_length=4096), 7.51),
    "baichuan2-13b": Published(
        config("baichuan", 40, 5120, 40, None, 13696, 125696, model_max_length=4096, max_position_embeddings=None), 13.9
    ),
    "chatglm3-6b": Published(
        {"model_type": "chatglm", "num_layers": 28, "hidden_size": 4096, "num_attention_heads": 32, "kv_channels": 128}
        | {"ffn_hidden_size": 13696, "padded_vocab_size": 65024, "seq_length": 8192, "torch_dtype": "float16"}
        | {"add_bias_linear": False, "add_qkv_bias": True, "multi_query_attention": True, "multi_query_group_num": 2}
        | {"rmsnorm": True, "post_layer_norm": True, "original_rope": True, "architectures": ["ChatGLMModel"]},
        6.24, None, 28 * 2 * 2 * 128 * 2,
    ),
    "exaone-3.5-7.8b": Published(
        config("exaone", 32, 4096, 32, 8, 14336, 102400, hidden_act=None, activation_function="silu", embed_dropout=0.0)
        | {"num_layers": 32}, 7.82,
    ),
    "minicpm-2b": Published(config("minicpm", 40, 2304, 36, 36, 5760, 122753, scale_emb=12), 2.72),
    "minicpm3-4b": Published(
        config(
            "minicpm3", 62, 2560, 40, 40, 6400, 73448, q_lora_rank=768, kv_lora_rank=256, qk_nope_head_dim=64,
            qk_rope_head_dim=32, tie_word_embeddings=True,
        ), 4.07,
    ),
    "youtu-llm-2b": Published(
        config("youtu", 32, 2048, 16, 16, 6144, 128256, q_lora_rank=1536, tie_word_embeddings=True, **_LATENT), 1.96
    ),
    "mistral-small-4": Published(
        config(
            "mistral4", 36, 4096, 32, 32, 12288, 131072, n_routed_experts=128, num_experts_per_tok=4,
            n_shared_experts=1, first_k_dense_replace=0, moe_intermediate_size=2048, q_lora_rank=1024,
            **(_LATENT | {"kv_lora_rank": 256, "qk_nope_head_dim": 64}),
        ), 119,
    ),
    "internlm3-8b": Published(
        config("internlm3", 48, 4096, 32, 2, 10240, 128512, head_dim=128, bias=False, qkv_bias=False), 8.80
    ),
    "olmo-7b": Published(config("olmo", 32, 4096, 32, 32, 11008, 50304, clip_qkv=None), 6.89),
    # as counted
    "helium-1-2b": Published(config("helium", 24, 2560, 20, 20, 7040, 48000, head_dim=128), 2.17),
    "ministral-8b": Published(
        config("ministral", 36, 4096, 32, 8, 12288, 131072, head_dim=128, sliding_window=32768), 8.02
    ),
    # as counted
    "cwm-32b": Published(
        config("cwm", 64, 6144, 48, 8, 21504, 128256, head_dim=128, sliding_window=8192), 32.6
    ),
    # as counted
    "jais-2-8b": Published(config("jais2", 32, 3328, 26, 26, 26624, 150272, head_dim=128, hidden_act="relu2"), 8.09),
    # text models of others: the sizes of Vicuna 7B, Mistral 7B, Gemma 2B, SmolLM2, Qwen2.5 7B, Qwen3 30B, Moonlight
    "llava-1.5-7b": Published(
        wrapped(
            "llava", {"model_type": "llama", "max_position_embeddings": 4096, "torch_dtype": "float16"}
            | {"vocab_size": 32064, "rms_norm_eps": 1e-05}, image_token_index=32000, projector_hidden_act="gelu",
        ), 6.74,
    ),
    "llava-1.6-mistral-7b": Published(
        wrapped(
            "llava_next", {"model_type": "mistral", "max_position_embeddings": 32768, "torch_dtype": "float16"}
            | {"vocab_size": 32064, "sliding_window": None, "num_key_value_heads": 8, "intermediate_size": 14336},
            image_grid_pinpoints=[[336, 672]],
        ), 7.24,
    ),
    "paligemma-3b": Published(
        wrapped(
            "paligemma", {"model_type": "gemma", "hidden_size": 2048, "intermediate_size": 16384, "vocab_size": 257216}
            | {"num_attention_heads": 8, "num_hidden_layers": 18, "num_key_value_heads": 1, "torch_dtype": "float32"}
            | {"num_image_tokens": 256}, hidden_size=2048, projection_dim=2048,
        ), 2.51,
    ),
    "smolvlm-2b": Published(
        wrapped(
            "idefics3", config("llama", 24, 2048, 32, 32, 8192, 49155, head_dim=64, tie_word_embeddings=False)
            | {"qk_layer_norms": False, "pixel_shuffle_factor": 3}, scale_factor=3,
        ), 1.81,
    ),
    "internvl3-8b": Published(
        wrapped(
            "internvl_chat", config("qwen2", 28, 3584, 28, 4, 18944, 151674, tie_word_embeddings=False), "llm_config",
            architectures=["InternVLChatModel"], template="internvl2_5", select_layer=-1, downsample_ratio=0.5,
        ), 7.61,
    ),
    "qwen2.5-omni-7b": Published(
        thinking("qwen2_5_omni", config("qwen2_5_omni_text", 28, 3584, 28, 4, 18944, 152064, init_std=0.02)), 7.62
    ),
    "qwen3-omni-30b-a3b": Published(
        thinking(
            "qwen3_omni_moe",
            config(
                "qwen3_omni_moe_text", 48, 2048, 32, 4, 768, 152064, head_dim=128, num_experts=128,
                num_experts_per_tok=8, moe_intermediate_size=768, decoder_sparse_step=1, mlp_only_layers=[],
                tie_word_embeddings=False,
            ),
        ), 30.5, 3.3 - 0.311,
    ),
    "kimi-vl-a3b": Published(
        wrapped(
            "kimi_vl",
            config(
                "deepseek_v3", 27, 2048, 16, 16, 11264, 163840, q_lora_rank=None, n_routed_experts=64,
                num_experts_per_tok=6, n_shared_experts=2, first_k_dense_replace=1, moe_layer_freq=1,
                moe_intermediate_size=1408, **_LATENT,
            ) | {"q_lora_rank": None}, media_placeholder_token_id=163605,
        ), 15.96,
    ),
    # heads of layers with a window are others
    # as counted
    "laguna-s-2.1": Published(
        config(
            "laguna", 48, 3072, 48, 8, 12288, 100352, head_dim=128, num_experts=256, num_experts_per_tok=10,
            moe_intermediate_size=1024, shared_expert_intermediate_size=1024, gating="per-head", sliding_window=512,
            gating_types=["per_head"] * 48, layer_types=kinds("GLLL", 48), mlp_only_layers=[0], decoder_sparse_step=1,
            mlp_layer_types=["dense"] + ["sparse"] * 47, num_attention_heads_per_layer=[48, 72, 72, 72] * 12,
        ), 118, 8, 48 * 4096,
    ),
    "mimo-v2-flash": Published(
        config(
            "mimo_v2_flash", 48, 4096, 64, 4, 16384, 152576, head_dim=192, v_head_dim=128, n_routed_experts=256,
            num_experts_per_tok=8, moe_intermediate_size=2048, sliding_window=128, sliding_window_size=128,
            swa_num_key_value_heads=8, swa_head_dim=192, swa_v_head_dim=128, add_swa_attention_sink_bias=True,
            add_full_attention_sink_bias=False, partial_rotary_factor=0.334, moe_layer_freq=[0] + [1] * 47,
            hybrid_layer_pattern=[int(place > 0 and (place + 1) % 6 > 0) for place in range(48)],
        ), 309, 15, (9 * 4 + 39 * 8) * 320 * 2,
    ),
    "step-3.5-flash": Published(
        config(
            "step3p5", 45, 4096, 64, None, 11264, 128896, num_attention_groups=8, head_dim=128, sliding_window=512,
            layer_types=kinds("GLLL", 48), moe_layers_enum=",".join(map(str, range(3, 45))), moe_num_experts=288,
            moe_top_k=8, moe_intermediate_size=1280, share_expert_dim=1280, num_nextn_predict_layers=3,
            use_head_wise_attn_gate=True, use_moe_router_bias=True, yarn_only_types=["full_attention"],
            attention_other_setting={
                "attention_type": "sliding_attention", "num_attention_heads": 96, "num_attention_groups": 8,
                "head_dim": 128, "true_head_dim": 128,
            },
        ), 196.5, None, 45 * 4096,  # 11.46 of a token, 10.93 in its layers: "11B"
    ),
}  # fmt: skip
MODELS["falcon-h1-7b"].config["attn_layer_indices"] = None
MODELS["deepseek-v2-lite"].config["q_lora_rank"] = None
