"""Mamba and Mamba 2: mixers with a state of a fixed size, see :mod:`dfopt.workloads.blocks.recurrent`.

Sources: Mamba (arXiv:2312.00752, section 3.3), Mamba 2 (arXiv:2405.21060, section 6).
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import problem
from dfopt.workloads.blocks.recurrent import Recurrent, chunked_pairs, sequence_states
from dfopt.workloads.drawing import Drawing
from dfopt.workloads.sketch import Read


class Mamba2(Recurrent):
    """Mamba 2: state-space heads with scalar decays, in groups that share input and output projections.

    Attributes
    ----------
    kind : e.g. mamba2
        Kind of the block: mamba2, Mamba 2 with a scalar decay for each head.
    heads : heads, e.g. 24
        Number of heads of the state space model.
    head_dim : features, e.g. 64
        Number of features of one head.
    groups : groups, e.g. 1
        Number of groups of heads that share input and output projections of the state, a divisor of ``heads``.
    state : features, e.g. 128
        Features of the state for each feature of a head.
    chunk : tokens, e.g. 256
        Tokens that the kernel processes together.
    conv_bias : e.g. true
        Whether the convolution adds a bias. It changes the parameter count only.
    bias : e.g. false
        Whether the projections add a bias. It changes the parameter count only.

    Examples
    --------
    >>> Mamba2(kind="mamba2", heads=4, head_dim=8, groups=1, state=16).parameters(hidden=16)
    2476
    """

    kind: Literal["mamba2"]
    heads: int = Field(ge=1, le=10**5)
    head_dim: int = Field(ge=1, le=10**6)
    groups: int = Field(default=1, ge=1, le=10**5)
    state: int = Field(ge=1, le=10**6)
    chunk: int = Field(default=256, ge=1, le=10**6)
    conv_bias: bool = True
    bias: bool = False

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.heads % self.groups:
            message = f"found {self.groups} groups, expected a divisor of the {self.heads} heads"
            raise problem(message, "choose a divisor", "$.groups")
        return self

    @property
    def _inner(self) -> int:
        return self.heads * self.head_dim

    @property
    def convolved(self) -> int:
        """Number of features that pass the convolution, over all heads."""
        return self._inner + 2 * self.groups * self.state

    def parameters(self, hidden: int) -> int:
        """Number of parameters: projections, convolution, decays and norm."""
        into = self._inner + self.convolved + self.heads
        products = hidden * (into + self._inner) + (into + hidden) * self.bias
        return products + self.convolved * (self.convolution + self.conv_bias) + 3 * self.heads + self._inner

    def draw(self, drawing: Drawing, hidden: int, source: str) -> str:
        """Draw projections, convolutions, scan, norm and gate; return the name of the last kernel."""
        heads, dim, groups, outputs = self.heads, self.head_dim, self.groups, list[str]()
        into = drawing.linear("XZ_Proj", 2 * dim + 1, hidden, source, outer=heads)  # with a time step of every head
        both = drawing.linear("BC_Proj", 2 * self.state, hidden, source, outer=groups)
        gate = Read(into, None, drawing.bytes(heads * dim * drawing.tokens), "gate")
        for part in drawing.each():
            segment, sizes = part.segment, (heads * dim, 2 * groups * self.state)
            features, of_groups = (part.bytes(n * part.tokens) for n in sizes)
            x = self._convolve(part, "X_Conv", heads, dim, Read(into, None, features, "x"))
            written = self._convolve(part, "BC_Conv", groups, 2 * self.state, part.own(both))
            # A pair of a chunk: C and B of the group, shared by its heads, and their weight of x. A token: what is
            # added to the state, and what is read of it.
            pairs = chunked_pairs(segment, self.chunk)
            work = 2 * pairs * dim + -(-2 * pairs * self.state * groups // heads) + 4 * segment.new * dim * self.state
            values, rest = Read(x, 2, features), Read(written, 1, of_groups)
            outputs.append(self._scan(part, "Scan", heads, (self.state, dim), work, values, rest))
        out, features = drawing.joined(outputs), self._inner // groups
        normed = drawing.by_head("Scan_Norm", groups, features, *out, gate, normalizes=True)
        return drawing.linear("O_Proj", hidden, self._inner, normed)


class Mamba(Recurrent):
    """Mamba: selective state space with one decay per feature, whose features share B and C.

    Attributes
    ----------
    kind : e.g. mamba
        Kind of the block: mamba, Mamba with a decay for every feature.
    inner : features, e.g. 1536
        Number of features inside the block.
    state : features, e.g. 16
        Features of the state for each inner feature.
    time_rank : features, e.g. 48
        Features between the two projections of the time step.
    conv_bias : e.g. true
        Whether the convolution adds a bias. It changes the parameter count only.
    inner_norms : e.g. false
        Whether norms follow the projections of time step and state, as in Jamba.

    Examples
    --------
    Of mamba-130m:

    >>> Mamba(kind="mamba", inner=1536, state=16, time_rank=48).parameters(hidden=768)
    3770880
    """

    kind: Literal["mamba"]
    inner: int = Field(ge=1, le=10**5)
    state: int = Field(ge=1, le=10**6)
    time_rank: int = Field(ge=1, le=10**6)
    conv_bias: bool = True
    inner_norms: bool = False

    @property
    def convolved(self) -> int:
        """Number of features that pass the convolution."""
        return self.inner

    def parameters(self, hidden: int) -> int:
        """Number of parameters: projections, convolution, decays and norms."""
        inner, bct_width = self.inner, self.time_rank + 2 * self.state
        products = 3 * hidden * inner + inner * (bct_width + self.time_rank)
        return products + inner * (self.convolution + self.conv_bias + self.state + 2) + bct_width * self.inner_norms

    def draw(self, drawing: Drawing, hidden: int, source: str) -> str:
        """Draw projections, convolution, scan and gate; return the name of the last kernel."""
        inner, bct_width = self.inner, self.time_rank + 2 * self.state
        both = drawing.linear("XZ_Proj", 2, hidden, source, outer=inner)
        parts, every = drawing.each(), list[str]()
        for part in parts:
            x_too = Read(both, None, part.bytes(inner * part.tokens), "x")
            every.append(self._convolve(part, "X_Conv", inner, 1, x_too))
        read = drawing.linear("BCT_Proj", bct_width, inner, *drawing.joined(every))
        read = drawing.pointwise("BCT_Norm", bct_width, read, normalizes=True) if self.inner_norms else read
        ranks = Read(read, None, drawing.bytes(self.time_rank * drawing.tokens), "time")
        steps, outputs = drawing.linear("DT_Proj", inner, self.time_rank, ranks), list[str]()
        for part, x in zip(parts, every, strict=True):
            kept = sequence_states(part, "state", inner, part.state_bytes(inner * self.state, self.state_bytes))
            b_and_c = Read(read, None, part.bytes(2 * self.state * part.tokens), "state")
            gate = Read(both, None, part.bytes(inner * part.tokens), "gate")
            # Of every feature of the state: the decay and what is written (2 each), their sum with it (2), and the
            # output (2).
            shape = {"flop_per_element": 8 * self.state, "states": kept}
            outputs.append(part.by_head("Scan", inner, 1, x, part.own(steps), b_and_c, gate, **shape))
        return drawing.linear("O_Proj", hidden, inner, *drawing.joined(outputs))
