"""Cross attention: queries of the new tokens, keys and values of what an encoder has made of each sequence.

Keys and values are computed once, with the first tokens of a sequence, from what the encoder leaves in DRAM; they are
kept and read by every evaluation. The encoder is a model of its own.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from dfopt.documents.graph import Kernel, SequenceState
from dfopt.documents.phase import Segment
from dfopt.workloads.blocks.attending import States, attend
from dfopt.workloads.blocks.attention import Heads
from dfopt.workloads.drawing import Attending, Drawing
from dfopt.workloads.sketch import Read


class CrossAttention(Heads):
    """Cross-attention to the tokens of an encoder.

    Attributes
    ----------
    kind : e.g. cross_attention
        Kind of the block: cross_attention, attention to the tokens of an encoder.
    tokens : tokens, e.g. 1500
        Number of encoder tokens of each sequence.
    source : features, e.g. 1024
        Features of one encoder token. None: as many as those of the residual stream.

    Examples
    --------
    Of Whisper large:

    >>> sizes = {"heads": 20, "head_dim": 64, "bias": "no_key", "tokens": 1500}
    >>> CrossAttention(kind="cross_attention", **sizes).parameters(hidden=1280)
    6557440
    """

    kind: Literal["cross_attention"]
    tokens: int = Field(ge=1, le=10**8)
    source: int | None = Field(default=None, ge=1, le=10**7)

    def parameters(self, hidden: int) -> int:
        """Number of parameters of the projections."""
        return self.projections(hidden) + 2 * self.kv_width * ((self.source or hidden) - hidden)

    def misfit(self, segment: Segment, *, trains: bool) -> tuple[str, str] | None:
        """Reason and remedy if the block cannot train (gradients would continue in the encoder), or None."""
        if trains:
            return "found cross attention in a training step", "write mode: forward"
        return None

    def draw(self, drawing: Drawing, hidden: int, source: str) -> str:
        """Draw queries, keys and values of new sequences, and attention; return the name of the last kernel."""
        dim, features = self.head_dim, self.source or hidden
        q = drawing.linear("Q_Proj", dim, hidden, source, outer=self.heads)
        # keys and values of the sequences that begin, which all of them are computed for together
        fresh = drawing.of([p for p, s in zip(drawing.places, drawing.segments, strict=True) if not s.cached])
        every, names = self.tokens * sum(segment.sequences for segment in fresh.segments), list[str]()
        if every:
            encoded = fresh.draw(Kernel(name="Encoded", op="elementwise", m=features, n=every))
            shape: dict[str, Any] = {"op": "gemm", "outer": self.groups, "m": dim, "k": features, "n": every}
            names = [fresh.draw(Kernel(name=f"{letter}_Proj", **shape), encoded) for letter in "KV"]
        contexts = list[str]()
        for part in drawing.each():
            k, v = (None, None) if part.segment.cached else (Read(name, 2, self._part(part, every)) for name in names)
            states: States = (self._kept(part, "encoded keys"), self._kept(part, "encoded values"))
            segment, pairs = part.segment, part.segment.new * self.tokens
            scores = Attending(self.heads, segment.sequences, segment.new, self.tokens, pairs, still=part.still)
            contexts.append(attend(part, scores, part.own(q), k, v, dims=(dim, dim), states=states))
        return drawing.linear("O_Proj", hidden, self.width, *drawing.joined(contexts))

    def _part(self, drawing: Drawing, every: int) -> float | None:
        """Bytes of the keys, or values, of a segment, where they are not all or are shared by heads."""
        own = drawing.segment.sequences * self.tokens
        return drawing.bytes(self.kv_width * own) if self.groups < self.heads or own < every else None

    def _kept(self, drawing: Drawing, name: str) -> tuple[SequenceState, ...]:
        segment, size = drawing.segment, drawing.cached_bytes(self.kv_width)
        sizes = {"sequences": segment.sequences, "heads": self.groups, "bytes_per_token": size, "tokens": self.tokens}
        moved = {"reads": self.tokens} if segment.cached else {"writes": self.tokens}
        return (SequenceState(name=name, **sizes, **moved),) if drawing.keeps else ()
