"""What a decoder is built from, and how many parameters such a model has."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import problem
from dfopt.workloads.layer import LayerParameters

__all__ = ["DecoderParameters", "parameter_count"]


class DecoderParameters(LayerParameters):
    """What a decoder is built from.

    ``heads * head_dim`` may differ from ``hidden``, as it does in Qwen3, Gemma and Mistral Nemo. What is said to
    be for the parameter count changes nothing in the graph.

    Examples
    --------
    >>> DecoderParameters(hidden=64, heads=8, kv_heads=2, head_dim=8, ffn=192, vocab=1000, seq=32).group
    4
    """

    heads: int = Field(ge=1, le=10**5, description="query heads")
    kv_heads: int | None = Field(
        default=None, ge=1, le=10**5, description="heads of K and of V, a divisor of heads; as many if left out"
    )
    rotary: bool = Field(default=True, description="rotary position embedding of Q and K")
    ffn: int = Field(ge=1, le=10**8, description="features inside the MLP")
    gated_mlp: bool = Field(default=True, description="gate, up and down projection, or up and down only")
    norm: Literal["rmsnorm", "layernorm"] = Field(default="rmsnorm", description="LayerNorm has a bias, RMSNorm none")
    post_norm: bool = Field(default=False, description="a norm behind attention and behind the MLP too, as in Gemma 2")
    vocab: int = Field(ge=1, le=10**9, description="rows of the embedding; for ends and the parameter count")
    tie_embeddings: bool = Field(
        default=False, description="logits with the embedding's matrix; for ends and the parameter count"
    )
    learned_positions: int = Field(
        default=0, ge=0, le=10**9, description="rows of a learned position embedding; for the parameter count"
    )
    bias: Literal["none", "qkv", "all"] = Field(
        default="none", description="projections with a bias; for the parameter count"
    )
    published_parameters: int | None = Field(
        default=None, ge=1, le=10**15, description="as published, to compare the parameter count with"
    )
    ends: bool = Field(
        default=False, description="draw embedding, final norm and logits too; they load the first and last stage"
    )
    window: int | None = Field(
        default=None, ge=1, le=10**8, description="tokens that local layers attend to; seq must fit, none if left out"
    )

    @property
    def groups(self) -> int:
        """Heads of K and of V, each with a group of query heads."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def group(self) -> int:
        """Query heads that share a K/V head."""
        return self.heads // self.groups

    @property
    def norm_name(self) -> str:
        """What the norms are called."""
        return "RMSNorm" if self.norm == "rmsnorm" else "LayerNorm"

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.heads % self.groups:
            raise problem(
                f"found {self.groups} K/V heads, expected a divisor of the {self.heads} query heads",
                "choose a divisor, or leave it out",
                "$.kv_heads",
            )
        if self.window is not None and self.seq > self.window:
            raise problem(
                f"found {self.seq} tokens in a sample, but local layers attend to {self.window}: layers would differ",
                "shorten seq, or leave window out to let every layer attend to all tokens",
                "$.seq",
            )
        self.check_counts()
        return self


def parameter_count(parameters: DecoderParameters) -> int:
    """Parameters of the whole model, with what the graph does not draw.

    Embedding, logits unless tied to it, learned positions if any, the matrices of attention and MLP, their biases
    where ``bias`` says so, the norms of every layer and the final one. Norms of Q and K are left out: they hold
    ``2 * head_dim`` elements a layer.

    Examples
    --------
    Llama 3.1 8B:

    >>> llama = DecoderParameters(
    ...     hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336, layers=32, vocab=128256, seq=8192
    ... )
    >>> parameter_count(llama)
    8030261248
    """
    p = parameters
    width, kv_width, into_mlp = p.width, p.groups * p.head_dim, 2 if p.gated_mlp else 1
    attention = p.hidden * (width + 2 * kv_width) + width * p.hidden
    mlp = (into_mlp + 1) * p.hidden * p.ffn
    biases = 0 if p.bias == "none" else width + 2 * kv_width
    if p.bias == "all":
        biases += p.hidden + into_mlp * p.ffn + p.hidden
    norm = p.hidden * (2 if p.norm == "layernorm" else 1)
    layer = attention + mlp + biases + norm * (4 if p.post_norm else 2)
    embeddings = p.vocab * (1 if p.tie_embeddings else 2) + p.learned_positions
    return p.layers * layer + norm + p.hidden * embeddings
