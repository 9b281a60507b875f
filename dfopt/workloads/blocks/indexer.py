"""Sparse attention: an indexer scores all tokens with small heads, and attention reads those that score best.

Keys of the indexer are kept of every token and read in every evaluation; so is all that attention may choose from, of
which it reads what its new tokens choose. Every chip may score alike, as choices are of all heads.

Sources: DeepSeek-V3.2 (DSA, arXiv:2512.02556, section 2.1); MiniMax-M3, whose indexer chooses blocks of tokens.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dfopt.documents.base import Part
from dfopt.workloads.blocks.attending import Sight
from dfopt.workloads.drawing import Drawing
from dfopt.workloads.sketch import Read


class Indexer(Part):
    """Indexer of sparse attention: selects the tokens that others attend to.

    Attributes
    ----------
    heads : heads, e.g. 64
        Number of heads of the indexer.
    head_dim : features, e.g. 128
        Features of each head of the indexer, and of the key that the heads share.
    top_k : tokens, e.g. 2048
        Number of tokens, or of blocks of tokens, that the indexer selects.
    block : tokens, e.g. 1
        Tokens of a block that the indexer selects together.
    shared : e.g. false
        Whether the layer uses the selection of an earlier layer and has no indexer of its own.
    reads : e.g. queries
        Input of the indexer's queries. ``queries``: the latent of the queries. ``hidden``: the residual stream.

    Examples
    --------
    Of DeepSeek-V3.2, behind a query latent of 1536 features:

    >>> indexer = Indexer(heads=64, head_dim=128, top_k=2048)
    >>> indexer.parameters(hidden=7168, query=1536), indexer.tokens
    (13959424, 2048)
    """

    heads: int = Field(ge=1, le=10**5)
    head_dim: int = Field(ge=1, le=10**6)
    top_k: int = Field(ge=1, le=10**9)
    block: int = Field(default=1, ge=1, le=10**6)
    shared: bool = False
    reads: Literal["queries", "hidden"] = "queries"

    @property
    def tokens(self) -> int:
        """Largest number of attended tokens."""
        return self.top_k * self.block

    @property
    def token_elements(self) -> int:
        """Cached elements per token."""
        return 0 if self.shared else self.head_dim

    def parameters(self, hidden: int, query: int | None) -> int:
        """Number of parameters: projections, and the norm of the key."""
        if self.shared:
            return 0
        of = hidden if self.reads == "hidden" or query is None else query
        return of * self.heads * self.head_dim + hidden * (self.head_dim + self.heads) + 2 * self.head_dim

    @property
    def features(self) -> int:
        """Features computed from the residual: the key, and the weights of the heads."""
        return 0 if self.shared else self.head_dim + self.heads

    def project(
        self, drawing: Drawing, hidden: int, source: str, latent: tuple[Read, int] | None = None
    ) -> tuple[Read, str] | None:
        """Draw the indexer's projections; return the read of its queries and the kernel of its key, or None.

        Parameters
        ----------
        drawing, hidden, source
            As of a block; with a latent, ``source`` has computed :attr:`features`.
        latent
            Read of the latent of queries, and its features. Without it everything is computed from the residual stream.
        """
        if self.shared:
            return None
        wide = self.heads * self.head_dim
        if latent is None:
            width = wide + self.features
            normed = drawing.pointwise(
                "Index_Norm", width, drawing.linear("Index_Proj", width, hidden, source), normalizes=True
            )
            return Read(normed, 1, drawing.bytes(wide * drawing.tokens), "index queries"), normed
        read, features = latent
        return Read(drawing.linear("Index_Q", wide, features, read), 1), source

    def choose(self, drawing: Drawing, projected: tuple[Read, str] | None) -> Read | None:
        """Draw the selection for a segment; return the read of it, or None if an earlier layer made it."""
        if projected is None:
            return None
        (queries, key), dim, segment = projected, self.head_dim, drawing.segment
        sight = Sight(segment)
        # What all heads say of a pair is added up: their features lie side by side, those of the key are shared.
        scores = sight.scores(1, still=drawing.still)
        product = scores.product(
            "Index_Scores", sight.keys, self.heads * dim, None, sight.state(drawing, "index keys", 1, dim)
        )
        index_scores = drawing.draw(
            product, drawing.own(queries), Read(key, 2, drawing.bytes(dim * drawing.tokens), "index keys")
        )
        top = drawing.draw(scores.pointwise("Index_Top_K", None, normalizes=True), index_scores)
        return Read(top, None, drawing.bytes(segment.sequences * Sight(segment, top=self.tokens).pairs))
