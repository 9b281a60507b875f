"""Attention to the last tokens, and to groups of all tokens that are compressed to one entry each.

An entry is the key and the value of its group at once, for all heads: a weighed sum over the group's tokens, whose
weights are learned for every feature. It is computed once, when the group is complete; until then the inputs of the
group are kept. Where groups overlap, an entry takes in the group before as well, through projections of its own. With
an indexer, which has compressed keys of its own, attention reads the entries that score best. What heads collect is
projected back group of heads by group of heads, through few features each. As values have positions, what is collected
is turned back by them; that is not drawn, but takes no more than the writing of it.

An evaluation completes the groups that end in its tokens: a single token mostly none. The inputs of a group are kept in
four bytes an element, as is room for a whole one.

Source: ``inference/model.py`` and ``config.json`` of deepseek-ai/DeepSeek-V4-Flash on the Hugging Face hub.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import problem
from dfopt.documents.graph import SequenceState
from dfopt.documents.phase import Segment
from dfopt.workloads.blocks.attending import Sight, attend
from dfopt.workloads.blocks.block import Block
from dfopt.workloads.blocks.indexer import Indexer
from dfopt.workloads.drawing import Attending, Drawing
from dfopt.workloads.sketch import Read

_BUFFER_BYTES = 4  # of an element of a group that is not complete


def group_pairs(segment: Segment, group: int, most: int | None = None) -> int:
    """Number of (new token, visible complete group of tokens) pairs in one sequence.

    Parameters
    ----------
    segment
        New and cached tokens of each sequence.
    group
        Tokens of a group.
    most
        Groups that a token attends to at most; all if left out.

    Examples
    --------
    Tokens 8 and 9 of a sequence see two groups of four each, the seventh one:

    >>> group_pairs(Segment(sequences=1, new=3, cached=6), 4), group_pairs(Segment(sequences=1, new=3, cached=6), 4, 1)
    (5, 3)
    """
    return _seen(segment.keys, group, most) - _seen(segment.cached, group, most)


def _seen(tokens: int, group: int, most: int | None) -> int:
    """Pairs of a token and a group as of :func:`group_pairs`, for the first ``tokens`` tokens of a sequence."""
    groups, rest = divmod(tokens, group)
    if most is not None and groups > most:
        few = most * group
        return _seen(few - 1, group, None) + most * (tokens - few + 1)
    return group * (groups * (groups - 1) // 2) + groups * (rest + 1)


class CompressedAttention(Block):
    """Attention to a window of tokens and to compressed groups of all tokens.

    Attributes
    ----------
    kind : e.g. compressed_attention
        Kind of the block: compressed_attention, attention to a window and to compressed groups of tokens.
    heads : heads, e.g. 64
        Number of query heads, all of which attend to the same keys.
    head_dim : features, e.g. 512
        Features of a head, of a key and of a compressed entry.
    query_rank : features, e.g. 1024
        Features between the two projections of queries.
    window : tokens, e.g. 128
        Last tokens that a token attends to without compression, itself included.
    group : tokens, e.g. 128
        Tokens that are compressed to one entry. None: the layer has no compressed entries.
    overlaps : e.g. true
        Whether an entry also takes in the tokens of the previous group.
    sparse : e.g. {heads: 64, head_dim: 128, top_k: 512}
        Indexer that selects the compressed entries to attend to. None: all entries.
    output_groups : groups, e.g. 8
        Number of groups of heads with an output projection of their own.
    output_rank : features, e.g. 1024
        Features of each group's output projection, from which the output is computed.
    sinks : e.g. true
        Whether each head has a learned sink score. It changes the parameter count only.

    Examples
    --------
    A layer of DeepSeek-V4-Flash, of groups of 128 tokens; of each token 4 of 512 elements stay behind the window:

    >>> sizes = {"heads": 64, "head_dim": 512, "query_rank": 1024, "output_groups": 8, "output_rank": 1024}
    >>> layer = CompressedAttention(kind="compressed_attention", window=128, group=128, **sizes)
    >>> layer.parameters(hidden=4096), layer.token_elements
    (111216704, 4.0)
    """

    kind: Literal["compressed_attention"]
    heads: int = Field(ge=1, le=10**5)
    head_dim: int = Field(ge=1, le=10**6)
    query_rank: int = Field(ge=1, le=10**7)
    window: int = Field(ge=1, le=10**9)
    group: int | None = Field(default=None, ge=1, le=10**9)
    overlaps: bool = False
    sparse: Indexer | None = None
    output_groups: int = Field(ge=1, le=10**5)
    output_rank: int = Field(ge=1, le=10**7)
    sinks: bool = True

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.heads % self.output_groups:
            message = f"found {self.output_groups} groups, expected a divisor of the {self.heads} heads"
            raise problem(message, "choose a divisor", "$.output_groups")
        for name in ("overlaps", "sparse"):
            if getattr(self, name) and self.group is None:
                raise problem("found, but no groups", "say of how many tokens: group", f"$.{name}")
        if self.sparse is not None and (self.sparse.shared or self.sparse.block > 1 or self.sparse.reads == "hidden"):
            raise problem("found an indexer of tokens", "give heads, head_dim and top_k only", "$.sparse")
        return self

    @property
    def _sides(self) -> int:
        """Groups that an entry is made from."""
        return 0 if self.group is None else 1 + self.overlaps

    @property
    def token_elements(self) -> float:
        """Cached elements per token outside the window: its share of a compressed entry and of an indexer key."""
        of_entry = self.head_dim + (self.sparse.head_dim if self.sparse else 0)
        return of_entry / self.group if self.group is not None else 0

    def _compressor(self, hidden: int, dim: int) -> int:
        """Parameters of what compresses groups to entries: projections, learned positions and a norm."""
        return self._sides * dim * (2 * hidden + (self.group or 0)) + dim * (self._sides > 0)

    def parameters(self, hidden: int) -> int:
        """Number of parameters: projections, compressors, norms and sinks."""
        wide, between = self.heads * self.head_dim, self.output_groups * self.output_rank
        queries = self.query_rank * (hidden + wide + 1)
        more = self.heads * self.sinks + self._compressor(hidden, self.head_dim)
        if (indexer := self.sparse) is not None:
            more += self.query_rank * indexer.heads * indexer.head_dim + hidden * indexer.heads
            more += self._compressor(hidden, indexer.head_dim)
        return queries + (hidden + 1) * self.head_dim + wide * self.output_rank + between * hidden + more

    def misfit(self, segment: Segment, *, trains: bool) -> tuple[str, str] | None:
        """Reason and remedy if the block cannot process a segment (groups need a plain sequence) or train, or None."""
        if trains:
            return "found compressed attention in a training step, whose gradients are not drawn", "write mode: forward"
        if segment.sees == "causal":
            return None
        message = f"found groups of tokens, where those of {segment.keys} see more than what is before them"
        return message, "write causal: true or a phase, or verify a window of tokens"

    def draw(self, drawing: Drawing, hidden: int, source: str) -> str:
        """Draw projections, compressed entries, indexer and attention; return the name of the last kernel."""
        dim, heads, size, tokens = self.head_dim, self.heads, drawing.bytes, drawing.tokens
        choice, groups = self.sparse, self.output_groups
        of_keys = (1 + 2 * self._sides) * dim
        of_index = choice.heads + 2 * self._sides * choice.head_dim if choice else 0
        features = self.query_rank + of_keys + of_index
        down = drawing.linear("Down", features, hidden, source, role="latent")
        kept = list[SequenceState]()
        for part in drawing.each():
            kept += [state for n in (dim, choice.head_dim if choice else 0) for state in self._unfinished(part, n)]
        # A value and its weight: position, exponent, both sums and a product, half of it for each.
        shape = {"normalizes": True, "flop_per_element": 3, "states": tuple(kept) or None}
        normed = drawing.pointwise("Down_Norm", features, down, **shape)
        latent = Read(normed, None, size(self.query_rank * tokens), "queries")
        wide = choice.heads * choice.head_dim if choice else 0
        asked = Read(drawing.linear("Index_Q", wide, self.query_rank, latent)) if wide else None
        chosen = [self._choose(part, normed, asked) for part in drawing.each()]
        up = drawing.linear("Q_Up", dim, self.query_rank, latent, outer=heads)
        q = Read(drawing.by_head("Q_RoPE", heads, dim, up, normalizes=True, flop_per_element=2))
        contexts = [self._attend(part, read, q, normed) for part, read in zip(drawing.each(), chosen, strict=True)]
        few = drawing.linear("O_Down", self.output_rank, heads // groups * dim, *drawing.joined(contexts), outer=groups)
        return drawing.linear("O_Proj", hidden, groups * self.output_rank, few)

    def _ended(self, segment: Segment) -> tuple[int, int]:
        """Groups of a sequence that were complete before, and are with the new tokens."""
        return (0, 0) if self.group is None else (segment.cached // self.group, segment.keys // self.group)

    def _attend(self, drawing: Drawing, chosen: Read | None, q: Read, normed: str) -> str:
        """Draw the attention of a segment, to a window and to entries."""
        segment, dim, most = drawing.segment, self.head_dim, self.sparse.top_k if self.sparse else None
        sight, (before, after) = Sight(segment, window=self.window), self._ended(segment)
        pairs = sight.pairs + (group_pairs(segment, self.group, most) if self.group is not None else 0)
        states = sight.state(drawing, "keys", 1, dim) + self._entries(drawing, "entries", dim, most)
        new = Read(normed, 2, drawing.bytes(dim * (drawing.tokens + segment.sequences * (after - before))), "keys")
        scores = Attending(self.heads, segment.sequences, segment.new, sight.keys + after, pairs, drawing.still)
        return attend(drawing, scores, drawing.own(q), new, new, dims=(dim, dim), states=(states, ()), chosen=chosen)

    def _choose(self, drawing: Drawing, normed: str, asked: Read | None) -> Read | None:
        """Draw what the indexer chooses for a segment; none where no group is complete."""
        segment, choice, size = drawing.segment, self.sparse, drawing.bytes
        before, after = self._ended(segment)
        if choice is None or self.group is None or asked is None or not after:
            return None
        dim, group = choice.head_dim, self.group
        scores = Attending(1, segment.sequences, segment.new, after, group_pairs(segment, group), drawing.still)
        kept = self._entries(drawing, "index keys", dim, None)
        # What all heads say of a pair is added up: their features lie side by side, those of the key are shared.
        product = scores.product("Index_Scores", after, choice.heads * dim, None, kept)
        new = segment.sequences * (after - before) * dim
        read = drawing.own(asked)._replace(operand=1)
        index_scores = drawing.draw(product, read, *((Read(normed, 2, size(new), "index keys"),) if new else ()))
        if not new:
            drawing.from_states.add((index_scores, 2))
        weights = Read(normed, None, size(choice.heads * drawing.tokens), "index weights")
        top = drawing.draw(scores.pointwise("Index_Top_K", None, normalizes=True), index_scores, weights)
        return Read(top, None, size(segment.sequences * group_pairs(segment, group, choice.top_k)))

    def _entries(self, drawing: Drawing, name: str, dim: int, most: int | None) -> tuple[SequenceState, ...]:
        """Entries that are kept, of which new tokens read all, or what each chooses."""
        segment, (before, after) = drawing.segment, self._ended(drawing.segment)
        if not drawing.keeps or not after:
            return ()
        reads = before if most is None else min(before, most * segment.new)
        sizes = {"sequences": segment.sequences, "bytes_per_token": drawing.cached_bytes(dim)}
        return (SequenceState(name=name, tokens=after, reads=reads, writes=after - before, **sizes),)

    def _unfinished(self, drawing: Drawing, dim: int) -> tuple[SequenceState, ...]:
        """Inputs of groups that are not complete, read when they are; of overlapping ones the one before."""
        segment, group, (before, after) = drawing.segment, self.group, self._ended(drawing.segment)
        if not drawing.keeps or group is None or not dim:
            return ()
        held = self._sides * group
        reads = min(segment.cached, segment.cached % group + group * self.overlaps) if after > before else 0
        size = drawing.state_bytes(2 * self._sides * dim, _BUFFER_BYTES)
        sizes = {"sequences": segment.sequences, "bytes_per_token": size, "tokens": held}
        name = drawing.called("unfinished groups")
        return (SequenceState(name=name, reads=reads, writes=min(segment.new, held), **sizes),)
