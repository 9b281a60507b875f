"""Drawing layers: kernels as large as one evaluation makes them.

Matrices are held with features along ``m`` and tokens along ``n``, see :mod:`dfopt.documents.graph`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from dfopt.documents.dtypes import Words
from dfopt.documents.graph import Kernel, Role, SequenceState
from dfopt.documents.phase import Segment
from dfopt.documents.routing import Routing
from dfopt.workloads.backward import Gradient
from dfopt.workloads.sketch import Read, Sketch

__all__ = ["Attending", "Drawing", "Form"]

Form = Literal["expanded", "absorbed"]
"""Ways to compute latent attention, see :mod:`dfopt.workloads.blocks.mla`."""


@dataclass(frozen=True)
class Attending:
    """Attention of the new tokens of every sequence to some keys, as makers of kernels over scores.

    Scores lie with keys along ``m`` and queries along ``n``. ``pairs`` of them in a sequence are computed.

    Examples
    --------
    >>> scores = Attending(heads=2, sequences=3, new=16, keys=16, pairs=136).product("QK", 16, 4, "scores")
    >>> scores.outer, scores.samples, scores.density
    (2, 3, 0.53125)
    """

    heads: int
    sequences: int
    new: int
    keys: int
    pairs: int
    single: bool = False  # one token of each sequence is no stream, and cuts no other kernel's short

    @property
    def _shape(self) -> dict[str, Any]:
        whole, stream = self.new * self.keys, {"stream": "none"} if self.single and self.new == 1 else {}
        samples = {"samples": self.sequences} if self.sequences > 1 else {}
        density = self.pairs / whole if self.pairs < whole else None
        return {"outer": self.heads, "n": self.new, "density": density, **samples, **stream}

    def pointwise(self, name: str, role: Role | None, *, normalizes: bool = False) -> Kernel:
        """An elementwise kernel over the scores."""
        return Kernel(name=name, op="elementwise", m=self.keys, role=role, normalizes=normalizes, **self._shape)

    def product(self, name: str, m: int, k: int, role: Role | None, states: tuple[SequenceState, ...] = ()) -> Kernel:
        """A product of two activations: the scores, or what they weigh up."""
        shape = self._shape
        masked = 1 if shape["density"] is not None and role == "context" else None
        return Kernel(name=name, op="matmul", m=m, k=k, role=role, masked=masked, states=states or None, **shape)


class Drawing(Sketch):
    """A layer that is drawn, and how its backward pass departs from the rules of the ops.

    Attributes
    ----------
    segment : Segment
        What one evaluation works on.
    words : Words
        Bytes of an element of every class of data.
    keeps : bool
        Whether states are kept of it.
    trains : bool
        Whether a backward pass follows.
    form : str, optional
        How latent attention is computed where a layer leaves it open.
    routing : Routing
        Who is sent to which expert.
    rules, sums
        See :func:`dfopt.workloads.backward.backward_of`.
    from_states : set
        Operands of kernels that are all in their states: no tensor brings them, and nothing else is read.

    Examples
    --------
    >>> from dfopt.documents.dtypes import words_of
    >>> drawing = Drawing(Segment(sequences=3, new=16), words_of(None, 2))
    >>> drawing.linear("Up", 32, 8, drawing.pointwise("Norm", 8, normalizes=True))
    'Up'
    >>> drawing.kernels[-1].n, drawing.bytes(10)
    (48, 20.0)
    """

    def __init__(
        self,
        segment: Segment,
        words: Words,
        *,
        keeps: bool = False,
        page: int = 1,
        trains: bool = False,
        form: Form | None = None,
        routing: Routing | None = None,
    ) -> None:
        super().__init__()
        self.trains, self.form, self.routing = trains, form, routing or Routing()
        self.segment, self.words, self.keeps, self.page = segment, words, keeps, page
        self.rules: dict[str, Gradient | tuple[Gradient, ...]] = {}
        self.sums: dict[str, tuple[str, str]] = {}
        self.from_states: set[tuple[str, int]] = set()

    @property
    def tokens(self) -> int:
        """Tokens of one evaluation."""
        return self.segment.tokens

    def bytes(self, elements: int) -> float:
        """Bytes of some elements of a tensor."""
        return elements * self.words.activations

    def cached_bytes(self, elements: int) -> int:
        """Bytes of some elements of keys, values or latents that are kept."""
        return math.ceil(elements * self.words.kv)

    def state_bytes(self, elements: int, own: float) -> int:
        """Bytes of some elements of a recurrent state, which has so many for each of its own."""
        return math.ceil(elements * (own if self.words.state is None else self.words.state))

    def pointwise(self, name: str, m: int, *inputs: str | Read, **fields: Any) -> str:
        """Draw an elementwise kernel over ``m`` features of every token."""
        return self.draw(Kernel(name=name, op="elementwise", m=m, n=self.tokens, **fields), *inputs)

    def by_head(self, name: str, heads: int, dim: int, *inputs: str | Read, **fields: Any) -> str:
        """Draw an elementwise kernel over heads of every token."""
        return self.pointwise(name, dim, *inputs, outer=heads, **fields)

    def linear(self, name: str, m: int, k: int, source: str | Read, *, outer: int = 1, **fields: Any) -> str:
        """Draw a product with a weight on every token; ``outer`` = heads if each head has a weight of its own."""
        return self.draw(Kernel(name=name, op="gemm", outer=outer, m=m, k=k, n=self.tokens, **fields), source)
