"""Configs of Hugging Face models, in files and written out here, with what was published of them.

``tests/golden/hf`` has some as published, but for the order of their lines: meta-llama/Meta-Llama-3.1-8B,
Qwen/Qwen3-8B, Qwen/Qwen3-30B-A3B, mistralai/Mixtral-8x7B-v0.1, deepseek-ai/DeepSeek-V3, openai/gpt-oss-20b,
XiaomiMiMo/MiMo-7B-Base, MiniMaxAI/MiniMax-M3, nvidia/MiniMax-M2.5-NVFP4, nvidia/Gemma-4-26B-A4B-NVFP4,
meta-llama/Llama-4-Maverick-17B-128E-Instruct, nvidia/Gemma-4-31B-IT-NVFP4, Qwen/Qwen3-VL-2B-Instruct,
moonshotai/Kimi-K2.5, nvidia/Kimi-K2.6-NVFP4, zai-org/GLM-5.2, Qwen/Qwen3.5-35B-A3B, nvidia/Nemotron-H-56B-Base-8K,
nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8, nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4 and
deepseek-ai/DeepSeek-V4-Flash. Sizes of layers with states: the config classes of transformers 5.23 and
``configuration_kimi.py``; of Kimi Linear the technical report (arXiv 2510.26692), of Jamba 1.5 Mini its model card.
Sizes of encoders: the config.json of answerdotai/ModernBERT-base, google-bert/bert-base-uncased, BAAI/bge-m3,
distilbert/distilbert-base-uncased, google/vit-base-patch16-224, openai/clip-vit-large-patch14,
google/siglip-so400m-patch14-384 and openai/whisper-large-v3; but for those of the zoo they are recalled, not
confirmed on the hub.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hf_models import MODELS, Published

from dfopt.errors import DocumentError
from dfopt.frontends.hf import recipe

Config = dict[str, Any]
FOLDER = Path(__file__).resolve().parents[1] / "golden" / "hf"
FILES: dict[str, Config] = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
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
STATES = {
    "qwen3-next-80b": NEXT, "kimi-linear-48b": KIMI, "mamba-130m": MAMBA, "mamba-codestral-7b": MAMBA2,
    "jamba-1.5-mini": JAMBA,
}  # fmt: skip
BERT: Config = {
    "model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 768, "num_hidden_layers": 12,
    "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 30522, "max_position_embeddings": 512,
    "type_vocab_size": 2, "hidden_act": "gelu", "position_embedding_type": "absolute", "torch_dtype": "float16",
    "gradient_checkpointing": False, "layer_norm_eps": 1e-12,
}  # fmt: skip
TOWER: Config = {
    "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
    "image_size": 224, "patch_size": 14, "num_channels": 3, "torch_dtype": "float16",
}  # fmt: skip
ENCODERS: dict[str, Config] = {
    "bert-base": BERT,
    "bge-m3": BERT | {
        "model_type": "xlm-roberta", "architectures": ["XLMRobertaModel"], "hidden_size": 1024, "vocab_size": 250002,
        "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096, "type_vocab_size": 1,
        "max_position_embeddings": 8194,
    },
    "distilbert-base": {
        "model_type": "distilbert", "activation": "gelu", "dim": 768, "hidden_dim": 3072, "n_heads": 12, "n_layers": 6,
        "max_position_embeddings": 512, "sinusoidal_pos_embds": False, "vocab_size": 30522, "torch_dtype": "float32",
    },
    "modernbert-base": {
        "model_type": "modernbert", "architectures": ["ModernBertForMaskedLM"], "hidden_size": 768, "vocab_size": 50368,
        "num_hidden_layers": 22, "num_attention_heads": 12, "intermediate_size": 1152, "hidden_activation": "gelu",
        "max_position_embeddings": 8192, "global_attn_every_n_layers": 3, "local_attention": 128, "norm_bias": False,
        "attention_bias": False, "mlp_bias": False, "torch_dtype": "float32", "position_embedding_type": "absolute",
    },
    "vit-b-16": TOWER | {
        "model_type": "vit", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "patch_size": 16,
        "intermediate_size": 3072, "qkv_bias": True, "hidden_act": "gelu",
    },
    "clip-vit-large": {
        "model_type": "clip", "architectures": ["CLIPModel"], "torch_dtype": "float32", "text_config": {},
        "logit_scale_init_value": 2.6592, "projection_dim": 768,
        "vision_config": TOWER | {"model_type": "clip_vision_model", "hidden_act": "quick_gelu", "torch_dtype": None},
    },
    "siglip-so400m": TOWER | {
        "model_type": "siglip_vision_model", "hidden_size": 1152, "num_hidden_layers": 27, "intermediate_size": 4304,
        "image_size": 384, "hidden_act": "gelu_pytorch_tanh", "vision_use_head": True,
    },
    "whisper-large-v3": {
        "model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"], "d_model": 1280,
        "decoder_attention_heads": 20, "decoder_ffn_dim": 5120, "decoder_layers": 32, "encoder_attention_heads": 20,
        "encoder_ffn_dim": 5120, "encoder_layers": 32, "num_hidden_layers": 32, "num_mel_bins": 128,
        "max_source_positions": 1500, "max_target_positions": 448, "vocab_size": 51866, "torch_dtype": "float16",
        "activation_function": "gelu", "is_encoder_decoder": True, "scale_embedding": False,
    },
}  # fmt: skip
CONFIGS = FILES | STATES | ENCODERS | {name: model.config for name, model in MODELS.items()}
# parameters in billions of the text model, of one token without the table, and bytes kept of a token (fp8: half)
SIZES: dict[str, tuple[float, float | None, int | None]] = {
    "llama-3.1-8b": (8.03, None, None),
    "qwen3-8b": (8.19, None, None),
    "mixtral-8x7b": (46.7, 12.9, None),
    "qwen3-30b-a3b": (30.5, 3.3 - 0.311, None),  # with the table, as published, 3.3
    "deepseek-v3": (671, 37, 61 * (512 + 64) * 2),  # arXiv 2412.19437
    "gpt-oss-20b": (20.9, 3.6, None),  # arXiv 2508.10925
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
    "qwen3.5-35b-a3b": (35, None, 10 * 2 * 2 * 256 * 2),
    "nemotron-h-56b": (56, None, 10 * 2 * 8 * 128 * 2),
    "nemotron-3-super": (120, None, 8 * 2 * 2 * 128 * 2),
    "nemotron-3.5-lightning": (31.6, None, 6 * 2 * 2 * 128 * 2),
    "deepseek-v4-flash": (284, None, 6880),
    "qwen3-next-80b": (80, None, 12 * 2 * 2 * 256 * 2),
    "kimi-linear-48b": (49, None, 7 * (512 + 64) * 2),
    "mamba-130m": (0.1291, None, 0),
    "mamba-codestral-7b": (7.28, None, 0),
    "jamba-1.5-mini": (51.6, None, 4 * 2 * 8 * 128 * 2),
    # encoders: those of the checkpoints without the heads of tasks, of which ViT's classifier has 0.8 million, and the
    # pooling head of SigLIP 15.2 of 428.2; of Whisper's 1543.5 those of the encoder are 637
    "bert-base": (0.1095, None, None),
    "bge-m3": (0.5678, None, None),
    "distilbert-base": (0.0664, None, None),
    "modernbert-base": (0.149, None, None),
    "vit-b-16": (0.0866 - 0.0008, None, None),
    "clip-vit-large": (0.3032, None, None),
    "siglip-so400m": (0.4282 - 0.0152, None, None),
    "whisper-large-v3": (1.5435 - 0.637, None, None),
}
PUBLISHED = MODELS | {name: Published(CONFIGS[name], *sizes) for name, sizes in SIZES.items()}


def inner(config: Config) -> Config:
    """The part of a config that has the sizes of the model that is drawn."""
    parts = ("vision_config",) if config["model_type"] == "clip" else ("text_config", "llm_config", "thinker_config")
    inside = next((name for name in parts if name in config), None)
    return inner(config[inside]) if inside else config


def without(config: Config, *fields: str) -> Config:
    """A config with some fields left out."""
    return {name: value for name, value in config.items() if name not in fields}


def refusal(config: Config) -> str:
    """What is said of a config that is refused."""
    with pytest.raises(DocumentError) as caught:
        recipe(config, "model/config.json")
    return str(caught.value)
