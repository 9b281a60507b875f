"""Hugging Face configs of Gemma 2, 3 and 4: local and global layers, with a norm behind attention and MLP too.

Sources: ``configuration_*.py`` and ``modeling_*.py`` of transformers 5.23.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from dfopt.frontends.hf.fields import Family, Modules, count, flag, listed, one_of, optional, unless
from dfopt.frontends.hf.layers import Given, local_in_turn, made_by
from dfopt.frontends.hf.rows import ATTENTIONS, FIELDS, NOTHING, rows

__all__ = ["GEMMA_FAMILIES"]

_GEMMA: Final = Family(
    always={"norms": "pre_post", "pattern": 2},
    left_out={
        "attention_bias": False,
        "tie_word_embeddings": True,
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": 4096,
        "head_dim": 256,
    },
    fields=rows(
        "head_dim",
        "attention_bias",
        "sliding_window",
        "layer_types",
        hidden_act=FIELDS["hidden_activation"],
        hidden_activation=FIELDS["hidden_activation"],
        use_bidirectional_attention=one_of("null or false", {None: NOTHING, False: NOTHING}),
    ),
    words=frozenset({"attn_logit_softcapping", "cache_implementation", "final_logit_softcapping"})
    | {"query_pre_attn_scalar", "rope_local_base_freq"},
    names={"sliding_window_size": "sliding_window"},
    stack=made_by(local_in_turn),
)
_GEMMA_3: Final = replace(
    _GEMMA,
    always={"norms": "pre_post", "qk_norm": "head"},
    left_out={
        **_GEMMA.left_out,
        "sliding_window_pattern": unless("layer_types", 6),
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
    },
    fields={**(_GEMMA.fields or {}), "sliding_window_pattern": optional("pattern")},
    names={"_sliding_window_pattern": "sliding_window_pattern"},
)


def _gemma_4(given: Given) -> dict[str, Any]:
    """Global layers have heads of their own size and number, whose values may be their keys; experts beside an MLP."""
    missing = [name for name in ("experts", "chosen", "expert_ffn") if given.get(name) is None]
    if given["experts_beside"] and missing:
        raise ValueError(f"{missing[0]}: found none, but enable_moe_block is true")
    heads = {"head_dim": given["global_dim"], "rotary_dim": given["global_dim"] // 4}
    if given["values_are_keys"]:
        heads |= {"values": "keys"}
        if given.get("global_kv_heads") is not None:
            heads |= {"kv_heads": given["global_kv_heads"]}
    beside = {"shared": given["ffn"], "shared_norms": True} if given["experts_beside"] else {}
    return {**beside, "own": {"global": heads}, "sparse": [given["experts_beside"]] * given["layers"]}


_GEMMA_4: Final = replace(
    _GEMMA,
    always={"norms": "pre_post", "qk_norm": "head"},
    left_out={
        "attention_bias": False,
        "tie_word_embeddings": True,
        "hidden_activation": "gelu_pytorch_tanh",
        "enable_moe_block": False,
        "attention_k_eq_v": False,
        "global_head_dim": 512,
        "use_double_wide_mlp": False,
        "num_kv_shared_layers": 0,
        "num_global_key_value_heads": None,
        "num_experts": None,
        "top_k_experts": None,
        "moe_intermediate_size": None,
        "hidden_size_per_layer_input": 256,
    },
    fields=rows(
        "head_dim",
        "attention_bias",
        hidden_act=FIELDS["hidden_activation"],
        hidden_activation=FIELDS["hidden_activation"],
        layer_types=listed("types", ATTENTIONS, needed=True),
        sliding_window=count("window"),
        global_head_dim=count("global_dim"),
        num_global_key_value_heads=optional("global_kv_heads"),
        attention_k_eq_v=flag({"values_are_keys": True}, {"values_are_keys": False}, needed=True),
        enable_moe_block=flag({"experts_beside": True}, {"experts_beside": False}, needed=True),
        num_experts=optional("experts"),
        top_k_experts=optional("chosen"),
        moe_intermediate_size=optional("expert_ffn"),
        num_kv_shared_layers=one_of("0: keys and values that layers share are not drawn", {0: NOTHING}, needed=True),
        hidden_size_per_layer_input=one_of("0: embeddings of every layer are not drawn", {0: NOTHING}, needed=True),
        use_double_wide_mlp=one_of("false: wider MLPs are not drawn", {False: NOTHING}, needed=True),
        use_bidirectional_attention=one_of("null or vision: text is causal", {None: NOTHING, "vision": NOTHING}),
    ),
    words=frozenset({"final_logit_softcapping", "vocab_size_per_layer_input"}),  # of what is 0 above
    names={"expert_intermediate_size": "moe_intermediate_size"},
    stack=made_by(_gemma_4),
    modules=Modules(
        experts=("experts.gate_up_proj", "experts.down_proj"),
        shared=("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
        few=("router.proj",),
    ),
)
GEMMA_FAMILIES: Final[Mapping[str, Family]] = {"gemma2": _GEMMA, "gemma3_text": _GEMMA_3, "gemma4_text": _GEMMA_4}
