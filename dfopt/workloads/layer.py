"""What workloads made of transformer layers share: parameters, and the shapes that kernels of a layer come in.

Matrices are held with features along ``m`` and tokens along ``n``, see :mod:`dfopt.documents.graph`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from dfopt.documents.base import Part, problem
from dfopt.documents.graph import Graph, Kernel, Role, Tensor
from dfopt.documents.phase import Segment
from dfopt.workloads.checks import check_batch
from dfopt.workloads.recompute import recomputed
from dfopt.workloads.sketch import Sketch

__all__ = ["LayerParameters"]


class LayerParameters(Part):
    """Sizes of a layer and how often it is there, and makers of kernels with those sizes.

    ``heads * head_dim`` may differ from ``hidden``.

    Examples
    --------
    >>> layer = LayerParameters(hidden=8, heads=2, head_dim=4, seq=16, microbatch=3)
    >>> scores = layer.attention("QK", m=16, k=4, role="scores")
    >>> layer.tokens, scores.outer, scores.samples
    (48, 2, 3)
    """

    hidden: int = Field(ge=1, le=10**7, description="features of the residual stream")
    heads: int = Field(ge=1, le=10**5, description="attention heads")
    head_dim: int = Field(ge=1, le=10**6, description="features of one head")
    seq: int = Field(ge=1, le=10**8, description="tokens in a sample")
    microbatch: int = Field(default=1, ge=1, le=10**6, description="samples in one evaluation of the graph")
    layers: int = Field(default=1, ge=1, le=10**6, description="identical layers")
    drawn: int = Field(default=1, ge=1, le=10**4, description="layers drawn one after another, a divisor of layers")
    batch: int | None = Field(
        default=None, ge=1, le=10**12, description="samples in one step; one microbatch if left out"
    )
    mode: Literal["forward", "training"] = Field(default="forward", description="forward pass only, or a training step")
    word_bytes: int = Field(default=2, ge=1, le=16, description="bytes per element")
    causal: bool = Field(
        default=False, description="a token attends to itself and to those before it: other scores are not computed"
    )
    scores_kept: bool = Field(
        default=True,
        description="training: whether the backward pass reads the attention scores that the forward pass wrote, or"
        " computes them again, as FlashAttention does",
    )

    @property
    def tokens(self) -> int:
        """Tokens of one evaluation."""
        return self.segment.tokens

    @property
    def width(self) -> int:
        """Features of Q, K and V over all heads; need not be ``hidden``."""
        return self.heads * self.head_dim

    @property
    def attentions(self) -> dict[str, int]:
        """Independent attention matrices: of each head, for every sample, as tokens attend within their own."""
        return {"outer": self.heads} | ({"samples": self.microbatch} if self.microbatch > 1 else {})

    def check_counts(self) -> None:
        """Refuse a step of less than a microbatch, and drawn layers that the layers are no multiple of."""
        check_batch(self.batch, self.microbatch)
        if self.layers % self.drawn:
            raise problem(
                f"found {self.drawn} drawn layers, expected a divisor of the {self.layers} layers",
                "choose a divisor, or all of them",
                "$.drawn",
            )

    def pointwise(self, name: str, m: int, **more: Any) -> Kernel:
        """An elementwise kernel over ``m`` features of every token."""
        return Kernel(name=name, op="elementwise", m=m, n=self.tokens, **more)

    @property
    def segment(self) -> Segment:
        """What one evaluation works on: whole samples."""
        return Segment(sequences=self.microbatch, new=self.seq, sees="causal" if self.causal else "full")

    @property
    def density(self) -> float | None:
        """Share of the attention scores that masks leave; none where they leave all."""
        one = self.segment
        pairs, whole = one.pairs(), one.new * one.keys
        return pairs / whole if pairs < whole else None

    @property
    def queries(self) -> dict[str, Any]:
        """The token axis of attention: the new tokens of a sequence."""
        return {"n": self.segment.new}

    def scores(self, name: str, role: Role, *, normalizes: bool = False) -> Kernel:
        """An elementwise kernel over the attention scores: keys along ``m``, queries along ``n``."""
        about = {"role": role, "normalizes": normalizes, "density": self.density}
        return Kernel(name=name, op="elementwise", **self.attentions, m=self.segment.keys, **self.queries, **about)

    def by_head(self, name: str, heads: int) -> Kernel:
        """An elementwise kernel over ``heads`` heads of every token, which may be fewer than those of Q."""
        return Kernel(name=name, op="elementwise", outer=heads, m=self.head_dim, n=self.tokens)

    def linear(self, name: str, m: int, k: int, *, outer: int = 1, **more: Any) -> Kernel:
        """A weighted GEMM on every token; ``outer`` = heads if each head has a weight of its own."""
        return Kernel(name=name, op="gemm", outer=outer, m=m, k=k, n=self.tokens, **more)

    def attention(self, name: str, m: int, k: int, role: Role, **more: Any) -> Kernel:
        """A product of two activations within every head of every sample: the scores, or what they weigh up."""
        density = self.density
        masked = 1 if density is not None and role == "context" else None
        about = {"role": role, "density": density, "masked": masked, **more}
        return Kernel(name=name, op="matmul", **self.attentions, m=m, k=k, **self.queries, **about)

    def trained(self, graph: Graph) -> Graph:
        """A training graph as it is, or one that computes the attention scores again."""
        return graph if self.scores_kept else recomputed(graph, ("scores", "softmax", "scores_dropout"))

    def graph(self, layer: Sketch, **about: str) -> Graph:
        """The graph of one layer, whose last kernel's output is carried to the first kernel of the next."""
        return Graph(
            **about,
            repeat=self.layers,
            word_bytes=self.word_bytes,
            microbatch=self.microbatch,
            batch=self.batch or self.microbatch,
            tokens_per_sample=self.segment.new,
            kernels=tuple(layer.kernels),
            tensors=tuple(layer.tensors),
            carried=(Tensor(src=layer.kernels[-1].name, dst=layer.kernels[0].name),),
        )
