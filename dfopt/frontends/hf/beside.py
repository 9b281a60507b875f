"""Hugging Face configs of decoders whose class lies beside the model on the hub, and of some that are much alike.

Sources: ``configuration_*.py`` and ``modeling_*.py`` beside Qwen-7B, Baichuan2-7B and -13B, chatglm3-6b and glm-4-9b,
EXAONE-3.5 and MiniCPM-2B on the hub; transformers 5.23 for InternLM 3, OLMo, Helium, Ministral, CWM and Jais 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dfopt.frontends.hf.decoders import PLAIN, QKV_BIAS
from dfopt.frontends.hf.fields import Family, Field, Modules, count, flag, head_dim_of, heads_of, is_whole, one_of
from dfopt.frontends.hf.layers import Given, local_everywhere, made_by
from dfopt.frontends.hf.mixed import NO_BIAS
from dfopt.frontends.hf.rows import NOTHING, rows

__all__ = ["BESIDE_FAMILIES"]

_EITHER: Final = flag(NOTHING, NOTHING)
_OF_TRAINING: Final = frozenset({
    "_from_model_config", "attn_dropout_prob", "bf16", "emb_dropout_prob", "embed_dropout", "fp16", "fp32",
    "gradient_checkpointing", "onnx_safe", "softmax_in_fp32", "tokenizer_type", "use_cache_kernel",
    "use_cache_quantization", "use_dynamic_ntk", "use_flash_attn", "use_logn_attn", "scale_attn_weights",
    "z_loss_weight",
})  # fmt: skip


def _qwen_ffn(given: Given) -> dict[str, Any]:
    """Gate and up projection have what is said together."""
    if given["ffn"] % 2:
        raise ValueError(f"ffn: found {given['ffn']}, expected an even number, for gate and up projection")
    return {"ffn": given["ffn"] // 2}


def _wide(data: Mapping[str, Any]) -> str | None:
    """The type of weights that flags of training tell, where nothing else does."""
    types = [name for flag, name in (("bf16", "bfloat16"), ("fp16", "float16"), ("fp32", "float32")) if data.get(flag)]
    return types[0] if len(types) == 1 else None


_AS_LONG: Final = "as model_max_length"


def _baichuan(given: Given) -> dict[str, Any]:
    """Positions of the smaller ones turn; those of the larger ones, whose class knows another length, add to scores."""
    turns, length = given.get("turns"), given.get("length")
    if None not in (turns, length) and turns != length:
        raise ValueError(f"length: found {length}, but max_position_embeddings says {turns}")
    return {} if turns else {"rotary_dim": 0}


def _turning(value: Any) -> dict[str, Any] | None:
    if value == _AS_LONG:
        return {}
    return {"turns": value, "positions": value} if is_whole(value) else None


def _baichuan_length(data: Mapping[str, Any]) -> str | None:
    return _AS_LONG if is_whole(data.get("model_max_length")) else None


def _length(value: Any) -> dict[str, Any] | None:
    return {"length": value, "positions": value} if is_whole(value) else None


def _chatglm(given: Given) -> dict[str, Any]:
    """Groups of heads, if it has any, and positions on half of the features of a head."""
    if given["grouped"] and "groups" not in given:
        raise ValueError("groups: missing, but multi_query_attention is true")
    return {"kv_heads": given["groups"] if given["grouped"] else given["heads"], "rotary_dim": given["head_dim"] // 2}


def _local_or_told(given: Given) -> dict[str, Any]:
    return {} if given.get("types") else local_everywhere(given)


def _cwm_types(data: Mapping[str, Any]) -> list[str] | None:
    number = data.get("num_hidden_layers")
    if not is_whole(number) or number > 10**3:
        return None
    return ["sliding_attention" if place % 4 else "full_attention" for place in range(number)]


_CHATGLM: Final = Family(
    left_out={
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "num_key_value_heads": None,
        "add_bias_linear": False,
        "add_qkv_bias": False,
        "multi_query_attention": False,
        "post_layer_norm": True,
        "rmsnorm": True,
        "apply_residual_connection_post_layernorm": False,
    },
    fields=rows(
        "head_dim",
        num_key_value_heads=one_of("null: multi_query_group_num says it", {None: NOTHING}),
        add_bias_linear=NO_BIAS,
        add_qkv_bias=flag({"bias": "qkv"}, NOTHING, needed=True),
        multi_query_attention=flag({"grouped": True}, {"grouped": False}, needed=True),
        multi_query_group_num=count("groups", needed=False),
        post_layer_norm=one_of("true: a norm behind the last layer", {True: NOTHING}, needed=True),
        rmsnorm=one_of("true", {True: NOTHING}, needed=True),
        apply_residual_connection_post_layernorm=one_of("false", {False: NOTHING}, needed=True),
        original_rope=_EITHER,
        interleaved_qkv=one_of("false", {False: NOTHING}),
        pre_seq_len=one_of("null", {None: NOTHING}),
        prefix_projection=one_of("false", {False: NOTHING}),
        quantization_bit=one_of("0", {0: NOTHING}),
    ),
    names={
        "ffn_hidden_size": "intermediate_size", "kv_channels": "head_dim", "num_layers": "num_hidden_layers",
        "padded_vocab_size": "vocab_size", "seq_length": "max_position_embeddings",
    },
    words=frozenset({
        "apply_query_key_layer_scaling", "attention_softmax_in_fp32", "bias_dropout_fusion", "classifier_dropout",
        "fp32_residual_connection", "layernorm_epsilon", "rope_ratio",
    }),
    stack=made_by(_chatglm),
    classes=("ChatGLMModel", "ChatGLMForConditionalGeneration"),
    modules=Modules(
        fronts=("transformer.encoder.",), mixer=("self_attention.query_key_value", "self_attention.dense"),
        dense=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    ),
)  # fmt: skip
BESIDE_FAMILIES: Final[Mapping[str, Family]] = {
    "qwen": Family(
        always={"bias": "qkv"},
        left_out={
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "num_key_value_heads": heads_of,
            "no_bias": True,
            "rotary_pct": 1.0,
            "torch_dtype": _wide,
        },
        fields=rows(
            "head_dim",
            no_bias=one_of("true: queries, keys and values alone have one", {True: NOTHING}, needed=True),
            rotary_pct=one_of("1.0", {1.0: NOTHING}, needed=True),
        ),
        names={"kv_channels": "head_dim"},
        words=_OF_TRAINING | {"rotary_emb_base", "seq_length"},
        stack=made_by(_qwen_ffn),
        modules=Modules(
            fronts=("transformer.",), layer="h.*.", mixer=("attn.c_attn", "attn.c_proj"),
            dense=("mlp.w1", "mlp.w2", "mlp.c_proj"),
        ),
    ),
    "baichuan": Family(
        left_out={
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "num_key_value_heads": heads_of,
            "head_dim": head_dim_of,
            "max_position_embeddings": _baichuan_length,
        },
        fields=rows(
            "head_dim",
            max_position_embeddings=Field(_turning, "a whole number from 1 on", needed=True),
            model_max_length=Field(_length, "a whole number from 1 on"),
        ),
        words=_OF_TRAINING,
        stack=made_by(_baichuan),
        modules=Modules(mixer=("self_attn.W_pack", "self_attn.o_proj")),
    ),
    "chatglm": _CHATGLM,
    "exaone": Family(
        left_out={"tie_word_embeddings": False, "num_key_value_heads": heads_of, "head_dim": head_dim_of},
        fields=rows("head_dim", attention_bias=NO_BIAS, mlp_bias=NO_BIAS),
        names={"activation_function": "hidden_act", "num_layers": "num_hidden_layers"},
        words=_OF_TRAINING,
        stack=made_by(),
        modules=Modules(
            fronts=("transformer.",), layer="h.*.",
            mixer=tuple(f"attn.attention.{name}_proj" for name in ("q", "k", "v", "out")),
            dense=("mlp.c_fc_0", "mlp.c_fc_1", "mlp.c_proj"),
        ),
    ),
    "minicpm": Family(
        left_out={**PLAIN, "tie_word_embeddings": True},
        fields=rows(
            "head_dim",
            "attention_bias",
            num_experts=one_of("0: it has no experts", {0: NOTHING}),
            sparse_config=one_of("null: blocks of tokens that it chooses are not drawn", {None: NOTHING}),
        ),
        words=frozenset({"dim_model_base", "mup_denominator", "scale_depth", "scale_emb", "use_emb_alpha"}),
        stack=made_by(),
    ),
    "internlm3": Family(
        left_out={**PLAIN, "attention_bias": False, "mlp_bias": False, "head_dim": 128},
        fields=rows("head_dim", attention_bias=NO_BIAS, mlp_bias=NO_BIAS),
        names={"qkv_bias": "attention_bias", "bias": "mlp_bias"},
        stack=made_by(),
    ),
    # its norms have no gains, and are counted with them: a ten-thousandth of all
    "olmo": Family(
        always={"norm": "layernorm"},
        left_out=PLAIN,
        fields=rows("head_dim", "attention_bias"),
        words=frozenset({"clip_qkv"}),
        stack=made_by(),
    ),
    "helium": Family(
        left_out={**PLAIN, "mlp_bias": False, "head_dim": 128},
        fields=rows("head_dim", attention_bias=QKV_BIAS, mlp_bias=NO_BIAS),
        stack=made_by(),
    ),
    "ministral": Family(
        left_out={"tie_word_embeddings": False, "hidden_act": "silu", "head_dim": head_dim_of, "sliding_window": 4096},
        fields=rows("head_dim", "sliding_window", "layer_types"),
        stack=made_by(_local_or_told),
    ),
    "cwm": Family(
        left_out={**PLAIN, "mlp_bias": False, "head_dim": 128, "sliding_window": 8192, "layer_types": _cwm_types},
        fields=rows("head_dim", "sliding_window", "layer_types", attention_bias=NO_BIAS, mlp_bias=NO_BIAS),
        stack=made_by(),
    ),
    "jais2": Family(
        always={"norm": "layernorm", "gated": False},
        left_out={**PLAIN, "hidden_act": "relu2", "attention_bias": True, "mlp_bias": True},
        fields=rows("head_dim", "attention_bias", "mlp_bias"),
        stack=made_by(),
    ),
}  # fmt: skip
