"""Attention: of every query head, of groups that share keys and values, or of all heads to one of them.

In grouped-query attention a K/V head serves ``heads / kv_heads`` query heads. The products of attention count
every query head, while the tensors that bring K and V to them are as large as the K/V heads: a head is read by
its whole group and copied for none. Over more tensor-parallel chips than K/V heads, a chip computes and holds
one whole K/V head, as implementations do. A single K/V head (multi-query attention) is split by its features
instead, and what collecting them on every chip costs is not counted.

Of a local layer, a window or chunk of tokens is computed, held and read. Not drawn, but counted as parameters: biases
and sinks, which products and softmax add as they run.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import problem
from dfopt.documents.phase import Segment
from dfopt.workloads.backward import Gradient
from dfopt.workloads.blocks.attending import Sight, attend
from dfopt.workloads.blocks.block import Block
from dfopt.workloads.blocks.indexer import Indexer
from dfopt.workloads.drawing import Drawing
from dfopt.workloads.sketch import Read


class Heads(Block):
    """Query heads, and the key and value heads that they share (grouped-query attention).

    Attributes
    ----------
    heads : heads, e.g. 32
        Number of query heads of each layer.
    head_dim : features, e.g. 128
        Number of features of one head.
    kv_heads : heads, e.g. 8
        Number of heads of keys and of values, a divisor of ``heads`` (grouped-query attention). None: as many as query
        heads.
    bias : e.g. none
        Projections that add a bias. ``none``: no projection. ``qkv``: those of queries, keys and values. ``all``: all
        projections. ``no_key``: all except that of keys, as in Whisper.
    """

    heads: int = Field(ge=1, le=10**5)
    head_dim: int = Field(ge=1, le=10**6)
    kv_heads: int | None = Field(default=None, ge=1, le=10**5)
    bias: Literal["none", "qkv", "all", "no_key"] = "none"

    @model_validator(mode="after")
    def _share_heads(self) -> Self:
        if self.heads % self.groups:
            raise problem(
                f"found {self.groups} K/V heads, expected a divisor of the {self.heads} query heads",
                "choose a divisor, or leave it out",
                "$.kv_heads",
            )
        return self

    @property
    def groups(self) -> int:
        """Number of key heads, and of value heads."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def width(self) -> int:
        """Features of all query heads together."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Features of all key heads together, and of all value heads."""
        return self.groups * self.head_dim

    def projections(self, hidden: int) -> int:
        """Parameters of the Q, K, V and output projections, with biases."""
        biases = {
            "none": 0,
            "qkv": self.width + 2 * self.kv_width,
            "all": self.width + 2 * self.kv_width + hidden,
            "no_key": self.width + self.kv_width + hidden,
        }
        return 2 * hidden * (self.width + self.kv_width) + biases[self.bias]

    def shared(self, drawing: Drawing, sight: Sight) -> float | None:
        """Bytes of the new tokens' K or V, where they differ from the operand's default size; else None."""
        few = self.groups < self.heads or sight.keys != sight.segment.new or drawing.suffix
        return drawing.bytes(self.kv_width * sight.segment.tokens) if few else None


