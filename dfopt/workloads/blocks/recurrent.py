"""Mixers that keep a state of a fixed size instead of keys and values: gated delta rule, Kimi delta attention.

A state is a matrix for every head and sequence. The first tokens of a sequence begin with an empty one, all others read
what is kept; each evaluation writes it. Tokens of one evaluation are worked on in chunks: inside a chunk as attention
is, pair by pair, and between chunks through the state. Single tokens are chunks of one, which is the recurrence itself.
The products of all that are one kernel here, as large as its FLOP, whose intermediate results never leave the chip. A
short convolution in front keeps the inputs of the tokens before. Rates and time steps of heads are computed, but count
as no traffic.

Sources: Gated DeltaNet (arXiv:2412.06464, section 3.3), Kimi Linear (arXiv:2510.26692).
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import problem
from dfopt.documents.graph import Kernel, SequenceState
from dfopt.documents.phase import Segment
from dfopt.workloads.blocks.block import Block
from dfopt.workloads.drawing import Drawing
from dfopt.workloads.sketch import Read


def chunked_pairs(segment: Segment, chunk: int) -> int:
    """Number of (new token, token up to it in the same chunk) pairs in one sequence.

    Examples
    --------
    >>> chunked_pairs(Segment(sequences=1, new=10, cached=3), chunk=4), chunked_pairs(Segment(sequences=1, new=1), 4)
    (23, 1)
    """
    return Segment(sequences=1, new=segment.new).pairs(chunk=chunk)


class Recurrent(Block):
    """Base of mixers with a recurrent state.

    Attributes
    ----------
    convolution : tokens, e.g. 4
        Tokens that the short convolution covers.
    state_bytes : B, e.g. 4
        Size of one element of the recurrent state.
    """

    convolution: int = Field(default=4, ge=1, le=1000)
    state_bytes: int = Field(default=4, ge=1, le=16)

    @property
    def convolved(self) -> int:
        """Number of features that pass the convolution, over all heads."""
        raise NotImplementedError

    def misfit(self, segment: Segment, *, trains: bool) -> tuple[str, str] | None:
        """Reason and remedy if the block cannot process a segment (states need plain sequences) or train, or None."""
        if trains:
            return "found a mixer with a state in a training step, whose gradients are not drawn", "write mode: forward"
        if not isinstance(segment.sees, str):
            return "found a tree of tokens, which follow each other in no order", "verify a window of tokens"
        return None

    def _convolve(self, drawing: Drawing, name: str, heads: int, dim: int, *sources: str | Read) -> str:
        """Draw the short convolution of some features, of which the inputs before are kept."""
        size = drawing.state_bytes(heads * dim * (self.convolution - 1), drawing.words.activations)
        kept = sequence_states(drawing, "convolution", heads, size)
        shape = {"flop_per_element": 2 * self.convolution, "states": kept}
        return drawing.by_head(name, heads, dim, *sources, **shape)

    def _scan(
        self, drawing: Drawing, name: str, heads: int, dims: tuple[int, int], work: int, v: Read, rest: Read
    ) -> str:
        """Draw the products of chunks and state: ``work`` FLOP for every head of a sequence."""
        segment, (inner, out) = drawing.segment, dims
        kept = sequence_states(drawing, "state", heads, drawing.state_bytes(heads * inner * out, self.state_bytes))
        stream = {"stream": "none"} if drawing.still else {}
        samples = {"samples": segment.sequences} if segment.sequences > 1 else {}
        depth = -(-work // (2 * out * segment.new))
        shape = {"outer": heads, "m": out, "k": depth, "n": segment.new, **samples, **stream}
        return drawing.draw(Kernel(name=name, op="matmul", states=kept, **shape), v, rest)

    def _delta_rule(
        self,
        drawing: Drawing,
        hidden: int,
        heads: tuple[int, int],
        dims: tuple[int, int],
        chunk: int,
        into: str,
        gate: str | Read,
        *decay: str,
    ) -> str:
        """Draw convolution and rule on the queries, keys and values of ``into``, norm and gate, and what leads out.

        ``heads``: of values, and of keys; ``dims``: features of a key, and of a value.
        """
        values, keys, outputs = heads[0] * dims[1], 2 * heads[1] * dims[0], list[str]()
        for part in drawing.each():
            read = Read(into, None, part.bytes(self.convolved * part.tokens), "convolved")
            decays = (part.own(source) for source in decay)
            mixed = self._convolve(part, "QKV_Conv", heads[1], self.convolved // heads[1], read, *decays)
            v = Read(mixed, 2, part.bytes(values * part.tokens), "values")
            q_and_k = Read(mixed, 1, part.bytes(keys * part.tokens), "queries and keys")
            work = delta_rule_flop(part.segment, chunk, *dims)
            outputs.append(self._scan(part, "Delta_Rule", heads[0], dims, work, v, q_and_k))
        normed = drawing.by_head("Delta_Norm", heads[0], dims[1], *drawing.joined(outputs), gate, normalizes=True)
        return drawing.linear("O_Proj", hidden, values, normed)


def sequence_states(drawing: Drawing, name: str, heads: int, size: int) -> tuple[SequenceState, ...] | None:
    """Fixed-size recurrent state of each sequence; None where nothing is kept.

    Parameters
    ----------
    drawing
        The view of a segment.
    name
        Name of the state.
    heads
        Heads that it belongs to.
    size
        Bytes of a sequence.
    """
    segment = drawing.segment
    if not drawing.keeps or not size:
        return None
    sizes = {"sequences": segment.sequences, "heads": heads, "bytes_per_sequence": size}
    return (SequenceState(name=name, tokens=segment.keys, reads=segment.cached, writes=segment.new, **sizes),)


class GatedDeltaNet(Recurrent):
    """Linear attention by the gated delta rule, as in Qwen3-Next and Qwen3.5.

    Attributes
    ----------
    kind : e.g. gated_delta_net
        Kind of the block: gated_delta_net, the gated delta rule as in Qwen3-Next.
    key_heads : heads, e.g. 16
        Number of heads of queries and of keys.
    value_heads : heads, e.g. 32
        Number of heads of values, a multiple of ``key_heads``.
    key_dim : features, e.g. 128
        Features of one query and of one key.
    value_dim : features, e.g. 128
        Features of the value of one head.
    chunk : tokens, e.g. 64
        Tokens that the kernel processes together.

    Examples
    --------
    >>> sizes = {"key_heads": 16, "value_heads": 32, "key_dim": 128, "value_dim": 128}
    >>> GatedDeltaNet(kind="gated_delta_net", **sizes).parameters(hidden=2048)
    33718464
    """

    kind: Literal["gated_delta_net"]
    key_heads: int = Field(ge=1, le=10**5)
    value_heads: int = Field(ge=1, le=10**5)
    key_dim: int = Field(ge=1, le=10**6)
    value_dim: int = Field(ge=1, le=10**6)
    chunk: int = Field(default=64, ge=1, le=10**6)

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.value_heads % self.key_heads:
            message = f"found {self.value_heads} heads of values for {self.key_heads} of keys"
            raise problem(message, "write a multiple", "$.value_heads")
        return self

    @property
    def _of_group(self) -> int:
        """Features of a query, a key and the values that belong to them."""
        return 2 * self.key_dim + self.value_heads // self.key_heads * self.value_dim

    @property
    def convolved(self) -> int:
        """Number of features that pass the convolution, over all heads."""
        return self.key_heads * self._of_group

    def parameters(self, hidden: int) -> int:
        """Number of parameters: projections, convolution, decay and norm."""
        into, values = self.key_heads * self._of_group, self.value_heads * self.value_dim
        products = hidden * (into + 2 * values + 2 * self.value_heads)
        return products + into * self.convolution + 2 * self.value_heads + self.value_dim

    def draw(self, drawing: Drawing, hidden: int, source: str) -> str:
        """Draw projections, convolution, delta rule, norm and gate; return the name of the last kernel."""
        heads, groups, dims = self.value_heads, self.key_heads, (self.key_dim, self.value_dim)
        each = heads // groups  # with the gate, and two rates, of every value head
        wide = self._of_group + each * (self.value_dim + 2)
        into = drawing.linear("QKVZ_Proj", wide, hidden, source, outer=groups)
        gate = Read(into, None, drawing.bytes(heads * self.value_dim * drawing.tokens), "gate")
        return self._delta_rule(drawing, hidden, (heads, groups), dims, self.chunk, into, gate)


class KimiDeltaAttention(Recurrent):
    """Linear attention by the delta rule with per-feature decay, as in Kimi Linear.

    Attributes
    ----------
    kind : e.g. kda
        Kind of the block: kda, Kimi delta attention.
    heads : heads, e.g. 32
        Number of heads of queries, keys and values.
    key_dim : features, e.g. 128
        Features of one query and of one key.
    value_dim : features, e.g. 128
        Features of the value of one head.
    decay_rank : features, e.g. 128
        Features between the two low-rank projections that compute the decay of the state.
    gate_rank : features, e.g. 128
        Features between the two projections of the gate.
    chunk : tokens, e.g. 64
        Tokens that the kernel processes together.

    Examples
    --------
    >>> sizes = {"heads": 32, "key_dim": 128, "value_dim": 128, "decay_rank": 128, "gate_rank": 128}
    >>> KimiDeltaAttention(kind="kda", **sizes).parameters(hidden=2304)
    39514272
    """

    kind: Literal["kda"]
    heads: int = Field(ge=1, le=10**5)
    key_dim: int = Field(ge=1, le=10**6)
    value_dim: int = Field(ge=1, le=10**6)
    decay_rank: int = Field(ge=1, le=10**6)
    gate_rank: int = Field(ge=1, le=10**6)
    chunk: int = Field(default=64, ge=1, le=10**6)

    @property
    def _of_head(self) -> int:
        return 2 * self.key_dim + self.value_dim

    @property
    def convolved(self) -> int:
        """Number of features that pass the convolution, over all heads."""
        return self.heads * self._of_head

    def parameters(self, hidden: int) -> int:
        """Number of parameters: projections, convolution, decay, gate and norm."""
        heads, keys, values = self.heads, self.heads * self.key_dim, self.heads * self.value_dim
        products = hidden * (heads * self._of_head + values + heads + self.decay_rank + self.gate_rank)
        ranks = self.decay_rank * keys + self.gate_rank * values
        return products + ranks + heads * self._of_head * self.convolution + heads + keys + self.value_dim

    def draw(self, drawing: Drawing, hidden: int, source: str) -> str:
        """Draw projections, convolution, delta rule, norm and gate; return the name of the last kernel."""
        heads, dims = self.heads, (self.key_dim, self.value_dim)
        into = drawing.linear("QKV_Proj", self._of_head + 1, hidden, source, outer=heads)  # with a rate of every head
        down = drawing.linear("Ranks_Down", self.decay_rank + self.gate_rank, hidden, source, role="latent")
        sizes = {"decay": self.decay_rank, "gate": self.gate_rank}
        ranks = (Read(down, None, drawing.bytes(n * drawing.tokens), name) for name, n in sizes.items())
        decay = drawing.linear("Decay_Up", self.key_dim, self.decay_rank, next(ranks), outer=heads)
        gate = drawing.linear("Gate_Up", self.value_dim, self.gate_rank, next(ranks), outer=heads)
        return self._delta_rule(drawing, hidden, (heads, heads), dims, self.chunk, into, gate, decay)


def delta_rule_flop(segment: Segment, chunk: int, key_dim: int, value_dim: int) -> int:
    """FLOP of the delta rule for one head and sequence.

    Parameters
    ----------
    segment
        New and cached tokens of each sequence.
    chunk
        Tokens of a chunk.
    key_dim, value_dim
        Features of a key and of a value.

    Notes
    -----
    For every pair in a chunk: products of two keys, and of query and key, and products with the keys, the values and
    the corrected values of the other token. For every token: products of the state with its key and its query, and the
    update of the state.

    Examples
    --------
    >>> delta_rule_flop(Segment(sequences=1, new=1, cached=9), 64, 4, 8) == 2 * 3 * 4 * 8 + 2 * (3 * 4 + 2 * 8)
    True
    """
    pairs = chunked_pairs(segment, chunk)
    return 2 * pairs * (3 * key_dim + 2 * value_dim) + 6 * segment.new * key_dim * value_dim
