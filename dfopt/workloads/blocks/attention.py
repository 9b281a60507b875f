"""Attention: of every query head, of groups that share keys and values, or of all heads to one of them.

In grouped-query attention a K/V head serves ``heads / kv_heads`` query heads. The products of attention count
every query head, while the tensors that bring K and V to them are as large as the K/V heads: a head is read by
its whole group and copied for none. Over more tensor-parallel chips than K/V heads, a chip computes and holds
one whole K/V head, as implementations do. A single K/V head (multi-query attention) is split by its features
instead, and what collecting them on every chip costs is not counted.

Not drawn, but counted as parameters: biases, which products add as they end.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import problem
from dfopt.documents.graph import SequenceState
from dfopt.workloads.backward import Gradient
from dfopt.workloads.blocks.block import Block
from dfopt.workloads.drawing import Attending, Drawing
from dfopt.workloads.sketch import Read

__all__ = ["Attention", "attend"]


class Attention(Block):
    """Attention to the keys of the same sequence.

    Examples
    --------
    >>> Attention(kind="attention", heads=32, kv_heads=8, head_dim=128).token_elements
    2048
    """

    kind: Literal["attention"]
    heads: int = Field(ge=1, le=10**5, description="query heads")
    head_dim: int = Field(ge=1, le=10**6, description="features of one head")
    kv_heads: int | None = Field(
        default=None, ge=1, le=10**5, description="heads of K and of V, a divisor of heads; as many if left out"
    )
    rotary_dim: int | None = Field(
        default=None, ge=0, le=10**6, description="features of a head that carry its position; none = all, 0 = none"
    )
    bias: Literal["none", "qkv", "all"] = Field(
        default="none", description="projections with a bias; for the parameter count"
    )

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.heads % self.groups:
            raise problem(
                f"found {self.groups} K/V heads, expected a divisor of the {self.heads} query heads",
                "choose a divisor, or leave it out",
                "$.kv_heads",
            )
        return self

    @property
    def groups(self) -> int:
        """Heads of K and of V, each with a group of query heads."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def token_elements(self) -> int:
        """Elements of the keys and values of a token."""
        return 2 * self.groups * self.head_dim

    def parameters(self, hidden: int) -> int:
        """Parameters of the projections."""
        width, kv_width = self.heads * self.head_dim, self.groups * self.head_dim
        biases = {"none": 0, "qkv": width + 2 * kv_width, "all": width + 2 * kv_width + hidden}
        return hidden * (2 * width + 2 * kv_width) + biases[self.bias]

    def draw(self, drawing: Drawing, hidden: int, source: str) -> str:
        """Draw projections, positions and attention."""
        dim, rules = self.head_dim, drawing.rules
        q = drawing.linear("Q_Proj", dim, hidden, source, outer=self.heads)
        k = drawing.linear("K_Proj", dim, hidden, source, outer=self.groups)
        v = drawing.linear("V_Proj", dim, hidden, source, outer=self.groups)
        if self.rotary_dim != 0:
            q, k = drawing.by_head("Q_RoPE", self.heads, dim, q), drawing.by_head("K_RoPE", self.groups, dim, k)
            rules |= {"Q_RoPE": Gradient(reads=()), "K_RoPE": Gradient(reads=())}
        drawing.sums |= {k: ("K_Sum_bwd", "K_Proj"), v: ("V_Sum_bwd", "V_Proj")}
        attended = attend(drawing, q, k, v, heads=self.heads, groups=self.groups, dim=dim)
        return drawing.linear("O_Proj", hidden, self.heads * dim, attended)


def attend(drawing: Drawing, q: str, k: str, v: str, *, heads: int, groups: int, dim: int) -> str:
    """Draw the attention of queries to cached and new keys; gives the kernel of what they collect."""
    one = drawing.segment
    scores = Attending(heads, one.sequences, one.new, one.keys, one.pairs(), single=drawing.keeps)

    def kept(name: str) -> tuple[SequenceState, ...]:
        """Keys or values of the K/V heads: cached ones are read, those of new tokens are written."""
        sizes = {"sequences": one.sequences, "heads": groups, "bytes_per_token": int(drawing.bytes(groups * dim))}
        state = SequenceState(name=name, tokens=one.keys, reads=one.cached, writes=one.new, page=drawing.page, **sizes)
        return (state,) if drawing.keeps else ()

    # Stated, because a product that counts every query head would expect a K and a V of as many heads, and of all keys.
    shared = drawing.bytes(groups * dim * one.tokens) if groups < heads or one.cached else None
    product = scores.product("QK", scores.keys, dim, "scores", kept("keys"))
    weighed = drawing.draw(product, Read(q, 1), Read(k, 2, shared))
    weights = drawing.draw(scores.pointwise("Softmax", "softmax", normalizes=True), weighed)
    product = scores.product("AV", dim, scores.keys, "context", kept("values"))
    drawing.rules |= {
        "QK": (Gradient("QK_bwd_queries"), Gradient("QK_bwd_keys", turned=True)),
        "Softmax": Gradient(reads=("Softmax",)),
        "AV": (Gradient("AV_bwd_scores"), Gradient("AV_bwd_values", turned=False)),
    }
    return drawing.draw(product, Read(v, 2, shared), Read(weights, 1))
