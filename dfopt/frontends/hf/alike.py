"""Hugging Face configs of decoders whose layers are all alike: Llama, Mistral, Mixtral, Qwen 2 and 3, the first Gemma.

They have the rows of :data:`dfopt.frontends.hf.rows.FIELDS`. Sources: the config classes of transformers 4.46.3
(Qwen3: 4.51) and 5.23.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dfopt.frontends.hf.fields import BLOCKS, Family, heads_of

__all__ = ["ALIKE_FAMILIES"]

_WINDOWS: Final = ("use_sliding_window", "sliding_window", "layer_types")
ALIKE_FAMILIES: Final[Mapping[str, Family]] = {
    "llama": Family(
        left_out={
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": False,
            "num_key_value_heads": heads_of,
        },
        also=("mlp_bias",),
        names={"max_sequence_length": "max_position_embeddings"},
        heads_share_hidden=True,
    ),
    "mistral": Family(
        left_out={"tie_word_embeddings": False, "sliding_window": 4096},
        also=("sliding_window", "layer_types"),
        heads_share_hidden=True,
    ),
    "qwen2": Family(
        always={"bias": "qkv"},
        left_out={"tie_word_embeddings": False, "use_sliding_window": False},
        also=_WINDOWS,
        heads_share_hidden=True,
    ),
    "qwen3": Family(left_out={"attention_bias": False, "use_sliding_window": False}, also=_WINDOWS),
    "mixtral": Family(
        left_out={"tie_word_embeddings": False},
        also=("sliding_window", "num_local_experts", "num_experts_per_tok"),
        heads_share_hidden=True,
        modules=BLOCKS,
    ),
    "qwen3_moe": Family(
        left_out={"attention_bias": False, "use_sliding_window": False},
        also=(
            *_WINDOWS,
            "num_experts",
            "num_experts_per_tok",
            "moe_intermediate_size",
            "decoder_sparse_step",
            "mlp_only_layers",
            "qkv_bias",
            "shared_expert_intermediate_size",
            "use_qk_norm",
        ),
        unused=("intermediate_size",),
        names={"num_local_experts": "num_experts"},
    ),
    "gemma": Family(
        left_out={"tie_word_embeddings": True, "attention_bias": False, "hidden_act": "gelu_pytorch_tanh"},
        also=("hidden_activation", "use_bidirectional_attention"),
    ),
}
