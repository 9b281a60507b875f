"""Published models as stacks of layers, with what their makers publish of them.

Sizes: the config.json of each model on the Hugging Face hub; counts: model cards and papers of the models.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Data = dict[str, Any]


class Published(NamedTuple):
    """A model: its parameters, how many there are, and of one token (without the table), and bytes kept of a token."""

    model: Data
    parameters: float
    active: float | None = None
    kept: int | None = None


def attention(heads: int, kv_heads: int, head_dim: int, **more: Any) -> Data:
    return {"kind": "attention", "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, **more}


def mlp(ffn: int, **more: Any) -> Data:
    return {"kind": "mlp", "ffn": ffn, **more}


def moe(experts: int, chosen: int, ffn: int, **more: Any) -> Data:
    return {"kind": "moe", "experts": experts, "chosen": chosen, "ffn": ffn, **more}


def latent(heads: int, query_rank: int | None = 1536, **more: Any) -> Data:
    sizes = {"rank": 512, "nope_dim": 128, "rotary_dim": 64, "value_dim": 128}
    return {"kind": "mla", "heads": heads, "query_rank": query_rank, **sizes, **more}


def stack(hidden: int, vocab: int | None, layers: Data, *sections: tuple[str | list[str], int], **more: Any) -> Data:
    parts = [{"layers": list(pattern), "repeat": repeat} for pattern, repeat in sections]
    return {"hidden": hidden, "vocab": vocab, "layers": layers, "sections": parts, "causal": True, **more}


def deepseek(hidden: int, vocab: int, mixer: Data, dense: tuple[int, int], sparse: tuple[Data, int]) -> Data:
    layers = {"d": {"mixer": mixer, "feed_forward": mlp(dense[0])}, "m": {"mixer": mixer, "feed_forward": sparse[0]}}
    return stack(hidden, vocab, layers, ("d", dense[1]), ("m", sparse[1]))


def gpt_oss(experts: int, repeat: int) -> Data:
    inside = moe(experts, 4, 2880, bias=True, router_bias=True)
    wide = attention(64, 8, 64, bias="all", sinks=True)
    layers = {
        "l": {"mixer": wide | {"window": 128}, "feed_forward": inside},
        "g": {"mixer": wide, "feed_forward": inside},
    }
    return stack(2880, 201088, layers, ("lg", repeat))


def qwen35(hidden: int, value_heads: int, heads: tuple[int, int], inside: Data, repeat: int) -> Data:
    delta = {"kind": "gated_delta_net", "key_heads": 16, "value_heads": value_heads, "key_dim": 128, "value_dim": 128}
    full = attention(*heads, 256, rotary_dim=64, gate="element", qk_norm="head")
    layers = {"d": {"mixer": delta, "feed_forward": inside}, "a": {"mixer": full, "feed_forward": inside}}
    return stack(hidden, 248320, layers, ("ddda", repeat))


def nemotron(hidden: int, pattern: str, mamba: Data, inside: Data, heads: tuple[int, int]) -> Data:
    layers = {
        "M": {"mixer": mamba},
        "E": {"feed_forward": inside},
        "A": {"mixer": attention(*heads, 128, rotary_dim=0)},
    }
    return stack(hidden, 131072, layers, (pattern, 1))


def mamba2(heads: int, state: int, **more: Any) -> Data:
    return {"kind": "mamba2", "heads": heads, "head_dim": 64, "state": state, **more}


def mamba(hidden: int, layers: int, time_rank: int, vocab: int, *, tied: bool) -> Data:
    mixer = {"kind": "mamba", "inner": 2 * hidden, "state": 16, "time_rank": time_rank}
    return stack(hidden, vocab, {"l": {"mixer": mixer}}, ("l", layers), tie_embeddings=tied)


def encoder(hidden: int, layers: int, heads: int, norms: str = "pre", **more: Any) -> Data:
    mixer = attention(heads, heads, hidden // heads, rotary_dim=0, bias="all", sees="full")
    layer = {"mixer": mixer, "feed_forward": mlp(4 * hidden, gated=False, bias=True), "norms": norms}
    return stack(hidden, more.pop("vocab", None), {"l": layer}, ("l", layers), norm="layernorm", **more)


def bert(hidden: int, layers: int, heads: int) -> Data:
    ends = {"embedding_norm": True, "final_norm": False, "head": {"kind": "none", "pooler": True}, "token_types": 2}
    return encoder(hidden, layers, heads, "after", vocab=30522, learned_positions=512, **ends)


def vit(hidden: int, layers: int, heads: int, patch: int) -> Data:
    ends = {"head": {"kind": "classifier", "classes": 1000, "bias": True}, "learned_positions": (224 // patch) ** 2 + 1}
    return encoder(hidden, layers, heads, input=[{"inputs": 3 * patch**2, "outputs": hidden}], **ends)


def llama4(experts: int, *, every: bool) -> Data:
    local, inside = attention(40, 8, 128, chunk=8192), moe(experts, 1, 8192, shared=8192)
    layers = {
        "d": {"mixer": local, "feed_forward": inside if every else mlp(16384)},
        "m": {"mixer": local, "feed_forward": inside},
        "g": {"mixer": attention(40, 8, 128, rotary_dim=0), "feed_forward": inside},
    }
    return stack(5120, 202048, layers, ("dmdg", 12))


def gemma3() -> Data:
    wide, inside = attention(32, 16, 128, qk_norm="head"), mlp(21504)
    local = {"mixer": wide | {"window": 1024}, "feed_forward": inside, "norms": "pre_post"}
    layers = {"l": local, "g": {"mixer": wide, "feed_forward": inside, "norms": "pre_post"}}
    return stack(5376, 262144, layers, ("lllllg", 10), ("l", 2), tie_embeddings=True)


def jamba() -> Data:
    mixer = {"kind": "mamba", "inner": 8192, "state": 16, "time_rank": 256, "inner_norms": True}
    experts, dense = moe(16, 2, 14336), mlp(14336)
    layers = {
        "d": {"mixer": mixer, "feed_forward": dense},
        "m": {"mixer": mixer, "feed_forward": experts},
        "a": {"mixer": attention(32, 8, 128, rotary_dim=0), "feed_forward": dense},
    }
    return stack(4096, 65536, layers, ("dmdmamdm", 4))


def gpt_j() -> Data:
    parts = {"mixer": attention(16, 16, 256, rotary_dim=64), "feed_forward": mlp(16384, gated=False, bias=True)}
    layers = {"l": parts | {"parallel": "shared"}}
    return stack(4096, 50400, layers, ("l", 28), norm="layernorm", head={"bias": True})


def mixtral() -> Data:
    return stack(4096, 32000, {"l": {"mixer": attention(32, 8, 128), "feed_forward": moe(8, 2, 14336)}}, ("l", 32))


def qwen3() -> Data:
    layer = {"mixer": attention(64, 4, 128, qk_norm="head"), "feed_forward": moe(128, 8, 1536)}
    return stack(4096, 151936, {"l": layer}, ("l", 94))


_NEMOTRON_H = "MEMEMEMA" + 9 * "EMEMEMEMEMA" + "EMEMEMEMEME"
_NANO = "MEMEMAEMEMEMAEMEMEMAEMEMEMAEMEMEMAEMEMEMEMAEMEMEMEME"
_SUPER = "MEMEMEMAEMEMEMEMAEMEMEMEMAEMEMEMEMEMAEMEMEMEMEMAEMEMEMEMEMAEMEMEMEMEMAEMEMEMEMAEMEMEMEME"
_SMALL, _V3 = {"groups": 8, "chunk": 128}, moe(256, 8, 2048, shared=2048, router_bias=True)
MODELS = {
    "mixtral-8x7b": Published(mixtral(), 46.703e9, 12.9e9, 131072),
    "qwen3-235b-a22b": Published(qwen3(), 235.1e9, 22e9, 192512),
    "gpt-oss-20b": Published(gpt_oss(32, 12), 20.9e9, 3.6e9, 49152),
    "gpt-oss-120b": Published(gpt_oss(128, 18), 116.8e9, 5.1e9, 73728),
    "deepseek-v3": Published(deepseek(7168, 129280, latent(128), (18432, 3), (_V3, 58)), 671e9, 37e9, 70272),
    "kimi-k2": Published(
        deepseek(7168, 163840, latent(64), (18432, 1), (_V3 | {"experts": 384}, 60)), 1026e9, 32e9, 70272
    ),
    "deepseek-v2-lite": Published(
        deepseek(2048, 102400, latent(16, None), (10944, 1), (moe(64, 6, 1408, shared=2816), 26)), 15.706e9, None, 31104
    ),
    "llama-4-scout": Published(llama4(16, every=True), 108.6e9, None, 196608),
    "llama-4-maverick": Published(llama4(128, every=False), 401.6e9, None, 196608),
    "gemma-3-27b": Published(gemma3(), 27.01e9, None, 507904),
    "gpt-j-6b": Published(gpt_j(), 6.05e9, None, 458752),
    "qwen3.5-397b-a17b": Published(
        qwen35(4096, 64, (32, 2), moe(512, 10, 1024, shared=1024, shared_gate=True), 15), 397e9
    ),
    "qwen3.5-27b": Published(qwen35(5120, 48, (24, 4), mlp(17408), 16), 27e9),
    "nemotron-h-56b": Published(
        nemotron(8192, _NEMOTRON_H, mamba2(256, 256, **_SMALL), mlp(32768, gated=False), (64, 8)), 56e9
    ),
    "nemotron-3-nano": Published(
        nemotron(2688, _NANO, mamba2(64, 128, **_SMALL), moe(128, 6, 1856, gated=False, shared=3712), (32, 2)), 31.6e9
    ),
    "nemotron-3-super": Published(
        nemotron(
            4096, _SUPER, mamba2(128, 128, **_SMALL), moe(512, 22, 2688, gated=False, shared=5376, latent=1024), (32, 2)
        ),
        120e9,
        12e9,
    ),
    "jamba-1.5-mini": Published(jamba(), 51.6e9, 12e9),
    "mamba-130m": Published(mamba(768, 24, 48, 50280, tied=True), 129.1e6, None, 0),
    "mamba-2.8b": Published(mamba(2560, 64, 160, 50280, tied=True), 2.768e9, None, 0),
    "falcon-mamba-7b": Published(mamba(4096, 64, 256, 65024, tied=False), 7.27e9, None, 0),
    "mamba2-2.7b": Published(
        stack(2560, 50288, {"l": {"mixer": mamba2(80, 128)}}, ("l", 64), tie_embeddings=True), 2.7e9, None, 0
    ),
    "bert-base": Published(bert(768, 12, 12), 109.48e6),
    "bert-large": Published(bert(1024, 24, 16), 335.14e6),
    "vit-b-16": Published(vit(768, 12, 12, 16), 86.57e6),
    "vit-l-16": Published(vit(1024, 24, 16, 16), 304.33e6),
    "vit-h-14": Published(vit(1280, 32, 16, 14), 632e6),
}


def whisper(hidden: int, layers: tuple[int, int], mel: int, vocab: int) -> tuple[Data, Data]:
    """Encoder and decoder, each a model of its own; a sample are 30 s of sound, 1500 tokens."""
    heads = {"heads": hidden // 64, "head_dim": 64, "bias": "no_key"}
    own = {"kind": "attention", "rotary_dim": 0, **heads}
    inside = mlp(4 * hidden, gated=False, bias=True)
    sound = [{"inputs": 3 * mel, "outputs": hidden, "per_token": 2}, {"inputs": 3 * hidden, "outputs": hidden}]
    layer = {"mixer": own | {"sees": "full"}, "feed_forward": inside}
    more = {"norm": "layernorm", "learned_positions": 1500, "input": sound, "head": {"kind": "none"}}
    encode = stack(hidden, None, {"l": layer}, ("l", layers[0]), **more)
    cross = {"kind": "cross_attention", "tokens": 1500, **heads}
    kinds = {"s": {"mixer": own}, "c": {"mixer": cross, "feed_forward": inside}}
    ends = {"norm": "layernorm", "learned_positions": 448, "tie_embeddings": True}
    return encode, stack(hidden, vocab, kinds, ("sc", layers[1]), **ends)


SPEECH = {
    "whisper-tiny": (whisper(384, (4, 4), 80, 51865), 37.76e6),
    "whisper-large-v3": (whisper(1280, (32, 32), 128, 51866), 1543.5e6),
    "whisper-large-v3-turbo": (whisper(1280, (32, 4), 128, 51866), 808.9e6),
}