class Attention(Heads):
    """Self-attention: new tokens attend to tokens of the same sequence.

    Attributes
    ----------
    kind : e.g. attention
        Kind of the block: attention, multi-head, grouped-query or multi-query attention.
    rotary_dim : features, e.g. 64
        Features of a head that have a rotary position. 0 means none of them. None: all of them.
    window : tokens, e.g. 4096
        Tokens that a token attends to at most, itself included. If all tokens see each other, the window has two sides.
        None: no window.
    chunk : tokens, e.g. 8192
        Length of the chunks within which tokens attend to each other, as in Llama 4. None: no chunks.
    sees : e.g. causal
        Keys of a whole sample that a token attends to. ``causal``: those before it and its own. ``full``: all keys.
        None: as the evaluation says.
    qk_norm : e.g. head
        Normalization of queries and keys. ``none``: no normalization. ``head``: over each head. ``all``: over all heads
        together.
    gate : e.g. none
        Gate on the output of attention. ``none``: no gate. ``element``: one factor for every feature. ``head``: one
        factor for every head.
    sinks : e.g. false
        Whether each head has a learned sink score. It changes the parameter count only.
    values : e.g. own
        Source of the values of attention. ``own``: a projection of their own. ``keys``: the projection of the keys, as
        in global layers of Gemma 4.
    value_dim : features, e.g. 128
        Features of the value of one head. None: as many as those of its query.
    sparse : e.g. {heads: 64, head_dim: 128, top_k: 2048}
        Indexer that selects the tokens to attend to. None: all tokens.

    Examples
    --------
    >>> Attention(kind="attention", heads=32, kv_heads=8, head_dim=128).token_elements
    2048
    """

    kind: Literal["attention"]
    rotary_dim: int | None = Field(default=None, ge=0, le=10**6)
    window: int | None = Field(default=None, ge=1, le=10**9)
    chunk: int | None = Field(default=None, ge=1, le=10**9)
    sees: Literal["causal", "full"] | None = None
    qk_norm: Literal["none", "head", "all"] = "none"
    gate: Literal["none", "element", "head"] = "none"
    sinks: bool = False
    values: Literal["own", "keys"] = "own"
    value_dim: int | None = Field(default=None, ge=1, le=10**6)

    sparse: Indexer | None = None

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.value_dim is not None and self.values == "keys":
            raise problem(f"found {self.value_dim} features of values that are keys", "leave it out", "$.value_dim")
        if self.sparse is not None and (self.window is not None or self.chunk is not None):
            raise problem("found an indexer of local attention", "leave one of them out", "$.sparse")
        if self.window is not None and self.chunk is not None:
            raise problem(f"found {self.chunk} beside a window of {self.window}", "leave one of them out", "$.chunk")
        if (self.rotary_dim or 0) > self.head_dim:
            message = f"found {self.rotary_dim} features of a head of {self.head_dim}"
            raise problem(message, "at most all of them", "$.rotary_dim")
        return self

    @property
    def token_elements(self) -> int:
        """Cached elements per token: keys, values and the indexer's key; 0 without a cache."""
        if self.sees == "full":
            return 0
        return self.kv_width + self.groups * self._of_value + (self.sparse.token_elements if self.sparse else 0)

    @property
    def _of_value(self) -> int:
        """Features of a head's value."""
        return self.head_dim if self.value_dim is None else self.value_dim

    def parameters(self, hidden: int) -> int:
        """Number of parameters: projections, norms, gates and sinks."""
        gains = {"none": 0, "head": 2 * self.head_dim, "all": self.width + self.kv_width}[self.qk_norm]
        gates = {"none": 0, "element": self.heads * self._of_value, "head": self.heads}[self.gate]
        less = hidden * self.kv_width if self.values == "keys" else 0
        narrower = self.head_dim - self._of_value
        less += narrower * (hidden * (self.heads + self.groups) + self.groups * (self.bias != "none"))
        more = self.sparse.parameters(hidden, None) if self.sparse else 0
        return self.projections(hidden) - less + gains + hidden * gates + self.heads * self.sinks + more

    def misfit(self, segment: Segment, *, trains: bool) -> tuple[str, str] | None:
        """Reason and remedy if the block cannot process a segment (windows and chunks exclude trees), or None."""
        if trains and self.sparse is not None:
            return "found an indexer in a training step, whose gradients are not drawn", "write mode: forward"
        if self.sees == "full" and segment.cached:
            message = (
                f"found {segment.cached} cached tokens, but all tokens see each other, and nothing is kept of them"
            )
            return message, "write phase: prefill without a hit, or leave it out"
        seen = Sight(segment, window=self.window, chunk=self.chunk)
        sees = self.sees or segment.sees
        both_ways = sees == "full" and self.chunk is None and not segment.cached
        if not seen.local or sees == "causal" or both_ways:
            return None
        message = f"found local attention, where tokens of {segment.keys} see more than those before them"
        return message, "write causal: true or a phase, or leave window and chunk out"

    def sight(self, segment: Segment) -> Sight:
        """Keys that the new tokens of a segment attend to."""
        sees = {} if self.sees is None else {"sees": self.sees}
        top = self.sparse.tokens if self.sparse else None
        return Sight(segment.model_copy(update=sees), window=self.window, chunk=self.chunk, top=top)

    def draw(self, drawing: Drawing, hidden: int, source: str) -> str:
        """Draw projections, position encoding and attention; return the name of the last kernel."""
        dim, of_value, linear = self.head_dim, self._of_value, drawing.linear
        gates = {"none": 0, "element": of_value, "head": 1}[self.gate]
        projected = linear("Q_Proj", dim + gates, hidden, source, outer=self.heads)
        part = drawing.bytes(self.width * drawing.tokens) if gates else None
        k = v = linear("K_Proj", dim, hidden, source, outer=self.groups)
        if self.values == "own":
            v = linear("V_Proj", of_value, hidden, source, outer=self.groups)
            drawing.sum_kernels[v] = ("V_Sum_bwd", v)
        q = self._placed(drawing, Read(projected, None, part, "queries"), self.heads)
        k = self._placed(drawing, Read(k), self.groups).src
        drawing.sum_kernels[k] = ("K_Sum_bwd", "K_Proj")
        index, contexts = self.sparse.project(drawing, hidden, source) if self.sparse else None, list[str]()
        for view in drawing.each():
            sight = self.sight(view.segment)
            shared, keeps, sizes = self.shared(view, sight), self.sees != "full", {"keys": dim, "values": of_value}
            kept = [sight.state(view, name, self.groups, size) if keeps else () for name, size in sizes.items()]
            attended = attend(
                view,
                sight.scores(self.heads, still=view.still),
                view.own(q),
                Read(k, 2, shared),
                Read(v, 2, None if shared is None else shared / dim * of_value),
                dims=(dim, of_value),
                states=(kept[0], kept[1]),
                chosen=self.sparse.choose(view, index) if self.sparse else None,
            )
            contexts.append(attended)
        attended_by = drawing.joined(contexts)
        if gates:
            gate = Read(projected, None, drawing.bytes(self.heads * gates * drawing.tokens), "gate")
            drawing.rules["Gated"] = (
                Gradient("Gated_bwd_values", of=tuple(contexts), reads=(projected,)),
                Gradient("Gated_bwd_gate", of=(projected,), reads=tuple(contexts)),
            )
            attended_by = (Read(drawing.by_head("Gated", self.heads, of_value, *attended_by, gate)),)
        return linear("O_Proj", hidden, self.heads * of_value, *attended_by)

    def _placed(self, drawing: Drawing, projected: Read, heads: int) -> Read:
        """Draw norm and position of queries or keys, which one kernel does."""
        letter, dim, rotates = projected.src[0], self.head_dim, self.rotary_dim != 0
        if self.qk_norm == "all":
            projected = Read(drawing.pointwise(f"{letter}_Norm", heads * dim, projected, normalizes=True))
        if not rotates and self.qk_norm != "head":
            return projected
        name = f"{letter}_RoPE" if rotates else f"{letter}_Norm"
        norms = {"normalizes": True, "flop_per_element": 1 + rotates} if self.qk_norm == "head" else {}
        if not norms:
            drawing.rules[name] = Gradient(reads=())
        return Read(drawing.by_head(name, heads, dim, projected, **norms))
