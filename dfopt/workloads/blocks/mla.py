"""Multi-head latent attention (DeepSeek-V2): keys and values of all heads come from one latent of a token.

What is kept of a token is that latent and a key of its position, which all heads share: chips that split heads hold
and read a copy each. There are two ways to compute the same:

* ``expanded``: keys and values of every head are computed from the latents of all keys, cached ones among them, and
  attention is that of heads of their own. It pays where many new tokens share that work.
* ``absorbed``: the matrix that would expand keys is applied to the queries, and that of values to what the heads have
  collected. Attention then is that of all heads to one key as wide as the latent, which the scores read from DRAM and
  the sums of values find on the chip.

Segments of one evaluation may take different ones, as a chunk of a prompt and decode steps do; the matrices that both
hold are then held in both forms, as implementations do.

Source: DeepSeek-V2 (arXiv:2405.04434), section 2.1 and appendix C.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dfopt.documents.graph import Kernel, SequenceState
from dfopt.documents.phase import Segment
from dfopt.workloads.backward import Gradient
from dfopt.workloads.blocks.attending import Sight, States, attend
from dfopt.workloads.blocks.block import Block
from dfopt.workloads.blocks.indexer import Indexer
from dfopt.workloads.drawing import Drawing, Form
from dfopt.workloads.sketch import Read


class LatentAttention(Block):
    """Latent attention (MLA): keys and values of all heads come from one cached latent.

    Attributes
    ----------
    kind : e.g. mla
        Kind of the block: mla, multi-head latent attention as in DeepSeek-V2.
    heads : heads, e.g. 128
        Number of query heads of each layer.
    query_rank : features, e.g. 1536
        Features between the two projections of queries. None: queries have a single projection.
    rank : features, e.g. 512
        Features of the latent of a token, from which keys and values come.
    nope_dim : features, e.g. 128
        Features of a query head without a position.
    rotary_dim : features, e.g. 64
        Features of a query head with a rotary position.
    value_dim : features, e.g. 128
        Features of the value of one head.
    form : e.g. absorbed
        Computation of latent attention. ``expanded``: keys and values of all heads are computed. ``absorbed``: queries
        are projected to the latents. ``auto``: as the parameter ``form`` of the model says.
    sparse : e.g. {heads: 64, head_dim: 128, top_k: 2048}
        Indexer that selects the tokens to attend to. None: all tokens.

    Examples
    --------
    Of DeepSeek-V3:

    >>> sizes = {"heads": 128, "query_rank": 1536, "rank": 512, "nope_dim": 128, "rotary_dim": 64, "value_dim": 128}
    >>> LatentAttention(kind="mla", form="absorbed", **sizes).token_elements
    576
    """

    kind: Literal["mla"]
    heads: int = Field(ge=1, le=10**5)
    query_rank: int | None = Field(default=None, ge=1, le=10**6)
    rank: int = Field(ge=1, le=10**6)
    nope_dim: int = Field(ge=1, le=10**6)
    rotary_dim: int = Field(ge=1, le=10**6)
    value_dim: int = Field(ge=1, le=10**6)
    form: Form | Literal["auto"] = "auto"
    sparse: Indexer | None = None

    @property
    def query_dim(self) -> int:
        """Features of a query head, with and without position."""
        return self.nope_dim + self.rotary_dim

    @property
    def token_elements(self) -> int:
        """Cached elements per token: latent and rotary key."""
        return self._latent + (self.sparse.token_elements if self.sparse else 0)

    @property
    def _latent(self) -> int:
        return self.rank + self.rotary_dim

    def parameters(self, hidden: int) -> int:
        """Number of parameters: projections and norms of latents; equal in both forms."""
        wide = self.heads * self.query_dim
        into = hidden * wide if self.query_rank is None else self.query_rank * (hidden + wide + 1)
        latents = hidden * self._latent + self.rank
        indexer = self.sparse.parameters(hidden, self.query_rank) if self.sparse else 0
        per_head = self.rank * (self.nope_dim + self.value_dim) + self.value_dim * hidden
        return into + latents + self.heads * per_head + indexer

    def misfit(self, segment: Segment, *, trains: bool) -> tuple[str, str] | None:
        """Reason and remedy if the block cannot train (absorbed form or indexer), or None."""
        if trains and self.sparse is not None:
            return "found an indexer in a training step, whose gradients are not drawn", "write mode: forward"
        absorbed = trains and self.form == "absorbed"
        return ("found absorbed in a training step", "write form: expanded") if absorbed else None

    def draw(self, drawing: Drawing, hidden: int, source: str) -> str:
        """Draw projections and attention in the requested form; return the name of the last kernel."""
        tokens, index = drawing.tokens, self.sparse.features if self.sparse else 0
        features = (self.query_rank or 0) + self._latent + index
        down = drawing.linear("Down", features, hidden, source, role="latent")
        latent = drawing.pointwise("Down_Norm", features, down, normalizes=True)
        queries, read = hidden, Read(source)
        if self.query_rank is not None:
            queries, read = self.query_rank, Read(latent, None, drawing.bytes(self.query_rank * tokens), "queries")
        q = drawing.linear("Q_Up", self.query_dim, queries, read, outer=self.heads)
        projected = self.sparse.project(drawing, hidden, latent, (read, queries)) if self.sparse else None
        choices = [self.sparse.choose(part, projected) if self.sparse else None for part in drawing.each()]
        chosen = dict(zip(drawing.places, choices, strict=True))
        contexts = list[str]()
        for form, draw in (("expanded", self._expanded), ("absorbed", self._absorbed)):
            alike = [place for place in drawing.places if self._form(drawing, place) == form]
            if alike:
                contexts += draw(drawing.of(alike), q, latent, chosen)
        return drawing.linear("O_Proj", hidden, self.heads * self.value_dim, *drawing.joined(contexts))

    def _form(self, drawing: Drawing, place: int) -> Form:
        if self.form != "auto":
            return self.form
        return drawing.forms[place] if drawing.forms else "expanded"

    def sight(self, segment: Segment) -> Sight:
        """Keys that the new tokens of a segment attend to."""
        return Sight(segment, top=self.sparse.tokens if self.sparse else None)

    def less_work(self, segment: Segment) -> Form:
        """The form (absorbed or expanded) with fewer FLOP for a segment."""
        sight = self.sight(segment)
        up = self.rank * (self.nope_dim + self.value_dim)
        expanded = sight.keys * up + sight.pairs * (self.query_dim + self.value_dim)
        absorbed = segment.new * up + sight.pairs * (self._latent + self.rank)
        return "expanded" if expanded <= absorbed else "absorbed"

    def _expanded(self, drawing: Drawing, q: str, latent: str, chosen: dict[int, Read | None]) -> list[str]:
        heads, shared, parts = self.heads, drawing.bytes, drawing.each()
        sights = [self.sight(part.segment) for part in parts]
        # tokens, cached ones among them: of every segment, and of all
        tokens = [sight.segment.sequences * sight.keys for sight in sights]
        every, kept = sum(tokens), list[SequenceState]()
        for part, sight in zip(parts, sights, strict=True):  # all are expanded, whatever is chosen
            kept += Sight(sight.segment).state(part, part.called("latents"), 1, self._latent)
        new = Read(latent, None, shared(self._latent * drawing.tokens), "latent")
        gathered = Kernel(name="Latents", op="elementwise", m=self._latent, n=every, states=tuple(kept) or None)
        latent = drawing.draw(gathered, new)
        dims, up = (self.query_dim, self.value_dim), {"m": self.nope_dim + self.value_dim, "k": self.rank, "n": every}
        read, position = (
            Read(latent, None, shared(n * every), name)
            for n, name in ((self.rank, "content"), (self.rotary_dim, "position"))
        )
        both = drawing.draw(Kernel(name="KV_Up", op="gemm", outer=heads, **up), read)
        content = Read(both, None, shared(heads * self.nope_dim * every), "keys")
        placed = Kernel(name="K_RoPE", op="elementwise", outer=heads, m=self.query_dim, n=every)
        k, q = drawing.draw(placed, content, position), drawing.by_head("Q_RoPE", heads, self.query_dim, drawing.own(q))
        of_head = Gradient("K_RoPE_bwd", of=(both,), reads=(), fields={"m": self.nope_dim})
        of_all = {"outer": 1, "m": self.rotary_dim, "flop_per_element": heads}
        of_position = Gradient("K_RoPE_bwd_latent", of=(latent,), reads=(), fields=of_all)
        drawing.rules |= {"Q_RoPE": Gradient(reads=()), "K_RoPE": (of_head, of_position)}
        contexts = list[str]()
        for part, sight, own in zip(parts, sights, tokens, strict=True):
            keys = Read(k, 2, None if own == every else shared(heads * self.query_dim * own))
            values = Read(both, 2, shared(heads * self.value_dim * own), "values")
            scores, (place,) = sight.scores(heads, still=part.still), part.places
            read_q, none = part.own(q), ((), ())
            contexts.append(attend(part, scores, read_q, keys, values, dims=dims, states=none, chosen=chosen[place]))
        return contexts

    def _absorbed(self, drawing: Drawing, q: str, latent: str, chosen: dict[int, Read | None]) -> list[str]:
        heads, shared, tokens = self.heads, drawing.bytes, drawing.tokens
        sizes = {"content": self.nope_dim, "position": self.rotary_dim}
        content, position = (Read(q, None, shared(heads * n * tokens), name) for name, n in sizes.items())
        absorbed = drawing.linear("Q_Absorb", self.rank, self.nope_dim, content, outer=heads)
        q, dims = drawing.by_head("Q_RoPE", heads, self._latent, absorbed, position), (self._latent, self.rank)
        contexts = list[str]()
        for part in drawing.each():
            sight, (place,) = self.sight(part.segment), part.places
            read = {"latent": self._latent, "content": self.rank}
            keys, values = (Read(latent, 2, shared(n * part.tokens), name) for name, n in read.items())
            states: States = (sight.state(part, "latents", 1, self._latent), ())
            scores = sight.scores(heads, still=part.still)
            read_q = part.own(q)
            contexts.append(attend(part, scores, read_q, keys, values, dims=dims, states=states, chosen=chosen[place]))
        if len(contexts) > 1:  # heads of all tokens, of which a product tells no part from what all heads share
            contexts = [drawing.by_head("Collected", heads, self.rank, *drawing.joined(contexts))]
        return [drawing.linear("V_Up", self.value_dim, self.rank, *contexts, outer=heads)]
