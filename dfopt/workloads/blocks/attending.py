"""What the tokens of a sequence attend to, and the kernels and states of it, which mixers of many kinds share."""

from __future__ import annotations

from dataclasses import dataclass

from dfopt.documents.graph import SequenceState
from dfopt.documents.phase import Segment
from dfopt.workloads.backward import Gradient
from dfopt.workloads.drawing import Attending, Drawing
from dfopt.workloads.sketch import Read

States = tuple[tuple[SequenceState, ...], tuple[SequenceState, ...]]
"""What the scores and what the sums of values keep."""


@dataclass(frozen=True)
class Sight:
    """Keys that the new tokens of a segment attend to.

    Attributes
    ----------
    segment : Segment
        Sequences with new and cached tokens.
    window : int, optional
        Largest number of latest tokens that a token attends to, itself included. None: no window.
    chunk : int, optional
        Length of the chunks into which a sequence is cut; a token attends only to its own chunk. None: no chunks.
    top : int, optional
        Largest number of tokens that a token attends to, at any distance, as sparse attention chooses them. None: all.

    Examples
    --------
    A token behind 4096 others sees the last 1024, its own among them; or what its chunk has so far:

    >>> step = Segment(sequences=1, new=1, cached=4096)
    >>> local, chunked = Sight(step, window=1024), Sight(step, chunk=1000)
    >>> local.reads, local.pairs, local.held, chunked.reads, chunked.pairs
    (1023, 1024, 1024, 96, 97)
    """

    segment: Segment
    window: int | None = None
    chunk: int | None = None
    top: int | None = None

    @property
    def local(self) -> bool:
        """Whether a window or chunk hides keys from some tokens."""
        window = self.window
        if window is not None and self.segment.sees == "full":
            window = window // 2 + 1  # to the side that it reaches further on
        most = min(limit for limit in (window, self.chunk, self.segment.keys) if limit is not None)
        return most < self.segment.keys

    @property
    def reads(self) -> int:
        """Number of cached tokens of a sequence that some new token attends to."""
        cached = self.segment.cached
        if self.chunk is not None:
            return cached % self.chunk
        if self.top is not None:
            return min(cached, self.top * self.segment.new)
        return cached if self.window is None else min(cached, self.window - 1)

    @property
    def keys(self) -> int:
        """Number of rows of the score matrix: attended cached tokens and new tokens."""
        return (self.segment.cached if self.top is not None else self.reads) + self.segment.new

    @property
    def pairs(self) -> int:
        """Number of (new token, attended key) pairs."""
        segment = self.segment
        if self.top is not None:
            causal = segment.sees == "causal"
            return segment.pairs(window=self.top) if causal else min(segment.pairs(), self.top * segment.new)
        return segment.pairs(self.window, self.chunk) if self.local else segment.pairs()

    @property
    def held(self) -> int:
        """Number of tokens of a sequence that stay cached afterwards."""
        return min(limit for limit in (self.window, self.chunk, self.segment.keys) if limit is not None)

    def state(self, drawing: Drawing, name: str, heads: int, elements: int) -> tuple[SequenceState, ...]:
        """Cache of keys, values or latents of every token; empty where nothing is cached.

        Parameters
        ----------
        drawing
            The layer, or the view of a segment.
        name
            Name of the state.
        heads, elements
            Number of heads, and elements of each head per token.
        """
        if not drawing.keeps:
            return ()
        kept = SequenceState(
            name=name,
            sequences=self.segment.sequences,
            heads=heads,
            bytes_per_token=drawing.cached_bytes(heads * elements),
            tokens=self.held,
            reads=self.reads,
            writes=min(self.segment.new, self.held),
            page=drawing.page,
        )
        return (kept,)

    def scores(self, heads: int, *, still: bool) -> Attending:
        """Factory of the kernels over scores."""
        segment = self.segment
        return Attending(heads, segment.sequences, segment.new, self.keys, self.pairs, still)


def attend(
    drawing: Drawing,
    scores: Attending,
    q: Read,
    k: Read | None,
    v: Read | None,
    *,
    dims: tuple[int, int],
    states: States,
    chosen: Read | None = None,
) -> str:
    """Draw attention scores, softmax and weighted sum; return the name of the last kernel.

    Parameters
    ----------
    drawing, scores
        The layer, or the view of a segment, and makers of the kernels over its scores.
    q, k, v
        Reads of queries, of keys and of values; None if all keys and values are in the states.
    dims
        Features of a query and of a value.
    states
        States that the scores and the sums of values keep.
    chosen
        The choice of an indexer.
    """
    of_query, of_value = dims
    product = scores.product("QK", scores.keys, of_query, "scores", states[0])
    weighed = drawing.draw(product, q._replace(operand=1), *((k,) if k else ()))
    also = (chosen,) if chosen else ()
    weights = drawing.draw(scores.pointwise("Softmax", "softmax", normalizes=True), weighed, *also)
    drawing.rules |= {
        "QK": (Gradient("QK_bwd_queries"), Gradient("QK_bwd_keys", turned=True)),
        "Softmax": Gradient(reads=("Softmax",)),
        "AV": (Gradient("AV_bwd_scores"), Gradient("AV_bwd_values", turned=False)),
    }
    if "scores" in drawing.drops:
        weights = drawing.draw(scores.pointwise("Scores_Dropout", "scores_dropout"), weights)
        drawing.masked(weights)
        # what it has kept says which elements pass, as the mask of a byte does, which is not drawn
        drawing.rules["Scores_Dropout"] = Gradient(reads=("Scores_Dropout",))
    product = scores.product("AV", of_value, scores.keys, "context", states[1])
    drawing.from_states |= {(drawing.called(name), 2) for name, read in (("QK", k), ("AV", v)) if read is None}
    return drawing.draw(product, *((v,) if v else ()), Read(weights, 1))
