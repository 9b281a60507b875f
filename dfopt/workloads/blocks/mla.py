"""Multi-head latent attention (DeepSeek-V2): keys and values of all heads come from one latent of a token.

What is kept of a token is that latent and a key of its position, which all heads share: chips that split heads hold
and read a copy each. There are two ways to compute the same:

* ``expanded``: keys and values of every head are computed from the latents of all keys, cached ones among them, and
  attention is that of heads of their own. It pays where many new tokens share that work.
* ``absorbed``: the matrix that would expand keys is applied to the queries, and that of values to what the heads have
  collected. Attention then is that of all heads to one key as wide as the latent, which the scores read from DRAM and
  the sums of values find on the chip.

Source: DeepSeek-V2 (arXiv:2405.04434), section 2.1 and appendix C.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dfopt.documents.graph import Kernel
from dfopt.documents.phase import Segment
from dfopt.workloads.backward import Gradient
from dfopt.workloads.blocks.attending import Sight, States, attend
from dfopt.workloads.blocks.block import Block
from dfopt.workloads.blocks.indexer import Indexer
from dfopt.workloads.drawing import Drawing, Form
from dfopt.workloads.sketch import Read

__all__ = ["LatentAttention"]


class LatentAttention(Block):
    """Attention of heads whose keys and values are those of one latent.

    Examples
    --------
    Of DeepSeek-V3:

    >>> sizes = {"heads": 128, "query_rank": 1536, "rank": 512, "nope_dim": 128, "rotary_dim": 64, "value_dim": 128}
    >>> LatentAttention(kind="mla", form="absorbed", **sizes).token_elements
    576
    """

    kind: Literal["mla"]
    heads: int = Field(ge=1, le=10**5, description="query heads")
    query_rank: int | None = Field(
        default=None, ge=1, le=10**6, description="features between the two projections of queries; none = only one"
    )
    rank: int = Field(ge=1, le=10**6, description="features of the latent of a token")
    nope_dim: int = Field(ge=1, le=10**6, description="features of a query head that carry no position")
    rotary_dim: int = Field(ge=1, le=10**6, description="features of a query head that carry its position")
    value_dim: int = Field(ge=1, le=10**6, description="features of a head's value")
    form: Form | Literal["auto"] = Field(
        default="auto",
        description="keys and values of all tokens are computed, or queries are taken to the latents; auto = as the"
        " model says",
    )
    sparse: Indexer | None = Field(default=None, description="what chooses the tokens that are attended to")

    @property
    def query_dim(self) -> int:
        """Features of a query head."""
        return self.nope_dim + self.rotary_dim

    @property
    def token_elements(self) -> int:
        """Elements of the latent of a token, and of the key of its position."""
        return self._latent + (self.sparse.token_elements if self.sparse else 0)

    @property
    def _latent(self) -> int:
        return self.rank + self.rotary_dim

    def parameters(self, hidden: int) -> int:
        """Parameters of the projections, and of the norms of latents; the same in both forms."""
        wide = self.heads * self.query_dim
        into = hidden * wide if self.query_rank is None else self.query_rank * (hidden + wide + 1)
        latents = hidden * self._latent + self.rank
        indexer = self.sparse.parameters(hidden, self.query_rank) if self.sparse else 0
        per_head = self.rank * (self.nope_dim + self.value_dim) + self.value_dim * hidden
        return into + latents + self.heads * per_head + indexer

    def misfit(self, segment: Segment, *, trains: bool) -> tuple[str, str] | None:
        """Of what is trained, no matrices are put together, and nothing is chosen."""
        if trains and self.sparse is not None:
            return "found an indexer in a training step, whose gradients are not drawn", "write mode: forward"
        absorbed = trains and self.form == "absorbed"
        return ("found absorbed in a training step", "write form: expanded") if absorbed else None

    def draw(self, drawing: Drawing, hidden: int, source: str) -> str:
        """Draw projections and attention in the form that is asked for."""
        tokens, index = drawing.tokens, self.sparse.features if self.sparse else 0
        features = (self.query_rank or 0) + self._latent + index
        down = drawing.linear("Down", features, hidden, source, role="latent")
        latent = drawing.pointwise("Down_Norm", features, down, normalizes=True)
        queries, read = hidden, Read(source)
        if self.query_rank is not None:
            queries, read = self.query_rank, Read(latent, None, drawing.bytes(self.query_rank * tokens))
        q = drawing.linear("Q_Up", self.query_dim, queries, read, outer=self.heads)
        chosen = self.sparse.draw(drawing, hidden, latent, (read, queries)) if self.sparse else None
        sight = Sight(drawing.segment, top=self.sparse.tokens if self.sparse else None)
        form = drawing.form if self.form == "auto" else self.form
        draw = self._absorbed if form == "absorbed" else self._expanded
        attended = draw(drawing, sight, q, latent, chosen)
        return drawing.linear("O_Proj", hidden, self.heads * self.value_dim, attended)

    def less_work(self, segment: Segment) -> Form:
        """The form that computes less for a segment."""
        sight = Sight(segment, top=self.sparse.tokens if self.sparse else None)
        up = self.rank * (self.nope_dim + self.value_dim)
        expanded = sight.keys * up + sight.pairs * (self.query_dim + self.value_dim)
        absorbed = segment.new * up + sight.pairs * (self._latent + self.rank)
        return "expanded" if expanded <= absorbed else "absorbed"

    def _expanded(self, drawing: Drawing, sight: Sight, q: str, latent: str, chosen: Read | None) -> str:
        one, heads, shared = sight.segment, self.heads, drawing.bytes
        every = one.sequences * sight.keys  # tokens, cached ones among them
        kept = Sight(one).state(drawing, "latents", 1, self._latent)  # all are expanded, whatever is chosen
        new = Read(latent, None, shared(self._latent * one.tokens))
        gathered = Kernel(name="Latents", op="elementwise", m=self._latent, n=every, states=kept or None)
        latent = drawing.draw(gathered, new)
        dims, up = (self.query_dim, self.value_dim), {"m": self.nope_dim + self.value_dim, "k": self.rank, "n": every}
        read, position = (Read(latent, None, shared(n * every)) for n in (self.rank, self.rotary_dim))
        both = drawing.draw(Kernel(name="KV_Up", op="gemm", outer=heads, **up), read)
        content, values = (Read(both, None, shared(heads * n * every)) for n in (self.nope_dim, self.value_dim))
        placed = Kernel(name="K_RoPE", op="elementwise", outer=heads, m=self.query_dim, n=every)
        k, q = drawing.draw(placed, content, position), drawing.by_head("Q_RoPE", heads, self.query_dim, q)
        of_head = Gradient("K_RoPE_bwd", of=(both,), reads=(), fields={"m": self.nope_dim})
        of_all = {"outer": 1, "m": self.rotary_dim, "flop_per_element": heads}
        of_position = Gradient("K_RoPE_bwd_latent", of=(latent,), reads=(), fields=of_all)
        drawing.rules |= {"Q_RoPE": Gradient(reads=()), "K_RoPE": (of_head, of_position)}
        read_k, read_v, none = Read(k, 2), values._replace(operand=2), ((), ())
        scores = sight.scores(heads, single=drawing.keeps)
        return attend(drawing, scores, Read(q), read_k, read_v, dims=dims, states=none, chosen=chosen)

    def _absorbed(self, drawing: Drawing, sight: Sight, q: str, latent: str, chosen: Read | None) -> str:
        heads, shared, tokens = self.heads, drawing.bytes, sight.segment.tokens
        content, position = (Read(q, None, shared(heads * n * tokens)) for n in (self.nope_dim, self.rotary_dim))
        absorbed = drawing.linear("Q_Absorb", self.rank, self.nope_dim, content, outer=heads)
        q = drawing.by_head("Q_RoPE", heads, self._latent, absorbed, position)
        keys, values = (Read(latent, 2, shared(size * tokens)) for size in (self._latent, self.rank))
        kept = sight.state(drawing, "latents", 1, self._latent)
        dims = (self._latent, self.rank)
        states: States = (kept, ())
        scores = sight.scores(heads, single=drawing.keeps)
        attended = attend(drawing, scores, Read(q), keys, values, dims=dims, states=states, chosen=chosen)
        return drawing.linear("V_Up", self.value_dim, self.rank, attended, outer=heads)
