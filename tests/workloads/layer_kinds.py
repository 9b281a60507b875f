"""Parts of layers in small, one of each kind, and the model of three layers that has them."""

from __future__ import annotations

from typing import Any

Data = dict[str, Any]


def attention(heads: int, kv_heads: int, head_dim: int, **more: Any) -> Data:
    return {"kind": "attention", "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, **more}


def mlp(ffn: int, **more: Any) -> Data:
    return {"kind": "mlp", "ffn": ffn, **more}


def moe(experts: int, chosen: int, ffn: int, **more: Any) -> Data:
    return {"kind": "moe", "experts": experts, "chosen": chosen, "ffn": ffn, **more}


HIDDEN = 24
LATENT = {"kind": "mla", "heads": 6, "query_rank": 10, "rank": 8, "nope_dim": 5, "rotary_dim": 3, "value_dim": 4}
INDEXER = {"heads": 3, "head_dim": 2, "top_k": 4}
DELTA = {"kind": "gated_delta_net", "key_heads": 2, "value_heads": 4, "key_dim": 3, "value_dim": 5, "chunk": 4}
KDA = {"kind": "kda", "heads": 4, "key_dim": 3, "value_dim": 5, "decay_rank": 6, "gate_rank": 7, "chunk": 4}
SSD = {"kind": "mamba2", "heads": 4, "head_dim": 5, "groups": 2, "state": 6, "chunk": 4}
SCAN = {"kind": "mamba", "inner": 12, "state": 3, "time_rank": 2, "inner_norms": True}
FULL = attention(6, 2, 5)
CROSS = {"kind": "cross_attention", "heads": 6, "kv_heads": 2, "head_dim": 5, "tokens": 9, "source": 7}
COMPRESSED = {"kind": "compressed_attention", "heads": 6, "head_dim": 5, "query_rank": 10, "window": 3}
COMPRESSED |= {"output_groups": 2, "output_rank": 4}
MIXERS = {
    "grouped": FULL,
    "gated": FULL | {"gate": "element", "qk_norm": "head", "rotary_dim": 2},
    "norm of all": FULL | {"gate": "head", "qk_norm": "all", "rotary_dim": 0, "bias": "all", "sinks": True},
    "keys are values": FULL | {"values": "keys"},
    "narrow values": FULL | {"value_dim": 3, "gate": "element", "bias": "all"},
    "local": FULL | {"window": 3},
    "chunks": FULL | {"chunk": 4},
    "sparse": FULL | {"sparse": INDEXER | {"block": 2}},
    "cross": CROSS,
    "expanded": LATENT | {"form": "expanded"},
    "absorbed": LATENT | {"form": "absorbed", "query_rank": None},
    "chosen": LATENT | {"form": "absorbed", "sparse": INDEXER},
    "compressed": COMPRESSED | {"group": 4},
    "compressed choice": COMPRESSED | {"group": 2, "overlaps": True, "sparse": {"heads": 3, "head_dim": 2, "top_k": 3}},
    "delta": DELTA,
    "kda": KDA,
    "mamba2": SSD,
    "mamba": SCAN,
    "convolution": {"kind": "gated_convolution", "inner": HIDDEN, "convolution": 3},
    "side by side": {"kind": "beside", "mixers": [FULL, SSD]},
}
SCANS = ("delta", "kda", "mamba2", "side by side")  # in chunks, which a prompt is not cut into
INSIDE = {
    "gated": mlp(50),
    "plain": mlp(50, gated=False, bias=True),
    "experts": moe(8, 2, 10, bias=True, router_bias=True),
    "shared": moe(8, 2, 10, shared=20, shared_gate=True),
    "wide": moe(8, 2, 10, shared=25, shared_gate=True),
    "latent": moe(8, 2, 10, shared=20, latent=6, gated=False),
    "apart": moe(8, 2, 10, shared=20, shared_apart=True),
    "beside": moe(8, 2, 10, shared=20, shared_norms=True),
    "alone": mlp(50, typed="experts"),
}


def one(mixer: Any = None, feed_forward: Any = None, **more: Any) -> Data:
    """A model of three layers of one kind."""
    of_layer = {name: more.pop(name) for name in ("norms", "parallel") if name in more}
    layer = {"mixer": mixer, "feed_forward": feed_forward, **of_layer}
    sizes: Data = {"hidden": HIDDEN, "vocab": 100, "seq": 12, "causal": True}
    return sizes | {"layers": {"layer": layer}, "sections": [{"layers": ["layer"], "repeat": 3}]} | more
