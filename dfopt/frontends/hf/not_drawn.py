"""Types of Hugging Face models that are known, and what they have that no graph of ours can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["NOT_DRAWN"]

_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "weights that several layers share": ("zamba", "zamba2", "albert"),
    "keys and values that layers share, and embeddings of every layer": ("gemma3n", "gemma3n_text"),
    "windows and other tokens in one layer": ("longformer", "big_bird"),
    "linear attention with a fixed decay": ("minimax", "minimax_text_01", "minimax_m1", "bailing_hybrid"),
    "layers among the others that attend to an image": ("mllama", "mllama_text_model", "idefics"),
    "experts that do nothing, and others beside two layers at once": ("longcat_flash",),
    "an encoder of text whose positions are biases of scores": ("t5", "mt5", "umt5"),
    "a recurrence that is none of Mamba's": ("rwkv", "rwkv5", "rwkv6", "rwkv7", "recurrent_gemma", "xlstm"),
    "blocks of attention that a pattern leaves out": ("phi3small",),
}
NOT_DRAWN: Final[Mapping[str, str]] = {kind: why for why, kinds in _GROUPS.items() for kind in kinds}
"""What a type has that is not drawn, for the message that refuses it."""
