"""What one evaluation of a language model works on: tokens that are new, tokens that are cached, and who sees whom.

A `Phase` is a tuple of `Segment` parts. Prefill, decode, speculative verification, chunked prefill beside decode and
encoding differ in nothing else, so whoever builds or prices a model asks segments and never for a name.
All counts are exact integers.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.errors import shown

_TEXT: Final = re.compile(r"(\d+)x(\d+)(?:@(\d+))?(?::(last|all|none))?")


class Segment(Part):
    """Sequences of equal shape: ``new`` tokens of each are processed after ``cached`` ones.

    As text ``SEQUENCESxNEW@CACHED``, of which the last logits are wanted unless ``:all`` or ``:none`` follow.

    Attributes
    ----------
    sequences : sequences, e.g. 16
        Number of sequences, or samples, of this shape.
    new : tokens, e.g. 512
        Tokens of each sequence that the evaluation processes.
    cached : tokens, e.g. 4096
        Tokens of each sequence before the new ones, whose keys and values are in the cache.
    sees : depths, e.g. causal
        Keys that a new token attends to. ``causal``: those before it and its own. ``full``: those of all tokens. A list
        of depths, one per new token, is a draft tree: each token attends to the cached ones, its ancestors and itself.
    logits : e.g. last
        New tokens whose logits the model computes. ``last``: the last one of each sequence. ``all``: all of them.
        ``none``: no token.

    Examples
    --------
    Four prompts of which 96 tokens are cached, and 32 are not:

    >>> hit = Segment(sequences=4, new=32, cached=96, logits="last")
    >>> hit.tokens, hit.wanted, hit.pairs()
    (128, 4, 3600)
    >>> Segment.model_validate("4x32@96") == hit, str(hit)
    (True, '4x32@96')
    """

    sequences: int = Field(ge=1, le=10**9)
    new: int = Field(ge=1, le=10**9)
    cached: int = Field(default=0, ge=0, le=10**9)
    sees: Literal["causal", "full"] | tuple[int, ...] = "causal"
    logits: Literal["last", "all", "none"] = "all"

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: Any) -> Any:
        if not isinstance(data, str):
            return data
        match = _TEXT.fullmatch(data.strip())
        if match is None:
            remedy = "write SEQUENCESxNEW@CACHED, such as 4x512@0 or 16x1@4096, and :all or :none for its logits"
            raise problem(f"found {shown(data)}, expected a segment", remedy)
        sequences, new, cached, logits = match.groups()
        sizes = {"sequences": int(sequences), "new": int(new), "cached": int(cached or 0)}
        return {**sizes, "logits": logits or "last"}

    def __str__(self) -> str:
        wants = "" if self.logits == "last" else f":{self.logits}"
        sees = "" if self.sees == "causal" else f", {self.sees if isinstance(self.sees, str) else 'a tree'}"
        return f"{self.sequences}x{self.new}@{self.cached}{wants}{sees}"

    @model_validator(mode="after")
    def _is_a_tree(self) -> Self:
        if isinstance(self.sees, str):
            return self
        if len(self.sees) != self.new:
            message = f"found {len(self.sees)} depths for {self.new} new tokens"
            raise problem(message, "give every new token a depth", "$.sees")
        check_depths(self.sees, "$.sees")
        return self

    @property
    def tokens(self) -> int:
        """Number of tokens that are processed."""
        return self.sequences * self.new

    @property
    def keys(self) -> int:
        """Tokens of one sequence, cached and new."""
        return self.cached + self.new

    @property
    def wanted(self) -> int:
        """Number of tokens whose logits are computed."""
        return self.sequences * {"last": 1, "all": self.new, "none": 0}[self.logits]

    @property
    def produced(self) -> int:
        """Least number of new tokens: one for each sequence with logits; a draft may give more."""
        return 0 if self.logits == "none" else self.sequences

    def pairs(self, window: int | None = None, chunk: int | None = None) -> int:
        """Number of (new token, attended key) pairs in one sequence.

        Parameters
        ----------
        window : int, optional
            Keys that a token of a local layer attends to at most, its own among them; where tokens see all, as many on
            either side.
        chunk : int, optional
            Tokens of a chunk; a token attends to no other chunk than its own.

        Raises
        ------
        ValueError
            For a chunk of a segment that is no causal one, or a window of one that is none and has cached tokens.

        Examples
        --------
        >>> Segment(sequences=1, new=4, cached=2).pairs(), Segment(sequences=1, new=4, cached=2).pairs(window=4)
        (18, 15)
        >>> Segment(sequences=1, new=4, cached=2).pairs(chunk=4)
        10
        >>> Segment(sequences=1, new=4, sees="full").pairs(window=3)
        10
        >>> Segment(sequences=2, new=3, cached=5, sees=(0, 1, 1)).pairs()
        20
        """
        q, c = self.new, self.cached
        if window is not None and chunk is None and self.sees == "full" and not c:
            before, behind = (window - 1) // 2, window // 2
            return _up_to(q, before + 1) + _up_to(q, behind + 1) - q
        if (window is not None or chunk is not None) and self.sees != "causal":
            raise ValueError(
                f"found a segment that sees {self.sees}: only causal ones have chunks, or windows and a cache"
            )
        if chunk is not None:
            return _in_chunks(c + q, chunk) - _in_chunks(c, chunk)
        if window is not None:
            return _up_to(c + q, window) - _up_to(c, window)
        if self.sees == "full":
            return q * (c + q)
        own = q * (q + 1) // 2 if isinstance(self.sees, str) else sum(self.sees) + q
        return q * c + own


def _listed(data: Any) -> Any:
    return data.split(",") if isinstance(data, str) else data


Segments = Annotated[tuple[Segment, ...], BeforeValidator(_listed)]
"""Segments, or as text several with commas between."""


class Phase(Part):
    """One forward evaluation of a model, as segments of sequences.

    Attributes
    ----------
    segments : e.g. ["4x512@0", "16x1@4096"]
        Groups of sequences that one evaluation processes together, each as SEQUENCESxNEW@CACHED.

    Examples
    --------
    >>> step = Phase(segments="1x512@0, 63x1@4096")
    >>> step.tokens, step.wanted, step.sequences
    (575, 64, 64)
    """

    segments: Segments = Field(min_length=1, max_length=1000)

    @property
    def tokens(self) -> int:
        """Number of tokens that are processed."""
        return sum(segment.tokens for segment in self.segments)

    @property
    def wanted(self) -> int:
        """Number of tokens whose logits are computed."""
        return sum(segment.wanted for segment in self.segments)

    @property
    def produced(self) -> int:
        """Least number of new tokens over all sequences."""
        return sum(segment.produced for segment in self.segments)

    @property
    def sequences(self) -> int:
        """Number of sequences over all segments."""
        return sum(segment.sequences for segment in self.segments)

    def times(self, number: int) -> Phase:
        """The phase with ``number`` times as many sequences in every segment.

        Examples
        --------
        >>> [str(one) for one in Phase(segments="1x512@0,4x1@4096").times(2).segments]
        ['2x512@0', '8x1@4096']
        """
        more = (segment.model_copy(update={"sequences": number * segment.sequences}) for segment in self.segments)
        return self.model_copy(update={"segments": tuple(more)})


def prefill(batch: int, prompt: int, hit: int = 0) -> Phase:
    """Phase that reads prompts and computes the last logits of each.

    Parameters
    ----------
    batch, prompt : int
        Number of prompts, and tokens of each.
    hit : int
        Tokens of each that are cached already, fewer than ``prompt``.

    Raises
    ------
    pydantic_core.PydanticCustomError
        If no token is left to process.

    Examples
    --------
    >>> prefill(2, 1024, hit=1023).segments == (Segment(sequences=2, new=1, cached=1023, logits="last"),)
    True
    """
    if not 0 <= hit < prompt:
        message = f"found {hit} cached tokens of a prompt of {prompt}: at least one is left to process"
        raise problem(message, f"at most {prompt - 1}", "$.hit")
    return Phase(segments=(Segment(sequences=batch, new=prompt - hit, cached=hit, logits="last"),))


def decode(batch: int, context: int) -> Phase:
    """Phase that adds one token to each of ``batch`` sequences, after ``context`` cached ones.

    Examples
    --------
    >>> decode(16, 4096).segments[0].pairs()
    4097
    """
    return verify(batch, context)


def verify(batch: int, context: int, window: int = 0, tree: tuple[int, ...] | None = None) -> Phase:
    """Phase that verifies draft tokens: a window after the last token, or a tree.

    Parameters
    ----------
    batch, context : int
        Number of sequences, and tokens of each that are cached.
    window : int
        Draft tokens of each, one after the other.
    tree : tuple of int, optional
        By draft token, its depth in a tree; the first token has depth 0. It replaces ``window``.

    Examples
    --------
    >>> verify(4, 1000, window=3).tokens, verify(4, 1000, tree=(0, 1, 1, 2)).tokens
    (16, 16)
    """
    new, sees = (window + 1, "causal") if tree is None else (len(tree), tree)
    return Phase(segments=(Segment(sequences=batch, new=new, cached=context, sees=sees),))


def check_depths(depths: tuple[int, ...], where: str) -> None:
    """Raise an error unless the depths describe a tree.

    Examples
    --------
    >>> check_depths((0, 1, 1, 2), "$.tree")
    """
    below = set(depths)
    for depth in sorted(below):
        if depth < 0 or (depth > 0 and depth - 1 not in below):
            message = f"found a depth of {depth}, but none of {depth - 1}"
            raise problem(message, "count depths from 0, the tokens that follow the cached ones", where)


def _up_to(tokens: int, window: int) -> int:
    """Keys that so many first tokens of a sequence see through a window."""
    full = min(tokens, window)
    return full * (full + 1) // 2 + (tokens - full) * window


def _in_chunks(tokens: int, chunk: int) -> int:
    """Keys that so many first tokens see in their own chunks."""
    chunks, rest = divmod(tokens, chunk)
    return chunks * chunk * (chunk + 1) // 2 + rest * (rest + 1) // 2
